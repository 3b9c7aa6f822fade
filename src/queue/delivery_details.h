/*
 * Details: what an agent has noted of a recipient's delivery, for its report.
 *
 * Agents of another system's write them, in that system's form; every other room carries and stores
 * them as bytes. The form's owner registers two functions at the start, before a role begins: one
 * that takes details apart into plain facts, and one that writes those of mail that is given up for
 * its age. Where no form is registered there are no details: none are written, and what a store may
 * still hold tells nothing.
 */
#ifndef QUEUE_DELIVERY_DETAILS_H
#define QUEUE_DELIVERY_DETAILS_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum details_action {
    DETAILS_NONE, /* not said, or not known */
    DETAILS_DELIVERED,
    DETAILS_RELAYED,
    DETAILS_EXPANDED,
    DETAILS_DELAYED,
    DETAILS_FAILED,
};

/* Facts; what is not there is empty. All point into the details that were read. They are an agent's
 * words, and not checked. */
struct delivery_details {
    struct slice address; /* empty: that of the envelope */
    enum details_action action;
    struct slice status;       /* an enhanced status, if it is one */
    struct slice status_words; /* the same with what stood behind it: "5.1.1 (no such user)" */
    struct slice host;         /* which said so */
    struct slice host_type;    /* what kind of name that is: "dns" */
    struct slice diagnostic;
    struct slice diagnostic_type; /* "smtp" */
    struct slice agent;           /* which noted it: "smtp[4711]" */
};

struct details_form {
    void (*read)(struct slice details, struct delivery_details *ret_details);

    /* Append the details of a failure that the queue process alone knows of: those of the last
     * attempt, `last` (empty: none), with failure in them. `why`: "Expired after 3 days", for those
     * that say nothing else. The address is that of the envelope: what is remembered of an attempt
     * may have been said of another recipient of the same destination. */
    void (*put_expired)(struct buf *out, struct slice last, struct slice why);
};

/* `form` is borrowed for good. Once. */
void details_register(const struct details_form *form);

/* As the functions of the form. False: there are no facts, since `details` is empty, or no form is
 * registered; without a form nothing is appended. */
bool details_read(struct slice details, struct delivery_details *ret_details);
void details_put_expired(struct buf *out, struct slice last, struct slice why);

#endif
