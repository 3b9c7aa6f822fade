/*
 * The simulated world for a configuration: sites, and the mail that arrives for them.
 *
 *     # comment
 *     site example.org slots=20 latency=50ms
 *     site *.slow.example hosts=4 bad=1:refuse latency=lognormal(2s,0.5) outage=2h..3h:hang
 *     arrivals news class=bulk at=0s recipients=50000 to=example.org size=20k
 *     arrivals resets rate=10/s from=1m until=2h to=zipf(1000,1.1)
 *     duration 24h
 *
 * A line is an instruction, its name, and KEY=VALUE words; docs/simulator.md explains them all. The
 * first `site` line whose pattern matches a destination applies to it; without a match
 * sim_site_model_default applies.
 *
 * Everything is bounded by the limits below. A workload never changes and may serve many runs.
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "distribution.h"
#include "sim_site.h"
#include "slice.h"

#define WORKLOAD_FILE_MAX       (4u << 20) /* bytes */
#define WORKLOAD_SITES_MAX      10000
#define WORKLOAD_ARRIVALS_MAX   1000
#define WORKLOAD_POPULATION_MAX 100000  /* domains of one `to`, and of a whole workload */
#define WORKLOAD_RECIPIENTS_MAX 1000000 /* of one message */
#define WORKLOAD_PROBLEMS_MAX   20      /* maximum reported; reading ends there */
#define WORKLOAD_NAME_MAX       200     /* bytes of a name, domain or pattern */

struct workload_site {
    char *pattern; /* owned; a shell pattern for the next hop's host, in lower case */
    struct sim_site_model model;
    bool tells_latency; /* whether the line sets the latency in the model; else that is the
                         * default */
};

/* Domains, and how often each is drawn. */
struct workload_population {
    char **names;       /* owned, with the strings */
    double *cumulative; /* owned; weights of names[0..i] together; the last is the total, > 0 */
    uint32_t count;
};

enum workload_rhythm {
    WORKLOAD_BURST,   /* all at from_us */
    WORKLOAD_POISSON, /* gaps exponential with mean gap_us */
    WORKLOAD_EVEN,    /* gaps of gap_us, the first message at from_us */
};

struct workload_arrivals {
    char *name;     /* owned */
    uint32_t class; /* index of the class under which it is counted */
    bool classed;   /* whether it has class=, so that the scheduler gets the class, too */
    enum workload_rhythm rhythm;
    double gap_us;
    int64_t from_us, until_us; /* begin and end (exclusive); US_FOREVER: no end of its own */
    uint64_t count;            /* maximum number of messages; for a burst, their number */
    struct distribution recipients, size;
    struct workload_population to;
};

struct workload {
    struct workload_site *sites; /* owned, like the other arrays */
    size_t site_count;
    struct workload_arrivals *arrivals;
    size_t arrivals_count;
    char **classes; /* names, in the order of their first mention */
    size_t class_count;
    int64_t duration_us; /* of the run; US_FOREVER: until nothing is left to do */
};

/* Parses the text of a workload. Returns NULL on an error; *errors then has a line
 * "NAME:LINE:COLUMN: error: ..." for each of the first problems. */
struct workload *workload_parse(struct slice text, const char *name, struct buf *errors);

/* Reads a workload from a file. */
struct workload *workload_load(const char *path, struct buf *errors);

/* Frees the workload; NULL is allowed. */
void workload_free(struct workload *w);

/* Returns the first description that matches the host of a destination, or NULL. */
const struct workload_site *workload_site_find(const struct workload *w, struct slice host);

/* Draws a domain; returns its index in names. */
uint32_t workload_draw_domain(const struct workload_population *p, struct rng *rng);

#endif
