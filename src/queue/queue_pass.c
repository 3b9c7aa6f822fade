#include "queue_pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "address.h"
#include "batch.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "mail_class.h"
#include "mem.h"
#include "owner.h"
#include "park_key.h"
#include "queue.h"
#include "queue_report.h"
#include "queue_retry.h"
#include "queue_route.h"
#include "spool_conclusion.h"
#include "spool_division.h"

/* Recipients read from the spool in one call. */
#define READ_PAGE 500

/* ---- opening -------------------------------------------------------------------------------- */

struct slice pass_sched_class(const struct queue *q, const struct spool_message *m,
                              char room[SCHED_CLASS_NAME_MAX])
{
    return tuning_sched_class(q->conf, m->class_name, m->sender, m->client, room);
}

static void log_active(const char *name, struct slice sender, uint64_t size, uint32_t rcpts)
{
    log_info("%s: from=<%.*s>, size=%" PRIu64 ", nrcpt=%" PRIu32 " (queue active)", name,
             SLICE_ARGS(sender), size, rcpts);
}

bool pass_open(struct queue *q, struct active_msg *m, bool admitted)
{
    if (active_is_out(m) || q->role->stopping || (!admitted && !sched_has_room(q->sched))) {
        spool_unclaim(q->spool, m->id);
        active_remove(&q->active, m);
        import_new_mail(&q->import);
        return false;
    }
    /* In a store that divides messages, only the first pass is logged: each retry of a destination
     * loads everything that waits for it. */
    if (!spool_concludes(q->spool) && (m->fresh || !spool_divides(q->spool))) {
        log_active(m->id_text, slice_string(m->sender), m->size, m->undone);
    }
    if (m->fresh) {
        report_verbose(q, m->id, "scheduler processing %s", m->path);
    }
    sched_open_in_class(q->sched, clock_mono(), (struct sched_msg){m->id.n}, m->undone, false,
                        slice_string(m->sched_class),
                        class_weight(q->conf, slice_string(m->its_class->name)));
    if (!admitted) {
        owner_feed_opened(&q->import.feed, q->sched);
    }
    return true;
}

void pass_classes_reload(struct queue *q)
{
    const struct active_class *c;

    for (c = q->active.classes; c != NULL; c = c->hh.next) {
        struct slice name = slice_string(c->name);

        sched_class_weight(q->sched, name, class_weight(q->conf, name));
    }
}

/* ---- reading recipients --------------------------------------------------------------------- */

static enum stored_route stored_route_of(const struct queue *q, const struct spool_rcpt *r,
                                         uint64_t own)
{
    return r->transport.len == 0 || spool_route_is_stale(q->spool, r->route_generation, own)
               ? STORED_ROUTE_STALE
           : spool_route_is_newer(q->spool, r->route_generation, own) ? STORED_ROUTE_NEWER
                                                                      : STORED_ROUTE_OURS;
}

/* Reads the next page of loaded pending recipients, at most READ_PAGE, into memory. *ret_count is
 * their number. Returns false if the message can't continue. */
static bool read_page(struct queue *q, struct active_msg *m, size_t max, size_t *ret_count)
{
    struct spool_rcpt page[READ_PAGE];
    uint64_t own = queue_route_generation(q);
    size_t count = 0;
    int rc;

    CHECK(max <= READ_PAGE);
    rc = spool_read_rcpts(q->spool, m->id, m->last_read, true, max, page, &count);
    if (rc != 0) {
        log_warning("%s: recipients can't be read: %s", m->id_text, spool_error(q->spool));
        if (rc == -EBADMSG) {
            queue_quarantine(q, m->id, spool_error(q->spool));
        } else if (rc == -EUCLEAN || rc == -EIO) {
            m->unreadable = true; /* handled in pass_end.c */
        }
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        enum stored_route its_route = stored_route_of(q, &page[i], own);

        active_add_rcpt(m, &page[i], its_route);
        m->rcpts[m->rcpt_count - 1].moves =
            its_route != STORED_ROUTE_STALE && spool_lies_elsewhere(q->spool, m->id, &page[i]);
    }
    *ret_count = count;
    return true;
}

/* Ends the reading of a message; its other recipients are tried in another pass. */
static void read_failed(struct active_msg *m)
{
    m->all_read = true;
    active_touch(m);
    waiting_not_for_dead(&m->waiting);
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Handles a message that could not be read. */
static void load_failed(struct queue *q, struct msg_id id, int rc)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (rc == -EBADMSG) {
        queue_quarantine(q, id, spool_error(q->spool));
    } else if (rc == -EUCLEAN || rc == -EIO) {
        damage_hide(q, id, spool_error(q->spool), true); /* other mail continues */
    } else if (rc == -ENOENT && !spool_divides(q->spool)) {
        damage_hide(q, id, "an index names it, and it is not there", false);
    } else if (rc != -ENOENT) {
        spool_id_print(id, text);
        log_warning("%s: can't be read: %s", text, spool_error(q->spool));
        spool_unclaim(q->spool, id);
        import_pause(&q->import, wall_after(clock_wall(), US_PER_S));
    }
}

/* Reads a claimed message. Returns false if it can't continue; then its claim has been handled. */
static bool load_message(struct queue *q, struct msg_id id, struct spool_message *ret_message)
{
    int rc = spool_read(q->spool, id, ret_message);

    if (rc != 0) {
        load_failed(q, id, rc);
        return false;
    }
    if (ret_message->state != SPOOL_INCOMING && ret_message->state != SPOOL_DEFERRED) {
        /* The index is damaged: it has named a message that must stay on disk. */
        log_warning("spool: a message on hold or quarantined was found as if it were due");
        spool_unclaim(q->spool, id);
        return false;
    }
    ret_message->created.us += queue_clock_pending(&q->clock, id);
    ret_message->class_name = class_in_force(q->conf, ret_message->class_name);
    return true;
}

/* Returns the key of a message with recipients that `pause` keeps and others that wait under `key`
 * (taken; may be NULL). */
static char *paused_key(char *key, struct intervention *pause)
{
    char *more = interventions_key(pause);

    pause->recipients++;
    if (key != NULL && strcmp(key, more) != 0) {
        mem_free(more);
        more = mem_string(PARK_KEY_PAUSES);
    }
    mem_free(key);
    return more;
}

/* Returns the key under which a due message must stay on disk; NULL if it must be opened. Only
 * messages with few recipients are read here; the pass reads those soon in any case. */
static char *full_key(struct queue *q, struct active_msg *m)
{
    struct owner_target target = {.several = false};
    struct intervention *pause;
    struct route route;
    const char *nowhere;
    size_t count, paused = 0;
    char *parked, *pause_key = NULL;

    if (m->undone > OWNER_LOOK_MAX) {
        return NULL; /* the scheduler decides later */
    }
    if (!read_page(q, m, READ_PAGE, &count)) {
        read_failed(m);
        return NULL;
    }
    m->all_read = m->rcpt_count >= m->undone;
    if (!m->all_read) {
        return NULL; /* not all are loaded */
    }
    for (size_t i = 0; i < m->rcpt_count; i++) {
        struct destination *destination =
            queue_route(q, m, &m->rcpts[i], false, &route, &nowhere, &pause);

        if (pause != NULL && !m->rcpts[i].moves) {
            pause_key = paused_key(pause_key, pause);
            paused++;
        } else if (m->rcpts[i].moves || destination == NULL ||
                   !queue_retry_lets_go(q, m, destination)) {
            owner_target_fini(&target);
            mem_free(pause_key);
            return NULL; /* pass_read handles them */
        }
        park_target_add(q, &target, &route);
    }
    if (paused == m->rcpt_count && paused > 0 && !spool_divides(q->spool) &&
        !spool_concludes(q->spool)) {
        owner_target_fini(&target);
        return pause_key;
    }
    mem_free(pause_key);
    if (paused > 0) {
        owner_target_fini(&target);
        return NULL; /* pass_read separates them */
    }
    parked = park_target_full(q, &target, slice_string(m->sched_class), m->is_new);
    owner_target_fini(&target);
    return parked;
}

/* Brings a message into memory. Returns NULL if it must stay on disk; then *ret_park_key is its
 * key, which the caller frees. */
static struct active_msg *load_active(struct queue *q, const struct spool_message *m,
                                      bool requested, enum admitted admitted, char **ret_park_key)
{
    char sched_class_room[SCHED_CLASS_NAME_MAX];
    struct active_msg *active;

    active = active_add(&q->active, m, pass_sched_class(q, m, sched_class_room), clock_mono(),
                        clock_wall());
    active->requested = requested;
    active->is_new |= admitted == ADMITTED_NEW || park_key_is_new(m->parked);
    *ret_park_key = admitted != ADMITTED_NOT ? NULL : full_key(q, active);
    if (*ret_park_key != NULL) {
        active_remove(&q->active, active);
        return NULL;
    }
    return active;
}

/* Adds an event for mail that another program has stored, when it is first read. Reads *m again.
 * Returns false if the message can't continue. */
static bool tell_new(struct queue *q, struct msg_id id, struct spool_message *m)
{
    struct spool_rcpt rcpt;
    char *address = NULL;
    size_t count = 0;

    if (m->rcpt_total == 1 && spool_read_rcpts(q->spool, id, 0, true, 1, &rcpt, &count) == 0 &&
        count == 1) {
        address = mem_copy(rcpt.address.ptr, rcpt.address.len);
    }
    if (!load_message(q, id, m)) {
        mem_free(address);
        return false;
    }
    journal_received(q, id, m, slice_string(address), m->rcpt_total, m->size, SLICE(""), "");
    mem_free(address);
    return true;
}

bool pass_load(struct queue *q, struct msg_id id, enum admitted admitted)
{
    struct active_msg *active = active_find(&q->active, id);
    struct pass_end end = {.how = PASS_PARKED};
    struct spool_message m;
    bool requested;

    if (active != NULL) {
        active->is_lost = false; /* claimed by this node again */
        return false;            /* dropped, with a delivery in flight; pass_finish unclaims it */
    }
    if (damage_is_hidden(&q->damage, id)) {
        return false; /* claimed again after a failed batch had undone its claim */
    }
    if (!load_message(q, id, &m)) {
        return false;
    }
    if (m.is_new && q->journal.on && !tell_new(q, id, &m)) {
        return false;
    }
    if (m.is_new) { /* received by another program */
        q->counts.submitted++;
        class_count(&q->class_counts, m.class_name)->submitted++;
    }
    if (spool_concludes(q->spool)) { /* logged even if nothing is left to deliver */
        char name[QUEUE_NAME_MAX];
        struct buf sender;

        buf_init(&sender, WIRE_TEXT_MAX);
        address_put_external(m.sender, &sender); /* Postfix logs it without quotes */
        log_active(queue_message_name(&m, name), sender.failed ? m.sender : buf_slice(&sender),
                   m.size, m.rcpt_total);
        buf_fini(&sender);
    }
    requested = requested_take(&q->requested, id);
    if (m.rcpt_pending == 0) {
        end.how = PASS_REPORT;
    } else if (m.force_expire) {
        end.how = PASS_TRIED; /* no recipient is tried */
    } else {
        active = load_active(q, &m, requested, admitted, &end.park_key);
    }
    if (active != NULL) {
        return pass_open(q, active, admitted != ADMITTED_NOT);
    }
    batch_add_pass_end(q, id, &end);
    if (end.how == PASS_PARKED && requested) {
        requested_add(&q->requested, id); /* still requested */
    }
    return false;
}

/* ---- recipients for the scheduler ----------------------------------------------------------- */

/* Compares addresses in Postfix's order: by domain without regard to case (no domain last), then by
 * the whole address. */
static int compare_addresses(const void *a, const void *b)
{
    struct slice x = slice_string((*(struct active_rcpt *const *)a)->address);
    struct slice y = slice_string((*(struct active_rcpt *const *)b)->address);
    size_t at_x = slice_find_last(x, '@'), at_y = slice_find_last(y, '@');
    int order;

    if ((at_x == x.len) != (at_y == y.len)) {
        return at_x == x.len ? 1 : -1;
    }
    order = strcasecmp(x.ptr + at_x, y.ptr + at_y);
    return order != 0 ? order : slice_compare(x, y);
}

/* Recipients of a message that one pause keeps from one destination. */
struct kept {
    const struct intervention *pause; /* NULL: no recipients */
    struct destination *destination;
    uint32_t *ns; /* owned */
    size_t count;
};

static void end_kept(struct queue *q, struct active_msg *m, struct kept *k)
{
    if (k->pause != NULL) {
        interventions_keep(q, m, k->ns, k->count, k->destination, k->pause);
    }
    k->pause = NULL;
    k->count = 0;
}

static void keep_rcpt(struct queue *q, struct active_msg *m, struct kept *k, uint32_t n,
                      struct destination *destination, const struct intervention *pause)
{
    if (pause != k->pause || destination != k->destination) {
        end_kept(q, m, k);
    }
    k->pause = pause;
    k->destination = destination;
    k->ns[k->count++] = n;
}

/* Finds the destinations of recipients. Handles recipients that must not go now; puts the others
 * into ret_rcpts and ret_destinations and returns their number. */
static size_t place_rcpts(struct queue *q, struct active_msg *m, struct active_rcpt **order,
                          size_t count, struct sched_rcpt *ret_rcpts,
                          struct destination **ret_destinations)
{
    struct kept kept = {.ns = mem_array(count, sizeof *kept.ns)};
    size_t go = 0;

    for (size_t i = 0; i < count; i++) {
        struct active_rcpt *r = order[i];
        struct route route;
        const char *nowhere;
        struct intervention *pause;
        struct destination *destination = queue_route(q, m, r, true, &route, &nowhere, &pause);

        if (r->moves) {
            m->moves = true; /* whatever its route: the other node handles it */
        } else if (pause != NULL) {
            keep_rcpt(q, m, &kept, r->n, destination, pause);
        } else if (destination == NULL) {
            queue_stuck(q, m, r->n, &route, nowhere);
        } else if (!queue_retry_keeps(q, m, r, destination)) {
            ret_rcpts[go] = (struct sched_rcpt){.n = r->n,
                                                .transport = destination->transport,
                                                .dest = slice_string(destination->name)};
            ret_destinations[go++] = destination;
        }
    }
    end_kept(q, m, &kept);
    mem_free(kept.ns);
    return go;
}

/* Reads until `max` recipients are in memory that the scheduler has not received, or all that are
 * left. Returns 0, -EAGAIN or -ENOBUFS. */
static int gather(struct queue *q, struct active_msg *m, size_t max)
{
    size_t have = m->rcpt_count - m->rcpt_handed;
    int rc = m->all_read || have >= max
                 ? 0
                 : spool_want_rcpts(q->spool, m->id, m->last_read, max - have);

    if (rc == -EAGAIN || rc == -ENOBUFS) {
        return rc;
    }
    while (!m->all_read && m->rcpt_count - m->rcpt_handed < max) {
        size_t left = max - (m->rcpt_count - m->rcpt_handed), count;
        size_t page = left < READ_PAGE ? left : READ_PAGE;

        if (rc != 0 || !read_page(q, m, page, &count)) {
            read_failed(m);
        } else {
            m->all_read = count < page;
        }
    }
    return 0;
}

/* Passes gathered recipients on to the scheduler, at most `max`. */
static void hand_on(struct queue *q, struct active_msg *m, size_t max)
{
    struct active_rcpt **order;
    struct sched_rcpt *rcpts;
    struct destination **destinations;
    size_t count, first, go;
    bool complete;

    first = m->rcpt_handed;
    count = m->rcpt_count - first < max ? m->rcpt_count - first : max;
    m->rcpt_handed += (uint32_t)count;
    /* As in Postfix: after a full page it is unknown whether more follow. */
    complete = m->all_read && m->rcpt_handed == m->rcpt_count && count < max;
    order = mem_array(count, sizeof(struct active_rcpt *));
    rcpts = mem_array(count, sizeof *rcpts);
    destinations = mem_array(count, sizeof(struct destination *));
    for (size_t i = 0; i < count; i++) {
        order[i] = &m->rcpts[first + i];
    }
    if (count > 1) {
        qsort(order, count, sizeof *order, compare_addresses);
    }
    go = place_rcpts(q, m, order, count, rcpts, destinations);
    sched_recipients(q->sched, clock_mono(), (struct sched_msg){m->id.n}, rcpts, go,
                     (uint32_t)(count - go), complete);
    for (size_t i = 0; i < go; i++) {
        if (i == 0 || destinations[i] != destinations[i - 1]) {
            destination_opened(q, destinations[i]);
            destination_warn_of_clog(q, destinations[i]);
        }
    }
    mem_free(destinations);
    mem_free(rcpts);
    mem_free(order);
}

/* ---- waiting for recipients ----------------------------------------------------------------- */

void pass_reads_init(struct awaited_reads *a)
{
    *a = (struct awaited_reads){.msgs = TAILQ_HEAD_INITIALIZER(a->msgs)};
}

static void set_soon(struct queue *q, struct active_msg *m, bool soon)
{
    struct awaited_reads *a = &q->reads;

    if (soon && a->soon == 0) {
        a->hold_until = mono_after(clock_mono(), PASS_HOLD_US);
    }
    a->soon += soon ? 1 : 0;
    a->soon -= m->read_soon ? 1 : 0;
    m->read_soon = soon;
}

static void waits_no_more(struct queue *q, struct active_msg *m)
{
    set_soon(q, m, false);
    TAILQ_REMOVE(&q->reads.msgs, m, by_read);
    m->read_max = 0;
}

/* Answers the scheduler if the recipients are loaded. */
static void answer(struct queue *q, struct active_msg *m)
{
    size_t max = m->read_max;
    int rc = gather(q, m, max);

    if (m->read_max == 0) {
        return; /* unreadable, and dropped */
    }
    if (rc != 0) {
        set_soon(q, m, rc == -EAGAIN);
        return;
    }
    waits_no_more(q, m);
    hand_on(q, m, max);
}

/* A submitted message has all its recipients in memory. They are passed on in portions that the
 * scheduler allows, as if they were read. */
void pass_read(struct queue *q, struct active_msg *m, uint32_t max)
{
    destinations_trim(q);
    m->read_max = max;
    TAILQ_INSERT_TAIL(&q->reads.msgs, m, by_read);
    answer(q, m);
}

void pass_reads_at_hand(struct queue *q)
{
    struct active_msg *m, *next;

    for (m = TAILQ_FIRST(&q->reads.msgs); m != NULL; m = next) {
        next = TAILQ_NEXT(m, by_read);
        answer(q, m);
    }
}

void pass_read_drop(struct queue *q, struct active_msg *m)
{
    if (m->read_max > 0) {
        waits_no_more(q, m);
        sched_recipients(q->sched, clock_mono(), (struct sched_msg){m->id.n}, NULL, 0, 0, true);
    }
}

struct mono pass_held_until(const struct queue *q)
{
    return q->reads.soon > 0 && !mono_reached(q->reads.hold_until, clock_mono())
               ? q->reads.hold_until
               : (struct mono){0};
}
