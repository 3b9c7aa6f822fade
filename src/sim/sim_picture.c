#include "sim_picture.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "sim_report.h"
#include "sim_series.h"
#include "svg.h"
#include "time_chart.h"

/* Layout, in pixels. */
#define WIDTH        960
#define LEFT         64
#define RIGHT        24
#define HEAD         40 /* above a chart: for heading and legend */
#define FOOT         44 /* below a chart: for time labels and a gap */
#define QUEUE_HEIGHT 180
#define DEST_HEIGHT  96
#define DELAY_ROW    26
#define DELAY_LEFT   150
#define DELAY_RIGHT  250 /* for the figures after the rows */

#define DESTS_SHOWN   4
#define CLASSES_SHOWN 12
#define LABEL_MAX     256 /* in bytes */

struct picture {
    struct buf *out;
    const struct sim_result *r;
    const struct workload *workload;
    int64_t until_us;
    double y; /* top of the next chart */
};

static void text_fmt(struct picture *p, double x, double y, const char *classes, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));

static void text_fmt(struct picture *p, double x, double y, const char *classes, const char *format,
                     ...)
{
    char text[LABEL_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args); /* a cut only looks bad */
    va_end(args);
    svg_text(p->out, x, y, classes, slice_string(text));
}

static struct time_chart chart_at(const struct picture *p, double height, double max)
{
    return (struct time_chart){.left = LEFT,
                               .top = p->y + HEAD,
                               .width = WIDTH - LEFT - RIGHT,
                               .height = height,
                               .until_us = p->until_us,
                               .step_us = p->r->series->step_us,
                               .max = time_chart_nice_max(max)};
}

/* Adds a patch of colour with its name, to the left of x. Returns the right end of the next one. */
static double add_legend(struct picture *p, double x, const char *classes, const char *name)
{
    double width = 7.0 * (double)strlen(name) + 22;

    svg_rect(p->out, x - width, p->y + 15, 11, 11, classes, SLICE(""));
    svg_text(p->out, x - width + 16, p->y + 25, "l", slice_string(name));
    return x - width - 14;
}

/* Draws the periods in which a destination's site was down. `labelled`: with the kind of outage as
 * text; else only in the title. */
static void draw_outages(struct picture *p, const struct time_chart *chart, const char *name,
                         bool labelled)
{
    static const char *const words[] = {
        [SIM_DOWN_REFUSE] = "refuses connections",
        [SIM_DOWN_HANG] = "does not answer",
        [SIM_DOWN_MUTE] = "does not greet",
        [SIM_DOWN_BUSY] = "turns all away",
    };
    struct slice host = slice_string(name);
    const struct workload_site *site;

    (void)slice_cut(&host, '/');
    site = workload_site_find(p->workload, host);
    for (size_t i = 0; site != NULL && i < site->model.outage_count; i++) {
        const struct sim_outage *o = &site->model.outages[i];
        double x = chart->left + chart->width * (double)o->from_us / (double)p->until_us;
        char title[LABEL_MAX];

        (void)snprintf(title, sizeof title, "%s %s", name, words[o->down]); /* or cut */
        time_chart_period(p->out, chart, o->from_us, o->until_us, title);
        if (labelled && o->from_us < p->until_us) {
            svg_text(p->out, x + 4, chart->top + 13, "note", slice_string(words[o->down]));
        }
    }
}

/* ---- the queue ------------------------------------------------------------------------------ */

enum { QUEUE_ACTIVE, QUEUE_INCOMING, QUEUE_DEFERRED, QUEUE_PARKED, QUEUE_STATES };

static const char *const queue_names[QUEUE_STATES] = {"active", "incoming", "deferred", "parked"};
static const char *const queue_classes[QUEUE_STATES] = {"s0", "s1", "s2", "s3"};

/* Sums up the states, so that their areas are stacked. */
static void stack_queue(const struct sim_series *s, double (*sums)[SIM_SERIES_MAX])
{
    for (size_t i = 0; i < s->count; i++) {
        sums[QUEUE_ACTIVE][i] = s->queue[i].active;
        sums[QUEUE_INCOMING][i] = sums[QUEUE_ACTIVE][i] + s->queue[i].incoming;
        sums[QUEUE_DEFERRED][i] = sums[QUEUE_INCOMING][i] + s->queue[i].deferred;
        sums[QUEUE_PARKED][i] = sums[QUEUE_DEFERRED][i] + s->queue[i].parked;
    }
}

static double greatest(const double *values, size_t count)
{
    double max = 0;

    for (size_t i = 0; i < count; i++) {
        max = values[i] > max ? values[i] : max;
    }
    return max;
}

static void draw_queue(struct picture *p, const size_t *dests, size_t dest_count)
{
    const struct sim_series *s = p->r->series;
    double(*sums)[SIM_SERIES_MAX] = mem_array(QUEUE_STATES, sizeof *sums);
    double legend = WIDTH - RIGHT;
    struct time_chart chart;

    stack_queue(s, sums);
    chart = chart_at(p, QUEUE_HEIGHT, greatest(sums[QUEUE_PARKED], s->count));
    svg_text(p->out, LEFT, p->y + 25, "h", SLICE("Messages waiting"));
    for (int state = QUEUE_STATES - 1; state >= 0; state--) {
        legend = add_legend(p, legend, queue_classes[state], queue_names[state]);
    }
    time_chart_open(p->out, &chart);
    for (int state = 0; state < QUEUE_STATES; state++) {
        time_chart_area(p->out, &chart, state == 0 ? NULL : sums[state - 1], sums[state], s->count,
                        queue_classes[state]);
    }
    for (size_t i = 0; i < dest_count; i++) {
        draw_outages(p, &chart, s->names[dests[i]], false);
    }
    time_chart_close(p->out, &chart);
    mem_free(sums);
    p->y += HEAD + QUEUE_HEIGHT + FOOT;
}

/* ---- destinations --------------------------------------------------------------------------- */

static const struct sim_tally *tally_of(const struct sim_result *r, const char *name)
{
    for (size_t i = 0; i < r->dest_count; i++) {
        if (strcmp(r->dests[i]->name, name) == 0) {
            return r->dests[i];
        }
    }
    return NULL;
}

static uint64_t trouble_of(const struct sim_tally *t)
{
    uint64_t trouble = t->unattempted;

    for (int i = SIM_TRY_REACHED + 1; i < SIM_TRY_KINDS; i++) {
        trouble += t->failures[i];
    }
    return trouble;
}

/* Is the first destination more interesting? */
static bool more_interesting(const struct sim_tally *a, const struct sim_tally *b)
{
    uint64_t x = trouble_of(a), y = trouble_of(b);

    return x != y ? x > y : a->recipients > b->recipients;
}

/* Chooses the destinations of the series that are drawn. Returns their number. */
static size_t choose(const struct sim_result *r, size_t chosen[DESTS_SHOWN])
{
    const struct sim_tally *best[DESTS_SHOWN];
    size_t count = 0;

    for (size_t i = 0; i < r->series->dest_count; i++) {
        const struct sim_tally *t = tally_of(r, r->series->names[i]);
        size_t at = count;

        if (t == NULL || t->recipients == 0) {
            continue;
        }
        while (at > 0 && more_interesting(t, best[at - 1])) {
            at--;
        }
        if (at == DESTS_SHOWN) {
            continue;
        }
        count += count < DESTS_SHOWN ? 1 : 0;
        memmove(&best[at + 1], &best[at], (count - 1 - at) * sizeof best[0]);
        memmove(&chosen[at + 1], &chosen[at], (count - 1 - at) * sizeof chosen[0]);
        best[at] = t;
        chosen[at] = i;
    }
    return count;
}

static void draw_dest(struct picture *p, size_t index)
{
    const struct sim_series *s = p->r->series;
    const struct sim_tally *t = tally_of(p->r, s->names[index]);
    double *busy = mem_array(SIM_SERIES_MAX, sizeof *busy);
    double *window = mem_array(SIM_SERIES_MAX, sizeof *window);
    double most, legend = WIDTH - RIGHT;
    struct time_chart chart;

    for (size_t i = 0; i < s->count; i++) {
        busy[i] = s->dests[index][i].busy;
        window[i] = s->dests[index][i].window;
    }
    most = fmax(greatest(busy, s->count), greatest(window, s->count));
    chart = chart_at(p, DEST_HEIGHT, most);
    svg_text(p->out, LEFT, p->y + 25, "h", slice_string(s->names[index]));
    legend = add_legend(p, legend, "busy", "deliveries");
    svg_line(p->out, legend - 66, p->y + 21, legend - 53, p->y + 21, "win");
    svg_text(p->out, legend - 48, p->y + 25, "l", SLICE("window"));
    text_fmt(p, legend - 80, p->y + 25, "m e", "%" PRIu64 " recipients, %" PRIu64 " deferrals",
             t->recipients, t->deferrals);
    time_chart_open(p->out, &chart);
    time_chart_area(p->out, &chart, NULL, busy, s->count, "busy");
    time_chart_line(p->out, &chart, window, s->count, "win");
    draw_outages(p, &chart, s->names[index], true);
    time_chart_close(p->out, &chart);
    mem_free(busy);
    mem_free(window);
    p->y += HEAD + DEST_HEIGHT + FOOT;
}

/* ---- delays --------------------------------------------------------------------------------- */

#define QUANTILES 4

static const struct {
    unsigned per_mille; /* 1000: the greatest */
    const char *name, *meaning;
} quantiles[QUANTILES] = {
    {500, "p50", "half of the mail within"},
    {900, "p90", "p90"},
    {990, "p99", "99 in a hundred within"},
    {1000, "max", "all within"},
};

static int64_t delay_of(const struct sim_tally *t, size_t q)
{
    return quantiles[q].per_mille == 1000 ? t->delay.max
                                          : histogram_quantile(&t->delay, quantiles[q].per_mille);
}

/* A logarithmic axis of delays, which differ by orders of magnitude. */
struct delay_axis {
    double left, width;
    double from, until; /* logarithms of microseconds */
};

/* Delays that people consider round. */
static const int64_t delay_ticks_us[] = {
    US_PER_MS,           10 * US_PER_MS,       100 * US_PER_MS,          US_PER_S,
    10 * US_PER_S,       60 * US_PER_S,        600 * US_PER_S,           3600 * US_PER_S,
    6 * 3600 * US_PER_S, 24 * 3600 * US_PER_S, 5 * 24 * 3600 * US_PER_S,
};
static const char *const delay_tick_names[] = {
    "1ms", "10ms", "100ms", "1s", "10s", "1m", "10m", "1h", "6h", "1d", "5d",
};
#define DELAY_TICKS (sizeof delay_ticks_us / sizeof delay_ticks_us[0])

static double delay_x(const struct delay_axis *a, int64_t us)
{
    double part = (log((double)(us < 1 ? 1 : us)) - a->from) / (a->until - a->from);

    return a->left + a->width * (part < 0 ? 0 : part > 1 ? 1 : part);
}

/* Returns an axis from the tick below the least of all delays that are shown to the tick above the
 * greatest. */
static struct delay_axis delay_axis_for(const struct sim_result *r, size_t classes)
{
    size_t low = DELAY_TICKS - 2, high = 1;

    for (size_t i = 0; i < classes; i++) {
        const struct sim_tally *t = &r->classes[i];

        while (t->delay.count > 0 && low > 0 && delay_ticks_us[low] > delay_of(t, 0)) {
            low--;
        }
        while (t->delay.count > 0 && high < DELAY_TICKS - 1 &&
               delay_ticks_us[high] < t->delay.max) {
            high++;
        }
    }
    low = low < high ? low : high - 1;
    return (struct delay_axis){.left = DELAY_LEFT,
                               .width = WIDTH - DELAY_LEFT - DELAY_RIGHT,
                               .from = log((double)delay_ticks_us[low]),
                               .until = log((double)delay_ticks_us[high])};
}

static void draw_delay_grid(struct picture *p, const struct delay_axis *a, double bottom)
{
    for (size_t i = 0; i < DELAY_TICKS; i++) {
        double place = log((double)delay_ticks_us[i]), x = delay_x(a, delay_ticks_us[i]);

        if (place >= a->from - 1e-9 && place <= a->until + 1e-9) {
            svg_line(p->out, x, p->y + HEAD, x, bottom, "g");
            svg_text(p->out, x, bottom + 16, "m c", slice_string(delay_tick_names[i]));
        }
    }
}

static void draw_delay_row(struct picture *p, const struct delay_axis *a, const struct sim_tally *t,
                           double y)
{
    static const char *const classes[QUANTILES] = {"q", "q", "tailend", "tailend"};
    double x = WIDTH - DELAY_RIGHT + 16;

    svg_text(p->out, DELAY_LEFT - 10, y + 4, "l e", slice_string(t->name));
    if (t->delay.count == 0) {
        svg_text(p->out, DELAY_LEFT + 4, y + 4, "m", SLICE("nothing was delivered"));
        return;
    }
    svg_line(p->out, delay_x(a, delay_of(t, 1)), y, delay_x(a, delay_of(t, 3)), y, "tail");
    svg_line(p->out, delay_x(a, delay_of(t, 0)), y, delay_x(a, delay_of(t, 1)), y, "span");
    for (size_t q = 0; q < QUANTILES; q++) {
        struct sim_interval_text text = sim_interval_text(delay_of(t, q));
        double mark = delay_x(a, delay_of(t, q));
        char title[LABEL_MAX];

        (void)snprintf(title, sizeof title, "%s %s", quantiles[q].meaning, text.text); /* fits */
        if (q < 2) {
            svg_circle(p->out, mark, y, q == 0 ? 5 : 3.5, classes[q], slice_string(title));
        } else {
            svg_line(p->out, mark, y - (q == 2 ? 4 : 7), mark, y + (q == 2 ? 4 : 7), classes[q]);
        }
        svg_text(p->out, x + 56 * (double)q + 44, y + 4, "l e", slice_string(text.text));
    }
}

static size_t classes_shown(const struct sim_result *r)
{
    return r->class_count < CLASSES_SHOWN ? r->class_count : CLASSES_SHOWN;
}

static void draw_delays(struct picture *p)
{
    size_t count = classes_shown(p->r);
    struct delay_axis axis = delay_axis_for(p->r, count);
    double bottom = p->y + HEAD + DELAY_ROW * (double)count;

    svg_text(p->out, LEFT, p->y + 25, "h", SLICE("Delay, by class"));
    svg_text(
        p->out, LEFT + 130, p->y + 25, "m",
        SLICE("circles: half and nine in ten of the mail; bars: 99 in a hundred, and the last"));
    for (size_t q = 0; q < QUANTILES; q++) {
        svg_text(p->out, WIDTH - DELAY_RIGHT + 16 + 56 * (double)q + 44, p->y + 25, "m e",
                 slice_string(quantiles[q].name));
    }
    draw_delay_grid(p, &axis, bottom);
    for (size_t i = 0; i < count; i++) {
        draw_delay_row(p, &axis, &p->r->classes[i], p->y + HEAD + DELAY_ROW * ((double)i + 0.5));
    }
    if (count < p->r->class_count) {
        text_fmt(p, DELAY_LEFT, bottom + 34, "m", "and %zu more classes",
                 p->r->class_count - count);
    }
    p->y = bottom + FOOT;
}

/* ---- the whole picture ---------------------------------------------------------------------- */

static double height_for(const struct sim_result *r, size_t dests)
{
    return HEAD + QUEUE_HEIGHT + FOOT + (HEAD + DEST_HEIGHT + FOOT) * (double)dests + HEAD +
           DELAY_ROW * (double)classes_shown(r) + FOOT;
}

void sim_picture_svg(struct buf *out, const struct sim_result *r, const struct workload *workload,
                     bool alone)
{
    struct picture p = {.out = out,
                        .r = r,
                        .workload = workload,
                        .until_us = r->ended.us > 0 ? r->ended.us : r->series->step_us};
    size_t chosen[DESTS_SHOWN], dests = choose(r, chosen);
    double height = height_for(r, dests);

    svg_open(out, WIDTH, height, "How the simulated mail went over time");
    if (alone) {
        (void)buf_add_string(out, "<style>");
        svg_add_style(out);
        (void)buf_add_string(out, "</style>\n");
    }
    svg_rect(out, 0, 0, WIDTH, height, "bg", SLICE(""));
    draw_queue(&p, chosen, dests);
    for (size_t i = 0; i < dests; i++) {
        draw_dest(&p, chosen[i]);
    }
    draw_delays(&p);
    svg_close(out);
}
