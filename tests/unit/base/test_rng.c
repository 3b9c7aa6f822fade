#include "unit.h"

#include "rng.h"

static void the_same_seed_gives_the_same_numbers(void **state)
{
    struct rng a, b, c;

    (void)state;
    rng_init(&a, 42);
    rng_init(&b, 42);
    rng_init(&c, 43);
    for (int i = 0; i < 100; i++) {
        uint64_t x = rng_next(&a);
        assert_int_equal(x, rng_next(&b));
        assert_int_not_equal(x, rng_next(&c));
    }
}

static void numbers_stay_in_bounds_and_reach_all_of_them(void **state)
{
    struct rng rng;
    unsigned seen[7] = {0};

    (void)state;
    rng_init(&rng, 1);
    for (int i = 0; i < 7000; i++) {
        double d = rng_double(&rng);
        assert_true(d >= 0 && d < 1);
        seen[rng_below(&rng, 7)]++;
    }
    for (size_t i = 0; i < 7; i++) {
        assert_in_range(seen[i], 850, 1150);
    }
    assert_int_equal(rng_below(&rng, 1), 0);
}

UNIT_MAIN(cmocka_unit_test(the_same_seed_gives_the_same_numbers),
          cmocka_unit_test(numbers_stay_in_bounds_and_reach_all_of_them))
