#include "trace_line.h"

#include <string.h>

#include "class_name.h"
#include "check.h"
#include "times.h"

#define SECONDS_PER_DAY INT64_C(86400)
#define DAYS_PER_YEAR   INT64_C(365)
/* A month that is earlier than the last line's by more than this belongs to the next year;
 * otherwise the line is out of order. */
#define MONTHS_BACK_MAX 6

/* ---- taking a text apart -------------------------------------------------------------------- */

/* Takes `count` digits from the front. */
static bool take_digits(struct slice *text, size_t count, int *ret_value)
{
    int value = 0;

    if (text->len < count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!ascii_is_digit(text->ptr[i])) {
            return false;
        }
        value = 10 * value + (text->ptr[i] - '0');
    }
    *text = slice_skip(*text, count);
    *ret_value = value;
    return true;
}

static bool take_byte(struct slice *text, char c)
{
    if (text->len == 0 || text->ptr[0] != c) {
        return false;
    }
    *text = slice_skip(*text, 1);
    return true;
}

/* Finds the text after the first `key`, up to `end` or the end of the text. */
static bool find_value(struct slice text, const char *key, char end, struct slice *ret_value)
{
    size_t key_len = strlen(key);
    const char *at = memmem(text.ptr, text.len, key, key_len);
    struct slice rest;

    if (at == NULL) {
        return false;
    }
    rest = slice_skip(text, (size_t)(at - text.ptr) + key_len);
    *ret_value = slice_of(rest.ptr, slice_find(rest, end));
    return true;
}

/* ---- dates ---------------------------------------------------------------------------------- */

static bool take_clock(struct slice *text, int64_t *ret_seconds)
{
    int hour, minute, second;

    if (!take_digits(text, 2, &hour) || !take_byte(text, ':') || !take_digits(text, 2, &minute) ||
        !take_byte(text, ':') || !take_digits(text, 2, &second) || hour > 23 || minute > 59 ||
        second > 60) {
        return false;
    }
    *ret_seconds = hour * 3600 + minute * 60 + second;
    return true;
}

/* Returns days since 1970-01-01 (after Howard Hinnant: years begin in March, so leap days come
 * last). */
static int64_t days_of(int year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, of_era = y - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* "2026-11-21T08:00:01.5+01:00" */
static bool take_rfc3339(struct slice *text, int64_t *ret_us)
{
    int year, month, day, hours, minutes;
    int64_t seconds, fraction_us = 0;

    if (!take_digits(text, 4, &year) || !take_byte(text, '-') || !take_digits(text, 2, &month) ||
        !take_byte(text, '-') || !take_digits(text, 2, &day) || month < 1 || month > 12 ||
        day < 1 || day > 31 || !(take_byte(text, 'T') || take_byte(text, ' ')) ||
        !take_clock(text, &seconds)) {
        return false;
    }
    if (take_byte(text, '.')) {
        for (int64_t unit = US_PER_S / 10; text->len > 0 && ascii_is_digit(text->ptr[0]);
             unit /= 10) {
            fraction_us += (text->ptr[0] - '0') * unit;
            *text = slice_skip(*text, 1);
        }
    }
    if (text->len > 0 && (text->ptr[0] == '+' || text->ptr[0] == '-')) {
        bool east = text->ptr[0] == '+';

        *text = slice_skip(*text, 1);
        if (!take_digits(text, 2, &hours)) {
            return false;
        }
        (void)take_byte(text, ':'); /* some leave it out */
        if (!take_digits(text, 2, &minutes)) {
            return false;
        }
        seconds -= (east ? 60 : -60) * (hours * 60 + minutes);
    } else {
        (void)take_byte(text, 'Z'); /* the time is valid without it */
    }
    *ret_us = (days_of(year, month, day) * SECONDS_PER_DAY + seconds) * US_PER_S + fraction_us;
    return true;
}

static int month_of(struct slice name)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (int month = 1; month <= 12; month++) {
        if (slice_equal(name, slice_of(names + 3 * (month - 1), 3))) {
            return month;
        }
    }
    return 0;
}

/* "Nov 21 08:00:01" or "Nov  1 08:00:01" */
static bool take_syslog_date(struct slice *text, struct trace_clock *clock, int64_t *ret_us)
{
    static const int days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int month, day;
    int64_t seconds, days;

    if (text->len < 4 || (month = month_of(slice_of(text->ptr, 3))) == 0) {
        return false;
    }
    *text = slice_skip(*text, 3);
    if (!take_byte(text, ' ') ||
        !(take_byte(text, ' ') ? take_digits(text, 1, &day) : take_digits(text, 2, &day)) ||
        day < 1 || day > 31 || !take_byte(text, ' ') || !take_clock(text, &seconds)) {
        return false;
    }
    if (month < clock->last_month - MONTHS_BACK_MAX) {
        clock->years++;
        clock->leap = false;
    }
    clock->last_month = month;
    clock->leap |= month == 2 && day == 29;
    days = clock->years * DAYS_PER_YEAR + days_before[month - 1] + day - 1 +
           (clock->leap && month > 2 ? 1 : 0);
    *ret_us = (days * SECONDS_PER_DAY + seconds) * US_PER_S;
    return true;
}

static bool take_date(struct slice *text, struct trace_clock *clock, int64_t *ret_us)
{
    return text->len > 0 && ascii_is_digit(text->ptr[0]) ? take_rfc3339(text, ret_us)
                                                         : take_syslog_date(text, clock, ret_us);
}

/* ---- content of the line -------------------------------------------------------------------- */

/* Parses seconds with at most six digits after the point; at most a day, as a longer time can't be
 * that of a delivery. */
static bool seconds_of(struct slice text, int64_t *ret_us)
{
    struct slice fraction = text, whole = slice_cut(&fraction, '.');
    unsigned long long seconds;
    int64_t us = 0, unit = US_PER_S / 10;

    if (!slice_number(whole, (unsigned long long)SECONDS_PER_DAY, &seconds)) {
        return false;
    }
    for (size_t i = 0; fraction.ptr != NULL && i < fraction.len; i++, unit /= 10) {
        if (!ascii_is_digit(fraction.ptr[i])) {
            return false;
        }
        us += (fraction.ptr[i] - '0') * unit;
    }
    *ret_us = (int64_t)seconds * US_PER_S + us;
    return true;
}

/* "before/active/connection/transmission" */
static int64_t took_us(struct slice delays)
{
    int64_t parts[4];

    for (size_t i = 0; i < 4; i++) {
        if (delays.ptr == NULL || !seconds_of(slice_cut(&delays, '/'), &parts[i])) {
            return -1;
        }
    }
    return delays.ptr == NULL ? parts[2] + parts[3] : -1;
}

static bool is_domain(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!ascii_is_alnum(text.ptr[i]) && memchr(".-_", text.ptr[i], 3) == NULL) {
            return false;
        }
    }
    return text.len > 0 && text.len <= TRACE_DOMAIN_MAX;
}

static bool read_active(struct slice text, struct trace_line *l)
{
    unsigned long long size;
    struct slice value;

    if (find_value(text, ">, status=expired", ' ', &value)) {
        l->kind = TRACE_LINE_GONE;
        return true;
    }
    if (!find_value(text, ">, size=", ',', &value) || !slice_number(value, INT64_MAX, &size)) {
        return false;
    }
    l->kind = TRACE_LINE_ACTIVE;
    l->sender = slice_of(text.ptr, slice_find(text, '>'));
    l->size_bytes = (int64_t)size;
    return true;
}

/* "bulk (List-Id)" */
static bool read_class(struct slice text, struct trace_line *l)
{
    struct slice source;

    l->class_name = slice_cut(&text, ' ');
    source = text;
    if (!class_name_valid(l->class_name) || source.ptr == NULL) {
        return false;
    }
    l->marked = slice_equal(source, SLICE("(List-Unsubscribe)")) ||
                slice_equal(source, SLICE("(List-Id)")) ||
                slice_equal(source, SLICE("(Precedence)"));
    l->kind = TRACE_LINE_CLASS;
    return true;
}

static bool read_attempt(struct slice text, struct trace_line *l)
{
    struct slice status, delays;

    l->address = slice_of(text.ptr, slice_find(text, '>'));
    l->domain = slice_skip(l->address, slice_find_last(l->address, '@'));
    l->domain = slice_skip(l->domain, 1);
    if (!is_domain(l->domain) || !find_value(text, ", status=", ' ', &status)) {
        return false;
    }
    if (slice_equal(status, SLICE("sent"))) {
        l->status = TRACE_SENT;
    } else if (slice_equal(status, SLICE("deferred"))) {
        l->status = TRACE_DEFERRED;
    } else if (slice_equal(status, SLICE("bounced"))) {
        l->status = TRACE_BOUNCED;
    } else {
        return false;
    }
    l->took_us = find_value(text, ", delays=", ',', &delays) ? took_us(delays) : -1;
    l->kind = TRACE_LINE_ATTEMPT;
    return true;
}

static bool is_id(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!ascii_is_alnum(text.ptr[i])) {
            return false;
        }
    }
    return text.len > 0 && text.len <= TRACE_ID_MAX;
}

/* Takes the text after "HOST PROGRAM[PID]: ID: ". */
static bool take_head(struct slice *text, struct slice *ret_id)
{
    static const char colon[] = ": ";
    const char *at = memmem(text->ptr, text->len, colon, 2);

    if (at == NULL) {
        return false;
    }
    *text = slice_skip(*text, (size_t)(at - text->ptr) + 2);
    at = memmem(text->ptr, text->len, colon, 2);
    if (at == NULL) {
        return false;
    }
    *ret_id = slice_of(text->ptr, (size_t)(at - text->ptr));
    *text = slice_skip(*text, ret_id->len + 2);
    return is_id(*ret_id);
}

void trace_line_read(struct slice line, struct trace_clock *clock, struct trace_line *ret_line)
{
    static const struct slice from = {"from=<", 6}, to = {"to=<", 4}, class = {"class=", 6};
    struct slice text = slice_trim(line);
    struct trace_line l = {.kind = TRACE_LINE_OTHER, .took_us = -1};
    bool ok = take_date(&text, clock, &l.at_us) && take_head(&text, &l.id);

    if (ok && slice_starts(text, from)) {
        ok = read_active(slice_skip(text, from.len), &l);
    } else if (ok && slice_starts(text, to)) {
        ok = read_attempt(slice_skip(text, to.len), &l);
    } else if (ok && slice_starts(text, class)) {
        ok = read_class(slice_skip(text, class.len), &l);
    } else if (ok && slice_equal(text, SLICE("removed"))) {
        l.kind = TRACE_LINE_GONE;
    } else {
        ok = false;
    }
    *ret_line = ok ? l : (struct trace_line){.kind = TRACE_LINE_OTHER};
}
