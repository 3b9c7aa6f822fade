#include "queue_retry.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "park_key.h"
#include "queue.h"
#include "settlement.h"
#include "spool_division.h"
#include "spool_search.h"

/* Most destinations whose retry time one turn checks. */
#define RETRIES_PER_TURN 100

static char *key_of(const char *prefix, const char *transport, const char *dest)
{
    struct buf key;

    buf_init(&key, SPOOL_PARKED_MAX + 1);
    (void)buf_addf(&key, "%s%s/%s", prefix, transport, dest);
    CHECK(!key.failed); /* both names are limited */
    (void)buf_cstr(&key);
    return buf_take(&key);
}

char *queue_retry_key(const struct queue *q, const struct destination *destination)
{
    return key_of(destination->rules.queueonly ? PARK_KEY_REQUEST : PARK_KEY_RETRY,
                  transport_name(&q->transports, destination->transport), destination->name);
}

bool queue_retry_is_served(const struct queue *q, const struct destination *destination)
{
    struct slice dest = slice_string(q->conf->deliver_only), transport = slice_cut(&dest, '/');

    return q->conf->deliver_only[0] == '\0' ||
           (glob_match(transport,
                       slice_string(transport_name(&q->transports, destination->transport))) &&
            nexthop_match(dest, slice_string(destination->name)));
}

/* ---- due mail -------------------------------------------------------------------------------- */

static bool is_running(const struct queue *q, const struct destination *destination, bool *ret_dead)
{
    struct sched_dest_info info;

    *ret_dead = false;
    if (!sched_dest_get(q->sched, destination->transport, slice_string(destination->name), &info)) {
        return false;
    }
    *ret_dead = info.state == SCHED_DEST_DEAD_UNTIL;
    return info.busy > 0;
}

/* Makes the mail due that waits under the key. */
static size_t wake_key(struct queue *q, const char *key)
{
    size_t count = 0;
    int rc = spool_wake(q->spool, slice_string(key), clock_wall(), &count);

    if (rc == -EAGAIN) {
        struct parked_wake *w = mem_new(sizeof *w);

        w->key = mem_string(key);
        STAILQ_INSERT_TAIL(&q->parking.wakes, w, next);
    } else if (rc != 0) {
        log_warning("%s: what waits there goes at its time: %s", key, spool_error(q->spool));
        return 0;
    }
    if (count > 0) {
        import_now(&q->import);
    }
    return count;
}

static void wake(struct queue *q, const struct destination *destination, struct dest_retry *retry)
{
    char *key;

    if (dest_retry_may_be_woken(retry, clock_wall())) {
        key = queue_retry_key(q, destination);
        (void)wake_key(q, key);
        mem_free(key);
        dest_retry_woken(retry, false, clock_wall());
    }
}

/* Does a message go to its destination although that waits? New mail does, unless the destination
 * has just failed. Other mail goes in the run that woke it until that run stops; in a store that
 * can't divide messages, until one of the run is deferred. */
static bool goes_before_time(const struct queue *q, const struct active_msg *m,
                             const struct retry_rules *rules, const struct dest_retry *retry)
{
    if (m->fresh && rules->wakeuprestartonly) {
        return false;
    }
    if (m->fresh && m->created.us >= q->started.us) {
        return !dest_retry_is_fresh_stop(retry, clock_wall());
    }
    return !retry->stopped && (m->fresh || spool_divides(q->spool) || !retry->asleep);
}

bool queue_retry_lets_go(struct queue *q, const struct active_msg *m,
                         const struct destination *destination)
{
    const struct retry_rules *rules = &destination->rules;
    struct slice dest = slice_string(destination->name);
    struct dest_retry *retry = destination->retry;
    bool dead, waits;

    if (!retry_rules_apply(rules) || is_running(q, destination, &dead)) {
        return true;
    }
    if (!queue_retry_is_served(q, destination)) {
        return false;
    }
    waits = retry != NULL && dest_retry_waits(retry, clock_wall());
    if (!m->requested && (rules->queueonly || (waits && !goes_before_time(q, m, rules, retry)))) {
        return false;
    }
    if (dead) {
        sched_revive(q->sched, clock_mono(), destination->transport, dest);
    }
    if (waits && m->fresh && m->created.us >= q->started.us) {
        wake(q, destination, retry);
    }
    return true;
}

bool queue_retry_keeps(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                       struct destination *destination)
{
    const struct wire_verdict said = {.n = r->n, .kind = VERDICT_DEFERRED};
    struct settlement s;

    if ((!retry_rules_apply(&destination->rules) && destination->expiry.expiry_us == 0) ||
        (queue_retry_lets_go(q, m, destination) && !settle_is_expired(destination, m, r))) {
        return false;
    }
    settlement_begin(&s, SETTLE_WAITING, m, destination, NULL, 1);
    settlement_add(&s, &said)->quiet = true; /* no news for the log */
    queue_settle(q, &s);
    return true;
}

bool queue_retry_defers(struct queue *q, struct active_msg *m, const struct sched_action *action)
{
    struct destination *destination =
        destination_find(&q->destinations, action->transport, action->dest);
    struct wire_verdict said = {.kind = VERDICT_DEFERRED, .text = action->reason};
    struct settlement s;

    if (destination == NULL || !retry_rules_apply(&destination->rules) ||
        !spool_divides(q->spool)) {
        return false;
    }
    settlement_begin(&s, SETTLE_WAITING, m, destination, NULL, action->rcpt_count);
    for (size_t i = 0; i < action->rcpt_count; i++) {
        said.n = action->rcpts[i];
        (void)settlement_add(&s, &said);
    }
    queue_settle(q, &s);
    return true;
}

void queue_retry_suspend(struct queue *q, const struct destination *destination, struct wall until,
                         struct slice reason)
{
    int64_t wait = until.us - clock_wall().us;

    if (wait > 0) {
        sched_postpone(q->sched, clock_mono(), destination->transport,
                       slice_string(destination->name), mono_after(clock_mono(), wait), reason);
    }
}

/* ---- destinations without mail --------------------------------------------------------------- */

/* Has the scheduler mail for it? */
static bool has_mail_in_memory(const struct queue *q, const struct destination *destination)
{
    struct sched_dest_info info;

    return sched_dest_get(q->sched, destination->transport, slice_string(destination->name),
                          &info) &&
           info.busy + info.waiting > 0;
}

/* Has the destination no mail left? */
static bool is_empty(struct queue *q, const struct destination *destination)
{
    struct spool_filter filter = {.states = 0};
    struct buf name;
    uint64_t count = 1;

    if (has_mail_in_memory(q, destination)) {
        return false;
    }
    buf_init(&name, SPOOL_PARKED_MAX);
    (void)buf_addf(&name, "%s/%s", transport_name(&q->transports, destination->transport),
                   destination->name); /* fits */
    filter.destination = buf_slice(&name);
    if (spool_count(q->spool, &filter, &count) != 0) {
        log_warning("spool: %s", spool_error(q->spool)); /* checked again later */
    }
    buf_fini(&name);
    return count == 0;
}

void queue_retry_note(struct queue *q, struct destination *destination, size_t tried)
{
    struct dest_retries *all = &q->destinations.retries;
    struct dest_retry *retry;

    if (destination == NULL || !retry_rules_apply(&destination->rules)) {
        return;
    }
    retry = dest_retry_need(all, destination, clock_wall());
    retry->attempts += tried;
    if (has_mail_in_memory(q, destination)) {
        return;
    }
    if (retry->retry.due.us == 0 && !retry->asleep) {
        dest_retry_drop(all, retry); /* never failed: no mail waits */
    } else if (!dest_retry_waits(retry, clock_wall())) {
        dest_retry_check_soon(all, retry, clock_wall());
    }
}

void queue_retry_turn(struct queue *q)
{
    struct dest_retry *retry;

    for (int i = 0; i < RETRIES_PER_TURN; i++) {
        retry = dest_retries_check(&q->destinations.retries, clock_wall());
        if (retry == NULL) {
            return;
        }
        if (is_empty(q, retry->of)) {
            dest_retry_drop(&q->destinations.retries, retry);
        }
    }
}

void queue_retry_request(struct queue *q, struct slice wanted)
{
    char dest[SCHED_DEST_NAME_MAX];
    const struct destination *destination;

    for (uint32_t i = 0; i < q->transports.count && wanted.len <= sizeof dest; i++) {
        struct slice rest = wanted, name = slice_cut(&rest, '/');

        if (rest.ptr == NULL ||
            !slice_equal(name, slice_string(transport_name(&q->transports, i)))) {
            rest = wanted;
        }
        for (size_t j = 0; j < rest.len; j++) {
            dest[j] = ascii_lower(rest.ptr[j]);
        }
        destination = destination_find(&q->destinations, i, slice_of(dest, rest.len));
        if (destination != NULL && destination->retry != NULL) {
            dest_retry_woken(destination->retry, true, clock_wall());
        }
    }
}

/* ---- mail without a route -------------------------------------------------------------------- */

void queue_stuck(struct queue *q, struct active_msg *m, uint32_t n, const struct route *route,
                 const char *why)
{
    const struct wire_verdict said = {
        .n = n, .kind = VERDICT_DEFERRED, .status = SLICE("4.3.5"), .text = slice_string(why)};
    struct settlement s;

    settlement_begin(&s, SETTLE_STUCK, m, NULL, NULL, 1);
    s.park_key = key_of(PARK_KEY_STUCK, route->transport, route->destination);
    (void)settlement_add(&s, &said);
    queue_settle(q, &s);
}

void queue_retry_wake_again(struct queue *q)
{
    STAILQ_HEAD(, parked_wake) wakes = STAILQ_HEAD_INITIALIZER(wakes);
    struct parked_wake *w;

    STAILQ_CONCAT(&wakes, &q->parking.wakes);
    while ((w = STAILQ_FIRST(&wakes)) != NULL) {
        STAILQ_REMOVE_HEAD(&wakes, next);
        (void)wake_key(q, w->key); /* keys that must wait again return to the list */
        mem_free(w->key);
        mem_free(w);
    }
}

/* Makes the mail due that waits under any key of this kind. */
static void wake_kind(struct queue *q, const char *prefix, enum park_kind kind)
{
    struct slice key;
    size_t count = 1;
    char *copy = mem_string(prefix);

    while (spool_parked_keys(q->spool, slice_string(copy), 1, &key, &count) == 0 && count == 1 &&
           park_key_kind(key) == kind) {
        mem_free(copy);
        copy = mem_copy(key.ptr, key.len);
        (void)wake_key(q, copy);
    }
    mem_free(copy);
}

void queue_try_stuck(struct queue *q)
{
    wake_kind(q, PARK_KEY_STUCK, PARK_STUCK);
    wake_kind(q, PARK_KEY_REQUEST, PARK_REQUEST);
}
