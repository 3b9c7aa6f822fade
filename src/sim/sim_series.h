/*
 * How a simulated run went over time: what a picture is drawn from.
 *
 * Samples at equal steps from time 0; sample i stands for i * step_us up to the next. When the room
 * is full, pairs are merged into the greater of both (so that a peak stays to be seen), and the
 * step doubles: memory is bounded, and a run has between half of SIM_SERIES_MAX samples and all of
 * them.
 */
#ifndef SIM_SERIES_H
#define SIM_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define SIM_SERIES_MAX 1024 /* samples; even */
#define SIM_SERIES_DESTS_MAX                                                                       \
    16 /* destinations that are followed: first those that a site line names */

/* Messages by state. */
struct sim_series_queue {
    uint32_t incoming, active, deferred, parked;
};

/* Deliveries of one destination: under way, allowed, and waiting (entries). Of a destination that
 * is not in the scheduler's memory all are 0. */
struct sim_series_dest {
    uint32_t busy, window, waiting;
};

struct sim_series {
    int64_t step_us;
    size_t count; /* samples */
    size_t dest_count;
    const char *names[SIM_SERIES_DESTS_MAX]; /* transport/nexthop; borrowed from the world */
    struct sim_series_queue queue[SIM_SERIES_MAX];
    struct sim_series_dest dests[SIM_SERIES_DESTS_MAX][SIM_SERIES_MAX];
};

void sim_series_init(struct sim_series *series, int64_t step_us);

/* When the next sample is to be taken. */
int64_t sim_series_due(const struct sim_series *series);

/* Take it. `dests` has series->dest_count elements. */
void sim_series_add(struct sim_series *series, const struct sim_series_queue *queue,
                    const struct sim_series_dest *dests);

#endif
