/*
 * Details: an agent's notes about the delivery to a recipient, for bounces and notices.
 *
 * Agents of another mail system write details in that system's format; all rooms except the owner
 * of the format carry and store them as bytes. The owner registers two functions before a role
 * begins: one reads facts from details, the other writes the details of expired mail. If no format
 * is registered no details are written, and details from a store have no facts.
 */
#ifndef QUEUE_DELIVERY_DETAILS_H
#define QUEUE_DELIVERY_DETAILS_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum details_action {
    DETAILS_NONE, /* not stated, or unknown */
    DETAILS_DELIVERED,
    DETAILS_RELAYED,
    DETAILS_EXPANDED,
    DETAILS_DELAYED,
    DETAILS_FAILED,
};

/* Facts from details. A missing one is empty. All point into the details that were read. They are
 * an agent's text, and not checked. */
struct delivery_details {
    struct slice address; /* empty: the address of the envelope */
    enum details_action action;
    struct slice status;       /* an enhanced status, if it is valid */
    struct slice status_words; /* status and the text after it: "5.1.1 (no such user)" */
    struct slice host;         /* author of the diagnostic */
    struct slice host_type;    /* type of that name: "dns" */
    struct slice diagnostic;
    struct slice diagnostic_type; /* "smtp" */
    struct slice agent;           /* author of the details: "smtp[4711]" */
};

struct details_form {
    void (*read)(struct slice details, struct delivery_details *ret_details);

    /* Appends the details of an expired recipient: those of the last attempt, `last` (empty: none),
     * changed to a failure. `why`, "Expired after 3 days", is the diagnostic if `last` has none.
     * The address is omitted: `last` may be about another recipient of the same destination. */
    void (*put_expired)(struct buf *out, struct slice last, struct slice why);
};

/* Registers the format, which must stay valid until the process ends. Called once. */
void details_register(const struct details_form *form);

/* Calls the function of the format. details_read returns false if there are no facts, because
 * `details` is empty or no format is registered. Without a format nothing is appended. */
bool details_read(struct slice details, struct delivery_details *ret_details);
void details_put_expired(struct buf *out, struct slice last, struct slice why);

#endif
