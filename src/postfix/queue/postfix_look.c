/*
 * Scans of incoming/ and deferred/, a bounded piece per poll, and taking files into active/.
 *
 * The two queues alternate, one message each, as in Postfix. No file is taken while there is no
 * room for another message, or while enough messages wait for the resolver.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "check.h"
#include "mem.h"
#include "postfix_store.h"

/* Age above which a file with more than one link is logged. */
#define LINKS_AGE_US (60 * US_PER_S)
#define PROBLEM_MAX  1024

static const enum queue_dir_name queues[2] = {QUEUE_DIR_INCOMING, QUEUE_DIR_DEFERRED};

/* ---- when ----------------------------------------------------------------------------------- */

void postfix_trigger(struct spool *sp, unsigned scans)
{
    struct postfix_store *s = store_of(sp);

    s->scans[0].wanted |= (scans & POSTFIX_SCAN_INCOMING) != 0;
    s->scans[1].wanted |= (scans & POSTFIX_SCAN_DEFERRED) != 0;
    for (size_t i = 0; i < 2; i++) {
        struct store_scan *scan = &s->scans[i];

        if ((scans & POSTFIX_SCAN_IGNORE_TIME) != 0) {
            scan->any_time |= scan->running;
            scan->next_any_time = true;
        }
        if ((scans & POSTFIX_SCAN_FLUSH) != 0) {
            scan->flush |= scan->running;
            scan->next_flush = true;
        }
    }
}

uint64_t postfix_taken_from_incoming(struct spool *sp)
{
    struct postfix_store *s = store_of(sp);
    uint64_t taken = s->taken;

    s->taken = 0;
    return taken;
}

bool postfix_scans_incoming(struct spool *sp)
{
    const struct store_scan *scan = &store_of(sp)->scans[0];

    return scan->running || scan->wanted;
}

void look_all(struct spool *sp)
{
    postfix_trigger(sp, POSTFIX_SCAN_INCOMING | POSTFIX_SCAN_DEFERRED);
}

static bool has_room(const struct postfix_store *s)
{
    /* Every message is allowed its minimum of recipients, so that one with very many blocks no
     * other. */
    return s->ahead < STORE_AHEAD_MAX && HASH_CNT(by_id, s->by_id) < s->options.active_limit;
}

/* ---- a file --------------------------------------------------------------------------------- */

/* Schedules another scan, as the file could not be taken for a temporary reason. */
static void look_again(struct postfix_store *s, bool deferred)
{
    s->scans[deferred].again =
        wall_min(s->scans[deferred].again, wall_after(s->now, STORE_AGAIN_US));
}

/* Applies mode bits that operators have set, and removes the old defer log, before the message is
 * tried. */
static void prepare(struct postfix_store *s, struct store_message *m, int fd,
                    const struct queue_dir_file *file, bool flush)
{
    struct slice name = slice_string(m->name);
    struct queue_dir_file log;
    int err = 0;

    m->told.force_expire = queue_dir_force_expire(file);
    m->told.flushed = flush || queue_dir_flushed(file);
    if (queue_dir_flushed(file)) {
        err = queue_dir_clear_flushed(&s->dir, fd, file);
        if (err != 0) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: its mode can't be changed: %s", m->name,
                       strerror(-err));
        }
    }
    if (m->told.force_expire && queue_dir_stat(&s->dir, QUEUE_DIR_DEFER, name, &log) == 0 &&
        log.size > 0) {
        uint32_t undelivered = m->envelope.undelivered;

        read_rcpts_fini(s, m); /* it expires, and is bounced with the reasons in that log */
        m->pending = undelivered;
        m->unread = 0;
        m->expires = true;
        return;
    }
    err = queue_dir_remove(&s->dir, QUEUE_DIR_DEFER, name); /* agents write a new one */
    if (err != 0 && err != -ENOENT) {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "remove %s from defer: %s", m->name, strerror(-err));
    }
}

/* Moves a taken file that can't be read out of active/. */
static void unreadable(struct postfix_store *s, const struct store_message *m, int err,
                       struct slice problem)
{
    struct slice name = slice_string(m->name);
    int failed;

    if (err != -EBADMSG) {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: can't be read: %.*s", m->name,
                   SLICE_ARGS(problem));
        failed = queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, queues[m->from_deferred]);
        look_again(s, m->from_deferred);
    } else {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: message rejected: %.*s", m->name,
                   SLICE_ARGS(problem));
        store_tell(s, SPOOL_EVENT_WARNING, 0,
                   "saving corrupt file \"%s\" from queue \"active\" to queue \"corrupt\"",
                   m->name);
        failed = queue_dir_move(&s->dir, name, QUEUE_DIR_ACTIVE, QUEUE_DIR_CORRUPT);
    }
    if (failed != 0) { /* the next start moves it */
        store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: stays in queue \"active\": %s", m->name,
                   strerror(-failed));
    }
}

static void take_in(struct postfix_store *s, struct slice name, bool deferred, int fd,
                    const struct queue_dir_file *file, bool flush)
{
    struct store_message *m = mem_new(sizeof *m + name.len + 1);
    char odd[QUEUE_FILE_PROBLEM_MAX];
    struct buf problem;
    int err;

    memcpy(m->name, name.ptr, name.len);
    m->from_deferred = deferred;
    m->told.queue_id = slice_string(m->name);
    m->told.envelope = &m->envelope;
    m->told.activated = s->now;
    buf_init(&problem, PROBLEM_MAX);
    err = read_message(s, m, fd, file->size, odd, &problem);
    if (err != 0) {
        unreadable(s, m, err, buf_slice(&problem));
        mem_free(m);
    } else {
        if (odd[0] != '\0') {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: %s", m->name, odd);
        }
        if (file->links > 1 && file->modified.us < s->now.us - LINKS_AGE_US) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: uid %u: file has %u links", m->name,
                       (unsigned)file->owner, (unsigned)file->links);
        }
        /* An agent's mark renews the time of a file that was moved back during its delivery. */
        m->is_new = file->is_new && m->envelope.done == 0;
        prepare(s, m, fd, file, flush);
        store_add(s, m);
        s->taken += deferred ? 0 : 1;
    }
    (void)s->dir.io->close(fd); /* the close releases the lock, so that agents may lock the file */
    if (err == 0) {
        read_routes(s, m);
    }
    buf_fini(&problem);
}

/* Takes a file into active/. Returns false if that was not possible. */
static bool take(struct postfix_store *s, struct slice name, bool deferred)
{
    struct store_scan *scan = &s->scans[deferred];
    enum queue_dir_name queue = queues[deferred];
    struct queue_dir_file file;
    int fd, err = 0;

    if (store_has(s, name)) { /* it was held and released; first the active message must end */
        look_again(s, deferred);
        return false;
    }
    switch (queue_dir_take(&s->dir, queue, name, s->now, scan->any_time, &fd, &file, &err)) {
    case QUEUE_DIR_TAKEN:
        take_in(s, name, deferred, fd, &file, scan->flush);
        return true;
    case QUEUE_DIR_NOT_DUE: /* a later scan finds it in deferred/ */
        if (!deferred) {
            scan->again = wall_min(scan->again, file.modified);
        }
        return false;
    case QUEUE_DIR_SKIPPED:
        return false;
    case QUEUE_DIR_RACED:
        store_tell(s, SPOOL_EVENT_WARNING, 0,
                   "qmgr_active_feed: %.*s: rename from %s to active: %s", SLICE_ARGS(name),
                   queue_dir_word(queue), strerror(-err));
        return false;
    case QUEUE_DIR_LOCKED:
        store_tell(s, SPOOL_EVENT_LOG, 0, "%.*s: skipped, still being delivered", SLICE_ARGS(name));
        look_again(s, false);
        return false;
    case QUEUE_DIR_FAILED:
        store_tell(s, SPOOL_EVENT_WARNING, 0, "qmgr_active_feed: %.*s: from %s to active: %s",
                   SLICE_ARGS(name), queue_dir_word(queue), strerror(-err));
        look_again(s, deferred);
        return false;
    }
    UNREACHABLE("no such result");
}

/* ---- a scan --------------------------------------------------------------------------------- */

static void begin_wanted(struct postfix_store *s, bool deferred)
{
    struct store_scan *scan = &s->scans[deferred];

    if (scan->again.us <= s->now.us) {
        scan->again = WALL_NEVER;
        scan->wanted = true;
    }
    if (scan->running || !scan->wanted) {
        return;
    }
    scan->running = true;
    scan->wanted = false;
    scan->any_time = scan->next_any_time;
    scan->flush = scan->next_flush;
    scan->next_any_time = scan->next_flush = false;
    scan->seen = 0;
    queue_scan_begin(&scan->scan, &s->dir, queues[deferred]);
}

/* Continues the scan until a message is taken; false if *names is used up before, or at the end of
 * the scan. */
static bool go_on(struct postfix_store *s, bool deferred, unsigned *names)
{
    struct store_scan *scan = &s->scans[deferred];
    char name[QUEUE_ID_MAX + 1];

    while (scan->running && *names > 0) {
        int err = 0;

        *names -= 1;
        switch (queue_scan_next(&scan->scan, STORE_SCAN_NAMES, name, &err)) {
        case QUEUE_SCAN_ID:
            if (take(s, slice_string(name), deferred)) {
                s->counts[deferred] -= s->counts[deferred] > 0 ? 1 : 0;
                return true;
            }
            scan->seen++;
            break;
        case QUEUE_SCAN_OTHER:
        case QUEUE_SCAN_MORE:
            break;
        case QUEUE_SCAN_FAILED:
            store_tell(s, SPOOL_EVENT_WARNING, 0, "scan of %s: %s",
                       queue_dir_word(queues[deferred]), strerror(-err));
            look_again(s, deferred);
            break;
        case QUEUE_SCAN_END:
            queue_scan_end(&scan->scan);
            scan->running = false;
            s->counts[deferred] = scan->seen;
            break;
        }
    }
    return false;
}

static void tell_restart(void *context, const char *line)
{
    store_tell(context, SPOOL_EVENT_WARNING, 0, "%s", line);
}

/* Makes due what the previous manager had in active/. */
static void restart(struct postfix_store *s)
{
    size_t moved;
    int err = queue_dir_restart(&s->dir, s->now, tell_restart, s, &moved);

    if (err != 0) {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "queue \"active\": %s", strerror(-err));
    }
    s->restarted = true;
    s->next_run = wall_after(s->now, s->options.run_delay_us); /* the first run is in progress */
}

static void run_by_time(struct postfix_store *s)
{
    int64_t delay = s->options.run_delay_us;

    if (s->next_run.us > us_add(s->now.us, delay)) {
        s->next_run = wall_after(s->now, delay); /* the clock was set back */
    }
    if (s->next_run.us <= s->now.us) {
        s->scans[1].wanted = true;
        s->next_run.us += delay * ((s->now.us - s->next_run.us) / delay + 1);
    }
}

/* Tries again to move files that a failing disk has kept in active/. */
static struct wall leave_again(struct postfix_store *s)
{
    struct store_message *m, *next;
    struct wall again = WALL_NEVER;

    for (m = TAILQ_FIRST(&s->leaving); m != NULL; m = next) {
        next = TAILQ_NEXT(m, by_turn);
        if (m->ready.us <= s->now.us) {
            store_leave(s, m, m->exit, m->due);
        }
    }
    TAILQ_FOREACH(m, &s->leaving, by_turn)
    {
        again = wall_min(again, m->ready);
    }
    return again;
}

int look_poll(struct spool *sp, struct wall now, struct wall *ret_again)
{
    unsigned names[2] = {STORE_SCAN_NAMES, STORE_SCAN_NAMES};
    struct postfix_store *s = store_of(sp);
    struct wall again;
    bool taken = true;
    eventfd_t ignored;

    CHECK(s->services != NULL);
    if (s->ready_told) {
        s->ready_told = false;
        (void)eventfd_read(s->ready_fd, &ignored); /* EAGAIN: the poll was due by time */
    }
    s->now = now;
    s->polls = true;
    if (!s->restarted) {
        restart(s);
    }
    again = leave_again(s);
    run_by_time(s);
    for (unsigned round = 0; taken && round < STORE_SCAN_TAKEN && has_room(s); round++) {
        taken = false;
        for (size_t i = 0; i < 2 && has_room(s); i++) {
            begin_wanted(s, i == 1);
            taken |= go_on(s, i == 1, &names[i]);
        }
    }
    search_forget_old(s);
    again = wall_min(again, search_tally(s) ? now : s->next_run);
    for (size_t i = 0; i < 2; i++) {
        const struct store_scan *scan = &s->scans[i];

        again = wall_min(again, (scan->running || scan->wanted) && has_room(s) ? now : scan->again);
    }
    *ret_again = again;
    s->polls = false;
    return 0;
}

void look_fini(struct postfix_store *s)
{
    for (size_t i = 0; i < 2; i++) {
        if (s->scans[i].running) {
            queue_scan_end(&s->scans[i].scan);
        }
    }
}
