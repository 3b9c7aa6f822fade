#include "value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "times.h"

#define FRACTION_DIGITS_MAX 9  /* more digits than microseconds of a week; keeps 10^n in range */
#define NUMBER_TEXT_MAX     63 /* maximum bytes of a decimal number */

static const struct {
    const char *name;
    int64_t us;
} units[] = {
    {"w", US_PER_WEEK}, {"d", US_PER_DAY}, {"h", US_PER_HOUR}, {"m", US_PER_MINUTE},
    {"s", US_PER_S},    {"ms", US_PER_MS}, {"us", 1},
};

#define UNIT_COUNT (sizeof units / sizeof units[0])

static struct slice take_while(struct slice *s, bool (*belongs)(char))
{
    size_t len = 0;

    while (len < s->len && belongs(s->ptr[len])) {
        len++;
    }
    struct slice taken = slice_of(s->ptr, len);
    *s = slice_skip(*s, len);
    return taken;
}

static bool unit_find(struct slice name, int64_t *ret_us)
{
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (slice_equal_nocase(name, slice_string(units[i].name))) {
            *ret_us = units[i].us;
            return true;
        }
    }
    return false;
}

/* Computes whole.fraction times unit, without the part below a microsecond. */
static bool scale(struct slice whole, struct slice fraction, int64_t unit_us, int64_t *ret_us)
{
    unsigned long long n = 0, part = 0;
    int64_t us, part_us, ten_to = 1;

    if ((whole.len == 0 && fraction.len == 0) || fraction.len > FRACTION_DIGITS_MAX ||
        (whole.len > 0 && !slice_number(whole, INT64_MAX, &n)) ||
        (fraction.len > 0 && !slice_number(fraction, INT64_MAX, &part))) {
        return false;
    }
    for (size_t i = 0; i < fraction.len; i++) {
        ten_to *= 10;
    }
    if (__builtin_mul_overflow((int64_t)n, unit_us, &us) ||
        __builtin_mul_overflow((int64_t)part, unit_us, &part_us) ||
        __builtin_add_overflow(us, part_us / ten_to, &us)) {
        return false;
    }
    *ret_us = us;
    return true;
}

bool interval_parse(struct slice text, int64_t default_unit_us, int64_t *ret_us)
{
    int64_t sum = 0;

    if (text.len == 0) {
        return false;
    }
    while (text.len > 0) {
        struct slice whole = take_while(&text, ascii_is_digit), fraction = {"", 0}, name;
        int64_t unit_us = default_unit_us, us;

        if (text.len > 0 && text.ptr[0] == '.') {
            text = slice_skip(text, 1);
            fraction = take_while(&text, ascii_is_digit);
        }
        name = take_while(&text, ascii_is_alpha);
        if (name.len == 0 ? text.len > 0 : !unit_find(name, &unit_us)) {
            return false;
        }
        if (!scale(whole, fraction, unit_us, &us) || __builtin_add_overflow(sum, us, &sum)) {
            return false;
        }
    }
    *ret_us = sum;
    return true;
}

void interval_print(struct buf *out, int64_t us)
{
    CHECK(us >= 0);
    if (us == 0) {
        (void)buf_add_string(out, "0s"); /* errors are sticky */
    }
    for (size_t i = 0; i < UNIT_COUNT && us > 0; i++) {
        if (us >= units[i].us) {
            (void)buf_addf(out, "%lld%s", (long long)(us / units[i].us), units[i].name);
            us %= units[i].us;
        }
    }
}

static int size_shift(char c)
{
    switch (ascii_lower(c)) {
    case 'k':
        return 10;
    case 'm':
        return 20;
    case 'g':
        return 30;
    default:
        return 0;
    }
}

bool size_parse(struct slice text, int64_t *ret_bytes)
{
    int shift = text.len == 0 ? 0 : size_shift(text.ptr[text.len - 1]);
    unsigned long long n;

    if (shift > 0) {
        text.len--;
    }
    if (!slice_number(text, (unsigned long long)INT64_MAX >> shift, &n)) {
        return false;
    }
    *ret_bytes = (int64_t)(n << shift);
    return true;
}

void size_print(struct buf *out, int64_t bytes)
{
    static const char letters[] = "GMk";

    CHECK(bytes >= 0);
    for (int i = 0; bytes > 0 && letters[i] != '\0'; i++) {
        int shift = size_shift(letters[i]);

        if ((bytes & ((INT64_C(1) << shift) - 1)) == 0) {
            (void)buf_addf(out, "%lld%c", (long long)(bytes >> shift), letters[i]);
            return;
        }
    }
    (void)buf_addf(out, "%lld", (long long)bytes);
}

bool integer_parse(struct slice text, int64_t *ret_value)
{
    bool minus = text.len > 0 && text.ptr[0] == '-';
    unsigned long long n;

    if (!slice_number(slice_skip(text, minus), INT64_MAX, &n)) {
        return false;
    }
    *ret_value = minus ? -(int64_t)n : (int64_t)n;
    return true;
}

bool yes_no_parse(struct slice text, bool *ret_value)
{
    bool yes = slice_equal_nocase(text, SLICE("yes"));

    if (!yes && !slice_equal_nocase(text, SLICE("no"))) {
        return false;
    }
    *ret_value = yes;
    return true;
}

/* Cuts a decimal number from the front of *s. Other numbers of strtod (nan, inf, hexadecimal) are
 * invalid. */
static bool take_decimal(struct slice *s, double *ret_value)
{
    char text[NUMBER_TEXT_MAX + 1], *end;
    size_t len = 0;

    while (len < s->len && len < NUMBER_TEXT_MAX &&
           (ascii_is_digit(s->ptr[len]) || memchr(".eE+-", s->ptr[len], 5) != NULL)) {
        text[len] = s->ptr[len];
        len++;
    }
    text[len] = '\0';
    *ret_value = strtod(text, &end);
    *s = slice_skip(*s, (size_t)(end - text));
    return end > text;
}

bool feedback_parse(struct slice text, struct conf_feedback *ret_feedback)
{
    struct conf_feedback f = {CONF_FEEDBACK_CONSTANT, 0};
    double divisor;

    text = slice_trim(text);
    if (!take_decimal(&text, &f.base)) {
        return false;
    }
    text = slice_trim(text);
    if (text.len > 0 && text.ptr[0] == '/') {
        text = slice_trim(slice_skip(text, 1));
        if (slice_equal_nocase(text, SLICE("concurrency"))) {
            f.form = CONF_FEEDBACK_PER_WINDOW;
        } else if (slice_equal_nocase(text, SLICE("sqrt_concurrency"))) {
            f.form = CONF_FEEDBACK_PER_SQRT_WINDOW;
        } else if (take_decimal(&text, &divisor) && text.len == 0 && divisor > 0) {
            f.base /= divisor;
        } else {
            return false;
        }
    }
    if (!(f.base >= 0 && f.base <= 1)) {
        return false;
    }
    *ret_feedback = f;
    return true;
}

void feedback_print(struct buf *out, const struct conf_feedback *f)
{
    /* 17 digits restore every double, but fewer are enough for most. */
    char text[NUMBER_TEXT_MAX + 1];
    int digits = 6;

    do {
        CHECK(snprintf(text, sizeof text, "%.*g", digits, f->base) < (int)sizeof text);
    } while (strtod(text, NULL) != f->base && ++digits <= 17);
    (void)buf_add_string(out, text);
    switch (f->form) {
    case CONF_FEEDBACK_CONSTANT:
        break;
    case CONF_FEEDBACK_PER_WINDOW:
        (void)buf_add_string(out, "/concurrency");
        break;
    case CONF_FEEDBACK_PER_SQRT_WINDOW:
        (void)buf_add_string(out, "/sqrt_concurrency");
        break;
    }
}

int choice_parse(struct slice text, const char *choices)
{
    struct slice rest = slice_string(choices);

    for (int i = 0; rest.ptr != NULL; i++) {
        if (slice_equal_nocase(slice_cut(&rest, '|'), text)) {
            return i;
        }
    }
    return -1;
}

struct slice choice_name(const char *choices, int index)
{
    struct slice rest = slice_string(choices), name = {NULL, 0};

    for (int i = 0; i <= index; i++) {
        CHECK(rest.ptr != NULL);
        name = slice_cut(&rest, '|');
    }
    return name;
}
