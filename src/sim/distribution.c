#include "distribution.h"

#include <math.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "real.h"
#include "times.h"
#include "value.h"

#define SIGMA_MAX 10

/* ---- reading -------------------------------------------------------------------------------- */

static const char *const expected_value[] = {
    [QUANTITY_INTERVAL] = "an interval such as 200ms, 5s or 2h",
    [QUANTITY_COUNT] = "a whole number",
    [QUANTITY_SIZE] = "a size such as 500, 4k or 10M",
};

static bool value_parse(struct slice text, enum quantity quantity, int64_t *ret_value)
{
    unsigned long long count;
    int64_t value = -1;

    switch (quantity) {
    case QUANTITY_INTERVAL:
        if (!interval_parse(text, US_PER_S, &value)) {
            return false;
        }
        break;
    case QUANTITY_COUNT:
        if (!slice_number(text, DISTRIBUTION_MAX, &count)) {
            return false;
        }
        value = (int64_t)count;
        break;
    case QUANTITY_SIZE:
        if (!size_parse(text, &value)) {
            return false;
        }
        break;
    }
    if (value < 0 || value > DISTRIBUTION_MAX) {
        return false;
    }
    *ret_value = value;
    return true;
}

struct reading {
    enum quantity quantity;
    struct slice bad;
    const char *expected;
};

static bool refuse(struct reading *r, struct slice bad, const char *expected)
{
    r->bad = bad;
    r->expected = expected;
    return false;
}

static bool take_value(struct reading *r, struct slice text, int64_t *ret_value)
{
    text = slice_trim(text);
    return value_parse(text, r->quantity, ret_value) ||
           refuse(r, text, expected_value[r->quantity]);
}

static bool take_samples(struct reading *r, struct slice rest, struct distribution *d)
{
    int64_t samples[DISTRIBUTION_SAMPLES_MAX];
    uint32_t count = 0;

    while (rest.ptr != NULL) {
        struct slice text = slice_cut(&rest, ',');

        if (count == DISTRIBUTION_SAMPLES_MAX) {
            return refuse(r, text, "at most 1000 values");
        }
        if (!take_value(r, text, &samples[count++])) {
            return false;
        }
    }
    *d = distribution_empirical(samples, count);
    return true;
}

/* Splits the arguments of a form that has `count` of them, 1 or 2. */
static bool take_arguments(struct slice all, size_t count, struct slice arguments[2])
{
    struct slice rest = all;

    for (size_t i = 0; i < count; i++) {
        if (rest.ptr == NULL) {
            return false;
        }
        arguments[i] = slice_cut(&rest, ',');
    }
    return rest.ptr == NULL;
}

static bool take_form(struct reading *r, struct slice name, struct slice inside,
                      struct distribution *d)
{
    struct slice arguments[2];

    if (slice_equal(name, SLICE("uniform"))) {
        d->form = DISTRIBUTION_UNIFORM;
        if (!take_arguments(inside, 2, arguments)) {
            return refuse(r, inside, "uniform(LEAST,GREATEST)");
        }
        if (!take_value(r, arguments[0], &d->a) || !take_value(r, arguments[1], &d->b)) {
            return false;
        }
        return d->a <= d->b || refuse(r, arguments[1], "uniform(LEAST,GREATEST)");
    }
    if (slice_equal(name, SLICE("exponential"))) {
        d->form = DISTRIBUTION_EXPONENTIAL;
        return take_value(r, inside, &d->a);
    }
    if (slice_equal(name, SLICE("lognormal"))) {
        d->form = DISTRIBUTION_LOGNORMAL;
        if (!take_arguments(inside, 2, arguments)) {
            return refuse(r, inside, "lognormal(MEDIAN,SIGMA)");
        }
        if (!take_value(r, arguments[0], &d->a)) {
            return false;
        }
        return real_parse(slice_trim(arguments[1]), SIGMA_MAX, &d->sigma) ||
               refuse(r, arguments[1], "a number from 0 to 10");
    }
    if (slice_equal(name, SLICE("empirical"))) {
        return take_samples(r, inside, d);
    }
    return refuse(r, name, "uniform, exponential, lognormal or empirical");
}

bool distribution_parse(struct slice text, enum quantity quantity, struct distribution *ret,
                        struct slice *ret_bad, const char **ret_expected)
{
    struct reading r = {.quantity = quantity};
    struct distribution d = {.form = DISTRIBUTION_CONSTANT};
    size_t open = slice_find(text, '(');
    bool ok;

    if (open == text.len) {
        ok = take_value(&r, text, &d.a);
    } else if (text.ptr[text.len - 1] != ')') {
        ok = refuse(&r, slice_skip(text, text.len - 1), "a closing parenthesis");
    } else {
        ok = take_form(&r, slice_of(text.ptr, open),
                       slice_of(text.ptr + open + 1, text.len - open - 2), &d);
    }
    if (!ok) {
        *ret_bad = r.bad;
        *ret_expected = r.expected;
        return false;
    }
    *ret = d;
    return true;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct distribution distribution_empirical(const int64_t *samples, uint32_t count)
{
    struct distribution d = {.form = DISTRIBUTION_EMPIRICAL, .count = count};

    CHECK(count >= 1 && count <= DISTRIBUTION_SAMPLES_MAX);
    d.samples = mem_array(count, sizeof *d.samples);
    memcpy(d.samples, samples, count * sizeof *samples);
    return d;
}

struct distribution distribution_copy(const struct distribution *d)
{
    return d->form == DISTRIBUTION_EMPIRICAL ? distribution_empirical(d->samples, d->count) : *d;
}

void distribution_fini(struct distribution *d)
{
    mem_free(d->samples);
    *d = distribution_constant(0);
}

/* ---- drawing -------------------------------------------------------------------------------- */

static int64_t rounded(double value)
{
    if (value >= (double)DISTRIBUTION_MAX) {
        return DISTRIBUTION_MAX;
    }
    return (int64_t)floor(value + 0.5);
}

/* Draws from the standard normal distribution by Marsaglia's polar method. The second number of
 * each pair is dropped, so that a distribution has no state. */
static double draw_normal(struct rng *rng)
{
    double u, v, s;

    do {
        u = 2 * rng_double(rng) - 1;
        v = 2 * rng_double(rng) - 1;
        s = u * u + v * v;
    } while (s >= 1 || s == 0);
    return u * sqrt(-2 * real_ln(s) / s);
}

double distribution_draw_gap(double mean, struct rng *rng)
{
    return -mean * real_ln(1 - rng_double(rng));
}

int64_t distribution_draw(const struct distribution *d, struct rng *rng)
{
    switch (d->form) {
    case DISTRIBUTION_CONSTANT:
        return d->a;
    case DISTRIBUTION_UNIFORM:
        return d->a + (int64_t)rng_below(rng, (uint64_t)(d->b - d->a) + 1);
    case DISTRIBUTION_EXPONENTIAL:
        return rounded(distribution_draw_gap((double)d->a, rng));
    case DISTRIBUTION_LOGNORMAL:
        return rounded((double)d->a * real_exp(d->sigma * draw_normal(rng)));
    case DISTRIBUTION_EMPIRICAL:
        return d->samples[rng_below(rng, d->count)];
    }
    UNREACHABLE("a form that is none");
}
