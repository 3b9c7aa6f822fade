/*
 * Measurements for monitoring: delays, sizes of batches, times of commits and results of
 * recipients, counted since the start. The memory for them has a fixed size.
 */
#ifndef QUEUE_MEASURES_H
#define QUEUE_MEASURES_H

#include <stdint.h>

#include <jansson.h>

#include "slice.h"
#include "times.h"

/* A histogram: counts[i] is the number of values above bounds[i - 1] of its scale, and at most
 * bounds[i]. The last one has the values above all bounds. */
#define MEASURE_BOUNDS 12

struct measure {
    uint64_t counts[MEASURE_BOUNDS + 1];
    uint64_t count, sum; /* number and sum of values */
};

struct measure_scale {
    int64_t bounds[MEASURE_BOUNDS];
    double unit; /* factor for values in JSON */
};

extern const struct measure_scale measure_delays;  /* microseconds: 50 ms to 3 days */
extern const struct measure_scale measure_commits; /* microseconds: 200 us to 10 s */
extern const struct measure_scale measure_sizes;   /* 1 to 2048 */

/* Adds a value; a negative one counts as 0. */
void measure_add(struct measure *m, const struct measure_scale *scale, int64_t value);

/* Returns {"bounds": [..], "counts": [..], "count": N, "sum": N}, bounds and sum times the
 * scale's unit. There is one count more than bounds; counts are not cumulative. */
json_t *measure_json(const struct measure *m, const struct measure_scale *scale);

/* Phases of an attempt at a recipient. */
enum measure_phase {
    MEASURE_QUEUED,   /* on disk, from its arrival until its message is in memory */
    MEASURE_ACTIVE,   /* in memory, until an agent gets it */
    MEASURE_SETUP,    /* until the connection is ready */
    MEASURE_TRANSMIT, /* until the reply */
    MEASURE_TOTAL,    /* of a sent recipient: from its arrival to the reply */
    MEASURE_PHASES
};
const char *measure_phase_name(enum measure_phase phase);

/* Categories: the second number of an enhanced status (RFC 3463). */
#define MEASURE_CATEGORIES 9
/* Returns "address", "mailbox", "system", "network", "protocol", "content", "policy", "other", or
 * "none" without a status. */
const char *measure_category_name(unsigned category);
unsigned measure_category(struct slice status);

#define MEASURE_STATES 4 /* states of messages: incoming, deferred, hold, corrupt */

#define MEASURE_OUTCOMES 4 /* sent, deferred, bounced, expired */
const char *measure_outcome_name(unsigned outcome);

struct measures {
    uint64_t outcomes[MEASURE_OUTCOMES][MEASURE_CATEGORIES]; /* number of recipients */
    struct measure commit_time;                              /* of commits with steps */
    struct measure batch_steps;
    /* Arrival of the oldest message of each state (us 0: none), and time of that search. */
    struct wall oldest[MEASURE_STATES];
    struct mono oldest_at;
};

#endif
