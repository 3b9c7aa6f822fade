#include "queue_decide.h"

#include <inttypes.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "pass_end.h"
#include "queue.h"
#include "queue_agent.h"
#include "queue_retry.h"
#include "settlement.h"
#include "status.h"

/* Messages that one turn defers because their destination is dead; the next turn continues. The
 * rows of each are written, for mail in passage for the first time, and new mail waits meanwhile:
 * some 55 us for each message, and more in the commit. All 9,000 at once took 500 ms. */
#define DEFERRED_PER_TURN 32

/* Returns the key under which to park a message after its pass, or NULL. */
static char *key_of_dead(const struct queue *q, const struct active_msg *m)
{
    return owner_target_is_one(&m->waiting.dead)
               ? park_key(q, m->waiting.dead.transport, slice_string(m->waiting.dead.dest),
                          slice_string(m->sched_class), false)
               : NULL;
}

static void defer_unattempted(struct queue *q, const struct sched_action *action)
{
    struct active_msg *m = active_find(&q->active, (struct msg_id){action->msg.n});
    struct wire_verdict said = {.kind = VERDICT_DEFERRED, .status = SLICE("4.0.0")};
    struct slice reason = action->reason;
    struct settlement s;
    struct status status;
    struct buf text;
    size_t len;

    CHECK(m != NULL);
    if (queue_retry_defers(q, m, action)) {
        return;
    }
    if (status_prefix(reason, &status, &len)) {
        said.status = slice_of(reason.ptr, len);
        reason = slice_trim(slice_skip(reason, len));
    }
    waiting_for_dead(&m->waiting, action);
    buf_init(&text, WIRE_TEXT_MAX + 64);
    (void)buf_addf(&text, "delivery temporarily suspended: %.*s", SLICE_ARGS(reason)); /* fits */
    said.text = buf_slice(&text);
    settlement_begin(&s, SETTLE_DEAD, m, NULL, NULL, action->rcpt_count);
    s.is_logged = agents_deferred(q, action);
    for (size_t i = 0; i < action->rcpt_count; i++) {
        said.n = action->rcpts[i];
        (void)settlement_add(&s, &said);
    }
    queue_settle(q, &s);
    buf_fini(&text);
}

static void remember_step(struct queue *q, const struct sched_action *a, uint32_t before,
                          uint32_t after, enum history_why why)
{
    struct destination *d = destination_find(&q->destinations, a->transport, a->dest);

    if (d != NULL) {
        dest_history_add_step(
            &q->destinations.histories, d,
            (struct history_step){
                .at = clock_wall(), .before = before, .after = after, .why = why});
    }
}

static void destination_died(struct queue *q, const struct sched_action *a)
{
    park_died(q, a);
    remember_step(q, a, a->window, 0, HISTORY_DEAD);
    journal_destination(q, "dead", transport_name(&q->transports, a->transport), a->dest,
                        (struct wall){clock_wall().us + (a->until.us - clock_mono().us)}, a->window,
                        a->reason);
    log_warning("%s/%.*s: destination is dead, no delivery for %" PRId64
                " s, its window was %" PRIu32 ": %.*s",
                transport_name(&q->transports, a->transport), SLICE_ARGS(a->dest),
                us_seconds(a->until.us - clock_mono().us), a->window, SLICE_ARGS(a->reason));
}

static void destination_probed(struct queue *q, const struct sched_action *a)
{
    remember_step(q, a, 0, 1, HISTORY_PROBED);
    log_info("%s/%.*s: destination is tried again with one delivery",
             transport_name(&q->transports, a->transport), SLICE_ARGS(a->dest));
}

static void destination_revived(struct queue *q, const struct sched_action *a)
{
    remember_step(q, a, 0, a->window, HISTORY_REVIVED);
    journal_destination(q, "revived", transport_name(&q->transports, a->transport), a->dest,
                        (struct wall){0}, a->window, SLICE(""));
    log_info("%s/%.*s: destination is alive, window %" PRIu32,
             transport_name(&q->transports, a->transport), SLICE_ARGS(a->dest), a->window);
}

void queue_decide(struct queue *q)
{
    struct sched_action action;

    /* While stopping, nothing is left to start; see queue_stop. */
    while (!batch_is_blocked(&q->batch) && node_lease_holds(&q->lease) &&
           pass_held_until(q).us == 0 &&
           sched_next(q->sched, clock_mono(), &action) != SCHED_NONE) {
        struct active_msg *m = active_find(&q->active, (struct msg_id){action.msg.n});

        switch (action.type) {
        case SCHED_NONE:
            UNREACHABLE("the loop has ended");
        case SCHED_DELIVER:
            queue_deliver(q, &action);
            break;
        case SCHED_READ:
            CHECK(m != NULL);
            pass_read(q, m, action.max);
            break;
        case SCHED_DEFER:
            defer_unattempted(q, &action);
            if (action.can_wait && ++q->deferred >= DEFERRED_PER_TURN) {
                return; /* nothing else to decide; sched_wake_at returns "at once" */
            }
            break;
        case SCHED_DONE:
            CHECK(m != NULL);
            pass_finish(q, m, key_of_dead(q, m));
            break;
        case SCHED_PARK:
            CHECK(m != NULL);
            pass_finish(q, m,
                        park_key(q, action.transport, action.dest, action.class_name,
                                 m->is_new && m->waiting.state == WAITS_NOT));
            break;
        case SCHED_ADMIT:
            park_admit(&q->parking, &action);
            break;
        case SCHED_DEST_DEAD:
            destination_died(q, &action);
            break;
        case SCHED_DEST_PROBED:
            destination_probed(q, &action);
            break;
        case SCHED_DEST_REVIVED:
            destination_revived(q, &action);
            break;
        }
    }
}
