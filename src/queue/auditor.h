/*
 * The auditor: searches all the time, in small steps, for stuck mail, which no event would move.
 *
 * Unnoticed stuck mail is the worst error of a queue manager. So the auditor compares the
 * structures of the running queue process: the scheduler with itself (sched_search_faults),
 * messages in memory with the scheduler and with the claims in the spool, deliveries in flight with
 * the scheduler and their agents, parked and due mail with the scheduler. A step examines a limited
 * number of things. So a round over memory takes about a minute, and longer above 300,000 things.
 * The rows of the spool are examined more slowly, 100 in each second.
 *
 * Something that looks wrong is first a suspicion. If it still looks wrong AUDIT_CONFIRM_US later,
 * it is a finding: it is logged with its queue id, counted, and repaired where that is safe. Mail
 * that no module has is given back to the spool and read again. In doubt mail is tried twice, and
 * never lost.
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
#define AUDIT_ROUND_S    60 /* number of steps that a round should take */
#define AUDIT_CONFIRM_US (30 * US_PER_S)
/* Suspicions at a time; further ones are found in a later round. */
#define AUDIT_SUSPICIONS_MAX 1000
#define AUDIT_WORDS_MAX      400

struct auditor {
    struct mono next;           /* time of the next step */
    struct sched_search search; /* position of the scheduler's own search */
    uint64_t messages_at, deliveries_at, claims_at;
    char *parked_at;       /* owned; last key examined; NULL: begin with the first */
    struct msg_id rows_at; /* position of the walk over rows, which is slower than a round */
    unsigned parts_done;   /* bits of enum part */
    struct mono round_began;
    struct suspicion *suspicions;
    uint64_t rounds, findings, repaired; /* counts since the start */
    struct wall last_round, last_finding;
    char last_words[AUDIT_WORDS_MAX]; /* text of the last finding */
    bool last_is_damage;              /* the last finding is damage on disk, no fault of ours */
};

void auditor_init(struct auditor *a);
void auditor_fini(struct auditor *a);

/* Does the next step if its time has come. Call it when all decisions of a turn have been
 * pulled. */
void auditor_step(struct queue *q);

/* Logs and counts a finding: a message on damaged pages, which is not delivered until a repair. */
void auditor_tell_damage(struct queue *q, struct msg_id id, const char *why);

#endif
