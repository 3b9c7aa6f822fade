/*
 * Logarithm and exponential: right, and the same bits everywhere.
 */
#include "real.h"

#include <math.h>
#include <string.h>

#include "rng.h"
#include "unit.h"

#define DRAWS 20000

/* A few units in the last place. */
static void assert_close(double value, double want)
{
    assert_true(fabs(value - want) <= 1e-15 * fmax(fabs(want), 0.1));
}

static void they_agree_with_libm(void **unused)
{
    struct rng rng;

    (void)unused;
    rng_init(&rng, 1);
    for (int i = 0; i < DRAWS; i++) {
        double x = ldexp(1 + rng_double(&rng), (int)rng_below(&rng, 400) - 200);
        double y = 40 * rng_double(&rng) - 20;

        assert_close(real_ln(x), log(x));
        assert_true(fabs(real_exp(y) / exp(y) - 1) < 4e-15);
    }
    assert_true(real_ln(1) == 0);
    assert_true(real_exp(0) == 1);
}

/* The sum of the bits of many results. It was computed once; a machine that gets another one would
 * simulate another world. */
static void the_bits_are_the_same_everywhere(void **unused)
{
    uint64_t sum = 0;
    struct rng rng;

    (void)unused;
    rng_init(&rng, 2);
    for (int i = 0; i < DRAWS; i++) {
        double x = rng_double(&rng) + 0x1p-60, results[2] = {real_ln(x), real_exp(10 * x)};
        uint64_t bits[2];

        memcpy(bits, results, sizeof bits);
        sum = sum * 31 + bits[0] + bits[1];
    }
    assert_int_equal(sum, UINT64_C(0x54b7ae5aa1335994));
}

static void numbers_are_read_or_refused(void **unused)
{
    static const struct {
        const char *in;
        double want; /* negative: refused */
    } cases[] = {
        {"0", 0},      {"1.5", 1.5}, {".5", 0.5}, {"10", 10},  {"10.1", -1},
        {"", -1},      {".", -1},    {"1e1", -1}, {"0x1", -1}, {"-1", -1},
        {"1.2.3", -1}, {" 1", -1},   {"nan", -1}, {"inf", -1}, {"1 ", -1},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        double value = 77;
        bool ok = real_parse(slice_string(cases[i].in), 10, &value);

        assert_int_equal(ok, cases[i].want >= 0);
        assert_true(value == (ok ? cases[i].want : 77));
    }
}

UNIT_MAIN(cmocka_unit_test(they_agree_with_libm),
          cmocka_unit_test(the_bits_are_the_same_everywhere),
          cmocka_unit_test(numbers_are_read_or_refused))
