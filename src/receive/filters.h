/*
 * Filters (milters) of one SMTP session, or of one message that was received another way.
 *
 * Each filter has its own connection for each session, made at the first MAIL and kept for further
 * messages of the session. One question at a time is open, and the filters get it in their order:
 *
 *     MAIL, RCPT, DATA   when the client sends them; the first filter that refuses decides
 *     the message        when it is complete, from the draft. A filter gets header, body and
 *                        recipients with the changes of the filters before it
 *
 *     filters_mail --> filters_rcpt .. --> filters_data --> filters_message
 *     filters_whole: all of these for a complete message
 *
 * Every question is answered once: the call returns true if the answer is available, else `done` is
 * called from the loop, and no other question may be asked until then. No call blocks; a slow
 * filter delays only its own session.
 *
 * A filter fails if it can't be reached, hangs, ends or breaks the protocol. The failure is logged,
 * the filter's default_action decides about the message, the connection is closed, and the next
 * message gets a new one.
 *
 * Memory: content stays in the draft. A connection holds at most MILTER_PACKET_MAX of input and
 * FILTERS_OUTPUT_HIGH plus one piece of output, and nothing between messages.
 *
 * Use for mail of `sendmail`, injected mail, bounces and notices: call filters_new with the set of
 * non_smtpd_milters, then filters_whole with a struct filters_client of {.name = "localhost", .ip =
 * "127.0.0.1", .family = 4} and a finished draft that keeps its header apart. Call filters_free
 * after `done`, or to drop the message. filters_answer, filters_hold and filters_flags return the
 * results.
 */
#ifndef RECEIVE_FILTERS_H
#define RECEIVE_FILTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "draft.h"
#include "filter_hub.h"
#include "filter_set.h"
#include "slice.h"

/* Bytes of waiting output above which no further piece is added. */
#define FILTERS_OUTPUT_HIGH 65536

struct filters;

/* The client that sends the message. */
struct filters_client {
    struct slice name; /* "localhost", or "[192.0.2.1]" */
    struct slice ip;   /* address as text */
    int family;        /* 4 or 6 */
    uint16_t port;
    struct slice helo; /* empty: our own name */
    struct slice tls;  /* "TLSv1.3 with cipher NAME (256/256 bits)"; empty: no TLS */
    struct slice user; /* name of the login; empty: none */
    struct slice mechanism;
};

enum filters_result {
    FILTERS_PASS,
    FILTERS_REFUSE,  /* refuse with `code`; 421 also closes the session */
    FILTERS_DISCARD, /* accept the message and drop it */
};

struct filters_answer {
    enum filters_result result;
    unsigned code; /* 4xx or 5xx */
    char status[12];
    char text[MILTER_TEXT_MAX + 1];
};

typedef void filters_done(void *arg, struct filters *f);

/* Creates the filters without a connection. Borrows hub; takes a reference to the set. */
struct filters *filters_new(struct filter_hub *hub, struct filter_set *set, filters_done *done,
                            void *arg);

/* Frees the filters at any time; `done` is not called then. NULL is allowed. */
void filters_free(struct filters *f);

/* Begins another message. Copies all slices. `parameters` is the text after the address in the
 * command. */
bool filters_mail(struct filters *f, const struct filters_client *client, struct slice sender,
                  struct slice parameters);
bool filters_rcpt(struct filters *f, struct slice rcpt);
bool filters_data(struct filters *f);

/* Passes a complete message to the filters. The draft is finished, keeps its header apart, and is
 * borrowed until the answer. After FILTERS_PASS it has the changes. If the filters remove all
 * recipients, the answer is FILTERS_DISCARD. */
bool filters_message(struct filters *f, struct draft *draft);
bool filters_whole(struct filters *f, const struct filters_client *client, struct draft *draft);

/* Ends the transaction, also while a question is open. */
void filters_abort(struct filters *f);

/* Returns the last answer. */
const struct filters_answer *filters_answer(const struct filters *f);

/* Returns the reason to put the message on hold; empty: none. The next two return its added flags
 * of enum envelope_flag, and its name for filters (macro i). */
struct slice filters_hold(const struct filters *f);
unsigned filters_flags(const struct filters *f);
const char *filters_id(const struct filters *f);

#endif
