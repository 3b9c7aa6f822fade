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

/* After a start nothing is known of the destinations that mail is parked for; many may be dead. So
 * the scheduler is told of a few at a time: at once while it has little to do, else every second.
 * Until then their mail goes on when it falls due, as all deferred mail does. */
#define TELL_AT_ONCE   10
#define TELL_PERIOD_US US_PER_S
#define LITTLE_TO_DO   20 /* entries that wait or are being delivered */

/* A SCHED_ADMIT that waits for its answer. */
struct admission {
    STAILQ_ENTRY(admission) next;
    uint32_t transport;
    uint32_t max;
    char *dest, *class_name; /* owned */
};

_Static_assert(PARK_KEY_MAX <= SPOOL_PARKED_MAX, "the spool takes every key");

/* ---- keys ----------------------------------------------------------------------------------- */

char *park_key(const struct queue *q, uint32_t transport, struct slice dest,
               struct slice class_name)
{
    struct buf key;

    buf_init(&key, PARK_KEY_MAX + 1);
    (void)buf_addf(&key, "%s/%.*s", transport_name(&q->transports, transport), SLICE_ARGS(dest));
    if (class_name.len > 0) {
        (void)buf_addf(&key, "%c%.*s", PARK_KEY_BEFORE_CLASS, SLICE_ARGS(class_name));
    }
    CHECK(!key.failed); /* both have their limits */
    (void)buf_cstr(&key);
    return buf_take(&key);
}

/* What a key means. */
struct place {
    uint32_t transport;
    struct slice dest, class_name;
};

/* False when no such transport is known, or the key is not of our making. */
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
    return transport_find(&q->transports, slice_of(key.ptr, slash), &ret->transport);
}

bool park_is_full(const struct queue *q, struct slice key)
{
    struct place at;

    return key_read(q, key, &at) &&
           sched_share_full(q->sched, at.transport, at.dest, at.class_name);
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

/* ---- where a message waits ------------------------------------------------------------------ */

void park_target_add(struct queue *q, struct owner_target *t, const struct route *route)
{
    owner_target_add(t, transport_index(&q->transports, route->transport),
                     slice_string(route->destination));
}

char *park_target_full(const struct queue *q, const struct owner_target *t,
                       struct slice sched_class)
{
    return owner_target_full(q->sched, t, sched_class)
               ? park_key(q, t->transport, slice_string(t->dest), sched_class)
               : NULL;
}

/* ---- coming back ---------------------------------------------------------------------------- */

void park_admit(struct parked_mail *p, const struct sched_action *action)
{
    struct admission *a = mem_new(sizeof *a);

    CHECK(action->type == SCHED_ADMIT);
    a->transport = action->transport;
    a->max = action->max;
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

/* Is all mail for it paused? Then it stays parked as it is. */
static bool is_paused(const struct queue *q, const struct admission *a)
{
    const struct destination *d =
        destination_find(&q->destinations, a->transport, slice_string(a->dest));

    return interventions_pause_of(q, transport_name(&q->transports, a->transport),
                                  slice_string(d != NULL ? d->nexthop : a->dest)) != NULL;
}

/* Open what waits longest there. Its number is the return value; UINT32_MAX: it is not at hand, and
 * nothing was done. */
static uint32_t admit(struct queue *q, const struct admission *a)
{
    struct slice dest = slice_string(a->dest), class_name = slice_string(a->class_name);
    char *key = park_key(q, a->transport, dest, class_name);
    struct msg_id *ids = mem_array(a->max, sizeof *ids);
    uint32_t opened = 0;
    size_t count = 0;
    bool more = true;
    int rc = 0;

    if (!is_paused(q, a)) { /* else it is asked for again */
        rc = spool_claim_parked(q->spool, slice_string(key), clock_wall(), a->max, ids, &count,
                                &more);
    }
    if (rc == -EAGAIN) {
        mem_free(ids);
        mem_free(key);
        return UINT32_MAX;
    }
    if (rc != 0) {
        log_warning("spool: %s", spool_error(q->spool)); /* it is asked for again */
    }
    for (size_t i = 0; i < count; i++) {
        opened += pass_load(q, ids[i], true);
    }
    sched_admitted(q->sched, clock_mono(), a->transport, dest, class_name, opened, more);
    mem_free(ids);
    mem_free(key);
    return (uint32_t)count;
}

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
    struct parked_wake *w;

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
