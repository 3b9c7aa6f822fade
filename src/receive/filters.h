/*
 * The filters (milters) of one SMTP session, or of one message that came by another way.
 *
 * Each filter has a connection of its own for each session, made at the first MAIL and kept for the
 * session's further messages. One question at a time; the filters are asked in their order:
 *
 *     MAIL, RCPT, DATA   as the client says them: the first filter that refuses decides
 *     the message        when all of it is there, from the draft. A filter sees what those before
 *                        it have made of header, body and recipients
 *
 *     filters_mail --> filters_rcpt .. --> filters_data --> filters_message
 *     filters_whole: all of that for a message that is there already
 *
 * Every question is answered once: it returns true when the answer is there, else `done` is called
 * from the loop, and nothing else may be asked until then. Nothing here waits; a slow filter holds
 * up its own session and no other.
 *
 * Trouble is a filter that is not there, hangs, ends or breaks the protocol. It is logged, and
 * what becomes of the message is the filter's default_action; a connection that had trouble is
 * given up, and the next message gets a new one.
 *
 * Memory: content stays in the draft. A connection holds MILTER_PACKET_MAX of input and
 * FILTERS_OUTPUT_HIGH and a piece of output at most, and nothing between messages.
 *
 * `sendmail's mail, injected mail, reports: filters_new with the set of non_smtpd_milters and a
 * struct filters_client of {.name = "localhost", .ip = "127.0.0.1", .family = 4}, filters_whole
 * with a finished draft that keeps its header apart, filters_free when `done` was called or when
 * the message is given up; filters_answer, filters_hold and filters_flags say what came of it.
 */
#ifndef RECEIVE_FILTERS_H
#define RECEIVE_FILTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "draft.h"
#include "filter_hub.h"
#include "filter_set.h"
#include "slice.h"

/* With so much output waiting no further piece is added. */
#define FILTERS_OUTPUT_HIGH 65536

struct filters;

/* Whose mail it is. */
struct filters_client {
    struct slice name; /* "localhost", or "[192.0.2.1]" */
    struct slice ip;   /* text */
    int family;        /* 4 or 6 */
    uint16_t port;
    struct slice helo; /* empty: our own name */
    struct slice tls;  /* "TLSv1.3 with cipher NAME (256/256 bits)"; empty: none */
    struct slice user; /* that has logged in; empty: none */
    struct slice mechanism;
};

enum filters_result {
    FILTERS_PASS,
    FILTERS_REFUSE,  /* with `code`; 421: and close */
    FILTERS_DISCARD, /* accept the message and throw it away */
};

struct filters_answer {
    enum filters_result result;
    unsigned code; /* 4xx or 5xx */
    char status[12];
    char text[MILTER_TEXT_MAX + 1];
};

typedef void filters_done(void *arg, struct filters *f);

/* hub and budget are borrowed; the set gets a reference. Nothing is connected yet. */
struct filters *filters_new(struct filter_hub *hub, struct filter_set *set, filters_done *done,
                            void *arg);

/* At any time; `done` is not called then. NULL is fine. */
void filters_free(struct filters *f);

/* Begin another message. All slices are copied. `parameters` is as in the command behind the
 * address. */
bool filters_mail(struct filters *f, const struct filters_client *client, struct slice sender,
                  struct slice parameters);
bool filters_rcpt(struct filters *f, struct slice rcpt);
bool filters_data(struct filters *f);

/* The draft is finished, keeps its header apart, and is borrowed until the answer. It is changed
 * when the answer is FILTERS_PASS; it may have no recipients then, which is FILTERS_DISCARD. */
bool filters_message(struct filters *f, struct draft *draft);
bool filters_whole(struct filters *f, const struct filters_client *client, struct draft *draft);

/* The transaction is off, also while a question is open. */
void filters_abort(struct filters *f);

/* The last answer. */
const struct filters_answer *filters_answer(const struct filters *f);

/* Of the message: why it is to be held (empty: it is not), what enum envelope_flag it has gained,
 * and the name by which filters know it (macro i). */
struct slice filters_hold(const struct filters *f);
unsigned filters_flags(const struct filters *f);
const char *filters_id(const struct filters *f);

#endif
