/*
 * Shares of the active queue: which destination holds more than its share, what is parked, and when
 * parked mail is asked for. See scheduler.h for the rule and sched.c for the method.
 *
 * A destination's messages in memory are its peers: a message has one job per transport and a job
 * one peer per destination. So both counts are kept where peers are made and freed.
 */
#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* A question brings at least so many messages, so that a fast site with a narrow window is not fed
 * by a disk read per delivery. */
#define BATCH_MIN 50

/* It is doubled so often at most; see sched_admitted. */
#define DOUBLINGS_MAX 5

/* After the answer "none now, but more is parked" (a disk that fails) it is asked again only after
 * so long, or the two would talk to each other without end. */
#define ASK_AGAIN_US (1 * US_PER_S)

/* ---- the threshold -------------------------------------------------------------------------- */

/* Places that neither a message holds nor an answer may fill. */
static uint64_t free_places(const struct sched *s)
{
    uint64_t taken = (uint64_t)s->messages.count + s->asked;

    return taken < s->limits.message_active_limit ? s->limits.message_active_limit - taken : 0;
}

uint64_t share_threshold(const struct sched *s)
{
    uint64_t places = free_places(s), share = places * s->limits.destination_share / 100;

    return s->limits.destination_share == 0 ? UINT64_MAX : share == 0 && places > 0 ? 1 : share;
}

/* What keeps the window busy until more is read. A probe is one message. */
static uint64_t batch(const struct dest *d)
{
    uint64_t wanted = 4 * (uint64_t)d->window.size;

    if (d->probing) {
        return 1;
    }
    wanted = wanted > BATCH_MIN ? wanted : BATCH_MIN;
    return d->parking != NULL ? wanted << d->parking->doublings : wanted;
}

/* Below this the window may run dry before more is read. */
static uint64_t low_water(const struct dest *d)
{
    return (batch(d) + 1) / 2;
}

/* Classes by a few bits of their names: with many of them some are taken for others, and then wait
 * for others' parked mail as if there were no classes. */
static uint64_t class_bit(struct slice class_name)
{
    uint32_t hash = 2166136261; /* FNV-1a: the same everywhere */

    for (size_t i = 0; i < class_name.len; i++) {
        hash = (hash ^ (unsigned char)class_name.ptr[i]) * 16777619;
    }
    return UINT64_C(1) << (hash >> 26);
}

#define EVERY_CLASS UINT64_MAX

bool sched_class_share_full(const struct sched *s, uint32_t transport, struct slice dest,
                            struct slice class_name)
{
    const struct dest *d;
    const struct stripe *st;

    CHECK(transport < s->transport_count);
    d = dest_find(s->transports[transport], dest);
    if (d == NULL) {
        return false;
    }
    st = stripe_find(d, class_name);
    return (d->parking != NULL && (d->parking->classes & class_bit(class_name)) != 0) ||
           (st != NULL && st->peers > 0 && st->peers >= share_threshold(s));
}

bool sched_share_full(const struct sched *s, uint32_t transport, struct slice dest)
{
    return sched_class_share_full(s, transport, dest, slice_of("", 0));
}

/* ---- what is parked ------------------------------------------------------------------------- */

#define WANTING(n) CONTAINER_OF(n, struct parking, wanting)

/* Whoever has least comes first, and then whoever has waited longest. */
static bool parking_before(const struct parking *a, const struct parking *b)
{
    return a->dest->messages != b->dest->messages ? a->dest->messages < b->dest->messages
                                                  : a->turn < b->turn;
}

bool parking_less(const struct heap_node *a, const struct heap_node *b)
{
    return parking_before(WANTING(a), WANTING(b));
}

bool share_wants(const struct dest *d)
{
    const struct parking *parking = d->parking;

    return parking->asked == 0 && !parking->put_off && d->state != DEST_DEAD &&
           d->messages < low_water(d);
}

void share_refresh(struct dest *d)
{
    struct parking *parking = d->parking;
    struct heap *wanting = &d->transport->wanting;
    bool wants;

    if (parking == NULL) {
        return;
    }
    wants = share_wants(d);
    if (wants && heap_has(&parking->wanting)) {
        heap_moved(wanting, &parking->wanting);
    } else if (wants) {
        parking->turn = ++d->transport->sched->serial;
        heap_add(wanting, &parking->wanting);
    } else if (heap_has(&parking->wanting)) {
        heap_remove(wanting, &parking->wanting);
    }
}

static void park_at(struct dest *d, uint64_t classes)
{
    struct sched *s = d->transport->sched;

    if (d->parking == NULL) {
        d->parking = sched_alloc(s, sizeof *d->parking);
        d->parking->dest = d;
        heap_node_init(&d->parking->wanting);
        s->parked_count++;
    }
    d->parking->since_asked = true;
    d->parking->classes |= classes;
    share_refresh(d);
}

void share_forget(struct dest *d)
{
    struct sched *s = d->transport->sched;
    struct parking *parking = d->parking;

    if (parking == NULL) {
        return;
    }
    if (heap_has(&parking->wanting)) {
        heap_remove(&d->transport->wanting, &parking->wanting);
    }
    if (parking->put_off) {
        TAILQ_REMOVE(&s->put_off, parking, link);
    }
    s->asked -= parking->asked;
    s->parked_count--;
    d->parking = NULL;
    sched_release(s, parking, sizeof *parking);
}

void sched_parked(struct sched *s, struct mono now, uint32_t transport, struct slice dest)
{
    s->now = now;
    CHECK(transport < s->transport_count);
    park_at(dest_need(s->transports[transport], dest), EVERY_CLASS);
}

void sched_class_parked(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                        struct slice class_name)
{
    s->now = now;
    CHECK(transport < s->transport_count);
    park_at(dest_need(s->transports[transport], dest), class_bit(class_name));
}

/* ---- evicting ------------------------------------------------------------------------------- */

/* The one peer in which all that is left of the message waits; NULL when there is no such. */
static struct peer *waits_alone(const struct message *m)
{
    const struct job *j;

    if (m->peers != 1 || !m->all_read || m->dropped || m->deferrals > 0) {
        return NULL;
    }
    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        if (j->peers.first != NULL) {
            break;
        }
    }
    CHECK(j != NULL);
    return j->read - j->selected == m->entries ? CONTAINER_OF(j->peers.first, struct peer, ring)
                                               : NULL;
}

/* What would be asked back at once stays: the first of its destination, and what keeps the window
 * busy. */
static struct peer *evictable(const struct sched *s, const struct message *m)
{
    struct peer *p = waits_alone(m);
    const struct dest *d;

    if (p == NULL) {
        return NULL;
    }
    d = peer_dest(p);
    return d->state != DEST_DEAD && p->stripe->peers > share_threshold(s) &&
                   p->stripe->peers > low_water(d) && p->stripe->first != p
               ? p
               : NULL;
}

bool share_evicts(const struct sched *s, const struct message *m)
{
    return evictable(s, m) != NULL;
}

bool share_next_park(struct sched *s, struct mono now, struct sched_action *a)
{
    struct message *m;

    while ((m = TAILQ_FIRST(&s->to_park)) != NULL) {
        struct peer *p = evictable(s, m);
        struct dest *d;

        message_check(s, m); /* it leaves this list */
        if (p == NULL) {
            continue;
        }
        d = peer_dest(p);
        park_at(d, class_bit(class_name_of(m->mail_class)));
        a->type = SCHED_PARK;
        a->msg = m->id;
        a->transport = d->transport->index;
        a->dest = slice_of(d->name, d->name_len);
        CHECK(message_forget_waiting(m, now, UINT32_MAX));
        message_free(s, m);
        return true;
    }
    return false;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Of all transports that can deliver, the destination whose turn it is. */
static struct parking *next_turn(const struct sched *s)
{
    struct parking *best = NULL;

    for (uint32_t i = 0; i < s->transport_count; i++) {
        const struct transport *t = s->transports[i];
        struct parking *first = t->wanting.count > 0 ? WANTING(heap_top(&t->wanting)) : NULL;

        if (first != NULL && t->reason == NULL && (best == NULL || parking_before(first, best))) {
            best = first;
        }
    }
    return best;
}

bool share_next_admit(struct sched *s, struct sched_action *a)
{
    uint64_t places = free_places(s), limit = share_threshold(s), max, room;
    struct parking *parking;
    struct dest *d;

    if (s->parked_count == 0 || places == 0 || (parking = next_turn(s)) == NULL) {
        return false;
    }
    d = parking->dest;
    if (d->messages >= limit) {
        return false; /* and all others have as many or more */
    }
    /* Each message that enters takes one from the threshold, too. */
    room = (limit - d->messages - 1) / 2 + 1;
    max = batch(d);
    max = max < room ? max : room;
    max = max < places ? max : places;
    parking->asked = (uint32_t)max;
    parking->asked_us = s->now.us;
    parking->since_asked = false;
    parking->asked_in_time = d->messages > 0;
    s->asked += parking->asked;
    share_refresh(d);
    a->type = SCHED_ADMIT;
    a->transport = d->transport->index;
    a->dest = slice_of(d->name, d->name_len);
    a->max = parking->asked;
    return true;
}

void sched_admitted(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    uint32_t count, bool more)
{
    struct parking *parking;
    struct dest *d;

    CHECK(transport < s->transport_count);
    s->now = now;
    d = dest_find(s->transports[transport], dest);
    CHECK(d != NULL);
    parking = d->parking;
    CHECK(parking != NULL);
    CHECK(parking->asked > 0);
    CHECK(count <= parking->asked);
    s->asked -= parking->asked;
    parking->asked = 0;
    /* It ran dry while the question was under way: more has to be kept before it. */
    if (parking->asked_in_time && d->waiting_count == 0 && dest_has_room(d) && !d->probing &&
        parking->doublings < DOUBLINGS_MAX) {
        parking->doublings++;
    }
    if (!more && !parking->since_asked) {
        share_forget(d);
        dest_check(d);
        return;
    }
    if (count == 0 && more) {
        parking->put_off = true;
        TAILQ_INSERT_TAIL(&s->put_off, parking, link);
        if (!heap_has(&s->ask_again.node)) {
            timer_set(s, &s->ask_again, mono_after(now, ASK_AGAIN_US));
        }
    }
    share_refresh(d);
}

void share_ask_again(struct sched *s)
{
    struct parking *parking;

    while ((parking = TAILQ_FIRST(&s->put_off)) != NULL) {
        TAILQ_REMOVE(&s->put_off, parking, link);
        parking->put_off = false;
        share_refresh(parking->dest);
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

void share_audit(const struct dest *d)
{
    const struct parking *parking = d->parking;

    if (parking == NULL) {
        return;
    }
    CHECK(parking->dest == d);
    CHECK(parking->asked == 0 || !parking->put_off);
    CHECK(!parking->put_off || heap_has(&d->transport->sched->ask_again.node));
    CHECK(heap_has(&parking->wanting) == share_wants(d));
}
