/*
 * Settlement: what becomes of recipients of one message at one destination, after a delivery or
 * instead of one. A result takes this way, in a straight line, and so does what the queue process
 * decides by itself:
 *
 *     queue_result.c     decodes a result, checks it against what was handed out
 *         |
 *     settle_decide.c    per recipient: sent, deferred until a time, bounced or expired
 *         |
 *     settle_apply.c     into the open batch of the spool, and into the message in memory
 *         |
 *     settle_account.c   tells scheduler, history, journal and observer; counts; writes log lines
 *
 * Nothing of it is lasting before the batch is committed (batch.h). Log lines tell of what
 * happened, so they do not wait for the commit.
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

/* Why recipients are settled, which says when those of them go again that are deferred.
 *
 *                      handed out   deferred ones go again
 *   SETTLE_RESULT      yes          when their destination says (retry rules), or the message
 *   SETTLE_CRASHED     yes          likewise
 *   SETTLE_STOPPED     yes, unused  when their destination says
 *   SETTLE_WAITING     no           when their destination says: it waits, or they are too old
 *   SETTLE_DEAD        no           when the scheduler revives the destination, or the message
 *   SETTLE_HERE        no agent     with their message, by its back-off
 *   SETTLE_STUCK       no           after a reload, see park_key
 *   SETTLE_PAUSED      no           when the pause ends (interventions.h), see park_key
 */
enum settle_cause {
    SETTLE_RESULT,  /* an agent has answered: `result` */
    SETTLE_CRASHED, /* an agent has ended without an answer */
    SETTLE_STOPPED, /* an agent gave them back, as their destination takes nothing now */
    SETTLE_WAITING, /* their destination's time has not come, or they are too old to wait for it */
    SETTLE_DEAD,    /* the scheduler has declared their destination dead */
    SETTLE_HERE,    /* their transport needs no agent: error, retry, discard */
    SETTLE_STUCK,   /* they have no route */
    SETTLE_PAUSED,  /* an operator has paused them */
};

enum disposition {
    DISPOSITION_SENT,
    DISPOSITION_DEFERRED,
    DISPOSITION_SOFT_BOUNCED, /* deferred, because soft_bounce does not let it fail */
    DISPOSITION_BOUNCED,
    DISPOSITION_EXPIRED, /* bounced for its age */
};

/* One recipient. */
struct settled {
    struct wire_verdict said; /* its slices are borrowed until the settlement ends */
    bool quiet;               /* no log line: another has settled it, or nothing is known yet */
    /* Set by settle_decide. */
    struct active_rcpt *rcpt;
    enum disposition disposition;
    struct spool_verdict verdict;  /* what the spool is told */
    char status_text[STATUS_SIZE]; /* verdict.status, where said.status is not right */
    char *words;                   /* owned: said's slices where they were written here, or NULL */
};

struct settlement {
    enum settle_cause cause;
    struct active_msg *msg;
    struct destination *destination; /* their destination; NULL: nothing is known of it */
    struct delivery *delivery; /* which they were handed out in; NULL: in none. It ends here */
    const struct wire_result *result; /* of SETTLE_RESULT; borrowed */
    enum sched_outcome outcome;       /* of the delivery, for the scheduler */
    struct slice reason;              /* likewise; borrowed */
    bool is_logged;                   /* others write the lines about its recipients */
    char *park_key;                   /* owned: of SETTLE_STUCK, SETTLE_PAUSED */
    struct settled *rcpts;            /* owned, unless it is `one` */
    size_t count, size;
    struct settled one;
    /* Set by settle_decide. */
    char tls[SPOOL_TLS_MAX]; /* what the connection has shown: "dane-ee/TLSv1.3/CIPHER", or empty */
    struct wall again_at;    /* when the destination says that they go again; us 0: it does not */
    struct wall limit;       /* the first of the deferred ones is given up then */
    bool stopped;            /* nothing goes to the destination now: an agent said so */
    bool ends_message; /* all that is left of it is here, delivered, and nothing is reported */
};

/* Begin a settlement of at most `size` recipients; `delivery` may be NULL. */
void settlement_begin(struct settlement *s, enum settle_cause cause, struct active_msg *m,
                      struct destination *destination, struct delivery *delivery, size_t size);

/* Add a recipient; settle_decide CHECKs that it is in memory. */
struct settled *settlement_add(struct settlement *s, const struct wire_verdict *said);

/* Add all of the settlement's delivery, with the same verdict but for its number. */
void settlement_add_all(struct settlement *s, const struct wire_verdict *said);

/* Decide, apply, account, and end the settlement: its recipients leave memory, and its delivery. */
void queue_settle(struct queue *q, struct settlement *s);

/* The steps of it. */
void settle_decide(struct queue *q, struct settlement *s);
void settle_apply(struct queue *q, struct settlement *s);
void settle_account(struct queue *q, const struct settlement *s);

/* Are deferred ones of it to go when their destination says so? */
bool settlement_has_retry_rules(const struct settlement *s);

/* Is the recipient too old to be tried now? */
bool settle_is_expired(const struct destination *destination, const struct active_msg *m,
                       const struct active_rcpt *r);

#endif
