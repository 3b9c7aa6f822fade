/*
 * The recipients of a report, taken from the spool one page at a time: what the spool hands out
 * lasts until its next call, a draft keeps it.
 *
 * The details that agents have noted (delivery_details.h) are believed but for the outcome, which
 * is the spool's to say: an agent whose last word was "delayed" has not the last word on a
 * recipient that was given up later.
 */
#ifndef QUEUE_REPORT_DRAFT_H
#define QUEUE_REPORT_DRAFT_H

#include "report.h"
#include "spool.h"

/* Zeroed at first. */
struct report_draft {
    struct report_rcpt *rcpts; /* owned */
    char **strings;            /* owned, one per recipient, holds all its slices */
    size_t count, size;
};

/* What became of it, as its state and details say. */
enum report_action report_draft_action(const struct spool_rcpt *r);

/* `retry_until` as in struct report_rcpt. */
void report_draft_add(struct report_draft *d, const struct spool_rcpt *r, enum report_action action,
                      struct wall retry_until);

/* Empty it, for another report. */
void report_draft_fini(struct report_draft *d);

#endif
