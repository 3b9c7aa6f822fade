#include "facts.h"

#include "queue.h"

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
                                   .history = d != NULL ? d->history : NULL};
    ret_facts->in_memory = sched_dest_get(q->sched, transport, dest, &ret_facts->info);
    sched_transport_get(q->sched, transport, &ret_facts->transport_info);
}

void facts_of_delivery(const struct queue *q, struct sched_entry entry,
                       struct delivery_facts *ret_facts)
{
    const struct delivery *d = delivery_find(&q->active, entry.n);

    *ret_facts = (struct delivery_facts){.is_sent = d != NULL && d->sent};
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
        .has_room = sched_has_room(q->sched),
        .messages = sched_totals(q->sched).messages,
        .messages_max = q->conf->qmgr_message_active_limit};
}
