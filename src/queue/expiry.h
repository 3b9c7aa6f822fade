/*
 * The age at which mail is given up where a clause has an `expiry`, and what is then said of it.
 *
 * A recipient that was tried since the start is given up at the age `expiry`; one that was not, at
 * `expiry` and `expiry2` together. None waits in vain: one whose next attempt would come
 * later than that is given up now. Without I/O.
 */
#ifndef QUEUE_EXPIRY_H
#define QUEUE_EXPIRY_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* What a clause says. */
struct expiry_rules {
    int64_t expiry_us; /* 0: mail has the lifetime of all */
    int64_t expiry2_us;
};

/* The age at which mail is given up. Not to be asked without an expiry. */
int64_t expiry_age(const struct expiry_rules *r, bool was_tried);

/* When mail that was created then is given up; WALL_NEVER without an expiry. */
struct wall expiry_of(const struct expiry_rules *r, struct wall created, bool was_tried);

/* "3 days 1 hour": the two largest parts. */
void expiry_put_duration(struct buf *out, int64_t seconds);

/* Append the text of a diagnostic: given up at the age `age_us`; `problem` is the last word of an
 * agent, or empty. */
void expiry_put_text(struct buf *out, int64_t age_us, struct slice problem);

/* Append the details of the failure (delivery_details.h): those of the last attempt (empty: none)
 * with failure in them. */
void expiry_put_details(struct buf *out, int64_t age_us, struct slice last);

/* The status that goes with it. */
#define EXPIRY_STATUS SLICE("5.4.7")

#endif
