/*
 * The figures of a run, for people and for scripts; and those of two runs beside each other.
 *
 * Destinations are as many as asked for, those with the most mail; the others are one row, "rest".
 * Delays are of recipients that were sent, from arrival to delivery, within 0.8 % (histogram.h).
 */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include <jansson.h>

#include "buf.h"
#include "sim_world.h"

#define SIM_REPORT_ROWS_MAX 100000

struct sim_report_options {
    uint64_t seed;             /* is told, so that the run can be repeated */
    size_t rows;               /* destinations of their own, 0..SIM_REPORT_ROWS_MAX */
    const struct trace *trace; /* NULL, or what was read of it is told, too */
};

/* A table. Appends; the buffer's limit decides how much fits. */
void sim_report_print(struct buf *out, const struct sim_result *r,
                      const struct sim_report_options *options);

/* The same as one object (docs/simulator.md); intervals are whole microseconds. */
json_t *sim_report_json(const struct sim_result *r, const struct sim_report_options *options);

/* Two runs of the same mail: for all of it, each class and each destination (by name, in the order
 * of the first run) the figures that differ. */
void sim_report_print_diff(struct buf *out, const struct sim_result *before,
                           const struct sim_result *after,
                           const struct sim_report_options *options);

/* Two lines: delays of the trace's mail without a class and of its bulk mail, with the
 * configuration's classes and with none. Both are runs of the same trace, which the options name.
 */
void sim_report_print_classes(struct buf *out, const struct sim_result *with,
                              const struct sim_result *without,
                              const struct sim_report_options *options);

/* The sum of the destinations from index `first` on. The caller finishes it. */
void sim_report_sum_rest(const struct sim_result *r, size_t first, struct sim_tally *ret_rest);

/* An interval in at most seven characters: "0s", "17us", "1.2ms", "340ms", "12.5s", "4m07s",
 * "3h05m", "2d04h"; "-" when negative. */
struct sim_interval_text {
    char text[24];
};
struct sim_interval_text sim_interval_text(int64_t us);

#endif
