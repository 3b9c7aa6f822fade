/*
 * Reads a file's envelope and pages of its recipients.
 *
 * A file is read to its end before any delivery: filter, redirect and attributes may follow the
 * recipients, and a damaged message must not be delivered in part. The first recipients are kept in
 * memory, as many as there is room for. A cursor marks the next page, which is read on request,
 * when other recipients have left memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postfix_store.h"
#include "status_log.h"

#define HEADER_MAX    ((size_t)1 << 18) /* bytes of the header that are searched for a class */
#define CONTENT_CHUNK ((size_t)1 << 16) /* bytes that are written to a memfd at once */

/* ---- recipients ----------------------------------------------------------------------------- */

size_t read_rcpt_behind(const struct store_message *m, uint32_t after)
{
    size_t low = 0, high = m->rcpt_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (m->rcpts[middle].n <= after) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct store_rcpt *read_rcpt_find(const struct store_message *m, uint32_t n)
{
    size_t i = n == 0 ? m->rcpt_count : read_rcpt_behind(m, n - 1);

    return i < m->rcpt_count && m->rcpts[i].n == n ? &m->rcpts[i] : NULL;
}

static void rcpt_fini(struct postfix_store *s, struct store_rcpt *r)
{
    if (r->texts != NULL) {
        s->rcpts--;
    }
    mem_free(r->texts);
    mem_free(r->route);
    r->texts = r->route = NULL;
}

void read_rcpt_out(struct postfix_store *s, struct store_message *m, struct store_rcpt *r)
{
    rcpt_fini(s, r);
    m->rcpts_out++;
    m->pinned -= r->pinned ? 1 : 0;
    r->pinned = false;
    r->state = STORE_RCPT_OUT;
}

void read_rcpts_fini(struct postfix_store *s, struct store_message *m)
{
    for (size_t i = 0; i < m->rcpt_count; i++) {
        rcpt_fini(s, &m->rcpts[i]);
    }
    mem_free(m->rcpts);
    m->rcpts = NULL;
    m->rcpt_count = m->rcpt_size = m->rcpts_out = 0;
    m->pending = m->unrouted = m->pinned = 0;
}

/* Removes recipients that have left memory from the array, once they are more than half of it. */
static void drop_out(struct store_message *m)
{
    size_t kept = 0;

    if (m->rcpts_out <= m->rcpt_count / 2) {
        return;
    }
    for (size_t i = 0; i < m->rcpt_count; i++) {
        if (m->rcpts[i].texts != NULL) {
            m->rcpts[kept++] = m->rcpts[i];
        }
    }
    m->rcpt_count = kept;
    m->rcpts_out = 0;
}

size_t read_routed_behind(const struct store_message *m, uint32_t after, size_t max)
{
    size_t count = 0;

    for (size_t i = read_rcpt_behind(m, after); i < m->rcpt_count && count < max; i++) {
        count += m->rcpts[i].state == STORE_RCPT_ROUTED;
    }
    return count;
}

/* Copies a text to *at, moves *at to the end of the copy, and returns the length. */
static uint32_t keep(char **at, struct slice text)
{
    CHECK(text.len <= UINT32_MAX);
    if (text.len > 0) {
        memcpy(*at, text.ptr, text.len);
    }
    *at += text.len;
    return (uint32_t)text.len;
}

static struct slice address_of(const struct store_rcpt *r)
{
    return r->texts != NULL ? slice_of(r->texts, r->address_len) : SLICE("");
}

struct postfix_rcpt read_rcpt_show(const struct store_rcpt *r)
{
    struct postfix_rcpt shown = {.n = r->n,
                                 .offset = r->offset,
                                 .recipient = address_of(r),
                                 .original = address_of(r),
                                 .dsn_original = SLICE(""),
                                 .notify = r->notify,
                                 .transport = SLICE(""),
                                 .nexthop = SLICE("")};

    if (r->texts != NULL) {
        const char *at = r->texts + r->address_len;

        shown.dsn_original = slice_of(at, r->dsn_original_len);
        if (!r->is_original) {
            shown.original = slice_of(at + r->dsn_original_len, r->original_len);
        }
    }
    if (r->route != NULL) {
        const char *at = r->route + r->transport_len;

        shown.transport = slice_of(r->route, r->transport_len);
        shown.nexthop = slice_of(at, r->nexthop_len);
        if (!r->is_recipient) {
            shown.recipient = slice_of(at + r->nexthop_len, r->recipient_len);
        }
    }
    return shown;
}

static void add_rcpt(struct postfix_store *s, struct store_message *m,
                     const struct queue_file_rcpt *from)
{
    const bool is_original = slice_equal(from->original, from->address);
    struct store_rcpt *r;
    char *at;

    m->rcpts = mem_grow(m->rcpts, m->rcpt_count, &m->rcpt_size, sizeof *m->rcpts);
    r = &m->rcpts[m->rcpt_count++];
    at = mem_new(from->address.len + from->dsn_original.len +
                 (is_original ? 0 : from->original.len));
    *r = (struct store_rcpt){.n = from->n,
                             .offset = from->offset,
                             .notify = from->notify,
                             .is_original = is_original,
                             .is_recipient = true,
                             .state = STORE_RCPT_ASKED,
                             .texts = at};
    r->address_len = keep(&at, from->address);
    r->dsn_original_len = keep(&at, from->dsn_original);
    r->original_len = is_original ? 0 : keep(&at, from->original);
    m->unrouted++;
    s->rcpts++;
}

/* Returns how many recipients of a message may be read before it is claimed. */
static size_t room_for_first(const struct postfix_store *s)
{
    uint64_t limit = s->options.rcpt_limit, free = s->rcpts < limit ? limit - s->rcpts : 0;
    uint64_t room = free > s->options.rcpt_minimum ? free : s->options.rcpt_minimum;

    return room < STORE_READ_MAX ? (size_t)room : STORE_READ_MAX;
}

/* Continues to read: to the end or, unless `to_end`, until `room` recipients were found.
 * *ret_passed_over: number of recipients without room. */
static int read_on(struct postfix_store *s, struct store_message *m, struct queue_file_reader *r,
                   size_t room, bool to_end, uint32_t *ret_passed_over)
{
    struct queue_file_rcpt rcpt;
    enum queue_file_read got;

    *ret_passed_over = 0;
    while ((to_end || room > 0) && (got = queue_file_next(r, &rcpt)) != QUEUE_FILE_READ_END) {
        if (got == QUEUE_FILE_READ_CORRUPT) {
            return -EBADMSG;
        }
        if (got == QUEUE_FILE_READ_FAILED) {
            return r->error;
        }
        if (rcpt.type != 'R') {
            continue;
        }
        if (room == 0) {
            *ret_passed_over += 1;
            continue;
        }
        room--;
        add_rcpt(s, m, &rcpt);
        m->behind = queue_file_cursor(r);
    }
    return 0;
}

/* Finds the class by the header, of which the services get at most HEADER_MAX bytes. */
static void read_class(struct postfix_store *s, struct store_message *m, int fd, uint64_t size)
{
    char room[CLASS_NAME_MAX];
    struct queue_file_reader r;
    struct slice piece, name = SLICE("");
    struct buf header;
    bool ends = false, begins = true, more = true;

    buf_init(&header, HEADER_MAX + QUEUE_FILE_RECORD_MAX + 2);
    queue_file_content_init(
        &r, (struct queue_file_source){.read = queue_file_read_fd, .context = &fd, .size = size},
        &m->envelope);
    while (more && buf_len(&header) < HEADER_MAX &&
           queue_file_content_next(&r, &piece, &ends) == QUEUE_FILE_READ_ITEM) {
        more = !(begins && ends && piece.len == 0); /* an empty line ends the header */
        begins = ends;
        (void)buf_add(&header, piece); /* there is room for the longest */
        if (ends) {
            (void)buf_add_string(&header, "\r\n");
        }
    }
    queue_file_fini(&r);
    s->services->classify(s->services->context, &m->envelope, buf_slice(&header), room, &name,
                          &m->class_source);
    if (name.len > 0) {
        m->class_name = mem_copy(name.ptr, name.len);
    }
    buf_fini(&header);
}

int read_message(struct postfix_store *s, struct store_message *m, int fd, uint64_t size,
                 char ret_odd[QUEUE_FILE_PROBLEM_MAX], struct buf *ret_problem)
{
    struct queue_file_reader r;
    int err;

    queue_file_init(
        &r, (struct queue_file_source){.read = queue_file_read_fd, .context = &fd, .size = size});
    err = read_on(s, m, &r, room_for_first(s), true, &m->unread);
    if (err == 0) {
        queue_file_take_envelope(&r, &m->envelope);
        memcpy(ret_odd, r.odd, sizeof r.odd);
        if (queue_file_text(&m->envelope, QUEUE_FILE_REDIRECT).len > 0) {
            m->unread = 0; /* one of the recipients in memory represents all */
        }
        m->pending = (uint32_t)m->rcpt_count + m->unread;
        if (s->services->classify != NULL) {
            read_class(s, m, fd, size);
        }
    } else {
        (void)buf_add_string(ret_problem, err == -EBADMSG ? r.problem : strerror(-err));
        read_rcpts_fini(s, m);
    }
    queue_file_fini(&r);
    return err;
}

static void ask_where(struct postfix_store *s, struct store_message *m, size_t from)
{
    m->asking = true;
    for (size_t i = from; i < m->rcpt_count; i++) {
        const struct postfix_rcpt r = read_rcpt_show(&m->rcpts[i]);
        struct queue_file_rcpt rcpt = {.n = r.n,
                                       .type = 'R',
                                       .offset = r.offset,
                                       .address = address_of(&m->rcpts[i]),
                                       .original = r.original,
                                       .dsn_original = r.dsn_original,
                                       .notify = r.notify};

        s->services->ask(s->services->context, m->id, &m->envelope, &rcpt);
    }
    m->asking = false;
}

/* Reads recipients from the cursor on. An error changes nothing. */
static int read_page(struct postfix_store *s, struct store_message *m, size_t count)
{
    const struct queue_file_cursor from = m->behind;
    const size_t before = m->rcpt_count;
    struct queue_file_reader r;
    uint32_t got, passed_over;
    struct stat st;
    int fd, err = queue_dir_open_file(&s->dir, QUEUE_DIR_ACTIVE, slice_string(m->name), 0, &fd);

    if (err != 0) {
        return err;
    }
    if (fstat(fd, &st) != 0) {
        err = -errno;
        goto out;
    }
    queue_file_resume(&r,
                      (struct queue_file_source){
                          .read = queue_file_read_fd, .context = &fd, .size = (uint64_t)st.st_size},
                      &m->envelope, from);
    err = read_on(s, m, &r, count, false, &passed_over);
    got = (uint32_t)(m->rcpt_count - before);
    if (err != 0) {
        for (; m->rcpt_count > before; m->rcpt_count--) {
            rcpt_fini(s, &m->rcpts[m->rcpt_count - 1]);
        }
        m->unrouted -= got;
        m->behind = from;
        if (err == -EBADMSG) {
            store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: message rejected: %s", m->name, r.problem);
        }
    } else {
        m->unread -= got < m->unread ? got : m->unread;
        if (r.ended == QUEUE_FILE_READ_END) { /* recipients were marked or cancelled meanwhile */
            m->pending -= m->unread;
            m->unread = 0;
        }
    }
    queue_file_fini(&r);
out:
    (void)s->dir.io->close(fd); /* opened for reading */
    return err;
}

void read_more(struct postfix_store *s, struct store_message *m, size_t count)
{
    size_t before;
    int err;

    drop_out(m);
    before = m->rcpt_count;
    err = read_page(s, m, count < STORE_READ_MAX ? count : STORE_READ_MAX);
    if (err == 0) {
        ask_where(s, m, before);
        return;
    }
    m->unreadable = true;
    m->damaged = err == -EBADMSG;
    if (!m->damaged) {
        store_tell(s, SPOOL_EVENT_WARNING, 0, "%s: its recipients can't be read: %s", m->name,
                   strerror(-err));
    }
}

/* ---- where they go -------------------------------------------------------------------------- */

void read_routes(struct postfix_store *s, struct store_message *m)
{
    m->ready = s->now;
    ask_where(s, m, 0);
    if (m->unrouted == 0) {
        store_ready(s);
    }
}

static void set_route(struct store_rcpt *r, const struct postfix_route *route)
{
    const bool is_recipient = slice_equal(route->recipient, address_of(r));
    char *at = mem_new(route->transport.len + route->nexthop.len +
                       (is_recipient ? 0 : route->recipient.len));
    char *old = r->route; /* the new values may point into it */

    r->route = at;
    r->is_recipient = is_recipient;
    r->transport_len = keep(&at, route->transport);
    r->nexthop_len = keep(&at, route->nexthop);
    r->recipient_len = is_recipient ? 0 : keep(&at, route->recipient);
    r->state = STORE_RCPT_ROUTED;
    mem_free(old);
}

void read_set_route(const struct store_message *m, uint32_t n, struct slice transport,
                    struct slice nexthop)
{
    struct store_rcpt *r = read_rcpt_find(m, n);

    if (r != NULL && r->state == STORE_RCPT_ROUTED) {
        set_route(r, &(struct postfix_route){.recipient = read_rcpt_show(r).recipient,
                                             .transport = transport,
                                             .nexthop = nexthop});
    }
}

static void discard(struct postfix_store *s, const struct store_message *m,
                    const struct store_rcpt *r)
{
    struct queue_file_mark mark = queue_file_mark_done(r->offset);
    int err = queue_dir_mark(&s->dir, QUEUE_DIR_ACTIVE, slice_string(m->name), &mark);

    if (err != 0) {
        store_tell(s, SPOOL_EVENT_WARNING, 0,
                   "%s: the recipient at offset %llu can't be marked: %s", m->name,
                   (unsigned long long)r->offset, strerror(-err));
    }
}

void postfix_routed(struct spool *sp, struct msg_id id, uint32_t n,
                    const struct postfix_route *route)
{
    struct postfix_store *s = store_of(sp);
    struct store_message *m = store_find(s, id);
    struct store_rcpt *r = m != NULL ? read_rcpt_find(m, n) : NULL;

    if (r == NULL || r->state != STORE_RCPT_ASKED) {
        return;
    }
    switch (route->disposal) {
    case POSTFIX_DELIVER:
        set_route(r, route);
        break;
    case POSTFIX_DISCARD:
        discard(s, m, r);
        m->pending--;
        read_rcpt_out(s, m, r);
        break;
    case POSTFIX_SKIP:
        m->pending--;
        read_rcpt_out(s, m, r);
        break;
    }
    m->unrouted--;
    if (m->unrouted == 0 && !m->asking) {
        if (m->state == STORE_ROUTING) {
            store_ready(s);
        }
        store_at_hand(s, m);
    }
}

/* ---- for lists ------------------------------------------------------------------------------ */

static struct slice shown_text(struct postfix_store *s, struct slice text, size_t max)
{
    return text_pool_add(&s->pool, slice_of(text.ptr, text.len < max ? text.len : max));
}

/* Fills in the results that agents have logged; the newest entry in defer/ID is used. An entry
 * names its recipient by the offset of its record; entries are mostly in that order. */
static void put_deferrals(struct postfix_store *s, struct slice log, const uint64_t *offsets,
                          size_t count, struct spool_rcpt *rcpts)
{
    struct status_log_entry e;
    size_t at = 0;

    while (status_log_next(&log, &e)) {
        for (size_t i = 0; i < count; i++, at = (at + 1) % count) {
            if (offsets[at] == e.offset) {
                rcpts[at].status = shown_text(s, e.status, SPOOL_STATUS_MAX);
                rcpts[at].diagnostic = shown_text(s, e.reason, SPOOL_DIAGNOSTIC_MAX);
                rcpts[at].reply = shown_text(s, e.diag_text, SPOOL_REPLY_MAX);
                rcpts[at].remote = shown_text(s, e.mta_mname, SPOOL_REMOTE_MAX);
                break;
            }
        }
    }
}

size_t read_listed(struct postfix_store *s, struct slice name, struct queue_file_reader *r,
                   uint32_t after, size_t max, struct spool_rcpt *ret_rcpts)
{
    struct queue_file_rcpt rcpt;
    uint64_t *offsets = mem_array(max, sizeof *offsets);
    size_t count = 0;
    struct buf log;

    text_pool_clear(&s->pool);
    while (count < max && queue_file_next(r, &rcpt) == QUEUE_FILE_READ_ITEM) {
        if (rcpt.type == 'R' && rcpt.n > after) {
            offsets[count] = rcpt.offset;
            ret_rcpts[count++] = (struct spool_rcpt){
                .n = rcpt.n,
                .address = text_pool_add(&s->pool, rcpt.address),
                .orcpt = text_pool_add(&s->pool, rcpt.dsn_original),
                .notify = rcpt.notify,
                .state = SPOOL_RCPT_PENDING,
                .route_generation = SPOOL_ROUTE_FIXED,
            };
        }
    }
    buf_init(&log, POSTFIX_LOG_MAX);
    if (count > 0) {
        store_read_log(s, QUEUE_DIR_DEFER, name, &log);
        put_deferrals(s, buf_slice(&log), offsets, count, ret_rcpts);
    }
    buf_fini(&log);
    mem_free(offsets);
    return count;
}

int read_active(struct postfix_store *s, const struct store_message *m, uint32_t after, size_t max,
                struct spool_rcpt *ret_rcpts, size_t *ret_count)
{
    struct queue_file_reader r;
    struct stat st;
    int fd, err = queue_dir_open_file(&s->dir, QUEUE_DIR_ACTIVE, slice_string(m->name), 0, &fd);

    if (err == 0 && fstat(fd, &st) != 0) {
        err = -errno;
        (void)s->dir.io->close(fd); /* nothing was written */
    }
    if (err != 0) {
        return spool_fail(&s->base, err, "%s: %s", m->name, strerror(-err));
    }
    queue_file_init(&r, (struct queue_file_source){.read = queue_file_read_fd,
                                                   .context = &fd,
                                                   .size = (uint64_t)st.st_size});
    *ret_count = read_listed(s, slice_string(m->name), &r, after, max, ret_rcpts);
    for (size_t i = 0; i < *ret_count; i++) {
        const struct store_rcpt *known = read_rcpt_find(m, ret_rcpts[i].n);

        if (known != NULL && known->state == STORE_RCPT_ROUTED) {
            const struct postfix_rcpt shown = read_rcpt_show(known);

            ret_rcpts[i].address = shown.recipient;
            ret_rcpts[i].transport = shown.transport;
            ret_rcpts[i].nexthop = shown.nexthop;
        }
    }
    queue_file_fini(&r);
    (void)s->dir.io->close(fd); /* opened for reading */
    return 0;
}

/* ---- content -------------------------------------------------------------------------------- */

static int write_out(const struct spool_io *io, int fd, struct buf *chunk, uint64_t *size)
{
    struct slice bytes = buf_slice(chunk);
    int err = spool_io_write_all(io, fd, bytes.ptr, bytes.len);

    *size += bytes.len;
    buf_clear(chunk);
    return err;
}

static int copy_content(struct postfix_store *s, struct queue_file_reader *r, int to,
                        uint64_t *ret_size)
{
    enum queue_file_read got;
    struct slice piece;
    struct buf chunk;
    uint64_t size = 0;
    bool ends = false;
    int err = 0;

    buf_init(&chunk, CONTENT_CHUNK + QUEUE_FILE_RECORD_MAX + 2);
    while (err == 0 && (got = queue_file_content_next(r, &piece, &ends)) != QUEUE_FILE_READ_END) {
        if (got != QUEUE_FILE_READ_ITEM) {
            err = got == QUEUE_FILE_READ_CORRUPT
                      ? spool_fail(&s->base, -EBADMSG, "content: %s", r->problem)
                      : spool_fail(&s->base, r->error, "content: %s", strerror(-r->error));
            break;
        }
        (void)buf_add(&chunk, piece); /* there is room for the longest */
        if (ends) {
            (void)buf_add_string(&chunk, "\r\n");
        }
        if (buf_len(&chunk) >= CONTENT_CHUNK) {
            err = write_out(s->dir.io, to, &chunk, &size);
        }
    }
    if (err == 0) {
        err = write_out(s->dir.io, to, &chunk, &size);
    }
    *ret_size = size;
    buf_fini(&chunk);
    return err;
}

int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                 uint64_t *ret_size)
{
    struct postfix_store *s = store_of(sp);
    const struct store_message *m = store_find(s, id);
    const struct store_known *k = m == NULL ? known_find(s, id) : NULL;
    const char *name = m != NULL ? m->name : k != NULL ? k->name : "";
    struct queue_file_reader r;
    uint64_t size = 0;
    struct stat st;
    int fd, to, err;

    (void)ret_bytes;
    if (m == NULL && k == NULL) {
        return spool_fail(sp, -ENOENT, "no such message");
    }
    err = m != NULL ? queue_dir_open_file(&s->dir, QUEUE_DIR_ACTIVE, slice_string(name), 0, &fd)
                    : known_open(s, k, &fd);
    if (err != 0) {
        return spool_fail(sp, err, "%s: %s", name, strerror(-err));
    }
    to = memfd_create("content", MFD_CLOEXEC);
    if (to < 0 || fstat(fd, &st) != 0) {
        err = spool_fail(sp, -errno, "%s: %s", name, strerror(errno));
    } else {
        queue_file_content_init(&r,
                                (struct queue_file_source){.read = queue_file_read_fd,
                                                           .context = &fd,
                                                           .size = (uint64_t)st.st_size},
                                m != NULL ? &m->envelope : &s->shown);
        err = copy_content(s, &r, to, &size);
        queue_file_fini(&r);
    }
    (void)s->dir.io->close(fd); /* opened for reading */
    if (err != 0) {
        if (to >= 0) {
            (void)close(to); /* it is memory */
        }
        return err;
    }
    *ret_fd = to;
    *ret_size = size;
    return 0;
}
