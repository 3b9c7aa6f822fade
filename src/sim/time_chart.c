#include "time_chart.h"

#include <math.h>
#include <stdio.h>

#include "check.h"
#include "svg.h"
#include "times.h"

#define COUNT_TICKS 5
#define TIME_TICKS  12

#define MINUTE (60 * US_PER_S)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

double time_chart_count_step(double max, unsigned most)
{
    static const double steps[] = {1, 2, 5};
    double power = 1;

    CHECK(max > 0 && most > 0);
    for (;;) {
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            if (power * steps[i] * most >= max) {
                return power * steps[i];
            }
        }
        power *= 10;
    }
}

int64_t time_chart_time_step(int64_t until_us, unsigned most)
{
    static const int64_t steps[] = {
        US_PER_S, 2 * US_PER_S, 5 * US_PER_S, 10 * US_PER_S, 15 * US_PER_S, 30 * US_PER_S,
        MINUTE,   2 * MINUTE,   5 * MINUTE,   10 * MINUTE,   15 * MINUTE,   30 * MINUTE,
        HOUR,     2 * HOUR,     3 * HOUR,     6 * HOUR,      12 * HOUR,     DAY,
        2 * DAY,  7 * DAY,      14 * DAY,     30 * DAY,
    };
    int64_t step = steps[0];

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        step = steps[i];
        if (until_us / step <= most) {
            return step;
        }
    }
    while (until_us / step > most) {
        step *= 2;
    }
    return step;
}

double time_chart_nice_max(double value)
{
    double step = time_chart_count_step(value < 1 ? 1 : value, COUNT_TICKS);

    return ceil((value < 1 ? 1 : value) / step) * step;
}

static double x_of(const struct time_chart *c, int64_t us)
{
    double part = (double)us / (double)c->until_us;

    return c->left + c->width * (part < 0 ? 0 : part > 1 ? 1 : part);
}

static double y_of(const struct time_chart *c, double value)
{
    return c->top + c->height * (1 - (value > c->max ? c->max : value) / c->max);
}

/* Adds a label such as "20k" or "1.5M". */
static void add_count_label(struct buf *out, const struct time_chart *c, double value)
{
    char text[32];
    double shown = value >= 1e6 ? value / 1e6 : value >= 1e4 ? value / 1e3 : value;

    (void)snprintf(text, sizeof text, "%g%s", shown,
                   value >= 1e6   ? "M"
                   : value >= 1e4 ? "k"
                                  : ""); /* fits */
    svg_text(out, c->left - 6, y_of(c, value) + 4, "m e", slice_string(text));
}

/* Adds a label such as "0", "45s", "1h" or "1h30m", without parts that are 0. */
static void add_time_label(struct buf *out, const struct time_chart *c, int64_t us)
{
    static const struct {
        int64_t us;
        const char *name;
    } units[] = {{DAY, "d"}, {HOUR, "h"}, {MINUTE, "m"}, {US_PER_S, "s"}};
    int64_t rest = us;
    struct buf text;

    buf_init(&text, 64);
    (void)buf_add_string(&text, us == 0 ? "0" : "");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (rest / units[i].us > 0) {
            (void)buf_addf(&text, "%lld%s", (long long)(rest / units[i].us), units[i].name);
        }
        rest %= units[i].us;
    }
    svg_text(out, x_of(c, us), c->top + c->height + 16, "m c", buf_slice(&text));
    buf_fini(&text);
}

void time_chart_open(struct buf *out, const struct time_chart *c)
{
    double count_step = time_chart_count_step(c->max, COUNT_TICKS);
    int64_t time_step = time_chart_time_step(c->until_us, TIME_TICKS);

    CHECK(c->until_us > 0 && c->step_us > 0);
    for (double value = 0; value <= c->max; value += count_step) {
        svg_line(out, c->left, y_of(c, value), c->left + c->width, y_of(c, value), "g");
        add_count_label(out, c, value);
    }
    for (int64_t us = 0; us <= c->until_us; us += time_step) {
        svg_line(out, x_of(c, us), c->top, x_of(c, us), c->top + c->height, "g");
        add_time_label(out, c, us);
    }
}

void time_chart_close(struct buf *out, const struct time_chart *c)
{
    double bottom = c->top + c->height;

    svg_line(out, c->left, bottom, c->left + c->width, bottom, "a");
    svg_line(out, c->left, c->top, c->left, bottom, "a");
}

void time_chart_period(struct buf *out, const struct time_chart *c, int64_t from_us,
                       int64_t until_us, const char *title)
{
    double from = x_of(c, from_us), until = x_of(c, until_us);

    if (from_us < c->until_us && until > from) {
        svg_rect(out, from, c->top, until - from, c->height, "out", slice_string(title));
    }
}

/* Returns the beginning of sample i; the one after the last is the end of the chart. */
static double sample_x(const struct time_chart *c, size_t i)
{
    return x_of(c, (int64_t)i * c->step_us);
}

/* Adds a step line from left to right, with points only where it changes. */
static void add_steps(struct buf *out, const struct time_chart *c, const double *values,
                      size_t count)
{
    double last = y_of(c, values[0]);

    (void)buf_addf(out, "M%.1f %.1f", sample_x(c, 0), last);
    for (size_t i = 1; i < count && (int64_t)i * c->step_us < c->until_us; i++) {
        double y = y_of(c, values[i]);

        if (fabs(y - last) >= 0.05) {
            (void)buf_addf(out, "H%.1fV%.1f", sample_x(c, i), y);
            last = y;
        }
    }
    (void)buf_addf(out, "H%.1f", sample_x(c, count));
}

/* Adds a step line from right to left. */
static void add_steps_back(struct buf *out, const struct time_chart *c, const double *values,
                           size_t count)
{
    double last;

    while (count > 1 && (int64_t)(count - 1) * c->step_us >= c->until_us) {
        count--;
    }
    last = y_of(c, values[count - 1]);
    (void)buf_addf(out, "V%.1f", last);
    for (size_t i = count - 1; i > 0; i--) {
        double y = y_of(c, values[i - 1]);

        if (fabs(y - last) >= 0.05) {
            (void)buf_addf(out, "H%.1fV%.1f", sample_x(c, i), y);
            last = y;
        }
    }
    (void)buf_addf(out, "H%.1fZ", c->left);
}

void time_chart_area(struct buf *out, const struct time_chart *c, const double *lower,
                     const double *upper, size_t count, const char *classes)
{
    if (count == 0) {
        return;
    }
    (void)buf_addf(out, "<path class=\"%s\" d=\"", classes);
    add_steps(out, c, upper, count);
    if (lower != NULL) {
        add_steps_back(out, c, lower, count);
    } else {
        (void)buf_addf(out, "V%.1fH%.1fZ", c->top + c->height, c->left);
    }
    (void)buf_add_string(out, "\"/>\n");
}

void time_chart_line(struct buf *out, const struct time_chart *c, const double *values,
                     size_t count, const char *classes)
{
    if (count > 0) {
        (void)buf_addf(out, "<path class=\"%s\" d=\"", classes);
        add_steps(out, c, values, count);
        (void)buf_add_string(out, "\"/>\n");
    }
}
