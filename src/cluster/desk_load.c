#include "desk_private.h"

#include <string.h>

#include "check.h"
#include "mem.h"

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
    desk_unlink_part(d, msg);
    /* Forget the earlier state: the message may no longer be gone or foreign. */
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
    desk_drop_rows(d, msg); /* drops an earlier answer that was incomplete */
    msg->row = row;
    msg->f = (struct desk_fields){.m = *m, .p = p};
    desk_pack_message(&msg->f);
}

void desk_fill_rcpt(struct desk_message *msg, const struct spool_rcpt *r)
{
    uint32_t at = desk_rcpt_place(msg, r->n);

    if (at < msg->rcpt_count && msg->rcpts[at].r.n == r->n) {
        mem_free(msg->rcpts[at].block); /* it was read twice */
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
        return; /* it was read twice */
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

/* Do the message's counts match its recipients? */
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
    if (msg->is_foreign && !msg->is_looked) { /* its partition was let go meanwhile */
        desk_drop_rows(d, msg);
        msg->f.gone = true;
        msg->row = ROW_NONE;
    }
    if (msg->row == ROW_NONE) { /* it was not found; callers that asked for it get -ENOENT */
        msg->is_loading = false;
        desk_set_ready(d, msg, false);
        desk_may_leave(d, msg);
        return;
    }
    if (msg->wrong == NULL && !adds_up(msg)) {
        desk_fill_wrong(msg, "the numbers of its recipients do not add up");
    }
    if (msg->f.m.gathers) { /* other nodes may have added recipients between the two reads */
        msg->f.m.rcpt_to_report = msg->rcpt_count;
    }
    msg->is_loading = false;
    desk_link_key(d, msg);
    desk_link_part(d, msg);
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

    if (msg != NULL && !msg->is_loading && !msg->f.gone && msg->f.m.state != SPOOL_INCOMING &&
        msg->f.m.due.us > now) {
        desk_set_ready(d, msg, false);
        desk_may_leave(d, msg);
    }
}
