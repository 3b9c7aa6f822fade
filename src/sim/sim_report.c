#include "sim_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "class_name.h"
#include "times.h"

#define NAME_WIDTH     28 /* of the name of a figure */
#define NAME_WIDTH_MAX 44 /* of the name of a row; longer ones shift their row to the right */
#define NUMBER_MAX     32 /* bytes of a figure */

#define US_PER_MIN (60 * US_PER_S)
#define US_PER_HR  (60 * US_PER_MIN)
#define US_PER_24H (24 * US_PER_HR)

/* ---- intervals ------------------------------------------------------------------------------ */

struct sim_interval_text sim_interval_text(int64_t us)
{
    struct sim_interval_text t;
    char *at = t.text;
    size_t size = sizeof t.text; /* enough for each of these */

    if (us < 0) {
        (void)snprintf(at, size, "-");
    } else if (us == 0) {
        (void)snprintf(at, size, "0s");
    } else if (us < US_PER_MS) {
        (void)snprintf(at, size, "%" PRId64 "us", us);
    } else if (us < 100 * US_PER_MS) {
        (void)snprintf(at, size, "%" PRId64 ".%" PRId64 "ms", us / US_PER_MS, us / 100 % 10);
    } else if (us < US_PER_S) {
        (void)snprintf(at, size, "%" PRId64 "ms", us / US_PER_MS);
    } else if (us < US_PER_MIN) {
        (void)snprintf(at, size, "%" PRId64 ".%" PRId64 "s", us / US_PER_S, us / 100000 % 10);
    } else if (us < US_PER_HR) {
        (void)snprintf(at, size, "%" PRId64 "m%02" PRId64 "s", us / US_PER_MIN,
                       us % US_PER_MIN / US_PER_S);
    } else if (us < US_PER_24H) {
        (void)snprintf(at, size, "%" PRId64 "h%02" PRId64 "m", us / US_PER_HR,
                       us % US_PER_HR / US_PER_MIN);
    } else {
        (void)snprintf(at, size, "%" PRId64 "d%02" PRId64 "h", us / US_PER_24H,
                       us % US_PER_24H / US_PER_HR);
    }
    return t;
}

/* ---- the rest ------------------------------------------------------------------------------- */

void sim_report_sum_rest(const struct sim_result *r, size_t first, struct sim_tally *ret_rest)
{
    sim_tally_init(ret_rest, "rest");
    for (size_t i = first; i < r->dest_count; i++) {
        sim_tally_merge(ret_rest, r->dests[i]);
    }
}

static size_t own_rows(const struct sim_result *r, const struct sim_report_options *options)
{
    CHECK(options->rows <= SIM_REPORT_ROWS_MAX);
    return r->dest_count < options->rows ? r->dest_count : options->rows;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Text beyond the buffer's limit is missing; the buffer has then failed. */

/* Returns the width of the longest name, within limits. */
static int name_width(const struct sim_result *r, size_t rows)
{
    size_t width = strlen("destination");

    for (size_t i = 0; i < r->class_count; i++) {
        size_t len = strlen(r->classes[i].name);

        width = len > width ? len : width;
    }
    for (size_t i = 0; i < rows; i++) {
        size_t len = strlen(r->dests[i]->name);

        width = len > width ? len : width;
    }
    return (int)(width < NAME_WIDTH_MAX ? width : NAME_WIDTH_MAX);
}

static void print_head(struct buf *out, int width, const char *what)
{
    (void)buf_addf(out, "\n%-*s %9s %9s %7s %7s %6s %9s %7s %7s %7s %7s %6s %5s %7s\n", width, what,
                   "mail", "sent", "failed", "left", "defer", "attempts", "p50", "p90", "p99",
                   "max", "busy", "peak", "drain");
}

static void print_row(struct buf *out, int width, const struct sim_tally *t)
{
    (void)buf_addf(out,
                   "%-*s %9" PRIu64 " %9" PRIu64 " %7" PRIu64 " %7" PRIu64 " %5.1f%% %9" PRIu64
                   " %7s %7s %7s %7s %6.1f %5" PRIu32 " %7s\n",
                   width, t->name, t->recipients, t->sent, t->bounced + t->expired,
                   sim_tally_left(t), 100 * sim_tally_defer_rate(t), t->attempts,
                   sim_interval_text(histogram_quantile(&t->delay, 500)).text,
                   sim_interval_text(histogram_quantile(&t->delay, 900)).text,
                   sim_interval_text(histogram_quantile(&t->delay, 990)).text,
                   sim_interval_text(t->delay.max).text, sim_tally_busy_mean(t), t->busy_peak,
                   sim_interval_text(sim_tally_drain_us(t)).text);
}

static void print_failures(struct buf *out, const struct sim_tally *t)
{
    static const char *const names[SIM_TRY_KINDS] = {
        [SIM_TRY_REFUSED] = "refused",
        [SIM_TRY_CONNECT_TIMEOUT] = "timed out in connect",
        [SIM_TRY_GREETING_TIMEOUT] = "timed out waiting for the greeting",
        [SIM_TRY_TURNED_AWAY] = "turned away with 421",
    };
    const char *separator = "\nAttempts that reached no host: ";

    for (int i = SIM_TRY_REACHED + 1; i < SIM_TRY_KINDS; i++) {
        if (t->failures[i] > 0) {
            (void)buf_addf(out, "%s%" PRIu64 " %s", separator, t->failures[i], names[i]);
            separator = ", ";
        }
    }
    if (strcmp(separator, ", ") == 0) {
        (void)buf_add_string(out, ".\n");
    }
}

static void print_summary(struct buf *out, const struct sim_result *r,
                          const struct sim_report_options *options)
{
    int64_t drain_us = sim_tally_drain_us(&r->total);

    if (options->trace != NULL) {
        const struct trace *t = options->trace;

        (void)buf_addf(out,
                       "The log: %" PRIu64 " lines, %" PRIu64 " of them understood; %zu messages"
                       ", %" PRIu64 " without a recipient left out, %" PRIu64
                       " lines beyond the limits.\n",
                       t->lines, t->understood, t->message_count, t->incomplete, t->over_limit);
    }
    (void)buf_addf(
        out,
        "%s of virtual time, seed %" PRIu64 ": %" PRIu64 " messages, %" PRIu64 " recipients.\n",
        sim_interval_text(r->ended.us).text, options->seed, r->total.messages, r->total.recipients);
    (void)buf_addf(out, "At most %" PRIu32 " messages waited, %" PRIu32 " of them active; ",
                   r->queue_peak, r->active_peak);
    if (drain_us >= 0) {
        (void)buf_addf(out, "the last one left %s after the last arrival.\n",
                       sim_interval_text(drain_us).text);
    } else {
        (void)buf_addf(out, "%" PRIu64 " recipients are left.\n", sim_tally_left(&r->total));
    }
}

void sim_report_print(struct buf *out, const struct sim_result *r,
                      const struct sim_report_options *options)
{
    size_t rows = own_rows(r, options);
    int width = name_width(r, rows);
    struct sim_tally rest;

    print_summary(out, r, options);
    print_head(out, width, "class");
    for (size_t i = 0; i < r->class_count; i++) {
        print_row(out, width, &r->classes[i]);
    }
    if (r->class_count > 1) {
        print_row(out, width, &r->total);
    }
    print_head(out, width, "destination");
    for (size_t i = 0; i < rows; i++) {
        print_row(out, width, r->dests[i]);
    }
    if (rows < r->dest_count) {
        char name[NUMBER_MAX + NAME_WIDTH];

        sim_report_sum_rest(r, rows, &rest);
        (void)snprintf(name, sizeof name, "%zu more", r->dest_count - rows); /* fits */
        rest.name = name;
        print_row(out, width, &rest);
        sim_tally_fini(&rest);
    }
    print_failures(out, &r->total);
}

/* ---- two runs ------------------------------------------------------------------------------- */

enum figure_unit { UNIT_COUNT, UNIT_INTERVAL, UNIT_PERCENT, UNIT_BUSY };

struct figure {
    const char *name;
    enum figure_unit unit;
    double value; /* negative: no value */
};

#define FIGURES 12

static void figures_of(const struct sim_tally *t, struct figure figures[FIGURES])
{
    const struct figure all[FIGURES] = {
        {"delay p50", UNIT_INTERVAL, (double)histogram_quantile(&t->delay, 500)},
        {"delay p90", UNIT_INTERVAL, (double)histogram_quantile(&t->delay, 900)},
        {"delay p99", UNIT_INTERVAL, (double)histogram_quantile(&t->delay, 990)},
        {"delay max", UNIT_INTERVAL, (double)t->delay.max},
        {"sent", UNIT_COUNT, (double)t->sent},
        {"failed", UNIT_COUNT, (double)(t->bounced + t->expired)},
        {"left", UNIT_COUNT, (double)sim_tally_left(t)},
        {"defer rate", UNIT_PERCENT, 100 * sim_tally_defer_rate(t)},
        {"attempts", UNIT_COUNT, (double)t->attempts},
        {"busy mean", UNIT_BUSY, sim_tally_busy_mean(t)},
        {"busy peak", UNIT_COUNT, t->busy_peak},
        {"drain", UNIT_INTERVAL, (double)sim_tally_drain_us(t)},
    };

    memcpy(figures, all, sizeof all);
}

static const char *figure_text(const struct figure *f, char text[NUMBER_MAX])
{
    switch (f->unit) { /* each fits */
    case UNIT_COUNT:
        (void)snprintf(text, NUMBER_MAX, "%.0f", f->value);
        break;
    case UNIT_INTERVAL:
        (void)snprintf(text, NUMBER_MAX, "%s", sim_interval_text((int64_t)f->value).text);
        break;
    case UNIT_PERCENT:
        (void)snprintf(text, NUMBER_MAX, "%.2f%%", f->value);
        break;
    case UNIT_BUSY:
        (void)snprintf(text, NUMBER_MAX, "%.2f", f->value);
        break;
    }
    return text;
}

/* Returns the change as text: "-12.5%", "x13.0" if it more than doubles, "" without a value to
 * compare. */
static const char *change_text(double before, double after, char text[NUMBER_MAX])
{
    text[0] = '\0';
    if (before > 0 && after >= 0) {
        (void)snprintf(text, NUMBER_MAX, after > 2 * before ? "x%.1f" : "%+.1f%%", /* fits */
                       after > 2 * before ? after / before : 100 * (after / before - 1));
    }
    return text;
}

static void print_pair(struct buf *out, const char *kind, const struct sim_tally *before,
                       const struct sim_tally *after)
{
    struct figure a[FIGURES], b[FIGURES];
    char texts[3][NUMBER_MAX];
    bool told = false;

    figures_of(before, a);
    figures_of(after, b);
    for (size_t i = 0; i < FIGURES; i++) {
        if (a[i].value == b[i].value) {
            continue;
        }
        if (!told) {
            (void)buf_addf(out, "\n%-*s %10s %10s %10s\n", NAME_WIDTH, kind, "before", "after",
                           "change");
            told = true;
        }
        (void)buf_addf(out, "  %-*s %10s %10s %10s\n", NAME_WIDTH - 2, a[i].name,
                       figure_text(&a[i], texts[0]), figure_text(&b[i], texts[1]),
                       change_text(a[i].value, b[i].value, texts[2]));
    }
    if (!told) {
        (void)buf_addf(out, "\n%s: no difference\n", kind);
    }
}

static const struct sim_tally *dest_named(const struct sim_result *r, const char *name)
{
    for (size_t i = 0; i < r->dest_count; i++) {
        if (strcmp(r->dests[i]->name, name) == 0) {
            return r->dests[i];
        }
    }
    return NULL;
}

static void print_dest_pair(struct buf *out, const struct sim_tally *before,
                            const struct sim_result *after)
{
    const struct sim_tally *same = dest_named(after, before->name);

    if (same != NULL) {
        print_pair(out, before->name, before, same);
    } else {
        (void)buf_addf(out, "\n%s: not a destination of the second configuration\n", before->name);
    }
}

void sim_report_print_diff(struct buf *out, const struct sim_result *before,
                           const struct sim_result *after, const struct sim_report_options *options)
{
    char kind[NUMBER_MAX * 8];

    (void)buf_addf(out,
                   "Seed %" PRIu64 ": %" PRIu64 " messages, %" PRIu64
                   " recipients under two configurations.\n",
                   options->seed, before->total.messages, before->total.recipients);
    print_pair(out, "all mail", &before->total, &after->total);
    CHECK(before->class_count == after->class_count); /* both have the same workload */
    for (size_t i = 0; i < before->class_count && before->class_count > 1; i++) {
        (void)snprintf(kind, sizeof kind, "class %s", before->classes[i].name); /* may be cut */
        print_pair(out, kind, &before->classes[i], &after->classes[i]);
    }
    for (size_t i = 0; i < own_rows(before, options); i++) {
        print_dest_pair(out, before->dests[i], after);
    }
}

/* ---- the effect of classes ------------------------------------------------------------------ */

/* Returns a quantile of the delay as text; "-" if nothing was sent. */
static struct sim_interval_text delay_text(const struct sim_tally *t, unsigned permille)
{
    return sim_interval_text(t->sent > 0 ? histogram_quantile(&t->delay, permille) : -1);
}

static void print_class_delays(struct buf *out, const char *name, const struct sim_tally *with,
                               const struct sim_tally *without)
{
    (void)buf_addf(out, "%s mail: p50 %s, p99 %s; without classes p50 %s, p99 %s.\n", name,
                   delay_text(with, 500).text, delay_text(with, 990).text,
                   delay_text(without, 500).text, delay_text(without, 990).text);
}

void sim_report_print_classes(struct buf *out, const struct sim_result *with,
                              const struct sim_result *without,
                              const struct sim_report_options *options)
{
    const struct trace *t = options->trace;
    size_t first = with->class_count - t->class_count; /* the trace's rows are the last ones */

    CHECK(with->class_count == without->class_count && first > 0);
    (void)buf_add_string(out, "\nWhat default_class = auto changes:\n");
    print_class_delays(out, CLASS_NAME_PERSONAL, &with->classes[first - 1],
                       &without->classes[first - 1]);
    for (size_t i = 0; i < t->class_count; i++) {
        if (strcmp(t->classes[i], CLASS_NAME_BULK) == 0) {
            print_class_delays(out, CLASS_NAME_BULK, &with->classes[first + i],
                               &without->classes[first + i]);
        }
    }
}
