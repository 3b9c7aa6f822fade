#include "queue_import.h"

#include <inttypes.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mail_class.h"
#include "queue.h"
#include "queue_decide.h"
#include "queue_pass.h"

/* How often a full active queue is worth a line of log. */
#define FULL_WARNING_US (300 * US_PER_S)

/* ---- when to look --------------------------------------------------------------------------- */

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

/* Where there are classes a part of the active queue is for new mail of those with little mail in
 * memory: a bulk that fills the rest keeps no other mail out. While all mail in memory is
 * `personal` by default_class it may fill everything, as it would without classes: what could come
 * besides is bulk, which can wait. */
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

/* What rests is in memory, too. */
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
    return used_places(q) + reserved_places(q) < (uint64_t)q->conf->qmgr_message_active_limit;
}

bool import_lets_in(const struct queue *q, struct slice class_name)
{
    return (!q->import.new_waits && import_has_place(q)) || has_reserved_place(q, class_name);
}

/* ---- a look --------------------------------------------------------------------------------- */

static bool has_place(const struct queue *q)
{
    return sched_has_room(q->sched) && import_has_place(q);
}

static void warn_of_full(struct queue *q)
{
    if (mono_reached(q->import.next_full_warning, clock_mono())) {
        log_warning("qmgr_message_active_limit: %" PRId64
                    " messages are active, more mail waits on disk",
                    q->conf->qmgr_message_active_limit);
        q->import.next_full_warning = mono_after(clock_mono(), FULL_WARNING_US);
    }
}

/* Both kinds of mail have nothing more that is due. */
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
    while (owner_feed_goes_on(&im->feed, has_place(q))) {
        unsigned which = im->feed.deferred ? 1 : 0;
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
            if (pass_load(q, id, false)) {
                queue_decide(q); /* to read it: the next one must find its share counted */
            }
        }
    }
    switch (owner_feed_end(&im->feed, has_place(q))) {
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
