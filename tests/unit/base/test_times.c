#include "unit.h"

#include "times.h"

static void deadlines_saturate(void **state)
{
    (void)state;
    assert_int_equal(us_add(1, 2), 3);
    assert_int_equal(us_add(US_FOREVER, 1), US_FOREVER);
    assert_int_equal(mono_after((struct mono){US_FOREVER - 1}, 5).us, US_FOREVER);
    assert_true(mono_reached((struct mono){5}, (struct mono){5}));
    assert_false(mono_reached(MONO_NEVER, (struct mono){5}));
}

static void seconds_round_down(void **state)
{
    (void)state;
    assert_int_equal(us_seconds(1999999), 1);
    assert_int_equal(us_seconds(-1), -1);
    assert_int_equal(us_seconds(-2000000), -2);
}

UNIT_MAIN(cmocka_unit_test(deadlines_saturate), cmocka_unit_test(seconds_round_down))
