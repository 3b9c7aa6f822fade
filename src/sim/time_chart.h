/*
 * A chart over time: a frame with axes whose ticks people would choose, and in it step lines, areas
 * upon each other, and shaded periods.
 *
 *     time_chart_open(out, &chart);
 *     time_chart_period(out, &chart, from_us, until_us, "down");
 *     time_chart_area(out, &chart, lower, upper, count, "s0");
 *     time_chart_close(out, &chart);
 */
#ifndef SIM_TIME_CHART_H
#define SIM_TIME_CHART_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct time_chart {
    double left, top, width, height; /* of the frame, without labels */
    int64_t until_us;                /* > 0; time begins at 0 */
    int64_t step_us;                 /* > 0; sample i stands for i * step_us to the next */
    double max;                      /* > 0; the greatest value; see time_chart_nice_max */
};

/* The least number to end an axis with that is `value` or more: its ticks are even. */
double time_chart_nice_max(double value);

/* The distance of ticks: 1, 2 or 5 times a power of ten for counts, at least 1; whole seconds,
 * minutes, hours or days as people count them for times. At most `most` ticks. */
double time_chart_count_step(double max, unsigned most);
int64_t time_chart_time_step(int64_t until_us, unsigned most);

/* Grid and labels; the rest is drawn upon it, and time_chart_close draws the axis on top. */
void time_chart_open(struct buf *out, const struct time_chart *chart);
void time_chart_close(struct buf *out, const struct time_chart *chart);

/* Shade a period; what is outside of the chart is cut off. `title` shows where the pointer rests.
 */
void time_chart_period(struct buf *out, const struct time_chart *chart, int64_t from_us,
                       int64_t until_us, const char *title);

/* Between two step lines (lower NULL: from 0). */
void time_chart_area(struct buf *out, const struct time_chart *chart, const double *lower,
                     const double *upper, size_t count, const char *classes);
void time_chart_line(struct buf *out, const struct time_chart *chart, const double *values,
                     size_t count, const char *classes);

#endif
