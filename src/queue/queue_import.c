#include "queue_import.h"

#include <inttypes.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mail_class.h"
#include "queue.h"
#include "queue_decide.h"
#include "queue_pass.h"

/* Interval between log lines about a full active queue. */
#define FULL_WARNING_US (300 * US_PER_S)

/* ---- time of the next search ---------------------------------------------------------------- */

void import_now(struct import *im)
{
    im->next_due.us = 0;
}

void import_by(struct import *im, struct wall due)
{
    im->next_due = wall_min(im->next_due, due);
}

void import_pause(struct import *im, struct wall until)
{
    im->next_due = until;
}

void import_new_mail(struct import *im)
{
    im->new_waits = true;
    import_now(im);
}

bool import_is_due(const struct import *im)
{
    return im->next_due.us <= clock_wall().us;
}

/* ---- places in memory ----------------------------------------------------------------------- */

/* With classes, a part of the active queue is reserved for new mail of classes with little mail in
 * memory. So bulk mail that fills the rest keeps no other mail out. While all mail in memory is
 * `personal` by default_class, that mail may fill everything, as without classes: other mail could
 * only be bulk, which can wait. */
#define RESERVED_PART 16
#define LITTLE_PART   8

static uint64_t reserved_places(const struct queue *q)
{
    bool all_personal =
        q->conf->default_class == CONF_DEFAULT_CLASS_AUTO &&
        active_class_count(&q->active, SLICE(CLASS_NAME_PERSONAL)) == HASH_COUNT(q->active.msgs);

    return classes_are_used(q->conf) && !all_personal
               ? (uint64_t)q->conf->qmgr_message_active_limit / RESERVED_PART
               : 0;
}

/* Messages whose results wait to be stored count, too. */
static uint64_t used_places(const struct queue *q)
{
    return HASH_COUNT(q->active.msgs) + q->damage.resting;
}

static bool has_reserved_place(const struct queue *q, struct slice class_name)
{
    uint64_t reserved = reserved_places(q);

    return reserved > 0 && used_places(q) < (uint64_t)q->conf->qmgr_message_active_limit &&
           active_class_count(&q->active, class_name) <= reserved / LITTLE_PART;
}

bool import_has_place(const struct queue *q)
{
    return sched_has_room(q->sched) &&
           used_places(q) + reserved_places(q) < (uint64_t)q->conf->qmgr_message_active_limit;
}

bool import_lets_in(const struct queue *q, struct slice class_name)
{
    return (!q->import.new_waits && import_has_place(q) && owner_feed_lets_in(&q->import.feed)) ||
           has_reserved_place(q, class_name);
}

void import_let_in(struct import *im)
{
    owner_feed_let_in(&im->feed);
}

/* ---- search -------------------------------------------------------------------------------- */

static void warn_of_full(struct queue *q)
{
    if (mono_reached(q->import.next_full_warning, clock_mono())) {
        log_warning("qmgr_message_active_limit: %" PRId64
                    " messages are active, more mail waits on disk",
                    q->conf->qmgr_message_active_limit);
        q->import.next_full_warning = mono_after(clock_mono(), FULL_WARNING_US);
    }
}

/* Reads the next due time when neither new nor deferred mail is due. */
static void find_next_due(struct queue *q)
{
    if (spool_next_due(q->spool, &q->import.next_due) != 0) {
        import_pause(&q->import, wall_after(clock_wall(), QUEUE_CHECK_PERIOD_US));
    }
}

bool import_some(struct queue *q)
{
    static const enum spool_state from[2] = {SPOOL_INCOMING, SPOOL_DEFERRED};
    struct import *im = &q->import;

    if (batch_is_blocked(&q->batch) || q->role->stopping || queue_clock_is_walking(&q->clock) ||
        !import_is_due(im) || (q->conf->read_queue_first && !external_has_looked(&q->external))) {
        return false;
    }
    owner_feed_begin(&im->feed);
    while (owner_feed_goes_on(&im->feed, import_has_place(q))) {
        unsigned which = im->feed.turns.deferred ? 1 : 0;
        struct msg_id id;
        size_t count = 0;
        int rc = spool_claim(q->spool, from[which], clock_wall(), 1, &id, &count);

        if (rc != 0) {
            log_warning("spool: %s", spool_error(q->spool));
            import_pause(im, wall_after(clock_wall(), QUEUE_CHECK_PERIOD_US));
            return false;
        }
        owner_feed_took(&im->feed, count > 0);
        if (count == 0) {
            if (which == 0) {
                im->new_waits = false;
            }
        } else {
            im->count++;
            if (pass_load(q, id, ADMITTED_NOT)) {
                queue_decide(q); /* counts the message in its share before the next one is read */
            }
        }
    }
    switch (
        owner_feed_end(&im->feed, q->sched, import_has_place(q), conf_new_mail_first(q->conf))) {
    case OWNER_FEED_MORE:
        return true;
    case OWNER_FEED_FULL:
        warn_of_full(q);
        return false;
    case OWNER_FEED_EMPTY:
        find_next_due(q);
        return false;
    }
    UNREACHABLE("no such end of a turn");
}
