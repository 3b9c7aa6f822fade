/*
 * Quantiles within the error that the header states, whatever the values.
 */
#include "histogram.h"

#include <stdlib.h>

#include "rng.h"
#include "unit.h"

#define VALUES 5000

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void without_values_everything_is_zero(void **unused)
{
    struct histogram h;

    (void)unused;
    histogram_init(&h);
    assert_int_equal(histogram_quantile(&h, 500), 0);
    assert_int_equal(histogram_quantile(&h, 1000), 0);
    assert_true(histogram_mean(&h) == 0);
    histogram_fini(&h);
}

/* Of all orders of magnitude: a random number of bits. */
static void quantiles_are_off_by_less_than_one_in_128(void **unused)
{
    static const unsigned per_milles[] = {0, 1, 10, 250, 500, 900, 990, 999, 1000};
    static int64_t values[VALUES];
    struct histogram h;
    struct rng rng;

    (void)unused;
    histogram_init(&h);
    rng_init(&rng, 1);
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (int64_t)(rng_next(&rng) >> (1 + rng_below(&rng, 63)));
        histogram_add(&h, values[i]);
    }
    qsort(values, VALUES, sizeof values[0], compare);
    for (size_t i = 0; i < COUNT(per_milles); i++) {
        size_t rank = (VALUES * per_milles[i] + 999) / 1000;
        int64_t exact = values[rank == 0 ? 0 : rank - 1];
        int64_t got = histogram_quantile(&h, per_milles[i]);

        assert_true(llabs(got - exact) <= exact / 128);
    }
    assert_int_equal(histogram_quantile(&h, 1000), values[VALUES - 1]);
    assert_int_equal(h.min, values[0]);
    histogram_fini(&h);
}

static void the_ends_of_the_range_have_a_place(void **unused)
{
    struct histogram h;

    (void)unused;
    histogram_init(&h);
    histogram_add(&h, INT64_MIN);
    histogram_add(&h, 0);
    histogram_add(&h, INT64_MAX);
    assert_int_equal(h.min, 0);
    assert_int_equal(histogram_quantile(&h, 1), 0);
    assert_int_equal(histogram_quantile(&h, 1000), INT64_MAX);
    histogram_fini(&h);
}

static void merging_equals_adding(void **unused)
{
    struct histogram whole, parts[2];
    struct rng rng;

    (void)unused;
    histogram_init(&whole);
    histogram_init(&parts[0]);
    histogram_init(&parts[1]);
    rng_init(&rng, 2);
    for (size_t i = 0; i < VALUES; i++) {
        int64_t value = (int64_t)rng_below(&rng, 1000000);

        histogram_add(&whole, value);
        histogram_add(&parts[i % 3 == 0], value);
    }
    histogram_merge(&parts[0], &parts[1]);
    assert_int_equal(parts[0].count, whole.count);
    assert_int_equal(parts[0].min, whole.min);
    assert_int_equal(parts[0].max, whole.max);
    for (unsigned p = 0; p <= 1000; p += 50) {
        assert_int_equal(histogram_quantile(&parts[0], p), histogram_quantile(&whole, p));
    }
    histogram_fini(&whole);
    histogram_fini(&parts[0]);
    histogram_fini(&parts[1]);
}

UNIT_MAIN(cmocka_unit_test(without_values_everything_is_zero),
          cmocka_unit_test(quantiles_are_off_by_less_than_one_in_128),
          cmocka_unit_test(the_ends_of_the_range_have_a_place),
          cmocka_unit_test(merging_equals_adding))
