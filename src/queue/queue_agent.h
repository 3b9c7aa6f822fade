/*
 * The processes that deliver: entries go out to them with their content, and results come back.
 *
 * Owns their channels, and what they tell of their agents (agent_kind.h). A process that has ended
 * is restarted by the parent: what it had is deferred at once, what is for it waits for
 * QUEUE_AGENT_WAIT_US.
 *
 * Limit: QUEUE_AGENTS_MAX processes; QUEUE_INLINE_MAX bytes of content on their way.
 */
#ifndef QUEUE_QUEUE_AGENT_H
#define QUEUE_QUEUE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "active.h"
#include "agent_kind.h"
#include "channel.h"
#include "scheduler.h"
#include "times.h"
#include "wire.h"

struct queue;

#define QUEUE_AGENTS_MAX 128
/* Content on its way to agents; beyond it they ask for it when they need it. */
#define QUEUE_INLINE_MAX (64u << 20)
/* How long a process that died may take to come back before its mail is deferred. */
#define QUEUE_AGENT_WAIT_US (10 * US_PER_S)

struct worker_process {
    struct channel *channel; /* NULL: being restarted */
    enum wire_role role;
    unsigned index;
    struct queue *queue;
    struct mono lost; /* when the channel went away */
};

struct worker_processes {
    struct worker_process at[QUEUE_AGENTS_MAX];
    unsigned count;
    unsigned deliver_count;    /* how many of ROLE_DELIVER there are to be */
    void *states[AGENT_KINDS]; /* agent_kind.begin's */
};

void agents_begin(struct queue *q);
void agents_fini(struct worker_processes *all);

/* A process has connected. Takes the descriptor; false: there are too many, it stays the caller's.
 */
bool agents_adopt(struct queue *q, const struct wire_peer *peer, int fd);

/* Defer what waits for processes that have been away for too long; to be called now and then. */
void agents_check(struct queue *q);

/* Content that agents have asked for may be at hand now. */
void agents_at_hand(struct queue *q);

/* What deliver processes keep is to be forgotten: all (empty transport: an operator wants mail
 * tried again), idle connections and logins that rest; or connections to a destination, which
 * another node gets. */
void agents_forget(struct queue *q, struct slice transport, struct slice nexthop);

/* Break off the deliveries of a message, where it can't be delivered yet: another node waits for
 * it. A command that was started ends by itself. */
void agents_break_off(struct queue *q, struct msg_id id);

/* In each turn, before decisions: for kinds without a process. */
void agents_turn(struct worker_processes *all);

/* SCHED_DEFER: the agents of the transport record it. False: that is the queue process's own. */
bool agents_deferred(struct queue *q, const struct sched_action *action);

/* SCHED_DELIVER. */
void queue_deliver(struct queue *q, const struct sched_action *action);

/* The process that a delivery is for. */
static inline const struct worker_process *agent_of(const struct worker_processes *all,
                                                    const struct delivery *d)
{
    return &all->at[d->agent];
}

/* Was the delivery overlooked: not sent to a process that is there, nor deferred though its process
 * is away for long? */
bool agents_overlooked(const struct worker_processes *all, const struct delivery *d);
/* Give its process what waits for it, or defer that. */
void agents_serve(struct queue *q, const struct delivery *d);

/* The number of the process that delivers by SMTP and LMTP for this destination. False while it is
 * away. */
bool agents_number(struct queue *q, const char *dest, uint32_t *ret_number);

/* The channel to the process with this number; NULL while it is away. */
struct channel *agents_channel(const struct worker_processes *all, uint32_t number);

/* Add what the processes tell of their agents to the answer of "status". */
void agents_status(const struct worker_processes *all, json_t *answer);

#endif
