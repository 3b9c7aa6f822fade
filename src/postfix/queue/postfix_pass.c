/*
 * The end of a pass: facts about a message's file for the services, and the changes that they
 * request.
 */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "postfix_store.h"

int postfix_use_services(struct spool *sp, const struct postfix_services *services)
{
    if (sp->engine != &postfix_engine) {
        return spool_fail(sp, -EINVAL, "the spool is no queue directory of Postfix");
    }
    store_of(sp)->services = services;
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

const struct postfix_message *postfix_message(struct spool *sp, struct msg_id id)
{
    const struct store_message *m = store_find(store_of(sp), id);

    return m != NULL && m->state != STORE_LEAVING ? &m->told : NULL;
}

static const struct store_rcpt *find_rcpt(struct postfix_store *s, struct msg_id id, uint32_t n,
                                          const struct store_message **ret_message)
{
    const struct store_message *m = store_find(s, id);
    const struct store_rcpt *r = m != NULL ? read_rcpt_find(m, n) : NULL;

    *ret_message = m;
    return r != NULL && r->state != STORE_RCPT_OUT ? r : NULL;
}

void postfix_pin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count)
{
    struct store_message *m = store_find(store_of(sp), id);

    for (size_t i = 0; m != NULL && i < count; i++) {
        struct store_rcpt *r = read_rcpt_find(m, ns[i]);

        if (r != NULL && !r->pinned && r->texts != NULL) {
            r->pinned = true;
            m->pinned++;
        }
    }
}

void postfix_unpin(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m = store_find(s, id);

    for (size_t i = 0; m != NULL && i < count; i++) {
        struct store_rcpt *r = read_rcpt_find(m, ns[i]);

        if (r != NULL && r->pinned) {
            r->pinned = false;
            m->pinned--;
            if (r->state == STORE_RCPT_KEPT) {
                read_rcpt_out(s, m, r);
            }
        }
    }
    if (m != NULL) {
        store_at_hand(s, m);
    }
}

bool postfix_rcpt(struct spool *sp, struct msg_id id, uint32_t n, struct postfix_rcpt *ret_rcpt)
{
    const struct store_message *m;
    const struct store_rcpt *r = find_rcpt(store_of(sp), id, n, &m);

    if (r != NULL) {
        *ret_rcpt = read_rcpt_show(r);
    }
    return r != NULL;
}

int postfix_rcpt_state(struct spool *sp, struct msg_id id, uint32_t n)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m;
    const struct store_rcpt *r = find_rcpt(s, id, n, &m);
    char type;
    int err;

    if (r == NULL) {
        return -ENOENT;
    }
    err = queue_dir_rcpt_type(&s->dir, QUEUE_DIR_ACTIVE, m->told.queue_id, r->offset, &type);
    return err != 0 ? err : (unsigned char)type;
}

void postfix_read_log(struct spool *sp, struct msg_id id, enum postfix_log which, struct buf *out)
{
    static const enum queue_dir_name places[] = {[POSTFIX_LOG_BOUNCE] = QUEUE_DIR_BOUNCE,
                                                 [POSTFIX_LOG_DEFER] = QUEUE_DIR_DEFER,
                                                 [POSTFIX_LOG_TRACE] = QUEUE_DIR_TRACE};
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = store_find(s, id);

    if (m != NULL) {
        store_read_log(s, places[which], m->told.queue_id, out);
    }
}

void store_read_log(struct postfix_store *s, enum queue_dir_name which, struct slice name,
                    struct buf *out)
{
    const struct spool_io *io = s->dir.io;
    uint64_t size = 0, at;
    char *room;
    ssize_t n;
    int fd;

    if (queue_dir_open_file(&s->dir, which, name, 0, &fd) != 0) {
        return;
    }
    if (io->fstat_size(fd, &size) == 0) {
        at = size > POSTFIX_LOG_MAX ? size - POSTFIX_LOG_MAX : 0;
        room = buf_room(out, (size_t)(size - at));
        n = room == NULL ? 0 : io->pread(fd, room, (size_t)(size - at), at);
        if (n > 0) {
            buf_grew(out, (size_t)n);
        }
    }
    (void)io->close(fd); /* opened for reading */
}

/* ---- the conclusion ------------------------------------------------------------------------- */

void pass_conclusions(struct postfix_store *s)
{
    struct store_message *m;

    while ((m = STAILQ_FIRST(&s->conclusions)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->conclusions, by_conclusion);
        s->services->conclude(s->services->context, m->id, m->deferred, m->due);
    }
}

static struct store_message *concluding(struct postfix_store *s, struct msg_id id)
{
    struct store_message *m = store_find(s, id);

    return m != NULL && m->state == STORE_CONCLUDING ? m : NULL;
}

int postfix_pass_bounce_log(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = concluding(s, id);
    struct queue_dir_file log;
    int err =
        m == NULL ? -ENOENT : queue_dir_stat(&s->dir, QUEUE_DIR_BOUNCE, m->told.queue_id, &log);

    if (err == 0 && log.size == 0) {
        err = queue_dir_remove(&s->dir, QUEUE_DIR_BOUNCE, m->told.queue_id);
        return err == -ENOENT ? 0 : err;
    }
    return err == 0 ? 1 : err == -ENOENT ? 0 : err;
}

int postfix_pass_is_usable(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = concluding(s, id);
    struct queue_dir_file file;
    int err =
        m == NULL ? -ENOENT : queue_dir_stat(&s->dir, QUEUE_DIR_ACTIVE, m->told.queue_id, &file);

    return err == 0 ? !m->damaged && queue_dir_usable(&file) : err == -ENOENT ? 0 : err;
}

bool postfix_pass_is_unread(struct spool *sp, struct msg_id id)
{
    const struct store_message *m = concluding(store_of(sp), id);

    return m != NULL && m->unread > 0 && m->unreadable;
}

static int mark(struct postfix_store *s, const struct store_message *m, struct queue_file_mark mark)
{
    return mark.offset == 0 ? -EBADMSG
                            : queue_dir_mark(&s->dir, QUEUE_DIR_ACTIVE, m->told.queue_id, &mark);
}

int postfix_pass_traced(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = concluding(s, id);

    return m == NULL ? -ENOENT : mark(s, m, queue_file_mark_killed(m->envelope.trace_offset));
}

int postfix_pass_warned(struct spool *sp, struct msg_id id)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = concluding(s, id);

    return m == NULL ? -ENOENT : mark(s, m, queue_file_mark_warned(m->envelope.warn_offset));
}

void postfix_concluded(struct spool *sp, struct msg_id id, enum postfix_place place,
                       struct wall due)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m = concluding(s, id);

    if (m == NULL) {
        return; /* an operator has removed it meanwhile */
    }
    if (m->touched) { /* the open batch changes it, too, and the operator's change is applied
                       * last */
        m->state = STORE_CLAIMED;
        return;
    }
    store_leave(s, m,
                place == POSTFIX_DEFERRED  ? STORE_TO_DEFERRED
                : place == POSTFIX_REMOVED ? STORE_REMOVED
                                           : STORE_TO_CORRUPT,
                due);
}
