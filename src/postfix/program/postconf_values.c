#include "postconf_values.h"

#include <inttypes.h>
#include <limits.h>

#include "value.h"

#define DIGITS_MAX 20 /* digits; a longer number does not fit into an int */

/* Has this parameter an upper bound that Postfix enforces, too, or above which files would be
 * searched elsewhere than in Postfix's places? */
static bool has_firm_maximum(const struct param *p)
{
    static const char *const bounded[] = {"maximal_queue_lifetime", "bounce_queue_lifetime",
                                          "default_delivery_slot_discount",
                                          "delay_logging_resolution_limit", "hash_queue_depth"};

    for (size_t i = 0; i < sizeof bounded / sizeof bounded[0]; i++) {
        if (slice_equal(slice_string(p->name), slice_string(bounded[i]))) {
            return true;
        }
    }
    return false;
}

/* Reads a number as Postfix does with strtol(3), and removes it from *text. Returns false if there
 * is none that fits into an int. */
static bool take_int(struct slice *text, int64_t *ret_number)
{
    bool minus = text->len > 0 && text->ptr[0] == '-';
    struct slice rest = slice_skip(*text, minus || (text->len > 0 && text->ptr[0] == '+'));
    unsigned long long number;
    size_t len = 0;

    while (len < rest.len && ascii_is_digit(rest.ptr[len])) {
        len++;
    }
    if (len == 0 || len > DIGITS_MAX ||
        !slice_number(slice_of(rest.ptr, len), (unsigned long long)INT_MAX + minus, &number)) {
        return false;
    }
    *ret_number = minus ? -(int64_t)number : (int64_t)number;
    *text = slice_skip(rest, len);
    return true;
}

/* Reads a time as Postfix's conv_time(3) does: without digits 0. Text after the unit is ignored
 * ("1h30m" is 1h), and then *ret_cut is set. */
static bool read_time(const struct param *p, struct slice value, int64_t *ret_us, bool *ret_cut)
{
    static const struct {
        char name;
        int64_t us;
    } units[] = {{'s', US_PER_S},
                 {'m', US_PER_MINUTE},
                 {'h', US_PER_HOUR},
                 {'d', US_PER_DAY},
                 {'w', US_PER_WEEK}};
    int64_t number = 0;
    char unit;

    if (value.len == 0 || (!take_int(&value, &number) && !ascii_is_alpha(value.ptr[0])) ||
        number < 0) {
        return false;
    }
    unit = value.len > 0 ? value.ptr[0] : p->unit[0];
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].name == unit && (unit == 's' || number < INT_MAX / (units[i].us / US_PER_S))) {
            *ret_us = number * units[i].us;
            *ret_cut = value.len > 1;
            return true;
        }
    }
    return false;
}

/* Finds the nearest value that our table accepts. Returns false if Postfix refuses the value,
 * too. */
static bool bound(const struct param *p, int64_t number, int64_t *ret_number)
{
    if (number < p->min && p->min <= 0) { /* Postfix has no lower bound there */
        *ret_number = p->min;
        return true;
    }
    if (number > p->max && !has_firm_maximum(p)) {
        *ret_number = p->max;
        return true;
    }
    *ret_number = number;
    return number >= p->min && number <= p->max;
}

/* Appends text as a value, in which a single `$` would begin a name. */
static void put_text(struct buf *out, struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '$') {
            (void)buf_add_byte(out, '$'); /* errors are sticky */
        }
        (void)buf_add_byte(out, value.ptr[i]);
    }
}

static bool put_int(const struct param *p, struct slice value, struct buf *out, bool *ret_changed)
{
    int64_t number, used;

    if (!take_int(&value, &number) || value.len > 0 || !bound(p, number, &used)) {
        return false;
    }
    (void)buf_addf(out, "%" PRId64, used); /* errors are sticky */
    *ret_changed = used != number;
    return true;
}

static bool put_time(const struct param *p, struct slice value, struct buf *out, bool *ret_changed)
{
    int64_t number, used;
    bool cut;

    if (!read_time(p, value, &number, &cut) || !bound(p, number, &used)) {
        return false;
    }
    interval_print(out, used); /* errors are sticky */
    *ret_changed = cut || used != number;
    return true;
}

bool postconf_put_value(const struct param *p, struct slice value, struct buf *out,
                        bool *ret_changed)
{
    *ret_changed = false;
    switch (p->type) {
    case PARAM_INT:
        return put_int(p, value, out, ret_changed);
    case PARAM_TIME:
        return put_time(p, value, out, ret_changed);
    case PARAM_FEEDBACK: /* invalid text counts as 1 with a warning, in our table, too */
        put_text(out, value);
        return value.len > 0;
    case PARAM_STRING:
    case PARAM_LIST:
    case PARAM_BOOL:
    case PARAM_SIZE:
    case PARAM_CHOICE:
        break;
    }
    put_text(out, value);
    return true;
}

unsigned long long postconf_process_limit(struct slice field, unsigned long long preset)
{
    const struct param *p = param_find(SLICE("default_process_limit"));
    int64_t number, used;

    if (!take_int(&field, &number) || field.len > 0 || !bound(p, number, &used)) {
        return preset;
    }
    return (unsigned long long)used;
}
