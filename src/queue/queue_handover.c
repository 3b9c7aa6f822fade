#include "queue_handover.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "queue.h"
#include "spool_handover.h"

static void tell(void *arg, void (*add)(void *to, const struct spool_suspension *s), void *to)
{
    const struct queue *q = arg;
    struct sched_suspension x;
    uint64_t cursor = 0;

    while (sched_suspension_each(q->sched, &cursor, &x)) {
        const struct destination *d = destination_find(&q->destinations, x.transport, x.dest);

        if (d != NULL) { /* otherwise there was no mail for long */
            add(to, &(struct spool_suspension){
                        .transport = slice_string(transport_name(&q->transports, x.transport)),
                        .nexthop = slice_string(d->nexthop),
                        .destination = x.dest,
                        .is_dead = x.is_dead,
                        .left_us = x.until.us - clock_mono().us,
                        .deaths = x.deaths,
                        .reason = x.reason});
        }
    }
}

void queue_hand_over(struct queue *q)
{
    spool_hand_over_from(q->spool, tell, q);
}

/* Returns the time left, at most the longest that this node's parameters allow. */
static int64_t bounded(const struct queue *q, const struct destination *d,
                       const struct spool_suspension *s)
{
    struct sched_limits limits = tuning_limits(q->conf);
    int64_t longest = d->tuning.policy.rate_delay_us;

    if (s->is_dead) {
        longest = limits.maximal_backoff_us > limits.minimal_backoff_us ? limits.maximal_backoff_us
                                                                        : limits.minimal_backoff_us;
    }
    return s->left_us < longest ? s->left_us : longest;
}

/* Is it a name without NUL, like those of this program? */
static bool name_fits(struct slice name, size_t max)
{
    return name.len > 0 && name.len <= max && memchr(name.ptr, '\0', name.len) == NULL;
}

/* Returns false if there is no such destination here, or its time is over. */
static bool take_over(struct queue *q, const struct spool_suspension *s)
{
    char nexthop[ROUTE_NEXTHOP_MAX + 1], name[ROUTE_DESTINATION_MAX + 1];
    struct sched_suspension x = {.is_dead = s->is_dead, .deaths = s->deaths, .reason = s->reason};
    struct destination *d;
    int64_t left_us;

    if (!name_fits(s->nexthop, ROUTE_NEXTHOP_MAX) ||
        !name_fits(s->destination, ROUTE_DESTINATION_MAX) ||
        !transport_find(&q->transports, s->transport, &x.transport)) {
        return false;
    }
    (void)snprintf(nexthop, sizeof nexthop, "%.*s", SLICE_ARGS(s->nexthop)); /* both fit */
    (void)snprintf(name, sizeof name, "%.*s", SLICE_ARGS(s->destination));
    d = destination_need(q, x.transport, name, nexthop);
    left_us = bounded(q, d, s);
    if (left_us <= 0) {
        return false;
    }
    x.dest = slice_string(d->name);
    x.until = mono_after(clock_mono(), left_us);
    sched_suspend(q->sched, clock_mono(), &x);
    destination_opened(q, d);
    return true;
}

/* Makes delivering processes close idle connections for destinations of these partitions. */
static void leave(struct queue *q, const struct spool_places *places)
{
    for (const struct destination *d = q->destinations.table; d != NULL; d = d->hh.next) {
        struct slice transport = slice_string(transport_name(&q->transports, d->transport));

        if (spool_places_has(places,
                             spool_partition_of(q->spool, transport, slice_string(d->nexthop)))) {
            agents_forget(q, transport, slice_string(d->nexthop));
        }
    }
}

void queue_leave_elsewhere(struct queue *q)
{
    struct spool_places places;

    if (spool_has_others(q->spool)) {
        spool_own_places(q->spool, &places);
        for (size_t i = 0; i < sizeof places.bits / sizeof places.bits[0]; i++) {
            places.bits[i] = ~places.bits[i];
        }
        leave(q, &places);
    }
}

void queue_take_over(struct queue *q)
{
    struct spool_places places;
    struct spool_suspension s;
    unsigned dead = 0, delayed = 0;

    if (spool_next_leaving(q->spool, &places)) {
        leave(q, &places);
    }
    if (spool_partitions_came(q->spool)) {
        park_tell_all(&q->parking); /* the scheduler does not have the keys parked there yet */
    }
    while (spool_next_suspension(q->spool, &s)) {
        if (take_over(q, &s)) {
            dead += s.is_dead;
            delayed += !s.is_dead;
        }
    }
    if (dead + delayed > 0) {
        destinations_trim(q);
        log_info("handed over by other nodes: %u destinations that are dead for now, and %u rate "
                 "delays that run",
                 dead, delayed);
    }
}
