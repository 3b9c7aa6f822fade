#include "desk_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "parts.h"
#include "spool_engine.h"

/* Largest size of all copies of the content that parts keep; above it parts read the content when
 * it is needed. */
#define PARTS_CONTENT_MAX ((size_t)1 << 20)

int desk_submit_parts(struct desk *d, struct msg_id whole, const struct spool_new *n,
                      const struct spool_share *shares, size_t count)
{
    struct desk_fields fields = {.m = *n->m};
    char *content = mem_resize(NULL, n->size + 1, 1); /* not zeroed, as it is filled at once */
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
            desk_set_ready(d, msg, true); /* so it can be claimed without being read */
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

/* Moves the fields to another partition, where the message is due at `due` at the latest. Parking
 * ends, as the key is that of the previous partition. */
static void leave_for(struct desk_fields *fields, unsigned p, struct wall due)
{
    fields->p = (uint16_t)p;
    fields->claimed = false;
    fields->m.parked = SLICE("");
    fields->m.due = wall_min(fields->m.due, due);
}

/* Moves recipients of a message, unchanged, to a new part. */
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

/* Makes the message the report part of its parts; it has no pending recipients then. */
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

/* Are all recipients of the share pending recipients of the message? */
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
    const struct spool_share *same = NULL; /* share that keeps the id */
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
    return desk_fail_by_id(d, whole, -EAGAIN, "its parts are not loaded yet");
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

void desk_link_part(struct desk *d, struct desk_message *msg)
{
    struct desk_whole *whole;

    if (!spool_is_part(&msg->f.m) || msg->f.gone) {
        return;
    }
    HASH_FIND(hh, d->wholes, &msg->f.m.whole.n, sizeof msg->f.m.whole.n, whole);
    if (whole == NULL) {
        whole = mem_new(sizeof *whole);
        whole->id = msg->f.m.whole.n;
        TAILQ_INIT(&whole->parts);
        HASH_ADD(hh, d->wholes, id, sizeof whole->id, whole);
    }
    msg->whole = whole;
    TAILQ_INSERT_TAIL(&whole->parts, msg, by_whole);
}

void desk_unlink_part(struct desk *d, struct desk_message *msg)
{
    struct desk_whole *whole = msg->whole;

    if (whole != NULL) {
        TAILQ_REMOVE(&whole->parts, msg, by_whole);
        msg->whole = NULL;
        if (TAILQ_EMPTY(&whole->parts)) {
            HASH_DEL(d->wholes, whole);
            mem_free(whole);
        }
    }
}

/* Returns the first part of the message, or NULL if the desk has none. */
static struct desk_message *first_part(const struct desk *d, struct msg_id id)
{
    struct desk_whole *whole;

    HASH_FIND(hh, d->wholes, &id.n, sizeof id.n, whole);
    return whole != NULL ? TAILQ_FIRST(&whole->parts) : NULL;
}

int desk_parts_of(struct desk *d, struct msg_id whole, struct msg_id after, size_t max,
                  struct msg_id *ret_ids, size_t *ret_count)
{
    struct desk_message **found = NULL;
    struct desk_message *msg;
    size_t count = 0, size = 0;

    for (msg = first_part(d, whole); msg != NULL; msg = TAILQ_NEXT(msg, by_whole)) {
        if (msg->id > after.n && !desk_is_outdated(msg, d->look)) {
            found = mem_grow(found, count, &size, sizeof(struct desk_message *));
            found[count++] = msg;
        }
    }
    if (count > 0) {
        qsort(found, count, sizeof(struct desk_message *), desk_id_order);
    }
    *ret_count = count < max ? count : max;
    msg = desk_find(d, whole);
    if (msg != NULL && count <= max) {
        msg->parts_are_here = false; /* the caller has the whole list, which may change now */
    }
    for (size_t i = 0; i < *ret_count; i++) {
        ret_ids[i].n = found[i]->id;
    }
    mem_free(found);
    return 0;
}

int desk_places_of(struct desk *d, struct msg_id id, struct spool_places *ret)
{
    const struct desk_message *whole;
    int err = desk_parts_want(d, id);

    if (err != 0) {
        return err;
    }
    whole = desk_find(d, id);
    spool_places_add(ret, whole->f.p);
    for (const struct desk_message *msg = whole->f.m.gathers ? first_part(d, id) : NULL;
         msg != NULL; msg = TAILQ_NEXT(msg, by_whole)) {
        if (!desk_is_outdated(msg, d->look)) {
            spool_places_add(ret, msg->f.p);
        }
    }
    return 0;
}

void desk_tell(struct desk *d, uint16_t p, uint64_t id)
{
    if (d->told_count > 0 && d->told[d->told_count - 1].id == id) {
        return; /* frequent, as the parts of a message often end together */
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
    desk_may_leave(d, msg); /* the copy on the desk is out of date */
}
