#include "desk_private.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "parts.h"
#include "spool_engine.h"

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct desk_message *x = CONTAINER_OF(a, const struct desk_message, due);
    const struct desk_message *y = CONTAINER_OF(b, const struct desk_message, due);

    return x->f.m.due.us != y->f.m.due.us ? x->f.m.due.us < y->f.m.due.us : x->id < y->id;
}

unsigned desk_due_order(enum spool_state state)
{
    return state == SPOOL_INCOMING ? DUE_INCOMING : DUE_DEFERRED;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Copies `count` texts into one new block and points the slices there. */
static char *pack(struct slice **texts, size_t count)
{
    size_t size = 0, at = 0;
    char *block;

    for (size_t i = 0; i < count; i++) {
        size += texts[i]->len;
    }
    block = mem_new(size);
    for (size_t i = 0; i < count; i++) {
        if (texts[i]->len > 0) {
            memcpy(block + at, texts[i]->ptr, texts[i]->len);
        }
        *texts[i] = slice_of(block + at, texts[i]->len);
        at += texts[i]->len;
    }
    return block;
}

void desk_pack_message(struct desk_fields *f)
{
    struct slice *texts[] = {&f->m.sender, &f->m.envid,  &f->m.reason,
                             &f->m.client, &f->m.parked, &f->m.class_name};

    f->block = pack(texts, sizeof texts / sizeof texts[0]);
}

void desk_pack_rcpt(struct desk_rcpt *r)
{
    struct slice *texts[] = {&r->r.address, &r->r.orcpt,  &r->r.transport,
                             &r->r.nexthop, &r->r.status, &r->r.diagnostic,
                             &r->r.reply,   &r->r.remote, &r->r.tls};

    r->block = pack(texts, sizeof texts / sizeof texts[0]);
}

/* Takes the message out of the order of due times, before its fields change. */
static void unplace(struct desk *d, struct desk_message *msg)
{
    if (heap_has(&msg->due)) {
        heap_remove(&d->due[desk_due_order(msg->f.m.state)], &msg->due);
    }
}

static struct desk_undo *log_add(struct desk *d, struct desk_message *message, uint32_t n)
{
    struct desk_batch *b = &d->open;
    struct desk_undo *undo;

    CHECK(d->is_open);
    unplace(d, message);
    if (b->count == b->size) {
        b->size = b->size == 0 ? 64 : 2 * b->size;
        b->log = mem_resize(b->log, b->size, sizeof b->log[0]);
    }
    message->undos++;
    undo = &b->log[b->count++];
    undo->message = message;
    undo->n = n;
    return undo;
}

void desk_place(struct desk *d, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;

    if (!f->claimed && !f->gone && !msg->is_loading && msg->undos == 0 && !heap_has(&msg->due) &&
        d->finder->is_mine[msg->f.p] &&
        (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        heap_add(&d->due[desk_due_order(f->m.state)], &msg->due);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Replaces the fields and updates everything that depends on them. */
static void put_fields(struct desk *d, struct desk_message *msg, struct desk_fields to)
{
    desk_count_fields(d, &to, true); /* first, so that a key in use is not freed */
    desk_count_fields(d, &msg->f, false);
    unplace(d, msg);
    desk_unlink_key(d, msg);
    desk_unlink_part(d, msg);
    msg->f = to;
    desk_link_key(d, msg);
    desk_link_part(d, msg);
    desk_place(d, msg);
}

void desk_set_fields(struct desk *d, struct desk_message *msg, struct desk_fields to)
{
    struct desk_fields before = msg->f;

    put_fields(d, msg, to);
    if (d->is_open) {
        log_add(d, msg, 0)->before.fields = before;
    } else {
        mem_free(before.block);
    }
}

struct desk_fields desk_copy_fields(const struct desk_message *msg)
{
    struct desk_fields copy = msg->f;

    desk_pack_message(&copy);
    return copy;
}

uint32_t desk_rcpt_place(const struct desk_message *msg, uint32_t n)
{
    uint32_t from = 0, to = msg->rcpt_count;

    while (from < to) {
        uint32_t middle = from + (to - from) / 2;

        if (msg->rcpts[middle].r.n < n) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

struct desk_rcpt *desk_any_rcpt(const struct desk_message *msg, uint32_t n)
{
    uint32_t at = desk_rcpt_place(msg, n);

    return at < msg->rcpt_count && msg->rcpts[at].r.n == n ? &msg->rcpts[at] : NULL;
}

struct desk_rcpt *desk_rcpt(const struct desk_message *msg, uint32_t n)
{
    struct desk_rcpt *r = desk_any_rcpt(msg, n);

    return r == NULL || r->gone ? NULL : r;
}

void desk_set_rcpt(struct desk *d, struct desk_message *msg, struct desk_rcpt *r,
                   struct desk_rcpt to)
{
    desk_pack_rcpt(&to);
    log_add(d, msg, r->r.n)->before.rcpt = *r;
    *r = to;
}

void desk_drop_content(struct desk *d, struct desk_message *msg)
{
    if (msg->content != NULL) {
        d->content_bytes -= msg->f.m.size;
    }
    mem_free(msg->content);
    msg->content = NULL;
    if (msg->content_fd >= 0) {
        (void)close(msg->content_fd);
    }
    msg->content_fd = -1;
}

void desk_drop_rows(struct desk *d, struct desk_message *msg)
{
    desk_drop_content(d, msg);
    for (uint32_t i = 0; i < msg->rcpt_count; i++) {
        mem_free(msg->rcpts[i].block);
    }
    for (uint32_t i = 0; i < msg->other_count; i++) {
        mem_free(msg->others[i].block);
    }
    mem_free(msg->others);
    msg->others = NULL;
    msg->other_count = 0;
    mem_free(msg->rcpts);
    msg->rcpts = NULL;
    msg->rcpt_count = 0;
    mem_free(msg->f.block);
    msg->f = (struct desk_fields){.m = {.state = SPOOL_INCOMING}};
    mem_free(msg->wrong);
    msg->wrong = NULL;
}

void desk_set_looked(struct desk *d, struct desk_message *msg, bool is_looked)
{
    if (msg->is_looked) {
        TAILQ_REMOVE(&d->looked, msg, by_look);
        d->looked_count--;
    }
    if (is_looked) {
        TAILQ_INSERT_TAIL(&d->looked, msg, by_look);
        d->looked_count++;
    }
    msg->is_looked = is_looked;
}

void desk_set_ready(struct desk *d, struct desk_message *msg, bool is_ready)
{
    d->ready_count += is_ready;
    d->ready_count -= msg->is_ready;
    msg->is_ready = is_ready;
}

void desk_miss(struct desk *d, struct desk_message *msg)
{
    if (!msg->is_missed) {
        msg->is_missed = true;
        if (d->missed_count == d->missed_size) {
            d->missed_size = d->missed_size == 0 ? 64 : 2 * d->missed_size;
            d->missed = mem_resize(d->missed, d->missed_size, sizeof(struct desk_message *));
        }
        d->missed[d->missed_count++] = msg;
    }
}

void desk_unmiss(struct desk *d, struct desk_message *msg)
{
    for (size_t i = 0; msg->is_missed && i < d->missed_count; i++) {
        if (d->missed[i] == msg) {
            d->missed[i] = d->missed[--d->missed_count];
            break;
        }
    }
    msg->is_missed = msg->wants_parts = msg->parts_are_here = false;
}

void desk_forget_parts_of(const struct desk *d, const struct desk_message *msg)
{
    struct desk_message *whole = spool_is_part(&msg->f.m) ? desk_any(d, msg->f.m.whole.n) : NULL;

    if (whole != NULL) {
        whole->parts_are_here = false;
        whole->parts_asked = 0;
    }
}

static void free_message(struct desk *d, struct desk_message *msg)
{
    desk_forget_parts_of(d, msg);
    unplace(d, msg);
    desk_unlink_key(d, msg);
    desk_unlink_part(d, msg);
    desk_set_looked(d, msg, false);
    desk_set_ready(d, msg, false);
    desk_unmiss(d, msg);
    HASH_DEL(d->all, msg);
    desk_drop_rows(d, msg);
    mem_free(msg);
}

/* If no reason to stay is left, the finder gets the place of the message, so that it is loaded
 * again when due. */
void desk_may_leave(struct desk *d, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;
    bool is_stale = msg->told_due != INT64_MAX;
    bool is_ours = f->gone || d->finder->is_mine[msg->f.p];

    if (msg->undos > 0 || msg->is_loading || (!f->gone && f->claimed) ||
        (msg->is_looked && (f->gone || !is_stale)) ||
        (is_ours && !f->gone && msg->is_ready && !is_stale)) {
        return; /* one that is gone stays while in `looked`, so that calls get -ENOENT */
    }
    if (!f->gone && is_stale) {
        finder_put_early(d->finder, msg->f.p, msg->told_due, msg->id);
    } else if (!f->gone && msg->row >= ROW_FRESH) {
        finder_put_fresh(d->finder, msg->f.p, msg->id);
    } else if (!f->gone && (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        finder_put(d->finder, f->m.state == SPOOL_INCOMING ? FINDER_INCOMING : FINDER_DEFERRED,
                   msg->f.p, f->m.due.us, msg->id);
    }
    free_message(d, msg);
}

void desk_trim_looked(struct desk *d)
{
    while (d->looked_count > DESK_LOOKED_MAX) {
        struct desk_message *msg = TAILQ_FIRST(&d->looked);

        desk_set_looked(d, msg, false);
        desk_may_leave(d, msg);
    }
}

struct desk_message *desk_add_message(struct desk *d, uint64_t id)
{
    struct desk_message *msg = mem_new(sizeof *msg);

    msg->id = id;
    msg->f.m.state = SPOOL_INCOMING;
    msg->f.gone = true;
    msg->content_fd = -1;
    msg->told_due = INT64_MAX;
    heap_node_init(&msg->due);
    HASH_ADD(hh, d->all, id, sizeof msg->id, msg);
    return msg;
}

struct desk_message *desk_any(const struct desk *d, uint64_t id)
{
    struct desk_message *msg;

    HASH_FIND(hh, d->all, &id, sizeof id, msg);
    return msg;
}

struct desk_message *desk_find(const struct desk *d, struct msg_id id)
{
    struct desk_message *msg = desk_any(d, id.n);

    return msg == NULL || msg->f.gone || msg->is_loading ? NULL : msg;
}

int desk_id_order(const void *a, const void *b)
{
    const struct desk_message *const *x = a, *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

int desk_fail_by_id(struct desk *d, struct msg_id id, int err, const char *words)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    return spool_fail(d->base, err, "%s: %s", text, words);
}

bool desk_is_ours(const struct desk *d, const struct desk_message *msg)
{
    return d->finder->is_mine[msg->f.p] || msg->f.claimed;
}

bool desk_is_outdated(const struct desk_message *msg, uint64_t look)
{
    return !msg->is_loading && msg->undos == 0 && (msg->f.gone || msg->is_foreign) &&
           msg->look < look;
}

int desk_need(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    struct desk_message *msg = desk_any(d, id.n);

    *ret_msg = msg;
    if (msg == NULL || desk_is_outdated(msg, d->look)) {
        desk_miss(d, desk_expect(d, id.n, DESK_LOOKED));
        return desk_fail_by_id(d, id, -EAGAIN, "it is not loaded yet");
    }
    if (msg->is_loading) {
        if (!msg->is_looked) {
            desk_set_looked(d, msg, true);
        }
        return desk_fail_by_id(d, id, -EAGAIN, "it is not loaded yet");
    }
    return msg->f.gone ? desk_fail_by_id(d, id, -ENOENT, "no such message") : 0;
}

int desk_need_own(struct desk *d, struct msg_id id, int other, struct desk_message **ret_msg)
{
    int err = desk_need(d, id, ret_msg);

    return err == 0 && !desk_is_ours(d, *ret_msg)
               ? desk_fail_by_id(d, id, other, "another node has it: ask there")
               : err;
}

int desk_need_right(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    int err = desk_need(d, id, ret_msg);

    return err == 0 && (*ret_msg)->wrong != NULL
               ? desk_fail_by_id(d, id, -EBADMSG, (*ret_msg)->wrong)
               : err;
}

/* To callers a message that has become foreign is gone. */
int desk_need_right_own(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    int err = desk_need_own(d, id, -ENOENT, ret_msg);

    return err == 0 ? desk_need_right(d, id, ret_msg) : err;
}

int desk_need_rcpt(struct desk *d, struct msg_id id, uint32_t n, struct desk_message **ret_msg,
                   struct desk_rcpt **ret_rcpt)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = desk_need_right_own(d, id, ret_msg);

    if (err != 0) {
        return err;
    }
    *ret_rcpt = desk_rcpt(*ret_msg, n);
    if (*ret_rcpt != NULL) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(d->base, -ENOENT, "%s: no recipient %u", text, (unsigned)n);
}

/* ---- batches -------------------------------------------------------------------------------- */

void desk_begin(struct desk *d)
{
    CHECK(d->open.count == 0);
    d->is_open = true;
}

/* Drops an entry of a log. After the last one, a message that is gone is freed, and one that waits
 * can be claimed. */
static void forget_undo(struct desk *d, struct desk_message *msg)
{
    CHECK(msg->undos > 0);
    msg->undos--;
    desk_place(d, msg);
    desk_may_leave(d, msg);
}

void desk_await_batch(struct desk *d)
{
    d->passed_over = true;
}

static void batch_ended(struct desk *d)
{
    d->is_there_now = d->is_there_now || d->passed_over;
    d->passed_over = false;
}

static void keep_changes(struct desk *d, struct desk_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct desk_undo *undo = &b->log[i];

        mem_free(undo->n == 0 ? undo->before.fields.block : undo->before.rcpt.block);
        forget_undo(d, undo->message);
    }
    b->count = 0;
    batch_ended(d);
}

static void undo_changes(struct desk *d, struct desk_batch *b)
{
    for (size_t i = b->count; i-- > 0;) {
        const struct desk_undo *undo = &b->log[i];
        struct desk_message *msg = undo->message;

        if (undo->n == 0) {
            char *block = msg->f.block;

            put_fields(d, msg, undo->before.fields);
            mem_free(block);
        } else {
            struct desk_rcpt *r = desk_any_rcpt(msg, undo->n);

            mem_free(r->block);
            *r = undo->before.rcpt;
        }
    }
    for (size_t i = b->count; i-- > 0;) {
        forget_undo(d, b->log[i].message);
    }
    b->count = 0;
    batch_ended(d);
}

void desk_rollback(struct desk *d)
{
    d->is_open = false;
    undo_changes(d, &d->open);
    mem_free(d->open.adds);
    d->open.adds = NULL;
}

/* ---- commits in flight ----------------------------------------------------------------------- */

struct desk_batch *desk_begin_commit(struct desk *d)
{
    struct desk_batch *b = &d->under_way[d->under_way_count];

    CHECK(d->under_way_count < DESK_UNDER_WAY_MAX);
    d->under_way_count++;
    d->is_open = false;
    *b = d->open;
    b->arrived = d->arrived;
    d->open = (struct desk_batch){.count = 0};
    d->arrived = NULL;
    return b;
}

static void free_batch(struct desk_batch *b)
{
    mem_free(b->adds);
    mem_free(b->arrived);
    mem_free(b->moves);
    mem_free(b->log);
}

void desk_keep_oldest(struct desk *d, struct partition_set *ret_told)
{
    struct desk_batch oldest = d->under_way[0];

    CHECK(d->under_way_count > 0);
    *ret_told = oldest.told;
    d->under_way_count--;
    memmove(d->under_way, d->under_way + 1, d->under_way_count * sizeof d->under_way[0]);
    for (size_t i = 0; i < oldest.move_count; i++) {
        struct desk_message *msg = oldest.moves[i].message;

        if (msg->content != NULL && msg->row != ROW_NONE &&
            (msg->f.m.size > DESK_CONTENT_MAX || d->content_bytes > DESK_CONTENTS_MAX)) {
            desk_drop_content(d, msg); /* it can be read from the database now */
        }
        if (msg->is_foreign || oldest.moves[i].moves) { /* the new owner changes it from now on */
            desk_set_looked(d, msg, false);
            desk_set_ready(d, msg, false);
            d->is_there_now = d->is_there_now || oldest.moves[i].moves;
        }
        msg->is_foreign = false;
        if (oldest.moves[i].tells && d->finder->is_mine[parts_home(msg->f.m.whole)]) {
            desk_tell(d, parts_home(msg->f.m.whole), msg->f.m.whole.n);
        }
    }
    keep_changes(d, &oldest);
    free_batch(&oldest);
}

void desk_undo_all(struct desk *d)
{
    d->breaks++;
    desk_uncount_arrived(d, d->arrived);
    d->arrived = NULL;
    while (d->under_way_count > 0) {
        struct desk_batch b = d->under_way[--d->under_way_count];

        for (size_t i = b.move_count; i-- > 0;) {
            b.moves[i].message->row = b.moves[i].before;
        }
        undo_changes(d, &b);
        desk_uncount_arrived(d, b.arrived);
        b.arrived = NULL;
        free_batch(&b);
    }
}

static bool batch_has(const struct desk_batch *b, unsigned p)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->log[i].message->f.p == p || (b->log[i].n == 0 && b->log[i].before.fields.p == p)) {
            return true;
        }
    }
    return false;
}

bool desk_is_quiet(const struct desk *d, unsigned p)
{
    for (unsigned i = 0; i < d->under_way_count; i++) {
        if (batch_has(&d->under_way[i], p)) {
            return false;
        }
    }
    return !batch_has(&d->open, p);
}

/* ---- moving mail out of a fresh table ------------------------------------------------------- */

static bool is_passing(const struct desk *d, const struct desk_message *msg, unsigned table)
{
    return msg->row == ROW_FRESH + table && !msg->is_loading && !msg->f.gone && !msg->is_foreign &&
           !msg->stays && msg->wrong == NULL && d->finder->is_mine[msg->f.p];
}

void desk_stay(struct desk *d, struct msg_id id)
{
    struct desk_message *msg = desk_find(d, id);

    if (msg != NULL) {
        msg->stays = true;
    }
}

bool desk_is_passing(const struct desk *d, unsigned table, bool *ret_is_busy)
{
    *ret_is_busy = false;
    for (const struct desk_message *msg = d->all; msg != NULL; msg = msg->hh.next) {
        if (is_passing(d, msg, table)) {
            if (msg->undos == 0) {
                return true;
            }
            *ret_is_busy = true;
        }
    }
    return false;
}

size_t desk_move_passing(struct desk *d, unsigned table, size_t max)
{
    struct desk_message *msg, *next;
    size_t count = 0;

    HASH_ITER(hh, d->all, msg, next)
    {
        if (count < max && is_passing(d, msg, table) && msg->undos == 0) {
            struct desk_fields fields = desk_copy_fields(msg);

            fields.waits = true;
            desk_set_fields(d, msg, fields);
            count++;
        }
    }
    return count;
}

/* ---- partitions that are let go -------------------------------------------------------------- */

void desk_let_go(struct desk *d, const struct partition_set *partitions)
{
    struct desk_message *msg, *next;

    desk_forget_counts(d, partitions);
    HASH_ITER(hh, d->all, msg, next)
    {
        if (!msg->is_loading && !msg->f.gone && partition_set_has(partitions, msg->f.p)) {
            unplace(d, msg);
            desk_set_looked(d, msg, false);
            desk_may_leave(d, msg);
        }
    }
}

void desk_forget_foreign(struct desk *d, bool only_old)
{
    struct desk_message *msg, *next;

    HASH_ITER(hh, d->all, msg, next)
    {
        if (!msg->is_foreign || msg->is_loading || msg->f.gone || msg->undos > 0) {
            continue;
        }
        if (msg->is_old || !only_old) {
            desk_set_looked(d, msg, false);
            desk_may_leave(d, msg);
        } else {
            msg->is_old = true;
        }
    }
}

size_t desk_claimed_in(const struct desk *d, const struct partition_set *partitions,
                       struct msg_id **ret_ids)
{
    struct msg_id *ids = mem_array(HASH_COUNT(d->all) + 1, sizeof *ids);
    size_t count = 0;

    for (const struct desk_message *msg = d->all; msg != NULL; msg = msg->hh.next) {
        if (msg->f.claimed && partition_set_has(partitions, msg->f.p)) {
            ids[count++].n = msg->id;
        }
    }
    *ret_ids = ids;
    return count;
}

/* A message that a batch moves also counts as open work of its previous partition. */
static void add_origins(const struct desk_batch *b, struct partition_set *partitions)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->log[i].n == 0 && !b->log[i].before.fields.gone && !b->log[i].message->is_foreign) {
            partition_set_add(partitions, b->log[i].before.fields.p);
        }
    }
}

void desk_open_in(const struct desk *d, struct partition_set *ret_partitions)
{
    *ret_partitions = (struct partition_set){{0}};
    add_origins(&d->open, ret_partitions);
    for (unsigned i = 0; i < d->under_way_count; i++) {
        add_origins(&d->under_way[i], ret_partitions);
    }
    for (const struct desk_message *msg = d->all; msg != NULL; msg = msg->hh.next) {
        if (msg->f.claimed || (msg->undos > 0 && !msg->is_foreign)) {
            partition_set_add(ret_partitions, msg->f.p);
        }
    }
}

/* ---- interface ------------------------------------------------------------------------------- */

size_t desk_clear(struct desk *d, struct msg_id **ret_ids)
{
    struct msg_id *ids = mem_array(HASH_COUNT(d->all) + 1, sizeof *ids);
    struct desk_message *msg, *next;
    struct desk_key *key, *next_key;
    size_t count = 0;

    CHECK(!d->is_open && d->under_way_count == 0);
    d->missed_count = d->told_count = 0;
    HASH_ITER(hh, d->all, msg, next)
    {
        if (msg->f.claimed) {
            ids[count++].n = msg->id;
        }
        msg->is_missed = false;
        free_message(d, msg);
    }
    HASH_ITER(hh, d->keys, key, next_key)
    {
        key->count = 0;
        key->by_p_count = 0;
        desk_drop_key_if_empty(d, key);
    }
    d->totals = (struct spool_totals){.incoming = 0};
    for (int p = 0; p < PARTITIONS; p++) {
        d->by_p[p] = (struct spool_totals){0};
    }
    desk_arrivals_deleted(d);
    *ret_ids = ids;
    return count;
}

void desk_note_gone(struct desk *d, const struct msg_id *ids, size_t count)
{
    for (size_t i = count > DESK_LOOKED_MAX ? count - DESK_LOOKED_MAX : 0; i < count; i++) {
        if (desk_any(d, ids[i].n) == NULL) {
            desk_set_looked(d, desk_add_message(d, ids[i].n), true);
        }
    }
}

void desk_init(struct desk *d, struct spool *base, struct finder *finder)
{
    *d = (struct desk){.base = base, .finder = finder};
    TAILQ_INIT(&d->looked);
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_init(&d->due[order], due_before);
    }
}

void desk_fini(struct desk *d)
{
    struct msg_id *ids;

    desk_undo_all(d); /* commits in flight may still happen */
    if (d->is_open) {
        desk_rollback(d);
    }
    (void)desk_clear(d, &ids);
    mem_free(ids);
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_fini(&d->due[order]);
    }
    text_pool_fini(&d->pool);
    mem_free(d->keys_in_order);
    mem_free(d->missed);
    mem_free(d->told);
    mem_free(d->arrived);
    mem_free(d->open.log);
}
