/*
 * Queries: totals and destinations. They change nothing.
 */
#include "check.h"
#include "sched_private.h"

struct sched_totals sched_totals(const struct sched *s)
{
    struct sched_totals totals = {
        .messages = s->messages.count,
        .recipients = s->rcpt_count + s->deferred_rcpts,
        .entries_waiting = s->waiting_count,
        .entries_busy = s->busy_count,
        .destinations = s->dest_count - s->idle_count,
        .idle_destinations = s->idle_count,
        .dead_destinations = s->dead_count,
        .parked_destinations = s->parked_count,
        .decisions = s->decisions,
        .bytes = s->bytes + s->message_slab.bytes + s->job_slab.bytes + s->peer_slab.bytes +
                 s->entry_slab.bytes + s->messages.size * sizeof(struct ids_slot) +
                 s->busy_size * sizeof *s->busy + s->dest_size * sizeof *s->dests +
                 s->timers.size * sizeof(struct heap_node *),
    };

    for (uint32_t i = 0; i < s->transport_count; i++) {
        const struct transport *t = s->transports[i];
        const struct class_queue *q = &t->plain;
        totals.bytes += (t->wanting.size + t->unread.size) * sizeof(void *);
        for (; q != NULL; q = q == &t->plain ? t->class_queues : q->hh.next) {
            totals.bytes += (q->ready.size + q->fresh.size + q->attention.size + q->skipped.size) *
                            sizeof(void *);
        }
        if (t->dests != NULL) {
            totals.bytes += HASH_OVERHEAD(hh, t->dests);
        }
    }
    /* HASH_OVERHEAD counts the handles, which are part of structures that were already counted. */
    totals.bytes -= s->dest_count * sizeof(UT_hash_handle);
    return totals;
}

bool sched_is_delivering(const struct sched *s, struct sched_entry entry)
{
    return entry_find(s, entry) != NULL;
}

static enum sched_dest_state state_of(const struct dest *d)
{
    switch ((enum dest_state)d->state) {
    case DEST_READY:
        return d->probing ? SCHED_DEST_PROBING : d->idle ? SCHED_DEST_IDLE : SCHED_DEST_READY;
    case DEST_DEAD:
        return SCHED_DEST_DEAD_UNTIL;
    case DEST_SUSPENDED:
        return SCHED_DEST_SUSPENDED;
    }
    UNREACHABLE("no such state of a destination");
}

/* Returns false if the destination is forgotten, though it is not freed yet. */
static bool describe(const struct dest *d, struct sched_dest_info *ret_info)
{
    struct window window = d->window;

    if (d->idle) {
        double left = dest_memory_left(d->transport->sched, d->since_us);

        if (left <= 0) {
            return false;
        }
        if (!d->probing) {
            window_fade(&window, dest_limits(d), left);
        }
    }

    *ret_info = (struct sched_dest_info){
        .transport = d->transport->index,
        .dest = slice_of(d->name, d->name_len),
        .state = state_of(d),
        .until = d->state == DEST_READY ? (struct mono){0} : (struct mono){d->timer.at_us},
        .since = d->closed ? (struct mono){d->since_us} : (struct mono){0},
        .postponed = d->postponed,
        .handed_over = d->handed_over,
        .reason = reason_slice(d->reason),
        .window = window.size,
        .window_max = dest_limits(d)->max,
        .busy = d->busy_count,
        .waiting = d->waiting_count,
        .agents = dest_agents(d),
        .depth = dest_depth(d),
        .ring = dest_ring(d) != NULL ? dest_ring(d)->number : 0,
        .success = window.success,
        .failure = window.failure,
        .failed_cohorts = window.failed_cohorts,
        .failing = d->standing == STANDING_FAILING,
        .proven = d->standing == STANDING_PROVEN,
        .deaths = d->deaths,
        .messages = d->messages,
        .share = share_threshold(d->transport->sched),
        .parked = d->parking != NULL,
        .limits = dest_limits(d),
        .rate_delay_us = dest_rate_delay(d),
        .per_second = pace_per_second(&d->pace, d->transport->sched->now),
        .mean_us = pace_mean(&d->pace),
    };
    return true;
}

bool sched_dest_get(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_dest_info *ret_info)
{
    const struct dest *d;

    CHECK(transport < s->transport_count);
    d = dest_find(s->transports[transport], dest);
    return d != NULL && describe(d, ret_info);
}

bool sched_dest_each(const struct sched *s, uint64_t *cursor, struct sched_dest_info *ret_info)
{
    while (*cursor < s->dest_count) {
        if (describe(s->dests[(*cursor)++], ret_info)) {
            return true;
        }
    }
    return false;
}

bool sched_suspension_each(const struct sched *s, uint64_t *cursor,
                           struct sched_suspension *ret_suspension)
{
    while (*cursor < s->timers.count) {
        const struct timer *timer = CONTAINER_OF(s->timers.nodes[(*cursor)++], struct timer, node);
        const struct dest *d;

        if (timer->type != TIMER_DEST) {
            continue;
        }
        d = CONTAINER_OF(timer, struct dest, timer);
        if (d->postponed) {
            continue;
        }
        *ret_suspension = (struct sched_suspension){
            .transport = d->transport->index,
            .dest = slice_of(d->name, d->name_len),
            .is_dead = d->state == DEST_DEAD,
            .until = {timer->at_us},
            .deaths = d->deaths,
            .reason = reason_slice(d->reason),
        };
        return true;
    }
    return false;
}
