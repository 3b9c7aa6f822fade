/*
 * Dovecot's authentication protocol, version 1, the client's side, without I/O: a server of
 * accounts judges logins, and this process only passes their messages on.
 *
 *     we      VERSION 1 1, CPID pid
 *     server  VERSION 1 n, MECH name .. (several), SPID, CUID, COOKIE .., DONE
 *     we      AUTH id mechanism service=smtp secured rip= lip= [resp=base64]
 *     server  CONT id base64      the client is to answer it: CONT id base64
 *             OK id user= ..      accepted, unless `nologin' or `proxy' says that the user is to
 *                                 get in elsewhere or not at all
 *             FAIL id ..          refused; with `temp' or `code=temp_fail' it could not be judged
 *
 * Lines end with LF, have tabs between fields and are at most DOVECOT_LINE_MAX long. Of OK's
 * further fields two are ours, which a passdb may set: `class' and `senders', as in auth_users
 * (verifier_list.h). Fields that are not known are passed over.
 *
 *     GREETING --DONE--> READY          anything that is no line of the protocol --> FAILED, final
 *
 * Which logins are under way is known to the caller: replies to an id that it has given up are
 * events like the others. What may be a password is overwritten once it is sent.
 *
 * Source: Dovecot's design document "Authentication Protocol".
 */
#ifndef AUTH_DOVECOT_H
#define AUTH_DOVECOT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "sasl.h"
#include "slice.h"

#define DOVECOT_LINE_MAX 16384u
/* Lines of the greeting: a server that has not ended it by then is none. */
#define DOVECOT_GREETING_MAX 200u

enum dovecot_event_type {
    DOVECOT_NEED_INPUT,
    DOVECOT_READY,       /* the greeting is complete: dovecot_mechanisms */
    DOVECOT_CHALLENGE,   /* the client is to answer `challenge`; else the login `id` is over */
    DOVECOT_ACCEPTED,    /* `user`, `class_name`, `senders` */
    DOVECOT_REFUSED,     /* `user`, if it is known */
    DOVECOT_UNAVAILABLE, /* the server could not judge it, or its answer cannot be used: `why` */
    DOVECOT_FAILED,      /* `why`; comes again if called again */
};

struct dovecot_event {
    enum dovecot_event_type type;
    uint32_t id;
    struct slice challenge; /* bytes; these last until the next call */
    struct slice user;
    struct slice class_name; /* empty: none */
    struct slice senders;    /* empty: every one */
    const char *why;
};

enum dovecot_state { DOVECOT_IN_GREETING, DOVECOT_IS_READY, DOVECOT_IS_BROKEN };

/* Fields are private to dovecot.c. */
struct dovecot {
    enum dovecot_state state;
    const char *why; /* in DOVECOT_IS_BROKEN */
    bool version_known;
    unsigned lines; /* of the greeting */
    unsigned mechanisms;
    struct buf input, output;
    size_t used; /* of the input, by the event told last */
    struct buf scratch;
};

struct dovecot_request {
    enum sasl_mechanism mechanism;
    struct slice remote, local; /* addresses as text; empty: not known */
    struct slice message;       /* up to SASL_MESSAGE_MAX bytes; ptr NULL: the client sent none with
                                   its AUTH command */
};

/* The greeting goes to the output. `pid` is of this process. */
void dovecot_init(struct dovecot *d, uint32_t pid);
void dovecot_fini(struct dovecot *d);

/* To be sent. */
struct buf *dovecot_output(struct dovecot *d);

/* What has come. Then dovecot_next until DOVECOT_NEED_INPUT. */
void dovecot_input(struct dovecot *d, struct slice bytes);
void dovecot_next(struct dovecot *d, struct dovecot_event *ret_event);

/* Of enum sasl_mechanism: what the server has and clients here are offered. 0 before
 * DOVECOT_READY. */
unsigned dovecot_mechanisms(const struct dovecot *d);

/* These want DOVECOT_READY to have been told, and no DOVECOT_FAILED. */

/* A login begins; `id` is of no other on this connection. */
void dovecot_begin(struct dovecot *d, uint32_t id, const struct dovecot_request *request);

/* The client's answer to a challenge. */
void dovecot_answer(struct dovecot *d, uint32_t id, struct slice message);

/* The login is given up. */
void dovecot_cancel(struct dovecot *d, uint32_t id);

#endif
