/*
 * The auditor: looks, all the time and a bit at a time, for stuck mail: mail that no event would
 * move.
 *
 * The worst a queue manager can do is to hold mail that no event will ever move, and to say
 * nothing. So while the queue process works, its structures are compared with one another: the
 * scheduler with itself (sched_search_faults), the messages in memory with the scheduler and with
 * the claims in the spool, the deliveries under way with their agents, what is parked and what is
 * due with who should know of it. A round over what is in memory takes about a minute, more when
 * that is more than 300,000 things, since a step looks at a bounded number of them; the rows of the
 * spool are gone through more slowly, 100 each second.
 *
 * What looks wrong is first a suspicion. Seen again AUDIT_CONFIRM_US later it is a finding: it is
 * logged with the queue id and in words, counted, and repaired where that is safe: mail that
 * no module has is given back to the spool, from where it is read anew. In doubt it is tried twice
 * and never lost.
 */
#ifndef QUEUE_AUDITOR_H
#define QUEUE_AUDITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler.h"
#include "spool.h"
#include "times.h"

struct queue;
struct suspicion;

#define AUDIT_STEP_US    (1 * US_PER_S)
#define AUDIT_ROUND_S    60 /* steps in which a round should be over */
#define AUDIT_CONFIRM_US (30 * US_PER_S)
/* Suspicions at once; more are found in a later round. */
#define AUDIT_SUSPICIONS_MAX 1000
#define AUDIT_WORDS_MAX      400

struct auditor {
    struct mono next;           /* step */
    struct sched_search search; /* the scheduler's own part */
    uint64_t messages_at, deliveries_at, claims_at;
    char *parked_at;       /* owned; NULL: from the start */
    struct msg_id rows_at; /* of a slower walk, which is no part of rounds */
    unsigned parts_done;   /* of this round */
    struct mono round_began;
    struct suspicion *suspicions;
    uint64_t rounds, findings, repaired; /* since the start */
    struct wall last_round, last_finding;
    char last_words[AUDIT_WORDS_MAX]; /* of the last finding */
};

void auditor_init(struct auditor *a);
void auditor_fini(struct auditor *a);

/* Look on, if it is time. To be called when the decisions of a turn have been pulled. */
void auditor_step(struct queue *q);

/* A message on damaged pages has been left alone. */
void auditor_tell_damage(struct queue *q, struct msg_id id, const char *why);

#endif
