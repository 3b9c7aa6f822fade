/*
 * What follows from setting and cancelling interventions, a bit in each turn; see interventions.h.
 */
#include "interventions.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "park_key.h"
#include "pass_end.h"
#include "queue.h"
#include "spool_others.h"
#include "spool_search.h"

/* In one turn. */
#define SWEEP_RCPTS   500
#define WALK_MESSAGES 50
#define WALK_CROWD    100
#define WALK_RCPTS    200 /* of one message, in one reading */
#define WAKE_MESSAGES 100
#define TELL_DESTS    500
#define KEYS          20
/* Changes that one sweep sees to; with more, all messages leave memory, as with a reload. */
#define CHANGED_MAX 64

enum work_kind {
    WORK_WALK,
    WORK_WAKE,
    WORK_TELL,
    WORK_KEYS,
};

struct intervention_work {
    STAILQ_ENTRY(intervention_work) next;
    enum work_kind kind;
    struct intervention *about; /* a reference; NULL: all mail */
    bool make_due;
    struct spool_routed after; /* of WORK_WALK: where it has come to, */
    uint32_t after_rcpt;       /* and in the message behind that one */
    bool matched;              /* likewise: that message */
    bool rerouted;             /* .. and a route of it has changed */
    uint64_t look;             /* likewise: spool_filter */
    uint64_t cursor;           /* of WORK_TELL */
    char *key;                 /* owned: of WORK_WAKE; of WORK_KEYS, where it has come to */
};

static struct intervention_work *work_add(struct interventions *is, enum work_kind kind,
                                          struct intervention *about)
{
    struct intervention_work *w = mem_new(sizeof *w);

    w->kind = kind;
    w->look = ++is->looks;
    w->about = about != NULL ? intervention_ref(about) : NULL;
    STAILQ_INSERT_TAIL(&is->works, w, next);
    return w;
}

static void work_end(struct interventions *is, struct intervention_work *w)
{
    STAILQ_REMOVE(&is->works, w, intervention_work, next);
    intervention_unref(w->about);
    mem_free(w->key);
    mem_free(w);
}

static void forget_changed(struct intervention ***list, size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        intervention_unref((*list)[i]);
    }
    mem_free(*list);
    *list = NULL;
    *count = 0;
}

void interventions_work_fini(struct interventions *is)
{
    struct intervention_work *w;

    while ((w = STAILQ_FIRST(&is->works)) != NULL) {
        work_end(is, w);
    }
    forget_changed(&is->changed, &is->changed_count);
    forget_changed(&is->sweeping, &is->sweeping_count);
}

/* ---- what follows --------------------------------------------------------------------------- */

static void sweep_for(struct interventions *is, struct intervention *i)
{
    if (is->changed_count > CHANGED_MAX) {
        return; /* all leave memory anyhow */
    }
    is->changed = mem_resize(is->changed, is->changed_count + 1, sizeof(struct intervention *));
    is->changed[is->changed_count++] = intervention_ref(i);
}

static void wake(struct interventions *is, char *key)
{
    work_add(is, WORK_WAKE, NULL)->key = key;
}

void interventions_follow(struct queue *q, struct intervention *i, bool is_set)
{
    struct interventions *is = &q->interventions;

    switch (i->verb) {
    case INTERVENTION_PAUSE:
        if (is_set) {
            sweep_for(is, i);
        } else {
            wake(is, interventions_key(i));
            wake(is, mem_string(PARK_KEY_PAUSES));
        }
        return;
    case INTERVENTION_BOUNCE:
    case INTERVENTION_REDIRECT:
        sweep_for(is, i);
        work_add(is, WORK_WALK, i)->make_due = is_set;
        return;
    case INTERVENTION_LIMIT:
        is->limits++;
        if (strcmp(i->host, "*") == 0) {
            transports_load(q);
        }
        (void)work_add(is, WORK_TELL, i);
        return;
    case INTERVENTION_VERBS:
        UNREACHABLE("their number is no verb");
    }
}

void interventions_reroute(struct queue *q)
{
    struct interventions *is = &q->interventions;
    struct intervention_work *w;

    STAILQ_FOREACH(w, &is->works, next)
    {
        if (w->kind == WORK_WALK && w->about == NULL) {
            w->after = (struct spool_routed){0}; /* it begins anew */
            w->after_rcpt = 0;
            w->look = ++is->looks;
            return;
        }
    }
    (void)work_add(is, WORK_WALK, NULL);
}

void interventions_look_at_keys(struct queue *q)
{
    struct intervention_work *w;

    STAILQ_FOREACH(w, &q->interventions.works, next)
    {
        if (w->kind == WORK_KEYS) {
            mem_free(w->key); /* it begins anew */
            w->key = mem_string(PARK_KEY_PAUSE);
            return;
        }
    }
    work_add(&q->interventions, WORK_KEYS, NULL)->key = mem_string(PARK_KEY_PAUSE);
}

/* ---- sweep: messages in memory -------------------------------------------------------------- */

static bool is_about_rcpt(const struct interventions *is, const struct queue *q,
                          const struct active_msg *m, const struct active_rcpt *r)
{
    struct intervention_mail mail = {.sender = slice_string(m->sender),
                                     .class_name = slice_string(m->its_class->name),
                                     .domain = route_domain(slice_string(r->address))};
    struct route route;

    if (r->route_fixed) {
        struct slice nexthop = active_rcpt_nexthop(r);

        CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX */
        route.transport = active_rcpt_transport(r).ptr;
        memcpy(route.nexthop, nexthop.ptr, nexthop.len + 1);
    } else {
        route_address(q->conf, mail.sender, slice_string(r->address), &route);
    }
    mail.transport = route.transport;
    mail.nexthop = slice_string(route.nexthop);
    for (size_t i = 0; i < is->sweeping_count; i++) {
        if (intervention_matches(is->sweeping[i], &mail)) {
            return true;
        }
    }
    if (r->route_fixed && !conf_spool_routes(q->conf)) {
        return false;
    }
    /* Where a redirect takes it counts, too. */
    (void)interventions_route((struct queue *)(uintptr_t)q, mail.sender, mail.class_name,
                              slice_string(r->address), &route,
                              r->route_by_rule ? INTERVENE_FIXED : 0);
    mail.transport = route.transport;
    mail.nexthop = slice_string(route.nexthop);
    for (size_t i = 0; i < is->sweeping_count; i++) {
        if (intervention_matches(is->sweeping[i], &mail)) {
            return true;
        }
    }
    return false;
}

/* Returns how many recipients were looked at. */
static size_t sweep_message(struct queue *q, struct active_msg *m)
{
    size_t i;

    if (active_is_out(m) || m->state == ACTIVE_ENDED) {
        return 1;
    }
    if (q->interventions.sweeping_count > CHANGED_MAX) {
        queue_leave(q, m->id);
        return 10;
    }
    for (i = 0; i < m->rcpt_count; i++) {
        if (m->rcpts[i].address != NULL && is_about_rcpt(&q->interventions, q, m, &m->rcpts[i])) {
            queue_leave(q, m->id);
            return i + 10;
        }
    }
    return i + 1;
}

/* True when there is more. */
static bool sweep_some(struct queue *q)
{
    struct interventions *is = &q->interventions;
    size_t looked = 0;

    if (is->sweeping_count == 0) {
        if (is->changed_count == 0) {
            return false;
        }
        is->sweeping = is->changed;
        is->sweeping_count = is->changed_count;
        is->changed = NULL;
        is->changed_count = 0;
        active_sweep_begin(&q->active);
    }
    while (looked < SWEEP_RCPTS) {
        struct active_msg *m = active_sweep_next(&q->active);

        if (m == NULL) {
            forget_changed(&is->sweeping, &is->sweeping_count);
            return is->changed_count > 0;
        }
        looked += sweep_message(q, m);
    }
    return true;
}

/* ---- walk: messages on disk ----------------------------------------------------------------- */

/* What the walk has found out of a recipient. */
struct walked {
    uint32_t n;
    bool changed;
    const char *transport;
    char *nexthop; /* owned, when it has changed */
};

/* What of a message outlasts further calls of the spool. */
struct walk_message {
    char sender[SPOOL_SENDER_MAX + 1];
    char class_name[CLASS_NAME_MAX + 1];
    bool is_parked;
    bool waits; /* it is parked, or due later */
};

static bool is_about(const struct intervention *about, const struct walk_message *m,
                     struct slice address, const struct route *before, const struct route *after)
{
    struct intervention_mail mail = {.sender = slice_string(m->sender),
                                     .class_name = slice_string(m->class_name),
                                     .domain = route_domain(address),
                                     .transport = before->transport,
                                     .nexthop = slice_string(before->nexthop)};

    if (about == NULL || intervention_matches(about, &mail)) {
        return true;
    }
    mail.transport = after->transport;
    mail.nexthop = slice_string(after->nexthop);
    return intervention_matches(about, &mail);
}

/* Likewise where nothing is known of its route before it comes into memory. What is about a next
 * hop is not found so: that mail goes at its time. */
static bool is_about_address(const struct intervention *about, const struct walk_message *m,
                             struct slice address)
{
    struct intervention_mail mail = {.sender = slice_string(m->sender),
                                     .class_name = slice_string(m->class_name),
                                     .domain = route_domain(address),
                                     .transport = "",
                                     .nexthop = route_domain(address)};

    return about != NULL && intervention_matches(about, &mail);
}

/* Look at a page of its recipients. Returns their number. */
static size_t walk_rcpts(struct queue *q, struct intervention_work *w, struct msg_id id,
                         const struct walk_message *m)
{
    struct spool_rcpt page[WALK_RCPTS];
    struct walked walked[WALK_RCPTS];
    uint64_t own = queue_route_generation(q);
    size_t count = 0;

    if (spool_read_rcpts(q->spool, id, w->after_rcpt, true, WALK_RCPTS, page, &count) != 0) {
        return 0; /* it comes into memory at its time, and then is seen to */
    }
    for (size_t i = 0; i < count; i++) {
        const struct spool_rcpt *r = &page[i];
        struct route before, route;

        walked[i] = (struct walked){.n = r->n};
        w->after_rcpt = r->n;
        if (r->route_generation == SPOOL_ROUTE_FIXED ||
            spool_route_is_newer(q->spool, r->route_generation, own)) {
            w->matched = w->matched || is_about_address(w->about, m, r->address);
            continue; /* its pass says where it goes */
        }
        route_address(q->conf, slice_string(m->sender), r->address, &route);
        before = route;
        (void)interventions_route(q, slice_string(m->sender), slice_string(m->class_name),
                                  r->address, &route, 0);
        if (!is_about(w->about, m, r->address, &before, &route)) {
            continue;
        }
        w->matched = true;
        walked[i].changed = spool_route_is_stale(q->spool, r->route_generation, own) ||
                            !slice_equal(r->transport, slice_string(route.transport)) ||
                            !slice_equal(r->nexthop, slice_string(route.nexthop));
        walked[i].transport = route.transport;
        walked[i].nexthop = walked[i].changed ? mem_string(route.nexthop) : NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (walked[i].changed) {
            /* Only shown: a failure costs nothing but the batch, which the commit will report. */
            (void)spool_set_route(q->spool, id, walked[i].n, slice_string(walked[i].transport),
                                  slice_string(walked[i].nexthop), own);
            mem_free(walked[i].nexthop);
            w->rerouted = true;
        }
    }
    return count;
}

/* 0; -EAGAIN: it is not at hand yet; or it is of no concern. */
static int walk_read(struct queue *q, struct msg_id id, struct walk_message *ret)
{
    struct spool_message m;
    int rc = spool_is_claimed(q->spool, id) ? -EBUSY : spool_read(q->spool, id, &m);

    if (rc != 0) {
        return rc; /* in memory: the sweep sees to it */
    }
    if (!spool_is_own(q->spool, id) || (m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED) ||
        m.sender.len >= sizeof ret->sender || m.class_name.len >= sizeof ret->class_name) {
        return -EINVAL; /* or at another node */
    }
    memcpy(ret->sender, m.sender.len > 0 ? m.sender.ptr : "", m.sender.len);
    ret->sender[m.sender.len] = '\0';
    memcpy(ret->class_name, m.class_name.len > 0 ? m.class_name.ptr : "", m.class_name.len);
    ret->class_name[m.class_name.len] = '\0';
    ret->is_parked = m.parked.len > 0;
    ret->waits = ret->is_parked || m.due.us > clock_wall().us;
    return 0;
}

/* What narrows the walk down by an index; else all is looked at. */
static void walk_filter(const struct intervention_work *w, struct spool_filter *f)
{
    const struct intervention *i = w->about;

    if (i == NULL) {
        return;
    }
    if (i->scope == INTERVENTION_SENDER) {
        f->sender = i->host[0] == '\0' ? SLICE("<>") : slice_string(i->host);
    } else if (i->scope == INTERVENTION_CLASS) {
        f->class_name = slice_string(i->host);
    } else if (w->make_due && !i->is_pattern && strcmp(i->host, "*") != 0) {
        /* When one is cancelled what is stored is where it led. */
        f->destination = i->transport != NULL ? slice_string(i->target) : slice_string(i->host);
    }
}

/* Does so much new mail wait that old mail is not to be made due? Each message that is returned
 * becomes a new one, its report. */
static bool is_crowded(struct queue *q)
{
    struct spool_totals totals;

    return spool_totals(q->spool, &totals) == 0 &&
           totals.incoming > HASH_COUNT(q->active.msgs) + WALK_CROWD;
}

static void walk_go_on(struct intervention_work *w, const struct spool_routed *behind)
{
    w->after = *behind;
    w->after_rcpt = 0;
    w->matched = w->rerouted = false;
}

/* A message is through. */
static void walk_end_message(struct queue *q, struct intervention_work *w,
                             const struct spool_routed *at, const struct walk_message *m)
{
    int rc = 0;

    if (w->matched && w->make_due && m->waits) {
        rc = spool_set_due(q->spool, at->id, queue_clock_to_store(&q->clock, at->id, clock_wall()));
        import_now(&q->import);
    }
    if (rc == 0 && w->rerouted) {
        rc = pass_move(q, at->id, m->is_parked ? clock_wall() : WALL_NEVER);
    }
    if (rc != 0) {
        log_warning("spool: %s", spool_error(q->spool)); /* it goes at its time */
    }
    walk_go_on(w, at);
}

/* The next messages to be looked at. */
static int walk_page(struct queue *q, const struct intervention_work *w, struct spool_routed *ret,
                     size_t *ret_count)
{
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct msg_id ids[WALK_MESSAGES];
    struct spool_places own;
    int rc;

    if (w->about == NULL && spool_finds_stale_routes(q->spool)) {
        return spool_stale_routes(q->spool, queue_route_generation(q), &w->after, WALK_MESSAGES,
                                  ret, ret_count);
    }
    walk_filter(w, &f);
    f.after = w->after.id;
    if (spool_has_others(q->spool)) { /* which see to theirs */
        spool_own_places(q->spool, &own);
        f.places = &own;
        f.look = w->look;
    }
    rc = spool_scan(q->spool, &f, WALK_MESSAGES, ids, ret_count);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++) {
        ret[i] = (struct spool_routed){.id = ids[i]};
    }
    return rc;
}

/* What is not is asked for, all of it at once. */
static bool are_at_hand(struct queue *q, const struct spool_routed *page, size_t count)
{
    bool all = true;

    for (size_t i = 0; i < count; i++) {
        all &= spool_want(q->spool, page[i].id, SPOOL_WANT_ROWS) != -EAGAIN;
    }
    return all;
}

static bool walk_some(struct queue *q, struct intervention_work *w)
{
    struct spool_routed page[WALK_MESSAGES];
    size_t count = 0, rcpts = 0;
    struct walk_message m;
    int rc = walk_page(q, w, page, &count);

    if (rc == -EAGAIN || (rc == 0 && !are_at_hand(q, page, count))) {
        q->interventions.awaits = true;
        return true;
    }
    if (rc != 0) {
        log_warning("interventions: %s: mail that waits goes at its time", spool_error(q->spool));
        return false;
    }
    for (size_t i = 0; i < count && rcpts < 2 * WALK_RCPTS; i++) {
        rc = walk_read(q, page[i].id, &m);
        if (rc == -EAGAIN) {
            q->interventions.awaits = true;
            return true;
        }
        if (rc != 0) {
            walk_go_on(w, &page[i]);
            continue;
        }
        size_t read = walk_rcpts(q, w, page[i].id, &m);

        rcpts += read + 1;
        if (read == WALK_RCPTS) {
            return true; /* this message has more */
        }
        walk_end_message(q, w, &page[i], &m);
    }
    return count > 0;
}

/* ---- wake: mail that a pause has kept ------------------------------------------------------- */

static bool wake_some(struct queue *q, const struct intervention_work *w)
{
    struct msg_id ids[WAKE_MESSAGES];
    size_t count = 0;
    bool more = false; /* also of an engine that makes what it finds due by itself */
    int rc = spool_claim_parked(q->spool, slice_string(w->key), clock_wall(), WAKE_MESSAGES, ids,
                                &count, &more);

    if (rc == -EAGAIN) {
        q->interventions.awaits = true;
        return true;
    }
    if (rc != 0) {
        log_warning("interventions: %s: mail that was paused goes within the longest back-off",
                    spool_error(q->spool));
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        spool_unclaim(q->spool, ids[i]); /* it is due: it comes in its turn */
    }
    if (count > 0) {
        import_now(&q->import);
    }
    return count > 0 || more;
}

static bool look_at_keys(struct queue *q, struct intervention_work *w)
{
    struct slice keys[KEYS];
    const struct intervention *i;
    size_t count = 0;
    int rc = spool_parked_keys(q->spool, slice_string(w->key), KEYS, keys, &count);

    if (rc == -EAGAIN) {
        q->interventions.awaits = true;
        return true;
    }
    if (rc != 0) {
        log_warning("interventions: %s", spool_error(q->spool)); /* it goes at its time */
        return false;
    }
    for (size_t n = 0; n < count; n++) {
        struct slice name = slice_skip(keys[n], sizeof PARK_KEY_PAUSE - 1);

        if (park_key_kind(keys[n]) != PARK_PAUSE) {
            return false;
        }
        TAILQ_FOREACH(i, &q->interventions.list, next)
        {
            if (slice_equal(slice_string(i->name), name)) {
                break;
            }
        }
        if (i == NULL) {
            wake(&q->interventions, mem_copy(keys[n].ptr, keys[n].len));
        }
    }
    if (count > 0) {
        char *last = mem_copy(keys[count - 1].ptr, keys[count - 1].len);

        mem_free(w->key);
        w->key = last;
    }
    return count == KEYS;
}

/* ---- tell: limits --------------------------------------------------------------------------- */

static bool tell_some(struct queue *q, struct intervention_work *w)
{
    struct sched_dest_info info;

    for (int i = 0; i < TELL_DESTS; i++) {
        struct destination *d;

        if (!sched_dest_each(q->sched, &w->cursor, &info)) {
            return false;
        }
        d = destination_find(&q->destinations, info.transport, info.dest);
        if (d != NULL) {
            destination_retune(q, d);
        }
    }
    return true;
}

/* ---- a turn --------------------------------------------------------------------------------- */

bool interventions_are_in_force(const struct interventions *is)
{
    const struct intervention_work *w;

    STAILQ_FOREACH(w, &is->works, next)
    {
        if (w->kind == WORK_TELL) {
            return false;
        }
    }
    return is->changed_count == 0 && is->sweeping_count == 0;
}

/* A walk through all mail moves what is routed anew to other nodes, with its time; and a redirect
 * routes anew. The walk that makes such mail due would not find it any more, so it goes first. */
static bool comes_later(const struct interventions *is, const struct intervention_work *w)
{
    const struct intervention_work *other;

    STAILQ_FOREACH(other, &is->works, next)
    {
        if (w->kind == WORK_WALK && w->about == NULL && other->make_due) {
            return true;
        }
    }
    return false;
}

bool interventions_work(struct queue *q)
{
    struct interventions *is = &q->interventions;
    struct intervention_work *w = STAILQ_FIRST(&is->works);
    bool more;

    if (batch_is_blocked(&q->batch) || q->role->stopping) {
        return false;
    }
    more = sweep_some(q);
    if (w == NULL || is->awaits) {
        return more;
    }
    STAILQ_REMOVE_HEAD(&is->works, next); /* they take turns */
    STAILQ_INSERT_TAIL(&is->works, w, next);
    if (w->make_due && is_crowded(q)) {
        return more; /* a later turn looks again, within a second */
    }
    if (comes_later(is, w)) {
        return true;
    }
    switch (w->kind) {
    case WORK_WALK:
        more = walk_some(q, w);
        break;
    case WORK_WAKE:
        more = wake_some(q, w);
        break;
    case WORK_TELL:
        more = tell_some(q, w);
        break;
    case WORK_KEYS:
        more = look_at_keys(q, w);
        break;
    }
    if (!more) {
        work_end(is, w);
    }
    return true;
}
