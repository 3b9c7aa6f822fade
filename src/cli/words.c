#include "words.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "mem.h"
#include "printable.h"
#include "slice.h"

const char *member_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

double member_number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

int64_t member_integer(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* All texts fit into struct words for numbers that occur; others may be cut. */

struct words words_size(double bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    struct words w;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(w.text, sizeof w.text, "%.0f bytes", bytes);
        return w;
    }
    for (bytes /= 1024; bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++) {
        bytes /= 1024;
    }
    (void)snprintf(w.text, sizeof w.text, "%.1f %s", bytes, units[unit]);
    return w;
}

struct words words_interval(double seconds)
{
    static const struct {
        int64_t seconds;
        char name;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    int64_t left = seconds < 0 ? 0 : seconds > 1e12 ? INT64_C(1000000000000) : (int64_t)seconds;
    struct words w = {.text = "0s"};
    size_t i = 0;

    while (i < 3 && left < units[i].seconds) {
        i++;
    }
    if (i < 3 && left % units[i].seconds >= units[i + 1].seconds) {
        (void)snprintf(w.text, sizeof w.text, "%" PRId64 "%c %" PRId64 "%c",
                       left / units[i].seconds, units[i].name,
                       left % units[i].seconds / units[i + 1].seconds, units[i + 1].name);
    } else {
        (void)snprintf(w.text, sizeof w.text, "%" PRId64 "%c", left / units[i].seconds,
                       units[i].name);
    }
    return w;
}

static struct words format_time(double t, const char *format)
{
    time_t seconds = t < 0 || t > 1e11 ? 0 : (time_t)t;
    struct words w = {.text = ""};
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL) {
        (void)strftime(w.text, sizeof w.text, format, &tm); /* fits */
    }
    return w;
}

struct words words_time(double t)
{
    return format_time(t, "%Y-%m-%d %H:%M:%S");
}

struct words words_when(double t, double now)
{
    struct words w;

    (void)snprintf(w.text, sizeof w.text, t <= now ? "%.20s (%.30s ago)" : "%.20s (in %.30s)",
                   words_time(t).text, words_interval(t <= now ? now - t : t - now).text);
    return w;
}

struct words words_date(double t)
{
    return format_time(t, "%a %b %e %H:%M:%S");
}

double words_now(void)
{
    struct timespec ts;

    CHECK(clock_gettime(CLOCK_REALTIME, &ts) == 0);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

struct words words_count(int64_t n, const char *noun)
{
    struct words w;

    (void)snprintf(w.text, sizeof w.text, "%" PRId64 " %s%s", n, noun, n == 1 ? "" : "s");
    return w;
}

static void put_slice(FILE *out, struct slice text)
{
    char *copy = mem_copy(text.ptr, text.len);

    printable_line(copy, text.len);
    (void)fwrite(copy, 1, text.len, out); /* checked when the caller closes the file */
    mem_free(copy);
}

void put_text(FILE *out, const char *text)
{
    put_slice(out, slice_string(text));
}

void put_lines(FILE *out, const char *text)
{
    struct slice rest = slice_string(text);

    while (rest.len > 0) {
        put_slice(out, slice_cut(&rest, '\n'));
        fputc('\n', out);
    }
}

void put_error(const char *text)
{
    struct slice rest = slice_trim(slice_string(text));

    while (rest.len > 0) {
        fputs("sluice: ", stderr);
        put_slice(stderr, slice_cut(&rest, '\n'));
        fputc('\n', stderr);
    }
}

void put_json(FILE *out, const json_t *value)
{
    (void)json_dumpf(value, out, JSON_COMPACT | JSON_ENSURE_ASCII); /* checked at the end */
    (void)fputc('\n', out);
}
