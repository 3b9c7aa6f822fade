/*
 * What is measured for monitoring: delays, sizes of batches, times of commits and what became of
 * recipients. Since the start, in memory of a fixed size, whatever mail comes.
 */
#ifndef QUEUE_MEASURES_H
#define QUEUE_MEASURES_H

#include <stdint.h>

#include <jansson.h>

#include "slice.h"
#include "times.h"

/* A histogram: counts[i] are values of at most bounds[i] of its scale and above the one before; the
 * last one has what is above all bounds. */
#define MEASURE_BOUNDS 12

struct measure {
    uint64_t counts[MEASURE_BOUNDS + 1];
    uint64_t count, sum; /* of values, in the unit of the scale */
};

struct measure_scale {
    int64_t bounds[MEASURE_BOUNDS];
    double unit; /* of one, as it is told */
};

extern const struct measure_scale measure_delays;  /* microseconds: 50 ms to 3 days */
extern const struct measure_scale measure_commits; /* microseconds: 200 us to 10 s */
extern const struct measure_scale measure_sizes;   /* 1 to 2048 */

/* Less than 0 counts as 0. */
void measure_add(struct measure *m, const struct measure_scale *scale, int64_t value);

/* {"bounds": [..], "counts": [..] (as many and one, each alone), "count": N, "sum": N}, bounds and
 * sum in the scale's unit. */
json_t *measure_json(const struct measure *m, const struct measure_scale *scale);

/* Where the time of an attempt at a recipient goes. */
enum measure_phase {
    MEASURE_QUEUED,   /* on disk: from its arrival until its message was in memory */
    MEASURE_ACTIVE,   /* in memory, until it was handed to an agent */
    MEASURE_SETUP,    /* until the connection was ready */
    MEASURE_TRANSMIT, /* until the reply */
    MEASURE_TOTAL,    /* of what was sent: from its arrival to the reply */
    MEASURE_PHASES
};
const char *measure_phase_name(enum measure_phase phase);

/* What the second number of an enhanced status (RFC 3463) speaks of. */
#define MEASURE_CATEGORIES 9
/* "address", "mailbox", "system", "network", "protocol", "content", "policy", "other"; "none"
 * without a status. */
const char *measure_category_name(unsigned category);
unsigned measure_category(struct slice status);

#define MEASURE_STATES 4 /* of messages: incoming, deferred, hold, corrupt */

#define MEASURE_OUTCOMES 4 /* sent, deferred, bounced, expired */
const char *measure_outcome_name(unsigned outcome);

struct measures {
    uint64_t outcomes[MEASURE_OUTCOMES][MEASURE_CATEGORIES]; /* recipients */
    struct measure commit_time;                              /* of those with steps */
    struct measure batch_steps;
    /* When the oldest message of each state arrived (us 0: none), and when that was looked up. */
    struct wall oldest[MEASURE_STATES];
    struct mono oldest_at;
};

#endif
