#include "sim_series.h"

#include "check.h"
#include "times.h"

static uint32_t greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint64_t waiting(const struct sim_series_queue *q)
{
    return (uint64_t)q->incoming + q->active + q->deferred + q->parked;
}

/* Returns one of the two unchanged: messages that move from one state to another must not count
 * twice. */
static struct sim_series_queue merge_queue(struct sim_series_queue a, struct sim_series_queue b)
{
    return waiting(&b) > waiting(&a) ? b : a;
}

static struct sim_series_dest merge_dest(struct sim_series_dest a, struct sim_series_dest b)
{
    return (struct sim_series_dest){
        .busy = greater(a.busy, b.busy),
        .window = greater(a.window, b.window),
        .waiting = greater(a.waiting, b.waiting),
    };
}

static void halve(struct sim_series *series)
{
    for (size_t i = 0; i < SIM_SERIES_MAX / 2; i++) {
        series->queue[i] = merge_queue(series->queue[2 * i], series->queue[2 * i + 1]);
        for (size_t d = 0; d < series->dest_count; d++) {
            series->dests[d][i] = merge_dest(series->dests[d][2 * i], series->dests[d][2 * i + 1]);
        }
    }
    series->count = SIM_SERIES_MAX / 2;
    series->step_us = us_add(series->step_us, series->step_us);
}

void sim_series_init(struct sim_series *series, int64_t step_us)
{
    CHECK(step_us > 0);
    *series = (struct sim_series){.step_us = step_us};
}

int64_t sim_series_due(const struct sim_series *series)
{
    int64_t due;

    return __builtin_mul_overflow(series->step_us, (int64_t)series->count, &due) ? US_FOREVER : due;
}

void sim_series_add(struct sim_series *series, const struct sim_series_queue *queue,
                    const struct sim_series_dest *dests)
{
    series->queue[series->count] = *queue;
    for (size_t d = 0; d < series->dest_count; d++) {
        series->dests[d][series->count] = dests[d];
    }
    if (++series->count == SIM_SERIES_MAX) {
        halve(series);
    }
}
