/*
 * Rings: agents that destinations share. See scheduler.h for the interface.
 *
 * A destination of a ring whose next entry needs an agent is closed, as if its window were full,
 * and stands in its ring's line. Before a transport selects, each of its rings with a free agent
 * shows the first of its line. The destination is opened: it is in the heap of its class queue and
 * may be selected like any other. So a ring costs the same however long its line is, and the
 * transport's step grows only with the number of its rings.
 *
 *           needs an agent              the ring has one           an entry of it starts
 *   (open) ----------------> in line --------------------> shown ------------------------> (open)
 *                               ^                            |
 *                               '----------------------------'
 *                                   the ring no longer has one
 *
 * A turn lasts some entries. An entry that starts during the turn while an agent has room
 * (dest_fits) needs no line. When an agent becomes free during the turn, the destination joins the
 * line in front, so it has that agent back. After its turn it starts entries only through the line;
 * its agents become free and go to others.
 *
 * Each destination that is shown in a transport can be selected. But no agent is reserved for it:
 * agents that this transport can't use now may be used by another one.
 */
#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* ---- agents --------------------------------------------------------------------------------- */

uint32_t dest_agents(const struct dest *d)
{
    uint32_t depth = dest_depth(d);

    return d->busy_count / depth + (d->busy_count % depth != 0);
}

bool dest_fits(const struct dest *d)
{
    return d->busy_count % dest_depth(d) != 0;
}

static void count_extra(struct dest *d, uint32_t change)
{
    d->transport->extra += change;
    d->transport->sched->extra += change;
}

static bool below(uint32_t agents, uint32_t promised, uint32_t limit)
{
    return limit == 0 || (uint64_t)agents + promised < limit;
}

bool ring_has_agent(const struct ring *r, uint32_t promised)
{
    const struct transport *t = r->transport;

    return below(r->agents, 0, r->policy.ring_limit) &&
           below(transport_agents(t), promised, r->policy.transport_limit) &&
           below(sched_agents(t->sched), promised, r->policy.total_limit);
}

/* ---- rings ---------------------------------------------------------------------------------- */

struct ring *ring_find(const struct transport *t, uint32_t number)
{
    struct ring *r;

    HASH_FIND(hh, t->rings, &number, sizeof number, r);
    return r;
}

struct ring *ring_need(struct transport *t, uint32_t number)
{
    struct ring *r = ring_find(t, number);
    struct sched *s = t->sched;

    if (r == NULL) {
        r = sched_alloc(s, sizeof *r);
        s->rings = mem_resize(s->rings, s->ring_count + 1, sizeof *s->rings);
        s->rings[s->ring_count++] = r;
        r->transport = t;
        r->number = number;
        TAILQ_INIT(&r->line);
        HASH_ADD(hh, t->rings, number, sizeof r->number, r);
    }
    return r;
}

void rings_free(struct transport *t)
{
    struct ring *r, *next;

    HASH_ITER(hh, t->rings, r, next)
    {
        CHECK(r->agents == 0);
        CHECK(TAILQ_EMPTY(&r->line));
        HASH_DELETE(hh, t->rings, r);
        sched_release(t->sched, r, sizeof *r);
    }
}

/* Lists the ring in its transport or removes it, after its line or its shown destination
 * changed. */
static void ring_list(struct ring *r)
{
    struct transport *t = r->transport;
    bool list = r->shown != NULL || !TAILQ_EMPTY(&r->line);

    if (list != r->listed) {
        r->listed = list;
        if (list) {
            t->sched->rings_listed++;
            TAILQ_INSERT_TAIL(&t->in_line, r, link);
        } else {
            t->sched->rings_listed--;
            TAILQ_REMOVE(&t->in_line, r, link);
        }
    }
}

/* Ends the ring's turn after an entry started: other rings go first. */
static void ring_turn_over(struct ring *r)
{
    struct transport *t = r->transport;

    r->shown = NULL;
    TAILQ_REMOVE(&t->in_line, r, link);
    TAILQ_INSERT_TAIL(&t->in_line, r, link);
    ring_list(r);
}

/* ---- line and turn -------------------------------------------------------------------------- */

static uint32_t turn_of(const struct dest *d)
{
    return dest_depth(d) > SCHED_RING_TURN ? dest_depth(d) : SCHED_RING_TURN;
}

static bool is_shown(const struct dest *d)
{
    return dest_ring(d)->shown == d;
}

bool ring_opens(const struct dest *d)
{
    return is_shown(d) || (d->turn_left > 0 && dest_fits(d));
}

static void line_leave(struct dest *d)
{
    if (d->in_line) {
        TAILQ_REMOVE(&dest_ring(d)->line, d, link);
        d->in_line = false;
    }
}

static void line_join(struct dest *d, bool in_front)
{
    struct dest_list *line = &dest_ring(d)->line;

    d->in_line = true;
    d->since_us = d->transport->sched->now.us;
    if (in_front) {
        TAILQ_INSERT_HEAD(line, d, link);
    } else {
        TAILQ_INSERT_TAIL(line, d, link);
    }
}

void ring_leave(struct dest *d)
{
    struct ring *r = dest_ring(d);

    if (r == NULL) {
        return;
    }
    line_leave(d);
    if (is_shown(d)) {
        r->shown = NULL;
    }
    ring_list(r);
}

void ring_place(struct dest *d, bool wants)
{
    struct ring *r = dest_ring(d);

    if (r == NULL) {
        return;
    }
    if (!wants) {
        ring_leave(d);
        if (d->busy_count == 0) {
            d->turn_left = 0;
        }
    } else if (!is_shown(d)) {
        if (d->keeps) {
            line_leave(d);
        }
        if (!d->in_line && !ring_opens(d)) {
            line_join(d, d->keeps);
        }
        ring_list(r);
    }
    d->keeps = false;
}

static void show(struct ring *r, struct dest *d)
{
    line_leave(d);
    r->shown = d;
    if (d->turn_left == 0) {
        d->turn_left = turn_of(d);
    }
    dest_refresh(d, NULL);
}

/* Puts a shown destination back into the line, in front. */
static void take_back(struct ring *r, struct dest *d)
{
    r->shown = NULL;
    d->keeps = true;
    dest_refresh(d, NULL);
}

/* May this destination, whose turn is over, have another turn and keep its agents? Not if other
 * rings wait, perhaps for these agents: then they become free first. */
static bool may_stay(const struct ring *r, const struct dest *d)
{
    return dest_fits(d) && r->transport->sched->rings_listed == 1;
}

bool transport_show_rings(struct transport *t)
{
    uint32_t promised = 0;
    bool any = false;
    struct ring *r;

    TAILQ_FOREACH(r, &t->in_line, link)
    {
        struct dest *d = r->shown != NULL ? r->shown : TAILQ_FIRST(&r->line);
        bool may = ring_has_agent(r, promised) || may_stay(r, d);

        promised += may && !dest_fits(d);
        if (may && r->shown == NULL) {
            show(r, d);
            any = true;
        } else if (!may && r->shown != NULL) {
            take_back(r, d);
        }
    }
    return any;
}

/* ---- started and ended entries -------------------------------------------------------------- */

static void count_in(struct dest *d, struct ring *r, uint32_t depth)
{
    d->policy->ring = r;
    d->policy->depth = depth;
    count_extra(d, d->busy_count - dest_agents(d));
    if (r != NULL) {
        r->agents += dest_agents(d);
    }
}

static void count_out(struct dest *d)
{
    struct ring *r = dest_ring(d);

    count_extra(d, dest_agents(d) - d->busy_count);
    if (r != NULL) {
        r->agents -= dest_agents(d);
    }
}

void dest_set_ring(struct dest *d, struct ring *r, uint32_t depth)
{
    if (d->policy == NULL) {
        d->policy = mem_new(sizeof *d->policy);
        count_in(d, r, depth);
    } else if (r != d->policy->ring || depth != d->policy->depth) {
        ring_leave(d);
        d->turn_left = 0;
        count_out(d);
        count_in(d, r, depth);
    }
}

void ring_entry_started(struct dest *d)
{
    struct ring *r = dest_ring(d);

    if ((d->busy_count - 1) % dest_depth(d) != 0) {
        count_extra(d, 1);
    } else if (r != NULL) {
        r->agents++;
    }
    if (r != NULL) {
        d->turn_left -= d->turn_left > 0;
        if (is_shown(d)) {
            ring_turn_over(r);
        }
    }
}

void ring_entry_ended(struct dest *d)
{
    struct ring *r = dest_ring(d);

    if (dest_fits(d)) {
        count_extra(d, -1U);
    } else if (r != NULL) {
        r->agents--;
        d->keeps = d->turn_left > 0;
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

static void ring_audit(const struct ring *r)
{
    const struct dest *d;
    uint64_t in_line = 0;

    CHECK(r->listed == (r->shown != NULL || !TAILQ_EMPTY(&r->line)));
    CHECK(r->shown == NULL || (dest_ring(r->shown) == r && !r->shown->in_line));
    CHECK(r->shown == NULL || dest_is_open(r->shown));
    TAILQ_FOREACH(d, &r->line, link)
    {
        CHECK(dest_ring(d) == r);
        CHECK(d->in_line);
        in_line++;
    }
    for (d = r->transport->dests; d != NULL; d = d->hh.next) {
        if (dest_ring(d) == r) {
            in_line -= d->in_line;
        }
    }
    CHECK(in_line == 0);
}

void rings_audit(const struct transport *t)
{
    const struct ring *r;
    const struct dest *d;
    uint64_t extra = 0, listed = 0;

    for (d = t->dests; d != NULL; d = d->hh.next) {
        bool waits = dest_has_room(d) && d->waiting_count > 0 && !d->held_back;

        extra += d->busy_count - dest_agents(d);
        CHECK(!d->in_line || (dest_ring(d) != NULL && waits));
        CHECK(!waits || d->in_line || dest_admitted(d));
        CHECK(!d->keeps);
        CHECK(d->turn_left == 0 || d->waiting_count + d->busy_count > 0);
        CHECK(d->turn_left == 0 || dest_ring(d) != NULL);
    }
    CHECK(t->extra == extra);
    for (r = t->rings; r != NULL; r = r->hh.next) {
        CHECK(r->transport == t);
        ring_audit(r);
        listed += r->listed;
    }
    TAILQ_FOREACH(r, &t->in_line, link)
    {
        CHECK(r->listed);
        listed--;
    }
    CHECK(listed == 0);
}
