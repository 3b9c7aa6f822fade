/*
 * Messages on disk that were requested, by queue id or by a list: reading and changing them. Each
 * has an id of ours (struct store_known), by which it can be read and changed until too many other
 * messages were requested. A message that is taken into active/ keeps that id.
 *
 * Changes by operators are the file operations of postsuper(1) and flush(8), made at the commit. A
 * file that is gone by then is no error.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "mem.h"
#include "postfix_store.h"

/* Limit of such messages: more than a page of a list, and more than a person names. */
#define KNOWN_MAX 5000

/* Queues where a message may be, the most likely first. */
static const enum queue_dir_name places[] = {QUEUE_DIR_DEFERRED, QUEUE_DIR_HOLD, QUEUE_DIR_INCOMING,
                                             QUEUE_DIR_CORRUPT};

/* ---- messages on disk ----------------------------------------------------------------------- */

struct store_known *known_find(struct postfix_store *s, struct msg_id id)
{
    struct store_known *k;

    HASH_FIND(by_id, s->known, &id.n, sizeof id.n, k);
    if (k != NULL) {
        TAILQ_REMOVE(&s->known_by_use, k, by_use);
        TAILQ_INSERT_TAIL(&s->known_by_use, k, by_use);
    }
    return k;
}

static void known_forget(struct postfix_store *s, struct store_known *k)
{
    CHECK(!k->touched);
    TAILQ_REMOVE(&s->known_by_use, k, by_use);
    HASH_DELETE(by_id, s->known, k);
    HASH_DELETE(by_name, s->known_by_name, k);
    mem_free(k);
}

void known_fini(struct postfix_store *s)
{
    struct store_known *k;

    while ((k = TAILQ_FIRST(&s->known_by_use)) != NULL) {
        known_forget(s, k);
    }
    queue_file_envelope_fini(&s->shown);
}

bool known_take(struct postfix_store *s, struct slice name, struct msg_id *ret_id, bool *ret_flush)
{
    struct store_known *k;

    HASH_FIND(by_name, s->known_by_name, name.ptr, name.len, k);
    if (k == NULL) {
        return false;
    }
    *ret_id = k->id;
    *ret_flush = k->flush;
    known_forget(s, k);
    return true;
}

/* Finds the queue of a message; -ENOENT if it is in none, or active. */
static int locate(struct postfix_store *s, const struct store_known *k,
                  enum queue_dir_name *ret_place, struct queue_dir_file *ret_file)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int err = queue_dir_stat(&s->dir, places[i], slice_string(k->name), ret_file);

        if (err == 0) {
            *ret_place = places[i];
        }
        if (err != -ENOENT) {
            return err;
        }
    }
    return -ENOENT;
}

static int no_message(struct postfix_store *s, const struct store_known *k, int err)
{
    return spool_fail(&s->base, err, "%s: %s", k->name, strerror(-err));
}

/* Adds a message; if there are many, it replaces the least recently used, unless the open batch
 * changes that one. */
static struct store_known *known_add(struct postfix_store *s, struct slice name)
{
    struct store_known *oldest = TAILQ_FIRST(&s->known_by_use), *k;

    if (HASH_CNT(by_id, s->known) >= KNOWN_MAX && !oldest->touched) {
        known_forget(s, oldest);
    }
    k = mem_new(sizeof *k);
    memcpy(k->name, name.ptr, name.len);
    k->id.n = ++s->last_id;
    HASH_ADD(by_id, s->known, id.n, sizeof k->id.n, k);
    HASH_ADD_KEYPTR(by_name, s->known_by_name, k->name, name.len, k);
    TAILQ_INSERT_TAIL(&s->known_by_use, k, by_use);
    return k;
}

struct store_known *known_have(struct postfix_store *s, struct slice name)
{
    struct store_known *k;

    HASH_FIND(by_name, s->known_by_name, name.ptr, name.len, k);
    return k != NULL ? known_find(s, k->id) : known_add(s, name);
}

struct store_known *known_by_name(struct postfix_store *s, struct slice name)
{
    struct store_known *k, probe = {.exit = STORE_STAYS};
    enum queue_dir_name place;
    struct queue_dir_file file;

    HASH_FIND(by_name, s->known_by_name, name.ptr, name.len, k);
    if (k != NULL) {
        return k;
    }
    memcpy(probe.name, name.ptr, name.len);
    return locate(s, &probe, &place, &file) == 0 ? known_add(s, name) : NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Opens the file and begins to read it; the caller ends the reader and closes *ret_fd. */
static int open_known(struct postfix_store *s, const struct store_known *k,
                      struct queue_file_reader *ret_reader, int *ret_fd,
                      enum queue_dir_name *ret_place, struct queue_dir_file *ret_file)
{
    int err = locate(s, k, ret_place, ret_file);

    if (err == 0) {
        err = queue_dir_open_file(&s->dir, *ret_place, slice_string(k->name), 0, ret_fd);
    }
    if (err != 0) {
        return no_message(s, k, err);
    }
    queue_file_init(ret_reader, (struct queue_file_source){.read = queue_file_read_fd,
                                                           .context = ret_fd,
                                                           .size = ret_file->size});
    return 0;
}

static enum spool_state state_of(const struct store_known *k, enum queue_dir_name place)
{
    switch (k->exit) {
    case STORE_TO_HOLD:
        return SPOOL_HOLD;
    case STORE_TO_DEFERRED:
        return SPOOL_DEFERRED;
    case STORE_TO_INCOMING:
        return SPOOL_INCOMING;
    case STORE_TO_CORRUPT:
        return SPOOL_CORRUPT;
    case STORE_TO_MAILDROP:
    case STORE_STAYS:
    case STORE_CONCLUDES:
    case STORE_REMOVED:
    case STORE_REMOVED_BY:
        break;
    }
    return place == QUEUE_DIR_HOLD       ? SPOOL_HOLD
           : place == QUEUE_DIR_CORRUPT  ? SPOOL_CORRUPT
           : place == QUEUE_DIR_DEFERRED ? SPOOL_DEFERRED
                                         : SPOOL_INCOMING;
}

/* Returns the time at which a run of the queue finds deferred mail; 0 if it is found at once, or if
 * the store is only read and there are no runs. */
static struct wall found_at(const struct postfix_store *s, enum queue_dir_name place,
                            struct wall due)
{
    int64_t delay = s->options.run_delay_us,
            late = due.us - s->next_run.us - QUEUE_DIR_SLACK_S * US_PER_S;

    if (place != QUEUE_DIR_DEFERRED || s->next_run.us == 0) {
        return (struct wall){0};
    }
    return late <= 0 ? s->next_run : wall_after(s->next_run, (late + delay - 1) / delay * delay);
}

int known_read(struct postfix_store *s, const struct store_known *k,
               struct spool_message *ret_message)
{
    struct queue_file_rcpt rcpt;
    struct queue_file_reader r;
    enum queue_dir_name place;
    struct queue_dir_file file;
    enum queue_file_read got;
    int fd, err = k->exit == STORE_REMOVED_BY ? -ENOENT : open_known(s, k, &r, &fd, &place, &file);

    if (err != 0) {
        return err;
    }
    do {
        got = queue_file_next(&r, &rcpt);
    } while (got == QUEUE_FILE_READ_ITEM);
    queue_file_envelope_fini(&s->shown);
    if (got == QUEUE_FILE_READ_END) {
        queue_file_take_envelope(&r, &s->shown);
    } else {
        s->shown = (struct queue_file_envelope){0};
    }
    if (got == QUEUE_FILE_READ_FAILED) {
        err = no_message(s, k, r.error);
    } else if (got == QUEUE_FILE_READ_CORRUPT && place != QUEUE_DIR_CORRUPT) {
        err = queue_dir_usable(&file) ? spool_fail(&s->base, -EBADMSG, "%s: %s", k->name, r.problem)
                                      : no_message(s, k, -ENOENT); /* it is still being written */
    } else {
        text_pool_clear(&s->pool);
        store_show(s, &s->shown, ret_message);
        ret_message->id = k->id;
        ret_message->state = state_of(k, place);
        ret_message->due = file.modified;
        ret_message->found_at = found_at(s, place, file.modified);
        ret_message->rcpt_pending = s->shown.undelivered;
        ret_message->force_expire = queue_dir_force_expire(&file) || k->expire;
        ret_message->reason = text_pool_add(&s->pool, slice_string(r.problem));
        ret_message->spoolid = slice_string(k->name);
    }
    queue_file_fini(&r);
    (void)s->dir.io->close(fd); /* opened for reading */
    return err;
}

int known_open(struct postfix_store *s, const struct store_known *k, int *ret_fd)
{
    struct spool_message unused;
    enum queue_dir_name place;
    struct queue_dir_file file;
    int err = known_read(s, k, &unused); /* reads s->shown */

    err = err == 0 ? locate(s, k, &place, &file) : err;
    return err == 0 ? queue_dir_open_file(&s->dir, place, slice_string(k->name), 0, ret_fd) : err;
}

int known_read_rcpts(struct postfix_store *s, const struct store_known *k, uint32_t after,
                     size_t max, struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct queue_file_reader r;
    enum queue_dir_name place;
    struct queue_dir_file file;
    size_t count;
    int fd, err = open_known(s, k, &r, &fd, &place, &file);

    if (err != 0) {
        return err;
    }
    count = read_listed(s, slice_string(k->name), &r, after, max, ret_rcpts);
    err = r.ended == QUEUE_FILE_READ_FAILED ? no_message(s, k, r.error) : 0;
    queue_file_fini(&r);
    (void)s->dir.io->close(fd); /* opened for reading */
    if (err == 0) {
        *ret_count = count;
    }
    return err;
}

/* ---- changes -------------------------------------------------------------------------------- */

static void known_touch(struct postfix_store *s, struct store_known *k)
{
    if (!k->touched) {
        k->touched = true;
        STAILQ_INSERT_TAIL(&s->known_touched, k, by_batch);
    }
}

int known_leave(struct postfix_store *s, struct store_known *k, enum store_exit how)
{
    known_touch(s, k);
    k->exit = how;
    return 0;
}

int known_change(struct postfix_store *s, struct store_known *k, const struct spool_change *c)
{
    if (c->forget_tries) {
        return known_leave(s, k, STORE_TO_MAILDROP);
    }
    if (c->to->parked.len > 0 || c->to->warnings != c->from->warnings) {
        return spool_fail(&s->base, -ENOTSUP,
                          "%s: Postfix's queue has no place for this; see postsuper(1)", k->name);
    }
    known_touch(s, k);
    k->expire |= c->to->force_expire && !c->from->force_expire;
    if (c->to->state == SPOOL_HOLD && c->from->state != SPOOL_HOLD) {
        k->exit = STORE_TO_HOLD;
    } else if (c->to->state != SPOOL_HOLD &&
               (c->to->state != c->from->state || c->to->due.us != c->from->due.us)) {
        /* To incoming/, as flush(8) does: mail there is found without a scan of deferred/. */
        k->exit = c->to->due.us <= us_add(s->now.us, s->options.run_delay_us)
                      ? STORE_TO_INCOMING /* `now` is of the last poll, up to that long ago */
                      : STORE_TO_DEFERRED;
        k->flush = k->exit == STORE_TO_INCOMING && c->from->state != SPOOL_HOLD;
        k->due = c->to->due;
    }
    return 0;
}

static int set_expire(struct postfix_store *s, const struct store_known *k,
                      enum queue_dir_name place, const struct queue_dir_file *file)
{
    int fd, err = queue_dir_open_file(&s->dir, place, slice_string(k->name), 0, &fd);

    if (err == 0) {
        err = queue_dir_set_force_expire(&s->dir, fd, file);
        (void)s->dir.io->close(fd); /* nothing was written */
    }
    return err;
}

static int move_known(struct postfix_store *s, const struct store_known *k,
                      enum queue_dir_name from, enum queue_dir_name to, bool keeps_time)
{
    struct slice name = slice_string(k->name);
    int err = 0;

    if (!keeps_time && (to == QUEUE_DIR_DEFERRED || to == QUEUE_DIR_INCOMING)) {
        err = queue_dir_set_time(&s->dir, from, name, k->due);
    }
    return err != 0 || from == to ? err : queue_dir_move(&s->dir, name, from, to);
}

static int apply(struct postfix_store *s, struct store_known *k)
{
    enum queue_dir_name place;
    struct queue_dir_file file;
    int err = locate(s, k, &place, &file);

    if (err == 0 && k->expire) {
        err = set_expire(s, k, place, &file);
    }
    if (err != 0) {
        return err;
    }
    if (place == QUEUE_DIR_DEFERRED && k->exit != STORE_STAYS && k->exit != STORE_TO_DEFERRED) {
        s->counts[1] -= s->counts[1] > 0 ? 1 : 0;
    }
    switch (k->exit) {
    case STORE_TO_HOLD:
        return move_known(s, k, place, QUEUE_DIR_HOLD, true);
    case STORE_TO_DEFERRED:
        return move_known(s, k, place, QUEUE_DIR_DEFERRED, false);
    case STORE_TO_INCOMING:
        s->scans[0].wanted = true;
        s->scans[0].again = wall_min(s->scans[0].again, k->due); /* the time may be later */
        store_ready(s);
        return move_known(s, k, place, QUEUE_DIR_INCOMING, file.is_new); /* keeps a new file new,
                                                                          * and it is due */
    case STORE_TO_MAILDROP:
        return store_requeue(s, slice_string(k->name), place);
    case STORE_TO_CORRUPT:
        return move_known(s, k, place, QUEUE_DIR_CORRUPT, true);
    case STORE_REMOVED_BY:
        return store_remove(s, slice_string(k->name), place);
    case STORE_STAYS:
    case STORE_CONCLUDES:
    case STORE_REMOVED:
        break;
    }
    return 0;
}

void known_end(struct postfix_store *s, bool committed)
{
    struct store_known *k;

    while ((k = STAILQ_FIRST(&s->known_touched)) != NULL) {
        int err = committed ? apply(s, k) : 0;

        STAILQ_REMOVE_HEAD(&s->known_touched, by_batch);
        if (err != 0 && err != -ENOENT) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: it stays as it is: %s", k->name,
                       strerror(-err));
        }
        k->touched = false;
        k->exit = STORE_STAYS;
        k->expire = false;
        k->flush = k->flush && committed;
    }
}
