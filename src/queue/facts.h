/*
 * Facts about waiting mail, as states and numbers. src/control makes texts of them (queue_gate.c,
 * queue_why.c), which the API, the command line and the dashboard share.
 *
 * These functions change no mail. Borrowed pointers are valid until the queue process continues.
 */
#ifndef QUEUE_FACTS_H
#define QUEUE_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "dest_history.h"
#include "measures.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "wire.h"

struct policy;
struct queue;

struct destination_facts {
    const struct conf *conf;
    uint32_t transport;
    const char *transport_name;
    struct slice dest;   /* the scheduler's name */
    const char *nexthop; /* as written; NULL: not in memory */
    bool in_memory;      /* in the scheduler: `info` is set */
    struct sched_dest_info info;
    struct sched_transport_info transport_info;
    unsigned nodes; /* nodes that share limits of transports (transports_divide); 0 counts as 1 */
    const struct dest_history *history; /* NULL: no recent events */
};

/* Borrows `dest`. */
void facts_of_destination(const struct queue *q, uint32_t transport, struct slice dest,
                          struct destination_facts *ret_facts);

/* Is the destination in a partition of this node? Always true in a spool of one node. */
bool facts_is_own(const struct queue *q, const struct destination_facts *facts);

/* Sets *ret_policy to the configured policy, with this node's part of limits that nodes share. */
void facts_policy(const struct destination_facts *facts, struct policy *ret_policy);

/* Place of a delivery. */
struct delivery_facts {
    bool is_sent;        /* false: its process is being restarted */
    bool is_awaited;     /* another node waits for its end */
    enum wire_role role; /* with `index`: its process */
    unsigned index;
};

void facts_of_delivery(const struct queue *q, struct sched_entry entry,
                       struct delivery_facts *ret_facts);

/* Facts about all mail. */
struct queue_facts {
    const char *storage_error; /* reason why results can't be stored and no delivery begins;
                                  NULL: storage works */
    bool lease_is_over;        /* this node's lease: nothing is delivered (node_lease.h) */
    bool has_room;             /* for another message in memory */
    uint32_t messages;         /* number in memory */
    int64_t messages_max;
};

void facts_of_queue(const struct queue *q, struct queue_facts *ret_facts);

/* Sets the arrival of the oldest message in each of these states (us 0: there is none). The spool
 * is searched at most every two seconds. */
extern const enum spool_state facts_oldest_states[MEASURE_STATES];
void facts_of_oldest(struct queue *q, struct wall ret_arrived[MEASURE_STATES]);

#endif
