/*
 * Shared declarations of the files of receive_session.h: a session.
 *
 *     receive_session.c   the connection: phases, the engine, answers, accepting
 *     receive_login.c     logins: the dialogue with the auth process
 *     receive_message.c   a complete message: filters, the queue process, the answer
 *     receive_log.c       log lines
 *
 * Only functions with a comment about that may free their session.
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

/* Progress of a client, for the log. */
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

/* Kind of the question in PHASE_ASKED. */
enum receive_question {
    QUESTION_MESSAGE,
    QUESTION_ETRN,
    QUESTION_LOGIN,
    QUESTION_SEND_ROOM,
};

/* Login of a client. */
struct receive_login {
    char *user;
    char *text; /* text for the log */
    char *class_name;
    char *senders;  /* sender addresses that the user may use (verifier_list.h) */
    uint64_t token; /* token of checks at the auth process */
    uint64_t stamp; /* stamp of the answer that accepted the login */
    bool is_over;   /* true if the session ends after its current step */
};

struct receive_session {
    struct receive_sessions *all;
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    struct server *server;
    LIST_ENTRY(receive_session) next;
    uint64_t token;    /* token of the question in ASKED, else 0 */
    UT_hash_handle hh; /* entry of receive_sessions.asked */
    enum receive_phase phase;
    enum receive_stage stage;
    enum receive_question question; /* question, in ASKED */
    uint64_t login_token;           /* token of the login in progress, else 0 */
    enum sasl_mechanism mechanism;  /* mechanism of that login */
    struct receive_login *login;    /* owned; NULL: not logged in */
    unsigned logins;                /* number of attempts to log in */
    bool tls_first;                 /* true until the handshake that precedes the greeting */
    bool may_relay;
    bool exempt;         /* true if limits for clients do not apply */
    uint64_t mail_size;  /* size that MAIL announced */
    unsigned mail_flags; /* flags of MAIL */
    uint32_t send_room;  /* maximum recipients of the message */
    uint32_t send_limit; /* limit that sets send_room (send_limit.h) */
    char *send_text;     /* reply beyond send_room; owned; NULL: no limit */
    bool send_refused;   /* true after a report to the queue process that send_room was exceeded */
    bool connect_logged; /* true if logged; in an attack only clients that send mail are */
    bool delivered;      /* true after an accepted message */
    bool dropped;        /* true after the loss of its place */
    bool ended;          /* true if the client sends no more */
    bool in_content;     /* true after DATA or BDAT was accepted */
    const char *abort_reason; /* reason of a SERVER_ABORT, until the next event: see finish_abort */
    struct draft draft;
    struct classify classify; /* class of the content of `draft` */
    struct arrival arrival;   /* state of the rules */
    bool filtered;            /* true if the listener has filtered=yes */
    bool has_address;         /* true if `address` is the client's */
    unsigned char address[16];
    struct callout_question *callout; /* query, in CALLOUT */
    bool callout_local;               /* true if its recipient is in local_domains */
    struct filters *filters;          /* owned; NULL: none, or not needed yet */
    unsigned message_flags;           /* flags of the message in ASKED or FILTERING */
    struct wall arrived;
    uint32_t message_rcpts; /* recipients of the message in ASKED */
    uint64_t errors_paid;   /* number of errors whose delay is over or was not due */
    unsigned greetings;
    uint16_t port;    /* port of the client; 0 on a Unix socket */
    const char *name; /* "localhost" or "unknown": there is no DNS lookup */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
    struct dialogue_end end;          /* state of the dialogue for watches */
};

/* ---- receive_session.c ---------------------------------------------------------------------- */

/* Waits for the answer to this question. */
void receive_ask(struct receive_session *s, enum receive_question question, uint64_t token);
void receive_forget_question(struct receive_session *s);

/* Returns the session that waits for the answer; NULL: it is gone. */
struct receive_session *receive_find_asked(struct receive_sessions *all, uint64_t token,
                                           enum receive_question question);

/* Continues after an answer; receive_delay first lets the client wait. May free the session. */
void receive_go_on(struct receive_session *s);
void receive_delay(struct receive_session *s, int64_t delay_us);

/* Ends the session, because its login is no longer valid; a message at the queue process is
 * answered before. May free the session. */
void receive_end_login(struct receive_session *s);

/* Returns the name under which limits on sending count the client, perhaps in `room`. The next
 * function returns that of the user. */
struct slice receive_session_client(const struct receive_session *s,
                                    char room[RECEIVE_SEND_CLIENT_MAX]);
struct slice receive_session_login(const struct receive_session *s);

/* Returns our address of the connection; empty: none. */
void receive_local_address(const struct receive_session *s, char ret_ip[INET6_ADDRSTRLEN]);

/* ---- receive_login.c ------------------------------------------------------------------------ */

/* Sends a message of a login to the auth process. */
void receive_login_ask(struct receive_session *s, const struct server_auth *auth);

/* Ends a login that failed. May free the session. */
void receive_login_refuse(struct receive_session *s, struct server_reply reply, const char *why);

/* Requests a check of all valid logins from the auth process. */
void receive_login_check_all(struct receive_sessions *all);

/* Ends the login in progress. */
void receive_login_give_up(struct receive_session *s);

/* Ends the login at the auth process; the next function frees an accepted login. */
void receive_login_end(struct receive_session *s);
void receive_login_forget(struct receive_session *s);

/* Checks whether the user may send as this address. Returns code 0 if so, or without a login. */
struct server_reply receive_judge_sender(struct receive_session *s, struct slice sender);

/* ---- receive_message.c ---------------------------------------------------------------------- */

/* Passes an accepted MAIL to the filters. */
void receive_filter_mail(struct receive_session *s, const struct server_mail *mail);

/* Continues after a question to the filters; `answered` is the result of that call. */
void receive_after_filters(struct receive_session *s, bool answered);

/* Adds content that has passed the rules to the draft; `arg` is the session. */
void receive_put_content(void *arg, struct slice bytes);

/* Handles the end of a message. */
void receive_message_end(struct receive_session *s, const struct server_message *message);

/* Ends the message in ASKED with this reply. May free the session. */
void receive_message_decided(struct receive_session *s, const struct server_reply *reply);

/* Handles the answer of the queue process. Returns false if it does not decode. */
bool receive_submit_done(struct receive_sessions *all, struct slice body);

/* ---- receive_log.c -------------------------------------------------------------------------- */

void receive_log_connect(struct receive_session *s);
void receive_log_disconnect(struct receive_session *s);

/* Returns the name of the stage of the client. */
const char *receive_stage_name(const struct receive_session *s);

/* Logs a line in Postfix's form, without empty parts. */
void receive_log_event(const struct receive_session *s, const char *what, struct slice sender,
                       struct slice rcpt, const char *text, const char *rule);
void receive_log_refusal(const struct receive_session *s, struct slice sender, struct slice rcpt,
                         const char *text, const char *rule);
void receive_log_reply(const struct receive_session *s, const struct server_reply *reply,
                       struct slice sender, struct slice rcpt);
void receive_log_rule_reply(const struct receive_session *s, const struct server_reply *reply,
                            struct slice sender, struct slice rcpt, const char *rule);

/* Logs the actions of rules, each after the queue id or NOQUEUE. */
void receive_log_rules(const struct receive_session *s, const char *id);

#endif
