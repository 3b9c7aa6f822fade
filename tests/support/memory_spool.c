/*
 * The same answers as the sqlite engine.
 *
 * Claiming and everything by id is as fast as it can be; searches go through all messages.
 *
 * Undo. What a batch changes is logged with its old value, whole: a message's own fields, or one
 * recipient. All texts of such a value are in one block, so the old value keeps its block until the
 * batch ends. Messages that are deleted are `gone` until then.
 *
 * Where commits end later there is a log for each that is under way, and for the open batch. What
 * is in one of them can't be claimed before its end.
 */
#include "memory_spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "destination_list.h"
#include "hash.h"
#include "heap.h"
#include "mem.h"
#include "spool_engine.h"

/* A recipient; `gone` when done with. */
struct memory_rcpt {
    struct spool_rcpt r;
    char *block; /* owned: the bytes of its slices */
    bool gone;
};

/* What can change of a message, but for its recipients. */
struct memory_fields {
    struct spool_message m;
    char *block;         /* owned: the bytes of its slices */
    uint32_t parts_left; /* of a report part */
    bool claimed;
    bool gone;
};

struct memory_message {
    uint64_t id;
    struct memory_fields f;
    struct memory_rcpt *rcpts; /* owned; recipient n at n - 1, of a part those of others `gone` */
    char *content;             /* owned; of a part, its report part has it */
    struct heap_node due;      /* in memory_spool.due[] when it can be claimed */
    TAILQ_ENTRY(memory_message) by_id;
    unsigned undos; /* in all logs */
    UT_hash_handle hh;
};

/* The value before a change; n = 0 is the message itself. */
struct memory_undo {
    struct memory_message *message;
    uint32_t n;
    union {
        struct memory_fields fields;
        struct memory_rcpt rcpt;
    } before;
};

/* What the open batch has changed, or one that is under way. */
struct memory_batch {
    struct memory_undo *log; /* owned */
    size_t count, size;
    struct spool_totals totals_before;
    unsigned looks; /* at a commit under way */
};

#define MEMORY_COMMITS_MAX 2

enum { DUE_INCOMING, DUE_DEFERRED, DUE_ORDERS };

struct memory_spool {
    struct spool base;
    struct memory_message *all; /* by id */
    TAILQ_HEAD(, memory_message) in_order;
    struct heap due[DUE_ORDERS];
    struct memory_batch open;
    struct memory_batch under_way[MEMORY_COMMITS_MAX]; /* the oldest first */
    unsigned under_way_count;
    unsigned canceled; /* were under way when an older one failed */
    int fd;            /* of commits that end later, or -1 */
    struct memory_later *later;
    struct spool_totals totals;
    uint64_t last_id;
    struct text_pool pool; /* of destinations */
    unsigned partitions;   /* that mail is divided among */
};

static struct memory_spool *memory_of(struct spool *sp)
{
    return (struct memory_spool *)sp;
}

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct memory_message *x = CONTAINER_OF(a, const struct memory_message, due);
    const struct memory_message *y = CONTAINER_OF(b, const struct memory_message, due);

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

static void pack_message(struct memory_fields *f)
{
    struct slice *texts[] = {&f->m.sender, &f->m.envid,  &f->m.reason,
                             &f->m.client, &f->m.parked, &f->m.class_name};

    f->block = pack(texts, sizeof texts / sizeof texts[0]);
}

static void pack_rcpt(struct memory_rcpt *r)
{
    struct slice *texts[] = {&r->r.address, &r->r.orcpt,  &r->r.transport,
                             &r->r.nexthop, &r->r.status, &r->r.diagnostic,
                             &r->r.reply,   &r->r.remote, &r->r.tls};

    r->block = pack(texts, sizeof texts / sizeof texts[0]);
}

/* Out of the order of due times, before its fields change. */
static void unplace(struct memory_spool *s, struct memory_message *msg)
{
    if (heap_has(&msg->due)) {
        heap_remove(&s->due[due_order(msg->f.m.state)], &msg->due);
    }
}

static struct memory_undo *log_add(struct memory_spool *s, struct memory_message *message,
                                   uint32_t n)
{
    struct memory_batch *b = &s->open;
    struct memory_undo *undo;

    if (b->count == b->size) {
        b->size = b->size == 0 ? 64 : 2 * b->size;
        b->log = mem_resize(b->log, b->size, sizeof b->log[0]);
    }
    if (s->later != NULL) {
        unplace(s, message);
    }
    message->undos++;
    undo = &b->log[b->count++];
    undo->message = message;
    undo->n = n;
    return undo;
}

/* Into the order of due times, if it can be claimed. */
static void place(struct memory_spool *s, struct memory_message *msg)
{
    const struct memory_fields *f = &msg->f;

    if (!f->claimed && !f->gone && (s->later == NULL || msg->undos == 0) && !heap_has(&msg->due) &&
        (f->m.state == SPOOL_INCOMING || f->m.state == SPOOL_DEFERRED)) {
        heap_add(&s->due[due_order(f->m.state)], &msg->due);
    }
}

static void count_fields(struct memory_spool *s, const struct memory_fields *f, bool add)
{
    uint64_t *total = spool_total_of(&s->totals, f->m.state);

    if (!f->gone && !spool_is_part(&f->m)) {
        *total += add ? 1 : UINT64_MAX;
        s->totals.bytes += add ? f->m.size : -f->m.size;
    }
}

/* The one function that changes a message's own fields. Takes the block of `to`, which is a new
 * one. */
static void set_fields(struct memory_spool *s, struct memory_message *msg, struct memory_fields to)
{
    struct memory_fields before = msg->f;

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
static struct memory_fields copy_fields(const struct memory_message *msg)
{
    struct memory_fields copy = msg->f;

    pack_message(&copy);
    return copy;
}

/* The one function that changes a recipient. `to` is packed here. */
static void set_rcpt(struct memory_spool *s, struct memory_message *msg, uint32_t n,
                     struct memory_rcpt to)
{
    pack_rcpt(&to);
    log_add(s, msg, n)->before.rcpt = msg->rcpts[n - 1];
    msg->rcpts[n - 1] = to;
}

static void free_message(struct memory_spool *s, struct memory_message *msg)
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

static struct memory_message *find(const struct memory_spool *s, struct msg_id id)
{
    struct memory_message *msg;

    HASH_FIND(hh, s->all, &id.n, sizeof id.n, msg);
    return msg == NULL || msg->f.gone ? NULL : msg;
}

static int need(struct memory_spool *s, struct msg_id id, struct memory_message **ret_msg)
{
    char text[SPOOL_ID_TEXT_MAX];

    *ret_msg = find(s, id);
    if (*ret_msg != NULL) {
        return 0;
    }
    spool_id_print(id, text);
    return spool_fail(&s->base, -ENOENT, "%s: no such message", text);
}

static int need_rcpt(struct memory_spool *s, struct msg_id id, uint32_t n,
                     struct memory_message **ret_msg)
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
    struct memory_spool *s = memory_of(sp);

    CHECK(s->open.count == 0);
    s->open.totals_before = s->totals;
    return 0;
}

/* An entry of a log is of no more use. What is gone is buried with the last. */
static void forget_undo(struct memory_spool *s, struct memory_message *msg)
{
    CHECK(msg->undos > 0);
    if (--msg->undos == 0 && msg->f.gone) {
        free_message(s, msg);
    } else {
        place(s, msg);
    }
}

static void keep_changes(struct memory_spool *s, struct memory_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct memory_undo *undo = &b->log[i];

        mem_free(undo->n == 0 ? undo->before.fields.block : undo->before.rcpt.block);
        forget_undo(s, undo->message);
    }
    b->count = 0;
}

static void undo_changes(struct memory_spool *s, struct memory_batch *b)
{
    for (size_t i = b->count; i-- > 0;) {
        const struct memory_undo *undo = &b->log[i];
        struct memory_message *msg = undo->message;

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

static int commit(struct spool *sp)
{
    struct memory_spool *s = memory_of(sp);

    keep_changes(s, &s->open);
    return 0;
}

static void rollback(struct spool *sp)
{
    struct memory_spool *s = memory_of(sp);

    undo_changes(s, &s->open);
}

/* ---- commits that end later ------------------------------------------------------------------ */

static void begin_commit(struct spool *sp)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_batch *b = &s->under_way[s->under_way_count];

    CHECK(s->under_way_count < MEMORY_COMMITS_MAX);
    s->under_way_count++;
    *b = s->open;
    b->looks = 0;
    s->open = (struct memory_batch){.count = 0};
}

static bool end_commit(struct spool *sp, int *ret_rc)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_batch oldest;

    if (s->canceled > 0) {
        s->canceled--;
        *ret_rc = -ECANCELED;
        return true;
    }
    CHECK(s->under_way_count > 0);
    if (s->later->holds || s->under_way[0].looks++ < s->later->looks) {
        return false;
    }
    *ret_rc = s->later->rc;
    if (*ret_rc == 0) {
        oldest = s->under_way[0];
        s->under_way_count--;
        memmove(s->under_way, s->under_way + 1, s->under_way_count * sizeof s->under_way[0]);
        keep_changes(s, &oldest);
        mem_free(oldest.log);
        return true;
    }
    (void)spool_fail(sp, *ret_rc, "the commit failed: %s", strerror(-*ret_rc));
    if (sp->dirty) {
        rollback(sp);
    }
    s->canceled = s->under_way_count - 1;
    while (s->under_way_count > 0) {
        oldest = s->under_way[--s->under_way_count];
        undo_changes(s, &oldest);
        mem_free(oldest.log);
    }
    return true;
}

static int commits_fd(const struct spool *sp)
{
    return ((const struct memory_spool *)sp)->fd;
}

static void tidy(struct spool *sp)
{
    (void)sp; /* nothing piles up */
}

/* ---- changes -------------------------------------------------------------------------------- */

static struct msg_id next_id(struct spool *sp)
{
    return (struct msg_id){++memory_of(sp)->last_id};
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

/* `content` is taken. */
static struct memory_message *add_message(struct memory_spool *s, struct msg_id id,
                                          const struct spool_new *n, char *content)
{
    struct memory_message *msg = mem_new(sizeof *msg);

    msg->id = id.n;
    msg->content = content;
    msg->rcpts = mem_array(n->rcpt_count, sizeof msg->rcpts[0]);
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        msg->rcpts[i].gone = true;
    }
    /* What was before it is that it was not, and that is what is logged. */
    msg->f = (struct memory_fields){.m = {.state = SPOOL_INCOMING, .rcpt_total = n->rcpt_count},
                                    .gone = true};
    heap_node_init(&msg->due);
    HASH_ADD(hh, s->all, id, sizeof msg->id, msg);
    TAILQ_INSERT_TAIL(&s->in_order, msg, by_id);
    return msg;
}

static void add_rcpt(struct memory_message *msg, const struct spool_new *n, uint32_t i)
{
    const struct spool_rcpt *r = &n->rcpts[i];
    struct memory_rcpt *to = &msg->rcpts[i];

    to->gone = false;
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

static void set_new(struct memory_spool *s, struct memory_message *msg, struct memory_fields fields)
{
    pack_message(&fields);
    set_fields(s, msg, fields);
}

static int submit(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    char *content = mem_new(n->size);
    int err = read_all(n, content);

    if (err != 0) {
        mem_free(content);
        return spool_fail(sp, err, "submit: read content: %s", strerror(-err));
    }
    msg = add_message(s, id, n, content);
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        add_rcpt(msg, n, i);
    }
    set_new(s, msg, (struct memory_fields){.m = *n->m, .claimed = n->claim});
    return 0;
}

/* Move a recipient from what it counted for to what it counts for now. */
static void count_rcpt(struct memory_spool *s, struct memory_message *msg,
                       const struct memory_rcpt *before, const struct memory_rcpt *after)
{
    struct memory_fields fields = copy_fields(msg);

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
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need_rcpt(s, id, n, &msg);

    if (err != 0) {
        return err;
    }
    struct memory_rcpt before = msg->rcpts[n - 1], to = before;
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
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need_rcpt(s, id, n, &msg);

    if (err != 0) {
        return err;
    }
    struct memory_rcpt to = msg->rcpts[n - 1];
    to.r.transport = transport;
    to.r.nexthop = nexthop;
    to.r.route_generation = route_generation;
    set_rcpt(s, msg, n, to);
    return 0;
}

static int reported(struct spool *sp, struct msg_id id)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need(s, id, &msg);

    if (err != 0) {
        return err;
    }
    for (uint32_t n = 1; n <= msg->f.m.rcpt_total; n++) {
        struct memory_rcpt to = msg->rcpts[n - 1];

        if (!to.gone && to.r.state != SPOOL_RCPT_PENDING) {
            to.gone = true;
            count_rcpt(s, msg, &msg->rcpts[n - 1], &to);
            set_rcpt(s, msg, n, to);
        }
    }
    return 0;
}

/* With the last part the report part is due, whatever it waited for. */
static void part_ended(struct memory_spool *s, struct msg_id whole)
{
    struct memory_message *msg = find(s, whole);
    struct memory_fields fields;

    CHECK(msg != NULL && msg->f.parts_left > 0);
    fields = copy_fields(msg);
    if (--fields.parts_left == 0) {
        fields.m.due = fields.m.created;
        fields.m.state = fields.m.state == SPOOL_HOLD ? SPOOL_DEFERRED : fields.m.state;
    }
    set_fields(s, msg, fields);
}

static void bury(struct memory_spool *s, struct memory_message *msg)
{
    struct memory_fields fields = copy_fields(msg);

    if (spool_is_part(&fields.m)) {
        part_ended(s, fields.m.whole);
    }

    fields.gone = true;
    fields.claimed = false;
    set_fields(s, msg, fields);
}

static int finish(struct spool *sp, struct msg_id id, struct wall due, bool *ret_gone)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need(s, id, &msg);
    const struct spool_message *m;

    if (err != 0) {
        return err;
    }
    m = &msg->f.m;
    *ret_gone = m->rcpt_pending + m->rcpt_to_report == 0 && msg->f.parts_left == 0 &&
                m->state != SPOOL_CORRUPT;
    if (*ret_gone) {
        bury(s, msg);
    } else if (msg->f.claimed) {
        struct memory_fields fields = copy_fields(msg);

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
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need(s, id, &msg);

    if (err == 0 && (msg->f.m.state == SPOOL_CORRUPT || msg->f.parts_left > 0)) {
        err = spool_fail(sp, -EINVAL, "it was quarantined, or has parts, and is not deleted");
    }
    if (err == 0) {
        bury(s, msg);
    }
    return err;
}

static int change(struct spool *sp, const struct spool_change *c)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg = find(s, c->from->id);
    struct memory_fields fields;

    CHECK(msg != NULL); /* it was just read */
    fields = (struct memory_fields){
        .m = *c->to, .parts_left = msg->f.parts_left, .claimed = msg->f.claimed && !c->end_claim};
    pack_message(&fields);
    set_fields(s, msg, fields);
    for (uint32_t n = 1; c->forget_tries && n <= msg->f.m.rcpt_total; n++) {
        struct memory_rcpt to = msg->rcpts[n - 1];

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
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need(s, id, &msg);

    if (err == 0 && msg->f.parts_left > 0) {
        return reported(sp, id);
    }
    if (err == 0) {
        bury(s, msg);
    }
    return err;
}

static int quarantine(struct spool *sp, struct msg_id id, struct slice reason)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
    int err = need(s, id, &msg);

    if (err == 0) {
        struct memory_fields fields = {.m = msg->f.m, .parts_left = msg->f.parts_left};

        fields.m.state = SPOOL_CORRUPT;
        fields.m.reason = reason;
        fields.m.parked = SLICE("");
        pack_message(&fields);
        set_fields(s, msg, fields);
    }
    return err;
}

/* ---- claims --------------------------------------------------------------------------------- */

static void set_claimed(struct memory_spool *s, struct memory_message *msg, bool claimed)
{
    struct memory_fields fields = copy_fields(msg);

    fields.claimed = claimed;
    set_fields(s, msg, fields);
}

static void unclaim(struct spool *sp, struct msg_id id)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg = find(s, id);

    if (msg != NULL && msg->f.claimed) {
        set_claimed(s, msg, false);
    }
}

static struct memory_message *first_due(const struct memory_spool *s, unsigned order)
{
    struct heap_node *top = heap_top(&s->due[order]);

    return top == NULL ? NULL : CONTAINER_OF(top, struct memory_message, due);
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
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
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;
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
        struct memory_fields fields = msg->f;
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
    struct memory_spool *s = memory_of(sp);
    struct wall due = WALL_NEVER;

    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        const struct memory_message *msg = first_due(s, order);

        if (msg != NULL && msg->f.m.due.us < due.us) {
            due = msg->f.m.due;
        }
    }
    *ret_due = due;
    return 0;
}

static bool is_claimed(const struct spool *sp, struct msg_id id)
{
    const struct memory_message *msg = find((const struct memory_spool *)sp, id);

    return msg != NULL && msg->f.claimed;
}

static size_t claimed(const struct spool *sp, uint64_t *cursor, size_t max, struct msg_id *ret_ids)
{
    const struct memory_message *all = ((const struct memory_spool *)sp)->all;
    size_t count = 0;

    for (size_t looked = 0; looked <= max / 4 && (looked == 0 || *cursor != 0); looked++) {
        struct UT_hash_handle *hh = hash_bucket(all != NULL ? &all->hh : NULL, cursor);

        for (; hh != NULL && count < max; hh = hh->hh_next) {
            const struct memory_message *msg = CONTAINER_OF(hh, const struct memory_message, hh);

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
    struct memory_message *msg;
    int err = need(memory_of(sp), id, &msg);

    if (err == 0) {
        *ret_message = msg->f.m;
    }
    return err;
}

/* Is it a part of `whole` that is there? */
static bool is_part_of(const struct memory_message *msg, uint64_t whole)
{
    return !msg->f.gone && msg->f.m.whole.n == whole && msg->id != whole;
}

/* Recipient i, pending in whichever part; NULL: in none. */
static const struct memory_rcpt *pending_of(const struct memory_spool *s,
                                            const struct memory_message *report, uint32_t i)
{
    const struct memory_message *msg;

    TAILQ_FOREACH(msg, &s->in_order, by_id)
    {
        if (is_part_of(msg, report->id) && !msg->rcpts[i].gone &&
            msg->rcpts[i].r.state == SPOOL_RCPT_PENDING) {
            return &msg->rcpts[i];
        }
    }
    return NULL;
}

static int read_rcpts(struct spool *sp, struct msg_id id, uint32_t after, bool only_pending,
                      size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct memory_message *msg;
    int err = need(memory_of(sp), id, &msg);
    size_t count = 0;

    if (err != 0) {
        return err;
    }
    for (uint32_t i = after; i < msg->f.m.rcpt_total && count < max; i++) {
        const struct memory_rcpt *r =
            msg->f.m.gathers && only_pending ? pending_of(memory_of(sp), msg, i) : &msg->rcpts[i];

        if (r != NULL && !r->gone && (!only_pending || r->r.state == SPOOL_RCPT_PENDING)) {
            ret_rcpts[count++] = r->r;
        }
    }
    *ret_count = count;
    return 0;
}

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    struct memory_message *msg;
    int err = need(memory_of(sp), id, &msg);

    if (err == 0 && spool_is_part(&msg->f.m)) {
        err = need(memory_of(sp), msg->f.m.whole, &msg);
    }
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

/* Those of its parts are the message's. */
static bool rcpts_match(const struct memory_spool *s, const struct memory_message *msg,
                        const struct spool_filter *f)
{
    bool address = f->rcpt.len == 0, destination = f->destination.len == 0;

    for (uint32_t i = 0; i < msg->f.m.rcpt_total && !(address && destination); i++) {
        const struct memory_rcpt *r = msg->f.m.gathers ? pending_of(s, msg, i) : NULL;

        r = r != NULL ? r : &msg->rcpts[i];
        if (!r->gone) {
            address = address || address_matches(r->r.address, f->rcpt);
            destination = destination || destination_matches(&r->r, f->destination);
        }
    }
    return address && destination;
}

static bool matches(const struct memory_spool *s, const struct memory_message *msg,
                    const struct spool_filter *f)
{
    const struct spool_message *m = &msg->f.m;

    if (msg->f.gone || spool_is_part(m) || msg->id <= f->after.n ||
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
    return rcpts_match(s, msg, f);
}

static int scan(struct spool *sp, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
                size_t *ret_count)
{
    const struct memory_message *msg;
    size_t count = 0;

    TAILQ_FOREACH(msg, &memory_of(sp)->in_order, by_id)
    {
        if (count == max) {
            break;
        }
        if (matches(memory_of(sp), msg, f)) {
            ret_ids[count++] = (struct msg_id){msg->id};
        }
    }
    *ret_count = count;
    return 0;
}

static int count_matches(struct spool *sp, const struct spool_filter *f, uint64_t *ret_count)
{
    const struct memory_message *msg;
    uint64_t count = 0;

    TAILQ_FOREACH(msg, &memory_of(sp)->in_order, by_id)
    {
        count += matches(memory_of(sp), msg, f);
    }
    *ret_count = count;
    return 0;
}

static int totals(struct spool *sp, struct spool_totals *ret_totals)
{
    *ret_totals = memory_of(sp)->totals;
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
static size_t fill_list(struct memory_spool *s, const struct spool_destination *from,
                        struct destination_list *list)
{
    const struct memory_message *msg;
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
    struct memory_spool *s = memory_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init(&list, &s->pool, ret, max);
    *ret_count = fill_list(s, &first, &list);
    return 0;
}

static int destinations_from(struct spool *sp, const struct spool_destination *from, size_t max,
                             struct spool_destination *ret, size_t *ret_count)
{
    struct memory_spool *s = memory_of(sp);
    struct destination_list list;

    text_pool_clear(&s->pool);
    destination_list_init_by_name(&list, &s->pool, ret, max);
    *ret_count = fill_list(s, from, &list);
    return 0;
}

static int parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    struct memory_spool *s = memory_of(sp);
    const struct memory_message *msg;
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
    (void)sp; /* as much as there is memory */
    *ret_bytes = UINT64_MAX;
    return 0;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static unsigned partition(const struct spool *sp, const struct spool_rcpt *r)
{
    unsigned sum = 0;

    for (size_t i = 0; i < r->nexthop.len; i++) {
        sum = sum * 31 + (unsigned char)r->nexthop.ptr[i];
    }
    return (sum + (unsigned)r->transport.len) % ((const struct memory_spool *)sp)->partitions;
}

static int submit_parts(struct spool *sp, struct msg_id whole, const struct spool_new *n,
                        const struct spool_share *shares, size_t count)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_fields fields = {.m = *n->m, .parts_left = (uint32_t)count};
    struct memory_message *msg;
    char *content = mem_new(n->size);
    int err = read_all(n, content);

    if (err != 0) {
        mem_free(content);
        return spool_fail(sp, err, "submit: read content: %s", strerror(-err));
    }
    fields.m.whole = whole;
    fields.m.gathers = true;
    fields.m.rcpt_pending = 0;
    fields.m.parked = SLICE("");
    fields.m.due = n->m->report_due.us != 0 ? n->m->report_due : n->m->due;
    set_new(s, add_message(s, whole, n, content), fields);
    for (size_t i = 0; i < count; i++) {
        msg = add_message(s, shares[i].id, n, NULL);
        for (uint32_t k = 0; k < shares[i].count; k++) {
            add_rcpt(msg, n, shares[i].rcpts[k]);
        }
        fields = (struct memory_fields){.m = *n->m};
        fields.m.id = shares[i].id;
        fields.m.whole = whole;
        fields.m.rcpt_pending = shares[i].count;
        set_new(s, msg, fields);
    }
    return 0;
}

static int give(struct spool *sp, struct msg_id id, struct wall due)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg, *report;
    struct memory_fields from, to;
    int err = need(s, id, &msg);

    if (err == 0 && !spool_is_part(&msg->f.m)) {
        err = spool_fail(sp, -EINVAL, "it is no part of a message");
    }
    if (err != 0) {
        return err;
    }
    report = find(s, msg->f.m.whole);
    CHECK(report != NULL);
    for (uint32_t n = 1; n <= msg->f.m.rcpt_total; n++) {
        struct memory_rcpt r = msg->rcpts[n - 1];

        if (!r.gone && r.r.state != SPOOL_RCPT_PENDING) {
            set_rcpt(s, report, n, r);
            r.gone = true;
            set_rcpt(s, msg, n, r);
        }
    }
    from = copy_fields(msg);
    to = copy_fields(report);
    to.m.rcpt_to_report += from.m.rcpt_to_report;
    to.m.due = wall_min(to.m.due, due);
    from.m.rcpt_to_report = 0;
    set_fields(s, report, to);
    set_fields(s, msg, from);
    return 0;
}

static int parts_of(struct spool *sp, struct msg_id whole, struct msg_id after, size_t max,
                    struct msg_id *ret_ids, size_t *ret_count)
{
    const struct memory_message *msg;

    TAILQ_FOREACH(msg, &memory_of(sp)->in_order, by_id)
    {
        if (*ret_count < max && msg->id > after.n && is_part_of(msg, whole.n)) {
            ret_ids[(*ret_count)++] = (struct msg_id){msg->id};
        }
    }
    return 0;
}

static const struct spool_parts_part parts = {
    .partition = partition, .submit = submit_parts, .give = give, .parts_of = parts_of};

/* ---- opening and closing -------------------------------------------------------------------- */

static void free_all(struct memory_spool *s)
{
    struct memory_message *msg;

    while ((msg = TAILQ_FIRST(&s->in_order)) != NULL) {
        free_message(s, msg);
    }
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_fini(&s->due[order]);
    }
    text_pool_fini(&s->pool);
    mem_free(s->open.log);
    if (s->fd >= 0) {
        (void)close(s->fd);
    }
    mem_free(s);
}

static void close_spool(struct spool *sp)
{
    free_all(memory_of(sp));
}

/* The process ends; what was not committed has not happened. */
static void close_later(struct spool *sp)
{
    struct memory_spool *s = memory_of(sp);
    struct memory_message *msg;

    while (s->under_way_count > 0) {
        struct memory_batch b = s->under_way[--s->under_way_count];

        undo_changes(s, &b);
        mem_free(b.log);
    }
    s->base = (struct spool){.engine = s->base.engine, .mode = SPOOL_OPEN_WRITE};
    TAILQ_FOREACH(msg, &s->in_order, by_id)
    {
        if (msg->f.claimed) {
            struct memory_fields fields = msg->f;

            fields.claimed = false;
            pack_message(&fields);
            set_fields(s, msg, fields);
        }
    }
}

static const struct spool_search_part search = {
    .scan = scan,
    .count = count_matches,
    .destinations = destinations,
    .destinations_from = destinations_from,
};

static const struct spool_engine memory_engine = {
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
    .read = read_message,
    .read_rcpts = read_rcpts,
    .read_content = read_content,
    .totals = totals,
    .free_bytes = free_bytes,
    .search = &search,
};

static struct memory_spool *spool_new_memory(uint64_t id_floor)
{
    struct memory_spool *s = mem_new(sizeof *s);

    s->base.engine = &memory_engine;
    s->base.mode = SPOOL_OPEN_WRITE;
    s->last_id = id_floor;
    s->fd = -1;
    TAILQ_INIT(&s->in_order);
    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        heap_init(&s->due[order], due_before);
    }
    return s;
}

void memory_spool_divide(struct spool *sp, unsigned partitions)
{
    static struct spool_engine engines[2]; /* with commits that end later, and without */
    struct spool_engine *engine = &engines[sp->engine->commits != NULL];

    *engine = *sp->engine;
    engine->parts = &parts;
    sp->engine = engine;
    memory_of(sp)->partitions = partitions;
}

struct spool *memory_spool_open(const struct spool_options *options)
{
    return &spool_new_memory(options->id_floor)->base;
}

static const struct spool_commits_part commits = {
    .begin = begin_commit,
    .end = end_commit,
    .fd = commits_fd,
    .max = 2,
};

_Static_assert(MEMORY_COMMITS_MAX >= 2, "as above");

struct spool *memory_spool_open_later(const struct spool_options *options,
                                      struct memory_later *later)
{
    static struct spool_engine engine;
    struct memory_spool *s = later->kept;

    if (s == NULL) {
        engine = memory_engine;
        engine.close = close_later;
        engine.commit = NULL;
        engine.commits = &commits;
        s = later->kept = spool_new_memory(options->id_floor);
        s->base.engine = &engine;
        s->later = later;
        s->fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK); /* readable for good, unless it holds */
        CHECK(s->fd >= 0);
    }
    return &s->base;
}

void memory_later_hold(struct memory_later *later, bool holds)
{
    const struct memory_spool *s = later->kept;
    eventfd_t value;

    later->holds = holds;
    (void)eventfd_read(s->fd, &value); /* fails when nothing is in it */
    CHECK(holds || eventfd_write(s->fd, 1) == 0);
}

void memory_later_free(struct memory_later *later)
{
    if (later->kept != NULL) {
        free_all(later->kept);
        later->kept = NULL;
    }
}
