/*
 * The report of the mailq protocols: rings, each with its threads.
 *
 * The queue process tells of threads in order of name, a report has them by ring. So the lines of
 * each ring are gathered, and written when all pages have come. What is gathered is bounded: beyond
 * MAILQ_REPORT_MAX the longest ring is forgotten, and its threads are asked for again when its turn
 * comes.
 *
 *     page, page, ... --> mailq_report_next --> ring written
 *                          |        ^
 *                          |        +-- mailq_report_page, of this ring's threads alone
 *                          +-- "ask for this ring"
 */
#ifndef ZMAILER_MAILQ_REPORT_H
#define ZMAILER_MAILQ_REPORT_H

#include <stdbool.h>

#include <jansson.h>

#include "buf.h"
#include "mailq_text.h"

#define MAILQ_REPORT_MAX (4u << 20) /* bytes gathered */

enum mailq_report_form {
    MAILQ_REPORT_TOTALS,  /* nothing is written; the sums are wanted */
    MAILQ_REPORT_RINGS,   /* rings without their threads */
    MAILQ_REPORT_THREADS, /* with them */
    MAILQ_REPORT_FIELDS,  /* threads for machines, without the lines of rings */
};

struct mailq_report;

struct mailq_report *mailq_report_new(enum mailq_report_form form);
/* NULL is fine. */
void mailq_report_free(struct mailq_report *r);

/* A page of the answer to "threads". While a ring is asked for again its lines go to `out` at once;
 * `last`: no page follows. */
void mailq_report_page(struct mailq_report *r, const json_t *answer, bool last, struct buf *out);

/* All pages are there: write the next ring. False when all are written. When *ret_ask is set
 * (borrowed), nothing more can be written until the pages of the threads of that ring have come. */
bool mailq_report_next(struct mailq_report *r, struct buf *out, const json_t **ret_ask);

/* Add up all threads: threads, vertices, recipients, and agents, of which those that are not told
 * of by ring are the deliveries. */
void mailq_report_sums(const struct mailq_report *r, struct mailq_totals *t);

/* A thread as "threads" tells of it, written as its head. */
void mailq_report_head(const json_t *thread, struct buf *out);

#endif
