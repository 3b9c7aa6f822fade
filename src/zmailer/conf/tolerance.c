#include "tolerance.h"

#include <limits.h>
#include <string.h>

#include "buf.h"
#include "param.h"
#include "pool.h"
#include "times.h"
#include "value.h"

#define RETRIES_MAX     100 /* ZMailer's limit */
#define REPORTTIMES_MAX 4
#define TEXT_MAX        4096 /* longest value in bytes: RETRIES_MAX numbers */

/* ---- ZMailer's parsers ----------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Takes the digits at the front of *s; a number above INT64_MAX becomes INT64_MAX. Returns false if
 * there are none. */
static bool take_digits(struct slice *s, int64_t *ret_n)
{
    size_t len = 0;
    int64_t n = 0;

    for (; len < s->len && ascii_is_digit(s->ptr[len]); len++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, s->ptr[len] - '0', &n)) {
            n = INT64_MAX;
        }
    }
    *s = slice_skip(*s, len);
    *ret_n = n;
    return len > 0;
}

/* Reads an integer with an optional sign and ignores the rest. Returns false if there is none. */
static bool integer_head(struct slice s, int64_t *ret_n)
{
    bool minus;

    while (s.len > 0 && is_blank(s.ptr[0])) {
        s = slice_skip(s, 1);
    }
    minus = s.len > 0 && s.ptr[0] == '-';
    s = slice_skip(s, minus || (s.len > 0 && s.ptr[0] == '+'));
    if (!take_digits(&s, ret_n)) {
        return false;
    }
    *ret_n = minus ? -*ret_n : *ret_n;
    return true;
}

/* Reads numbers with units d, h, m and s (the default), up to the first other byte. Returns false
 * if there are none. */
static bool interval_head(struct slice s, int64_t *ret_us)
{
    int64_t sum = 0, n;
    bool found = false;

    while (take_digits(&s, &n)) {
        char unit = s.len == 0 ? 's' : ascii_lower(s.ptr[0]);
        int64_t unit_us = unit == 'd'   ? US_PER_DAY
                          : unit == 'h' ? US_PER_HOUR
                          : unit == 'm' ? US_PER_MINUTE
                                        : US_PER_S;

        if (__builtin_mul_overflow(n, unit_us, &n) || __builtin_add_overflow(sum, n, &sum)) {
            sum = INT64_MAX;
        }
        found = true;
        if (s.len == 0 || memchr("dhms", unit, 4) == NULL) {
            break;
        }
        s = slice_skip(s, 1);
    }
    *ret_us = sum;
    return found;
}

static struct slice next_word(struct slice *rest)
{
    size_t len = 0;

    while (rest->len > 0 && (is_blank(rest->ptr[0]) || rest->ptr[0] == ',')) {
        *rest = slice_skip(*rest, 1);
    }
    while (len < rest->len && !is_blank(rest->ptr[len]) && rest->ptr[len] != ',') {
        len++;
    }
    struct slice word = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return word;
}

/* ---- readers of values ----------------------------------------------------------------------- */

/* Writes the value that ZMailer would read; nothing if the line has no effect. Returns false if
 * ZMailer refuses the file, too. Values are short, so `out` does not fail. */
typedef bool reader(const struct param *p, struct slice value, struct buf *out);

static void put_interval(const struct param *p, int64_t us, struct buf *out)
{
    interval_print(out, us > PARAM_LIFETIME_MAX ? PARAM_LIFETIME_MAX : us);
    (void)p;
}

static bool read_interval(const struct param *p, struct slice value, struct buf *out)
{
    int64_t us;

    if (interval_head(value, &us) && us >= p->min) {
        put_interval(p, us, out);
    }
    return true;
}

/* Reads a number of agents or jobs; text without a number is 0, which means no limit. */
static bool read_count(const struct param *p, struct slice value, struct buf *out)
{
    int64_t n;

    n = integer_head(value, &n) ? n : 0;
    (void)buf_addf(out, "%lld", (long long)(n > INT_MAX ? INT_MAX : n < 0 ? 0 : n));
    (void)p;
    return true;
}

static bool read_skew(const struct param *p, struct slice value, struct buf *out)
{
    int64_t n;

    if (!take_digits(&value, &n) || n < p->min) {
        return false;
    }
    (void)buf_addf(out, "%lld", (long long)(n > p->max ? p->max : n));
    return true;
}

static bool read_priority(const struct param *p, struct slice value, struct buf *out)
{
    int64_t n;

    if (!integer_head(value, &n) || n < p->min || n > p->max) {
        return false;
    }
    (void)buf_addf(out, "%lld", (long long)n);
    return true;
}

static bool read_retries(const struct param *p, struct slice value, struct buf *out)
{
    struct slice word;
    int64_t n;

    for (size_t i = 0; i < RETRIES_MAX && (word = next_word(&value)).len > 0; i++) {
        if (!integer_head(word, &n) || n <= 0) {
            return false;
        }
        (void)buf_addf(out, "%s%lld", i > 0 ? " " : "", (long long)(n > INT_MAX ? INT_MAX : n));
    }
    (void)p;
    return true;
}

static bool read_reporttimes(const struct param *p, struct slice value, struct buf *out)
{
    size_t count = 0;
    struct slice word;
    int64_t us;

    while (count < REPORTTIMES_MAX && (word = next_word(&value)).len > 0) {
        if (interval_head(word, &us)) {
            (void)buf_add_string(out, count++ > 0 ? " " : "");
            put_interval(p, us, out);
        }
    }
    return true;
}

/* Reads a user or group; a name that begins with a digit is a number. */
static bool read_account(const struct param *p, struct slice value, struct buf *out)
{
    int64_t n;

    if (!take_digits(&value, &n) || n >= UINT32_MAX) {
        return false;
    }
    (void)buf_addf(out, "%lld", (long long)n);
    (void)p;
    return true;
}

static bool read_flag(const struct param *p, struct slice value, struct buf *out)
{
    (void)p;
    (void)value;
    (void)buf_add_string(out, "yes");
    return true;
}

/* Reads a flag of a PARAM line, which is a number. */
static bool read_number_flag(const struct param *p, struct slice value, struct buf *out)
{
    int64_t n;

    (void)p;
    (void)buf_add_string(out, integer_head(value, &n) && n != 0 ? "yes" : "no");
    return true;
}

static const struct {
    const char *name; /* name of a parameter or of a clause's value */
    reader *read;
} readers[] = {
    {"interval", read_interval},
    {"idlemax", read_interval},
    {"expiry", read_interval},
    {"expiry2", read_interval},
    {"reporttimes", read_reporttimes},
    {"retries", read_retries},
    {"maxta", read_count},
    {"maxchannel", read_count},
    {"maxring", read_count},
    {"maxthr", read_count},
    {"overfeed", read_count},
    {"skew", read_skew},
    {"user", read_account},
    {"group", read_account},
    {"ageorder", read_flag},
    {"queueonly", read_flag},
    {"wakeuprestartonly", read_flag},
    {"bychannel", read_flag},
    {"byhost", read_flag},
    {"priority", read_priority},
    {"nice", read_priority},
    {"syspriority", read_priority},
    {"sysnice", read_priority},
    {"global_report_interval", read_interval},
    {"msgwriteasync", read_number_flag},
    {"store_error_on_error", read_number_flag},
};

bool tolerance_of_value(const struct param *p, struct slice value, struct pool *pool,
                        const char **ret_value)
{
    const char *name = p->suffix != NULL && p->name[0] == '\0' ? p->suffix : p->name;
    bool ok = false;
    struct buf out;

    buf_init(&out, TEXT_MAX);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strcmp(readers[i].name, name) == 0) {
            ok = readers[i].read(p, value, &out);
            break;
        }
    }
    if (ok) {
        *ret_value = buf_len(&out) > 0 ? pool_string(pool, buf_slice(&out)) : NULL;
    }
    buf_fini(&out);
    return ok;
}

/* ---- patterns ------------------------------------------------------------------------------- */

/* Cuts a pattern after its first list of alternatives, as ZMailer does, and closes an open list. */
struct slice tolerance_of_pattern(struct slice pattern, struct pool *pool)
{
    size_t open = slice_find(pattern, '{');
    size_t close = open + slice_find(slice_skip(pattern, open), '}');
    char *closed;

    if (open == pattern.len || close < pattern.len) {
        return slice_of(pattern.ptr, close < pattern.len ? close + 1 : pattern.len);
    }
    closed = pool_new(pool, pattern.len + 1);
    memcpy(closed, pattern.ptr, pattern.len);
    closed[pattern.len] = '}';
    return slice_of(closed, pattern.len + 1);
}
