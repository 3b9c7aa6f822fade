/*
 * A chart over time: a frame with axes and round ticks, and in it step lines, stacked areas, and
 * shaded periods.
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
    int64_t step_us;                 /* > 0; sample i covers i * step_us to the next */
    double max;                      /* > 0; greatest value; see time_chart_nice_max */
};

/* Returns the least end of an axis that is at least `value` and falls on a tick. */
double time_chart_nice_max(double value);

/* Returns the distance of ticks, for at most `most` of them. Counts: 1, 2 or 5 times a power of
 * ten, at least 1. Times: round numbers of seconds, minutes, hours or days. */
double time_chart_count_step(double max, unsigned most);
int64_t time_chart_time_step(int64_t until_us, unsigned most);

/* Opens the chart with its grid and labels; the caller draws the rest on top, and time_chart_close
 * draws the axes last. */
void time_chart_open(struct buf *out, const struct time_chart *chart);
void time_chart_close(struct buf *out, const struct time_chart *chart);

/* Draws a shaded period, cut off at the ends of the chart. `title` is shown under the pointer. */
void time_chart_period(struct buf *out, const struct time_chart *chart, int64_t from_us,
                       int64_t until_us, const char *title);

/* Fills the area between two step lines (lower NULL: from 0). */
void time_chart_area(struct buf *out, const struct time_chart *chart, const double *lower,
                     const double *upper, size_t count, const char *classes);
void time_chart_line(struct buf *out, const struct time_chart *chart, const double *values,
                     size_t count, const char *classes);

#endif
