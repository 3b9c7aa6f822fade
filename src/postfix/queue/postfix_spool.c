/*
 * The engine's calls. A change in the open batch is recorded in its message (`exit`, settled
 * recipients), so that it can be undone. The commit applies it to the directory.
 */
#include "postfix_spool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"
#include "envelope.h"
#include "mem.h"
#include "postfix_store.h"

/* ---- events --------------------------------------------------------------------------------- */

void store_tell(struct postfix_store *s, enum spool_event_type type, uint64_t id,
                const char *format, ...)
{
    va_list args;

    va_start(args, format);
    told_events_add(&s->events, type, (struct msg_id){id}, format, args);
    va_end(args);
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    return told_events_next(&store_of(sp)->events, ret_event);
}

/* ---- messages in memory --------------------------------------------------------------------- */

struct store_message *store_find(struct postfix_store *s, struct msg_id id)
{
    struct store_message *m;

    HASH_FIND(by_id, s->by_id, &id.n, sizeof id.n, m);
    return m;
}

bool store_has(struct postfix_store *s, struct slice name)
{
    struct store_message *m;

    HASH_FIND(by_name, s->by_name, name.ptr, name.len, m);
    return m != NULL;
}

/* Is it claimed, and has the open batch not ended the claim? */
static bool is_held(const struct store_message *m)
{
    return m->state == STORE_CLAIMED && m->exit == STORE_STAYS;
}

void store_add(struct postfix_store *s, struct store_message *m)
{
    bool flush = false;

    if (!known_take(s, m->told.queue_id, &m->id, &flush)) {
        m->id.n = ++s->last_id;
    }
    m->told.flushed = m->told.flushed || flush;
    m->state = STORE_ROUTING;
    HASH_ADD(by_id, s->by_id, id.n, sizeof m->id.n, m);
    HASH_ADD_KEYPTR(by_name, s->by_name, m->name, strlen(m->name), m);
    TAILQ_INSERT_TAIL(&s->routing[m->from_deferred], m, by_turn);
    s->ahead++;
}

static void ready_for_scan(struct postfix_store *s)
{
    for (size_t i = 0; i < 2; i++) {
        if (s->scans[i].running || s->scans[i].wanted) {
            store_ready(s);
        }
    }
}

void store_forget(struct postfix_store *s, struct store_message *m)
{
    CHECK(!m->touched && !m->asking);
    if (m->state == STORE_ROUTING) {
        TAILQ_REMOVE(&s->routing[m->from_deferred], m, by_turn);
        s->ahead--;
    } else if (m->state == STORE_LEAVING) {
        TAILQ_REMOVE(&s->leaving, m, by_turn);
    }
    HASH_DELETE(by_id, s->by_id, m);
    HASH_DELETE(by_name, s->by_name, m);
    read_rcpts_fini(s, m);
    queue_file_envelope_fini(&m->envelope);
    mem_free(m->class_name);
    mem_free(m);
    ready_for_scan(s); /* there is room for another message */
}

void store_ready(struct postfix_store *s)
{
    if (!s->ready_told && !s->polls) {
        s->ready_told = true;
        (void)eventfd_write(s->ready_fd, 1); /* EAGAIN: it is readable already */
    }
}

void store_at_hand(struct postfix_store *s, struct store_message *m)
{
    if (m->wanted) {
        m->wanted = false;
        store_tell(s, SPOOL_EVENT_READY, m->id.n, "%s", "");
    }
}

/* ---- leaving -------------------------------------------------------------------------------- */

int store_remove(struct postfix_store *s, struct slice name, enum queue_dir_name place)
{
    static const enum queue_dir_name logs[] = {QUEUE_DIR_BOUNCE, QUEUE_DIR_DEFER, QUEUE_DIR_TRACE};

    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        int err = queue_dir_remove(&s->dir, logs[i], name);

        if (err != 0 && err != -ENOENT) {
            return err;
        }
    }
    return queue_dir_remove(&s->dir, place, name);
}

int store_requeue(struct postfix_store *s, struct slice name, enum queue_dir_name place)
{
    int err = queue_dir_set_time(&s->dir, place, name, s->now);

    if (err == 0) {
        err = queue_dir_move(&s->dir, name, place, QUEUE_DIR_MAILDROP);
    }
    if (err == 0) {
        (void)queue_dir_remove(&s->dir, QUEUE_DIR_DEFER, name); /* no longer needed */
    }
    return err;
}

static int do_leave(struct postfix_store *s, const struct store_message *m)
{
    struct slice name = slice_string(m->name);
    int err;

    switch (m->exit) {
    case STORE_TO_DEFERRED:
        err = queue_dir_set_time(&s->dir, QUEUE_DIR_ACTIVE, name, m->due);
        return err != 0 ? err : queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, QUEUE_DIR_DEFERRED);
    case STORE_TO_INCOMING: /* it is no longer new */
        err = queue_dir_set_time(&s->dir, QUEUE_DIR_ACTIVE, name, s->now);
        return err != 0 ? err : queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, QUEUE_DIR_INCOMING);
    case STORE_TO_HOLD:
        return queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, QUEUE_DIR_HOLD);
    case STORE_TO_CORRUPT:
        return queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, QUEUE_DIR_CORRUPT);
    case STORE_TO_MAILDROP:
        return store_requeue(s, name, QUEUE_DIR_ACTIVE);
    case STORE_REMOVED_BY:
        return store_remove(s, name, QUEUE_DIR_ACTIVE);
    case STORE_REMOVED:
        return queue_dir_remove(&s->dir, QUEUE_DIR_ACTIVE, name);
    case STORE_STAYS:
    case STORE_CONCLUDES:
        break;
    }
    UNREACHABLE("it leaves");
}

/* Logs the result in the words of Postfix's own manager. */
static void tell_left(struct postfix_store *s, const struct store_message *m, int err)
{
    enum spool_event_type warning = SPOOL_EVENT_WARNING;

    if (m->exit == STORE_REMOVED || m->exit == STORE_REMOVED_BY) {
        if (err == 0) {
            store_tell(s, SPOOL_EVENT_LOG, 0, "%s: removed", m->name);
        } else {
            store_tell(s, warning, 0, "qmgr_active_done_3_generic: remove %s from active: %s",
                       m->name, strerror(-err));
        }
    } else if (m->exit == STORE_TO_CORRUPT && err == -ENOENT) {
        return; /* it was unusable because it was gone */
    } else if (m->exit == STORE_TO_CORRUPT && err == 0) {
        store_tell(s, warning, 0,
                   "saving corrupt file \"%s\" from queue \"active\" to queue \"corrupt\"",
                   m->name);
    } else if (err != 0) {
        store_tell(s, warning, 0, "qmgr_active_defer: rename %s from active to %s: %s", m->name,
                   queue_dir_word(m->exit == STORE_TO_DEFERRED   ? QUEUE_DIR_DEFERRED
                                  : m->exit == STORE_TO_INCOMING ? QUEUE_DIR_INCOMING
                                  : m->exit == STORE_TO_HOLD     ? QUEUE_DIR_HOLD
                                  : m->exit == STORE_TO_MAILDROP ? QUEUE_DIR_MAILDROP
                                                                 : QUEUE_DIR_CORRUPT),
                   strerror(-err));
    }
}

void store_leave(struct postfix_store *s, struct store_message *m, enum store_exit how,
                 struct wall due)
{
    int err;

    m->exit = how;
    m->due = due;
    err = do_leave(s, m);
    tell_left(s, m, err);
    if (how == STORE_TO_INCOMING) {
        s->scans[0].wanted = true;
    }
    if (err == 0 || err == -ENOENT) {
        s->counts[1] += how == STORE_TO_DEFERRED && err == 0 ? 1 : 0;
        store_forget(s, m);
        return;
    }
    if (m->state == STORE_ROUTING) {
        TAILQ_REMOVE(&s->routing[m->from_deferred], m, by_turn);
        s->ahead--;
    }
    if (m->state != STORE_LEAVING) {
        TAILQ_INSERT_TAIL(&s->leaving, m, by_turn);
    }
    m->state = STORE_LEAVING;
    m->ready = wall_after(s->now, STORE_AGAIN_US);
    store_ready(s); /* so that the next poll tries again */
}

/* ---- the batch ------------------------------------------------------------------------------ */

static void touch(struct postfix_store *s, struct store_message *m)
{
    if (!m->touched) {
        m->touched = true;
        STAILQ_INSERT_TAIL(&s->touched, m, by_batch);
    }
}

static int begin(struct spool *sp)
{
    struct postfix_store *s = store_of(sp);

    CHECK(STAILQ_EMPTY(&s->touched) && s->settled_count == 0);
    return 0;
}

static void rollback(struct spool *sp)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;

    while (s->settled_count > 0) {
        const struct store_settled *was = &s->settled[--s->settled_count];

        read_rcpt_find(was->m, was->n)->state = STORE_RCPT_ROUTED;
        was->m->pending += was->done ? 1 : 0;
    }
    while ((m = STAILQ_FIRST(&s->touched)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->touched, by_batch);
        m->touched = false;
        m->exit = STORE_STAYS;
    }
    known_end(s, false);
}

static int commit(struct spool *sp)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;

    while (s->settled_count > 0) {
        const struct store_settled *is = &s->settled[--s->settled_count];
        struct store_rcpt *r = read_rcpt_find(is->m, is->n);

        if (!is->done && r->pinned) {
            r->state = STORE_RCPT_KEPT;
        } else {
            read_rcpt_out(s, is->m, r);
        }
    }
    while ((m = STAILQ_FIRST(&s->touched)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->touched, by_batch);
        m->touched = false;
        if (m->exit == STORE_CONCLUDES) {
            m->exit = STORE_STAYS;
            m->state = STORE_CONCLUDING;
            STAILQ_INSERT_TAIL(&s->conclusions, m, by_conclusion);
        } else if (m->exit != STORE_STAYS) {
            if (m->state != STORE_CLAIMED) {
                s->services->forget(s->services->context, m->id);
            }
            store_leave(s, m, m->exit, m->due);
        }
    }
    known_end(s, true);
    pass_conclusions(s);
    return 0;
}

static void tidy(struct spool *sp)
{
    (void)sp; /* no work piles up */
}

static struct msg_id next_id(struct spool *sp)
{
    return (struct msg_id){++store_of(sp)->last_id};
}

/* ---- finding -------------------------------------------------------------------------------- */

static int need(struct postfix_store *s, struct msg_id id, struct store_message **ret_message)
{
    char text[SPOOL_ID_TEXT_MAX];

    *ret_message = store_find(s, id);
    if (*ret_message != NULL && (*ret_message)->state != STORE_LEAVING &&
        ((*ret_message)->exit == STORE_STAYS || (*ret_message)->exit == STORE_CONCLUDES ||
         (*ret_message)->exit == STORE_TO_HOLD)) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&s->base, -ENOENT, "%s: no such message is active", text);
}

/* ---- changes -------------------------------------------------------------------------------- */

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    (void)id;
    (void)n;
    return spool_fail(sp, -ENOTSUP, "submit: only cleanup(8) makes files in Postfix's queue");
}

/* Settles a recipient that is done, or that will be tried in another activation; it leaves memory
 * with the batch. */
static void settle_rcpt(struct postfix_store *s, struct store_message *m, struct store_rcpt *r,
                        bool done)
{
    r->state = done ? STORE_RCPT_OUT : STORE_RCPT_DEFERRED;
    m->pending -= done ? 1 : 0;
    touch(s, m);
    s->settled = mem_grow(s->settled, s->settled_count, &s->settled_size, sizeof *s->settled);
    s->settled[s->settled_count++] = (struct store_settled){m, r->n, done};
}

static int settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    struct store_rcpt *r;
    int err = need(s, id, &m);

    if (err != 0) {
        return err;
    }
    r = read_rcpt_find(m, n);
    if (r == NULL || r->state != STORE_RCPT_ROUTED) {
        return spool_fail(sp, -ENOENT, "%s: no recipient %u waits", m->name, (unsigned)n);
    }
    /* bounce(8) sends any report */
    settle_rcpt(s, m, r, v->done || v->state != SPOOL_RCPT_PENDING);
    return 0;
}

/* Sets the route for this activation; at the next one trivial-rewrite is asked again. */
static int set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    int err = known_find(s, id) != NULL ? 0 : need(s, id, &m);

    (void)route_generation;
    if (err == 0 && known_find(s, id) == NULL) {
        read_set_route(m, n, transport, nexthop);
    }
    return err;
}

static int reported(struct spool *sp, struct msg_id id)
{
    struct store_message *m;

    return need(store_of(sp), id, &m);
}

static int conclude(struct spool *sp, struct msg_id id, bool deferred, struct wall due)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    int err = need(s, id, &m);

    if (err != 0) {
        return err;
    }
    if (!is_held(m)) {
        return spool_fail(sp, -ENOENT, "%s: it is not claimed", m->name);
    }
    touch(s, m);
    m->exit = STORE_CONCLUDES;
    m->deferred = deferred;
    m->due = due;
    return 0;
}

/* Never deletes the message: Postfix's services decide that later. */
static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct store_message *m;
    int err = need(store_of(sp), id, &m);

    if (err != 0) {
        return err;
    }
    *ret_gone = false;
    return is_held(m) ? conclude(sp, id, m->pending > 0, due) : 0;
}

static int finish_all_done(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    int err = need(s, id, &m);

    for (size_t i = 0; err == 0 && i < m->rcpt_count; i++) {
        if (m->rcpts[i].state == STORE_RCPT_ROUTED) {
            settle_rcpt(s, m, &m->rcpts[i], true);
        }
    }
    return err != 0 ? err : conclude(sp, id, false, s->now);
}

static int leave_with_batch(struct spool *sp, struct msg_id id, enum store_exit how)
{
    struct postfix_store *s = store_of(sp);
    struct store_known *k = known_find(s, id);
    struct store_message *m;
    int err;

    if (k != NULL) {
        return known_leave(s, k, how);
    }
    err = need(s, id, &m);
    if (err == 0) {
        touch(s, m);
        m->exit = how;
    }
    return err;
}

static int remove_message(struct spool *sp, struct msg_id id)
{
    return leave_with_batch(sp, id, STORE_REMOVED_BY);
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    (void)reason; /* the log has it; a file has no place for it */
    return leave_with_batch(sp, id, STORE_TO_CORRUPT);
}

/* Sets the mode bit of postsuper -e, which takes effect at the next activation. */
static int set_force_expire(struct postfix_store *s, const struct store_message *m)
{
    struct queue_dir_file file;
    int fd, err = queue_dir_open_file(&s->dir, QUEUE_DIR_ACTIVE, slice_string(m->name), 0, &fd);

    if (err == 0) {
        err = queue_dir_stat(&s->dir, QUEUE_DIR_ACTIVE, slice_string(m->name), &file);
        err = err != 0 ? err : queue_dir_set_force_expire(&s->dir, fd, &file);
        (void)s->dir.io->close(fd); /* nothing was written */
    }
    return err == 0 ? 0 : spool_fail(&s->base, err, "%s: %s", m->name, strerror(-err));
}

static int change(struct spool *sp, const struct spool_change *c)
{
    struct postfix_store *s = store_of(sp);
    struct store_known *k = known_find(s, c->from->id);
    struct store_message *m;
    int err;

    if (k != NULL) {
        return known_change(s, k, c);
    }
    err = need(s, c->from->id, &m);
    if (err != 0) {
        return err;
    }
    if (c->to->state == SPOOL_HOLD || c->forget_tries) {
        return leave_with_batch(sp, m->id, c->forget_tries ? STORE_TO_MAILDROP : STORE_TO_HOLD);
    }
    if (c->from->state == SPOOL_HOLD) {
        m->exit = STORE_STAYS; /* held by this same batch */
        return 0;
    }
    if (c->to->force_expire && !c->from->force_expire) {
        return set_force_expire(s, m);
    }
    if (c->to->state == c->from->state && !c->end_claim && c->to->parked.len == 0 &&
        c->to->warnings == c->from->warnings) {
        return 0; /* an active message gets its times when it leaves active/ */
    }
    return spool_fail(sp, -ENOTSUP, "%s: Postfix's queue has no place for this; see postsuper(1)",
                      m->name);
}

/* ---- claims --------------------------------------------------------------------------------- */

static void unclaim(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m = store_find(s, id);

    if (m == NULL || !is_held(m)) {
        return;
    }
    if (sp->dirty) {
        touch(s, m);
        m->exit = STORE_TO_INCOMING;
    } else {
        store_leave(s, m, STORE_TO_INCOMING, s->now);
    }
}

/* Returns the next message of its queue if the routes of all its recipients are known. Later
 * messages wait for it, to keep the order of the scan. */
static struct store_message *claimable(struct postfix_store *s, enum spool_state from)
{
    struct store_message *m = TAILQ_FIRST(&s->routing[from == SPOOL_DEFERRED]);

    return m != NULL && m->unrouted == 0 ? m : NULL;
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    size_t count = 0;

    (void)now; /* every taken message was due */
    while (count < max && (m = claimable(s, from)) != NULL) {
        TAILQ_REMOVE(&s->routing[m->from_deferred], m, by_turn);
        s->ahead--;
        m->state = STORE_CLAIMED;
        ret_ids[count++] = m->id;
    }
    if (count > 0) {
        ready_for_scan(s); /* a poll may take others */
    }
    *ret_count = count;
    return 0;
}

static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    (void)now;
    (void)max;
    (void)ret_ids;
    *ret_count = 0; /* mail that is found is due, and a scan takes it */
    *ret_more = paused_wake(store_of(sp), key);
    return 0;
}

static int parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    (void)sp;
    (void)after;
    (void)max;
    (void)ret_keys;
    *ret_count = 0;
    return 0;
}

static int next_due(struct spool *sp, struct wall *ret_due)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *incoming = claimable(s, SPOOL_INCOMING);
    const struct store_message *deferred = claimable(s, SPOOL_DEFERRED);

    *ret_due = wall_min(incoming != NULL ? incoming->ready : WALL_NEVER,
                        deferred != NULL ? deferred->ready : WALL_NEVER);
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    const struct store_message *m = store_find(store_of((struct spool *)(uintptr_t)sp), id);

    return m != NULL && is_held(m);
}

static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    const struct postfix_store *s = store_of((struct spool *)(uintptr_t)sp);
    const struct UT_hash_handle *any = s->by_id != NULL ? &s->by_id->by_id : NULL, *h;
    size_t count = 0;

    do {
        for (h = hash_bucket(any, cursor); h != NULL && count < max; h = h->hh_next) {
            const struct store_message *m = ELMT_FROM_HH(any->tbl, h);

            if (is_held(m)) {
                ret_ids[count++] = m->id;
            }
        }
    } while (*cursor != 0 && count < max);
    return count;
}

/* ---- reading -------------------------------------------------------------------------------- */

static unsigned flags_of(const struct queue_file_envelope *e)
{
    unsigned flags =
        slice_equal(queue_file_text(e, QUEUE_FILE_ENCODING), SLICE("8bit")) ? ENVELOPE_8BIT : 0;

    flags |= (e->sendopts & 1) != 0 ? ENVELOPE_SMTPUTF8 : 0;
    flags |= e->ret_flags == 1 ? ENVELOPE_RET_FULL : e->ret_flags == 2 ? ENVELOPE_RET_HDRS : 0;
    return flags;
}

void store_show(struct postfix_store *s, const struct queue_file_envelope *e,
                struct spool_message *ret_message)
{
    struct slice name = queue_file_text(e, QUEUE_FILE_CLIENT_NAME);
    struct slice address = queue_file_text(e, QUEUE_FILE_CLIENT_ADDRESS);
    struct slice client = SLICE("");
    struct buf both;

    if (address.len > 0) {
        buf_init(&both, 2 * QUEUE_FILE_RECORD_MAX + 3);
        (void)buf_add(&both, name); /* there is room for all */
        (void)buf_add_byte(&both, '[');
        (void)buf_add(&both, address);
        (void)buf_add_byte(&both, ']');
        client = text_pool_add(&s->pool, buf_slice(&both));
        buf_fini(&both);
    }
    *ret_message = (struct spool_message){
        .sender = queue_file_text(e, QUEUE_FILE_SENDER),
        .envid = queue_file_text(e, QUEUE_FILE_ENVELOPE_ID),
        .flags = flags_of(e),
        .arrived = e->arrived,
        .created = e->created,
        .size = e->content_length,
        .rcpt_total = e->rcpt_count < UINT32_MAX ? (uint32_t)e->rcpt_count : UINT32_MAX,
        .warnings = e->warn_s < 0 ? 1 : 0,
        .reason = SLICE(""),
        .parked = SLICE(""),
        .client = client,
        .class_name = SLICE(""),
    };
}

static int read_one(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct postfix_store *s = store_of(sp);
    const struct store_known *k = known_find(s, id);
    struct store_message *m;
    int err;

    if (k != NULL) {
        return known_read(s, k, ret_message);
    }
    err = need(s, id, &m);
    if (err != 0) {
        return err;
    }
    text_pool_clear(&s->pool);
    store_show(s, &m->envelope, ret_message);
    ret_message->id = id;
    ret_message->state = m->exit == STORE_TO_HOLD ? SPOOL_HOLD
                         : m->from_deferred       ? SPOOL_DEFERRED
                                                  : SPOOL_INCOMING;
    ret_message->due = m->ready;
    ret_message->rcpt_pending = m->pending;
    ret_message->force_expire = m->expires;
    ret_message->is_new = m->is_new;
    ret_message->spoolid = slice_string(m->name);
    ret_message->class_name = slice_string(m->class_name);
    ret_message->class_source = m->class_source;
    return 0;
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct postfix_store *s = store_of(sp);
    const struct store_known *k = known_find(s, id);
    struct store_message *m;
    size_t count = 0;
    bool by_rule;
    int err;

    if (k != NULL) {
        return known_read_rcpts(s, k, after, max, ret_rcpts, ret_count);
    }
    err = need(s, id, &m);
    if (err == 0 && !only_pending) {
        return read_active(s, m, after, max, ret_rcpts, ret_count);
    }
    by_rule = err == 0 && queue_file_text(&m->envelope, QUEUE_FILE_FILTER).len > 0;
    for (size_t i = err == 0 ? read_rcpt_behind(m, after) : 0;
         err == 0 && i < m->rcpt_count && count < max; i++) {
        const struct store_rcpt *r = &m->rcpts[i];

        if (r->state == STORE_RCPT_ROUTED) {
            const struct postfix_rcpt shown = read_rcpt_show(r);

            ret_rcpts[count++] = (struct spool_rcpt){.n = r->n,
                                                     .address = shown.recipient,
                                                     .orcpt = shown.dsn_original,
                                                     .notify = shown.notify,
                                                     .state = SPOOL_RCPT_PENDING,
                                                     .transport = shown.transport,
                                                     .nexthop = shown.nexthop,
                                                     .route_generation = SPOOL_ROUTE_FIXED,
                                                     .route_by_rule = by_rule,
                                                     .status = SLICE(""),
                                                     .diagnostic = SLICE(""),
                                                     .reply = SLICE(""),
                                                     .remote = SLICE(""),
                                                     .details = SLICE(""),
                                                     .control = SLICE("")};
        }
    }
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

static int want_rcpts(struct spool *sp, struct msg_id id, uint32_t after, size_t max)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m;
    int err = need(s, id, &m);

    while (err == 0) {
        size_t have = m->unrouted == 0 ? read_routed_behind(m, after, max) : 0;

        if (m->unrouted > 0) {
            err = -EAGAIN;
        } else if (have == max || m->unread == 0 || m->unreadable) {
            return 0;
        } else if (m->pinned >= max && s->rcpts + max > s->options.rcpt_limit) {
            err = -ENOBUFS;
        } else {
            read_more(s, m, max - have);
        }
    }
    if (err != -ENOENT) {
        m->wanted = true;
    }
    return err;
}

/* Returns the counts of the last complete scans, corrected by the engine's own changes since. */
static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    struct postfix_store *s = store_of(sp);

    *ret_totals = (struct spool_totals){.incoming = s->counts[0] + HASH_CNT(by_id, s->by_id),
                                        .deferred = s->counts[1],
                                        .hold = search_count(s, STORE_HELD),
                                        .corrupt = search_count(s, STORE_CORRUPT)};
    return 0;
}

static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    struct statvfs st;

    if (fstatvfs(store_of(sp)->dir.fd, &st) != 0) {
        return spool_fail(sp, -errno, "queue directory: %s", strerror(errno));
    }
    *ret_bytes = (uint64_t)st.f_bavail * (uint64_t)st.f_frsize;
    return 0;
}

/* ---- external changes ----------------------------------------------------------------------- */

static int external_fd(const struct spool *sp)
{
    return store_of((struct spool *)(uintptr_t)sp)->ready_fd;
}

static int resync(struct spool *sp, struct slice path)
{
    (void)path; /* every activation reads the file */
    return spool_fail(sp, -ENOENT, "a file of Postfix's queue is read again when it is due");
}

static bool single_pass(const struct spool *sp)
{
    (void)sp;
    return false;
}

static void close_spool(struct spool *sp)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m, *next;

    HASH_ITER(by_id, s->by_id, m, next)
    {
        store_forget(s, m); /* the next start moves its file */
    }
    look_fini(s);
    search_fini(s);
    paused_fini(s);
    told_events_fini(&s->events);
    mem_free(s->settled);
    known_fini(s);
    text_pool_fini(&s->pool);
    text_pool_fini(&s->walked);
    if (s->ready_fd >= 0) {
        (void)close(s->ready_fd); /* nothing is in it */
    }
    queue_dir_close(&s->dir);
    mem_free(s);
}

static const struct spool_external_part external = {.fd = external_fd,
                                                    .poll = look_poll,
                                                    .look = look_all,
                                                    .resync = resync,
                                                    .single_pass = single_pass};

static const struct spool_conclusion_part conclusion = {.conclude = conclude};

const struct spool_engine postfix_engine = {
    .close = close_spool,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .tidy = tidy,
    .next_id = next_id,
    .submit = submit,
    .settle = settle,
    .set_route = set_route,
    .reported = reported,
    .finish = finish,
    .finish_all_done = finish_all_done,
    .change = change,
    .remove = remove_message,
    .quarantine = quarantine,
    .unclaim = unclaim,
    .claim = claim,
    .claim_parked = claim_parked,
    .parked_keys = parked_keys,
    .next_due = next_due,
    .is_claimed = is_claimed,
    .claimed = claimed,
    .read = read_one,
    .read_rcpts = read_rcpts,
    .want_rcpts = want_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .next_event = next_event,
    .search = &postfix_search,
    .external = &external,
    .conclusion = &conclusion,
};
