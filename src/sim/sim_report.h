/*
 * The figures of a run, for people and for scripts; and those of two runs side by side.
 *
 * The report has rows for as many destinations as requested, those with the most mail; the others
 * are one row, "rest". Delays are those of recipients that were sent, from arrival to delivery,
 * within 0.8 % (histogram.h).
 */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include <jansson.h>

#include "buf.h"
#include "sim_world.h"

#define SIM_REPORT_ROWS_MAX 100000

struct sim_report_options {
    uint64_t seed;             /* printed, so that the run can be repeated */
    size_t rows;               /* destinations with their own row, 0..SIM_REPORT_ROWS_MAX */
    const struct trace *trace; /* NULL, or a trace whose counts are printed, too */
};

/* Appends the figures as a table, up to the buffer's limit. */
void sim_report_print(struct buf *out, const struct sim_result *r,
                      const struct sim_report_options *options);

/* Returns the figures as one object (docs/simulator.md); intervals are whole microseconds. */
json_t *sim_report_json(const struct sim_result *r, const struct sim_report_options *options);

/* Appends the figures that differ between two runs of the same mail: for all of it, for each class
 * and each destination (by name, in the order of the first run). */
void sim_report_print_diff(struct buf *out, const struct sim_result *before,
                           const struct sim_result *after,
                           const struct sim_report_options *options);

/* Appends two lines: delays of the trace's mail without a class and of its bulk mail, with the
 * configuration's classes and with none. Both are runs of the same trace, which the options
 * name. */
void sim_report_print_classes(struct buf *out, const struct sim_result *with,
                              const struct sim_result *without,
                              const struct sim_report_options *options);

/* Adds up the destinations from index `first` on. The caller calls sim_tally_fini for the sum. */
void sim_report_sum_rest(const struct sim_result *r, size_t first, struct sim_tally *ret_rest);

/* An interval in at most seven characters: "0s", "17us", "1.2ms", "340ms", "12.5s", "4m07s",
 * "3h05m", "2d04h"; "-" if negative. */
struct sim_interval_text {
    char text[24];
};
struct sim_interval_text sim_interval_text(int64_t us);

#endif
