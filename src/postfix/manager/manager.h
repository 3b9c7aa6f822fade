/*
 * A queue manager inside Postfix: the work of the queue process if its spool is Postfix's queue
 * directory and Postfix's own programs do the rest. It is the state of the agent kind `postfix`
 * (queue/agent_kind.h), and provides the services of the spool engine (services.h).
 *
 *     recipients.c        routes of recipients (rewrite_client.h, routing.h)
 *     calls.c             deliveries over private/TRANSPORT
 *     outcomes.c          results of recipients, from the logs of bounce(8)
 *     records.c           recipients that are deferred without an agent's attempt
 *     notifications.c     requests to services about recipients that no agent has tried
 *     conclusion.c        the end of a pass: bounce, trace, defer
 *     master_link.c       triggers, status messages and in-flow control
 *
 * Agents, bounce(8) and trivial-rewrite(8) are trusted with their mail, as Postfix trusts them, but
 * not with this process. Each answer is checked and bounded, and each wait has an end. A service
 * that dies, hangs or lies damages only the mail that it had.
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

/* Size of the path of a service's socket, relative to the queue directory. */
#define SERVICE_PATH_MAX 104

/* A message with work in progress apart from its deliveries. */
struct manager_message {
    UT_hash_handle hh;
    struct msg_id id;
    unsigned records; /* active records of the message, which its conclusion must wait for */
    bool was_redirected;
    bool is_probe;                 /* the message counts in manager.probes */
    size_t undone;                 /* number of recipients that must be tried again */
    struct conclusion *conclusion; /* owned; NULL = its pass is not over */
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
    TAILQ_HEAD(records, record) records; /* records that are sent first, then those that wait */
    unsigned records_sent;
    TAILQ_HEAD(, notification) notifications;
    struct buf request;         /* buffer for the current request */
    struct master_link *master; /* NULL = no master, as in tests */
};

/* Returns the state of a message that the engine has in memory; creates it if missing. */
struct manager_message *manager_message(struct manager *mg, struct msg_id id);
/* Frees a message's conclusion, and its whole state if it has no active records. */
void manager_forget(struct manager *mg, struct msg_id id);
/* Reports the end of one of manager_message.records. */
void manager_record_ended(struct manager *mg, struct msg_id id);

/* Builds the path "private/NAME" from the parameter's value, or from `preset`. */
void manager_service_path(const struct manager *mg, const char *parameter, const char *preset,
                          char room[SERVICE_PATH_MAX]);

/* Is this message a probe, which only shows how mail for its recipients would end? Then no
 * recipient is tried again. */
bool manager_is_probe(const struct queue_file_envelope *e);

/* Returns the message's trace flags: the reports that its sender requested, and a notice that an
 * announced delay has ended. */
unsigned manager_trace_flags(const struct manager *mg, const struct queue_file_envelope *e);

/* Logs a line about a recipient that no agent has tried, in the form of an agent's. */
void manager_log_rcpt(const struct manager *mg, const struct postfix_message *m,
                      struct slice recipient, struct slice dsn, const char *word,
                      struct slice text);

/* ---- recipients.c ---- */
void recipients_begin(struct manager *mg);
void recipients_end(struct manager *mg);
/* Implements postfix_services.ask. */
void recipients_ask(void *context, struct msg_id id, const struct queue_file_envelope *m,
                    const struct queue_file_rcpt *rcpt);

/* ---- calls.c  ---- */
/* Implements agent_kind.deliver. */
void calls_deliver(void *state, struct delivery *d);
void calls_end(struct manager *mg);

/* Returns the common part of all requests about a message. Its slices last as long as the engine
 * has the message in memory. */
struct delivery_request manager_request(const struct manager *mg, const struct postfix_message *m);
struct delivery_request_rcpt manager_request_rcpt(const struct postfix_rcpt *r);

/* ---- records.c ---- */
/* Defers these recipients without an attempt: has them logged and recorded with `text` ("4.3.0
 * reason"). */
void records_add(struct manager *mg, struct msg_id id, const uint32_t *ns, size_t count,
                 struct slice text);
void records_end(struct manager *mg);

/* ---- notifications.c ---- */
struct notification_plan {
    const struct postfix_message *message;
    struct delivery_request_rcpt rcpt;
    bool is_deferred; /* false = discarded, which counts as delivered */
    bool is_log_only; /* no service is called */
    struct slice status, reason;
    /* Called once, perhaps before notifications_add returns. ok false: a service did not accept the
     * request. */
    void (*done)(struct manager *mg, struct msg_id id, void *arg, bool ok);
    void *arg;
};
/* Logs a recipient, and calls the services that the plan needs. Slices are borrowed for the
 * call. */
void notifications_add(struct manager *mg, struct msg_id id, const struct notification_plan *plan);
void notifications_end(struct manager *mg);

/* ---- conclusion.c ---- */
/* Implements postfix_services.conclude. */
void conclusion_begin(void *context, struct msg_id id, bool deferred, struct wall due);
/* Continues a conclusion after the message's last record has ended. */
void conclusion_go_on(struct conclusion *c);
void conclusion_free(struct conclusion *c);

#endif
