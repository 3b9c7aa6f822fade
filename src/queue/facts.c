#include "facts.h"

#include <string.h>

#include "clock.h"
#include "queue.h"
#include "spool_handover.h"
#include "spool_search.h"

/* Period of searches for the oldest messages. */
#define OLDEST_PERIOD_US (2 * US_PER_S)

void facts_of_destination(const struct queue *q, uint32_t transport, struct slice dest,
                          struct destination_facts *ret_facts)
{
    const struct destination *d = destination_find(&q->destinations, transport, dest);

    *ret_facts =
        (struct destination_facts){.conf = q->conf,
                                   .transport = transport,
                                   .transport_name = transport_name(&q->transports, transport),
                                   .dest = dest,
                                   .nexthop = d != NULL ? d->nexthop : NULL,
                                   .nodes = q->transports.nodes,
                                   .history = d != NULL ? d->history : NULL};
    ret_facts->in_memory = sched_dest_get(q->sched, transport, dest, &ret_facts->info);
    sched_transport_get(q->sched, transport, &ret_facts->transport_info);
}

bool facts_is_own(const struct queue *q, const struct destination_facts *facts)
{
    struct slice nexthop = facts->nexthop != NULL ? slice_string(facts->nexthop) : facts->dest;
    struct spool_places own;

    if (!spool_has_others(q->spool)) {
        return true;
    }
    spool_own_places(q->spool, &own);
    return spool_places_has(
        &own, spool_partition_of(q->spool, slice_string(facts->transport_name), nexthop));
}

void facts_policy(const struct destination_facts *facts, struct policy *ret_policy)
{
    policy_for(facts->conf, slice_string(facts->transport_name),
               facts->nexthop != NULL ? slice_string(facts->nexthop) : facts->dest, ret_policy);
    transports_divide(facts->nodes, ret_policy);
}

void facts_of_delivery(const struct queue *q, struct sched_entry entry,
                       struct delivery_facts *ret_facts)
{
    const struct delivery *d = delivery_find(&q->active, entry.n);

    *ret_facts = (struct delivery_facts){.is_sent = d != NULL && d->sent,
                                         .is_awaited = d != NULL && d->is_awaited};
    if (ret_facts->is_sent) {
        const struct worker_process *agent = agent_of(&q->agents, d);

        ret_facts->role = agent->role;
        ret_facts->index = agent->index;
    }
}

void facts_of_queue(const struct queue *q, struct queue_facts *ret_facts)
{
    *ret_facts = (struct queue_facts){
        .storage_error = batch_is_blocked(&q->batch) ? spool_error(q->spool) : NULL,
        .lease_is_over = !node_lease_holds(&q->lease),
        .has_room = sched_has_room(q->sched),
        .messages = sched_totals(q->sched).messages,
        .messages_max = q->conf->qmgr_message_active_limit};
}

const enum spool_state facts_oldest_states[MEASURE_STATES] = {SPOOL_INCOMING, SPOOL_DEFERRED,
                                                              SPOOL_HOLD, SPOOL_CORRUPT};

/* Searches the message that arrived first in each state. An engine without an index of states would
 * have to read each file, so it is not searched. */
static void look_up_oldest(struct queue *q)
{
    for (size_t i = 0; i < MEASURE_STATES; i++) {
        const struct spool_filter f = {.states = 1u << facts_oldest_states[i]};
        struct wall *arrived = &q->measures.oldest[i];
        struct spool_message m;
        struct msg_id id;
        size_t count = 0;

        *arrived = (struct wall){0};
        if (!spool_due_by_scans(q->spool) && spool_scan(q->spool, &f, 1, &id, &count) == 0 &&
            count == 1 && spool_read(q->spool, id, &m) == 0) {
            *arrived = m.arrived;
        }
    }
}

void facts_of_oldest(struct queue *q, struct wall ret_arrived[MEASURE_STATES])
{
    struct measures *m = &q->measures;

    if (m->oldest_at.us == 0 || clock_mono().us - m->oldest_at.us >= OLDEST_PERIOD_US) {
        m->oldest_at = clock_mono();
        look_up_oldest(q);
    }
    memcpy(ret_arrived, m->oldest, sizeof m->oldest);
}
