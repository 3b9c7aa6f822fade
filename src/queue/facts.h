/*
 * Facts about waiting mail, for those who explain it: states and numbers, no words. The words are
 * in src/control (queue_gate.c, queue_why.c), which the API, the command line and the dashboard
 * share.
 *
 * Nothing here changes what becomes of mail. What is borrowed lasts until the queue process goes
 * on.
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
    struct slice dest;   /* the scheduler's name of it */
    const char *nexthop; /* as written; NULL: the queue process does not know it */
    bool in_memory;      /* the scheduler knows it: `info` is set */
    struct sched_dest_info info;
    struct sched_transport_info transport_info;
    unsigned nodes; /* that share limits of transports (transports_divide); 0 as 1 */
    const struct dest_history *history; /* NULL: nothing happened lately */
};

/* Keeps `dest`. */
void facts_of_destination(const struct queue *q, uint32_t transport, struct slice dest,
                          struct destination_facts *ret_facts);

/* Does it lie in a partition of this node, where there are others? Else true. */
bool facts_is_own(const struct queue *q, const struct destination_facts *facts);

/* What the configuration says of it; limits that nodes share, this node's part of them. */
void facts_policy(const struct destination_facts *facts, struct policy *ret_policy);

/* Where a delivery is. */
struct delivery_facts {
    bool is_sent;        /* else its process is being restarted */
    bool is_awaited;     /* another node waits for its end */
    enum wire_role role; /* of its process, and which of these */
    unsigned index;
};

void facts_of_delivery(const struct queue *q, struct sched_entry entry,
                       struct delivery_facts *ret_facts);

/* What holds for all mail. */
struct queue_facts {
    const char *storage_error; /* results can't be stored: nothing new is started; NULL: they can */
    bool lease_is_over;        /* this node's: nothing is delivered (node_lease.h) */
    bool has_room;             /* for another message in memory */
    uint32_t messages;         /* in memory */
    int64_t messages_max;
};

void facts_of_queue(const struct queue *q, struct queue_facts *ret_facts);

/* Of the messages in each of these states, when the oldest arrived (us 0: there is none). They are
 * looked up in the spool, at most every two seconds. */
extern const enum spool_state facts_oldest_states[MEASURE_STATES];
void facts_of_oldest(struct queue *q, struct wall ret_arrived[MEASURE_STATES]);

#endif
