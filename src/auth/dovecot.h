/*
 * Dovecot's authentication protocol, version 1, the client's side, without I/O: a server of
 * accounts checks logins, and this process only passes their messages on.
 *
 *     client  VERSION 1 1, CPID pid
 *     server  VERSION 1 n, MECH name .. (several), SPID, CUID, COOKIE .., DONE
 *     client  AUTH id mechanism service=smtp secured rip= lip= [resp=base64]
 *     server  CONT id base64      a challenge; the client answers: CONT id base64
 *             OK id user= ..      accepted, unless `nologin' or `proxy' shows that the user must
 *                                 log in elsewhere or not at all
 *             FAIL id ..          refused; with `temp' or `code=temp_fail' it could not be checked
 *
 * Lines end with LF, have tabs between fields and are at most DOVECOT_LINE_MAX long. OK may have
 * two further fields for this program, which a passdb can set: `class' and `senders', as in
 * auth_users (verifier_list.h). Unknown fields are ignored.
 *
 *     GREETING --DONE--> READY          any line outside of the protocol --> FAILED, final
 *
 * The caller keeps track of its logins: replies to the id of a cancelled login are events like the
 * others. Possible passwords are overwritten once they are sent.
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
/* Maximum of lines in the greeting; a server that sends more is not Dovecot. */
#define DOVECOT_GREETING_MAX 200u

enum dovecot_event_type {
    DOVECOT_NEED_INPUT,
    DOVECOT_READY,       /* the greeting is complete: dovecot_mechanisms */
    DOVECOT_CHALLENGE,   /* the client must answer `challenge`; after the next three events the
                          * login `id` is over */
    DOVECOT_ACCEPTED,    /* `user`, `class_name`, `senders` */
    DOVECOT_REFUSED,     /* `user`, if known */
    DOVECOT_UNAVAILABLE, /* the server could not check the login, or its answer is not valid:
                          * `why` */
    DOVECOT_FAILED,      /* `why`; repeated by further calls */
};

struct dovecot_event {
    enum dovecot_event_type type;
    uint32_t id;
    struct slice challenge; /* bytes; the slices last until the next call */
    struct slice user;
    struct slice class_name; /* empty: none */
    struct slice senders;    /* empty: every sender */
    const char *why;
};

enum dovecot_state { DOVECOT_IN_GREETING, DOVECOT_IS_READY, DOVECOT_IS_BROKEN };

/* A connection to Dovecot. Fields are private to dovecot.c. */
struct dovecot {
    enum dovecot_state state;
    const char *why; /* in DOVECOT_IS_BROKEN */
    bool version_known;
    unsigned lines; /* number of lines of the greeting */
    unsigned mechanisms;
    struct buf input, output;
    size_t used; /* not used */
    struct buf scratch;
};

struct dovecot_request {
    enum sasl_mechanism mechanism;
    struct slice remote, local; /* addresses as text; empty: not known */
    struct slice message;       /* up to SASL_MESSAGE_MAX bytes; ptr NULL: the client sent none with
                                 * its AUTH command */
};

/* Initializes the engine, with its greeting in the output. `pid` is that of this process. */
void dovecot_init(struct dovecot *d, uint32_t pid);
void dovecot_fini(struct dovecot *d);

/* Returns the bytes to send. */
struct buf *dovecot_output(struct dovecot *d);

/* Adds bytes from the server. The caller then calls dovecot_next until DOVECOT_NEED_INPUT. */
void dovecot_input(struct dovecot *d, struct slice bytes);
void dovecot_next(struct dovecot *d, struct dovecot_event *ret_event);

/* Returns the mechanisms that both the server and this program support, of enum sasl_mechanism; 0
 * before DOVECOT_READY. */
unsigned dovecot_mechanisms(const struct dovecot *d);

/* The next three calls are allowed after DOVECOT_READY and before DOVECOT_FAILED. */

/* Begins a login; no other login on this connection has `id`. */
void dovecot_begin(struct dovecot *d, uint32_t id, const struct dovecot_request *request);

/* Sends the client's answer to a challenge. */
void dovecot_answer(struct dovecot *d, uint32_t id, struct slice message);

/* Cancels a login. */
void dovecot_cancel(struct dovecot *d, uint32_t id);

#endif
