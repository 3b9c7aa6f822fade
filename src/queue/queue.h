/*
 * The queue process: connects spool and scheduler. It has the spool open and no access to the
 * network.
 *
 *   WIRE_SUBMIT --> spool_submit --+                        +--> WIRE_SUBMIT_DONE, sched_open
 *   WIRE_RESULT --> settle, -------+--> one spool_commit ---+
 *                   sched_finished |        per turn        +--> (next turn)
 *   sched_next  --> defer, end ----+
 *          +------> WIRE_DELIVER (of committed messages only)
 *
 * Changes of the spool are committed once per turn (batch.h); nothing is acknowledged earlier.
 *
 * This header declares struct queue, in which each module has a struct of its own. Only its module
 * reads and writes the fields of such a struct; other modules call its functions.
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
#include "setting_fault.h"
#include "spool.h"
#include "spool_routes.h"
#include "transports.h"
#include "unstored.h"
#include "watches.h"
#include "hooks.h"
#include "tls_question.h"
#include "tuning.h"
#include "wire.h"

struct event;

/* Counts since the start. */
struct queue_counts {
    uint64_t submitted;                             /* messages */
    uint64_t delivered, deferred, bounced, expired; /* recipients */
    uint64_t reports;                               /* bounces and notices made */
    uint64_t completed;                             /* control files that have ended */
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
    struct waiting_questions questions; /* questions that wait for the spool */
    unsigned question_count;
    struct wall question_asked; /* time of the question that is being answered */
    struct inquiries inquiries;
    struct batch batch;
    struct destinations destinations;
    struct wall started; /* start of the process; older mail wakes nothing */
    struct queue_clock clock;
    struct requested requested;
    struct damage damage;
    struct unstored unstored;
    struct transports transports;
    struct worker_processes agents;
    struct clients clients;
    struct policies policies;
    struct tls_questions tls_questions;
    struct watches watches;
    struct hook_places hooks;
    struct channel *control;
    struct event *timer;
    struct event *commit_ended; /* NULL if commits are synchronous */
    struct external external;
    bool pass_ended; /* spool_single_pass: the parent has been asked to stop */
    struct import import;
    struct awaited_reads reads;
    struct mono next_check; /* next check of free space and of failed storage */
    unsigned deferred;      /* recipients deferred without an attempt in this turn */
    struct mono stop_at;    /* when stopping: end of the wait for deliveries in flight */
    struct queue_counts counts;
    struct class_counts class_counts;
    struct measures measures;
    struct send_counts *send_counts; /* owned */
    struct parked_mail parking;
    struct flushes flushes;
    struct setting_faults setting_faults;
    struct interventions interventions;
    struct journal journal;
};

/* ---- queue.c ---- */

/* Takes a message out of memory, even while deliveries are in flight: their results still count,
 * but the pass stores no end. */
void queue_drop(struct queue *q, struct msg_id id);

/* Lets everything that waits for data of the spool (-EAGAIN) try again, as the data may be loaded
 * now. */
void queue_at_hand(struct queue *q);

/* Takes a message out of the scheduler without a change of its rows, so that it can be claimed
 * again. */
void queue_leave(struct queue *q, struct msg_id id);
/* Drops a message that another node owns now; nothing of it is stored. Its steps in the batch are
 * dropped here, as thousands may be lost and each step would read its message in vain. */
void queue_lose(struct queue *q, struct msg_id id);
/* Loses all messages in memory that are not claimed, after all claims were lost. This includes
 * messages whose claim was in a batch that has failed. */
void queue_lose_unclaimed(struct queue *q);

/* Routes all mail again, since the routing tables have changed. */
void queue_reroute(struct queue *q);

/* Returns the generation of routes that are found now (spool_routes.h). */
static inline uint64_t queue_route_generation(const struct queue *q)
{
    return spool_route_generation(q->spool, q->conf->route_generation);
}

/* Interval between checks of free space and of failed storage. */
#define QUEUE_CHECK_PERIOD_US (1 * US_PER_S)

#endif
