/*
 * A draft: the recipients of a report. The spool's slices are valid only until its next call, so a
 * draft copies them, one page after the other.
 *
 * Details that agents have noted (delivery_details.h) take precedence, except for the outcome,
 * which the spool determines: a recipient whose agent noted "delayed" may have expired later.
 */
#ifndef QUEUE_REPORT_DRAFT_H
#define QUEUE_REPORT_DRAFT_H

#include "report.h"
#include "spool.h"

/* Recipients of one report; valid when zeroed. */
struct report_draft {
    struct report_rcpt *rcpts; /* owned */
    char **strings;            /* one per recipient, with all its slices; owned */
    size_t count, size;
};

/* Returns the result of a recipient, from its state and details. */
enum report_action report_draft_action(const struct spool_rcpt *r);

/* Adds a recipient; `retry_until` as in struct report_rcpt. */
void report_draft_add(struct report_draft *d, const struct spool_rcpt *r, enum report_action action,
                      struct wall retry_until);

/* Frees all recipients and empties the draft for another report. */
void report_draft_fini(struct report_draft *d);

#endif
