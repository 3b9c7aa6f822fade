/*
 * Moves mail from a spool into Postfix's queue directory.
 *
 * A batch has at most BATCH_MESSAGES messages. Each of its messages is:
 *
 *     written to sluice-export/ID.QUEUE, mode 0600, with its logs of bounce(8) in files next to it
 *       | synced; then removed from the spool, in one commit for the batch
 *       v
 *     given the queue id that Postfix would have made for its file, its mode and its time
 *       | renamed: sluice-export/ID.deferred -> deferred/4/4A1..
 *       v
 *     in Postfix's queue
 *
 * After a crash, a file in sluice-export is complete if the spool no longer has its message: the
 * next run renames it. If the spool still has the message, the file is a copy, which the next run
 * removes. So each message is written once, whenever the power fails.
 *
 * A message that has no form in Postfix (quarantined, damaged, with recipients that rules have sent
 * different ways) is reported, and stays in the spool.
 */
#include "export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "conf.h"
#include "file_writer.h"
#include "mem.h"
#include "mover.h"
#include "spool_search.h"
#include "status_log.h"
#include "xtext.h"

#define STAGE          "sluice-export"
#define BATCH_MESSAGES 200
#define BATCH_BYTES    ((uint64_t)64 << 20)
#define RCPTS_AT_ONCE  200
#define TEXT_BYTES     ((size_t)1 << 20)
#define LOG_FLUSH      ((size_t)1 << 16)
#define LOG_BYTES      (LOG_FLUSH + 16384)
#define CONTENT_CHUNK  ((size_t)1 << 16)
#define MARK_MAX_BYTES 8192

enum log_kind { LOG_BOUNCE, LOG_DEFER, LOG_TRACE, LOGS };

static const enum queue_dir_name log_dirs[LOGS] = {QUEUE_DIR_BOUNCE, QUEUE_DIR_DEFER,
                                                   QUEUE_DIR_TRACE};

/* One message that is being moved. */
struct out {
    struct spool_message m; /* its texts are owned copies */
    char id[SPOOL_ID_TEXT_MAX];
    enum queue_dir_name which;
    struct slice filter; /* owned; TRANSPORT:NEXTHOP if a rule has set it */
    bool filters_differ;
    uint64_t rcpts, reports;
    struct log_out {
        int fd; /* owned; -1 = the log has no entry yet */
        struct buf bytes;
    } logs[LOGS];
};

struct export
{
    struct mover m;
    struct msg_id *ids; /* owned; staged messages of this batch */
    size_t count, size;
    uint64_t bytes;
    struct spool_moved batch;
};

static char *copy_text(struct slice s)
{
    return mem_copy(s.ptr, s.len);
}

/* ---- recipients and logs -------------------------------------------------------------------- */

/* Appends an address as Postfix stores it: without the quotes that SMTP needs. */
static void put_internal(struct slice stored, struct buf *out)
{
    struct address a = address_split(stored);
    size_t before = buf_len(out);

    if (!address_unquote_local(a.local, out)) {
        buf_truncate(out, before);
        (void)buf_add(out, stored); /* errors are sticky */
        return;
    }
    if (a.domain.len > 0) {
        (void)buf_addf(out, "@%.*s", SLICE_ARGS(a.domain));
    }
}

/* Appends an ORCPT "rfc822;xtext" in decoded form; nothing if there is none. */
static void put_orcpt(struct slice orcpt, struct buf *out)
{
    size_t at = slice_find(orcpt, ';');
    struct buf plain;

    if (at == orcpt.len) {
        return;
    }
    buf_init(&plain, TEXT_BYTES);
    if (xtext_decode(slice_skip(orcpt, at + 1), &plain) &&
        memchr(buf_slice(&plain).ptr, '\0', buf_len(&plain)) == NULL) {
        (void)buf_add(out, slice_of(orcpt.ptr, at + 1)); /* errors are sticky */
        (void)buf_add(out, buf_slice(&plain));
    } else {
        (void)buf_add(out, orcpt);
    }
    buf_fini(&plain);
}

static int log_flush(struct export *ex, struct log_out *log)
{
    struct slice bytes = buf_slice(&log->bytes);
    int err = spool_io_write_all(ex->m.io, log->fd, bytes.ptr, bytes.len);

    buf_clear(&log->bytes);
    return err == 0 ? 0 : mover_fail(&ex->m, err, "write a log: %s", strerror(-err));
}

static int log_put(struct export *ex, struct out *o, enum log_kind kind,
                   const struct status_log_entry *e)
{
    struct log_out *log = &o->logs[kind];
    char path[MOVER_PATH_MAX];
    int err = 0;

    if (log->fd < 0) {
        stage_path(&ex->m, o->id, queue_dir_word(log_dirs[kind]), path);
        err = mover_create(&ex->m, path, &log->fd);
        if (err != 0) {
            log->fd = -1;
            return err;
        }
        buf_init(&log->bytes, LOG_BYTES);
    }
    status_log_put(&log->bytes, e);
    return buf_len(&log->bytes) >= LOG_FLUSH ? log_flush(ex, log) : 0;
}

static const char *action_of(enum spool_rcpt_state state)
{
    switch (state) {
    case SPOOL_RCPT_PENDING:
        return "delayed";
    case SPOOL_RCPT_FAILED:
        return "failed";
    case SPOOL_RCPT_DELIVERED:
        return "delivered";
    case SPOOL_RCPT_RELAYED:
        return "relayed";
    }
    UNREACHABLE("the spool checks its states");
}

static int log_rcpt(struct export *ex, struct out *o, const struct spool_rcpt *r,
                    struct slice address, struct slice orcpt, uint64_t at)
{
    bool by_site = r->reply.len > 0;
    struct status_log_entry e = {
        .recipient = address,
        .original = address,
        .dsn_original = orcpt,
        .offset = at,
        .notify = r->notify,
        .status = r->status,
        .action = slice_string(action_of(r->state)),
        .diag_type = by_site ? SLICE("smtp") : SLICE(""),
        .diag_text = r->reply,
        .mta_type = r->remote.len > 0 ? SLICE("dns") : SLICE(""),
        .mta_mname = slice_of(r->remote.ptr, slice_find(r->remote, '[')),
        .reason = r->diagnostic.len > 0 ? r->diagnostic : r->reply,
    };

    if (e.status.len == 0) {
        e.status = r->state == SPOOL_RCPT_PENDING  ? SLICE("4.0.0")
                   : r->state == SPOOL_RCPT_FAILED ? SLICE("5.0.0")
                                                   : SLICE("2.0.0");
    }
    if (e.reason.len == 0) {
        e.reason = r->state == SPOOL_RCPT_FAILED ? SLICE("delivery failed") : SLICE("delivered");
    }
    switch (r->state) {
    case SPOOL_RCPT_PENDING:
        return r->diagnostic.len + r->reply.len > 0 ? log_put(ex, o, LOG_DEFER, &e) : 0;
    case SPOOL_RCPT_FAILED:
        return log_put(ex, o, LOG_BOUNCE, &e);
    case SPOOL_RCPT_DELIVERED:
    case SPOOL_RCPT_RELAYED:
        return log_put(ex, o, LOG_TRACE, &e);
    }
    UNREACHABLE("the spool checks its states");
}

static int put_rcpt(struct export *ex, struct out *o, struct file_writer *w,
                    const struct spool_rcpt *r)
{
    bool waits = r->state == SPOOL_RCPT_PENDING;
    struct buf address, orcpt;
    uint64_t at;
    int err = 0;

    buf_init(&address, TEXT_BYTES);
    buf_init(&orcpt, TEXT_BYTES);
    put_internal(r->address, &address);
    put_orcpt(r->orcpt, &orcpt);
    at = file_writer_rcpt(w, buf_slice(&address), buf_slice(&orcpt), r->notify, !waits);
    err = log_rcpt(ex, o, r, buf_slice(&address), buf_slice(&orcpt), at);
    *(waits ? &o->rcpts : &o->reports) += 1;
    buf_fini(&address);
    buf_fini(&orcpt);
    return err;
}

/* Reads all recipients page by page, and calls `with` for each. */
static int each_rcpt(struct export *ex, struct out *o, struct file_writer *w,
                     int (*with)(struct export *ex, struct out *o, struct file_writer *w,
                                 const struct spool_rcpt *r))
{
    struct spool_rcpt page[RCPTS_AT_ONCE];
    size_t count = RCPTS_AT_ONCE;
    uint32_t after = 0;

    while (count == RCPTS_AT_ONCE) {
        int err =
            spool_read_rcpts(ex->m.move->spool, o->m.id, after, false, RCPTS_AT_ONCE, page, &count);

        if (err != 0) {
            return mover_fail(&ex->m, err, "%s", spool_error(ex->m.move->spool));
        }
        for (size_t i = 0; i < count; i++) {
            err = with(ex, o, w, &page[i]);
            if (err != 0) {
                return err;
            }
            after = page[i].n;
        }
    }
    return 0;
}

/* Records the route of a recipient if a rule has set it. */
static int look_at_route(struct export *ex, struct out *o, struct file_writer *w,
                         const struct spool_rcpt *r)
{
    struct buf target;

    (void)ex;
    (void)w;
    if (r->state != SPOOL_RCPT_PENDING) {
        return 0;
    }
    buf_init(&target, TEXT_BYTES);
    if (r->route_generation == SPOOL_ROUTE_FIXED && r->transport.len > 0) {
        (void)buf_addf(&target, "%.*s:%.*s", SLICE_ARGS(r->transport), SLICE_ARGS(r->nexthop));
    }
    if (o->rcpts == 0) {
        o->filter = slice_of(copy_text(buf_slice(&target)), buf_len(&target));
    } else if (!slice_equal(o->filter, buf_slice(&target))) {
        o->filters_differ = true;
    }
    o->rcpts++;
    buf_fini(&target);
    return 0;
}

/* ---- the file ------------------------------------------------------------------------------- */

static void put_number(struct file_writer *w, const char *name, int64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%" PRId64, n); /* it fits */
    file_writer_attribute(w, name, slice_string(text));
}

/* Puts the attributes of a client "name[address]". */
static void put_client(struct file_writer *w, struct slice client)
{
    size_t open = slice_find_last(client, '[');

    if (open < client.len && client.ptr[client.len - 1] == ']') {
        file_writer_attribute(w, "log_client_name", slice_of(client.ptr, open));
        file_writer_attribute(w, "log_client_address",
                              slice_of(client.ptr + open + 1, client.len - open - 2));
    }
    file_writer_attribute(w, "log_message_origin", client);
}

static void put_warning(struct export *ex, struct file_writer *w, const struct spool_message *m)
{
    const struct conf *conf = ex->m.move->conf;
    int64_t delay = conf != NULL ? conf->delay_warning_time_us : 0;
    char text[32];

    if (m->warnings == 0 && delay <= 0) {
        return;
    }
    (void)snprintf(text, sizeof text, "%15" PRId64,
                   m->warnings > 0 ? -1 : us_seconds(wall_after(m->created, delay).us)); /* it
                                                                                          * fits */
    file_writer_put(w, 'W', slice_string(text));
}

static void put_envelope(struct export *ex, struct file_writer *w, const struct out *o)
{
    const struct spool_message *m = &o->m;
    struct buf text;
    char time[64];

    buf_init(&text, TEXT_BYTES);
    (void)snprintf(time, sizeof time, "%" PRId64 " %" PRId64, us_seconds(m->arrived.us),
                   m->arrived.us - us_seconds(m->arrived.us) * US_PER_S); /* it fits */
    file_writer_put(w, 'T', slice_string(time));
    put_number(w, "create_time", us_seconds(m->created.us));
    file_writer_attribute(w, "log_ident", slice_string(o->id));
    file_writer_attribute(w, "rewrite_context", SLICE("local"));
    if (m->envid.len > 0 && xtext_decode(m->envid, &text)) {
        file_writer_attribute(w, "envelope_id", buf_slice(&text));
    }
    if ((m->flags & (ENVELOPE_RET_FULL | ENVELOPE_RET_HDRS)) != 0) {
        put_number(w, "ret_flags", (m->flags & ENVELOPE_RET_FULL) != 0 ? 1 : 2);
    }
    if ((m->flags & ENVELOPE_TRACE) != 0) {
        put_number(w, "trace_flags", QUEUE_FILE_TRACE_RECORD);
    }
    if (o->filter.len > 0) {
        file_writer_put(w, 'L', o->filter);
    }
    buf_clear(&text);
    put_internal(m->sender, &text);
    file_writer_put(w, 'S', buf_slice(&text));
    file_writer_attribute(w, "encoding",
                          (m->flags & ENVELOPE_8BIT) != 0 ? SLICE("8bit") : SLICE("7bit"));
    if (m->client.len > 0) {
        put_client(w, m->client);
    }
    put_warning(ex, w, m);
    buf_fini(&text);
}

/* State of a search for non-ASCII bytes in the header. */
struct header_look {
    bool in_header, line_begins, utf8;
};

static void look_at_header(struct header_look *look, struct slice wire)
{
    for (size_t i = 0; look->in_header && i < wire.len; i++) {
        char c = wire.ptr[i];

        if (c == '\n') {
            look->in_header = !look->line_begins;
            look->line_begins = true;
        } else if (c != '\r') {
            look->line_begins = false;
            look->utf8 = look->utf8 || ((unsigned char)c & 0x80u) != 0;
        }
    }
}

static int put_content(struct export *ex, struct out *o, struct file_writer *w,
                       struct header_look *look)
{
    struct spool *sp = ex->m.move->spool;
    char chunk[CONTENT_CHUNK];
    uint64_t size, at = 0;
    struct buf bytes;
    int fd = -1, err;

    buf_init(&bytes, SPOOL_INLINE_MAX);
    err = spool_read_content(sp, o->m.id, &bytes, &fd, &size);
    if (err != 0) {
        (void)mover_fail(&ex->m, err, "%s", spool_error(sp));
    } else if (fd < 0) {
        look_at_header(look, buf_slice(&bytes));
        file_writer_feed(w, buf_slice(&bytes));
    }
    while (err == 0 && fd >= 0 && at < size && w->error == 0) {
        ssize_t n = ex->m.io->pread(fd, chunk, sizeof chunk, at);

        if (n <= 0) {
            err = mover_fail(&ex->m, n < 0 ? (int)n : -EBADMSG, "its content can't be read");
            break;
        }
        look_at_header(look, slice_of(chunk, (size_t)n));
        file_writer_feed(w, slice_of(chunk, (size_t)n));
        at += (uint64_t)n;
    }
    if (fd >= 0) {
        (void)close(fd); /* opened for reading */
    }
    buf_fini(&bytes);
    return err;
}

static int set_time(struct export *ex, const char *path, const struct out *o)
{
    struct timespec both[2] = {{.tv_sec = (time_t)us_seconds(o->m.due.us)}, {0}};
    int err;

    both[1] = both[0];
    err = ex->m.io->utimensat(ex->m.fd, path, both, AT_SYMLINK_NOFOLLOW);
    return err == 0 ? 0 : mover_fail(&ex->m, err, "%s: %s", path, strerror(-err));
}

static int write_file(struct export *ex, struct out *o, const char *path)
{
    struct header_look look = {.in_header = true, .line_begins = true};
    struct file_writer w;
    unsigned sendopts = 0;
    int fd, err = mover_create(&ex->m, path, &fd);

    if (err != 0) {
        return err;
    }
    file_writer_begin(&w, ex->m.io, fd);
    put_envelope(ex, &w, o);
    o->rcpts = o->reports = 0;
    err = each_rcpt(ex, o, &w, put_rcpt);
    for (size_t i = 0; i < LOGS && err == 0; i++) {
        err = o->logs[i].fd >= 0 ? log_flush(ex, &o->logs[i]) : 0;
    }
    if (err == 0) {
        file_writer_content(&w);
        err = put_content(ex, o, &w, &look);
    }
    if (err == 0) {
        if ((o->m.flags & ENVELOPE_SMTPUTF8) != 0) {
            sendopts = 1u | (look.utf8 ? 2u : 0u) | (address_is_ascii(o->m.sender) ? 0u : 4u);
        }
        file_writer_end(&w, sendopts);
        err = w.error == 0 ? 0 : mover_fail(&ex->m, w.error, "%s: %s", path, strerror(-w.error));
    }
    file_writer_fini(&w);
    (void)ex->m.io->close(fd); /* synced with the whole batch */
    return err == 0 ? set_time(ex, path, o) : err;
}

/* ---- staged files --------------------------------------------------------------------------- */

/* Removes a staged message: its logs, then its file. */
static int unstage(struct export *ex, const char *id, const char *suffix)
{
    char path[MOVER_PATH_MAX];
    int err = 0;

    for (size_t i = 0; err == 0 && i < LOGS; i++) {
        stage_path(&ex->m, id, queue_dir_word(log_dirs[i]), path);
        err = mover_remove(&ex->m, path);
    }
    if (err == 0) {
        stage_path(&ex->m, id, suffix, path);
        err = mover_remove(&ex->m, path);
    }
    return err;
}

/* Builds the queue id that Postfix would have made for the file: microseconds and inode. */
static void queue_id_of(struct msg_id id, const struct stat *st, char ret[QUEUE_ID_MAX + 1])
{
    (void)snprintf(ret, QUEUE_ID_MAX + 1, "%05X%lX", (unsigned)(id.n % (uint64_t)US_PER_S),
                   (unsigned long)st->st_ino); /* it fits */
}

/* Renames a message into Postfix's queue: first its logs, so that the message is never there
 * without them. */
static int publish(struct export *ex, struct msg_id id, enum queue_dir_name which)
{
    char text[SPOOL_ID_TEXT_MAX], path[MOVER_PATH_MAX], log[MOVER_PATH_MAX];
    char queue_id[QUEUE_ID_MAX + 1];
    struct stat st;
    int fd, err = 0;

    spool_id_print(id, text);
    stage_path(&ex->m, text, queue_dir_word(which), path);
    fd = openat(ex->m.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = mover_fail(&ex->m, -errno, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            (void)close(fd); /* nothing was written */
        }
        return err;
    }
    queue_id_of(id, &st, queue_id);
    for (size_t i = 0; err == 0 && i < LOGS; i++) {
        stage_path(&ex->m, text, queue_dir_word(log_dirs[i]), log);
        if (faccessat(ex->m.fd, log, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            err = mover_place(&ex->m, log, log_dirs[i], slice_string(queue_id));
        }
    }
    if (err == 0) {
        /* the group's bit marks a message that must expire, here as in Postfix */
        int chmod_err = ex->m.io->fchmod(fd, (st.st_mode & 0010) != 0 ? 0710 : 0700);

        err = chmod_err == 0 ? 0
                             : mover_fail(&ex->m, chmod_err, "%s: %s", path, strerror(-chmod_err));
    }
    if (err == 0) {
        err = mover_place(&ex->m, path, which, slice_string(queue_id));
    }
    (void)close(fd); /* nothing was written */
    return err;
}

/* ---- one message ---------------------------------------------------------------------------- */

static void out_fini(struct out *o)
{
    mem_free((char *)(uintptr_t)o->m.sender.ptr);
    mem_free((char *)(uintptr_t)o->m.envid.ptr);
    mem_free((char *)(uintptr_t)o->m.client.ptr);
    mem_free((char *)(uintptr_t)o->filter.ptr);
    for (size_t i = 0; i < LOGS; i++) {
        if (o->logs[i].fd >= 0) {
            (void)close(o->logs[i].fd); /* synced with the whole batch */
            buf_fini(&o->logs[i].bytes);
        }
    }
}

static void out_init(struct export *ex, const struct spool_message *m, struct out *o)
{
    bool waits = m->state == SPOOL_DEFERRED || m->due.us > ex->m.move->now.us;

    *o = (struct out){.m = *m};
    o->m.sender.ptr = copy_text(m->sender);
    o->m.envid.ptr = copy_text(m->envid);
    o->m.client.ptr = copy_text(m->client);
    o->which = m->state == SPOOL_HOLD ? QUEUE_DIR_HOLD
               : waits                ? QUEUE_DIR_DEFERRED
                                      : QUEUE_DIR_INCOMING;
    spool_id_print(m->id, o->id);
    for (size_t i = 0; i < LOGS; i++) {
        o->logs[i].fd = -1;
    }
}

static int stage_message(struct export *ex, struct out *o)
{
    char path[MOVER_PATH_MAX];
    int err;

    stage_path(&ex->m, o->id, queue_dir_word(o->which), path);
    err = write_file(ex, o, path);
    if (err == 0 && o->m.force_expire) {
        int fd = openat(ex->m.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 || fchmod(fd, 0610) != 0) {
            err = mover_fail(&ex->m, -errno, "%s: %s", path, strerror(errno));
        }
        if (fd >= 0) {
            (void)close(fd); /* nothing was written */
        }
    }
    return err;
}

static bool is_of_message(int err)
{
    return err == -EBADMSG;
}

static void count_one(const struct out *o, struct spool_moved *counts)
{
    *(o->which == QUEUE_DIR_HOLD       ? &counts->hold
      : o->which == QUEUE_DIR_DEFERRED ? &counts->deferred
                                       : &counts->incoming) += 1;
    counts->rcpts += o->rcpts;
    counts->reports += o->reports;
}

static int export_one(struct export *ex, struct out *o)
{
    struct spool *sp = ex->m.move->spool;
    int err = each_rcpt(ex, o, NULL, look_at_route);

    if (err == 0 && o->filters_differ) {
        mover_leave(&ex->m, "%s is left: rules send its recipients different ways", o->id);
        return 0;
    }
    if (err == 0 && ex->m.move->dry_run) {
        o->reports = o->m.rcpt_to_report;
        count_one(o, ex->m.moved);
        return 0;
    }
    if (err == 0) {
        err = stage_message(ex, o);
    }
    if (err == 0) {
        err = spool_remove(sp, o->m.id);
        if (err != 0) {
            (void)mover_fail(&ex->m, err, "%s", spool_error(sp));
        }
    }
    if (err != 0) {
        if (!ex->m.move->dry_run && unstage(ex, o->id, queue_dir_word(o->which)) != 0) {
            return err;
        }
        if (is_of_message(err)) {
            mover_leave(&ex->m, "%s is left: %s", o->id,
                        ex->m.error->failed ? "damaged" : buf_cstr(ex->m.error));
            buf_clear(ex->m.error);
            return 0;
        }
        return err;
    }
    ex->ids = mem_grow(ex->ids, ex->count, &ex->size, sizeof *ex->ids);
    ex->ids[ex->count++] = o->m.id;
    ex->bytes += o->m.size;
    count_one(o, &ex->batch);
    return 0;
}

/* ---- the batch ------------------------------------------------------------------------------ */

static int each_staged(struct export *ex, struct msg_id only,
                       int (*with)(struct export *ex, struct msg_id id, enum queue_dir_name which))
{
    static const enum queue_dir_name queues[] = {QUEUE_DIR_INCOMING, QUEUE_DIR_DEFERRED,
                                                 QUEUE_DIR_HOLD};
    char text[SPOOL_ID_TEXT_MAX], path[MOVER_PATH_MAX];

    spool_id_print(only, text);
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        stage_path(&ex->m, text, queue_dir_word(queues[i]), path);
        if (faccessat(ex->m.fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            return with(ex, only, queues[i]);
        }
    }
    return 0;
}

static int unstage_one(struct export *ex, struct msg_id id, enum queue_dir_name which)
{
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    return unstage(ex, text, queue_dir_word(which));
}

static int batch_undo(struct export *ex, int why)
{
    struct buf words;
    int err = 0;

    buf_init(&words, MARK_MAX_BYTES);
    (void)buf_add(&words, buf_slice(ex->m.error)); /* may be cut */
    (void)spool_commit(ex->m.move->spool);         /* undoes the batch, which has failed */
    for (size_t i = 0; err == 0 && i < ex->count; i++) {
        struct spool_message m;

        if (spool_read(ex->m.move->spool, ex->ids[i], &m) != -ENOENT) {
            err = each_staged(ex, ex->ids[i], unstage_one);
        }
    }
    (void)mover_fail(&ex->m, why, "%.*s", SLICE_ARGS(buf_slice(&words)));
    buf_fini(&words);
    ex->count = 0;
    return why;
}

static int batch_end(struct export *ex)
{
    struct spool_moved *all = ex->m.moved;
    int err;

    if (ex->count == 0) {
        return 0;
    }
    err = mover_sync(&ex->m);
    if (err == 0) {
        err = spool_commit(ex->m.move->spool);
        if (err != 0) {
            (void)mover_fail(&ex->m, err, "%s", spool_error(ex->m.move->spool));
        }
    }
    if (err != 0) {
        return batch_undo(ex, err);
    }
    for (size_t i = 0; err == 0 && i < ex->count; i++) {
        err = each_staged(ex, ex->ids[i], publish);
    }
    all->incoming += ex->batch.incoming;
    all->deferred += ex->batch.deferred;
    all->hold += ex->batch.hold;
    all->rcpts += ex->batch.rcpts;
    all->reports += ex->batch.reports;
    ex->batch = (struct spool_moved){0};
    ex->count = 0;
    ex->bytes = 0;
    return err;
}

/* ---- what another run began ----------------------------------------------------------------- */

/* Parses "ID.deferred"; false for the names of logs. */
static bool parse_staged(const char *name, struct msg_id *ret_id)
{
    struct slice rest = slice_string(name), text = slice_cut(&rest, '.');

    return rest.ptr != NULL && spool_id_parse(text, ret_id) &&
           (slice_equal(rest, SLICE("incoming")) || slice_equal(rest, SLICE("deferred")) ||
            slice_equal(rest, SLICE("hold")));
}

static int finish_one(struct export *ex, const char *name)
{
    struct spool_message m;
    struct msg_id id;
    int err;

    if (!parse_staged(name, &id)) {
        return 0;
    }
    err = spool_read(ex->m.move->spool, id, &m);
    if (err == -ENOENT) {
        err = each_staged(ex, id, publish);
        ex->m.moved->finished += err == 0 ? 1 : 0;
        return err;
    }
    if (err != 0 && err != -EBADMSG) {
        return mover_fail(&ex->m, err, "%s", spool_error(ex->m.move->spool));
    }
    return each_staged(ex, id, unstage_one);
}

/* Removes logs whose message was not written. */
static int remove_rest(struct export *ex)
{
    char path[MOVER_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    int err = stage_list(&ex->m, &names, &count);

    for (size_t i = 0; err == 0 && i < count; i++) {
        struct slice rest = slice_string(names[i]), text = slice_cut(&rest, '.');
        struct msg_id id;

        if (spool_id_parse(text, &id)) {
            stage_path(&ex->m, names[i], NULL, path);
            err = mover_remove(&ex->m, path);
        }
    }
    stage_free(names, count);
    return err;
}

static int finish_before(struct export *ex)
{
    struct slice url, rest;
    char **names = NULL;
    size_t count = 0;
    struct buf text;
    int err;

    buf_init(&text, MARK_MAX_BYTES);
    err = stage_mark_read(&ex->m, &text);
    if (err == -ENOENT) {
        err = 0;
    }
    rest = buf_slice(&text);
    url = slice_cut(&rest, '\n');
    if (err == 0 && url.len > 0 && !slice_equal(url, slice_string(ex->m.move->url))) {
        err = mover_fail(&ex->m, -EEXIST,
                         "a move out of %.*s was interrupted here: finish that first",
                         SLICE_ARGS(url));
    }
    if (err == 0) {
        err = stage_list(&ex->m, &names, &count);
    }
    if (err == 0 && ex->m.move->dry_run) {
        if (count > 0) {
            mover_tell(&ex->m,
                       "a move was interrupted: %zu files in " STAGE " would be brought to "
                       "their end first",
                       count);
        }
    } else {
        for (size_t i = 0; err == 0 && i < count; i++) {
            err = finish_one(ex, names[i]);
        }
        if (err == 0) {
            err = remove_rest(ex);
        }
    }
    stage_free(names, count);
    buf_fini(&text);
    return err;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int begin(struct export *ex)
{
    struct buf text;
    int err;

    if (ex->m.move->dry_run) {
        return 0;
    }
    buf_init(&text, MARK_MAX_BYTES);
    (void)buf_addf(&text, "%s\n", ex->m.move->url);
    err = text.failed
              ? mover_fail(&ex->m, -ENAMETOOLONG, "%s: the name is too long", ex->m.move->url)
              : stage_make(&ex->m);
    if (err == 0) {
        err = stage_mark_write(&ex->m, buf_slice(&text));
    }
    buf_fini(&text);
    return err;
}

static int export_id(struct export *ex, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];
    struct spool_message m;
    struct out o;
    int err = spool_read(ex->m.move->spool, id, &m);

    spool_id_print(id, text);
    if (err == -ENOENT) {
        return 0;
    }
    if (err == -EBADMSG || (err == 0 && m.state == SPOOL_CORRUPT)) {
        mover_leave(&ex->m, "%s is left: %s", text,
                    err == 0 ? "it is quarantined as corrupt" : spool_error(ex->m.move->spool));
        return 0;
    }
    if (err != 0) {
        return mover_fail(&ex->m, err, "%s", spool_error(ex->m.move->spool));
    }
    out_init(ex, &m, &o);
    err = export_one(ex, &o);
    out_fini(&o);
    return err;
}

static int export_all(struct export *ex)
{
    struct msg_id ids[BATCH_MESSAGES];
    struct spool_filter filter = {0};
    size_t count = BATCH_MESSAGES;
    int err = 0;

    while (err == 0 && count == BATCH_MESSAGES) {
        err = spool_scan(ex->m.move->spool, &filter, BATCH_MESSAGES, ids, &count);
        if (err != 0) {
            return mover_fail(&ex->m, err, "%s", spool_error(ex->m.move->spool));
        }
        for (size_t i = 0; err == 0 && i < count; i++) {
            err = export_id(ex, ids[i]);
            filter.after = ids[i];
            if (err == 0 && ex->bytes >= BATCH_BYTES) {
                err = batch_end(ex);
            }
        }
        if (err == 0) {
            err = batch_end(ex);
        }
    }
    return err != 0 && ex->count > 0 ? batch_undo(ex, err) : err;
}

int postfix_export(const struct spool_move *move, struct spool_moved *ret_moved,
                   struct buf *ret_error)
{
    struct export ex = {0};
    int err = mover_open(&ex.m, move, STAGE, ret_moved, ret_error);

    if (err != 0) {
        return err;
    }
    err = finish_before(&ex);
    if (err == 0) {
        err = begin(&ex);
    }
    if (err == 0) {
        err = export_all(&ex);
    }
    if (err == 0 && !move->dry_run) {
        err = stage_remove(&ex.m);
    }
    mem_free(ex.ids);
    mover_close(&ex.m);
    return err;
}
