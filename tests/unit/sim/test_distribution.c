/*
 * Distributions: what may be written, and whether draws follow it.
 */
#include "distribution.h"

#include <math.h>
#include <string.h>

#include "mem.h"
#include "times.h"
#include "unit.h"

#define DRAWS 40000

struct parsed {
    bool ok;
    struct distribution d;
    struct slice bad;
    const char *expected;
};

static struct parsed parse(const char *text, enum quantity quantity)
{
    struct parsed p = {.ok = false};

    p.ok = distribution_parse(slice_string(text), quantity, &p.d, &p.bad, &p.expected);
    return p;
}

static void what_may_be_written_is_read(void **unused)
{
    static const struct {
        const char *in;
        enum quantity quantity;
        enum distribution_form form;
        int64_t a, b;
    } cases[] = {
        {"200ms", QUANTITY_INTERVAL, DISTRIBUTION_CONSTANT, 200000, 0},
        {"3", QUANTITY_INTERVAL, DISTRIBUTION_CONSTANT, 3000000, 0},
        {"4k", QUANTITY_SIZE, DISTRIBUTION_CONSTANT, 4096, 0},
        {"50000", QUANTITY_COUNT, DISTRIBUTION_CONSTANT, 50000, 0},
        {"uniform(1, 10)", QUANTITY_COUNT, DISTRIBUTION_UNIFORM, 1, 10},
        {"exponential(1h30m)", QUANTITY_INTERVAL, DISTRIBUTION_EXPONENTIAL, 5400000000, 0},
        {"lognormal(200ms,0.5)", QUANTITY_INTERVAL, DISTRIBUTION_LOGNORMAL, 200000, 0},
        {"empirical(1s,2s)", QUANTITY_INTERVAL, DISTRIBUTION_EMPIRICAL, 0, 0},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct parsed p = parse(cases[i].in, cases[i].quantity);

        assert_true(p.ok);
        assert_int_equal(p.d.form, cases[i].form);
        assert_int_equal(p.d.a, cases[i].a);
        assert_int_equal(p.d.b, cases[i].b);
        distribution_fini(&p.d);
    }
}

/* `bad` is what the complaint points at. */
static void what_may_not_is_pointed_at(void **unused)
{
    static const struct {
        const char *in;
        enum quantity quantity;
        const char *bad;
    } cases[] = {
        {"", QUANTITY_INTERVAL, ""},
        {"fast", QUANTITY_INTERVAL, "fast"},
        {"-1s", QUANTITY_INTERVAL, "-1s"},
        {"1k", QUANTITY_COUNT, "1k"},
        {"1x", QUANTITY_SIZE, "1x"},
        {"200y", QUANTITY_INTERVAL, "200y"},
        {"1000000h", QUANTITY_INTERVAL, "1000000h"},
        {"normal(1s,2s)", QUANTITY_INTERVAL, "normal"},
        {"uniform(2s,1s)", QUANTITY_INTERVAL, "1s"},
        {"uniform(1s)", QUANTITY_INTERVAL, "1s"},
        {"uniform(1s,2s,3s)", QUANTITY_INTERVAL, "1s,2s,3s"},
        {"uniform(1s,2s", QUANTITY_INTERVAL, "s"},
        {"exponential()", QUANTITY_INTERVAL, ""},
        {"lognormal(1s,-1)", QUANTITY_INTERVAL, "-1"},
        {"lognormal(1s,11)", QUANTITY_INTERVAL, "11"},
        {"lognormal(1s)", QUANTITY_INTERVAL, "1s"},
        {"empirical(1s,,2s)", QUANTITY_INTERVAL, ""},
        {"()", QUANTITY_INTERVAL, ""},
        {")(", QUANTITY_INTERVAL, "("},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct parsed p = parse(cases[i].in, cases[i].quantity);

        assert_false(p.ok);
        assert_int_equal(p.bad.len, strlen(cases[i].bad));
        assert_memory_equal(p.bad.ptr, cases[i].bad, p.bad.len);
        assert_true(p.bad.ptr >= cases[i].in && p.bad.ptr <= cases[i].in + strlen(cases[i].in));
        assert_true(strlen(p.expected) > 0);
    }
}

static void a_list_that_is_too_long_is_refused(void **unused)
{
    size_t size = 2 * DISTRIBUTION_SAMPLES_MAX + 64;
    char *text = mem_new(size);
    struct parsed p;

    (void)unused;
    strcpy(text, "empirical(1");
    for (int i = 1; i < DISTRIBUTION_SAMPLES_MAX; i++) {
        strcat(text, ",1");
    }
    strcat(text, ")");
    p = parse(text, QUANTITY_COUNT);
    assert_true(p.ok);
    distribution_fini(&p.d);
    text[strlen(text) - 1] = ',';
    strcat(text, "1)");
    assert_false(parse(text, QUANTITY_COUNT).ok);
    mem_free(text);
}

/* Mean and median of many draws; the standard error of each mean is below 1 %. */
static void draws_follow_the_distribution(void **unused)
{
    static const struct {
        const char *text;
        double want_mean, want_below_median, median;
    } cases[] = {
        {"1000", 1000, 0, 1000},
        {"uniform(0,1000)", 500, 0.5, 500},
        {"exponential(10000)", 10000, 0.5, 6931.5},
        {"lognormal(10000,0.5)", 11331.5, 0.5, 10000},
        {"empirical(1,2,6)", 3, 1.0 / 3, 2},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct parsed p = parse(cases[i].text, QUANTITY_COUNT);
        double sum = 0, below = 0;
        struct rng rng;

        assert_true(p.ok);
        rng_init(&rng, 1);
        for (int n = 0; n < DRAWS; n++) {
            double value = (double)distribution_draw(&p.d, &rng);

            sum += value;
            below += value < cases[i].median;
        }
        assert_true(fabs(sum / DRAWS - cases[i].want_mean) < 0.03 * cases[i].want_mean);
        assert_true(fabs(below / DRAWS - cases[i].want_below_median) < 0.02);
        distribution_fini(&p.d);
    }
}

static void no_draw_leaves_the_range(void **unused)
{
    struct distribution d = {.form = DISTRIBUTION_LOGNORMAL, .a = DISTRIBUTION_MAX, .sigma = 10};
    struct rng rng;

    (void)unused;
    rng_init(&rng, 1);
    for (int n = 0; n < DRAWS; n++) {
        int64_t value = distribution_draw(&d, &rng);

        assert_true(value >= 0 && value <= DISTRIBUTION_MAX);
    }
}

UNIT_MAIN(cmocka_unit_test(what_may_be_written_is_read),
          cmocka_unit_test(what_may_not_is_pointed_at),
          cmocka_unit_test(a_list_that_is_too_long_is_refused),
          cmocka_unit_test(draws_follow_the_distribution),
          cmocka_unit_test(no_draw_leaves_the_range))
