/*
 * The age at which mail expires if a clause has an `expiry`, and the texts of its bounce.
 *
 * A recipient that was tried since the start expires at the age `expiry`; one that was not tried,
 * at the sum of `expiry` and `expiry2` (0: one day). A recipient whose next attempt would be later
 * expires at once. Without I/O.
 */
#ifndef QUEUE_EXPIRY_H
#define QUEUE_EXPIRY_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

/* A clause's parameters. */
struct expiry_rules {
    int64_t expiry_us; /* 0: the lifetime of all mail applies */
    int64_t expiry2_us;
};

/* Returns the age at which a recipient expires. CHECKs that there is an expiry. */
int64_t expiry_age(const struct expiry_rules *r, bool was_tried);

/* Returns the time at which mail created at `created` expires; WALL_NEVER without an expiry. */
struct wall expiry_of(const struct expiry_rules *r, struct wall created, bool was_tried);

/* Appends a duration with its two largest units: "3 days 1 hour". */
void expiry_put_duration(struct buf *out, int64_t seconds);

/* Appends the diagnostic of a recipient that expires at the age `age_us`; `problem` is the last
 * reply of an agent, or empty. */
void expiry_put_text(struct buf *out, int64_t age_us, struct slice problem);

/* Appends details of the failure (delivery_details.h), made from those of the last attempt (empty:
 * none). */
void expiry_put_details(struct buf *out, int64_t age_us, struct slice last);

/* Status of an expired recipient. */
#define EXPIRY_STATUS SLICE("5.4.7")

#endif
