/*
 * The queue process: spool and scheduler wired together. It holds the database and has no network.
 *
 *   WIRE_SUBMIT --> spool_submit --+                        +--> WIRE_SUBMIT_DONE, sched_open
 *   WIRE_RESULT --> settle, -------+--> one spool_commit ---+
 *                   sched_finished |        per turn        +--> (next turn)
 *   sched_next  --> defer, end ----+
 *          +------> WIRE_DELIVER (of committed messages only)
 *
 * What changes the spool is committed once per turn (batch.h); nothing is acknowledged before.
 *
 * This header has what the modules share: struct queue, in which each module has a struct of its
 * own, and its rules in a header of its own. Fields of such a struct are read and written by its
 * module; the others call its functions.
 */
#ifndef QUEUE_QUEUE_H
#define QUEUE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "active.h"
#include "auditor.h"
#include "batch.h"
#include "busiest.h"
#include "channel.h"
#include "class_count.h"
#include "conf.h"
#include "destination.h"
#include "flush.h"
#include "hash.h"
#include "inquiry.h"
#include "interventions.h"
#include "journal.h"
#include "log_sink.h"
#include "measures.h"
#include "node_lease.h"
#include "operation.h"
#include "owner.h"
#include "policies.h"
#include "queue_agent.h"
#include "queue_client.h"
#include "queue_clock.h"
#include "queue_damage.h"
#include "queue_external.h"
#include "queue_import.h"
#include "queue_park.h"
#include "queue_pass.h"
#include "requested.h"
#include "retry.h"
#include "rng.h"
#include "role.h"
#include "route.h"
#include "scheduler.h"
#include "spool.h"
#include "spool_routes.h"
#include "transports.h"
#include "watches.h"
#include "hooks.h"
#include "tls_question.h"
#include "tuning.h"
#include "wire.h"

struct event;

/* Since the start. */
struct queue_counts {
    uint64_t submitted;                             /* messages */
    uint64_t delivered, deferred, bounced, expired; /* recipients */
    uint64_t reports;                               /* made */
    uint64_t completed;                             /* control files that came to their end */
};

struct queue {
    struct role *role;
    const struct conf *conf;
    struct spool *spool;
    struct node_lease lease;
    struct sched *sched;
    struct active active;
    struct auditor auditor;
    struct busiest busiest;
    struct log_sink log_sinks[LOG_SINK_COUNT];
    struct rng rng;
    struct waiting_questions questions; /* of the control process */
    unsigned question_count;
    struct wall question_asked; /* the one that is being answered */
    struct inquiries inquiries;
    struct batch batch;
    struct destinations destinations;
    struct wall started; /* mail that is older wakes nothing */
    struct queue_clock clock;
    struct requested requested;
    struct damage damage;
    struct transports transports;
    struct worker_processes agents;
    struct clients clients;
    struct policies policies;
    struct tls_questions tls_questions;
    struct watches watches;
    struct hook_places hooks;
    struct channel *control;
    struct event *timer;
    struct event *commit_ended; /* NULL: they end at once */
    struct external external;
    bool pass_ended; /* spool_single_pass: the parent has been told */
    struct import import;
    struct awaited_reads reads;
    struct mono next_check; /* of free space, and of a failed storage */
    unsigned deferred;      /* without an attempt, in this turn */
    struct mono stop_at;    /* when stopping: give up on what is being delivered */
    struct queue_counts counts;
    struct class_counts class_counts;
    struct measures measures;
    struct send_counts *send_counts; /* owned */
    struct parked_mail parking;
    struct flushes flushes;
    struct interventions interventions;
    struct journal journal;
};

/* ---- queue.c ---- */

/* Take a message out of memory, whatever is under way of it: results still count, its pass has no
 * end of its own any more. */
void queue_drop(struct queue *q, struct msg_id id);

/* Something that the spool said -EAGAIN for may be at hand now: those that wait for it
 * try again. */
void queue_at_hand(struct queue *q);

/* Take it out of the scheduler but leave it to the spool as it is, to be claimed again. */
void queue_leave(struct queue *q, struct msg_id id);
/* Another node has it now: nothing of it is stored any more. There may be thousands, and each would
 * have to be read before its end could be found to be of no effect. */
void queue_lose(struct queue *q, struct msg_id id);
/* All that is claimed was lost: so is what is here without a claim, as the batch that had claimed
 * it has failed. */
void queue_lose_unclaimed(struct queue *q);

/* The tables by which mail is routed are others now: all of it is routed anew. */
void queue_reroute(struct queue *q);

/* The generation of routes that are found now (spool_routes.h). */
static inline uint64_t queue_route_generation(const struct queue *q)
{
    return spool_route_generation(q->spool, q->conf->route_generation);
}

/* How often free space and a failed storage are looked at. */
#define QUEUE_CHECK_PERIOD_US (1 * US_PER_S)

#endif
