#include "desk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "hash.h"
#include "mem.h"
#include "partition.h"
#include "parts.h"
#include "spool_engine.h"

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct desk_message *x = CONTAINER_OF(a, const struct desk_message, due);
    const struct desk_message *y = CONTAINER_OF(b, const struct desk_message, due);

    return x->f.m.due.us != y->f.m.due.us ? x->f.m.due.us < y->f.m.due.us : x->id < y->id;
}

static unsigned desk_due_order(enum spool_state state)
{
    return state == SPOOL_INCOMING ? DUE_INCOMING : DUE_DEFERRED;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Put copies of `count` texts into one new block and make the slices point there. */
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

static void desk_pack_message(struct desk_fields *f)
{
    struct slice *texts[] = {&f->m.sender, &f->m.envid,  &f->m.reason,
                             &f->m.client, &f->m.parked, &f->m.class_name};

    f->block = pack(texts, sizeof texts / sizeof texts[0]);
}

static void desk_pack_rcpt(struct desk_rcpt *r)
{
    struct slice *texts[] = {&r->r.address, &r->r.orcpt,  &r->r.transport,
                             &r->r.nexthop, &r->r.status, &r->r.diagnostic,
                             &r->r.reply,   &r->r.remote, &r->r.tls};

    r->block = pack(texts, sizeof texts / sizeof texts[0]);
}

/* Out of the order of due times, before its fields change. */
static void desk_unplace(struct desk *d, struct desk_message *msg)
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
    desk_unplace(d, message);
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

/* Into the order of due times, if it can be claimed. */
static void desk_place(struct desk *d, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;

    if (!f->claimed && !f->gone && !msg->is_loading && msg->undos == 0 && !heap_has(&msg->due) &&
        d->finder->is_mine[msg->f.p] &&
        (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        heap_add(&d->due[desk_due_order(f->m.state)], &msg->due);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

static struct desk_key *need_key(struct desk *d, struct slice name)
{
    struct desk_key *key;

    HASH_FIND(hh, d->keys, name.ptr, (unsigned)name.len, key);
    if (key == NULL) {
        key = mem_new(sizeof *key);
        key->key = mem_copy(name.ptr, name.len);
        TAILQ_INIT(&key->here);
        HASH_ADD_KEYPTR(hh, d->keys, key->key, (unsigned)name.len, key);
        mem_free(d->keys_in_order);
        d->keys_in_order = NULL;
    }
    return key;
}

static void desk_drop_key_if_empty(struct desk *d, struct desk_key *key)
{
    if (key->count == 0 && key->here_count == 0) {
        HASH_DEL(d->keys, key);
        mem_free(key->by_p);
        mem_free(key->key);
        mem_free(key);
        mem_free(d->keys_in_order);
        d->keys_in_order = NULL;
    }
}

static uint64_t *key_count_of(struct desk_key *key, uint16_t p)
{
    for (size_t i = 0; i < key->by_p_count; i++) {
        if (key->by_p[i].p == p) {
            return &key->by_p[i].count;
        }
    }
    key->by_p = mem_resize(key->by_p, key->by_p_count + 1, sizeof key->by_p[0]);
    key->by_p[key->by_p_count] = (struct desk_key_count){.p = p};
    return &key->by_p[key->by_p_count++].count;
}

/* `count` may be short of what is taken away until all were counted. */
static void count_key(struct desk *d, uint16_t p, struct slice name, uint64_t by)
{
    struct desk_key *key = need_key(d, name);

    *key_count_of(key, p) += by;
    key->count += by;
    desk_drop_key_if_empty(d, key);
}

static void desk_unlink_key(struct desk *d, struct desk_message *msg)
{
    struct desk_key *key = msg->key;

    if (key != NULL) {
        TAILQ_REMOVE(&key->here, msg, by_key);
        key->here_count--;
        msg->key = NULL;
        desk_drop_key_if_empty(d, key);
    }
}

static void desk_link_key(struct desk *d, struct desk_message *msg)
{
    if (msg->f.m.parked.len > 0 && !msg->f.gone && d->finder->is_mine[msg->f.p]) {
        msg->key = need_key(d, msg->f.m.parked);
        TAILQ_INSERT_TAIL(&msg->key->here, msg, by_key);
        msg->key->here_count++;
    }
}

static const enum spool_state counted_states[] = {SPOOL_INCOMING, SPOOL_DEFERRED, SPOOL_HOLD,
                                                  SPOOL_CORRUPT};

static void add_totals(struct spool_totals *to, struct spool_totals by, bool add)
{
    for (size_t i = 0; i < sizeof counted_states / sizeof counted_states[0]; i++) {
        uint64_t n = *spool_total_of(&by, counted_states[i]);

        *spool_total_of(to, counted_states[i]) += add ? n : -n;
    }
    to->bytes += add ? by.bytes : -by.bytes;
}

void desk_add_totals(struct spool_totals *to, const struct spool_totals *by)
{
    add_totals(to, *by, true);
}

static struct spool_totals total_of(enum spool_state state, uint64_t messages, uint64_t bytes)
{
    struct spool_totals t = {.bytes = bytes};

    *spool_total_of(&t, state) = messages;
    return t;
}

static void count_total(struct desk *d, uint16_t p, struct spool_totals by, bool add)
{
    add_totals(&d->totals, by, add);
    add_totals(&d->by_p[p], by, add);
}

static struct spool_totals *need_by_p(struct spool_totals **by_p)
{
    if (*by_p == NULL) {
        *by_p = mem_array(PARTITIONS, sizeof **by_p);
    }
    return *by_p;
}

static void desk_count_fields(struct desk *d, const struct desk_fields *f, bool add)
{
    if (f->gone || !d->finder->is_mine[f->p]) {
        return;
    }
    if (!spool_is_part(&f->m)) { /* its message is counted */
        struct spool_totals by = total_of(f->m.state, 1, f->m.size);

        count_total(d, f->p, by, add);
        if (d->is_open) {
            add_totals(&need_by_p(&d->open.adds)[f->p], by, add);
        }
    }
    if (f->m.parked.len > 0) {
        count_key(d, f->p, f->m.parked, add ? 1 : UINT64_MAX);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Its fields become `to`, and all that depends on them. */
static void put_fields(struct desk *d, struct desk_message *msg, struct desk_fields to)
{
    desk_count_fields(d, &to, true); /* first: a key that stays is not made anew */
    desk_count_fields(d, &msg->f, false);
    desk_unplace(d, msg);
    desk_unlink_key(d, msg);
    msg->f = to;
    desk_link_key(d, msg);
    desk_place(d, msg);
}

/* The one function that changes a message's own fields. Takes the block of `to`, which is a new
 * one. */
static void desk_set_fields(struct desk *d, struct desk_message *msg, struct desk_fields to)
{
    struct desk_fields before = msg->f;

    put_fields(d, msg, to);
    if (d->is_open) {
        log_add(d, msg, 0)->before.fields = before;
    } else {
        mem_free(before.block);
    }
}

/* The fields of a message, to be altered and given to desk_set_fields. */
static struct desk_fields desk_copy_fields(const struct desk_message *msg)
{
    struct desk_fields copy = msg->f;

    desk_pack_message(&copy);
    return copy;
}

/* Where recipient n is, or would be. */
static uint32_t desk_rcpt_place(const struct desk_message *msg, uint32_t n)
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

/* The one function that changes a recipient. `to` is packed here. */
static void desk_set_rcpt(struct desk *d, struct desk_message *msg, struct desk_rcpt *r,
                          struct desk_rcpt to)
{
    desk_pack_rcpt(&to);
    log_add(d, msg, r->r.n)->before.rcpt = *r;
    *r = to;
}

static void desk_drop_content(struct desk *d, struct desk_message *msg)
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

static void desk_drop_rows(struct desk *d, struct desk_message *msg)
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

static void desk_set_looked(struct desk *d, struct desk_message *msg, bool is_looked)
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

static void desk_set_ready(struct desk *d, struct desk_message *msg, bool is_ready)
{
    d->ready_count += is_ready;
    d->ready_count -= msg->is_ready;
    msg->is_ready = is_ready;
}

static void desk_miss(struct desk *d, struct desk_message *msg)
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

/* What is asked for of it is not wanted any more. */
static void desk_unmiss(struct desk *d, struct desk_message *msg)
{
    for (size_t i = 0; msg->is_missed && i < d->missed_count; i++) {
        if (d->missed[i] == msg) {
            d->missed[i] = d->missed[--d->missed_count];
            break;
        }
    }
    msg->is_missed = msg->wants_parts = msg->parts_are_here = false;
}

/* The message is a part that leaves the desk, or becomes another: those of its message are not all
 * here any more. */
static void desk_forget_parts_of(const struct desk *d, const struct desk_message *msg)
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
    desk_unplace(d, msg);
    desk_unlink_key(d, msg);
    desk_set_looked(d, msg, false);
    desk_set_ready(d, msg, false);
    desk_unmiss(d, msg);
    HASH_DEL(d->all, msg);
    desk_drop_rows(d, msg);
    mem_free(msg);
}

/* When nothing keeps it on the desk it goes, and is found again when it is due. */
static void desk_may_leave(struct desk *d, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;
    bool is_stale = msg->told_due != INT64_MAX;
    bool is_ours = f->gone || d->finder->is_mine[msg->f.p];

    if (msg->undos > 0 || msg->is_loading || (!f->gone && f->claimed) ||
        (msg->is_looked && (f->gone || !is_stale)) ||
        (is_ours && !f->gone && msg->is_ready && !is_stale)) {
        return; /* one that is gone and was looked at is known to be gone, for a while */
    }
    if (!f->gone && is_stale) {
        finder_put_early(d->finder, msg->f.p, msg->told_due, msg->id);
    } else if (!f->gone && msg->row >= ROW_FRESH) {
        finder_put_fresh(d->finder, msg->f.p, f->m.due.us, msg->id);
    } else if (!f->gone && (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        finder_put(d->finder, f->m.state == SPOOL_INCOMING ? FINDER_INCOMING : FINDER_DEFERRED,
                   msg->f.p, f->m.due.us, msg->id);
    }
    free_message(d, msg);
}

/* The messages that were looked at the longest time ago go. */
static void desk_trim_looked(struct desk *d)
{
    while (d->looked_count > DESK_LOOKED_MAX) {
        struct desk_message *msg = TAILQ_FIRST(&d->looked);

        desk_set_looked(d, msg, false);
        desk_may_leave(d, msg);
    }
}

static struct desk_message *desk_add_message(struct desk *d, uint64_t id)
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

static int desk_fail_by_id(struct desk *d, struct msg_id id, int err, const char *words)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    return spool_fail(d->base, err, "%s: %s", text, words);
}

/* May it be changed by its id? What is claimed stays ours when its partition is let go. */
static bool desk_is_ours(const struct desk *d, const struct desk_message *msg)
{
    return d->finder->is_mine[msg->f.p] || msg->f.claimed;
}

bool desk_is_outdated(const struct desk_message *msg, uint64_t look)
{
    return !msg->is_loading && msg->undos == 0 && (msg->f.gone || msg->is_foreign) &&
           msg->look < look;
}

static int desk_need(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    struct desk_message *msg = desk_any(d, id.n);

    *ret_msg = msg;
    if (msg == NULL || desk_is_outdated(msg, d->look)) {
        desk_miss(d, desk_expect(d, id.n, DESK_LOOKED));
        return desk_fail_by_id(d, id, -EAGAIN, "it is not at hand yet");
    }
    if (msg->is_loading) {
        if (!msg->is_looked) {
            desk_set_looked(d, msg, true);
        }
        return desk_fail_by_id(d, id, -EAGAIN, "it is not at hand yet");
    }
    return msg->f.gone ? desk_fail_by_id(d, id, -ENOENT, "no such message") : 0;
}

/* One that is ours to change; else `other`. */
static int desk_need_own(struct desk *d, struct msg_id id, int other, struct desk_message **ret_msg)
{
    int err = desk_need(d, id, ret_msg);

    return err == 0 && !desk_is_ours(d, *ret_msg)
               ? desk_fail_by_id(d, id, other, "another node has it: ask there")
               : err;
}

/* One whose rows make sense, too. */
static int desk_need_right(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    int err = desk_need(d, id, ret_msg);

    return err == 0 && (*ret_msg)->wrong != NULL
               ? desk_fail_by_id(d, id, -EBADMSG, (*ret_msg)->wrong)
               : err;
}

/* The same to be changed. What has become another's is of no concern: as if it had gone. */
static int desk_need_right_own(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    int err = desk_need_own(d, id, -ENOENT, ret_msg);

    return err == 0 ? desk_need_right(d, id, ret_msg) : err;
}

static int desk_need_rcpt(struct desk *d, struct msg_id id, uint32_t n,
                          struct desk_message **ret_msg, struct desk_rcpt **ret_rcpt)
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

/* ---- the batch ------------------------------------------------------------------------------ */

void desk_begin(struct desk *d)
{
    CHECK(d->open.count == 0);
    d->is_open = true;
}

/* An entry of a log is of no more use. With the last one what is gone is buried, and what waits can
 * be claimed. */
static void forget_undo(struct desk *d, struct desk_message *msg)
{
    CHECK(msg->undos > 0);
    msg->undos--;
    desk_place(d, msg);
    desk_may_leave(d, msg);
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

/* ---- commits under way ----------------------------------------------------------------------- */

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
            desk_drop_content(d, msg); /* it is in the database now */
        }
        msg->is_foreign = false;
        if (oldest.moves[i].moves) { /* it leaves, and is read again by who has it now */
            desk_set_looked(d, msg, false);
            desk_set_ready(d, msg, false);
            d->is_there_now = true;
        }
        if (oldest.moves[i].tells && d->finder->is_mine[parts_home(msg->f.m.whole)]) {
            desk_tell(d, parts_home(msg->f.m.whole), msg->f.m.whole.n);
        }
    }
    keep_changes(d, &oldest);
    free_batch(&oldest);
}

/* It is told again, and counted then. Takes `arrived`. */
static void desk_uncount_arrived(struct desk *d, struct spool_totals *arrived)
{
    for (uint16_t p = 0; arrived != NULL && p < PARTITIONS; p++) {
        count_total(d, p, arrived[p], false);
    }
    mem_free(arrived);
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

/* ---- changes -------------------------------------------------------------------------------- */

static int desk_read_all(const struct spool_new *n, char *content)
{
    size_t at = 0;

    if (n->prefix.len > 0) {
        memcpy(content, n->prefix.ptr, n->prefix.len);
        at += n->prefix.len;
    }
    if (n->content->bytes.len > 0) {
        memcpy(content + at, n->content->bytes.ptr, n->content->bytes.len);
        at += n->content->bytes.len;
    }
    return n->content->fd < 0 ? 0
                              : spool_io_read_all(&spool_io_real, n->content->fd, content + at,
                                                  n->content->fd_size, 0);
}

static void desk_fill_new_rcpt(struct desk_rcpt *to, const struct spool_new *n, uint32_t i)
{
    const struct spool_rcpt *r = &n->rcpts[i];

    to->r = (struct spool_rcpt){.n = i + 1,
                                .address = r->address,
                                .orcpt = r->orcpt,
                                .notify = r->notify,
                                .state = SPOOL_RCPT_PENDING,
                                .transport = r->transport,
                                .nexthop = r->nexthop,
                                .route_generation = r->route_generation};
    desk_pack_rcpt(to);
}

/* What was before it is that it was not, and that is what is logged. `content` is taken; NULL: it
 * is not kept. */
static void desk_set_new(struct desk *d, struct desk_message *msg, struct desk_fields fields,
                         char *content)
{
    msg->f.m.size = fields.m.size;
    msg->content = content;
    d->content_bytes += content != NULL ? fields.m.size : 0;
    desk_pack_message(&fields);
    desk_set_fields(d, msg, fields);
}

int desk_submit(struct desk *d, struct msg_id id, const struct spool_new *n)
{
    struct desk_message *msg;
    char *content = mem_resize(NULL, n->size + 1, 1); /* not zeroed: it is filled at once */
    int err = desk_read_all(n, content);

    if (err != 0) {
        mem_free(content);
        return spool_fail(d->base, err, "submit: read content: %s", strerror(-err));
    }
    msg = desk_add_message(d, id.n);
    msg->f.p = partition_of(&n->rcpts[0], parts_ring(d->base, &n->rcpts[0]));
    msg->rcpts = mem_array(n->rcpt_count, sizeof msg->rcpts[0]);
    msg->rcpt_count = n->rcpt_count;
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        desk_fill_new_rcpt(&msg->rcpts[i], n, i);
    }
    msg->is_foreign = !d->finder->is_mine[msg->f.p];
    desk_set_new(
        d, msg,
        (struct desk_fields){.m = *n->m, .p = msg->f.p, .claimed = n->claim && !msg->is_foreign},
        content);
    return 0;
}

/* Move a recipient from what it counted for to what it counts for now. */
static void count_rcpt(struct desk *d, struct desk_message *msg, const struct desk_rcpt *before,
                       const struct desk_rcpt *after)
{
    struct desk_fields fields = desk_copy_fields(msg);

    *(before->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending : &fields.m.rcpt_to_report) -=
        1;
    if (!after->gone) {
        *(after->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending
                                               : &fields.m.rcpt_to_report) += 1;
    }
    desk_set_fields(d, msg, fields);
}

int desk_settle(struct desk *d, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct desk_message *msg;
    struct desk_rcpt *r, before, to;
    int err = desk_need_rcpt(d, id, n, &msg, &r);

    if (err != 0) {
        return err;
    }
    before = to = *r;
    to.gone = v->done;
    if (!v->done) {
        to.r.state = v->state;
        to.r.status = v->status;
        to.r.diagnostic = v->diagnostic;
        to.r.reply = v->reply;
        to.r.remote = v->remote;
        to.r.tls = v->tls;
        if (v->attempted) {
            to.r.attempts += to.r.attempts < UINT32_MAX;
            to.r.last_attempt = v->when;
        }
    }
    count_rcpt(d, msg, &before, &to);
    desk_set_rcpt(d, msg, r, to);
    return 0;
}

int desk_set_route(struct desk *d, struct msg_id id, uint32_t n, struct slice transport,
                   struct slice nexthop, uint64_t route_generation)
{
    struct desk_message *msg;
    struct desk_rcpt *r, to;
    int err = desk_need_rcpt(d, id, n, &msg, &r);

    if (err != 0) {
        return err;
    }
    to = *r;
    to.r.transport = transport;
    to.r.nexthop = nexthop;
    to.r.route_generation = route_generation;
    desk_set_rcpt(d, msg, r, to);
    return 0;
}

int desk_reported(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = desk_need_right_own(d, id, &msg);

    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < msg->rcpt_count; i++) {
        struct desk_rcpt to = msg->rcpts[i];

        if (!to.gone && to.r.state != SPOOL_RCPT_PENDING) {
            to.gone = true;
            count_rcpt(d, msg, &msg->rcpts[i], &to);
            desk_set_rcpt(d, msg, &msg->rcpts[i], to);
        }
    }
    return 0;
}

static void bury(struct desk *d, struct desk_message *msg)
{
    struct desk_fields fields = desk_copy_fields(msg);

    fields.gone = true;
    fields.claimed = false;
    desk_set_fields(d, msg, fields);
}

int desk_finish(struct desk *d, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct desk_message *msg;
    int err = desk_need_right_own(d, id, &msg);
    const struct spool_message *m;

    if (err != 0) {
        return err;
    }
    m = &msg->f.m;
    *ret_gone = m->rcpt_pending + m->rcpt_to_report == 0 && msg->f.parts_left == 0 &&
                m->state != SPOOL_CORRUPT;
    if (*ret_gone) {
        bury(d, msg);
    } else if (msg->f.claimed) {
        struct desk_fields fields = desk_copy_fields(msg);

        fields.claimed = false;
        fields.m.state = SPOOL_DEFERRED;
        fields.m.due = due;
        fields.m.parked = SLICE("");
        desk_set_fields(d, msg, fields);
    }
    return 0;
}

int desk_finish_all_done(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = desk_need_own(d, id, -ENOENT, &msg);

    if (err == 0 && (msg->f.m.state == SPOOL_CORRUPT || msg->f.parts_left > 0)) {
        err = spool_fail(d->base, -EINVAL, "it was quarantined, or has parts, and is not deleted");
    }
    if (err == 0) {
        bury(d, msg);
    }
    return err;
}

int desk_change(struct desk *d, const struct spool_change *c)
{
    struct desk_message *msg;
    struct desk_fields fields;
    int err = desk_need_own(d, c->from->id, -EROFS, &msg); /* it was just read */

    if (err != 0) {
        return err;
    }
    fields = msg->f;
    fields.m = *c->to;
    fields.claimed = msg->f.claimed && !c->end_claim;
    desk_pack_message(&fields);
    desk_set_fields(d, msg, fields);
    for (uint32_t i = 0; c->forget_tries && i < msg->rcpt_count; i++) {
        struct desk_rcpt to = msg->rcpts[i];

        if (!to.gone && to.r.state == SPOOL_RCPT_PENDING) {
            to.r.attempts = 0;
            to.r.transport = to.r.nexthop = SLICE("");
            to.r.route_generation = 0;
            desk_set_rcpt(d, msg, &msg->rcpts[i], to);
        }
    }
    return 0;
}

int desk_remove(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = desk_need_own(d, id, -EROFS, &msg);

    if (err == 0 && msg->f.parts_left > 0) {
        return desk_reported(d, id);
    }
    if (err == 0) {
        bury(d, msg);
    }
    return err;
}

int desk_quarantine(struct desk *d, struct msg_id id, struct slice reason)
{
    struct desk_message *msg;
    int err = desk_need_own(d, id, -ENOENT, &msg);

    if (err == 0) {
        struct desk_fields fields = msg->f;

        fields.claimed = false;
        fields.m.state = SPOOL_CORRUPT;
        fields.m.reason = reason;
        fields.m.parked = SLICE("");
        desk_pack_message(&fields);
        desk_set_fields(d, msg, fields);
    }
    return err;
}

/* ---- mail that has been passing for long ---------------------------------------------------- */

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

/* ---- claims --------------------------------------------------------------------------------- */

static void set_claimed(struct desk *d, struct desk_message *msg, bool claimed)
{
    struct desk_fields fields = desk_copy_fields(msg);

    fields.claimed = claimed;
    desk_set_fields(d, msg, fields);
    if (claimed) {
        desk_set_ready(d, msg, false);
    }
}

void desk_unclaim(struct desk *d, struct msg_id id)
{
    struct desk_message *msg = desk_find(d, id);

    if (msg != NULL && msg->f.claimed) {
        set_claimed(d, msg, false);
        desk_may_leave(d, msg);
    }
}

static struct desk_message *first_due(const struct desk *d, unsigned order)
{
    struct heap_node *top = heap_top(&d->due[order]);

    return top == NULL ? NULL : CONTAINER_OF(top, struct desk_message, due);
}

int desk_claim(struct desk *d, enum spool_state from, struct wall now, size_t max,
               struct msg_id *ret_ids, size_t *ret_count)
{
    struct desk_message *msg;
    size_t count = 0;

    while (count < max && (msg = first_due(d, desk_due_order(from))) != NULL &&
           msg->f.m.due.us <= now.us) {
        set_claimed(d, msg, true);
        ret_ids[count++] = (struct msg_id){msg->id};
    }
    *ret_count = count;
    return 0;
}

bool desk_is_there_now(struct desk *d)
{
    bool is = d->is_there_now;

    d->is_there_now = false;
    return is;
}

static int desk_id_order(const void *a, const void *b)
{
    const struct desk_message *const *x = a, *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

static void claim_key(struct desk *d, struct desk_message *msg, struct wall now)
{
    struct desk_fields fields = msg->f;

    fields.claimed = true;
    fields.m.due = now;
    fields.m.parked = SLICE("");
    desk_pack_message(&fields);
    desk_set_fields(d, msg, fields);
    desk_set_ready(d, msg, false);
}

struct desk_key *desk_key(const struct desk *d, struct slice name)
{
    struct desk_key *key;

    HASH_FIND(hh, d->keys, name.ptr, (unsigned)name.len, key);
    return key;
}

bool desk_key_waits_elsewhere(const struct desk_key *key)
{
    return (int64_t)key->count > (int64_t)key->here_count;
}

int desk_claim_parked(struct desk *d, struct slice name, struct wall now, size_t max,
                      struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct desk_key *key = desk_key(d, name);
    struct desk_message *msg, **here;
    size_t count = 0, taken;
    bool more;

    *ret_count = 0;
    *ret_more = false;
    if (key == NULL) {
        return 0;
    }
    more = desk_key_waits_elsewhere(key);
    here = mem_array(key->here_count + 1, sizeof(struct desk_message *));
    TAILQ_FOREACH(msg, &key->here, by_key)
    {
        if (!msg->f.claimed && desk_is_ours(d, msg) && msg->undos == 0) {
            here[count++] = msg;
        } else if (!msg->f.claimed && desk_is_ours(d, msg)) {
            more = d->passed_over = true;
        }
    }
    qsort(here, count, sizeof(struct desk_message *), desk_id_order);
    for (taken = 0; taken < count && taken < max; taken++) {
        ret_ids[taken] = (struct msg_id){here[taken]->id};
        claim_key(d, here[taken], now);
    }
    mem_free(here);
    *ret_count = taken;
    *ret_more = more || taken < count;
    return 0;
}

int desk_next_due(struct desk *d, struct wall *ret_due)
{
    struct wall due = WALL_NEVER;

    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        const struct desk_message *msg = first_due(d, order);

        if (msg != NULL && msg->f.m.due.us < due.us) {
            due = msg->f.m.due;
        }
    }
    *ret_due = due;
    return 0;
}

bool desk_is_claimed(const struct desk *d, struct msg_id id)
{
    const struct desk_message *msg = desk_find(d, id);

    return msg != NULL && msg->f.claimed;
}

size_t desk_claimed(const struct desk *d, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    const struct desk_message *all = d->all;
    size_t count = 0;

    for (size_t looked = 0; looked <= max / 4 && (looked == 0 || *cursor != 0); looked++) {
        struct UT_hash_handle *hh = hash_bucket(all != NULL ? &all->hh : NULL, cursor);

        for (; hh != NULL && count < max; hh = hh->hh_next) {
            const struct desk_message *msg = CONTAINER_OF(hh, const struct desk_message, hh);

            if (msg->f.claimed) {
                ret_ids[count++].n = msg->id;
            }
        }
    }
    return count;
}

static int key_order(const void *a, const void *b)
{
    const struct desk_key *const *x = a, *const *y = b;

    return slice_compare(slice_of((*x)->key, (*x)->hh.keylen),
                         slice_of((*y)->key, (*y)->hh.keylen));
}

/* In their order, which is made when keys have come or gone. */
static struct desk_key **keys_in_order(struct desk *d)
{
    struct desk_key *key;
    size_t count = 0;

    if (d->keys_in_order == NULL) {
        d->keys_in_order = mem_array(HASH_COUNT(d->keys) + 1, sizeof(struct desk_key *));
        for (key = d->keys; key != NULL; key = key->hh.next) {
            d->keys_in_order[count++] = key;
        }
        qsort(d->keys_in_order, count, sizeof(struct desk_key *), key_order);
    }
    return d->keys_in_order;
}

int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count)
{
    struct desk_key **keys = keys_in_order(d);
    size_t from = 0, to = HASH_COUNT(d->keys), all = to, count = 0;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (slice_compare(slice_of(keys[middle]->key, keys[middle]->hh.keylen), after) <= 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    text_pool_clear(&d->pool);
    for (; from < all && count < max; from++) {
        if ((int64_t)keys[from]->count > 0) {
            ret_keys[count++] =
                text_pool_add(&d->pool, slice_of(keys[from]->key, keys[from]->hh.keylen));
        }
    }
    *ret_count = count;
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

int desk_read(struct desk *d, struct msg_id id, struct spool_message *ret_message)
{
    struct desk_message *msg;
    int err = desk_need(d, id, &msg);

    if (err == 0 && msg->wrong != NULL && msg->f.m.state != SPOOL_CORRUPT) {
        err = desk_fail_by_id(d, id, -EBADMSG, msg->wrong);
    }
    if (err == 0) {
        *ret_message = msg->f.m;
    }
    return err;
}

int desk_read_rcpts(struct desk *d, struct msg_id id, uint32_t after, bool only_pending, size_t max,
                    struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct desk_message *msg;
    int err = desk_need_right(d, id, &msg);
    size_t count = 0;

    if (err != 0) {
        return err;
    }
    if (msg->f.m.gathers && only_pending) {
        for (uint32_t i = 0; i < msg->other_count && count < max; i++) {
            if (msg->others[i].r.n > after) {
                ret_rcpts[count++] = msg->others[i].r;
            }
        }
    }
    for (uint32_t i = desk_rcpt_place(msg, after < UINT32_MAX ? after + 1 : after);
         i < msg->rcpt_count && count < max; i++) {
        const struct desk_rcpt *r = &msg->rcpts[i];

        if (!r->gone && (!only_pending || r->r.state == SPOOL_RCPT_PENDING)) {
            ret_rcpts[count++] = r->r;
        }
    }
    *ret_count = count;
    return 0;
}

int desk_want(struct desk *d, struct msg_id id, bool content)
{
    struct desk_message *msg;
    int err = desk_need(d, id, &msg);

    if (err == -EAGAIN && content) {
        desk_any(d, id.n)->wants_content = true;
    } else if (err == 0 && !msg->is_looked) {
        desk_set_looked(d, msg, true); /* it stays for a moment when its claim ends */
    }
    if (err != 0 || !content || msg->content != NULL || msg->content_fd >= 0 ||
        msg->wrong != NULL) {
        return err;
    }
    msg->wants_content = true;
    desk_miss(d, msg);
    return desk_fail_by_id(d, id, -EAGAIN, "its content is not at hand yet");
}

int desk_read_content(struct desk *d, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                      uint64_t *ret_size)
{
    struct desk_message *msg;
    int err = desk_need_right(d, id, &msg), fd = -1;

    err = err != 0 ? err : desk_want(d, id, true);
    if (err != 0) {
        return err;
    }
    if (msg->content != NULL) {
        if (!buf_add(ret_bytes, slice_of(msg->content, msg->f.m.size))) {
            return spool_fail(d->base, -ENOBUFS, "content is larger than the caller's buffer");
        }
    } else {
        fd = fcntl(msg->content_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            return spool_fail(d->base, -errno, "content: %s", strerror(errno));
        }
    }
    *ret_fd = fd;
    *ret_size = msg->f.m.size;
    return 0;
}

/* ---- what comes from the database ------------------------------------------------------------ */

bool desk_has(const struct desk *d, uint64_t id)
{
    const struct desk_message *msg = desk_any(d, id);

    return msg != NULL && (msg->is_loading || (!msg->f.gone && !msg->is_foreign) || msg->undos > 0);
}

struct desk_message *desk_expect(struct desk *d, uint64_t id, enum desk_reason why)
{
    struct desk_message *msg = desk_any(d, id);

    if (desk_has(d, id)) {
        return NULL;
    }
    if (msg == NULL) {
        msg = desk_add_message(d, id);
    }
    desk_forget_parts_of(d, msg);
    /* It was known to be gone, and now is said to be there; or was another's, and may be ours. */
    desk_drop_rows(d, msg);
    desk_unmiss(d, msg);
    msg->look = d->looks;
    msg->is_foreign = msg->is_old = false;
    msg->f.gone = true;
    msg->row = ROW_NONE;
    msg->is_loading = true;
    if (why == DESK_READY) {
        desk_set_ready(d, msg, true);
    } else {
        desk_set_looked(d, msg, true);
    }
    return msg;
}

void desk_fill(struct desk *d, struct desk_message *msg, uint16_t p, unsigned row,
               const struct spool_message *m)
{
    CHECK(msg->is_loading);
    desk_drop_rows(d, msg); /* of an answer that was not complete */
    msg->row = row;
    msg->f = (struct desk_fields){.m = *m, .p = p};
    desk_pack_message(&msg->f);
}

void desk_fill_rcpt(struct desk_message *msg, const struct spool_rcpt *r)
{
    uint32_t at = desk_rcpt_place(msg, r->n);

    if (at < msg->rcpt_count && msg->rcpts[at].r.n == r->n) {
        mem_free(msg->rcpts[at].block); /* it is read again */
    } else {
        msg->rcpts = mem_resize(msg->rcpts, msg->rcpt_count + 1, sizeof msg->rcpts[0]);
        memmove(msg->rcpts + at + 1, msg->rcpts + at,
                (msg->rcpt_count - at) * sizeof msg->rcpts[0]);
        msg->rcpt_count++;
    }
    msg->rcpts[at] = (struct desk_rcpt){.r = *r};
    desk_pack_rcpt(&msg->rcpts[at]);
}

void desk_fill_content(struct desk *d, struct desk_message *msg, char *bytes, int fd)
{
    desk_drop_content(d, msg);
    msg->content = bytes;
    msg->content_fd = fd;
    msg->wants_content = false;
    if (bytes != NULL) {
        d->content_bytes += msg->f.m.size;
    }
}

void desk_fill_report(struct desk_message *msg, uint32_t parts_left, int32_t gen)
{
    msg->f.parts_left = parts_left;
    msg->gen = gen;
}

void desk_fill_other(struct desk_message *msg, const struct spool_rcpt *r)
{
    if (msg->other_count > 0 && msg->others[msg->other_count - 1].r.n >= r->n) {
        return; /* it came twice */
    }
    msg->others = mem_resize(msg->others, msg->other_count + 1, sizeof msg->others[0]);
    msg->others[msg->other_count] = (struct desk_rcpt){.r = *r};
    desk_pack_rcpt(&msg->others[msg->other_count++]);
}

bool desk_needs_others(const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    return m->gathers && msg->f.parts_left > 0 && m->warnings == 0 && m->sender.len > 0;
}

void desk_fill_wrong(struct desk_message *msg, const char *why)
{
    if (msg->wrong == NULL) {
        msg->wrong = mem_string(why);
    }
}

/* Do the counts of the message fit its recipients? */
static bool adds_up(const struct desk_message *msg)
{
    uint32_t pending = 0, to_report = 0;

    for (uint32_t i = 0; i < msg->rcpt_count; i++) {
        if (msg->rcpts[i].r.state == SPOOL_RCPT_PENDING) {
            pending++;
        } else {
            to_report++;
        }
    }
    return pending == msg->f.m.rcpt_pending &&
           (to_report == msg->f.m.rcpt_to_report || msg->f.m.gathers);
}

bool desk_drop_torn(struct desk *d, struct desk_message *msg)
{
    bool is_torn = msg->row != ROW_NONE && !d->finder->is_mine[msg->f.p] &&
                   (msg->wrong != NULL || !adds_up(msg));

    if (is_torn) {
        desk_drop_rows(d, msg);
        msg->f.gone = true;
        msg->row = ROW_NONE;
    }
    return is_torn;
}

void desk_loaded(struct desk *d, struct desk_message *msg)
{
    CHECK(msg->is_loading);
    msg->is_foreign = msg->row != ROW_NONE && !d->finder->is_mine[msg->f.p];
    if (msg->is_foreign && !msg->is_looked) { /* it was let go meanwhile */
        desk_drop_rows(d, msg);
        msg->f.gone = true;
        msg->row = ROW_NONE;
    }
    if (msg->row == ROW_NONE) { /* it was not found, and is kept as gone for those that asked */
        msg->is_loading = false;
        desk_set_ready(d, msg, false);
        desk_may_leave(d, msg);
        return;
    }
    if (msg->wrong == NULL && !adds_up(msg)) {
        desk_fill_wrong(msg, "the numbers of its recipients do not add up");
    }
    if (msg->f.m.gathers) { /* others may have given between the two reads */
        msg->f.m.rcpt_to_report = msg->rcpt_count;
    }
    msg->is_loading = false;
    desk_link_key(d, msg);
    desk_place(d, msg);
    if (msg->is_foreign || (msg->f.m.state != SPOOL_INCOMING && msg->f.m.state != SPOOL_DEFERRED)) {
        desk_set_ready(d, msg, false);
    }
    desk_may_leave(d, msg);
    desk_trim_looked(d);
}

void desk_leave_until(struct desk *d, uint64_t id, int64_t now)
{
    struct desk_message *msg = desk_any(d, id);

    if (msg != NULL && !msg->is_loading && !msg->f.gone && msg->f.m.due.us > now) {
        desk_set_ready(d, msg, false);
        desk_may_leave(d, msg);
    }
}

void desk_count_stored(struct desk *d, uint16_t p, enum spool_state state, uint64_t messages,
                       uint64_t bytes)
{
    if (d->finder->is_mine[p] && spool_total_of(&d->totals, state) != NULL) {
        count_total(d, p, total_of(state, messages, bytes), true);
    }
}

void desk_count_arrived(struct desk *d, uint16_t p, enum spool_state state, uint64_t bytes)
{
    if (d->finder->is_mine[p] && spool_total_of(&d->totals, state) != NULL) {
        struct spool_totals by = total_of(state, 1, bytes);

        count_total(d, p, by, true);
        add_totals(&need_by_p(&d->arrived)[p], by, true);
    }
}

void desk_arrivals_deleted(struct desk *d)
{
    d->breaks++;
    mem_free(d->arrived);
    d->arrived = NULL;
}

void desk_count_parked(struct desk *d, uint16_t p, struct slice key, uint64_t messages)
{
    if (d->finder->is_mine[p]) {
        count_key(d, p, key, messages);
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

struct spool_totals desk_batch_adds(const struct desk_batch *b, unsigned p)
{
    struct spool_totals sum = {0};

    if (b->adds != NULL) {
        add_totals(&sum, b->adds[p], true);
    }
    if (b->arrived != NULL) {
        add_totals(&sum, b->arrived[p], true);
    }
    return sum;
}

struct spool_totals desk_stored(const struct desk *d, unsigned p)
{
    struct spool_totals stored = d->by_p[p];

    add_totals(&stored, desk_batch_adds(&d->open, p), false);
    for (unsigned i = 0; i < d->under_way_count; i++) {
        add_totals(&stored, desk_batch_adds(&d->under_way[i], p), false);
    }
    if (d->arrived != NULL) {
        add_totals(&stored, d->arrived[p], false);
    }
    return stored;
}

uint64_t desk_correct_totals(struct desk *d, unsigned p, const struct spool_totals *from,
                             const struct spool_totals *to)
{
    struct spool_totals more = *to;
    uint64_t wrong = 0;

    add_totals(&more, *from, false);
    count_total(d, (uint16_t)p, more, true);
    for (size_t i = 0; i < sizeof counted_states / sizeof counted_states[0]; i++) {
        uint64_t n = *spool_total_of(&more, counted_states[i]);

        wrong += n <= INT64_MAX ? n : -n; /* fewer */
    }
    return wrong;
}

/* ---- partitions that leave ------------------------------------------------------------------- */

static void forget_adds(struct spool_totals *by_p, unsigned p)
{
    if (by_p != NULL) {
        by_p[p] = (struct spool_totals){0};
    }
}

static void desk_forget_counts(struct desk *d, const struct partition_set *partitions)
{
    struct desk_key *key, *next;

    d->breaks++;
    for (unsigned p = 0; p < PARTITIONS; p++) {
        if (!partition_set_has(partitions, (int)p)) {
            continue;
        }
        count_total(d, (uint16_t)p, d->by_p[p], false);
        forget_adds(d->arrived, p);
        forget_adds(d->open.adds, p);
        for (unsigned i = 0; i < d->under_way_count; i++) {
            forget_adds(d->under_way[i].adds, p);
            forget_adds(d->under_way[i].arrived, p);
        }
    }
    HASH_ITER(hh, d->keys, key, next)
    {
        for (size_t i = 0; i < key->by_p_count; i++) {
            if (partition_set_has(partitions, key->by_p[i].p)) {
                key->count -= key->by_p[i].count;
                key->by_p[i].count = 0;
            }
        }
        desk_drop_key_if_empty(d, key);
    }
}

void desk_let_go(struct desk *d, const struct partition_set *partitions)
{
    struct desk_message *msg, *next;

    desk_forget_counts(d, partitions);
    HASH_ITER(hh, d->all, msg, next)
    {
        if (!msg->is_loading && !msg->f.gone && partition_set_has(partitions, msg->f.p)) {
            desk_unplace(d, msg);
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

/* What a batch moves is open where it comes from, too. */
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

/* ---- messages in parts ----------------------------------------------------------------------- */

/* Parts get copies of content up to so much in all; else it is read when it is wanted. */
#define PARTS_CONTENT_MAX ((size_t)1 << 20)

int desk_submit_parts(struct desk *d, struct msg_id whole, const struct spool_new *n,
                      const struct spool_share *shares, size_t count)
{
    struct desk_fields fields = {.m = *n->m};
    char *content = mem_resize(NULL, n->size + 1, 1); /* not zeroed: it is filled at once */
    bool copies = n->size <= DESK_CONTENT_MAX && n->size * count <= PARTS_CONTENT_MAX;
    int err = desk_read_all(n, content);
    struct desk_message *msg;

    if (err != 0) {
        mem_free(content);
        return spool_fail(d->base, err, "submit: read content: %s", strerror(-err));
    }
    for (size_t i = 0; i < count; i++) {
        msg = desk_add_message(d, shares[i].id.n);
        msg->f.p = fields.p = (uint16_t)shares[i].partition;
        msg->rcpts = mem_array(shares[i].count, sizeof msg->rcpts[0]);
        msg->rcpt_count = shares[i].count;
        for (uint32_t k = 0; k < shares[i].count; k++) {
            desk_fill_new_rcpt(&msg->rcpts[k], n, shares[i].rcpts[k]);
        }
        fields.m = *n->m;
        fields.m.id = shares[i].id;
        fields.m.whole = whole;
        fields.m.rcpt_pending = shares[i].count;
        msg->is_foreign = !d->finder->is_mine[msg->f.p];
        desk_set_new(d, msg, fields,
                     copies && !msg->is_foreign ? mem_copy(content, n->size) : NULL);
        if (!msg->is_foreign && d->ready_count < DESK_LOOKED_MAX) {
            desk_set_ready(d, msg, true); /* it need not be read to be claimed */
        }
    }
    fields.m = *n->m;
    fields.m.whole = whole;
    fields.m.gathers = true;
    fields.m.rcpt_pending = 0;
    fields.m.parked = SLICE("");
    fields.m.due = n->m->report_due.us != 0 ? n->m->report_due : n->m->due;
    msg = desk_add_message(d, whole.n);
    msg->f.p = fields.p = parts_home(whole);
    fields.parts_left = (uint32_t)count;
    msg->is_foreign = !d->finder->is_mine[msg->f.p];
    desk_set_new(d, msg, fields, content);
    return 0;
}

int desk_give(struct desk *d, struct msg_id id, struct wall due)
{
    struct desk_message *msg;
    struct desk_fields fields;
    int err = desk_need_right_own(d, id, &msg);

    if (err == 0 && !spool_is_part(&msg->f.m)) {
        err = desk_fail_by_id(d, id, -EINVAL, "it is no part of a message");
    }
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < msg->rcpt_count; i++) {
        struct desk_rcpt to = msg->rcpts[i];

        if (!to.gone && to.r.state != SPOOL_RCPT_PENDING) {
            to.gone = to.given = true;
            desk_set_rcpt(d, msg, &msg->rcpts[i], to);
        }
    }
    msg->give_due = due.us;
    fields = desk_copy_fields(msg);
    fields.m.rcpt_to_report = 0;
    desk_set_fields(d, msg, fields);
    return 0;
}

/* It goes to another partition, where it is due then at the latest. What it was parked for does not
 * hold there. */
static void leave_for(struct desk_fields *fields, unsigned p, struct wall due)
{
    fields->p = (uint16_t)p;
    fields->claimed = false;
    fields->m.parked = SLICE("");
    fields->m.due = wall_min(fields->m.due, due);
}

/* Recipients of a message become a part of their own, as they are. */
static void move_share(struct desk *d, struct desk_message *from, const struct spool_share *share,
                       struct wall due)
{
    struct desk_message *msg = desk_add_message(d, share->id.n);
    struct desk_fields fields = from->f;

    fields.claimed = fields.waits = false;
    fields.parts_made = 0;
    fields.m.id = share->id;
    fields.m.whole = spool_whole(&from->f.m);
    fields.m.rcpt_pending = share->count;
    fields.m.rcpt_to_report = 0;
    if (share->partition != from->f.p) {
        leave_for(&fields, share->partition, due);
    }
    msg->f.p = fields.p;
    msg->is_foreign = !d->finder->is_mine[fields.p];
    msg->rcpts = mem_array(share->count, sizeof msg->rcpts[0]);
    msg->rcpt_count = share->count;
    for (uint32_t i = 0; i < share->count; i++) {
        struct desk_rcpt *r = desk_rcpt(from, share->rcpts[i]), to = *r;

        msg->rcpts[i].r = r->r;
        desk_pack_rcpt(&msg->rcpts[i]);
        to.gone = true;
        desk_set_rcpt(d, from, r, to);
    }
    desk_set_new(d, msg, fields, NULL);
}

/* The message has no recipients that are pending any more: it is the report part of its parts. */
static void divide(struct desk *d, struct desk_message *msg, size_t count, struct wall due)
{
    struct desk_fields fields = desk_copy_fields(msg);

    fields.p = parts_home((struct msg_id){msg->id});
    fields.parts_left = (uint32_t)count;
    fields.claimed = false;
    fields.m.whole.n = msg->id;
    fields.m.gathers = true;
    fields.m.state = SPOOL_DEFERRED;
    fields.m.parked = SLICE("");
    fields.m.due = due;
    fields.m.rcpt_pending = 0;
    desk_set_fields(d, msg, fields);
}

/* Are these pending recipients of the message? */
static bool has_all(const struct desk_message *msg, const struct spool_share *share)
{
    for (uint32_t i = 0; i < share->count; i++) {
        const struct desk_rcpt *r = desk_rcpt(msg, share->rcpts[i]);

        if (r == NULL || r->r.state != SPOOL_RCPT_PENDING) {
            return false;
        }
    }
    return true;
}

int desk_move(struct desk *d, struct msg_id id, const struct spool_relocation *m)
{
    struct desk_message *msg;
    const struct spool_share *same = NULL; /* those that keep the id */
    int err = desk_need_right_own(d, id, &msg);

    for (size_t i = 0; err == 0 && i < m->count; i++) {
        same = m->shares[i].id.n == id.n ? &m->shares[i] : same;
        if (msg->f.m.gathers || !has_all(msg, &m->shares[i])) {
            err = desk_fail_by_id(d, id, -EINVAL, "what is to move is not pending");
        }
    }
    if (err != 0) {
        return err;
    }
    CHECK(same != NULL || !spool_is_part(&msg->f.m));
    desk_forget_parts_of(d, msg);
    for (size_t i = 0; i < m->count; i++) {
        if (&m->shares[i] != same) {
            move_share(d, msg, &m->shares[i], m->due);
        }
    }
    if (same == NULL) {
        divide(d, msg, m->count, m->report_due);
    } else {
        struct desk_fields fields = desk_copy_fields(msg);

        fields.parts_made += (uint32_t)m->count - 1;
        fields.m.rcpt_pending = same->count;
        if (same->partition != fields.p) {
            leave_for(&fields, same->partition, m->due);
        }
        desk_set_fields(d, msg, fields);
    }
    return 0;
}

int desk_partition(const struct desk *d, struct msg_id id)
{
    const struct desk_message *msg = desk_find(d, id);

    return msg == NULL ? -1 : msg->f.p;
}

int desk_parts_want(struct desk *d, struct msg_id whole)
{
    struct desk_message *msg;
    int err = desk_need(d, whole, &msg);

    if (err != 0 || !msg->f.m.gathers || (msg->parts_are_here && msg->parts_look >= d->look)) {
        return err;
    }
    msg->wants_parts = true;
    desk_miss(d, msg);
    return desk_fail_by_id(d, whole, -EAGAIN, "its parts are not at hand yet");
}

uint64_t desk_parts_list(struct desk *d, uint64_t whole)
{
    struct desk_message *msg = desk_any(d, whole);

    d->lists++;
    if (msg != NULL) {
        msg->parts_asked = d->lists;
    }
    return d->lists;
}

enum desk_listed desk_parts_listed(const struct desk *d, uint64_t whole, uint64_t list)
{
    const struct desk_message *msg = desk_any(d, whole);

    return msg == NULL || msg->is_loading || msg->parts_asked > list ? LIST_UNWANTED
           : msg->parts_asked == list                                ? LIST_HOLDS
                                                                     : LIST_OLD;
}

void desk_parts_are_here(struct desk *d, uint64_t whole, uint64_t look)
{
    struct desk_message *msg = desk_any(d, whole);

    if (msg != NULL && !msg->is_loading) {
        desk_unmiss(d, msg);
        msg->parts_are_here = true;
        msg->parts_look = look;
    }
}

/* Is it a part of that message, and as it is now? */
static bool is_part_of(const struct desk *d, const struct desk_message *msg, struct msg_id whole)
{
    return !msg->is_loading && !msg->f.gone && !desk_is_outdated(msg, d->look) &&
           spool_is_part(&msg->f.m) && msg->f.m.whole.n == whole.n;
}

int desk_parts_of(struct desk *d, struct msg_id whole, struct msg_id after, size_t max,
                  struct msg_id *ret_ids, size_t *ret_count)
{
    struct desk_message **found = mem_array(HASH_COUNT(d->all) + 1, sizeof(struct desk_message *));
    struct desk_message *msg;
    size_t count = 0;

    for (msg = d->all; msg != NULL; msg = msg->hh.next) {
        if (msg->id > after.n && is_part_of(d, msg, whole)) {
            found[count++] = msg;
        }
    }
    if (count > 0) {
        qsort(found, count, sizeof(struct desk_message *), desk_id_order);
    }
    *ret_count = count < max ? count : max;
    msg = desk_find(d, whole);
    if (msg != NULL && count <= max) {
        msg->parts_are_here = false; /* others may come, and these may go */
    }
    for (size_t i = 0; i < *ret_count; i++) {
        ret_ids[i].n = found[i]->id;
    }
    mem_free(found);
    return 0;
}

int desk_places_of(struct desk *d, struct msg_id id, struct spool_places *ret)
{
    struct desk_message *whole;
    int err = desk_parts_want(d, id);

    if (err != 0) {
        return err;
    }
    whole = desk_find(d, id);
    spool_places_add(ret, whole->f.p);
    for (struct desk_message *msg = d->all; msg != NULL && whole->f.m.gathers; msg = msg->hh.next) {
        if (is_part_of(d, msg, id)) {
            spool_places_add(ret, msg->f.p);
        }
    }
    return 0;
}

void desk_tell(struct desk *d, uint16_t p, uint64_t id)
{
    if (d->told_count > 0 && d->told[d->told_count - 1].id == id) {
        return; /* as most often, when its parts end together */
    }
    if (d->told_count == d->told_size) {
        d->told_size = d->told_size == 0 ? 64 : 2 * d->told_size;
        d->told = mem_resize(d->told, d->told_size, sizeof d->told[0]);
    }
    d->told[d->told_count++] = (struct desk_told){p, id};
}

void desk_told(struct desk *d, uint16_t p, uint64_t id, int64_t due)
{
    struct desk_message *msg = desk_any(d, id);

    if (!desk_has(d, id)) {
        finder_put_early(d->finder, p, due, id);
        return;
    }
    if (msg->f.gone && !msg->is_loading) {
        return;
    }
    msg->told_due = due < msg->told_due ? due : msg->told_due;
    desk_may_leave(d, msg); /* what is on the desk is not what it is any more */
}

/* ---- the whole ------------------------------------------------------------------------------- */

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

    desk_undo_all(d); /* what is under way may happen all the same */
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
