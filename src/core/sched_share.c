/*
 * Shares of the active queue: which destination has more than its share, what is parked, and when
 * parked mail is requested. See scheduler.h for the rule and sched.c for the method.
 *
 * A destination's messages in memory are its peers, and those of one class are the peers of one of
 * its queues: a message has one job per transport and a job one peer per destination. So the counts
 * are kept where peers are created and freed.
 *
 * Parked mail belongs to a destination and a class. If only one class has parked mail for a
 * destination there is one parking. If several have, their parkings are members of a set: by class,
 * and in a heap whose top is the parking to request from next. Only this one is dest.parking and
 * may be in transport.wanting.
 */
#include "check.h"
#include "hash.h"
#include "heap.h"
#include "mem.h"
#include "sched_private.h"

/* Minimum of messages per SCHED_ADMIT, so that a fast destination with a narrow window does not
 * cost a disk read per delivery. */
#define BATCH_MIN 50

/* Maximum number of doublings of a batch; see sched_admitted. */
#define DOUBLINGS_MAX 5

/* Wait after the answer "none now, but more is parked" (a disk that fails), without which request
 * and answer would follow each other without end. */
#define ASK_AGAIN_US (1 * US_PER_S)

/* The parking of one class at a destination where several classes have parked mail. */
struct set_member {
    UT_hash_handle hh; /* node in parking_set.members, by class */
    struct mail_class *mail_class;
    struct parking *parking;
    struct parking_set *set;
    struct heap_node place; /* node in set.order */
    uint64_t since;         /* breaks ties: sched.serial when the parking was created or last
                             * asked */
};

struct parking_set {
    struct set_member *members; /* uthash */
    struct heap order;          /* all members, the next to ask on top */
    uint32_t questions;         /* members with an unanswered SCHED_ADMIT */
};

/* ---- the threshold -------------------------------------------------------------------------- */

/* Returns the number of places that neither a message holds nor an answer may fill. */
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

/* Returns the number of messages of one class that a destination may have in memory. While the
 * destination has fewer than its share, classes are not distinguished. After that, classes divide
 * the share, and groups their class's part. If each class were compared with the whole share, n of
 * them that arrive one after the other would each take half of the places left by the previous
 * one. */
static uint64_t class_threshold(const struct sched *s, const struct dest_queue *dq)
{
    const struct dest *d = dq->dest;
    uint64_t share = share_threshold(s);
    uint64_t part = share / dest_queue_parts(dq);

    return d->messages < share || share <= 1 ? share : part > 0 ? part : 1;
}

/* Returns the number of messages that keep the window busy until more is read. A probe is one
 * message. */
static uint64_t batch(const struct dest *d)
{
    uint64_t wanted = 4 * dest_capacity(d);

    if (d->probing) {
        return 1;
    }
    wanted = wanted > BATCH_MIN ? wanted : BATCH_MIN;
    return d->parking != NULL ? wanted << d->doublings : wanted;
}

/* Returns the number of messages below which the window may run dry before more is read. */
static uint64_t low_water(const struct dest *d)
{
    return (batch(d) + 1) / 2;
}

/* ---- parkings of several classes ------------------------------------------------------------ */

#define MEMBER_AT(n) CONTAINER_OF(n, struct set_member, place)

static bool askable(const struct parking *parking)
{
    return parking->asked == 0 && !parking->ask_later;
}

static bool set_member_less(const struct heap_node *a, const struct heap_node *b)
{
    const struct set_member *x = MEMBER_AT(a), *y = MEMBER_AT(b);

    if (askable(x->parking) != askable(y->parking)) {
        return askable(x->parking);
    }
    return x->parking->messages != y->parking->messages
               ? x->parking->messages < y->parking->messages
               : x->since < y->since;
}

static struct parking *parking_set_first(const struct parking_set *set)
{
    return MEMBER_AT(set->order.nodes[0])->parking; /* a set is never empty */
}

static struct parking_set *parking_set_of(const struct dest *d)
{
    return d->parking != NULL && d->parking->member != NULL ? d->parking->member->set : NULL;
}

static void set_member_new(struct parking_set *set, struct parking *parking)
{
    struct sched *s = parking->dest->transport->sched;
    struct set_member *member = sched_alloc(s, sizeof *member);

    member->mail_class = parking->mail_class;
    member->parking = parking;
    member->set = set;
    member->since = ++s->serial;
    heap_node_init(&member->place);
    heap_add(&set->order, &member->place);
    HASH_ADD(hh, set->members, mail_class, sizeof member->mail_class, member);
    parking->member = member;
}

static void set_member_free(struct set_member *member)
{
    struct parking *parking = member->parking;

    heap_remove(&member->set->order, &member->place);
    HASH_DELETE(hh, member->set->members, member);
    parking->member = NULL;
    sched_release(parking->dest->transport->sched, member, sizeof *member);
}

static struct parking_set *parking_set_need(struct dest *d)
{
    struct parking_set *set = parking_set_of(d);

    if (set == NULL) {
        set = sched_alloc(d->transport->sched, sizeof *set);
        heap_init(&set->order, set_member_less);
        set->questions = d->parking->asked > 0;
        set_member_new(set, d->parking);
    }
    return set;
}

/* Removes the parking from its set, and frees the set if only one is left. */
static void parking_set_leave(struct parking *parking)
{
    struct dest *d = parking->dest;
    struct parking_set *set = parking->member->set;

    set->questions -= parking->asked > 0;
    set_member_free(parking->member);
    d->parking = parking_set_first(set);
    if (set->order.count == 1) {
        set_member_free(d->parking->member);
        heap_fini(&set->order);
        sched_release(d->transport->sched, set, sizeof *set);
    }
}

/* Updates the set's order after the parking changed. The caller then calls share_refresh. */
static void parking_moved(struct parking *parking)
{
    if (parking->member != NULL) {
        heap_moved(&parking->member->set->order, &parking->member->place);
    }
}

static struct parking *parking_find(const struct dest *d, const struct mail_class *c)
{
    const struct parking_set *set = parking_set_of(d);
    struct set_member *member;

    if (set == NULL) {
        return d->parking != NULL && d->parking->mail_class == c ? d->parking : NULL;
    }
    HASH_FIND(hh, set->members, &c, sizeof c, member);
    return member != NULL ? member->parking : NULL;
}

/* Returns the parking of a class by the class's name. */
static struct parking *parking_of_class(const struct dest *d, struct slice class_name)
{
    const struct mail_class *c = class_find(d->transport->sched, class_name);

    return c == NULL && class_name.len > 0 ? NULL : parking_find(d, c);
}

const struct parking *parking_next(const struct dest *d, const struct parking *parking)
{
    const struct parking_set *set = parking_set_of(d);
    const struct set_member *member;

    if (set == NULL) {
        return parking == NULL ? d->parking : NULL;
    }
    member = parking == NULL ? set->members : parking->member->hh.next;
    return member != NULL ? member->parking : NULL;
}

/* ---- queries -------------------------------------------------------------------------------- */

struct sched_class_info sched_class_get(const struct sched *s, uint32_t transport,
                                        struct slice dest, struct slice class_name)
{
    struct sched_class_info info = {.messages = 0};
    const struct dest_queue *dq;
    const struct dest *d;

    CHECK(transport < s->transport_count);
    d = dest_find(s->transports[transport], dest);
    if (d != NULL) {
        dq = dest_queue_find(d, class_name);
        info.messages = dq != NULL ? dq->peers : 0;
        info.parked = parking_of_class(d, class_name) != NULL;
    }
    return info;
}

bool sched_share_full(const struct sched *s, uint32_t transport, struct slice dest,
                      struct slice class_name)
{
    struct sched_class_info info = sched_class_get(s, transport, dest, class_name);

    return info.parked ||
           (info.messages > 0 &&
            info.messages >=
                class_threshold(
                    s, dest_queue_find(dest_find(s->transports[transport], dest), class_name)));
}

/* ---- parked mail ---------------------------------------------------------------------------- */

#define WANTING(n) CONTAINER_OF(n, struct parking, wanting)

/* Orders parkings: first the one with the fewest messages in memory, then the one that has waited
 * longest. */
static bool parking_before(const struct parking *a, const struct parking *b)
{
    return a->messages != b->messages ? a->messages < b->messages : a->turn < b->turn;
}

bool parking_less(const struct heap_node *a, const struct heap_node *b)
{
    return parking_before(WANTING(a), WANTING(b));
}

/* Does a SCHED_ADMIT of any class wait for its answer? */
static bool is_asked(const struct dest *d)
{
    const struct parking_set *set = parking_set_of(d);

    return set != NULL ? set->questions > 0 : d->parking->asked > 0;
}

bool parking_wants(const struct parking *parking)
{
    const struct dest *d = parking->dest;

    return askable(parking) && d->state != DEST_DEAD &&
           (d->probing ? d->messages == 0 && !is_asked(d) : parking->messages < low_water(d));
}

void share_refresh(struct dest *d)
{
    struct heap *wanting = &d->transport->wanting;
    const struct parking_set *set = parking_set_of(d);
    struct parking *first = set != NULL ? parking_set_first(set) : d->parking;
    bool wants;

    if (first == NULL) {
        return;
    }
    if (first != d->parking && heap_has(&d->parking->wanting)) {
        heap_remove(wanting, &d->parking->wanting);
    }
    d->parking = first;
    wants = parking_wants(first);
    if (wants && heap_has(&first->wanting)) {
        heap_moved(wanting, &first->wanting);
    } else if (wants) {
        first->turn = ++d->transport->sched->serial;
        heap_add(wanting, &first->wanting);
    } else if (heap_has(&first->wanting)) {
        heap_remove(wanting, &first->wanting);
    }
}

void share_count(const struct dest_queue *dq)
{
    struct dest *d = dq->dest;
    struct parking *parking;

    if (d->parking == NULL) {
        return;
    }
    parking = parking_find(d, dq->class_queue->mail_class);
    if (parking != NULL) {
        parking->messages = dq->peers;
        parking_moved(parking);
    }
    share_refresh(d);
}

static struct parking *parking_new(struct dest *d, struct slice class_name)
{
    struct sched *s = d->transport->sched;
    const struct dest_queue *dq = dest_queue_find(d, class_name);
    struct parking *parking = sched_alloc(s, sizeof *parking);

    parking->dest = d;
    parking->mail_class = class_need(s, class_name);
    parking->messages = dq != NULL ? dq->peers : 0;
    heap_node_init(&parking->wanting);
    if (d->parking == NULL) {
        d->parking = parking;
        d->doublings = 0;
        s->parked_count++;
    } else {
        set_member_new(parking_set_need(d), parking);
    }
    return parking;
}

static struct parking *park_at(struct dest *d, struct slice class_name)
{
    struct parking *parking = parking_of_class(d, class_name);

    if (parking == NULL) {
        parking = parking_new(d, class_name);
    }
    parking->since_asked = true;
    share_refresh(d);
    return parking;
}

/* Frees a parking when no more mail of its class is parked there. */
static void parking_free(struct parking *parking)
{
    struct dest *d = parking->dest;
    struct sched *s = d->transport->sched;

    if (heap_has(&parking->wanting)) {
        heap_remove(&d->transport->wanting, &parking->wanting);
    }
    if (parking->ask_later) {
        TAILQ_REMOVE(&s->ask_later, parking, link);
    }
    s->asked -= parking->asked;
    if (parking->member != NULL) {
        parking_set_leave(parking);
    } else {
        d->parking = NULL;
        s->parked_count--;
    }
    class_unref(s, parking->mail_class);
    sched_release(s, parking, sizeof *parking);
    share_refresh(d);
}

void share_forget(struct dest *d)
{
    while (d->parking != NULL) {
        parking_free(d->parking);
    }
}

void sched_parked(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                  struct slice class_name)
{
    s->now = now;
    CHECK(transport < s->transport_count);
    (void)park_at(dest_need(s->transports[transport], dest), class_name);
}

/* ---- evicting ------------------------------------------------------------------------------- */

/* Returns the one peer in which the whole rest of the message waits; NULL if there is none. */
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

/* Returns the peer of a message that should be parked, or NULL. A message that would be requested
 * back at once stays: the first of its destination, and those that keep the window busy. */
static struct peer *evictable(const struct sched *s, const struct message *m)
{
    struct peer *p = waits_alone(m);
    const struct dest *d;

    if (p == NULL) {
        return NULL;
    }
    d = peer_dest(p);
    return d->state != DEST_DEAD && p->queue->peers > class_threshold(s, p->queue) &&
                   p->queue->peers > low_water(d) && p->queue->first != p
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
        const struct parking *parking;
        struct dest *d;

        message_check(s, m); /* removes it from to_park */
        if (p == NULL) {
            continue;
        }
        d = peer_dest(p);
        parking = park_at(d, class_name_of(m->mail_class));
        a->type = SCHED_PARK;
        a->class_name = class_name_of(parking->mail_class);
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

/* Returns the parking whose turn it is, among those of all transports that can deliver. */
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

static void ask(struct parking *parking, uint32_t max)
{
    struct sched *s = parking->dest->transport->sched;

    parking->asked = max;
    parking->asked_us = s->now.us;
    parking->since_asked = false;
    parking->asked_in_time = parking->dest->messages > 0;
    s->asked += max;
    if (parking->member != NULL) {
        parking->member->set->questions++;
        parking->member->since = ++s->serial;
    }
    parking_moved(parking);
    share_refresh(parking->dest);
}

static void answer(struct parking *parking, uint32_t count)
{
    struct sched *s = parking->dest->transport->sched;

    if (s->ration != SCHED_NO_RATION) {
        s->ration += parking->asked - count; /* others may have the places left over */
    }
    parking->deferred_first ^= count % 2 != 0;
    s->asked -= parking->asked;
    parking->asked = 0;
    if (parking->member != NULL) {
        parking->member->set->questions--;
    }
}

bool share_next_admit(struct sched *s, struct sched_action *a)
{
    uint64_t places = free_places(s), limit = share_threshold(s), max, room;
    struct parking *parking;
    struct dest *d;

    places = places < s->ration ? places : s->ration;
    if (s->parked_count == 0 || places == 0 || (parking = next_turn(s)) == NULL) {
        return false;
    }
    d = parking->dest;
    if (parking->messages >= limit) {
        return false; /* so have all others */
    }
    /* Each message that enters also lowers the threshold by one. */
    room = (limit - parking->messages - 1) / 2 + 1;
    max = batch(d);
    max = max < room ? max : room;
    max = max < places ? max : places;
    ask(parking, (uint32_t)max);
    if (s->ration != SCHED_NO_RATION) {
        s->ration -= parking->asked;
    }
    a->deferred_first = parking->deferred_first;
    a->type = SCHED_ADMIT;
    a->transport = d->transport->index;
    a->dest = slice_of(d->name, d->name_len);
    a->class_name = class_name_of(parking->mail_class);
    a->max = parking->asked;
    return true;
}

void sched_admitted(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct slice class_name, uint32_t count, bool more)
{
    struct parking *parking;
    struct dest *d;

    CHECK(transport < s->transport_count);
    s->now = now;
    d = dest_find(s->transports[transport], dest);
    CHECK(d != NULL);
    parking = parking_of_class(d, class_name);
    CHECK(parking != NULL);
    CHECK(parking->asked > 0);
    CHECK(count <= parking->asked);
    answer(parking, count);
    /* The queue ran dry before the answer, so the next SCHED_ADMIT must request more. */
    if (parking->asked_in_time && d->waiting_count == 0 && dest_has_room(d) && !d->probing &&
        d->doublings < DOUBLINGS_MAX) {
        d->doublings++;
    }
    if (!more && !parking->since_asked) {
        parking_free(parking);
        dest_check(d);
        return;
    }
    if (count == 0 && more) {
        parking->ask_later = true;
        TAILQ_INSERT_TAIL(&s->ask_later, parking, link);
        if (!heap_has(&s->ask_again.node)) {
            timer_set(s, &s->ask_again, mono_after(now, ASK_AGAIN_US));
        }
    }
    parking_moved(parking);
    share_refresh(d);
}

void sched_ration(struct sched *s, uint32_t places)
{
    s->ration = places;
}

void share_ask_again(struct sched *s)
{
    struct parking *parking;

    while ((parking = TAILQ_FIRST(&s->ask_later)) != NULL) {
        TAILQ_REMOVE(&s->ask_later, parking, link);
        parking->ask_later = false;
        parking_moved(parking);
        share_refresh(parking->dest);
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

static void parking_set_audit(const struct dest *d)
{
    const struct parking_set *set = parking_set_of(d);
    uint32_t questions = 0;

    if (set == NULL) {
        return;
    }
    CHECK(set->order.count >= 2);
    CHECK(set->order.count == HASH_COUNT(set->members));
    heap_audit(&set->order);
    CHECK(parking_set_first(set) == d->parking);
    for (const struct parking *p = NULL; (p = parking_next(d, p)) != NULL;) {
        CHECK(p->member->parking == p);
        CHECK(p->member->set == set);
        CHECK(p->member->mail_class == p->mail_class);
        questions += p->asked > 0;
    }
    CHECK(questions == set->questions);
}

void share_audit(const struct dest *d)
{
    parking_set_audit(d);
    for (const struct parking *p = NULL; (p = parking_next(d, p)) != NULL;) {
        CHECK(p->dest == d);
        CHECK(p->asked == 0 || !p->ask_later);
        CHECK(!p->ask_later || heap_has(&d->transport->sched->ask_again.node));
        CHECK(heap_has(&p->wanting) == (p == d->parking && parking_wants(p)));
    }
}
