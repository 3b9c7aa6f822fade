/*
 * Asking a mailq server, Sluice's or a ZMailer's, of either version; without I/O.
 *
 *     for (;;) {
 *         mailq_client_next(c, &in, &event);      takes bytes off the front of `in`
 *         send mailq_client_output(c);
 *         NEED_INPUT   feed more; mailq_client_input_ended when there is none
 *         TEXT         print event.text
 *         ROW          `verbose`: print what is known of event.row; what it says in short was TEXT
 *         DONE         close
 *         FAILED       event.text says why; close
 *     }
 *
 * What the server says is not trusted: its lines are bounded, and control bytes in them are not
 * passed on. A server that ends too early is an error, not an endless wait.
 */
#ifndef ZMAILER_MAILQ_CLIENT_H
#define ZMAILER_MAILQ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define MAILQ_ANSWER_LINE_MAX                                                                      \
    ((size_t)16 << 20) /* bytes of a server's line; a dump's lists are long */

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
    bool verbose;      /* MESSAGES: tell of each as a ROW */
    const char *channel, *host; /* MESSAGES: of this channel and host only; NULL: of all */
    int64_t now_s;              /* since 1970, for what expires when */
};

enum mailq_client_event_type {
    MAILQ_CLIENT_NEED_INPUT,
    MAILQ_CLIENT_TEXT,
    MAILQ_CLIENT_ROW,
    MAILQ_CLIENT_DONE,
    MAILQ_CLIENT_FAILED
};

/* A vertex: what waits of one message for one thread. */
struct mailq_row {
    const char *path;        /* of the control file, as the server says: not to be trusted */
    const uint64_t *offsets; /* of its recipients' lines */
    size_t count;            /* of them */
    bool is_short;           /* version 2: nothing of it was TEXT but its thread */
    bool expires;
    uint64_t tries;
    int64_t expires_in_s;
    const char *diagnostic; /* lines separated by CR */
};

struct mailq_client_event {
    enum mailq_client_event_type type;
    struct slice text;           /* this and the row last until the next call */
    const struct mailq_row *row; /* ROW */
};

/* Text of a server's for a terminal, appended: without control bytes, but for tabs. CR separates
 * lines. */
void mailq_client_put_plain(struct buf *out, struct slice text);

struct mailq_client;

/* `request` is copied, its strings are borrowed. */
struct mailq_client *mailq_client_new(const struct mailq_request *request);
void mailq_client_free(struct mailq_client *c);

void mailq_client_next(struct mailq_client *c, struct buf *in,
                       struct mailq_client_event *ret_event);
void mailq_client_input_ended(struct mailq_client *c);
struct buf *mailq_client_output(struct mailq_client *c);

#endif
