/*
 * Client of a mailq server, Sluice's or ZMailer's, for both versions of the protocol; without I/O.
 *
 *     for (;;) {
 *         mailq_client_next(c, &in, &event);      takes bytes off the front of `in`
 *         send mailq_client_output(c);
 *         NEED_INPUT   feed more; mailq_client_input_ended when there is none
 *         TEXT         print event.text
 *         ROW          `verbose`: print details of event.row; TEXT has had its short form
 *         DONE         close
 *         FAILED       event.text is the reason; close
 *     }
 *
 * The server's output is not trusted: its lines are bounded, and control bytes are removed. A
 * server that ends too early is an error, not an endless wait.
 */
#ifndef ZMAILER_MAILQ_CLIENT_H
#define ZMAILER_MAILQ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define MAILQ_ANSWER_LINE_MAX                                                                      \
    ((size_t)16 << 20) /* longest line of a server in bytes; the lists of a dump are long */

enum mailq_view {
    MAILQ_VIEW_MESSAGES, /* each thread with its messages */
    MAILQ_VIEW_THREADS,  /* -Q */
    MAILQ_VIEW_RINGS,    /* -QQ */
    MAILQ_VIEW_TOTALS,   /* -QQQ; in version 1 the last lines */
    MAILQ_VIEW_COUNTERS, /* -QQQQ; version 2 only */
};

struct mailq_request {
    enum mailq_view view;
    const char *user, *password;
    bool scram;        /* log in with SCRAM-SHA-256, which no ZMailer supports, or fail */
    const char *nonce; /* fresh random text for SCRAM: 16 to 200 printable bytes without commas */
    bool verbose;      /* MESSAGES: return each message as a ROW */
    unsigned summary;  /* MESSAGES: 1: number and size of each thread's files; 2: their number
                        * only */
    /* MESSAGES: decides whether a control file is listed, and sets the size of its message (0:
     * unknown). NULL: all files are listed, without sizes. */
    bool (*look)(void *arg, const char *path, uint64_t *ret_size);
    void *look_arg;
    bool is_own;                /* MESSAGES: `look` selects the files of one user */
    const char *channel, *host; /* MESSAGES: list this channel and host only; NULL: all */
    int64_t now_s;              /* current time since 1970, to compute times of expiry */
};

enum mailq_client_event_type {
    MAILQ_CLIENT_NEED_INPUT,
    MAILQ_CLIENT_TEXT,
    MAILQ_CLIENT_ROW,
    MAILQ_CLIENT_DONE,
    MAILQ_CLIENT_FAILED
};

/* A vertex: one message's waiting recipients of one thread. */
struct mailq_row {
    const char *path;        /* path of the control file, as the server sent it: not to be
                              * trusted */
    const uint64_t *offsets; /* offsets of the recipients' lines */
    size_t count;            /* number of `offsets` */
    bool is_short;           /* version 2: only the thread of this row was returned as TEXT */
    bool expires;
    uint64_t tries;
    int64_t expires_in_s;
    const char *diagnostic; /* lines separated by CR */
};

struct mailq_client_event {
    enum mailq_client_event_type type;
    struct slice text;           /* valid until the next call, as `row` */
    const struct mailq_row *row; /* set for ROW */
};

/* Appends text from a server for output to a terminal: CR becomes a line end, and control bytes
 * other than tabs are removed. */
void mailq_client_put_plain(struct buf *out, struct slice text);

struct mailq_client;

/* Makes a client. `request` is copied, its strings are borrowed. */
struct mailq_client *mailq_client_new(const struct mailq_request *request);
void mailq_client_free(struct mailq_client *c);

void mailq_client_next(struct mailq_client *c, struct buf *in,
                       struct mailq_client_event *ret_event);
void mailq_client_input_ended(struct mailq_client *c);
struct buf *mailq_client_output(struct mailq_client *c);

#endif
