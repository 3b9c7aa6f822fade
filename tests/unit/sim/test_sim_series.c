#include "sim_series.h"

#include "times.h"
#include "unit.h"

static struct sim_series series; /* large */

/* The queue of a moment with so many active and deferred. */
static void add(uint32_t active, uint32_t deferred, uint32_t busy)
{
    struct sim_series_queue queue = {.active = active, .deferred = deferred};
    struct sim_series_dest dest = {.busy = busy, .window = 20 - busy};

    sim_series_add(&series, &queue, &dest);
}

static void a_full_series_doubles_its_step_and_keeps_peaks(void **state)
{
    (void)state;
    sim_series_init(&series, US_PER_S);
    series.dest_count = 1;
    for (uint32_t i = 0; i + 1 < SIM_SERIES_MAX; i++) {
        assert_int_equal(sim_series_due(&series), i * US_PER_S);
        add(i == 7 ? 100 : 1, 0, i % 2);
    }
    assert_int_equal(series.count, SIM_SERIES_MAX - 1);
    add(0, 0, 0);
    assert_int_equal(series.count, SIM_SERIES_MAX / 2);
    assert_int_equal(series.step_us, 2 * US_PER_S);
    assert_int_equal(sim_series_due(&series), SIM_SERIES_MAX * US_PER_S);
    assert_int_equal(series.queue[3].active, 100);
    assert_int_equal(series.queue[4].active, 1);
    assert_int_equal(series.dests[0][3].busy, 1);
    assert_int_equal(series.dests[0][3].window, 20);
}

static void what_moves_between_states_is_not_counted_twice(void **state)
{
    (void)state;
    sim_series_init(&series, US_PER_S);
    series.dest_count = 1;
    for (uint32_t i = 0; i < SIM_SERIES_MAX; i++) {
        add(i % 2 == 0 ? 50 : 0, i % 2 == 0 ? 0 : 49, 0);
    }
    for (size_t i = 0; i < series.count; i++) {
        assert_int_equal(series.queue[i].active, 50);
        assert_int_equal(series.queue[i].deferred, 0);
    }
}

UNIT_MAIN(cmocka_unit_test(a_full_series_doubles_its_step_and_keeps_peaks),
          cmocka_unit_test(what_moves_between_states_is_not_counted_twice))
