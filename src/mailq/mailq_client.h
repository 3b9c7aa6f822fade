/*
 * Asking a mailq server, Sluice's or a ZMailer's, of either version; without I/O.
 *
 *     for (;;) {
 *         mailq_client_next(c, &in, &event);      takes bytes off the front of `in`
 *         send mailq_client_output(c);
 *         NEED_INPUT   feed more; mailq_client_input_ended when there is none
 *         TEXT         print event.text
 *         DONE         close
 *         FAILED       event.text says why; close
 *     }
 *
 * What the server says is not trusted: its lines are bounded, and control bytes in them are not
 * passed on. A server that ends too early is an error, not an endless wait.
 */
#ifndef MAILQ_MAILQ_CLIENT_H
#define MAILQ_MAILQ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define MAILQ_ANSWER_LINE_MAX ((size_t)1 << 20) /* bytes of a server's line */

enum mailq_view {
    MAILQ_VIEW_MESSAGES, /* every thread with its messages */
    MAILQ_VIEW_THREADS,  /* -Q */
    MAILQ_VIEW_RINGS,    /* -QQ */
    MAILQ_VIEW_TOTALS,   /* -QQQ; of version 1 the last lines */
    MAILQ_VIEW_COUNTERS, /* -QQQQ; version 2 only */
};

struct mailq_request {
    enum mailq_view view;
    const char *user, *password;
    bool scram;        /* log in with SCRAM-SHA-256, which no ZMailer knows, or not at all */
    const char *nonce; /* fresh random text for it, 16 to 200 printable bytes, no commas */
    const char *channel, *host; /* MESSAGES: of this channel and host only; NULL: of all */
    int64_t now_s;              /* since 1970, for what expires when */
};

enum mailq_client_event_type {
    MAILQ_CLIENT_NEED_INPUT,
    MAILQ_CLIENT_TEXT,
    MAILQ_CLIENT_DONE,
    MAILQ_CLIENT_FAILED
};

struct mailq_client_event {
    enum mailq_client_event_type type;
    struct slice text; /* lasts until the next call */
};

struct mailq_client;

/* `request` is copied, its strings are borrowed. */
struct mailq_client *mailq_client_new(const struct mailq_request *request);
void mailq_client_free(struct mailq_client *c);

void mailq_client_next(struct mailq_client *c, struct buf *in,
                       struct mailq_client_event *ret_event);
void mailq_client_input_ended(struct mailq_client *c);
struct buf *mailq_client_output(struct mailq_client *c);

#endif
