#include "sim_page.h"

#include <inttypes.h>
#include <stdio.h>

#include "sim_picture.h"
#include "svg.h"

#define NAME_MAX_BYTES 64

/* The buffer's error is sticky, so appending is not checked. */

static const char page_style[] =
    "body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;"
    "max-width:960px;margin:2em auto;padding:0 1em}\n"
    "h1{font-size:22px}h2{font-size:17px;margin:1.6em 0 .4em}p{margin:.4em 0}\n"
    "svg{max-width:100%;height:auto}.scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;width:100%}\n"
    "th,td{text-align:right;padding:.25em .5em;white-space:nowrap;border-bottom:1px solid "
    "var(--grid)}\nth{color:var(--mute);font-weight:600}\n"
    "th:first-child,td:first-child{text-align:left}\n";

static const char *const columns[] = {
    "mail", "sent", "failed", "left", "deferred", "attempts", "p50",
    "p90",  "p99",  "max",    "busy", "peak",     "drain",
};
#define COLUMNS (sizeof columns / sizeof columns[0])

static void add_cell_count(struct buf *out, uint64_t count)
{
    (void)buf_addf(out, "<td>%" PRIu64, count);
}

static void add_cell_interval(struct buf *out, int64_t us)
{
    (void)buf_addf(out, "<td>%s", sim_interval_text(us).text);
}

static void add_row(struct buf *out, const char *name, const struct sim_tally *t)
{
    static const unsigned quantiles[] = {500, 900, 990};

    (void)buf_add_string(out, "<tr><td>");
    svg_add_escaped(out, slice_string(name));
    add_cell_count(out, t->recipients);
    add_cell_count(out, t->sent);
    add_cell_count(out, t->bounced + t->expired);
    add_cell_count(out, sim_tally_left(t));
    (void)buf_addf(out, "<td>%.1f%%", 100 * sim_tally_defer_rate(t));
    add_cell_count(out, t->attempts);
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        add_cell_interval(out, histogram_quantile(&t->delay, quantiles[i]));
    }
    add_cell_interval(out, t->delay.max);
    (void)buf_addf(out, "<td>%.1f", sim_tally_busy_mean(t));
    add_cell_count(out, t->busy_peak);
    add_cell_interval(out, sim_tally_drain_us(t));
    (void)buf_add_byte(out, '\n');
}

static void open_table(struct buf *out, const char *what)
{
    (void)buf_addf(out, "<div class=\"scroll\"><table><thead><tr><th>%s", what);
    for (size_t i = 0; i < COLUMNS; i++) {
        (void)buf_addf(out, "<th>%s", columns[i]);
    }
    (void)buf_add_string(out, "</thead><tbody>\n");
}

static void close_table(struct buf *out)
{
    (void)buf_add_string(out, "</tbody></table></div>\n");
}

static void add_classes(struct buf *out, const struct sim_result *r)
{
    open_table(out, "class");
    for (size_t i = 0; i < r->class_count; i++) {
        add_row(out, r->classes[i].name, &r->classes[i]);
    }
    if (r->class_count > 1) {
        add_row(out, "all", &r->total);
    }
    close_table(out);
}

static void add_dests(struct buf *out, const struct sim_result *r, size_t rows)
{
    struct sim_tally rest;
    char name[NAME_MAX_BYTES];

    rows = rows < r->dest_count ? rows : r->dest_count;
    open_table(out, "destination");
    for (size_t i = 0; i < rows; i++) {
        add_row(out, r->dests[i]->name, r->dests[i]);
    }
    if (rows < r->dest_count) {
        (void)snprintf(name, sizeof name, "%zu more", r->dest_count - rows); /* fits */
        sim_report_sum_rest(r, rows, &rest);
        add_row(out, name, &rest);
        sim_tally_fini(&rest);
    }
    close_table(out);
}

static void add_summary(struct buf *out, const struct sim_result *r,
                        const struct sim_report_options *options)
{
    int64_t drain_us = sim_tally_drain_us(&r->total);

    (void)buf_addf(out,
                   "<p>%s of virtual time, seed %" PRIu64 ": %" PRIu64 " messages, %" PRIu64
                   " recipients. At most %" PRIu32 " messages waited, %" PRIu32 " of them active; ",
                   sim_interval_text(r->ended.us).text, options->seed, r->total.messages,
                   r->total.recipients, r->queue_peak, r->active_peak);
    if (drain_us >= 0) {
        (void)buf_addf(out, "the last one left %s after the last arrival.</p>\n",
                       sim_interval_text(drain_us).text);
    } else {
        (void)buf_addf(out, "%" PRIu64 " recipients are left.</p>\n", sim_tally_left(&r->total));
    }
}

void sim_page_html(struct buf *out, const struct sim_result *r, const struct workload *workload,
                   const struct sim_report_options *options)
{
    (void)buf_add_string(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                              "<meta name=\"viewport\" content=\"width=device-width\">\n"
                              "<meta name=\"color-scheme\" content=\"light dark\">\n"
                              "<title>Simulated mail</title>\n<style>");
    svg_add_style(out);
    (void)buf_add_string(out, page_style);
    (void)buf_add_string(out, "</style></head><body>\n<h1>Simulated mail</h1>\n");
    add_summary(out, r, options);
    sim_picture_svg(out, r, workload, false);
    (void)buf_add_string(out, "<h2>By class</h2>\n");
    add_classes(out, r);
    (void)buf_add_string(out, "<h2>By destination</h2>\n");
    add_dests(out, r, options->rows);
    (void)buf_add_string(
        out,
        "<p>Rows count recipients. p50, p90 and p99 are delays from arrival to delivery of half,"
        " nine in ten and 99 in a hundred; busy and peak are deliveries at once.</p>\n"
        "</body></html>\n");
}
