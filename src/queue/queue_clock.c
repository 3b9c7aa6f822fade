#include "queue_clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "queue.h"
#include "spool_lease.h"
#include "spool_search.h"

/* Smaller differences are left to the corrections of the clock itself. */
#define STEP_US (5 * US_PER_S)
/* Messages per page and commit. */
#define WALK_PAGE 200
/* At a start, the newest id is wrong if it is further in the future than this. */
#define FUTURE_US (60 * US_PER_S)
#define WAITING   (1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED | 1u << SPOOL_HOLD)

struct clock_text {
    char text[32];
};

static struct clock_text text_of(struct wall t)
{
    time_t seconds = (time_t)us_seconds(t.us);
    struct clock_text c = {.text = "?"};
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL) {
        (void)strftime(c.text, sizeof c.text, "%Y-%m-%d %H:%M:%S", &tm); /* fits */
    }
    return c;
}

static int64_t offset_now(void)
{
    return clock_wall().us - clock_mono().us;
}

static struct wall moved(struct wall t, int64_t by_us)
{
    int64_t sum;

    if (t.us == US_FOREVER || __builtin_add_overflow(t.us, by_us, &sum)) {
        return t;
    }
    return (struct wall){sum};
}

static void add_walk(struct queue *q, int64_t by_us, bool is_clamp)
{
    CHECK(q->clock.walk_count < QUEUE_WALKS_MAX);
    q->clock.walks[q->clock.walk_count++] =
        (struct clock_walk){.by_us = by_us, .is_clamp = is_clamp, .last = spool_mark(q->spool)};
}

/* Makes a node of a cluster use the clock of all nodes, as if the machine's own were set. */
static void follow_cluster(const struct queue *q)
{
    if (spool_has_lease(q->spool)) {
        clock_set_step(-spool_clock_off_us(q->spool));
    }
}

struct wall queue_clock_of_others(const struct queue *q, struct wall t)
{
    return moved(t, -spool_clock_off_us(q->spool));
}

struct wall queue_clock_for_others(const struct queue *q, struct wall t)
{
    return moved(t, spool_clock_off_us(q->spool));
}

void queue_clock_begin(struct queue *q)
{
    struct wall newest = {(int64_t)spool_mark(q->spool).n};

    follow_cluster(q);
    clock_update();
    q->clock.offset_us = offset_now();
    /* A node's ids run ahead of its clock by the ids that earlier lives had reserved. */
    if (!spool_has_lease(q->spool) && newest.us > wall_after(clock_wall(), FUTURE_US).us) {
        log_warning("the clock is at %s, and there may be mail of %s: times that lie in the future "
                    "are corrected",
                    text_of(clock_wall()).text, text_of(newest).text);
        add_walk(q, 0, true);
    }
}

/* Moves the times in memory. */
static void move_memory(struct queue *q, int64_t by_us)
{
    struct active_msg *m, *next;

    HASH_ITER(hh, q->active.msgs, m, next)
    {
        m->created = moved(m->created, by_us);
        m->arrived = moved(m->arrived, by_us);
        m->activated_wall = moved(m->activated_wall, by_us);
        waiting_move(&m->waiting, by_us);
    }
    destinations_move(&q->destinations, by_us);
    q->started = moved(q->started, by_us);
    external_poll_soon(&q->external);
    import_now(&q->import);
}

void queue_clock_look(struct queue *q)
{
    int64_t offset = offset_now(), step = offset - q->clock.offset_us;
    struct wall was = moved(clock_wall(), -step);

    follow_cluster(q); /* the next turn detects the step */
    if (step > -STEP_US && step < STEP_US) {
        q->clock.offset_us = offset;
        return;
    }
    if (q->clock.walk_count == QUEUE_WALKS_MAX) {
        return; /* set repeatedly: handled when a walk has ended */
    }
    q->clock.offset_us = offset;
    log_warning("the clock was set %s by %" PRId64 " s, from %s to %s: retry times and ages of all "
                "mail move with it",
                step < 0 ? "back" : "forward", us_seconds((step < 0 ? -step : step) + US_PER_S / 2),
                text_of(was).text, text_of(clock_wall()).text);
    move_memory(q, step);
    add_walk(q, step, false);
}

int64_t queue_clock_pending(const struct queue_clock *c, struct msg_id id)
{
    int64_t sum = 0;

    for (unsigned i = 0; i < c->walk_count; i++) {
        const struct clock_walk *w = &c->walks[i];

        if (!w->is_clamp && id.n > w->after.n && id.n <= w->last.n) {
            sum += w->by_us;
        }
    }
    return sum;
}

struct wall queue_clock_to_store(const struct queue_clock *c, struct msg_id id, struct wall t)
{
    return moved(t, -queue_clock_pending(c, id));
}

/* Moves the stored times of one message. */
static int move_message(struct queue *q, const struct clock_walk *w, struct msg_id id)
{
    struct spool_message m;
    struct wall due, created;
    int rc = spool_read(q->spool, id, &m);

    if (rc != 0) {
        return rc;
    }
    if (w->is_clamp) {
        if (m.created.us <= clock_wall().us) {
            return 0;
        }
        created = clock_wall();
        due = wall_min(m.due, wall_after(clock_wall(), q->conf->minimal_backoff_time_us));
    } else {
        created = moved(m.created, w->by_us);
        due = moved(m.due, w->by_us);
    }
    return spool_set_times(q->spool, id, due, created);
}

static void walk_ended(struct queue *q)
{
    log_info("the clock was set: the times of %" PRIu64 " waiting messages were looked at",
             q->clock.walks[0].moved);
    q->clock.walk_count--;
    for (unsigned i = 0; i < q->clock.walk_count; i++) {
        q->clock.walks[i] = q->clock.walks[i + 1];
    }
    import_now(&q->import);
}

/* Handles the end of a page's commit. */
static void page_ended(struct queue *q, void *arg, int rc)
{
    struct queue_clock *c = &q->clock;

    (void)arg;
    c->page_under_way = false;
    if (rc != 0) {
        c->walks[0].after = c->page_after; /* repeat the page */
        c->next_walk = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
    } else if (c->page_is_last) {
        walk_ended(q);
    }
}

/* Returns true if all these messages are loaded; requests those that are not. */
static bool are_at_hand(struct queue *q, const struct msg_id *ids, size_t count)
{
    bool all = true;

    for (size_t i = 0; i < count; i++) {
        all = spool_want(q->spool, ids[i], SPOOL_WANT_ROWS) != -EAGAIN && all;
    }
    return all;
}

void queue_clock_at_hand(struct queue_clock *c)
{
    c->next_walk.us = 0;
}

bool queue_clock_walk(struct queue *q)
{
    struct queue_clock *c = &q->clock;
    struct clock_walk *w = &c->walks[0];
    struct spool_filter filter = {.states = WAITING, .after = w->after};
    struct msg_id ids[WALK_PAGE];
    size_t count = 0, done = 0;
    int rc;

    if (!queue_clock_is_walking(c) || batch_is_blocked(&q->batch) || c->page_under_way ||
        !mono_reached(c->next_walk, clock_mono())) {
        return false;
    }
    rc = spool_scan(q->spool, &filter, WALK_PAGE, ids, &count);
    if (rc == 0 && !are_at_hand(q, ids, count)) {
        rc = -EAGAIN;
    }
    while (rc == 0 && done < count && ids[done].n <= w->last.n) {
        rc = move_message(q, w, ids[done]);
        rc = batch_refused(rc) ? 0 : rc; /* damaged or gone: handled elsewhere */
        done += rc == 0;
    }
    if (done == 0 && (rc == -EAGAIN || (rc != 0 && !spool_dirty(q->spool)))) {
        c->next_walk = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
        return false;
    }
    c->page_after = w->after;
    c->page_is_last = rc == 0 && done < WALK_PAGE;
    c->page_under_way = true;
    w->moved += done;
    if (done > 0) {
        w->after = ids[done - 1]; /* the spool returns moved times from here on */
    }
    batch_add_waiter(q, page_ended, NULL);
    batch_commit(q); /* also ends a failed batch; then the page is repeated */
    return !c->page_under_way && queue_clock_is_walking(c) &&
           mono_reached(c->next_walk, clock_mono());
}
