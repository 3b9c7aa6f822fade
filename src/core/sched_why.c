/*
 * Reasons why a recipient waits. The functions change nothing.
 */
#include "check.h"
#include "sched_private.h"

void sched_transport_get(const struct sched *s, uint32_t transport,
                         struct sched_transport_info *ret_info)
{
    const struct transport *t;

    CHECK(transport < s->transport_count);
    t = s->transports[transport];
    *ret_info = (struct sched_transport_info){
        .dead = t->reason != NULL,
        .since = t->reason != NULL ? t->died : (struct mono){0},
        .until = t->reason != NULL ? (struct mono){t->dead.at_us} : (struct mono){0},
        .reason = reason_slice(t->reason),
        .busy = t->busy,
        .waiting = t->waiting,
        .agents = transport_agents(t),
        .process_limit = t->policy.process_limit,
        .rate_delay_us = t->policy.transport_rate_delay_us,
    };
}

struct sched_window_step sched_window_step(const struct sched *s)
{
    return s->step;
}

/* ---- gates ---------------------------------------------------------------------------------- */

/* Adds a gate. An open gate has no times. A closed gate that opens at a set time goes before those
 * that open at an earlier one. */
static void gate(struct sched_wait *w, struct sched_gate g)
{
    size_t at = w->gate_count++;

    CHECK(at < SCHED_GATES_MAX);
    g.since.us = g.closed ? g.since.us : 0;
    g.until.us = g.closed ? g.until.us : 0;
    for (; at > 0 && g.until.us > w->gates[at - 1].until.us; at--) {
        w->gates[at] = w->gates[at - 1];
    }
    w->gates[at] = g;
}

static bool reached(uint32_t value, uint32_t limit)
{
    return limit > 0 && value >= limit;
}

/* Returns the gate of the transport's own limit, or of the ring's limit if only that is set or
 * reached. `d` may be NULL. */
static struct sched_gate transport_limit(const struct transport *t, const struct dest *d)
{
    const struct ring *r = d != NULL ? dest_ring(d) : NULL;
    uint32_t own = t->policy.process_limit, of_ring = r != NULL ? r->policy.transport_limit : 0;
    struct sched_gate g = {.type = SCHED_GATE_TRANSPORT_LIMIT,
                           .closed = reached(t->busy, own),
                           .value = t->busy,
                           .limit = own,
                           .since = t->full};

    if (!g.closed && of_ring > 0 && (own == 0 || reached(transport_agents(t), of_ring))) {
        g.closed = !dest_admitted(d) && reached(transport_agents(t), of_ring);
        g.value = transport_agents(t);
        g.limit = of_ring;
        g.since.us = d->in_line ? d->since_us : 0;
    }
    return g;
}

/* Adds the gate of a limit of a ring, in agents. */
static void ring_gate(const struct dest *d, enum sched_gate_type type, uint32_t agents,
                      uint32_t limit, struct sched_wait *w)
{
    if (limit > 0) {
        gate(w, (struct sched_gate){.type = type,
                                    .closed = agents >= limit && !dest_admitted(d),
                                    .value = agents,
                                    .limit = limit,
                                    .since = {d->in_line ? d->since_us : 0}});
    }
}

/* Adds the gates that open at a set time. `d` may be NULL here and below: it then has no gates. */
static void timed_gates(const struct transport *t, const struct dest *d, struct sched_wait *w)
{
    gate(w, (struct sched_gate){.type = SCHED_GATE_TRANSPORT_DEAD,
                                .closed = t->reason != NULL,
                                .since = t->died,
                                .until = {t->dead.at_us}});
    if (d != NULL) {
        struct mono since = {d->since_us}, until = {d->timer.at_us};

        gate(w, (struct sched_gate){.type = SCHED_GATE_DEST_DEAD,
                                    .closed = d->state == DEST_DEAD,
                                    .since = since,
                                    .until = until});
        gate(w, (struct sched_gate){.type = SCHED_GATE_DEST_RATE,
                                    .closed = d->state == DEST_SUSPENDED,
                                    .since = since,
                                    .until = until});
    }
    gate(w, (struct sched_gate){.type = SCHED_GATE_TRANSPORT_RATE,
                                .closed = t->rate_locked,
                                .since = {t->rate.at_us - t->policy.transport_rate_delay_us},
                                .until = {t->rate.at_us}});
}

/* Adds the gates that open when a delivery ends. */
static void counted_gates(const struct transport *t, const struct dest *d, struct sched_wait *w)
{
    const struct ring *r = d != NULL ? dest_ring(d) : NULL;
    uint32_t limit = d != NULL ? transport_standing_limit(t, d->standing) : UINT32_MAX;

    if (d != NULL) {
        gate(w, (struct sched_gate){.type = SCHED_GATE_WINDOW,
                                    .closed = d->busy_count >= dest_capacity(d),
                                    .value = dest_agents(d),
                                    .limit = d->window.size,
                                    .since = {d->since_us}});
    }
    if (r != NULL) {
        ring_gate(d, SCHED_GATE_RING, r->agents, r->policy.ring_limit, w);
    }
    if (limit < UINT32_MAX && (d->standing == STANDING_FAILING || d->held_back)) {
        gate(w, (struct sched_gate){.type = SCHED_GATE_FAILING,
                                    .closed = d->held_back,
                                    .value = t->busy_by[d->standing],
                                    .limit = limit,
                                    .since = {d->since_us}});
    }
    gate(w, transport_limit(t, d));
    if (r != NULL) {
        ring_gate(d, SCHED_GATE_AGENTS, sched_agents(t->sched), r->policy.total_limit, w);
    }
}

static void gates_of(const struct transport *t, const struct dest *d, struct sched_wait *w)
{
    timed_gates(t, d, w);
    counted_gates(t, d, w);
}

static void describe_waiting(const struct peer *p, struct sched_wait *w)
{
    uint64_t before = tree_sum_before(&waiting_type, &p->node);
    struct turn_share share;

    gates_of(peer_dest(p)->transport, peer_dest(p), w);
    if (dest_queue_share(p->queue, &share) && share.classes_waiting > 1) {
        gate(w, (struct sched_gate){.type = SCHED_GATE_CLASS,
                                    .closed = true,
                                    .value = share.weight,
                                    .limit = share.weights});
    }
    if (dest_queue_share(p->queue, &share) && share.members_waiting > 1) {
        gate(w, (struct sched_gate){.type = SCHED_GATE_GROUP,
                                    .closed = true,
                                    .value = 1,
                                    .limit = share.members_waiting});
    }
    gate(w, (struct sched_gate){.type = SCHED_GATE_BEHIND,
                                .closed = before > 0,
                                .value = before,
                                .since = {p->job->message->queued_s * US_PER_S}});
}

static void describe_busy(const struct sched *s, const struct entry *e, struct sched_wait *w)
{
    const struct busy_slot *slot = &s->busy[e->slot];

    w->entry.n = slot->id;
    gate(w, (struct sched_gate){.type = SCHED_GATE_BUSY, .closed = true, .since = slot->started});
}

static void describe_unread(const struct message *m, struct sched_wait *w)
{
    gate(w, (struct sched_gate){.type = SCHED_GATE_UNREAD,
                                .closed = true,
                                .value = m->rcpt_count,
                                .limit = m->rcpt_limit > 0 ? (uint64_t)m->rcpt_limit : 0,
                                .since = {m->queued_s * US_PER_S}});
}

void sched_why_dest(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_wait *ret_wait)
{
    const struct dest *d;

    CHECK(transport < s->transport_count);
    d = dest_find(s->transports[transport], dest);
    *ret_wait = (struct sched_wait){.transport = transport, .dest = dest};
    gates_of(s->transports[transport], d, ret_wait);
    if (d != NULL) {
        gate(ret_wait, (struct sched_gate){.type = SCHED_GATE_BEHIND,
                                           .closed = d->waiting_count > 0,
                                           .value = d->waiting_count});
    }
}

/* ---- recipients ----------------------------------------------------------------------------- */

#define GROUP_NONE UINT32_MAX

struct grouping {
    const uint32_t *rcpts;
    size_t count;
    uint32_t *group;
    struct sched_wait *waits;
    size_t wait_count;
};

/* Puts those recipients of an entry that are in g->rcpts into a group. Creates the group for the
 * first of them, and then returns true. */
static bool take_entry(struct grouping *g, const struct entry *e, uint32_t *group)
{
    bool found = false;

    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t n = entry_rcpts(e)[i];
        size_t from = 0, to = g->count;

        while (from < to) {
            size_t middle = from + (to - from) / 2;

            if (g->rcpts[middle] < n) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        if (from == g->count || g->rcpts[from] != n) {
            continue;
        }
        if (*group == GROUP_NONE) {
            const struct dest *d = peer_dest(e->peer);

            *group = (uint32_t)g->wait_count++;
            g->waits[*group] = (struct sched_wait){.transport = d->transport->index,
                                                   .dest = slice_of(d->name, d->name_len),
                                                   .entries = e->peer->entries};
            found = true;
        }
        g->group[from] = *group;
    }
    return found;
}

static void group_peer(const struct sched *s, struct grouping *g, const struct peer *p)
{
    uint32_t waiting = GROUP_NONE, busy = GROUP_NONE, count = 0;
    const struct entry *e;

    TAILQ_FOREACH(e, &p->waiting, link)
    {
        count++;
        if (take_entry(g, e, &waiting)) {
            describe_waiting(p, &g->waits[waiting]);
        }
    }
    if (count == p->entries) {
        return;
    }
    TAILQ_FOREACH(e, &peer_dest(p)->busy, link)
    {
        if (e->peer == p && take_entry(g, e, &busy)) {
            describe_busy(s, e, &g->waits[busy]);
        }
    }
}

size_t sched_why(const struct sched *s, struct sched_msg msg, const uint32_t *rcpts, size_t count,
                 uint32_t *ret_group, struct sched_wait *ret_waits)
{
    struct grouping g = {
        .rcpts = rcpts, .count = count, .group = ret_group, .waits = ret_waits, .wait_count = 0};
    uint32_t unread = GROUP_NONE;
    const struct message *m = message_find(s, msg);
    const struct job *j;

    if (m == NULL) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        ret_group[i] = GROUP_NONE;
    }
    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        for (const struct order_node *n = j->peers.first; n != NULL; n = n->next) {
            group_peer(s, &g, CONTAINER_OF(n, const struct peer, ring));
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (ret_group[i] == GROUP_NONE) {
            if (unread == GROUP_NONE) {
                unread = (uint32_t)g.wait_count++;
                ret_waits[unread] = (struct sched_wait){0};
                describe_unread(m, &ret_waits[unread]);
            }
            ret_group[i] = unread;
        }
    }
    return g.wait_count;
}
