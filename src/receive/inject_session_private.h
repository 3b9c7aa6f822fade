/*
 * What the files of inject_session.h share: a session and the messages of its call.
 *
 *     inject_session.c   the connection: phases, answers, events, accepting
 *     inject_request.c   a request: its head, its token, its body as it comes in
 *     inject_call.c      a call whose request is complete: a document read, messages made, its end
 *     inject_part.c      one message of it: envelope, filters, the queue process and its answer
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

/* When a client may come again, where nothing says it better (a limit of what may be sent does):
 * others' mail has to go first, which takes seconds; a process has to start, or an operator to act.
 */
#define BUSY_RETRY_S 5
#define GONE_RETRY_S 10
/* An answer besides the lists of recipients, and an element of these without address and text. */
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

/* The token that the client has proven. */
struct inject_grant {
    uint8_t hash[TOKEN_HASH]; /* of the token, to know it again */
    uint64_t generation;      /* of the configuration: a reload may have taken it away */
    char name[TOKEN_NAME_MAX + 1];
    unsigned rights;
    char *class_name; /* owned, as the next */
    char *senders;
};

/* The filters of a message at a time; their connections last as long as the session. */
struct inject_slot {
    struct inject_session *s;
    struct inject_part *part; /* NULL: it is free */
    struct filters *filters;  /* owned; NULL: not needed yet */
};

/* One message of a call. */
struct inject_part {
    struct inject_session *s;
    uint64_t token;    /* of the submission */
    UT_hash_handle hh; /* in inject_sessions, by token */
    LIST_ENTRY(inject_part) next;
    struct inject_slot *slot;    /* filters look at it, or have; NULL: they do not */
    size_t message;              /* its number in the call */
    struct inject_message *text; /* owned; while it is made */
    uint32_t rcpts;
    bool filtering; /* filters have a question */
    unsigned utf8;  /* an address is not ASCII */
    struct intake intake;
};

struct inject_session {
    struct inject_sessions *inject;
    struct receive_sessions *all; /* of `inject` */
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    LIST_ENTRY(inject_session) next;
    uint64_t token;    /* of the question in TOKEN, else 0 */
    UT_hash_handle hh; /* by token */
    enum inject_phase phase;
    struct http http;
    struct buf out;
    struct mono head_until, session_until, request_until;
    struct mono body_paid; /* the body so far is worth the time until then */
    bool ended;            /* nothing more comes from the client */
    bool broken;           /* and nothing reaches it */
    bool logged;           /* it has sent mail, or tried to: its end is logged */
    bool dropped;          /* it has lost its place */
    bool delivered;
    uint64_t calls, good_calls;
    struct inject_grant *grant; /* owned; NULL: no token was proven yet */

    /* the request */
    enum inject_body kind;
    struct http_envelope envelope;
    XXH128_canonical_t sum_bytes; /* of `sum`, when all has come */
    /* Over all that makes the call what it is; NULL: it has no key. It finds mistakes of a client
     * that uses a key twice, and need not withstand one that looks for two calls of one sum. */
    XXH3_state_t *sum;
    struct json_document json;  /* as it comes in; `mail` and `unread` refer to it */
    struct inject_mail *unread; /* the mail of it while it is read */
    bool short_of_memory;       /* there is less for reading it than it may take */
    struct draft account;       /* memory of the document */
    uint64_t held;              /* of the request, in all */
    struct inject_mail *mail;
    size_t next_message;         /* of mail, that is made next */
    struct inject_part *making;  /* that is being made; NULL: none */
    struct draft making_account; /* its memory */
    struct event *again; /* goes on making messages in the next turn; NULL: not needed yet */
    LIST_HEAD(, inject_part) parts;
    size_t part_count;
    struct inject_slot slots[INJECT_FILTERED];
    struct inject_part *reading; /* whose body comes in: of BODY_MESSAGE */
    struct inject_answer answer;
    char key[INJECT_KEY_MAX + 1]; /* empty: none */
    bool key_refused;             /* it was the key of another call */
    uint32_t retry_s;             /* seconds until what was refused may be accepted; 0: not known */
    unsigned refusals_logged, refusals_unlogged;
    struct buf error;
    struct wall arrived;

    unsigned char address[16];
    bool exempt;      /* from limits on sending */
    const char *name; /* "localhost" or "unknown" */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
};

/* ---- inject_session.c ----------------------------------------------------------------------- */

/* Go on until something is awaited. May free the session. */
void inject_drive(struct inject_session *s);

/* From now on the client is awaited; or it is not, for that long at most. */
void inject_wait_for_client(struct inject_session *s, enum inject_phase phase);
void inject_wait_for_us(struct inject_session *s, enum inject_phase phase, int64_t longest_us);

/* So many bytes of the body have come, which are worth a time. */
void inject_pay_for_body(struct inject_session *s, size_t bytes);

/* Charge memory of the document or the answer. False: there is none. */
bool inject_charge(struct inject_session *s, uint64_t bytes);

/* Answer the call with this document. What of the request has not been read makes the answer the
 * last one. */
void inject_answer_with(struct inject_session *s, unsigned status, struct slice error,
                        struct slice fields);

/* Refuse the request: a line in the log, and `error` for the client; or in SMTP's words. */
void inject_refuse(struct inject_session *s, unsigned status, const char *error);
void inject_refuse_as(struct inject_session *s, const struct server_reply *reply);

/* `status` of HTTP, or a code of SMTP with its status in front of the text. `rcpt` with ptr NULL:
 * none to name; `rule` empty: none. */
void inject_log_refusal(struct inject_session *s, unsigned status, const char *text,
                        struct slice rcpt, const char *rule);
void inject_log_connect(struct inject_session *s);
const char *inject_protocol(const struct inject_session *s);

/* ---- inject_request.c ----------------------------------------------------------------------- */

/* The head of a request has come; its token is known; a piece of its body has come. */
void inject_on_head(struct inject_session *s);
void inject_token_known(struct inject_session *s);
void inject_on_body(struct inject_session *s, struct slice bytes);
void inject_hash_token(struct slice token, uint8_t ret_hash[TOKEN_HASH]);

/* ---- inject_call.c -------------------------------------------------------------------------- */

/* The whole request has come. */
void inject_call_begin(struct inject_session *s);

/* Make messages, as many as may be on their way; when all are decided the call is. Or do so in the
 * next turn of the loop. */
void inject_call_go_on(struct inject_session *s);
void inject_call_go_on_later(struct inject_session *s);

/* Are there messages of the call that have not been made? */
bool inject_call_has_more(const struct inject_session *s);

/* All messages are decided. */
void inject_call_finish(struct inject_session *s);

/* ---- inject_part.c -------------------------------------------------------------------------- */

struct inject_part *inject_part_new(struct inject_session *s, size_t message,
                                    intake_envelope *envelope);
void inject_part_free(struct inject_part *part);

/* Set the envelope of a message that a document asks for. */
struct server_reply inject_part_set_envelope(struct inject_part *part);

/* The intake_envelope of a message in the body, and of one whose envelope was set. */
struct server_reply inject_envelope_of_body(void *arg, struct slice header);
struct server_reply inject_envelope_of_mail(void *arg, struct slice header);

/* May the call send as this sender? */
struct server_reply inject_judge_sender(struct inject_session *s, struct slice sender);

/* Its text is made, or given up. */
void inject_part_made(struct inject_part *part);

/* All of it is in the draft, or that failed with `reply`. Takes the part. */
void inject_part_end(struct inject_part *part, struct server_reply reply);

/* It can't be sent, or the queue process has refused it; it is stored, or a rule wants it gone and
 * the client is not to know (no id). Frees the part. */
void inject_part_refuse(struct inject_part *part, const struct server_reply *reply);
void inject_part_accept(struct inject_part *part, struct slice id, bool repeated);

/* A place for one more message that filters look at; NULL: there is none. */
struct inject_slot *inject_find_slot(struct inject_session *s);

#endif
