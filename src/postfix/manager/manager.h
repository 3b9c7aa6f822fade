/*
 * A queue manager inside Postfix: what the queue process does where its spool is Postfix's queue
 * directory and all else is done by Postfix's own programs. It is the state of the agent kind
 * `postfix` (queue/agent_kind.h), and the services of the spool engine (services.h).
 *
 *     recipients.c        where does a recipient go? (rewrite_client.h, routing.h)
 *     calls.c             deliveries over private/TRANSPORT
 *     outcomes.c          what became of their recipients, by the logs of bounce(8)
 *     records.c           recipients that are deferred without an agent's attempt
 *     notifications.c     what services are told of those that no agent was told of
 *     conclusion.c        the end of a pass: bounce, trace, defer
 *     master_link.c       triggers, status messages and in-flow control
 *
 * Agents, bounce(8) and trivial-rewrite(8) are trusted with the mail that they are given, as
 * Postfix trusts them, but not with this process: each answer is checked and bounded, each wait has
 * an end, and one that dies, hangs or lies harms the mail that it had.
 */
#ifndef POSTFIX_MANAGER_H
#define POSTFIX_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "delivery_request.h"
#include "hash.h"
#include "queue.h"
#include "rewrite_client.h"
#include "routing.h"
#include "services.h"
#include "settings.h"

struct call;
struct conclusion;
struct master_link;
struct notification;
struct record;

/* Path of a service's socket, relative to the queue directory. */
#define SERVICE_PATH_MAX 104

/* A message of which something is under way beside its deliveries. */
struct manager_message {
    UT_hash_handle hh;
    struct msg_id id;
    unsigned records; /* of it that are under way: its pass can't be concluded yet */
    bool was_redirected;
    bool is_probe;                 /* counted in manager.probes */
    size_t undone;                 /* recipients that are to be tried again */
    struct conclusion *conclusion; /* owned; NULL: its pass is not over */
};

struct manager {
    struct queue *q;
    struct settings settings;
    struct postfix_release release;
    struct postfix_services services;
    struct routing_params routing;
    struct rewrite_client *resolver;
    struct manager_message *messages;
    uint64_t probes;
    TAILQ_HEAD(, call) calls;
    TAILQ_HEAD(records, record) records; /* those that are sent first, then those that wait */
    unsigned records_sent;
    TAILQ_HEAD(, notification) notifications;
    struct buf request;         /* that is written at the moment; kept for its memory */
    struct master_link *master; /* NULL: there is no master, as in tests */
};

/* Of a message that the engine knows; made where there is none. */
struct manager_message *manager_message(struct manager *mg, struct msg_id id);
/* When nothing is under way of it. */
void manager_forget(struct manager *mg, struct msg_id id);
/* One of manager_message.records has ended. */
void manager_record_ended(struct manager *mg, struct msg_id id);

/* "private/NAME" of the parameter's value, or of `preset`. */
void manager_service_path(const struct manager *mg, const char *parameter, const char *preset,
                          char room[SERVICE_PATH_MAX]);

/* Is it sent to learn what would become of mail for its recipients? Then nothing is tried again. */
bool manager_is_probe(const struct queue_file_envelope *e);

/* What its sender wants to be told, and what else is to be told to it: a delay that has passed. */
unsigned manager_trace_flags(const struct manager *mg, const struct queue_file_envelope *e);

/* A line about a recipient that no agent has dealt with, in the form of an agent's. */
void manager_log_rcpt(const struct manager *mg, const struct postfix_message *m,
                      struct slice recipient, struct slice dsn, const char *word,
                      struct slice text);

/* ---- recipients.c ---- */
void recipients_begin(struct manager *mg);
void recipients_end(struct manager *mg);
/* postfix_services.ask */
void recipients_ask(void *context, struct msg_id id, const struct queue_file_envelope *m,
                    const struct queue_file_rcpt *rcpt);

/* ---- calls.c  ---- */
/* agent_kind.deliver */
void calls_deliver(void *state, struct delivery *d);
void calls_end(struct manager *mg);

/* What all requests about a message begin with. The slices last as long as the engine knows it. */
struct delivery_request manager_request(const struct manager *mg, const struct postfix_message *m);
struct delivery_request_rcpt manager_request_rcpt(const struct postfix_rcpt *r);

/* ---- records.c ---- */
/* These recipients are not tried: have that logged and recorded, with `text` ("4.3.0 reason"). */
void records_add(struct manager *mg, struct msg_id id, const uint32_t *ns, size_t count,
                 struct slice text);
void records_end(struct manager *mg);

/* ---- notifications.c ---- */
struct notification_plan {
    const struct postfix_message *message;
    struct delivery_request_rcpt rcpt;
    bool is_deferred; /* else it is discarded, as delivered */
    bool is_log_only; /* no service is told */
    struct slice status, reason;
    /* Once, perhaps before notifications_add returns. Not ok: a service did not take it. */
    void (*done)(struct manager *mg, struct msg_id id, void *arg, bool ok);
    void *arg;
};
/* Slices are borrowed for the call. */
void notifications_add(struct manager *mg, struct msg_id id, const struct notification_plan *plan);
void notifications_end(struct manager *mg);

/* ---- conclusion.c ---- */
/* postfix_services.conclude */
void conclusion_begin(void *context, struct msg_id id, bool deferred, struct wall due);
/* Nothing else is under way of it any more. */
void conclusion_go_on(struct conclusion *c);
void conclusion_free(struct conclusion *c);

#endif
