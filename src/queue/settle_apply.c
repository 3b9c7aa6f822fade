/*
 * Settlement, second step: applies the decisions to the open batch of the spool and to the message
 * in memory.
 *
 * In stores that can divide messages (spool_divides), recipients that wait for their destination
 * leave their message and wait under the retry key of the destination. In other stores the message
 * waits as a whole, under that key if all its recipients wait for one destination.
 */
#include "settlement.h"

#include <string.h>

#include "clock.h"
#include "mem.h"
#include "queue.h"
#include "queue_retry.h"
#include "spool_conclusion.h"
#include "spool_division.h"

/* ---- the spool ------------------------------------------------------------------------------- */

/* Takes the deferred recipients out of their message until `due`. Takes the key. */
static void put_off(struct queue *q, const struct settlement *s, char *key, struct wall due)
{
    struct put_off p = {.park_key = key, .until = due};

    p.ns = mem_array(s->count, sizeof *p.ns);
    for (size_t i = 0; i < s->count; i++) {
        if (s->rcpts[i].disposition == DISPOSITION_DEFERRED) {
            p.ns[p.count++] = s->rcpts[i].said.n;
        }
    }
    active_touch(s->msg);
    batch_add_put_off(q, s->msg->id, &p);
    import_by(&q->import, due);
}

/* ---- the message ----------------------------------------------------------------------------- */

/* Is the recipient deferred with a time or event of its own, instead of the back-off? */
static bool knows_when(const struct settlement *s, const struct settled *r)
{
    return s->cause != SETTLE_DEAD && s->cause != SETTLE_HERE &&
           r->disposition == DISPOSITION_DEFERRED;
}

static bool has_own_expiry(const struct settlement *s, const struct settled *r)
{
    return knows_when(s, r) && s->cause != SETTLE_STUCK && s->destination != NULL &&
           s->destination->expiry.expiry_us != 0;
}

/* Is the recipient still waiting, without news? */
static bool is_unchanged(const struct settlement *s, const struct settled *r)
{
    return (s->cause == SETTLE_WAITING || s->cause == SETTLE_PAUSED) && r->quiet &&
           r->disposition == DISPOSITION_DEFERRED;
}

static void note_in_message(struct active_msg *m, const struct settlement *s,
                            const struct settled *r)
{
    switch (r->disposition) {
    case DISPOSITION_DEFERRED:
    case DISPOSITION_SOFT_BOUNCED:
        active_touch(m);
        if (is_unchanged(s, r)) {
            break;
        }
        if (s->cause != SETTLE_DEAD) {
            waiting_not_for_dead(&m->waiting);
        }
        if (!knows_when(s, r)) {
            waiting_for_backoff(&m->waiting);
        }
        if (!has_own_expiry(s, r)) {
            waiting_for_lifetime(&m->waiting);
        }
        break;
    case DISPOSITION_SENT:
    case DISPOSITION_BOUNCED:
    case DISPOSITION_EXPIRED:
        m->undone -= m->undone > 0 ? 1 : 0;
        if (!r->verdict.done) {
            active_touch(m);
        }
        break;
    }
}

/* Lets the message wait as a whole. */
static void wait_in_message(struct queue *q, const struct settlement *s, struct wall due)
{
    struct waiting *w = &s->msg->waiting;

    if (s->destination == NULL || s->destination->expiry.expiry_us == 0) {
        waiting_for_lifetime(w);
    }
    waiting_until(w, due,
                  settlement_has_retry_rules(s) ? queue_retry_key(q, s->destination) : NULL);
}

/* Lets deferred recipients wait for their destination's time. */
static void wait_for_destination(struct queue *q, const struct settlement *s)
{
    bool has_rules = settlement_has_retry_rules(s);
    struct wall due = s->limit;

    if (has_rules && !s->destination->rules.queueonly) {
        due = wall_min(s->again_at, due);
    }
    if (has_rules && spool_divides(q->spool)) {
        put_off(q, s, queue_retry_key(q, s->destination), due);
    } else {
        wait_in_message(q, s, due);
    }
    if (has_rules && s->destination->retry != NULL) {
        dest_retry_slept(s->destination->retry);
    }
}

/* Returns when paused mail in a store that divides messages is due though its pause has not ended,
 * in case a crash loses that end. */
static struct wall look_again_at(const struct queue *q)
{
    return wall_after(clock_wall(), q->conf->maximal_backoff_time_us);
}

void settle_apply(struct queue *q, struct settlement *s)
{
    struct active_msg *m = s->msg;
    bool waits = false;

    if (s->cause == SETTLE_CRASHED ? m->path[0] != '\0' : s->result != NULL && s->result->resync) {
        external_resync(&q->external, slice_string(m->path)); /* to find what its agent has left */
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct settled *r = &s->rcpts[i];

        note_in_message(m, s, r);
        waits = waits || knows_when(s, r);
        if (!s->ends_message && (!is_unchanged(s, r) || spool_concludes(q->spool))) {
            batch_add_verdict(q, m->id, r->said.n, &r->verdict);
        }
    }
    if (s->ends_message) {
        active_end(m);
        batch_add_all_done(q, m->id, m->is_part ? "" : m->id_text);
    } else if (waits && s->cause == SETTLE_STUCK) {
        put_off(q, s, mem_string(s->park_key), WALL_NEVER);
    } else if (waits && s->cause == SETTLE_PAUSED && spool_divides(q->spool)) {
        put_off(q, s, mem_string(s->park_key), look_again_at(q));
    } else if (waits && s->cause == SETTLE_PAUSED) {
        waiting_for_pause(&m->waiting, mem_string(s->park_key));
    } else if (waits && !active_is_dropped(m)) {
        wait_for_destination(q, s);
    }
}
