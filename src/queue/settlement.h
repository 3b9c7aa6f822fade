/*
 * Settlement: the end of a delivery attempt for recipients of one message at one destination.
 * Results of agents and decisions of the queue process take the same steps:
 *
 *     queue_result.c     decodes a result, checks it against the delivery
 *         |
 *     settle_decide.c    per recipient: sent, deferred until a time, bounced or expired
 *         |
 *     settle_apply.c     into the open batch of the spool, and into the message in memory
 *         |
 *     settle_account.c   informs scheduler, history, journal and observer; counts; writes log lines
 *
 * Nothing is durable before the batch is committed (batch.h). Log lines describe the attempt, so
 * they do not wait for the commit.
 */
#ifndef QUEUE_SETTLEMENT_H
#define QUEUE_SETTLEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "active.h"
#include "scheduler.h"
#include "spool.h"
#include "status.h"
#include "wire.h"

struct queue;
struct destination;

/* Cause of a settlement, which determines when deferred recipients are tried again.
 *
 *                      delivery     deferred recipients are tried again
 *   SETTLE_RESULT      yes          by the destination's retry rules, or the message's back-off
 *   SETTLE_CRASHED     yes          as SETTLE_RESULT
 *   SETTLE_STOPPED     yes, unused  by the destination's retry rules
 *   SETTLE_WAITING     no           by the destination's retry rules, unless they are too old
 *   SETTLE_DEAD        no           when the destination is revived, or by the back-off
 *   SETTLE_HERE        no agent     by the message's back-off
 *   SETTLE_STUCK       no           after a reload, see park_key
 *   SETTLE_PAUSED      no           when the pause ends (`interventions.h`), see park_key */
enum settle_cause {
    SETTLE_RESULT,  /* an agent's result: `result` */
    SETTLE_CRASHED, /* end of an agent without a result */
    SETTLE_STOPPED, /* returned by an agent, as their destination must wait now */
    SETTLE_WAITING, /* destination's time in the future, or recipients too old to wait for it */
    SETTLE_DEAD,    /* destination declared dead by the scheduler */
    SETTLE_HERE,    /* transport without agents: error, retry, discard */
    SETTLE_STUCK,   /* no usable route */
    SETTLE_PAUSED,  /* paused by an operator */
};

enum disposition {
    DISPOSITION_SENT,
    DISPOSITION_DEFERRED,
    DISPOSITION_SOFT_BOUNCED, /* deferred instead of bounced, by soft_bounce */
    DISPOSITION_BOUNCED,
    DISPOSITION_EXPIRED, /* bounced because of its age */
};

/* One recipient of a settlement. */
struct settled {
    struct wire_verdict said; /* verdict; its slices are borrowed until the settlement ends */
    bool quiet;               /* no log line: settled by another program, or without news */
    /* Results of settle_decide. */
    struct active_rcpt *rcpt;
    enum disposition disposition;
    struct spool_verdict verdict;  /* verdict for the spool */
    char status_text[STATUS_SIZE]; /* text of verdict.status, if it differs from the agent's */
    char *words;                   /* text and details that were written here; owned, or NULL */
};

struct settlement {
    enum settle_cause cause;
    struct active_msg *msg;
    struct destination *destination; /* destination of the recipients; NULL if unknown */
    struct delivery *delivery; /* delivery of the recipients, ended by the settlement; NULL: none */
    const struct wire_result *result; /* result of SETTLE_RESULT; borrowed */
    enum sched_outcome outcome;       /* outcome of the delivery, for the scheduler */
    struct slice reason;              /* reason of the outcome; borrowed */
    bool is_logged;                   /* another program writes the log lines of the recipients */
    char *park_key;                   /* key of SETTLE_STUCK, SETTLE_PAUSED; owned */
    struct settled *rcpts;            /* owned, unless it is `one` */
    size_t count, size;
    struct settled one;
    /* Results of settle_decide. */
    char tls[SPOOL_TLS_MAX]; /* proof of the connection: "dane-ee/TLSv1.3/CIPHER", or empty */
    struct wall again_at;    /* time of the next try by the destination's rules; us 0: none */
    struct wall limit;       /* time when the first deferred recipient expires */
    bool stopped;            /* deliveries to the destination stopped at an agent's request */
    bool ends_message;       /* all pending recipients are here, delivered and not reported */
};

/* Begins a settlement of at most `size` recipients; `delivery` may be NULL. */
void settlement_begin(struct settlement *s, enum settle_cause cause, struct active_msg *m,
                      struct destination *destination, struct delivery *delivery, size_t size);

/* Adds a recipient; settle_decide CHECKs that it is in memory. */
struct settled *settlement_add(struct settlement *s, const struct wire_verdict *said);

/* Adds all recipients of the settlement's delivery, each with this verdict and its own number. */
void settlement_add_all(struct settlement *s, const struct wire_verdict *said);

/* Decides, applies and accounts a settlement, and ends it: its recipients and its delivery leave
 * memory. */
void queue_settle(struct queue *q, struct settlement *s);

/* Steps of queue_settle. */
void settle_decide(struct queue *q, struct settlement *s);
void settle_apply(struct queue *q, struct settlement *s);
void settle_account(struct queue *q, const struct settlement *s);

/* Do deferred recipients wait by the retry rules of their destination? */
bool settlement_has_retry_rules(const struct settlement *s);

/* Is the recipient too old to be tried now? */
bool settle_is_expired(const struct destination *destination, const struct active_msg *m,
                       const struct active_rcpt *r);

#endif
