#include "queue_park.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "park_key.h"
#include "queue.h"
#include "queue_pass.h"
#include "queue_retry.h"
#include "tuning.h"

/* After a start the scheduler has no parked keys, and many of their destinations may be dead. So it
 * gets a few keys at a time: at once while it has little to do, otherwise every second. Until then
 * their mail continues when it is due, like deferred mail. */
#define TELL_AT_ONCE   10
#define TELL_PERIOD_US US_PER_S
#define LITTLE_TO_DO   20 /* entries that wait or are in flight */

/* For each dead destination, a page of parked new mail becomes deferred mail per period. A page
 * costs some 3 ms; 90,000 messages take as long as the destination is dead. */
#define AGEING_PAGE      32
#define AGEING_PERIOD_US (100 * US_PER_MS)

/* A dead destination whose parked new mail becomes deferred mail. */
struct ageing {
    STAILQ_ENTRY(ageing) next;
    char *key; /* key of the next new mail; owned */
};

/* A SCHED_ADMIT without its answer. */
struct admission {
    STAILQ_ENTRY(admission) next;
    uint32_t transport;
    uint32_t max;
    bool deferred_first;
    char *dest, *class_name; /* owned */
};

_Static_assert(PARK_KEY_MAX <= SPOOL_PARKED_MAX, "the spool takes every key");

/* ---- keys ----------------------------------------------------------------------------------- */

char *park_key(const struct queue *q, uint32_t transport, struct slice dest,
               struct slice class_name, bool is_new)
{
    struct buf key;

    buf_init(&key, PARK_KEY_MAX + 1);
    (void)buf_addf(&key, "%s%s/%.*s", is_new ? PARK_KEY_NEW : "",
                   transport_name(&q->transports, transport), SLICE_ARGS(dest));
    if (class_name.len > 0) {
        (void)buf_addf(&key, "%c%.*s", PARK_KEY_BEFORE_CLASS, SLICE_ARGS(class_name));
    }
    CHECK(!key.failed); /* both are limited */
    (void)buf_cstr(&key);
    return buf_take(&key);
}

/* Meaning of a key. */
struct place {
    uint32_t transport;
    struct slice dest, class_name;
};

/* Parses a key. Returns false if its transport is unknown, or the key has no such form. */
static bool key_read(const struct queue *q, struct slice key, struct place *ret)
{
    struct slice name = park_key_place(key);
    size_t slash = slice_find(name, '/');

    *ret = (struct place){.dest = slice_skip(name, slash < name.len ? slash + 1 : name.len),
                          .class_name = park_key_class(key)};
    if (park_key_kind(key) != PARK_SHARE || ret->dest.len == 0 ||
        ret->dest.len > SCHED_DEST_NAME_MAX ||
        (ret->class_name.len > 0 && !tuning_sched_class_valid(ret->class_name))) {
        return false;
    }
    return transport_find(&q->transports, slice_of(name.ptr, slash), &ret->transport);
}

bool park_is_full(const struct queue *q, struct slice key)
{
    struct place at;

    return key_read(q, key, &at) &&
           sched_share_full(q->sched, at.transport, at.dest, at.class_name);
}

void park_revive(struct queue *q, struct slice key)
{
    struct place at;

    if (key_read(q, key, &at)) {
        sched_revive(q->sched, clock_mono(), at.transport, at.dest);
    }
}

bool park_is_known(const struct queue *q, struct slice key)
{
    struct place at;

    return !key_read(q, key, &at) ||
           sched_class_get(q->sched, at.transport, at.dest, at.class_name).parked;
}

void park_tell(struct queue *q, struct slice key)
{
    struct place at;

    if (key_read(q, key, &at)) {
        sched_parked(q->sched, clock_mono(), at.transport, at.dest, at.class_name);
    }
}

/* ---- target of a message -------------------------------------------------------------------- */

void park_target_add(struct queue *q, struct owner_target *t, const struct route *route)
{
    owner_target_add(t, transport_index(&q->transports, route->transport),
                     slice_string(route->destination));
}

char *park_target_full(const struct queue *q, const struct owner_target *t,
                       struct slice sched_class, bool is_new)
{
    return owner_target_full(q->sched, t, sched_class)
               ? park_key(q, t->transport, slice_string(t->dest), sched_class,
                          owner_parks_as_new(q->sched, t->transport, slice_string(t->dest), is_new))
               : NULL;
}

/* ---- return to memory ----------------------------------------------------------------------- */

void park_admit(struct parked_mail *p, const struct sched_action *action)
{
    struct admission *a = mem_new(sizeof *a);

    CHECK(action->type == SCHED_ADMIT);
    a->transport = action->transport;
    a->max = action->max;
    a->deferred_first = action->deferred_first;
    a->dest = mem_copy(action->dest.ptr, action->dest.len);
    a->class_name = mem_copy(action->class_name.ptr, action->class_name.len);
    STAILQ_INSERT_TAIL(&p->admissions, a, next);
}

static void admission_free(struct admission *a)
{
    mem_free(a->dest);
    mem_free(a->class_name);
    mem_free(a);
}

/* Is all mail of the request paused? Then it stays parked. */
static bool is_paused(const struct queue *q, const struct admission *a)
{
    const struct destination *d =
        destination_find(&q->destinations, a->transport, slice_string(a->dest));

    return interventions_pause_of(q, transport_name(&q->transports, a->transport),
                                  slice_string(d != NULL ? d->nexthop : a->dest)) != NULL;
}

/* Opens new and deferred mail alternately, the oldest of each kind first. Returns the number of
 * messages claimed, or UINT32_MAX if none is loaded; then nothing has changed. */
static uint32_t admit(struct queue *q, const struct admission *a)
{
    struct slice dest = slice_string(a->dest), class_name = slice_string(a->class_name);
    char *keys[] = {park_key(q, a->transport, dest, class_name, true),
                    park_key(q, a->transport, dest, class_name, false)};
    struct owner_turns turns = {.deferred = a->deferred_first};
    bool more[] = {true, true}, ends = is_paused(q, a); /* requested again after the pause */
    uint32_t opened = 0, claimed = 0;
    bool is_away = false;

    while (!ends && claimed < a->max && owner_turns_go_on(&turns)) {
        bool deferred = turns.deferred;
        struct msg_id id;
        size_t count = 0;
        int rc = more[deferred] ? spool_claim_parked(q->spool, slice_string(keys[deferred]),
                                                     clock_wall(), 1, &id, &count, &more[deferred])
                                : 0;

        is_away |= rc == -EAGAIN;
        if (rc != 0 && rc != -EAGAIN) {
            log_warning("spool: %s", spool_error(q->spool)); /* requested again */
            ends = true;
        }
        if (rc == 0 && count > 0) {
            claimed++;
            opened += pass_load(q, id, deferred ? ADMITTED_DEFERRED : ADMITTED_NEW);
        }
        owner_turns_took(&turns, rc == 0 && count > 0);
    }
    mem_free(keys[0]);
    mem_free(keys[1]);
    if (claimed == 0 && is_away) {
        return UINT32_MAX;
    }
    sched_admitted(q->sched, clock_mono(), a->transport, dest, class_name, opened,
                   more[0] || more[1]);
    return claimed;
}

/* ---- destinations that have died ------------------------------------------------------------ */

void park_died(struct queue *q, const struct sched_action *action)
{
    struct ageing *a = mem_new(sizeof *a);

    a->key = park_key(q, action->transport, action->dest, SLICE(""), true);
    if (STAILQ_EMPTY(&q->parking.ageing)) {
        q->parking.next_ageing = clock_mono();
    }
    STAILQ_INSERT_TAIL(&q->parking.ageing, a, next);
}

static void ageing_free(struct ageing *a)
{
    mem_free(a->key);
    mem_free(a);
}

struct mono park_ageing_at(const struct parked_mail *p)
{
    return STAILQ_EMPTY(&p->ageing) ? MONO_NEVER : p->next_ageing;
}

static bool is_dead(const struct queue *q, struct slice key)
{
    struct sched_dest_info info;
    struct place at;

    return key_read(q, key, &at) && sched_dest_get(q->sched, at.transport, at.dest, &info) &&
           info.state == SCHED_DEST_DEAD_UNTIL;
}

/* Advances to the next key of the same destination; keys with classes follow the plain key. */
static bool next_key(struct queue *q, struct ageing *a)
{
    struct slice key, place = park_key_place(slice_string(a->key));
    size_t count = 0;
    bool found = spool_parked_keys(q->spool, slice_string(a->key), 1, &key, &count) == 0 &&
                 count == 1 && park_key_is_new(key) && slice_equal(park_key_place(key), place);

    if (found) {
        char *copy = mem_copy(key.ptr, key.len);

        mem_free(a->key);
        a->key = copy;
    }
    return found;
}

/* Returns false when no mail is left to change. */
static bool age_page(struct queue *q, struct ageing *a)
{
    struct msg_id ids[AGEING_PAGE];
    size_t count = 0;
    bool more = false;
    int rc;

    if (!is_dead(q, slice_string(a->key))) {
        return false;
    }
    rc = spool_claim_parked(q->spool, slice_string(a->key), clock_wall(), AGEING_PAGE, ids, &count,
                            &more);
    if (rc != 0) {
        return rc == -EAGAIN; /* other failures are logged: the mail stays new mail */
    }
    for (size_t i = 0; i < count; i++) {
        (void)pass_load(q, ids[i], ADMITTED_NOT); /* parked again, or opened */
    }
    return more || next_key(q, a);
}

void park_age_some(struct queue *q)
{
    struct parked_mail *p = &q->parking;
    struct ageing *a = STAILQ_FIRST(&p->ageing);

    if (a == NULL || !mono_reached(p->next_ageing, clock_mono())) {
        return;
    }
    STAILQ_REMOVE_HEAD(&p->ageing, next);
    if (age_page(q, a)) {
        STAILQ_INSERT_TAIL(&p->ageing, a, next);
    } else {
        ageing_free(a);
    }
    p->next_ageing = mono_after(clock_mono(), AGEING_PERIOD_US);
}

/* ---- requests ------------------------------------------------------------------------------- */

void park_at_hand(struct queue *q)
{
    struct parked_mail *p = &q->parking;

    STAILQ_CONCAT(&p->admissions, &p->awaited);
    queue_retry_wake_again(q);
}

bool park_admit_some(struct queue *q)
{
    struct admission *a;

    for (uint32_t done = 0; done < OWNER_FEED_MAX;) {
        if ((a = STAILQ_FIRST(&q->parking.admissions)) == NULL) {
            return false;
        }
        uint32_t opened = admit(q, a);

        STAILQ_REMOVE_HEAD(&q->parking.admissions, next);
        if (opened == UINT32_MAX) {
            STAILQ_INSERT_TAIL(&q->parking.awaited, a, next);
        } else {
            done += 1 + opened;
            admission_free(a);
        }
    }
    return park_has_admissions(&q->parking);
}

/* ---- the start ------------------------------------------------------------------------------ */

void park_init(struct parked_mail *p)
{
    STAILQ_INIT(&p->admissions);
    STAILQ_INIT(&p->awaited);
    STAILQ_INIT(&p->wakes);
    STAILQ_INIT(&p->ageing);
    park_tell_all(p);
}

void park_tell_all(struct parked_mail *p)
{
    mem_free(p->told);
    p->told = mem_string("");
}

void park_fini(struct parked_mail *p)
{
    struct admission *a;
    struct ageing *d;
    struct parked_wake *w;

    while ((d = STAILQ_FIRST(&p->ageing)) != NULL) {
        STAILQ_REMOVE_HEAD(&p->ageing, next);
        ageing_free(d);
    }
    STAILQ_CONCAT(&p->admissions, &p->awaited);
    while ((a = STAILQ_FIRST(&p->admissions)) != NULL) {
        STAILQ_REMOVE_HEAD(&p->admissions, next);
        admission_free(a);
    }
    while ((w = STAILQ_FIRST(&p->wakes)) != NULL) {
        STAILQ_REMOVE_HEAD(&p->wakes, next);
        mem_free(w->key);
        mem_free(w);
    }
    mem_free(p->told);
    p->told = NULL;
}

static bool has_little_to_do(const struct queue *q)
{
    struct sched_totals t = sched_totals(q->sched);

    return !park_has_admissions(&q->parking) && t.entries_waiting + t.entries_busy < LITTLE_TO_DO;
}

bool park_tell_some(struct queue *q)
{
    struct slice keys[TELL_AT_ONCE];
    size_t count = 0;
    int rc;

    if (!park_is_telling(&q->parking) ||
        (!has_little_to_do(q) && !mono_reached(q->parking.next_tell, clock_mono()))) {
        return false;
    }
    rc = spool_parked_keys(q->spool, slice_string(q->parking.told), TELL_AT_ONCE, keys, &count);
    if (rc == -EAGAIN) {
        q->parking.next_tell = mono_after(clock_mono(), TELL_PERIOD_US);
        return false;
    }
    if (rc != 0) {
        log_warning("spool: %s: what is parked goes on when it falls due", spool_error(q->spool));
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        park_tell(q, keys[i]);
    }
    mem_free(q->parking.told);
    q->parking.told =
        count < TELL_AT_ONCE ? NULL : mem_copy(keys[count - 1].ptr, keys[count - 1].len);
    q->parking.next_tell = mono_after(clock_mono(), TELL_PERIOD_US);
    return park_is_telling(&q->parking);
}
