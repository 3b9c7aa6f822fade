/*
 * The course of a simulated run over time, as data for a picture.
 *
 * Samples are at equal steps from time 0; sample i covers i * step_us to the next sample. When the
 * room is full, pairs of samples are merged into the greater one (so that peaks stay visible), and
 * the step doubles. So memory is bounded, and a long run has between half of SIM_SERIES_MAX samples
 * and all of them.
 */
#ifndef SIM_SERIES_H
#define SIM_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define SIM_SERIES_MAX 1024 /* in samples; even */
#define SIM_SERIES_DESTS_MAX                                                                       \
    16 /* number of destinations that are recorded: first those that a site line names */

/* Number of messages by state. */
struct sim_series_queue {
    uint32_t incoming, active, deferred, parked;
};

/* Deliveries of one destination: in flight, allowed, and waiting (entries). All are 0 for a
 * destination that is not in the scheduler's memory. */
struct sim_series_dest {
    uint32_t busy, window, waiting;
};

struct sim_series {
    int64_t step_us;
    size_t count; /* number of samples */
    size_t dest_count;
    const char *names[SIM_SERIES_DESTS_MAX]; /* transport/nexthop; borrowed from the world */
    struct sim_series_queue queue[SIM_SERIES_MAX];
    struct sim_series_dest dests[SIM_SERIES_DESTS_MAX][SIM_SERIES_MAX];
};

void sim_series_init(struct sim_series *series, int64_t step_us);

/* Returns the time of the next sample. */
int64_t sim_series_due(const struct sim_series *series);

/* Adds the next sample. `dests` has series->dest_count elements. */
void sim_series_add(struct sim_series *series, const struct sim_series_queue *queue,
                    const struct sim_series_dest *dests);

#endif
