#include "desk.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "hash.h"
#include "mem.h"
#include "partition.h"
#include "spool_engine.h"

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct desk_message *x = CONTAINER_OF(a, const struct desk_message, due);
    const struct desk_message *y = CONTAINER_OF(b, const struct desk_message, due);

    return x->f.m.due.us != y->f.m.due.us ? x->f.m.due.us < y->f.m.due.us : x->id < y->id;
}

static unsigned due_order(enum spool_state state)
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

static void pack_message(struct desk_fields *f)
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

static struct desk_undo *log_add(struct desk *d, struct desk_message *message, uint32_t n)
{
    struct desk_batch *b = &d->open;
    struct desk_undo *undo;

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

/* Out of the order of due times, before its fields change. */
static void unplace(struct desk *d, struct desk_message *msg)
{
    if (heap_has(&msg->due)) {
        heap_remove(&d->due[due_order(msg->f.m.state)], &msg->due);
    }
}

/* Into the order of due times, if it can be claimed. */
static void place(struct desk *d, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;

    if (!f->claimed && !f->gone && msg->settling == 0 && !heap_has(&msg->due) &&
        (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        heap_add(&d->due[due_order(f->m.state)], &msg->due);
    }
}

static void count_fields(struct desk *d, const struct desk_fields *f, bool add)
{
    uint64_t *total = spool_total_of(&d->totals, f->m.state);

    if (!f->gone) {
        *total += add ? 1 : UINT64_MAX;
        d->totals.bytes += add ? f->m.size : -f->m.size;
    }
}

/* The one function that changes a message's own fields. Takes the block of `to`, which is a new
 * one. */
static void set_fields(struct desk *d, struct desk_message *msg, struct desk_fields to)
{
    struct desk_fields before = msg->f;

    count_fields(d, &before, false);
    count_fields(d, &to, true);
    unplace(d, msg);
    msg->f = to;
    place(d, msg);
    if (d->is_open) {
        log_add(d, msg, 0)->before.fields = before;
    } else {
        mem_free(before.block);
    }
}

/* The fields of a message, to be altered and given to set_fields. */
static struct desk_fields copy_fields(const struct desk_message *msg)
{
    struct desk_fields copy = msg->f;

    pack_message(&copy);
    return copy;
}

/* The one function that changes a recipient. `to` is packed here. */
static void set_rcpt(struct desk *d, struct desk_message *msg, uint32_t n, struct desk_rcpt to)
{
    desk_pack_rcpt(&to);
    log_add(d, msg, n)->before.rcpt = msg->rcpts[n - 1];
    msg->rcpts[n - 1] = to;
}

static void free_message(struct desk *d, struct desk_message *msg)
{
    for (uint32_t i = 0; i < msg->f.m.rcpt_total; i++) {
        mem_free(msg->rcpts[i].block);
    }
    unplace(d, msg);
    HASH_DEL(d->all, msg);
    TAILQ_REMOVE(&d->in_order, msg, by_id);
    mem_free(msg->rcpts);
    mem_free(msg->f.block);
    mem_free(msg->content);
    mem_free(msg);
}

struct desk_message *desk_find(const struct desk *d, struct msg_id id)
{
    struct desk_message *msg;

    HASH_FIND(hh, d->all, &id.n, sizeof id.n, msg);
    return msg == NULL || msg->f.gone ? NULL : msg;
}

static int need(struct desk *d, struct msg_id id, struct desk_message **ret_msg)
{
    char text[SPOOL_ID_TEXT_MAX];

    *ret_msg = desk_find(d, id);
    if (*ret_msg != NULL) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(d->base, -ENOENT, "%s: no such message", text);
}

static int need_rcpt(struct desk *d, struct msg_id id, uint32_t n, struct desk_message **ret_msg)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = need(d, id, ret_msg);

    if (err != 0) {
        return err;
    }
    if (n >= 1 && n <= (*ret_msg)->f.m.rcpt_total && !(*ret_msg)->rcpts[n - 1].gone) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(d->base, -ENOENT, "%s: no recipient %u", text, (unsigned)n);
}

/* ---- the batch ------------------------------------------------------------------------------ */

void desk_begin(struct desk *d)
{

    CHECK(d->open.count == 0);
    d->open.totals_before = d->totals;
    d->is_open = true;
}

/* An entry of a log is of no more use. What is gone is buried with the last. */
static void forget_undo(struct desk *d, struct desk_message *msg)
{
    CHECK(msg->undos > 0);
    if (--msg->undos == 0 && msg->f.gone) {
        free_message(d, msg);
    }
}

static void keep_changes(struct desk *d, struct desk_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct desk_undo *undo = &b->log[i];

        mem_free(undo->n == 0 ? undo->before.fields.block : undo->before.rcpt.block);
        forget_undo(d, undo->message);
    }
    b->count = 0;
}

static void undo_changes(struct desk *d, struct desk_batch *b)
{
    for (size_t i = b->count; i-- > 0;) {
        const struct desk_undo *undo = &b->log[i];
        struct desk_message *msg = undo->message;

        if (undo->n == 0) {
            unplace(d, msg);
            mem_free(msg->f.block);
            msg->f = undo->before.fields;
            place(d, msg);
        } else {
            mem_free(msg->rcpts[undo->n - 1].block);
            msg->rcpts[undo->n - 1] = undo->before.rcpt;
        }
    }
    for (size_t i = b->count; i-- > 0;) {
        forget_undo(d, b->log[i].message);
    }
    b->count = 0;
    d->totals = b->totals_before;
}

void desk_rollback(struct desk *d)
{

    undo_changes(d, &d->open);
    d->is_open = false;
}
/* ---- commits under way ----------------------------------------------------------------------- */

struct desk_batch *desk_begin_commit(struct desk *d)
{
    struct desk_batch *b = &d->under_way[d->under_way_count];

    CHECK(d->under_way_count < DESK_UNDER_WAY_MAX);
    d->under_way_count++;
    d->is_open = false;
    *b = d->open;
    d->open = (struct desk_batch){.count = 0};
    for (size_t i = 0; i < b->count; i++) {
        unplace(d, b->log[i].message);
        b->log[i].message->settling++;
    }
    return b;
}

static void unsettle(struct desk *d, const struct desk_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        b->log[i].message->settling--;
        place(d, b->log[i].message);
    }
}

static void free_batch(struct desk_batch *b)
{
    mem_free(b->moves);
    mem_free(b->log);
}

void desk_keep_oldest(struct desk *d)
{
    struct desk_batch oldest = d->under_way[0];

    CHECK(d->under_way_count > 0);
    d->under_way_count--;
    memmove(d->under_way, d->under_way + 1, d->under_way_count * sizeof d->under_way[0]);
    unsettle(d, &oldest);
    keep_changes(d, &oldest);
    free_batch(&oldest);
}

void desk_undo_all(struct desk *d)
{
    while (d->under_way_count > 0) {
        struct desk_batch b = d->under_way[--d->under_way_count];

        for (size_t i = b.move_count; i-- > 0;) {
            b.moves[i].message->row = b.moves[i].before;
        }
        unsettle(d, &b);
        undo_changes(d, &b);
        free_batch(&b);
    }
}

/* ---- changes -------------------------------------------------------------------------------- */

struct msg_id desk_next_id(struct desk *d)
{
    return (struct msg_id){++d->last_id};
}

static int read_all(const struct spool_new *n, char *content)
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

int desk_submit(struct desk *d, struct msg_id id, const struct spool_new *n)
{
    struct desk_message *msg;
    struct desk_fields fields = {.m = *n->m, .claimed = n->claim};
    char *content = mem_new(n->size);
    int err = read_all(n, content);

    if (err != 0) {
        mem_free(content);
        return spool_fail(d->base, err, "submit: read content: %s", strerror(-err));
    }
    msg = mem_new(sizeof *msg);
    msg->id = id.n;
    msg->p = partition_of(&n->rcpts[0]);
    msg->content = content;
    msg->rcpts = mem_array(n->rcpt_count, sizeof msg->rcpts[0]);
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        const struct spool_rcpt *r = &n->rcpts[i];
        struct desk_rcpt *to = &msg->rcpts[i];

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
    /* What was before it is that it was not, and that is what is logged. */
    msg->f = (struct desk_fields){.m = {.state = SPOOL_INCOMING, .rcpt_total = n->rcpt_count},
                                  .gone = true};
    heap_node_init(&msg->due);
    HASH_ADD(hh, d->all, id, sizeof msg->id, msg);
    TAILQ_INSERT_TAIL(&d->in_order, msg, by_id);
    pack_message(&fields);
    set_fields(d, msg, fields);
    return 0;
}

/* Move a recipient from what it counted for to what it counts for now. */
static void count_rcpt(struct desk *d, struct desk_message *msg, const struct desk_rcpt *before,
                       const struct desk_rcpt *after)
{
    struct desk_fields fields = copy_fields(msg);

    *(before->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending : &fields.m.rcpt_to_report) -=
        1;
    if (!after->gone) {
        *(after->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending
                                               : &fields.m.rcpt_to_report) += 1;
    }
    set_fields(d, msg, fields);
}

int desk_settle(struct desk *d, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct desk_message *msg;
    int err = need_rcpt(d, id, n, &msg);

    if (err != 0) {
        return err;
    }
    struct desk_rcpt before = msg->rcpts[n - 1], to = before;
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
    set_rcpt(d, msg, n, to);
    return 0;
}

int desk_set_route(struct desk *d, struct msg_id id, uint32_t n, struct slice transport,
                   struct slice nexthop, uint64_t route_generation)
{
    struct desk_message *msg;
    int err = need_rcpt(d, id, n, &msg);

    if (err != 0) {
        return err;
    }
    struct desk_rcpt to = msg->rcpts[n - 1];
    to.r.transport = transport;
    to.r.nexthop = nexthop;
    to.r.route_generation = route_generation;
    set_rcpt(d, msg, n, to);
    return 0;
}

int desk_reported(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err != 0) {
        return err;
    }
    for (uint32_t n = 1; n <= msg->f.m.rcpt_total; n++) {
        struct desk_rcpt to = msg->rcpts[n - 1];

        if (!to.gone && to.r.state != SPOOL_RCPT_PENDING) {
            to.gone = true;
            count_rcpt(d, msg, &msg->rcpts[n - 1], &to);
            set_rcpt(d, msg, n, to);
        }
    }
    return 0;
}

static void bury(struct desk *d, struct desk_message *msg)
{
    struct desk_fields fields = copy_fields(msg);

    fields.gone = true;
    fields.claimed = false;
    set_fields(d, msg, fields);
}

int desk_finish(struct desk *d, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);
    const struct spool_message *m;

    if (err != 0) {
        return err;
    }
    m = &msg->f.m;
    *ret_gone = m->rcpt_pending + m->rcpt_to_report == 0 && m->state != SPOOL_CORRUPT;
    if (*ret_gone) {
        bury(d, msg);
    } else if (msg->f.claimed) {
        struct desk_fields fields = copy_fields(msg);

        fields.claimed = false;
        fields.m.state = SPOOL_DEFERRED;
        fields.m.due = due;
        fields.m.parked = SLICE("");
        set_fields(d, msg, fields);
    }
    return 0;
}

int desk_finish_all_done(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err == 0 && msg->f.m.state == SPOOL_CORRUPT) {
        err = spool_fail(d->base, -EINVAL, "a message that was quarantined is not deleted");
    }
    if (err == 0) {
        bury(d, msg);
    }
    return err;
}

int desk_change(struct desk *d, const struct spool_change *c)
{
    struct desk_message *msg = desk_find(d, c->from->id);
    struct desk_fields fields;

    CHECK(msg != NULL); /* it was just read */
    fields = (struct desk_fields){.m = *c->to, .claimed = msg->f.claimed && !c->end_claim};
    pack_message(&fields);
    set_fields(d, msg, fields);
    for (uint32_t n = 1; c->forget_tries && n <= msg->f.m.rcpt_total; n++) {
        struct desk_rcpt to = msg->rcpts[n - 1];

        if (!to.gone && to.r.state == SPOOL_RCPT_PENDING) {
            to.r.attempts = 0;
            to.r.transport = to.r.nexthop = SLICE("");
            to.r.route_generation = 0;
            set_rcpt(d, msg, n, to);
        }
    }
    return 0;
}

int desk_remove(struct desk *d, struct msg_id id)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err == 0) {
        bury(d, msg);
    }
    return err;
}

int desk_quarantine(struct desk *d, struct msg_id id, struct slice reason)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err == 0) {
        struct desk_fields fields = {.m = msg->f.m};

        fields.m.state = SPOOL_CORRUPT;
        fields.m.reason = reason;
        fields.m.parked = SLICE("");
        pack_message(&fields);
        set_fields(d, msg, fields);
    }
    return err;
}
/* ---- claims --------------------------------------------------------------------------------- */

static void set_claimed(struct desk *d, struct desk_message *msg, bool claimed)
{
    struct desk_fields fields = copy_fields(msg);

    fields.claimed = claimed;
    set_fields(d, msg, fields);
}

void desk_unclaim(struct desk *d, struct msg_id id)
{
    struct desk_message *msg = desk_find(d, id);

    if (msg != NULL && msg->f.claimed) {
        set_claimed(d, msg, false);
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

    while (count < max && (msg = first_due(d, due_order(from))) != NULL &&
           msg->f.m.due.us <= now.us) {
        set_claimed(d, msg, true);
        ret_ids[count++] = (struct msg_id){msg->id};
    }
    *ret_count = count;
    return 0;
}

/* As a search, it goes through all messages. */
int desk_claim_parked(struct desk *d, struct slice key, struct wall now, size_t max,
                      struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct desk_message *msg;
    size_t count = 0;
    bool more = false;

    TAILQ_FOREACH(msg, &d->in_order, by_id)
    {
        if (msg->f.gone || msg->f.claimed || !slice_equal(msg->f.m.parked, key)) {
            continue;
        }
        if (count == max) {
            more = true;
            break;
        }
        struct desk_fields fields = msg->f;
        fields.claimed = true;
        fields.m.due = now;
        fields.m.parked = SLICE("");
        pack_message(&fields);
        set_fields(d, msg, fields);
        ret_ids[count++] = (struct msg_id){msg->id};
    }
    *ret_count = count;
    *ret_more = more;
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
    const struct desk_message *all = (d)->all;
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
/* ---- reading -------------------------------------------------------------------------------- */

int desk_read(struct desk *d, struct msg_id id, struct spool_message *ret_message)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err == 0) {
        *ret_message = msg->f.m;
    }
    return err;
}

int desk_read_rcpts(struct desk *d, struct msg_id id, uint32_t after, bool only_pending, size_t max,
                    struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);
    size_t count = 0;

    if (err != 0) {
        return err;
    }
    for (uint32_t i = after; i < msg->f.m.rcpt_total && count < max; i++) {
        const struct desk_rcpt *r = &msg->rcpts[i];

        if (!r->gone && (!only_pending || r->r.state == SPOOL_RCPT_PENDING)) {
            ret_rcpts[count++] = r->r;
        }
    }
    *ret_count = count;
    return 0;
}

int desk_read_content(struct desk *d, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                      uint64_t *ret_size)
{
    struct desk_message *msg;
    int err = need(d, id, &msg);

    if (err == 0 && !buf_add(ret_bytes, slice_of(msg->content, msg->f.m.size))) {
        err = spool_fail(d->base, -ENOBUFS, "content is larger than the caller's buffer");
    }
    if (err == 0) {
        *ret_fd = -1;
        *ret_size = msg->f.m.size;
    }
    return err;
}

int desk_totals(struct desk *d, struct spool_totals *ret_totals)
{
    *ret_totals = d->totals;
    return 0;
}

int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count)
{
    const struct desk_message *msg;
    size_t count = 0;

    text_pool_clear(&d->pool);
    after = text_pool_add(&d->pool, after);
    for (; count < max; count++) {
        struct slice next = SLICE("");

        TAILQ_FOREACH(msg, &d->in_order, by_id)
        {
            struct slice key = msg->f.m.parked;

            if (!msg->f.gone && slice_compare(key, after) > 0 &&
                (next.len == 0 || slice_compare(key, next) < 0)) {
                next = key;
            }
        }
        if (next.len == 0) {
            break;
        }
        ret_keys[count] = after = text_pool_add(&d->pool, next);
    }
    *ret_count = count;
    return 0;
}

/* ---- what comes from the database ------------------------------------------------------------ */

void desk_adopt(struct desk *d, struct desk_message *msg, struct desk_fields fields)
{
    msg->f = (struct desk_fields){.m = {.state = SPOOL_INCOMING, .rcpt_total = fields.m.rcpt_total},
                                  .gone = true};
    heap_node_init(&msg->due);
    HASH_ADD(hh, d->all, id, sizeof msg->id, msg);
    TAILQ_INSERT_TAIL(&d->in_order, msg, by_id);
    pack_message(&fields);
    set_fields(d, msg, fields);
    d->last_id = msg->id > d->last_id ? msg->id : d->last_id;
}

static int by_id_order(const struct desk_message *a, const struct desk_message *b)
{
    return (a->id > b->id) - (a->id < b->id);
}

void desk_put_in_order(struct desk *d)
{
    struct desk_message *msg;

    HASH_SORT(d->all, by_id_order);
    TAILQ_INIT(&d->in_order);
    for (msg = d->all; msg != NULL; msg = msg->hh.next) {
        TAILQ_INSERT_TAIL(&d->in_order, msg, by_id);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

void desk_init(struct desk *d, struct spool *base, uint64_t id_floor)
{
    *d = (struct desk){.base = base, .last_id = id_floor};
    TAILQ_INIT(&d->in_order);
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_init(&d->due[order], due_before);
    }
}

void desk_fini(struct desk *d)
{
    struct desk_message *msg;

    desk_undo_all(d); /* what is under way may happen all the same */
    while ((msg = TAILQ_FIRST(&d->in_order)) != NULL) {
        free_message(d, msg);
    }
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_fini(&d->due[order]);
    }
    text_pool_fini(&d->pool);
    mem_free(d->open.log);
}
