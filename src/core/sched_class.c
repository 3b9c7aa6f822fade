/*
 * Classes of mail: lanes, and whose turn it is. See sched.c.
 *
 * A transport has a lane for mail without a class and one for each class that has mail there. A
 * destination has a stripe for each lane that has mail for it; the first is within the destination,
 * which has a contest while there are several.
 */
#include <string.h>

#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* How many hidden stripes are shown with each start of a transport that is the bottleneck. */
#define SHOWN_PER_START 4

/* A stripe where others wait, too, or have done so. */
struct rival {
    UT_hash_handle hh; /* in contest.rivals, by lane */
    struct lane *lane;
    struct stripe *stripe;
    struct lane_turn turn;
    TAILQ_ENTRY(rival) link; /* in contest.shown or .hidden, while it waits */
    bool shown;
};
TAILQ_HEAD(rival_list, rival);

/* Lanes that share a destination. What is shown may be selected; it is in its lane's heap. */
struct contest {
    struct class_turns turns;
    struct rival *rivals; /* uthash */
    struct rival_list shown, hidden;
    TAILQ_ENTRY(contest) link; /* in transport.unshown, while it is open and something is hidden */
    bool listed;
    uint64_t more_at; /* transport.starts from which on hidden ones are shown */
};

#define LANE_OF(t)  CONTAINER_OF(t, struct lane, turn)
#define RIVAL_OF(t) CONTAINER_OF(t, struct rival, turn)

/* ---- classes -------------------------------------------------------------------------------- */

struct mail_class *class_find(const struct sched *s, struct slice name)
{
    struct mail_class *c;

    HASH_FIND(hh, s->classes, name.ptr, name.len, c);
    return c;
}

struct slice class_name_of(const struct mail_class *c)
{
    return c != NULL ? slice_of(c->name, c->name_len) : slice_of("", 0);
}

struct mail_class *class_whole(struct mail_class *c)
{
    return c != NULL && c->whole != NULL ? c->whole : c;
}

struct mail_class *class_need(struct sched *s, struct slice name)
{
    size_t of = slice_find(name, SCHED_GROUP_MARK);
    struct mail_class *c;

    if (name.len == 0) {
        return NULL;
    }
    CHECK(name.len <= SCHED_CLASS_NAME_MAX);
    c = class_find(s, name);
    if (c == NULL) {
        c = sched_alloc(s, sizeof *c + name.len);
        c->whole = of < name.len ? class_need(s, slice_of(name.ptr, of)) : NULL;
        c->weight = 1;
        c->name_len = (uint16_t)name.len;
        memcpy(c->name, name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, s->classes, c->name, c->name_len, c);
    }
    c->refs++;
    return c;
}

void class_unref(struct sched *s, struct mail_class *c)
{
    if (c != NULL && --c->refs == 0) {
        HASH_DELETE(hh, s->classes, c);
        class_unref(s, c->whole);
        sched_release(s, c, sizeof *c + c->name_len);
    }
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* Does the transport have lanes besides the one for mail without a class? */
static bool divided(const struct transport *t)
{
    return t->lanes != NULL;
}

void lane_ready_changed(struct lane *l)
{
    struct class_turns *ts = &l->transport->turns_of_lanes;
    bool waits = l->ready.count > 0;

    if (!divided(l->transport) || waits == l->turn.turn.waits) {
        return;
    }
    if (waits) {
        lane_turn_join(ts, &l->turn);
    } else {
        lane_turn_leave(ts, &l->turn);
    }
}

/* The lane for mail without a class is alone again. */
static void lanes_forget_turns(struct transport *t)
{
    class_turns_fini(&t->turns_of_lanes);
    class_turns_init(&t->turns_of_lanes, t->sched);
    t->lane.turn = (struct lane_turn){.of = NULL};
}

struct lane *lane_need(struct transport *t, struct mail_class *c)
{
    struct sched *s = t->sched;
    bool first = !divided(t);
    struct lane *l;

    if (c == NULL) {
        return &t->lane;
    }
    HASH_FIND(hh, t->lanes, &c, sizeof c, l);
    if (l == NULL) {
        l = sched_alloc(s, sizeof *l);
        lane_init(l, t);
        l->mail_class = c;
        c->refs++;
        HASH_ADD(hh, t->lanes, mail_class, sizeof l->mail_class, l);
        if (first) {
            lane_turn_add(&t->turns_of_lanes, &t->lane.turn, NULL);
            lane_ready_changed(&t->lane);
        }
        lane_turn_add(&t->turns_of_lanes, &l->turn, c);
    }
    return l;
}

static void lane_free(struct lane *l)
{
    struct transport *t = l->transport;
    struct sched *s = t->sched;

    HASH_DELETE(hh, t->lanes, l);
    if (s->resume == l) {
        s->resume = NULL;
    }
    lane_turn_remove(&t->turns_of_lanes, &l->turn);
    class_unref(s, l->mail_class);
    lane_fini(l);
    sched_release(s, l, sizeof *l);
    if (!divided(t)) {
        lanes_forget_turns(t);
    }
}

static void lane_check(struct lane *l)
{
    if (l->refs == 0 && l->mail_class != NULL && !turn_takes_part(&l->turn.turn)) {
        lane_free(l);
    }
}

void lane_unref(struct lane *l)
{
    CHECK(l->refs > 0);
    l->refs--;
    lane_check(l);
}

void lanes_free(struct transport *t)
{
    struct lane *l, *next;

    HASH_ITER(hh, t->lanes, l, next)
    {
        lane_free(l);
    }
    class_turns_fini(&t->turns_of_lanes);
    lane_fini(&t->lane);
}

/* NULL when none waits. */
static struct lane *lane_whose_turn_it_is(struct transport *t)
{
    struct lane_turn *first, *rested;

    if (!divided(t)) {
        return t->lane.ready.count > 0 ? &t->lane : NULL;
    }
    first = class_turns_first(&t->turns_of_lanes);
    while (divided(t) && (rested = lane_turn_next_rested(&t->turns_of_lanes)) != NULL) {
        lane_check(LANE_OF(rested));
    }
    return first != NULL ? LANE_OF(first) : NULL;
}

struct lane *transport_next_lane(struct transport *t)
{
    struct lane *l;

    do {
        l = lane_whose_turn_it_is(t);
    } while (l != NULL && lane_first_ready(l) == NULL); /* what it had is held now */
    return l;
}

void lane_took(struct lane *l)
{
    if (divided(l->transport)) {
        lane_turn_took(&l->transport->turns_of_lanes, &l->turn);
    }
}

/* ---- contests ------------------------------------------------------------------------------- */

static void rival_new(struct contest *c, struct stripe *st)
{
    struct rival *r = sched_alloc(st->dest->transport->sched, sizeof *r);

    r->lane = st->lane;
    r->stripe = st;
    lane_turn_add(&c->turns, &r->turn, st->lane->mail_class);
    HASH_ADD(hh, c->rivals, lane, sizeof r->lane, r);
    st->rival = r;
}

static void rival_free(struct contest *c, struct rival *r)
{
    lane_turn_remove(&c->turns, &r->turn);
    HASH_DELETE(hh, c->rivals, r);
    r->stripe->rival = NULL;
    sched_release(r->lane->transport->sched, r, sizeof *r);
}

static void contest_new(struct dest *d)
{
    struct contest *c = sched_alloc(d->transport->sched, sizeof *c);

    class_turns_init(&c->turns, d->transport->sched);
    TAILQ_INIT(&c->shown);
    TAILQ_INIT(&c->hidden);
    d->contest = c;
    rival_new(c, &d->stripe);
    if (d->stripe.waiting != NULL) {
        stripe_waits(&d->stripe, true);
    }
    contest_refresh(d, &d->stripe);
}

bool stripe_share(const struct stripe *st, struct turn_share *ret_share)
{
    const struct contest *c = st->dest->contest;

    if (c == NULL || st->rival == NULL) {
        return false;
    }
    *ret_share = lane_turn_share(&c->turns, &st->rival->turn);
    return true;
}

static void contest_free(struct dest *d)
{
    struct contest *c = d->contest;

    if (c->listed) {
        TAILQ_REMOVE(&d->transport->unshown, c, link);
    }
    class_turns_fini(&c->turns);
    d->contest = NULL;
    sched_release(d->transport->sched, c, sizeof *c);
}

/* It has no peers. */
static void stripe_free(struct stripe *st)
{
    struct dest *d = st->dest;
    struct lane *l = st->lane;

    CHECK(st->waiting == NULL);
    CHECK(!heap_has(&st->ready));
    if (st->rival != NULL) {
        rival_free(d->contest, st->rival);
    }
    st->lane = NULL;
    if (st != &d->stripe) {
        sched_release(d->transport->sched, st, sizeof *st);
    }
    lane_unref(l);
}

/* One alone has nobody to take turns with. */
static void contest_check(struct dest *d)
{
    struct contest *c = d->contest;

    if (c != NULL && HASH_COUNT(c->rivals) == 1 && d->stripe.rival != NULL) {
        if (d->stripe.rival->turn.turn.waits) {
            stripe_waits(&d->stripe, false);
        }
        rival_free(c, d->stripe.rival);
    }
    if (c != NULL && c->rivals == NULL) {
        contest_free(d);
        if (d->stripe.lane != NULL && d->stripe.peers == 0) {
            stripe_free(&d->stripe); /* it rested */
        }
        stripe_refresh(&d->stripe, dest_is_open(d));
    }
}

void contest_forget(struct dest *d)
{
    struct rival *r, *next;

    if (d->contest != NULL) {
        HASH_ITER(hh, d->contest->rivals, r, next)
        {
            stripe_free(r->stripe);
        }
        contest_free(d);
    }
}

const struct stripe *stripe_find(const struct dest *d, struct slice class_name)
{
    struct transport *t = d->transport;
    struct lane *l = &t->lane;
    const struct rival *r;
    struct mail_class *c;

    if (class_name.len > 0) {
        c = class_find(t->sched, class_name);
        HASH_FIND(hh, t->lanes, &c, sizeof c, l); /* NULL is the class of none of these */
    }
    if (l == NULL || d->contest == NULL) {
        return l != NULL && d->stripe.lane == l ? &d->stripe : NULL;
    }
    HASH_FIND(hh, d->contest->rivals, &l, sizeof l, r);
    return r != NULL ? r->stripe : NULL;
}

uint64_t stripe_parts(const struct stripe *st)
{
    struct turn_share share;

    return stripe_share(st, &share) ? (uint64_t)share.class_count * share.member_count : 1;
}

struct stripe *stripe_need(struct dest *d, struct lane *l)
{
    struct stripe *st = &d->stripe;
    struct rival *r;

    if (d->contest == NULL) {
        if (st->lane == l) {
            return st;
        }
        if (st->lane != NULL) {
            contest_new(d);
        }
    } else {
        HASH_FIND(hh, d->contest->rivals, &l, sizeof l, r);
        if (r != NULL) {
            return r->stripe;
        }
    }
    if (st->lane != NULL) {
        st = sched_alloc(d->transport->sched, sizeof *st);
        stripe_init(st, d);
    }
    st->lane = l;
    l->refs++;
    if (d->contest != NULL) {
        rival_new(d->contest, st);
    }
    return st;
}

void stripe_check(struct stripe *st)
{
    struct dest *d = st->dest;

    if (st->peers == 0 && (st->rival == NULL || !turn_takes_part(&st->rival->turn.turn))) {
        stripe_free(st);
        contest_check(d);
    }
}

/* May all that is shown not be selected now, as the transport is the bottleneck? */
static bool transport_limited(const struct transport *t)
{
    return t->rate_locked || (t->policy.process_limit > 0 && t->busy >= t->policy.process_limit);
}

static void show(struct contest *c, struct rival *r)
{
    TAILQ_REMOVE(&c->hidden, r, link);
    TAILQ_INSERT_TAIL(&c->shown, r, link);
    r->shown = true;
    stripe_refresh(r->stripe, true);
}

static void hide(struct contest *c, struct rival *r)
{
    TAILQ_REMOVE(&c->shown, r, link);
    TAILQ_INSERT_TAIL(&c->hidden, r, link);
    r->shown = false;
    stripe_refresh(r->stripe, false);
}

void stripe_waits(struct stripe *st, bool waits)
{
    struct contest *c = st->dest->contest;
    struct rival *r = st->rival;

    if (r == NULL) {
        return;
    }
    if (waits) {
        lane_turn_join(&c->turns, &r->turn);
        TAILQ_INSERT_TAIL(&c->hidden, r, link);
        if (dest_is_open(st->dest) && transport_limited(st->dest->transport)) {
            show(c, r);
        }
    } else {
        lane_turn_leave(&c->turns, &r->turn);
        TAILQ_REMOVE(r->shown ? &c->shown : &c->hidden, r, link);
        r->shown = false;
    }
}

void stripe_took(struct stripe *st)
{
    const struct transport *t = st->dest->transport;
    struct contest *c = st->dest->contest;
    bool fills = t->policy.transport_rate_delay_us > 0 ||
                 (t->policy.process_limit > 0 && t->busy + 1 >= t->policy.process_limit);
    struct lane_turn *first;

    if (c == NULL) {
        return;
    }
    /* A turn that another used has gone, too, or the order would stop at whoever is busy
     * elsewhere. */
    first = class_turns_first(&c->turns);
    lane_turn_took(&c->turns, first);
    if (!fills && class_turns_first(&c->turns) != &st->rival->turn && st->rival->shown) {
        hide(c, st->rival);
    }
}

/* For how many starts of the transport the lane whose turn it is has a destination for itself: as
 * many as the transport needs to come to that lane, after the other groups of its class. */
static uint64_t head_start(const struct lane *l)
{
    struct turn_share share;
    uint64_t members;

    if (!divided(l->transport)) {
        return 2;
    }
    share = lane_turn_share(&l->transport->turns_of_lanes, &l->turn);
    members = share.members_waiting > 0 ? share.members_waiting : 1;
    return 2 * (share.weights / share.weight) * members + 2;
}

static void contest_list(struct dest *d)
{
    struct contest *c = d->contest;
    bool list = dest_is_open(d) && !TAILQ_EMPTY(&c->hidden);

    if (list != c->listed) {
        c->listed = list;
        if (list) {
            TAILQ_INSERT_TAIL(&d->transport->unshown, c, link);
        } else {
            TAILQ_REMOVE(&d->transport->unshown, c, link);
        }
    }
}

void contest_refresh(struct dest *d, struct stripe *touched)
{
    struct contest *c = d->contest;
    bool room = dest_is_open(d);
    struct lane_turn *first, *rested;

    if (!room) {
        while (!TAILQ_EMPTY(&c->shown)) {
            hide(c, TAILQ_FIRST(&c->shown));
        }
    } else {
        first = class_turns_first(&c->turns);
        if (first != NULL && !RIVAL_OF(first)->shown) {
            show(c, RIVAL_OF(first));
            c->more_at = d->transport->starts + head_start(RIVAL_OF(first)->lane);
        }
    }
    if (touched != NULL) {
        stripe_refresh(touched, touched->rival->shown);
    }
    contest_list(d);
    while (d->contest != NULL && (rested = lane_turn_next_rested(&c->turns)) != NULL) {
        stripe_check(RIVAL_OF(rested)->stripe);
    }
}

void transport_show_more(struct transport *t)
{
    struct contest *c;

    t->starts++;
    if (!transport_limited(t)) {
        return;
    }
    for (int i = 0; i < SHOWN_PER_START; i++) {
        c = TAILQ_FIRST(&t->unshown);
        if (c == NULL || t->starts < c->more_at) {
            return;
        }
        show(c, TAILQ_FIRST(&c->hidden));
        TAILQ_REMOVE(&t->unshown, c, link);
        c->listed = !TAILQ_EMPTY(&c->hidden);
        if (c->listed) {
            TAILQ_INSERT_TAIL(&t->unshown, c, link);
        }
    }
}

/* ---- looking -------------------------------------------------------------------------------- */

struct stripe *dest_first_stripe(struct dest *d)
{
    struct lane_turn *first;

    if (d->contest == NULL) {
        return &d->stripe;
    }
    first = class_turns_first(&d->contest->turns);
    return first != NULL ? RIVAL_OF(first)->stripe : &d->stripe;
}

const struct stripe *dest_shown_stripe(const struct dest *d)
{
    const struct rival *r;

    if (d->contest == NULL) {
        return &d->stripe;
    }
    r = TAILQ_FIRST(&d->contest->shown);
    return r != NULL ? r->stripe : &d->stripe;
}

const struct stripe *dest_next_stripe(const struct dest *d, const struct stripe *st)
{
    const struct rival *r;

    if (st == NULL) {
        return &d->stripe;
    }
    if (d->contest == NULL) {
        return NULL;
    }
    r = st == &d->stripe ? d->contest->rivals : st->rival->hh.next;
    if (r != NULL && r->stripe == &d->stripe) {
        r = r->hh.next;
    }
    return r != NULL ? r->stripe : NULL;
}

/* ---- audit ---------------------------------------------------------------------------------- */

void contest_audit(const struct dest *d)
{
    const struct contest *c = d->contest;
    const struct rival *r;

    if (c == NULL) {
        CHECK(d->stripe.rival == NULL);
        CHECK((d->stripe.lane != NULL) == (d->stripe.peers > 0));
        return;
    }
    class_turns_audit(&c->turns);
    CHECK(c->rivals != NULL);
    for (r = c->rivals; r != NULL; r = r->hh.next) {
        CHECK(r->stripe->rival == r);
        CHECK(r->stripe->dest == d);
        CHECK(r->stripe->lane == r->lane);
        CHECK(r->turn.turn.waits == (r->stripe->waiting != NULL));
        CHECK(r->stripe->peers > 0 || turn_takes_part(&r->turn.turn));
        CHECK(!r->shown || dest_is_open(d));
        CHECK(r->shown == heap_has(&r->stripe->ready));
    }
    CHECK(c->listed == (dest_is_open(d) && !TAILQ_EMPTY(&c->hidden)));
    CHECK(!dest_is_open(d) || c->turns.waiting == 0 || !TAILQ_EMPTY(&c->shown));
}

void lanes_audit(const struct transport *t)
{
    const struct lane *l;
    uint64_t waiting = t->lane.turn.turn.waits;

    class_turns_audit(&t->turns_of_lanes);
    lane_audit(&t->lane);
    CHECK(!divided(t) || t->lane.turn.turn.waits == (t->lane.ready.count > 0));
    for (l = t->lanes; l != NULL; l = l->hh.next) {
        CHECK(l->transport == t);
        CHECK(l->turn.turn.waits == (l->ready.count > 0));
        CHECK(l->refs > 0 || turn_takes_part(&l->turn.turn));
        waiting += l->turn.turn.waits;
        lane_audit(l);
    }
    CHECK(waiting == t->turns_of_lanes.waiting);
}
