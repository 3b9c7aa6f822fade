/*
 * Shared declarations of the files of inject_session.h: a session and the messages of its call.
 *
 *     inject_session.c   the connection: phases, answers, events, accepting
 *     inject_request.c   a request: its head, its token, its body while it is received
 *     inject_call.c      a complete call: its document, its messages, its end
 *     inject_part.c      one message of it: envelope, filters, submission and answer
 */
#ifndef RECEIVE_INJECT_SESSION_PRIVATE_H
#define RECEIVE_INJECT_SESSION_PRIVATE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <xxhash.h>

#include "admission.h"
#include "buf.h"
#include "draft.h"
#include "filters.h"
#include "hash.h"
#include "http.h"
#include "http_envelope.h"
#include "inject_answer.h"
#include "inject_mail.h"
#include "inject_message.h"
#include "inject_session.h"
#include "intake.h"
#include "json_document.h"
#include "receive_session.h"
#include "receive_settings.h"
#include "slice.h"
#include "stream.h"
#include "times.h"
#include "token_list.h"
#include "wire.h"

/* Seconds after which a client may try again, unless a limit on sending gives a better time. BUSY:
 * mail of others must go first. GONE: a process must start, or an operator act. */
#define BUSY_RETRY_S 5
#define GONE_RETRY_S 10
/* Maximum bytes of an answer without its lists of recipients, and of an element of a list without
 * address and text. */
#define ANSWER_EXTRA   65536u
#define ANSWER_ELEMENT 64u

#define NO_DOCUMENT_MEMORY "4.3.1 Insufficient memory, try again later (smtpd_memory_limit)"
#define NO_MEMORY                                                                                  \
    ((struct server_reply){452, "4.3.1", SLICE("Insufficient memory, try again later")})

_Static_assert(sizeof(XXH128_canonical_t) == WIRE_KEY_SUM, "the sum of a call");
_Static_assert(TOKEN_NAME_MAX + INJECT_KEY_MAX + 2 <= WIRE_KEY_MAX, "a key fits");

enum inject_phase {
    INJECT_HANDSHAKE,
    INJECT_HEAD,
    INJECT_TOKEN,
    INJECT_BODY,
    INJECT_WORK,
    INJECT_DELAYED,
    INJECT_ANSWER,
    INJECT_CLOSING,
};

enum inject_body { BODY_MESSAGE, BODY_JSON };

/* A token that the auth process has accepted. */
struct inject_grant {
    uint8_t hash[TOKEN_HASH]; /* hash of the token, to recognize it */
    uint64_t generation;      /* generation of the configuration, because a reload may remove the
                               * token */
    char name[TOKEN_NAME_MAX + 1];
    unsigned rights;
    char *class_name; /* owned, like the next member */
    char *senders;
};

/* Filters of one message at a time. Their connections last as long as the session. */
struct inject_slot {
    struct inject_session *s;
    struct inject_part *part; /* NULL: the slot is free */
    struct filters *filters;  /* owned; NULL: not needed yet */
};

/* One message of a call. */
struct inject_part {
    struct inject_session *s;
    uint64_t token;    /* token of the submission; 0: not submitted */
    UT_hash_handle hh; /* entry of inject_sessions.parts */
    LIST_ENTRY(inject_part) next;
    struct inject_slot *slot;    /* slot of its filters; NULL: none */
    size_t message;              /* its number in the call */
    struct inject_message *text; /* generator of its text, while the text is made; owned */
    uint32_t rcpts;
    bool filtering; /* true while filters have a question */
    unsigned utf8;  /* 1 if an address is not ASCII */
    struct intake intake;
};

struct inject_session {
    struct inject_sessions *inject;
    struct receive_sessions *all; /* equal to inject->all */
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    LIST_ENTRY(inject_session) next;
    uint64_t token;    /* token of the query to the auth process in TOKEN, else 0 */
    UT_hash_handle hh; /* entry of inject_sessions.asked */
    enum inject_phase phase;
    struct http http;
    struct buf out;
    struct mono head_until, session_until, request_until;
    struct mono body_paid; /* time that the received body accounts for at smtpd_min_data_rate */
    bool ended;            /* true if the client sends no more */
    bool broken;           /* true if the client can't be reached */
    bool logged;           /* true after a call; the end of the session is logged then */
    bool dropped;          /* true after the loss of its place */
    bool delivered;
    uint64_t calls, good_calls;
    struct inject_grant *grant; /* owned; NULL: no token was accepted yet */

    /* ---- the request */
    enum inject_body kind;
    struct http_envelope envelope;
    XXH128_canonical_t sum_bytes; /* result of `sum`, after the whole body */
    /* Hash of everything that defines the call; NULL: the call has no key. The hash finds mistakes
     * of a client that uses a key twice. It need not resist a search for two calls of one hash. */
    XXH3_state_t *sum;
    struct json_document json;  /* document while it is received; `mail` and `unread` refer to it */
    struct inject_mail *unread; /* mail of the document while it is read */
    bool short_of_memory;       /* true if less memory is free than reading may need */
    struct draft account;       /* charge of the document and the answer */
    uint64_t held;              /* bytes of memory that the request holds */
    struct inject_mail *mail;
    size_t next_message;         /* number of the next message to make */
    struct inject_part *making;  /* message that is being made; NULL: none */
    struct draft making_account; /* charge of the message being made */
    struct event *again; /* event that continues the call in the next turn; NULL: not needed yet */
    LIST_HEAD(, inject_part) parts;
    size_t part_count;
    struct inject_slot slots[INJECT_FILTERED];
    struct inject_part *reading; /* message whose body is being received (BODY_MESSAGE) */
    struct inject_answer answer;
    char key[INJECT_KEY_MAX + 1]; /* empty: no key */
    bool key_refused;             /* true if the key belongs to another call */
    uint32_t retry_s;             /* seconds until a retry may succeed; 0: unknown */
    unsigned refusals_logged, refusals_unlogged;
    struct buf error;
    struct wall arrived;

    unsigned char address[16];
    bool exempt;      /* true if limits on sending do not apply */
    const char *name; /* "localhost" or "unknown" */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
};

/* ---- inject_session.c ----------------------------------------------------------------------- */

/* Continues until the session must wait. May free the session. */
void inject_drive(struct inject_session *s);

/* Begins to wait for the client in this phase; the next function begins to wait for a process, at
 * most `longest_us`. */
void inject_wait_for_client(struct inject_session *s, enum inject_phase phase);
void inject_wait_for_us(struct inject_session *s, enum inject_phase phase, int64_t longest_us);

/* Counts received bytes of the body, and moves the deadline. */
void inject_pay_for_body(struct inject_session *s, size_t bytes);

/* Charges memory of the document or the answer. Returns false if memory is short. */
bool inject_charge(struct inject_session *s, uint64_t bytes);

/* Answers the call with the JSON document of s->answer, `error` and header `fields`. The answer is
 * the last of the session if the request was not read to its end. */
void inject_answer_with(struct inject_session *s, unsigned status, struct slice error,
                        struct slice fields);

/* Refuses the request: logs the refusal and answers with `error`; inject_refuse_as does so with an
 * SMTP reply. */
void inject_refuse(struct inject_session *s, unsigned status, const char *error);
void inject_refuse_as(struct inject_session *s, const struct server_reply *reply);

/* Logs a refusal. `status` is a status of HTTP, or a code of SMTP whose enhanced status begins
 * `text`. `rcpt` with ptr NULL: no recipient; `rule` empty: no rule. */
void inject_log_refusal(struct inject_session *s, unsigned status, const char *text,
                        struct slice rcpt, const char *rule);
void inject_log_connect(struct inject_session *s);
const char *inject_protocol(const struct inject_session *s);

/* ---- inject_request.c ----------------------------------------------------------------------- */

/* Handles the head of a request; the next functions handle an accepted token, and a piece of the
 * body. */
void inject_on_head(struct inject_session *s);
void inject_token_known(struct inject_session *s);
void inject_on_body(struct inject_session *s, struct slice bytes);
void inject_hash_token(struct slice token, uint8_t ret_hash[TOKEN_HASH]);

/* ---- inject_call.c -------------------------------------------------------------------------- */

/* Carries out a call after its whole request. */
void inject_call_begin(struct inject_session *s);

/* Makes as many messages as may be in flight, and ends the call after the last result. The next
 * function does so in the next turn of the loop. */
void inject_call_go_on(struct inject_session *s);
void inject_call_go_on_later(struct inject_session *s);

/* Are there messages of the call that have not been made? */
bool inject_call_has_more(const struct inject_session *s);

/* Answers the call after the results of all messages. */
void inject_call_finish(struct inject_session *s);

/* ---- inject_part.c -------------------------------------------------------------------------- */

struct inject_part *inject_part_new(struct inject_session *s, size_t message,
                                    intake_envelope *envelope);
void inject_part_free(struct inject_part *part);

/* Sets the envelope of a message of a document. Returns code 0, or the reply that refuses the
 * message. */
struct server_reply inject_part_set_envelope(struct inject_part *part);

/* Sets the envelope of a message in the body, as an intake_envelope. The next function is for a
 * message whose envelope is set. */
struct server_reply inject_envelope_of_body(void *arg, struct slice header);
struct server_reply inject_envelope_of_mail(void *arg, struct slice header);

/* Checks whether the token may send as this sender. Returns code 0 if so. */
struct server_reply inject_judge_sender(struct inject_session *s, struct slice sender);

/* Frees the generator of the text after its end or a failure. */
void inject_part_made(struct inject_part *part);

/* Ends a message: its content is complete in the draft, or failed with `reply`. Takes ownership of
 * the part. */
void inject_part_end(struct inject_part *part, struct server_reply reply);

/* Ends a message with a refusal, and frees the part. The next function ends an accepted one: stored
 * as `id`, or, with an empty id, discarded by a rule without notice to the client. */
void inject_part_refuse(struct inject_part *part, const struct server_reply *reply);
void inject_part_accept(struct inject_part *part, struct slice id, bool repeated);

/* Returns a free slot for filters; NULL: none. */
struct inject_slot *inject_find_slot(struct inject_session *s);

#endif
