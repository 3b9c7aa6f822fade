/*
 * Report of the mailq protocols: rings, each with its threads.
 *
 * The queue process sends threads in the order of their names, but a report lists them by ring. So
 * the lines of each ring are collected, and written after the last page. The collected lines are
 * bounded: beyond MAILQ_REPORT_MAX the longest ring is dropped, and its threads are requested again
 * when that ring is written.
 *
 *     page, page, ... --> mailq_report_next --> ring written
 *                          |        ^
 *                          |        +-- mailq_report_page, with this ring's threads only
 *                          +-- request for this ring
 */
#ifndef ZMAILER_MAILQ_REPORT_H
#define ZMAILER_MAILQ_REPORT_H

#include <stdbool.h>

#include <jansson.h>

#include "buf.h"
#include "mailq_text.h"

#define MAILQ_REPORT_MAX (4u << 20) /* bytes of collected lines */

enum mailq_report_form {
    MAILQ_REPORT_TOTALS,  /* sums only, no lines */
    MAILQ_REPORT_RINGS,   /* rings without their threads */
    MAILQ_REPORT_THREADS, /* rings with their threads */
    MAILQ_REPORT_FIELDS,  /* threads for machines, without lines of rings */
};

struct mailq_report;

struct mailq_report *mailq_report_new(enum mailq_report_form form);
/* Frees the report; `r` may be NULL. */
void mailq_report_free(struct mailq_report *r);

/* Adds a page of the answer to "threads". While a ring is requested again, its lines go to `out` at
 * once. `last`: no page follows. */
void mailq_report_page(struct mailq_report *r, const json_t *answer, bool last, struct buf *out);

/* Writes the next ring after all pages have arrived. Returns false when all are written. If
 * *ret_ask is set (borrowed), the owner must first request and add the pages of that ring's
 * threads. */
bool mailq_report_next(struct mailq_report *r, struct buf *out, const json_t **ret_ask);

/* Adds up the threads, vertices, recipients and agents of all threads. For a ring without its own
 * agent count, the deliveries are counted as agents. */
void mailq_report_sums(const struct mailq_report *r, struct mailq_totals *t);

/* Appends the head line of a thread in the answer to "threads". */
void mailq_report_head(const json_t *thread, struct buf *out);

#endif
