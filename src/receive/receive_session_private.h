/*
 * What the files of receive_session.h share: a session.
 *
 *     receive_session.c   the connection: phases, the engine, answers, accepting
 *     receive_login.c     who has logged in: the dialogue with the auth process
 *     receive_message.c   a message when all of it is there: filters, the queue process, the answer
 *     receive_log.c       the lines of the log
 *
 * Functions that take a session may free it where they say so.
 */
#ifndef RECEIVE_RECEIVE_SESSION_PRIVATE_H
#define RECEIVE_RECEIVE_SESSION_PRIVATE_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "admission.h"
#include "arrival.h"
#include "callout.h"
#include "classify.h"
#include "dialogue.h"
#include "draft.h"
#include "filters.h"
#include "hash.h"
#include "receive_session.h"
#include "receive_settings.h"
#include "receive_shared.h"
#include "sasl.h"
#include "server.h"
#include "slice.h"
#include "stream.h"
#include "times.h"
#include "wire.h"

#define NO_AUTH ((struct server_reply){454, "4.7.0", SLICE("Temporary authentication failure")})

/* How far a client has come, for the log. */
enum receive_stage {
    STAGE_CONNECT,
    STAGE_HELO,
    STAGE_EHLO,
    STAGE_LHLO,
    STAGE_STARTTLS,
    STAGE_AUTH,
    STAGE_ETRN,
    STAGE_MAIL,
    STAGE_RCPT,
    STAGE_DATA,
    STAGE_END,
};

enum receive_phase {
    PHASE_TALK,
    PHASE_ASKED,
    PHASE_FILTERING,
    PHASE_CALLOUT,
    PHASE_DELAYED,
    PHASE_TLS_DUE,
    PHASE_HANDSHAKE,
    PHASE_CLOSING,
};

/* What ASKED waits for. */
enum receive_question {
    QUESTION_MESSAGE,
    QUESTION_ETRN,
    QUESTION_LOGIN,
    QUESTION_SEND_ROOM,
};

/* Who has logged in. */
struct receive_login {
    char *user;
    char *text; /* for the log */
    char *class_name;
    char *senders; /* verifier_list.h */
};

struct receive_session {
    struct receive_sessions *all;
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    struct server *server;
    LIST_ENTRY(receive_session) next;
    uint64_t token;    /* of the question in ASKED, else 0 */
    UT_hash_handle hh; /* by token */
    enum receive_phase phase;
    enum receive_stage stage;
    enum receive_question question; /* in ASKED */
    uint64_t login_token;           /* of the login that is under way, else 0 */
    enum sasl_mechanism mechanism;  /* its */
    struct receive_login *login;    /* owned; NULL: the client has not logged in */
    unsigned logins;                /* how often it tried */
    bool tls_first;                 /* TLS comes before the greeting */
    bool may_relay;
    bool exempt;         /* from limits of clients */
    uint64_t mail_size;  /* as MAIL has said */
    unsigned mail_flags; /* likewise */
    uint32_t send_room;  /* recipients that the message may have */
    uint32_t send_limit; /* and what says so (send_limit.h) */
    char *send_text;     /* owned: what the client is told beyond it; NULL: there is no limit */
    bool send_refused;   /* the queue process was told that it is not enough */
    bool connect_logged; /* during an attack it is logged only when it has brought mail */
    bool delivered;      /* a message */
    bool dropped;        /* it has lost its place */
    bool ended;          /* nothing more comes from the client */
    bool in_content;     /* DATA or BDAT was accepted */
    const char *abort_reason; /* of a SERVER_ABORT, until the next event: see finish_abort */
    struct draft draft;
    struct classify classify; /* of the content of `draft` */
    struct arrival arrival;   /* what rules say of it */
    bool filtered;            /* of the listener */
    bool has_address;         /* `address` is the client's */
    unsigned char address[16];
    struct callout_question *callout; /* in CALLOUT */
    bool callout_local;               /* of a recipient of local_domains */
    struct filters *filters; /* owned; NULL: there are none, or nothing was asked of them yet */
    unsigned message_flags;  /* of the message in ASKED or FILTERED */
    struct wall arrived;
    uint32_t message_rcpts; /* of the message in ASKED */
    uint64_t errors_paid;   /* errors that the client has waited for, or need not */
    unsigned greetings;
    uint16_t port;    /* the client's; 0: of a Unix socket */
    const char *name; /* "localhost", or "unknown": the DNS is not asked */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
    struct dialogue_end end;          /* for those who watch */
};

/* ---- receive_session.c ---------------------------------------------------------------------- */

/* Wait for an answer to this question. */
void receive_ask(struct receive_session *s, enum receive_question question, uint64_t token);
void receive_forget_question(struct receive_session *s);

/* The session that waits for it; NULL: it is gone. */
struct receive_session *receive_find_asked(struct receive_sessions *all, uint64_t token,
                                           enum receive_question question);

/* What was awaited is there: go on, or first let the client wait. May free the session. */
void receive_go_on(struct receive_session *s);
void receive_delay(struct receive_session *s, int64_t delay_us);

/* Whose limits on sending hold: the client's, with `room` for its name, and the user's. */
struct slice receive_session_client(const struct receive_session *s,
                                    char room[RECEIVE_SEND_CLIENT_MAX]);
struct slice receive_session_login(const struct receive_session *s);

/* Our address that the client has connected to; empty when it has none. */
void receive_local_address(const struct receive_session *s, char ret_ip[INET6_ADDRSTRLEN]);

/* ---- receive_login.c ------------------------------------------------------------------------ */

/* A message of a login has come: ask the auth process. */
void receive_login_ask(struct receive_session *s, const struct server_auth *auth);

/* The login is over, and not a good one. May free the session. */
void receive_login_refuse(struct receive_session *s, struct server_reply reply, const char *why);

/* One is under way: let it be over. */
void receive_login_give_up(struct receive_session *s);

/* The auth process need not remember it; nor who has logged in. */
void receive_login_end(struct receive_session *s);
void receive_login_forget(struct receive_session *s);

/* May the user that has logged in, if one has, send as this address? Code 0: yes. */
struct server_reply receive_judge_sender(struct receive_session *s, struct slice sender);

/* ---- receive_message.c ---------------------------------------------------------------------- */

/* MAIL was found good: ask the filters, which there are. */
void receive_filter_mail(struct receive_session *s, const struct server_mail *mail);

/* A question to the filters was asked; `answered` says that the answer is there. */
void receive_after_filters(struct receive_session *s, bool answered);

/* Content that has passed the rules; `arg` is the session. */
void receive_put_content(void *arg, struct slice bytes);

/* All of the message is there. */
void receive_message_end(struct receive_session *s, const struct server_message *message);

/* The fate of the message in ASKED is known, or will never be. May free the session. */
void receive_message_decided(struct receive_session *s, const struct server_reply *reply);

/* The queue process says it. False: it does not decode. */
bool receive_submit_done(struct receive_sessions *all, struct slice body);

/* ---- receive_log.c -------------------------------------------------------------------------- */

void receive_log_connect(struct receive_session *s);
void receive_log_disconnect(struct receive_session *s);

/* How far the client has come. */
const char *receive_stage_name(const struct receive_session *s);

/* A line in Postfix's form; what is empty is left out. */
void receive_log_event(const struct receive_session *s, const char *what, struct slice sender,
                       struct slice rcpt, const char *text, const char *rule);
void receive_log_refusal(const struct receive_session *s, struct slice sender, struct slice rcpt,
                         const char *text, const char *rule);
void receive_log_reply(const struct receive_session *s, const struct server_reply *reply,
                       struct slice sender, struct slice rcpt);
void receive_log_rule_reply(const struct receive_session *s, const struct server_reply *reply,
                            struct slice sender, struct slice rcpt, const char *rule);

/* What rules did to the message of the draft, behind its queue id or NOQUEUE. */
void receive_log_rules(const struct receive_session *s, const char *id);

#endif
