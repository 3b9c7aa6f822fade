/*
 * The desk is as the tests' memory spool: claiming and everything by id is as fast as it can be.
 *
 * XXX All messages are on the desk, those that only wait, too: memory grows with the queue, and
 * searches go through all of it. What waits is to leave it at the end of its pass, and to be read
 * when it is due (spool_want, prefetch).
 *
 * Undo. What a batch changes is logged with its old value, whole: a message's own fields, or one
 * recipient. All texts of such a value are in one block, so the old value keeps its block until the
 * batch ends. There is a log for each commit that is under way, and for the open batch. What a
 * commit under way has changed can't be claimed before its end.
 */
#include "cluster_spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "check.h"
#include "committer.h"
#include "schema.h"
#include "destination_list.h"
#include "hash.h"
#include "heap.h"
#include "mem.h"
#include "spool_engine.h"

/* A recipient; `gone` when done with. */
struct desk_rcpt {
    struct spool_rcpt r;
    char *block; /* owned: the bytes of its slices */
    bool gone;
};

/* What can change of a message, but for its recipients. */
struct desk_fields {
    struct spool_message m;
    char *block; /* owned: the bytes of its slices */
    bool claimed;
    bool gone;
};

enum desk_row { ROW_NONE, ROW_FRESH, ROW_WAITING };

struct desk_message {
    uint64_t id;
    struct desk_fields f;
    struct desk_rcpt *rcpts; /* owned; recipient n at n - 1 */
    char *content;           /* owned */
    struct heap_node due;    /* in cluster_spool.due[] when it can be claimed */
    TAILQ_ENTRY(desk_message) by_id;
    enum desk_row row; /* where it is in the database, with the commits under way */
    bool written;      /* by the statements that are being made */
    unsigned undos;    /* in all logs */
    unsigned settling; /* in those of commits under way */
    UT_hash_handle hh;
};

/* The value before a change; n = 0 is the message itself. */
struct desk_undo {
    struct desk_message *message;
    uint32_t n;
    union {
        struct desk_fields fields;
        struct desk_rcpt rcpt;
    } before;
};

/* Where a message was before a commit. */
struct desk_move {
    struct desk_message *message;
    enum desk_row before;
};

/* What the open batch has changed, or one that is under way. */
struct desk_batch {
    struct desk_undo *log; /* owned */
    size_t count, size;
    struct spool_totals totals_before;
    struct desk_move *moves; /* owned: of a commit under way */
    size_t move_count;
};

enum { DUE_INCOMING, DUE_DEFERRED, DUE_ORDERS };

struct cluster_spool {
    struct spool base;
    struct desk_message *all; /* by id */
    TAILQ_HEAD(, desk_message) in_order;
    struct heap due[DUE_ORDERS];
    struct desk_batch open;
    struct desk_batch under_way[COMMITTER_UNDER_WAY_MAX]; /* the oldest first */
    unsigned under_way_count;
    unsigned canceled; /* were under way when an older one failed */
    int epoll_fd;
    struct committer *committer; /* owned; NULL: for reading */
    char *url;                   /* owned: where these point */
    struct link_target target;
    char options[200];
    int node;
    struct spool_totals totals;
    uint64_t last_id;
    struct text_pool pool; /* of destinations */
};

static struct cluster_spool *cluster_of(struct spool *sp)
{
    return (struct cluster_spool *)sp;
}

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

static void pack_rcpt(struct desk_rcpt *r)
{
    struct slice *texts[] = {&r->r.address, &r->r.orcpt,  &r->r.transport,
                             &r->r.nexthop, &r->r.status, &r->r.diagnostic,
                             &r->r.reply,   &r->r.remote, &r->r.tls};

    r->block = pack(texts, sizeof texts / sizeof texts[0]);
}

static struct desk_undo *log_add(struct cluster_spool *s, struct desk_message *message, uint32_t n)
{
    struct desk_batch *b = &s->open;
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
static void unplace(struct cluster_spool *s, struct desk_message *msg)
{
    if (heap_has(&msg->due)) {
        heap_remove(&s->due[due_order(msg->f.m.state)], &msg->due);
    }
}

/* Into the order of due times, if it can be claimed. */
static void place(struct cluster_spool *s, struct desk_message *msg)
{
    const struct desk_fields *f = &msg->f;

    if (!f->claimed && !f->gone && msg->settling == 0 && !heap_has(&msg->due) &&
        (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        heap_add(&s->due[due_order(f->m.state)], &msg->due);
    }
}

static void count_fields(struct cluster_spool *s, const struct desk_fields *f, bool add)
{
    uint64_t *total = spool_total_of(&s->totals, f->m.state);

    if (!f->gone) {
        *total += add ? 1 : UINT64_MAX;
        s->totals.bytes += add ? f->m.size : -f->m.size;
    }
}

/* The one function that changes a message's own fields. Takes the block of `to`, which is a new
 * one. */
static void set_fields(struct cluster_spool *s, struct desk_message *msg, struct desk_fields to)
{
    struct desk_fields before = msg->f;

    count_fields(s, &before, false);
    count_fields(s, &to, true);
    unplace(s, msg);
    msg->f = to;
    place(s, msg);
    if (s->base.dirty) {
        log_add(s, msg, 0)->before.fields = before;
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
static void set_rcpt(struct cluster_spool *s, struct desk_message *msg, uint32_t n,
                     struct desk_rcpt to)
{
    pack_rcpt(&to);
    log_add(s, msg, n)->before.rcpt = msg->rcpts[n - 1];
    msg->rcpts[n - 1] = to;
}

static void free_message(struct cluster_spool *s, struct desk_message *msg)
{
    for (uint32_t i = 0; i < msg->f.m.rcpt_total; i++) {
        mem_free(msg->rcpts[i].block);
    }
    unplace(s, msg);
    HASH_DEL(s->all, msg);
    TAILQ_REMOVE(&s->in_order, msg, by_id);
    mem_free(msg->rcpts);
    mem_free(msg->f.block);
    mem_free(msg->content);
    mem_free(msg);
}

static struct desk_message *find(const struct cluster_spool *s, struct msg_id id)
{
    struct desk_message *msg;

    HASH_FIND(hh, s->all, &id.n, sizeof id.n, msg);
    return msg == NULL || msg->f.gone ? NULL : msg;
}

static int need(struct cluster_spool *s, struct msg_id id, struct desk_message **ret_msg)
{
    char text[SPOOL_ID_TEXT_MAX];

    *ret_msg = find(s, id);
    if (*ret_msg != NULL) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&s->base, -ENOENT, "%s: no such message", text);
}

static int need_rcpt(struct cluster_spool *s, struct msg_id id, uint32_t n,
                     struct desk_message **ret_msg)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = need(s, id, ret_msg);

    if (err != 0) {
        return err;
    }
    if (n >= 1 && n <= (*ret_msg)->f.m.rcpt_total && !(*ret_msg)->rcpts[n - 1].gone) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&s->base, -ENOENT, "%s: no recipient %u", text, (unsigned)n);
}

/* ---- the batch ------------------------------------------------------------------------------ */

static int begin(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    CHECK(s->open.count == 0);
    s->open.totals_before = s->totals;
    return 0;
}

/* An entry of a log is of no more use. What is gone is buried with the last. */
static void forget_undo(struct cluster_spool *s, struct desk_message *msg)
{
    CHECK(msg->undos > 0);
    if (--msg->undos == 0 && msg->f.gone) {
        free_message(s, msg);
    }
}

static void keep_changes(struct cluster_spool *s, struct desk_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct desk_undo *undo = &b->log[i];

        mem_free(undo->n == 0 ? undo->before.fields.block : undo->before.rcpt.block);
        forget_undo(s, undo->message);
    }
    b->count = 0;
}

static void undo_changes(struct cluster_spool *s, struct desk_batch *b)
{
    for (size_t i = b->count; i-- > 0;) {
        const struct desk_undo *undo = &b->log[i];
        struct desk_message *msg = undo->message;

        if (undo->n == 0) {
            unplace(s, msg);
            mem_free(msg->f.block);
            msg->f = undo->before.fields;
            place(s, msg);
        } else {
            mem_free(msg->rcpts[undo->n - 1].block);
            msg->rcpts[undo->n - 1] = undo->before.rcpt;
        }
    }
    for (size_t i = b->count; i-- > 0;) {
        forget_undo(s, b->log[i].message);
    }
    b->count = 0;
    s->totals = b->totals_before;
}

static void rollback(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);

    undo_changes(s, &s->open);
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define FRESH_CONTENT_MAX 32768
#define CHUNK             262144

/* Parameters of one statement. */
struct row_params {
    struct link_param p[LINK_PARAMS_MAX];
    char numbers[LINK_PARAMS_MAX][24];
    int count;
};

static void put_number(struct row_params *r, int64_t n)
{
    char *room = r->numbers[r->count];

    r->p[r->count].bytes = room;
    r->p[r->count].len = (size_t)snprintf(room, 24, "%" PRId64, n); /* fits */
    r->p[r->count++].is_binary = false;
}

/* The binary form of text is its bytes, too. */
static void put_bytes(struct row_params *r, struct slice bytes)
{
    r->p[r->count++] = (struct link_param){
        .bytes = bytes.ptr != NULL ? bytes.ptr : "", .len = bytes.len, .is_binary = true};
}

static void put_null(struct row_params *r)
{
    r->p[r->count++] = (struct link_param){.bytes = NULL};
}

/* All of one node for now: partition 0. */
#define P 0

static void add_row(struct committer_batch *b, const char *sql, const struct row_params *r)
{
    committer_batch_add(b, sql, r->p, r->count);
}

static void delete_by_id(struct committer_batch *b, const char *sql, uint64_t id)
{
    struct row_params r = {.count = 0};

    put_number(&r, (int64_t)id);
    add_row(b, sql, &r);
}

static void insert_fresh(struct committer_batch *b, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;
    const struct spool_rcpt *to = &msg->rcpts[0].r;
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->due.us);
    put_number(&r, m->arrived.us);
    put_number(&r, m->created.us);
    put_number(&r, (int64_t)m->size);
    put_number(&r, (int64_t)to->route_generation);
    put_number(&r, m->flags);
    put_number(&r, to->notify);
    put_number(&r, (int64_t)m->class_source);
    put_bytes(&r, m->sender);
    put_bytes(&r, m->envid);
    put_bytes(&r, m->client);
    put_bytes(&r, to->address);
    put_bytes(&r, to->orcpt);
    put_bytes(&r, m->reason);
    put_bytes(&r, m->class_name);
    put_bytes(&r, to->transport);
    put_bytes(&r, to->nexthop);
    put_bytes(&r, slice_of(msg->content, m->size));
    add_row(b,
            "INSERT INTO fresh_0 (p, id, due, arrived, created, size, route_generation, flags, "
            "notify, class_source, sender, envid, client, address, orcpt, reason, class, "
            "transport, nexthop, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
            "$12, $13, $14, $15, $16, $17, $18, $19, $20)",
            &r);
}

static void insert_rcpt(struct committer_batch *b, uint64_t id, const struct spool_rcpt *to)
{
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)id);
    put_number(&r, to->n);
    put_number(&r, to->state);
    put_number(&r, to->notify);
    put_number(&r, to->attempts);
    put_number(&r, to->last_attempt.us);
    put_number(&r, (int64_t)to->route_generation);
    put_bytes(&r, to->address);
    put_bytes(&r, to->transport);
    put_bytes(&r, to->nexthop);
    put_bytes(&r, to->orcpt);
    put_bytes(&r, to->status);
    put_bytes(&r, to->diagnostic);
    put_bytes(&r, to->reply);
    put_bytes(&r, to->remote);
    put_bytes(&r, to->tls);
    add_row(b,
            "INSERT INTO recipient (p, id, n, state, notify, attempts, last_attempt, "
            "route_generation, address, domain, transport, nexthop, orcpt, status, diagnostic, "
            "reply, remote, tls) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', $10, $11, $12, "
            "$13, $14, $15, $16, $17) ON CONFLICT (p, id, n) DO UPDATE SET state = $4, "
            "attempts = $6, last_attempt = $7, route_generation = $8, transport = $10, "
            "nexthop = $11, status = $13, diagnostic = $14, reply = $15, remote = $16, tls = $17",
            &r);
}

static void put_part(struct committer_batch *b, const struct desk_message *msg, bool is_new)
{
    const struct spool_message *m = &msg->f.m;
    struct row_params r = {.count = 0};

    put_number(&r, P);
    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->state);
    put_number(&r, m->due.us);
    put_number(&r, m->created.us);
    put_number(&r, m->rcpt_pending);
    put_number(&r, m->rcpt_to_report);
    put_number(&r, m->warnings);
    put_number(&r, m->force_expire);
    if (m->parked.len > 0) {
        put_bytes(&r, m->parked);
    } else {
        put_null(&r);
    }
    put_bytes(&r, m->reason);
    if (!is_new) {
        add_row(b,
                "UPDATE part SET state = $3, due = $4, created = $5, pending = $6, to_report = $7, "
                "warnings = $8, force_expire = $9::int::boolean, parked = $10, reason = $11 "
                "WHERE p = $1 AND id = $2",
                &r);
        return;
    }
    put_number(&r, m->arrived.us);
    put_number(&r, (int64_t)m->size);
    put_number(&r, m->rcpt_total);
    put_bytes(&r, m->sender);
    put_bytes(&r, m->class_name);
    add_row(b,
            "INSERT INTO part (p, id, message, kind, state, due, created, pending, to_report, "
            "warnings, force_expire, parked, reason, arrived, size, rcpts, sender, sender_domain, "
            "class) VALUES ($1, $2, $2, 0, $3, $4, $5, $6, $7, $8, $9::int::boolean, $10, $11, "
            "$12, $13, $14, $15, '', $16)",
            &r);
}

static void insert_waiting(struct committer_batch *b, const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;
    struct row_params r = {.count = 0};
    bool is_inside = m->size <= FRESH_CONTENT_MAX;

    put_number(&r, (int64_t)msg->id);
    put_number(&r, m->flags);
    put_number(&r, m->rcpt_total);
    put_number(&r, (int64_t)m->size);
    put_number(&r, m->arrived.us);
    put_number(&r, (int64_t)m->class_source);
    put_bytes(&r, m->envid);
    put_bytes(&r, m->client);
    put_number(&r, is_inside ? 0 : (int64_t)((m->size + CHUNK - 1) / CHUNK));
    if (is_inside) {
        put_bytes(&r, slice_of(msg->content, m->size));
    } else {
        put_null(&r);
    }
    add_row(b,
            "INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, envid, "
            "client, chunks, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            &r);
    for (uint64_t at = 0, n = 0; !is_inside && at < m->size; at += CHUNK, n++) {
        struct row_params chunk = {.count = 0};

        put_number(&chunk, (int64_t)msg->id);
        put_number(&chunk, (int64_t)n);
        put_bytes(&chunk, slice_of(msg->content + at, m->size - at < CHUNK ? m->size - at : CHUNK));
        add_row(b, "INSERT INTO content (id, n, bytes) VALUES ($1, $2, $3)", &chunk);
    }
    put_part(b, msg, true);
    for (uint32_t i = 0; i < m->rcpt_total; i++) {
        if (!msg->rcpts[i].gone) {
            insert_rcpt(b, msg->id, &msg->rcpts[i].r);
        }
    }
}

/* A message that nothing has happened to yet. */
static bool is_passing(const struct desk_message *msg)
{
    const struct spool_message *m = &msg->f.m;

    return m->rcpt_total == 1 && m->size <= FRESH_CONTENT_MAX && m->state == SPOOL_INCOMING &&
           m->rcpt_pending == 1 && m->warnings == 0 && !m->force_expire && m->parked.len == 0 &&
           msg->rcpts[0].r.attempts == 0 && msg->rcpts[0].r.status.len == 0;
}

/* Did the batch change anything of it but its claim? */
static bool is_changed(const struct desk_batch *d, const struct desk_message *msg)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct spool_message *a = &d->log[i].before.fields.m, *m = &msg->f.m;

        if (d->log[i].message == msg &&
            (d->log[i].n != 0 || d->log[i].before.fields.gone != msg->f.gone ||
             a->state != m->state || a->due.us != m->due.us || a->created.us != m->created.us ||
             a->rcpt_pending != m->rcpt_pending || a->rcpt_to_report != m->rcpt_to_report ||
             a->warnings != m->warnings || a->force_expire != m->force_expire ||
             !slice_equal(a->reason, m->reason) || !slice_equal(a->parked, m->parked))) {
            return true;
        }
    }
    return false;
}

static void delete_waiting(struct committer_batch *b, uint64_t id)
{
    delete_by_id(b, "DELETE FROM recipient WHERE p = 0 AND id = $1", id);
    delete_by_id(b, "DELETE FROM part WHERE p = 0 AND id = $1", id);
    delete_by_id(b, "DELETE FROM message WHERE id = $1", id);
    delete_by_id(b, "DELETE FROM content WHERE id = $1", id);
}

static void update_waiting(struct committer_batch *b, const struct desk_batch *d,
                           const struct desk_message *msg)
{
    put_part(b, msg, false);
    for (size_t i = 0; i < d->count; i++) {
        const struct desk_undo *undo = &d->log[i];
        struct row_params r = {.count = 0};

        if (undo->message != msg || undo->n == 0) {
            continue;
        }
        if (!msg->rcpts[undo->n - 1].gone) {
            insert_rcpt(b, msg->id, &msg->rcpts[undo->n - 1].r);
            continue;
        }
        put_number(&r, (int64_t)msg->id);
        put_number(&r, undo->n);
        add_row(b, "DELETE FROM recipient WHERE p = 0 AND id = $1 AND n = $2", &r);
    }
}

/* What became of a message in the batch, as statements. Its new place is returned. */
static enum desk_row write_message(struct committer_batch *b, const struct desk_batch *d,
                                   const struct desk_message *msg)
{
    enum desk_row to = msg->f.gone                                  ? ROW_NONE
                       : msg->row != ROW_WAITING && is_passing(msg) ? ROW_FRESH
                                                                    : ROW_WAITING;

    if (!is_changed(d, msg) || (msg->row == ROW_NONE && to == ROW_NONE)) {
        return msg->row;
    }
    if (msg->row == ROW_FRESH) {
        delete_by_id(b, "DELETE FROM fresh_0 WHERE p = 0 AND id = $1", msg->id);
    }
    if (to == ROW_NONE && msg->row == ROW_WAITING) {
        delete_waiting(b, msg->id);
    } else if (to == ROW_FRESH) {
        insert_fresh(b, msg);
    } else if (to == ROW_WAITING && msg->row == ROW_WAITING) {
        update_waiting(b, d, msg);
    } else if (to == ROW_WAITING) {
        insert_waiting(b, msg);
    }
    return to;
}

static struct committer_batch *write_batch(struct desk_batch *d)
{
    struct committer_batch *b = committer_batch_new();

    d->moves = mem_array(d->count, sizeof *d->moves);
    d->move_count = 0;
    for (size_t i = 0; i < d->count; i++) {
        struct desk_message *msg = d->log[i].message;

        if (!msg->written) {
            msg->written = true;
            d->moves[d->move_count++] = (struct desk_move){msg, msg->row};
            msg->row = write_message(b, d, msg);
        }
    }
    for (size_t i = 0; i < d->move_count; i++) {
        d->moves[i].message->written = false;
    }
    return b;
}

/* ---- commits that end later ------------------------------------------------------------------ */

static void begin_commit(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_batch *b = &s->under_way[s->under_way_count];

    CHECK(s->under_way_count < COMMITTER_UNDER_WAY_MAX);
    s->under_way_count++;
    *b = s->open;
    s->open = (struct desk_batch){.count = 0};
    committer_begin(s->committer, write_batch(b));
    for (size_t i = 0; i < b->count; i++) {
        unplace(s, b->log[i].message);
        b->log[i].message->settling++;
    }
}

static void unsettle(struct cluster_spool *s, const struct desk_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        b->log[i].message->settling--;
        place(s, b->log[i].message);
    }
}

static void free_batch(struct desk_batch *b)
{
    mem_free(b->moves);
    mem_free(b->log);
}

/* The youngest first. */
static void undo_all(struct cluster_spool *s)
{
    while (s->under_way_count > 0) {
        struct desk_batch b = s->under_way[--s->under_way_count];

        for (size_t i = b.move_count; i-- > 0;) {
            b.moves[i].message->row = b.moves[i].before;
        }
        unsettle(s, &b);
        undo_changes(s, &b);
        free_batch(&b);
    }
}

static bool end_commit(struct spool *sp, int *ret_rc)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_batch oldest;

    committer_turn(s->committer);
    if (!committer_end(s->committer, ret_rc)) {
        return false;
    }
    if (*ret_rc == 0) {
        CHECK(s->under_way_count > 0);
        oldest = s->under_way[0];
        s->under_way_count--;
        memmove(s->under_way, s->under_way + 1, s->under_way_count * sizeof s->under_way[0]);
        unsettle(s, &oldest);
        keep_changes(s, &oldest);
        free_batch(&oldest);
        return true;
    }
    (void)spool_fail(sp, *ret_rc, "%s: %s", s->url, committer_error(s->committer));
    if (sp->dirty) {
        rollback(sp);
    }
    undo_all(s); /* none is left when the younger ones are told */
    return true;
}

static int commits_fd(const struct spool *sp)
{
    return ((const struct cluster_spool *)sp)->epoll_fd;
}

static void tidy(struct spool *sp)
{
    (void)sp; /* nothing piles up */
}

/* ---- changes -------------------------------------------------------------------------------- */

static struct msg_id next_id(struct spool *sp)
{
    return (struct msg_id){++cluster_of(sp)->last_id};
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

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    struct desk_fields fields = {.m = *n->m, .claimed = n->claim};
    char *content = mem_new(n->size);
    int err = read_all(n, content);

    if (err != 0) {
        mem_free(content);
        return spool_fail(sp, err, "submit: read content: %s", strerror(-err));
    }
    msg = mem_new(sizeof *msg);
    msg->id = id.n;
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
        pack_rcpt(to);
    }
    /* What was before it is that it was not, and that is what is logged. */
    msg->f = (struct desk_fields){.m = {.state = SPOOL_INCOMING, .rcpt_total = n->rcpt_count},
                                  .gone = true};
    heap_node_init(&msg->due);
    HASH_ADD(hh, s->all, id, sizeof msg->id, msg);
    TAILQ_INSERT_TAIL(&s->in_order, msg, by_id);
    pack_message(&fields);
    set_fields(s, msg, fields);
    return 0;
}

/* Move a recipient from what it counted for to what it counts for now. */
static void count_rcpt(struct cluster_spool *s, struct desk_message *msg,
                       const struct desk_rcpt *before, const struct desk_rcpt *after)
{
    struct desk_fields fields = copy_fields(msg);

    *(before->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending : &fields.m.rcpt_to_report) -=
        1;
    if (!after->gone) {
        *(after->r.state == SPOOL_RCPT_PENDING ? &fields.m.rcpt_pending
                                               : &fields.m.rcpt_to_report) += 1;
    }
    set_fields(s, msg, fields);
}

static int settle(struct spool *sp, struct msg_id id, uint32_t n, const struct spool_verdict *v)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need_rcpt(s, id, n, &msg);

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
    count_rcpt(s, msg, &before, &to);
    set_rcpt(s, msg, n, to);
    return 0;
}

static int set_route(struct spool *sp, struct msg_id id, uint32_t n, struct slice transport,
                     struct slice nexthop, uint64_t route_generation)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need_rcpt(s, id, n, &msg);

    if (err != 0) {
        return err;
    }
    struct desk_rcpt to = msg->rcpts[n - 1];
    to.r.transport = transport;
    to.r.nexthop = nexthop;
    to.r.route_generation = route_generation;
    set_rcpt(s, msg, n, to);
    return 0;
}

static int reported(struct spool *sp, struct msg_id id)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need(s, id, &msg);

    if (err != 0) {
        return err;
    }
    for (uint32_t n = 1; n <= msg->f.m.rcpt_total; n++) {
        struct desk_rcpt to = msg->rcpts[n - 1];

        if (!to.gone && to.r.state != SPOOL_RCPT_PENDING) {
            to.gone = true;
            count_rcpt(s, msg, &msg->rcpts[n - 1], &to);
            set_rcpt(s, msg, n, to);
        }
    }
    return 0;
}

static void bury(struct cluster_spool *s, struct desk_message *msg)
{
    struct desk_fields fields = copy_fields(msg);

    fields.gone = true;
    fields.claimed = false;
    set_fields(s, msg, fields);
}

static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need(s, id, &msg);
    const struct spool_message *m;

    if (err != 0) {
        return err;
    }
    m = &msg->f.m;
    *ret_gone = m->rcpt_pending + m->rcpt_to_report == 0 && m->state != SPOOL_CORRUPT;
    if (*ret_gone) {
        bury(s, msg);
    } else if (msg->f.claimed) {
        struct desk_fields fields = copy_fields(msg);

        fields.claimed = false;
        fields.m.state = SPOOL_DEFERRED;
        fields.m.due = due;
        fields.m.parked = SLICE("");
        set_fields(s, msg, fields);
    }
    return 0;
}

static int finish_all_done(struct spool *sp, struct msg_id id)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need(s, id, &msg);

    if (err == 0 && msg->f.m.state == SPOOL_CORRUPT) {
        err = spool_fail(sp, -EINVAL, "a message that was quarantined is not deleted");
    }
    if (err == 0) {
        bury(s, msg);
    }
    return err;
}

static int change(struct spool *sp, const struct spool_change *c)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg = find(s, c->from->id);
    struct desk_fields fields;

    CHECK(msg != NULL); /* it was just read */
    fields = (struct desk_fields){.m = *c->to, .claimed = msg->f.claimed && !c->end_claim};
    pack_message(&fields);
    set_fields(s, msg, fields);
    for (uint32_t n = 1; c->forget_tries && n <= msg->f.m.rcpt_total; n++) {
        struct desk_rcpt to = msg->rcpts[n - 1];

        if (!to.gone && to.r.state == SPOOL_RCPT_PENDING) {
            to.r.attempts = 0;
            to.r.transport = to.r.nexthop = SLICE("");
            to.r.route_generation = 0;
            set_rcpt(s, msg, n, to);
        }
    }
    return 0;
}

static int remove_message(struct spool *sp, struct msg_id id)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need(s, id, &msg);

    if (err == 0) {
        bury(s, msg);
    }
    return err;
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    int err = need(s, id, &msg);

    if (err == 0) {
        struct desk_fields fields = {.m = msg->f.m};

        fields.m.state = SPOOL_CORRUPT;
        fields.m.reason = reason;
        fields.m.parked = SLICE("");
        pack_message(&fields);
        set_fields(s, msg, fields);
    }
    return err;
}

/* ---- claims --------------------------------------------------------------------------------- */

static void set_claimed(struct cluster_spool *s, struct desk_message *msg, bool claimed)
{
    struct desk_fields fields = copy_fields(msg);

    fields.claimed = claimed;
    set_fields(s, msg, fields);
}

static void unclaim(struct spool *sp, struct msg_id id)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg = find(s, id);

    if (msg != NULL && msg->f.claimed) {
        set_claimed(s, msg, false);
    }
}

static struct desk_message *first_due(const struct cluster_spool *s, unsigned order)
{
    struct heap_node *top = heap_top(&s->due[order]);

    return top == NULL ? NULL : CONTAINER_OF(top, struct desk_message, due);
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    size_t count = 0;

    while (count < max && (msg = first_due(s, due_order(from))) != NULL &&
           msg->f.m.due.us <= now.us) {
        set_claimed(s, msg, true);
        ret_ids[count++] = (struct msg_id){msg->id};
    }
    *ret_count = count;
    return 0;
}

/* As a search, it goes through all messages. */
static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;
    size_t count = 0;
    bool more = false;

    TAILQ_FOREACH(msg, &s->in_order, by_id)
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
        set_fields(s, msg, fields);
        ret_ids[count++] = (struct msg_id){msg->id};
    }
    *ret_count = count;
    *ret_more = more;
    return 0;
}

static int next_due(struct spool *sp, struct wall *ret_due)
{
    struct cluster_spool *s = cluster_of(sp);
    struct wall due = WALL_NEVER;

    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        const struct desk_message *msg = first_due(s, order);

        if (msg != NULL && msg->f.m.due.us < due.us) {
            due = msg->f.m.due;
        }
    }
    *ret_due = due;
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    const struct desk_message *msg = find((const struct cluster_spool *)sp, id);

    return msg != NULL && msg->f.claimed;
}

static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    const struct desk_message *all = ((const struct cluster_spool *)sp)->all;
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

static int read_message(struct spool *sp, struct msg_id id, struct spool_message *ret_message)
{
    struct desk_message *msg;
    int err = need(cluster_of(sp), id, &msg);

    if (err == 0) {
        *ret_message = msg->f.m;
    }
    return err;
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct desk_message *msg;
    int err = need(cluster_of(sp), id, &msg);
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

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct desk_message *msg;
    int err = need(cluster_of(sp), id, &msg);

    if (err == 0 && !buf_add(ret_bytes, slice_of(msg->content, msg->f.m.size))) {
        err = spool_fail(sp, -ENOBUFS, "content is larger than the caller's buffer");
    }
    if (err == 0) {
        *ret_fd = -1;
        *ret_size = msg->f.m.size;
    }
    return err;
}

/* Is `address` the wanted one, or of the wanted "@domain"? */
static bool address_matches(struct slice address, struct slice wanted)
{
    if (wanted.ptr[0] == '@') {
        return slice_equal_nocase(spool_domain(address), slice_skip(wanted, 1));
    }
    return slice_equal_nocase(address, wanted);
}

static bool destination_matches(const struct spool_rcpt *r, struct slice wanted)
{
    struct slice domain = spool_domain(r->address);
    size_t slash = slice_find(wanted, '/');

    if (slice_equal_nocase(domain, wanted) ||
        (r->transport.len > 0 && slice_equal(r->nexthop, wanted))) {
        return true;
    }
    return slash > 0 && slash < wanted.len &&
           slice_equal(r->transport, slice_of(wanted.ptr, slash)) &&
           slice_equal(r->nexthop, slice_skip(wanted, slash + 1));
}

static bool rcpts_match(const struct desk_message *msg, const struct spool_filter *f)
{
    bool address = f->rcpt.len == 0, destination = f->destination.len == 0;

    for (uint32_t i = 0; i < msg->f.m.rcpt_total && !(address && destination); i++) {
        const struct desk_rcpt *r = &msg->rcpts[i];

        if (!r->gone) {
            address = address || address_matches(r->r.address, f->rcpt);
            destination = destination || destination_matches(&r->r, f->destination);
        }
    }
    return address && destination;
}

static bool matches(const struct desk_message *msg, const struct spool_filter *f)
{
    const struct spool_message *m = &msg->f.m;

    if (msg->f.gone || msg->id <= f->after.n ||
        (f->states != 0 && (f->states & 1U << m->state) == 0) || m->size < f->size_min ||
        (f->size_max != 0 && m->size > f->size_max) ||
        (f->arrived_before.us != 0 && m->arrived.us >= f->arrived_before.us) ||
        (f->arrived_after.us != 0 && m->arrived.us <= f->arrived_after.us) ||
        (f->class_name.len > 0 && !slice_equal(f->class_name, m->class_name))) {
        return false;
    }
    if (slice_equal(f->sender, SLICE("<>")) ? m->sender.len > 0
        : f->sender.len > 0                 ? !address_matches(m->sender, f->sender)
                                            : false) {
        return false;
    }
    return rcpts_match(msg, f);
}

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    const struct desk_message *msg;
    size_t count = 0;

    TAILQ_FOREACH(msg, &cluster_of(sp)->in_order, by_id)
    {
        if (count == max) {
            break;
        }
        if (matches(msg, f)) {
            ret_ids[count++] = (struct msg_id){msg->id};
        }
    }
    *ret_count = count;
    return 0;
}

static int count_matches(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    const struct desk_message *msg;
    uint64_t count = 0;

    TAILQ_FOREACH(msg, &cluster_of(sp)->in_order, by_id)
    {
        count += matches(msg, f);
    }
    *ret_count = count;
    return 0;
}

static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    *ret_totals = cluster_of(sp)->totals;
    return 0;
}

/* A recipient's destination: its nexthop, or its domain in lower case while it is not routed. */
struct destination_key {
    struct spool_destination d;
    uint64_t message;
    char domain[ADDRESS_MAX];
};

static int key_order(const void *a, const void *b)
{
    const struct destination_key *const *x = a, *const *y = b;
    int order = destination_order(&(*x)->d, &(*y)->d);

    return order != 0 ? order : ((*x)->message > (*y)->message) - ((*x)->message < (*y)->message);
}

static struct destination_key *key_new(const struct spool_rcpt *r, uint64_t message)
{
    struct destination_key *key = mem_new(sizeof *key);
    struct slice domain = spool_domain(r->address);

    key->message = message;
    key->d =
        (struct spool_destination){.transport = r->transport, .nexthop = r->nexthop, .rcpts = 1};
    if (r->transport.len == 0) {
        for (size_t i = 0; i < domain.len; i++) {
            key->domain[i] = ascii_lower(domain.ptr[i]);
        }
        key->d.nexthop = slice_of(key->domain, domain.len);
    }
    return key;
}

/* Those from `from` on go into the list. */
static size_t fill_list(struct cluster_spool *s, const struct spool_destination *from,
                        struct destination_list *list)
{
    const struct desk_message *msg;
    struct destination_key **keys;
    size_t total = 0, count = 0;

    TAILQ_FOREACH(msg, &s->in_order, by_id)
    {
        total += msg->f.gone ? 0 : msg->f.m.rcpt_pending;
    }
    keys = mem_array(total, sizeof(struct destination_key *));
    TAILQ_FOREACH(msg, &s->in_order, by_id)
    {
        for (uint32_t i = 0; !msg->f.gone && i < msg->f.m.rcpt_total; i++) {
            if (!msg->rcpts[i].gone && msg->rcpts[i].r.state == SPOOL_RCPT_PENDING) {
                CHECK(count < total);
                keys[count++] = key_new(&msg->rcpts[i].r, msg->id);
            }
        }
    }
    qsort(keys, count, sizeof(struct destination_key *), key_order);
    for (size_t i = 0; i < count; i++) {
        keys[i]->d.messages = i == 0 || key_order(&keys[i - 1], &keys[i]) != 0;
        if (destination_order(&keys[i]->d, from) >= 0) {
            destination_list_add(list, &keys[i]->d);
        }
    }
    total = destination_list_end(list);
    for (size_t i = 0; i < count; i++) {
        mem_free(keys[i]);
    }
    mem_free(keys);
    return total;
}

static int destinations(struct spool *sp, size_t max, struct spool_destination *ret,
                        size_t *ret_count)
{
    static const struct spool_destination first = {.nexthop = {"", 0}, .transport = {"", 0}};
    struct cluster_spool *s = cluster_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init(&list, &s->pool, ret, max);
    *ret_count = fill_list(s, &first, &list);
    return 0;
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init_by_name(&list, &s->pool, ret, max);
    *ret_count = fill_list(s, from, &list);
    return 0;
}

static int parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    struct cluster_spool *s = cluster_of(sp);
    const struct desk_message *msg;
    size_t count = 0;

    text_pool_clear(&s->pool);
    after = text_pool_add(&s->pool, after);
    for (; count < max; count++) {
        struct slice next = SLICE("");

        TAILQ_FOREACH(msg, &s->in_order, by_id)
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
        ret_keys[count] = after = text_pool_add(&s->pool, next);
    }
    *ret_count = count;
    return 0;
}

static int free_bytes(struct spool *sp, uint64_t *ret_bytes)
{
    (void)sp; /* the server does not say */
    *ret_bytes = INT64_MAX; /* XXX the API shows it as it is */
    return 0;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void close_spool(struct spool *sp)
{
    struct cluster_spool *s = cluster_of(sp);
    struct desk_message *msg;

    undo_all(s); /* what is under way may happen all the same */
    committer_free(s->committer);
    while ((msg = TAILQ_FIRST(&s->in_order)) != NULL) {
        free_message(s, msg);
    }
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_fini(&s->due[order]);
    }
    text_pool_fini(&s->pool);
    mem_free(s->open.log);
    if (s->epoll_fd >= 0) {
        (void)close(s->epoll_fd);
    }
    mem_free(s->url);
    mem_free(s);
}

static const struct spool_search_part search = {
    .scan = scan,
    .count = count_matches,
    .destinations = destinations,
    .destinations_from = destinations_from,
};

static const struct spool_commits_part commits = {
    .begin = begin_commit,
    .end = end_commit,
    .fd = commits_fd,
    .max = COMMITTER_UNDER_WAY_MAX,
};

static const struct spool_engine cluster_engine = {
    .close = close_spool,
    .begin = begin,
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
    .read = read_message,
    .read_rcpts = read_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .search = &search,
    .commits = &commits,
};

/* Take "//user@/database?host=DIR&port=N&schema=NAME" apart. XXX Hosts by name, a password file and
 * TLS are missing. False: it is not of that form. */
static bool parse_url(struct cluster_spool *s, const char *where)
{
    const char *schema = "sluice";
    char *at, *rest;

    s->url = mem_string(where);
    if (strncmp(s->url, "//", 2) != 0) {
        return false;
    }
    at = s->url + 2;
    rest = strchr(at, '/');
    if (rest == NULL) {
        return false;
    }
    *rest++ = '\0';
    s->target.database = rest;
    if (strchr(at, '@') != NULL) {
        s->target.user = at;
        at = strchr(at, '@');
        *at++ = '\0';
    }
    s->target.host = at;
    rest = strchr(rest, '?');
    if (rest != NULL) {
        *rest++ = '\0';
    }
    while (rest != NULL) {
        char *word = rest;

        rest = strchr(rest, '&');
        if (rest != NULL) {
            *rest++ = '\0';
        }
        if (strncmp(word, "host=", 5) == 0) {
            s->target.host = word + 5;
        } else if (strncmp(word, "port=", 5) == 0) {
            s->target.port = word + 5;
        } else if (strncmp(word, "schema=", 7) == 0) {
            schema = word + 7;
        } else {
            return false;
        }
    }
    for (const char *c = schema; *c != '\0'; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '_') {
            return false;
        }
    }
    (void)snprintf(s->options, sizeof s->options,
                   "-c search_path=%.60s -c idle_in_transaction_session_timeout=2500 "
                   "-c lock_timeout=3000",
                   schema);
    s->target.options = s->options;
    return s->target.database[0] != '\0';
}

static PGconn *connect_now(const struct link_target *t)
{
    const char *const names[] = {
        "host", "port", "dbname", "user", "options", "client_encoding", "connect_timeout", NULL};
    const char *const values[] = {t->host,    t->port, t->database, t->user,
                                  t->options, "UTF8",  "5",         NULL};

    return PQconnectdbParams(names, values, 0);
}

/* Run a statement, in binary answers. NULL: *ret_error says why. */
static PGresult *ask(PGconn *conn, const char *url, const char *sql, struct buf *ret_error)
{
    PGresult *result = PQexecParams(conn, sql, 0, NULL, NULL, NULL, NULL, 1);
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        return result;
    }
    (void)buf_addf(ret_error, "spool postgresql:%s: %s", url, PQresultErrorMessage(result));
    PQclear(result);
    return NULL;
}

static int64_t number_at(const PGresult *r, int row, int column)
{
    const unsigned char *value = (const unsigned char *)PQgetvalue(r, row, column);
    int len = PQgetlength(r, row, column);
    uint64_t n = len > 0 && value[0] >= 128 && len > 1 ? UINT64_MAX : 0;

    for (int i = 0; i < len && i < 8; i++) {
        n = n << 8 | value[i];
    }
    return (int64_t)n;
}

static struct slice bytes_at(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column)
               ? SLICE("")
               : slice_of(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

static void adopt(struct cluster_spool *s, struct desk_message *msg, struct desk_fields *fields)
{
    msg->f = (struct desk_fields){
        .m = {.state = SPOOL_INCOMING, .rcpt_total = fields->m.rcpt_total}, .gone = true};
    heap_node_init(&msg->due);
    HASH_ADD(hh, s->all, id, sizeof msg->id, msg);
    TAILQ_INSERT_TAIL(&s->in_order, msg, by_id);
    pack_message(fields);
    set_fields(s, msg, *fields);
    s->last_id = msg->id > s->last_id ? msg->id : s->last_id;
}

static void load_fresh_row(struct cluster_spool *s, const PGresult *r, int row)
{
    struct desk_message *msg = mem_new(sizeof *msg);
    struct slice content = bytes_at(r, row, 18);
    struct desk_fields fields = {.m = {.state = SPOOL_INCOMING,
                                       .rcpt_total = 1,
                                       .rcpt_pending = 1,
                                       .due = {number_at(r, row, 1)},
                                       .arrived = {number_at(r, row, 2)},
                                       .created = {number_at(r, row, 3)},
                                       .size = content.len,
                                       .flags = (unsigned)number_at(r, row, 6),
                                       .class_source = (enum class_source)number_at(r, row, 8),
                                       .sender = bytes_at(r, row, 9),
                                       .envid = bytes_at(r, row, 10),
                                       .client = bytes_at(r, row, 11),
                                       .reason = bytes_at(r, row, 14),
                                       .class_name = bytes_at(r, row, 15),
                                       .parked = SLICE("")}};

    msg->id = (uint64_t)number_at(r, row, 0);
    fields.m.id.n = msg->id;
    msg->row = ROW_FRESH;
    msg->content = mem_copy(content.ptr, content.len);
    msg->rcpts = mem_array(1, sizeof msg->rcpts[0]);
    msg->rcpts[0].r = (struct spool_rcpt){.n = 1,
                                          .state = SPOOL_RCPT_PENDING,
                                          .route_generation = (uint64_t)number_at(r, row, 5),
                                          .notify = (unsigned)number_at(r, row, 7),
                                          .address = bytes_at(r, row, 12),
                                          .orcpt = bytes_at(r, row, 13),
                                          .transport = bytes_at(r, row, 16),
                                          .nexthop = bytes_at(r, row, 17)};
    pack_rcpt(&msg->rcpts[0]);
    adopt(s, msg, &fields);
}

static int load_fresh(struct cluster_spool *s, PGconn *conn, struct buf *ret_error)
{
    PGresult *r = ask(conn, s->url,
                      "SELECT id, due, arrived, created, size, route_generation, flags, notify, "
                      "class_source, sender, envid, client, address, orcpt, reason, class, "
                      "transport, nexthop, bytes FROM fresh_0 ORDER BY id",
                      ret_error);

    for (int row = 0; r != NULL && row < PQntuples(r); row++) {
        load_fresh_row(s, r, row);
    }
    PQclear(r);
    return r != NULL ? 0 : -EIO;
}

static void load_waiting_row(struct cluster_spool *s, const PGresult *r, int row)
{
    struct desk_message *msg = mem_new(sizeof *msg);
    struct slice content = bytes_at(r, row, 17);
    struct desk_fields fields = {.m = {.state = (enum spool_state)number_at(r, row, 1),
                                       .due = {number_at(r, row, 2)},
                                       .created = {number_at(r, row, 3)},
                                       .rcpt_pending = (uint32_t)number_at(r, row, 4),
                                       .rcpt_to_report = (uint32_t)number_at(r, row, 5),
                                       .warnings = (uint32_t)number_at(r, row, 6),
                                       .force_expire = number_at(r, row, 7) != 0,
                                       .parked = bytes_at(r, row, 8),
                                       .reason = bytes_at(r, row, 9),
                                       .sender = bytes_at(r, row, 10),
                                       .class_name = bytes_at(r, row, 11),
                                       .flags = (unsigned)number_at(r, row, 12),
                                       .rcpt_total = (uint32_t)number_at(r, row, 13),
                                       .arrived = {number_at(r, row, 14)},
                                       .envid = bytes_at(r, row, 15),
                                       .client = bytes_at(r, row, 16),
                                       .class_source = (enum class_source)number_at(r, row, 18),
                                       .size = content.len}};

    msg->id = (uint64_t)number_at(r, row, 0);
    fields.m.id.n = msg->id;
    msg->row = ROW_WAITING;
    msg->content = mem_copy(content.ptr, content.len);
    msg->rcpts = mem_array(fields.m.rcpt_total, sizeof msg->rcpts[0]);
    for (uint32_t i = 0; i < fields.m.rcpt_total; i++) {
        msg->rcpts[i].gone = true;
    }
    adopt(s, msg, &fields);
}

static void load_rcpt_row(struct cluster_spool *s, const PGresult *r, int row)
{
    struct desk_message *msg = find(s, (struct msg_id){(uint64_t)number_at(r, row, 0)});
    uint32_t n = (uint32_t)number_at(r, row, 1);

    if (msg == NULL || n == 0 || n > msg->f.m.rcpt_total) {
        return; /* XXX an orphan: to be told */
    }
    msg->rcpts[n - 1].gone = false;
    msg->rcpts[n - 1].r = (struct spool_rcpt){.n = n,
                                              .state = (enum spool_rcpt_state)number_at(r, row, 2),
                                              .notify = (unsigned)number_at(r, row, 3),
                                              .attempts = (uint32_t)number_at(r, row, 4),
                                              .last_attempt = {number_at(r, row, 5)},
                                              .route_generation = (uint64_t)number_at(r, row, 6),
                                              .address = bytes_at(r, row, 7),
                                              .transport = bytes_at(r, row, 8),
                                              .nexthop = bytes_at(r, row, 9),
                                              .orcpt = bytes_at(r, row, 10),
                                              .status = bytes_at(r, row, 11),
                                              .diagnostic = bytes_at(r, row, 12),
                                              .reply = bytes_at(r, row, 13),
                                              .remote = bytes_at(r, row, 14),
                                              .tls = bytes_at(r, row, 15)};
    pack_rcpt(&msg->rcpts[n - 1]);
}

static int load_waiting(struct cluster_spool *s, PGconn *conn, struct buf *ret_error)
{
    PGresult *r = ask(
        conn, s->url,
        "SELECT p.id, p.state, due, created, pending, to_report, warnings, force_expire, parked, "
        "reason, sender, class, flags, rcpt_total, m.arrived, envid, client, coalesce(m.bytes, "
        "(SELECT string_agg(c.bytes, '' ORDER BY n) FROM content c WHERE c.id = p.id)), "
        "class_source FROM part p JOIN message m ON m.id = p.message ORDER BY p.id",
        ret_error);

    for (int row = 0; r != NULL && row < PQntuples(r); row++) {
        load_waiting_row(s, r, row);
    }
    if (r == NULL) {
        return -EIO;
    }
    PQclear(r);
    r = ask(conn, s->url,
            "SELECT id, n, state, notify, attempts, last_attempt, route_generation, address, "
            "transport, nexthop, orcpt, status, diagnostic, reply, remote, tls FROM recipient",
            ret_error);
    for (int row = 0; r != NULL && row < PQntuples(r); row++) {
        load_rcpt_row(s, r, row);
    }
    PQclear(r);
    return r != NULL ? 0 : -EIO;
}

static int by_id_order(const struct desk_message *a, const struct desk_message *b)
{
    return (a->id > b->id) - (a->id < b->id);
}

/* What was read table by table. */
static void put_in_order(struct cluster_spool *s)
{
    struct desk_message *msg;

    HASH_SORT(s->all, by_id_order);
    TAILQ_INIT(&s->in_order);
    for (msg = s->all; msg != NULL; msg = msg->hh.next) {
        TAILQ_INSERT_TAIL(&s->in_order, msg, by_id);
    }
}

/* Check the format, and put this life of the node in force: whatever an earlier one still has under
 * way can't be committed any more. */
static int enter(struct cluster_spool *s, PGconn *conn, int64_t *ret_incarnation,
                 struct buf *ret_error)
{
    PGresult *r = ask(conn, s->url, "SELECT format::bigint FROM cluster", ret_error);
    int err = 0;

    if (r == NULL) {
        return -EPROTO;
    }
    if (PQntuples(r) != 1 || number_at(r, 0, 0) != SCHEMA_FORMAT) {
        (void)buf_addf(ret_error,
                       "spool postgresql:%s: its tables have format %" PRId64
                       ", this program knows %d",
                       s->url, PQntuples(r) == 1 ? number_at(r, 0, 0) : 0, SCHEMA_FORMAT);
        err = -EPROTO;
    }
    PQclear(r);
    if (err != 0) {
        return err;
    }
    r = ask(conn, s->url,
            "INSERT INTO fence VALUES (0, 1) ON CONFLICT (no) DO UPDATE SET "
            "incarnation = fence.incarnation + 1 RETURNING incarnation",
            ret_error);
    if (r == NULL) {
        return -EIO;
    }
    *ret_incarnation = number_at(r, 0, 0);
    PQclear(r);
    return 0;
}

static int open_cluster(const char *where, enum spool_open_mode mode,
                        const struct spool_options *options, struct buf *ret_error,
                        struct spool **ret_spool)
{
    struct cluster_spool *s = mem_new(sizeof *s);
    int64_t incarnation = 0;
    PGconn *conn = NULL;
    int err = -EINVAL;

    s->base.engine = &cluster_engine;
    s->base.mode = mode;
    s->last_id = options->id_floor;
    s->epoll_fd = -1;
    TAILQ_INIT(&s->in_order);
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_init(&s->due[order], due_before);
    }
    if (!parse_url(s, where)) {
        (void)buf_addf(ret_error,
                       "spool postgresql:%s: expected //USER@/DATABASE?host=DIRECTORY&schema=NAME",
                       where);
        goto out;
    }
    conn = connect_now(&s->target);
    if (PQstatus(conn) != CONNECTION_OK) {
        (void)buf_addf(ret_error, "spool postgresql:%s: %s", where, PQerrorMessage(conn));
        err = -EIO;
        goto out;
    }
    err = enter(s, conn, &incarnation, ret_error);
    err = err != 0 ? err : load_fresh(s, conn, ret_error);
    err = err != 0 ? err : load_waiting(s, conn, ret_error);
    if (err == 0) {
        put_in_order(s);
        s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        CHECK(s->epoll_fd >= 0);
        s->committer = committer_new(s->epoll_fd, &s->target, s->node, incarnation);
        *ret_spool = &s->base;
    }
out:
    PQfinish(conn);
    if (err != 0) {
        close_spool(&s->base);
    }
    return err;
}

int cluster_spool_init(const char *where, struct buf *ret_error)
{
    struct cluster_spool *s = mem_new(sizeof *s);
    PGconn *conn = NULL;
    PGresult *r = NULL;
    int err = -EINVAL;

    where += strncmp(where, "postgresql:", 11) == 0 ? 11 : 0;
    if (!parse_url(s, where)) {
        (void)buf_addf(ret_error, "postgresql:%s: expected //USER@/DATABASE?host=DIRECTORY", where);
        goto out;
    }
    conn = connect_now(&s->target);
    r = PQstatus(conn) == CONNECTION_OK ? PQexec(conn, schema_sql) : NULL;
    err = PQresultStatus(r) == PGRES_COMMAND_OK ? 0 : -EIO;
    if (err != 0) {
        (void)buf_addf(ret_error, "postgresql:%s: %s", where, PQerrorMessage(conn));
    }
out:
    PQclear(r);
    PQfinish(conn);
    mem_free(s->url);
    mem_free(s);
    return err;
}

void cluster_spool_register(void)
{
    static const struct spool_scheme scheme = {
        .prefix = "postgresql:",
        .form = "postgresql://USER@/DATABASE?host=DIRECTORY&schema=NAME",
        .open = open_cluster};

    spool_register(&scheme);
}
