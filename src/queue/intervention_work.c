/*
 * The work after an override was set or cancelled, a part in each turn; see `interventions.h`.
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

/* Limits of one turn. */
#define SWEEP_RCPTS   500
#define WALK_MESSAGES 50
#define WALK_CROWD    100
#define WALK_RCPTS    200 /* recipients of one message in one call */
#define WAKE_MESSAGES 100
#define TELL_DESTS    500
#define KEYS          20
/* Overrides in one sweep. With more, all messages leave memory, as after a reload. */
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
    struct spool_routed after; /* position of WORK_WALK: the last message that is finished */
    uint32_t after_rcpt;       /* position in the next message */
    bool matched;              /* the override applies to the next message */
    bool rerouted;             /* a stored route of the next message was changed */
    bool failed;               /* WORK_WALK has ended early */
    bool moved;                /* a new route of the next message leads elsewhere */
    struct mono begun;         /* start of WORK_WALK: the routes changed then */
    uint64_t look;             /* for WORK_WALK: spool_filter.look */
    uint64_t cursor;           /* position of WORK_TELL */
    char *key;                 /* owned; key of WORK_WAKE, or position of WORK_KEYS */
};

static struct intervention_work *work_add(struct interventions *is, enum work_kind kind,
                                          struct intervention *about)
{
    struct intervention_work *w = mem_new(sizeof *w);

    w->kind = kind;
    w->begun = clock_mono();
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

/* ---- new work ------------------------------------------------------------------------------- */

static void sweep_for(struct interventions *is, struct intervention *i)
{
    if (is->changed_count > CHANGED_MAX) {
        return; /* all messages leave memory anyway */
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
            w->after = (struct spool_routed){0}; /* begin again */
            w->after_rcpt = 0;
            w->begun = clock_mono();
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
            mem_free(w->key); /* begin again */
            w->key = mem_string(PARK_KEY_PAUSE);
            return;
        }
    }
    work_add(&q->interventions, WORK_KEYS, NULL)->key = mem_string(PARK_KEY_PAUSE);
}

/* ---- destinations of new routes ------------------------------------------------------------- */

/* Ends the death of a new route's destination if it died before the change. The change is a reason
 * to try: a redirect may end because its site works again. */
static void revive_new_place(struct queue *q, const struct route *route, struct mono changed)
{
    uint32_t transport = transport_index(&q->transports, route->transport);
    struct slice dest = slice_string(route->destination);
    struct sched_dest_info info;

    if (sched_dest_get(q->sched, transport, dest, &info) && info.state == SCHED_DEST_DEAD_UNTIL &&
        !info.postponed && info.since.us < changed.us) {
        sched_revive(q->sched, clock_mono(), transport, dest);
    }
}

/* ---- sweep: messages in memory -------------------------------------------------------------- */

static bool is_about_mail(const struct interventions *is, struct intervention_mail *mail,
                          const struct route *route)
{
    mail->transport = route->transport;
    mail->nexthop = slice_string(route->nexthop);
    for (size_t i = 0; i < is->sweeping_count; i++) {
        if (intervention_matches(is->sweeping[i], mail)) {
            return true;
        }
    }
    return false;
}

/* Does an override of the sweep apply to the recipient's old or new route? */
static bool is_about_rcpt(struct queue *q, const struct active_msg *m, const struct active_rcpt *r)
{
    const struct interventions *is = &q->interventions;
    struct intervention_mail mail = {.sender = slice_string(m->sender),
                                     .class_name = slice_string(m->its_class->name),
                                     .domain = route_domain(slice_string(r->address))};
    struct route route;
    bool is_about;

    if (r->route_fixed) {
        struct slice nexthop = active_rcpt_nexthop(r);

        CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX limits it */
        route.transport = active_rcpt_transport(r).ptr;
        memcpy(route.nexthop, nexthop.ptr, nexthop.len + 1);
    } else {
        route_address(q->conf, mail.sender, slice_string(r->address), &route);
    }
    is_about = is_about_mail(is, &mail, &route);
    if (r->route_fixed && !conf_spool_routes(q->conf)) {
        return is_about;
    }
    (void)interventions_route(q, mail.sender, mail.class_name, slice_string(r->address), &route,
                              r->route_by_rule ? INTERVENE_FIXED : 0);
    is_about = is_about || is_about_mail(is, &mail, &route);
    if (is_about && !r->route_fixed) {
        revive_new_place(q, &route, is->sweep_begun);
    }
    return is_about;
}

/* Returns the number of recipients examined. */
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
        if (m->rcpts[i].address != NULL && is_about_rcpt(q, m, &m->rcpts[i])) {
            queue_leave(q, m->id);
            return i + 10;
        }
    }
    return i + 1;
}

/* Returns true if there is more to do. */
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
        is->sweep_begun = clock_mono();
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

/* A recipient in a walk. */
struct walked {
    uint32_t n;
    bool changed; /* the stored route must be written */
    bool moved;   /* the new route leads elsewhere */
    const char *transport;
    char *nexthop; /* owned; NULL unless `changed` */
};

/* Copies of a message's properties, because further calls of the spool invalidate them. */
struct walk_message {
    char sender[SPOOL_SENDER_MAX + 1];
    char class_name[CLASS_NAME_MAX + 1];
    bool is_parked;
    bool waits; /* parked, or due later */
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

/* Does the override apply to a recipient whose route is unknown until its message is in memory? An
 * override of a next hop is not found by this: that mail continues at its due time. */
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

/* Examines a page of a message's recipients, and returns their number. */
static size_t walk_rcpts(struct queue *q, struct intervention_work *w, struct msg_id id,
                         const struct walk_message *m)
{
    struct spool_rcpt page[WALK_RCPTS];
    struct walked walked[WALK_RCPTS];
    uint64_t own = queue_route_generation(q);
    size_t count = 0;

    if (spool_read_rcpts(q->spool, id, w->after_rcpt, true, WALK_RCPTS, page, &count) != 0) {
        return 0; /* its pass gets the new route at its due time */
    }
    for (size_t i = 0; i < count; i++) {
        const struct spool_rcpt *r = &page[i];
        struct route before, route;

        walked[i] = (struct walked){.n = r->n};
        w->after_rcpt = r->n;
        if (r->route_generation == SPOOL_ROUTE_FIXED ||
            spool_route_is_newer(q->spool, r->route_generation, own)) {
            w->matched = w->matched || is_about_address(w->about, m, r->address);
            continue; /* its pass finds the route */
        }
        route_address(q->conf, slice_string(m->sender), r->address, &route);
        before = route;
        (void)interventions_route(q, slice_string(m->sender), slice_string(m->class_name),
                                  r->address, &route, 0);
        if (!is_about(w->about, m, r->address, &before, &route)) {
            continue;
        }
        w->matched = true;
        walked[i].moved =
            r->transport.len > 0 && (!slice_equal(r->transport, slice_string(route.transport)) ||
                                     !slice_equal(r->nexthop, slice_string(route.nexthop)));
        walked[i].changed = walked[i].moved || r->transport.len == 0 ||
                            spool_route_is_stale(q->spool, r->route_generation, own);
        walked[i].transport = route.transport;
        walked[i].nexthop = walked[i].changed ? mem_string(route.nexthop) : NULL;
        if (walked[i].moved) {
            revive_new_place(q, &route, w->begun);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (walked[i].changed) {
            /* The route is only for lists. On a failure the commit returns the error. */
            (void)spool_set_route(q->spool, id, walked[i].n, slice_string(walked[i].transport),
                                  slice_string(walked[i].nexthop), own);
            mem_free(walked[i].nexthop);
            w->rerouted = true;
            w->moved = w->moved || walked[i].moved;
        }
    }
    return count;
}

/* Reads a message. Returns 0, -EAGAIN if it is not loaded, or another error to skip it. */
static int walk_read(struct queue *q, struct msg_id id, struct walk_message *ret)
{
    struct spool_message m;
    int rc = spool_is_claimed(q->spool, id) ? -EBUSY : spool_read(q->spool, id, &m);

    if (rc != 0) {
        return rc; /* in memory: the sweep handles it */
    }
    if (!spool_is_own(q->spool, id) || (m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED) ||
        m.sender.len >= sizeof ret->sender || m.class_name.len >= sizeof ret->class_name) {
        return -EINVAL; /* or another node owns it */
    }
    memcpy(ret->sender, m.sender.len > 0 ? m.sender.ptr : "", m.sender.len);
    ret->sender[m.sender.len] = '\0';
    memcpy(ret->class_name, m.class_name.len > 0 ? m.class_name.ptr : "", m.class_name.len);
    ret->class_name[m.class_name.len] = '\0';
    ret->is_parked = m.parked.len > 0;
    ret->waits = ret->is_parked || m.due.us > clock_wall().us;
    return 0;
}

/* Does the store have the override's target in this form? Addresses are stored as received, and a
 * target may have been converted (nexthop_canonical, idn.h). */
static bool is_stored_form(const struct intervention *i)
{
    return strstr(i->host, "xn--") == NULL &&
           slice_ends_nocase(slice_string(i->target), slice_string(i->host));
}

/* Narrows the walk by an index, if one helps. If not, all messages are read. */
static void walk_filter(const struct queue *q, const struct intervention_work *w,
                        struct spool_filter *f)
{
    const struct intervention *i = w->about;
    bool has_redirects;

    if (i == NULL || !is_stored_form(i)) {
        return;
    }
    has_redirects = interventions_count(&q->interventions, INTERVENTION_REDIRECT) >
                    (i->verb == INTERVENTION_REDIRECT ? 1 : 0);
    if (i->scope == INTERVENTION_SENDER) {
        f->sender = i->host[0] == '\0' ? SLICE("<>") : slice_string(i->host);
    } else if (i->scope == INTERVENTION_CLASS) {
        f->class_name = slice_string(i->host);
    } else if (w->make_due && !i->is_pattern && strcmp(i->host, "*") != 0 && !has_redirects) {
        /* Without a redirect, current or just cancelled, a stored route is the original one. */
        f->destination = i->transport != NULL ? slice_string(i->target) : slice_string(i->host);
    }
}

/* Does so much new mail wait that no old mail should be made due? Each message that is
 * returned creates a new one, its bounce. */
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
    w->matched = w->rerouted = w->moved = false;
}

/* Ends the work on a message. */
static void walk_end_message(struct queue *q, struct intervention_work *w,
                             const struct spool_routed *at, const struct walk_message *m)
{
    int rc = 0;

    if (((w->matched && w->make_due) || w->moved) && m->waits) {
        rc = spool_set_due(q->spool, at->id, queue_clock_to_store(&q->clock, at->id, clock_wall()));
        import_now(&q->import);
    }
    if (rc == 0 && w->rerouted) {
        rc = pass_move(q, at->id, m->is_parked ? clock_wall() : WALL_NEVER);
    }
    if (rc != 0) {
        log_warning("spool: %s", spool_error(q->spool)); /* it continues at its due time */
    }
    walk_go_on(w, at);
}

/* Finds the next messages of a walk. *ret_more without messages: the search has reached its limit
 * for one call, and continues. */
static int walk_page(struct queue *q, struct intervention_work *w, struct spool_routed *ret,
                     size_t *ret_count, bool *ret_more)
{
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct msg_id ids[WALK_MESSAGES];
    struct spool_places own;
    int rc;

    if (w->about == NULL && spool_finds_stale_routes(q->spool)) {
        return spool_stale_routes(q->spool, queue_route_generation(q), &w->after, WALK_MESSAGES,
                                  ret, ret_count);
    }
    walk_filter(q, w, &f);
    f.after = w->after.id;
    if (spool_has_others(q->spool)) { /* each walks over its own mail */
        spool_own_places(q->spool, &own);
        f.places = &own;
        f.look = w->look;
    }
    rc = spool_scan(q->spool, &f, WALK_MESSAGES, ids, ret_count);
    *ret_more = rc == 0 && *ret_count == 0 && spool_scan_goes_on(q->spool, &w->after.id);
    for (size_t i = 0; rc == 0 && i < *ret_count; i++) {
        ret[i] = (struct spool_routed){.id = ids[i]};
    }
    return rc;
}

/* Requests the messages that are not loaded, all at once. Are all loaded? */
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
    bool more = false;
    int rc = walk_page(q, w, page, &count, &more);

    if (rc == -EAGAIN || (rc == 0 && !are_at_hand(q, page, count))) {
        q->interventions.awaits = true;
        return true;
    }
    if (rc != 0) {
        log_warning("interventions: %s: mail that waits goes at its time", spool_error(q->spool));
        w->failed = true;
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
    return count > 0 || more;
}

/* ---- wake: mail that a pause has kept ------------------------------------------------------- */

static bool wake_some(struct queue *q, const struct intervention_work *w)
{
    struct msg_id ids[WAKE_MESSAGES];
    size_t count = 0;
    bool more = false; /* also set by an engine that makes messages due by itself */
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
        spool_unclaim(q->spool, ids[i]); /* due now, so it is read in its turn */
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
        log_warning("interventions: %s", spool_error(q->spool)); /* mail continues when due */
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

/* Must the walk over all mail wait for another one? A walk over all mail moves rerouted messages to
 * other nodes with their due times. A walk that makes such mail due must find it before that. */
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
    STAILQ_REMOVE_HEAD(&is->works, next); /* the works take turns */
    STAILQ_INSERT_TAIL(&is->works, w, next);
    if (w->make_due && w->about->verb == INTERVENTION_BOUNCE && is_crowded(q)) {
        return more; /* a turn within a second checks again */
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
    if (!more && w->kind == WORK_WALK && w->about == NULL && !w->failed) {
        interventions_store_routes(q);
    }
    if (!more) {
        work_end(is, w);
    }
    return true;
}
