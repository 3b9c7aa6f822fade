#include "desk_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "partition.h"
#include "parts.h"
#include "spool_engine.h"

/* ---- changes -------------------------------------------------------------------------------- */

int desk_read_all(const struct spool_new *n, char *content)
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

void desk_fill_new_rcpt(struct desk_rcpt *to, const struct spool_new *n, uint32_t i)
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

/* The undo record holds a message that did not exist. */
void desk_set_new(struct desk *d, struct desk_message *msg, struct desk_fields fields,
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
    char *content = mem_resize(NULL, n->size + 1, 1); /* not zeroed, as it is filled at once */
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

/* Moves a recipient between the message's counts after its state has changed. */
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
    int err = desk_need_own(d, c->from->id, -EROFS, &msg); /* spool.c has just read it */

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
           (from == SPOOL_INCOMING || msg->f.m.due.us <= now.us)) {
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

int desk_next_due(struct desk *d, struct wall now, struct wall *ret_due)
{
    struct wall due = WALL_NEVER;

    for (unsigned order = 0; order < DUE_ORDERS; order++) {
        const struct desk_message *msg = first_due(d, order);

        if (msg != NULL) {
            due = wall_min(due, order == DUE_INCOMING ? wall_min(msg->f.m.due, now) : msg->f.m.due);
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
        desk_set_looked(d, msg, true); /* so that it stays for a moment when its claim ends */
    }
    if (err != 0 || !content || msg->content != NULL || msg->content_fd >= 0 ||
        msg->wrong != NULL) {
        return err;
    }
    msg->wants_content = true;
    desk_miss(d, msg);
    return desk_fail_by_id(d, id, -EAGAIN, "its content is not loaded yet");
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
