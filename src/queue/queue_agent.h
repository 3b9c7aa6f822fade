/*
 * Delivering processes: sends them entries with their content, and receives results.
 *
 * Owns their channels, and the states of kinds of agents (agent_kind.h). The parent restarts a
 * process that has ended. Its deliveries are deferred at once; deliveries that were not sent yet
 * wait for QUEUE_AGENT_WAIT_US.
 *
 * Limits: QUEUE_AGENTS_MAX processes; QUEUE_INLINE_MAX bytes of content in flight.
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
/* Bytes of content in flight to agents. Beyond this limit agents request content when they need
 * it. */
#define QUEUE_INLINE_MAX (64u << 20)
/* Time that the parent has to restart a process before its mail is deferred. */
#define QUEUE_AGENT_WAIT_US (10 * US_PER_S)

struct worker_process {
    struct channel *channel; /* NULL while the process is being restarted */
    enum wire_role role;
    unsigned index;
    struct queue *queue;
    struct mono lost; /* time when the channel was closed */
};

struct worker_processes {
    struct worker_process at[QUEUE_AGENTS_MAX];
    unsigned count;
    unsigned deliver_count;    /* configured number of processes with ROLE_DELIVER */
    void *states[AGENT_KINDS]; /* results of agent_kind.begin */
};

void agents_begin(struct queue *q);
void agents_fini(struct worker_processes *all);

/* Adopts the connection of a process and takes the descriptor. Returns false if there are too many
 * processes; then the descriptor stays the caller's. */
bool agents_adopt(struct queue *q, const struct wire_peer *peer, int fd);

/* Defers deliveries for processes that have been away for too long; called about once a second. */
void agents_check(struct queue *q);

/* Sends content that agents have requested and that the spool has loaded since. */
void agents_at_hand(struct queue *q);

/* Makes delivering processes close idle connections. With an empty transport, all are closed and
 * all logins that rest are tried again, as an operator wants mail tried again. Otherwise only
 * connections for one destination are closed, which another node takes. */
void agents_forget(struct queue *q, struct slice transport, struct slice nexthop);

/* Breaks off the deliveries of a message that have not had their last look, as another node waits
 * for the message. A command that was started ends by itself. */
void agents_break_off(struct queue *q, struct msg_id id);

/* Calls kinds of agents that have no process; in each turn, before decisions. */
void agents_turn(struct worker_processes *all);

/* Handles SCHED_DEFER: the transport's agents record the deferral. Returns false if the queue
 * process must record it. */
bool agents_deferred(struct queue *q, const struct sched_action *action);

/* Handles SCHED_DELIVER. */
void queue_deliver(struct queue *q, const struct sched_action *action);

/* Returns the process that has a delivery or will get it. */
static inline const struct worker_process *agent_of(const struct worker_processes *all,
                                                    const struct delivery *d)
{
    return &all->at[d->agent];
}

/* Was the delivery overlooked: neither sent to a running process, nor deferred though its process
 * has been away for long? */
bool agents_overlooked(const struct worker_processes *all, const struct delivery *d);
/* Sends a delivery's process all deliveries that wait for it, or defers them if the process is
 * away. */
void agents_serve(struct queue *q, const struct delivery *d);

/* Finds the number of the process that delivers by SMTP and LMTP for this destination. Returns
 * false while the process is away. */
bool agents_number(struct queue *q, const char *dest, uint32_t *ret_number);

/* Returns the channel to the process with this number, or NULL while it is away. */
struct channel *agents_channel(const struct worker_processes *all, uint32_t number);

/* Adds the states of agents to the answer of "status". */
void agents_status(const struct worker_processes *all, json_t *answer);

#endif
