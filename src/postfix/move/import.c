/*
 * Moves mail from Postfix's queue directory into a spool.
 *
 * A batch has at most BATCH_MESSAGES files. Each of its files is:
 *
 *     read to its end, submitted to the spool's open batch
 *       | renamed: deferred/4/4A1.. -> sluice-import/deferred.4A1..
 *       v
 *     synced with its name; a key of this batch joins the spool's batch, which is committed
 *       | the logs of bounce(8) and the file are removed
 *       v
 *     gone
 *
 * After a crash before the commit, files are in sluice-import, and the spool does not have the key
 * in `mark`: the next run puts the files back. After a crash later than the commit, the spool has
 * the key (even if it has delivered the messages meanwhile): the next run removes the files.
 *
 * A file that is not moved (damaged, still open in an agent, or with properties that a spool can't
 * store) is reported, and stays in place.
 */
#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "address.h"
#include "check.h"
#include "conf.h"
#include "entropy.h"
#include "mem.h"
#include "mover.h"
#include "queue_file.h"
#include "route.h"
#include "spool_keys.h"
#include "status_log.h"
#include "text_pool.h"
#include "xtext.h"

#define STAGE          "sluice-import"
#define BATCH_MESSAGES 200
#define BATCH_BYTES    ((uint64_t)64 << 20)
#define KEY_PREFIX     "import/postfix/"
#define KEY_RANDOM     32
#define KEY_MAX        (sizeof KEY_PREFIX + KEY_RANDOM)
#define KEY_KEPT_US    (INT64_C(400) * 86400 * US_PER_S)
#define RCPTS_MAX      1000000u
#define LOG_BYTES_MAX  ((size_t)256 << 20)
#define INLINE_CONTENT ((size_t)1 << 17)
#define SCAN_ENTRIES   1000
#define HELD_REASON    "held in Postfix"
#define MARK_MAX_BYTES 8192
#define TEXT_MAX_BYTES ((size_t)1 << 20)

/* ---- one message ---------------------------------------------------------------------------- */

/* Result of one recipient in the queue file or in the logs. */
struct taken_rcpt {
    uint64_t offset;
    bool settled; /* `verdict` must be settled after the submission */
    struct spool_verdict verdict;
};

/* A line of a log of bounce(8); sorted by the recipient's offset. */
struct log_line {
    struct status_log_entry entry;
    size_t order;
};

struct status {
    char *bytes; /* owned; entries point into it */
    struct log_line *lines;
    size_t count, size;
    struct wall written;
};

struct taken {
    enum queue_dir_name which;
    char name[QUEUE_ID_MAX + 1];
    char path[QUEUE_DIR_PATH_MAX];
    int fd; /* owned */
    struct queue_dir_file file;
    struct queue_file_envelope envelope; /* owned; valid if has_envelope */
    bool has_envelope;
    struct spool_rcpt *rcpts; /* owned; texts are in the pool */
    struct taken_rcpt *notes; /* owned; one for each recipient */
    size_t count, size, note_size;
    struct buf inlined; /* all of the content, or the part before `content_fd` */
    int content_fd;     /* owned; -1 = none */
    uint64_t content_size;
};

struct import {
    struct mover m;
    struct text_pool pool; /* texts of one message */
    char key[KEY_MAX];
    bool batch_open;
    struct msg_id first; /* first message of the batch */
    char **staged;       /* owned, with its texts; names in the stage, of this batch */
    size_t staged_count, staged_size;
    uint64_t batch_bytes;
    struct spool_moved batch; /* counts of the open batch */
};

static struct slice external(struct import *im, struct slice internal)
{
    struct buf out;
    struct slice kept;

    if (internal.len == 0) {
        return SLICE("");
    }
    buf_init(&out, 2 * QUEUE_FILE_RECORD_MAX + 2);
    address_put_external(internal, &out);
    kept = text_pool_add(&im->pool, buf_slice(&out));
    buf_fini(&out);
    return kept;
}

static struct slice xtext(struct import *im, struct slice type, struct slice plain)
{
    struct buf out;
    struct slice kept;

    buf_init(&out, 3 * QUEUE_FILE_RECORD_MAX + 64);
    (void)buf_add(&out, type); /* there is room for the longest */
    (void)xtext_encode(plain, &out);
    kept = text_pool_add(&im->pool, buf_slice(&out));
    buf_fini(&out);
    return kept;
}

/* Encodes an ORCPT "rfc822;address", which Postfix stores decoded and the spool as xtext. */
static struct slice orcpt_of(struct import *im, struct slice dsn_original)
{
    size_t at = slice_find(dsn_original, ';');

    return at == dsn_original.len
               ? SLICE("")
               : xtext(im, slice_of(dsn_original.ptr, at + 1), slice_skip(dsn_original, at + 1));
}

static void add_rcpt(struct import *im, struct taken *t, struct slice address, struct slice orcpt,
                     unsigned notify, uint64_t offset)
{
    t->rcpts = mem_grow(t->rcpts, t->count, &t->size, sizeof *t->rcpts);
    t->notes = mem_grow(t->notes, t->count, &t->note_size, sizeof *t->notes);
    t->rcpts[t->count] = (struct spool_rcpt){.address = external(im, address),
                                             .orcpt = orcpt_of(im, orcpt),
                                             .notify = notify,
                                             .state = SPOOL_RCPT_PENDING,
                                             .transport = SLICE(""),
                                             .nexthop = SLICE("")};
    t->notes[t->count] = (struct taken_rcpt){.offset = offset};
    t->count++;
}

/* ---- reading -------------------------------------------------------------------------------- */

static struct queue_file_source source_of(struct taken *t)
{
    return (struct queue_file_source){
        .read = queue_file_read_fd, .context = &t->fd, .size = t->file.size};
}

/* Sets *why if the file can't be read; false if it can. */
static bool read_problem(struct queue_file_reader *r, enum queue_file_read got, struct buf *why)
{
    if (got == QUEUE_FILE_READ_CORRUPT) {
        (void)buf_addf(why, "damaged: %s", r->problem);
        return true;
    }
    if (got == QUEUE_FILE_READ_FAILED) {
        (void)buf_addf(why, "can't be read: %s", strerror(-r->error));
        return true;
    }
    return false;
}

static bool read_envelope(struct import *im, struct taken *t, struct buf *why)
{
    struct queue_file_reader r;
    struct queue_file_rcpt rcpt;
    enum queue_file_read got;

    queue_file_init(&r, source_of(t));
    while ((got = queue_file_next(&r, &rcpt)) == QUEUE_FILE_READ_ITEM) {
        if (rcpt.type == 'R' && t->count == RCPTS_MAX) {
            (void)buf_addf(why, "it has more than %u recipients", RCPTS_MAX);
            queue_file_fini(&r);
            return false;
        }
        if (rcpt.type == 'R') {
            add_rcpt(im, t, rcpt.address, rcpt.dsn_original, rcpt.notify, rcpt.offset);
        }
    }
    if (!read_problem(&r, got, why)) {
        queue_file_take_envelope(&r, &t->envelope);
        t->has_envelope = true;
    }
    queue_file_fini(&r);
    return t->has_envelope;
}

static bool spill(struct import *im, struct taken *t, struct buf *chunk, struct buf *why)
{
    struct slice bytes = buf_slice(chunk);
    int err;

    if (t->content_fd < 0) {
        t->content_fd = memfd_create("content", MFD_CLOEXEC);
    }
    err = t->content_fd < 0 ? -errno
                            : spool_io_write_all(im->m.io, t->content_fd, bytes.ptr, bytes.len);
    if (err != 0) {
        (void)buf_addf(why, "no memory for its content: %s", strerror(-err));
        return false;
    }
    t->content_size += bytes.len;
    buf_clear(chunk);
    return true;
}

/* Reads the content in wire form: t->inlined is filled first, the rest goes to a memfd. */
static bool read_content(struct import *im, struct taken *t, struct buf *why)
{
    struct queue_file_reader r;
    enum queue_file_read got;
    struct slice piece;
    struct buf rest;
    bool ok = true, ends = false;

    buf_init(&rest, INLINE_CONTENT + QUEUE_FILE_RECORD_MAX + 2);
    queue_file_content_init(&r, source_of(t), &t->envelope);
    while (ok && (got = queue_file_content_next(&r, &piece, &ends)) == QUEUE_FILE_READ_ITEM) {
        struct buf *to =
            t->content_fd < 0 && buf_len(&t->inlined) < INLINE_CONTENT && buf_len(&rest) == 0
                ? &t->inlined
                : &rest;

        (void)buf_add(to, piece); /* there is room for the longest */
        if (ends) {
            (void)buf_add_string(to, "\r\n");
        }
        if (buf_len(&rest) >= INLINE_CONTENT) {
            ok = spill(im, t, &rest, why);
        }
    }
    ok = ok && !read_problem(&r, got, why) && (buf_len(&rest) == 0 || spill(im, t, &rest, why));
    queue_file_fini(&r);
    buf_fini(&rest);
    return ok;
}

/* ---- logs of bounce(8) ---------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct log_line *x = a, *y = b;

    return x->entry.offset != y->entry.offset ? (x->entry.offset < y->entry.offset ? -1 : 1)
                                              : (x->order < y->order ? -1 : x->order > y->order);
}

/* Reads a log, if there is one. Returns false if it can't be read. */
static bool status_read(struct import *im, const struct taken *t, enum queue_dir_name which,
                        struct status *ret, struct buf *why)
{
    char path[QUEUE_DIR_PATH_MAX];
    struct slice rest;
    struct stat st;
    int fd, err;

    *ret = (struct status){0};
    if (!mover_find_log(&im->m, which, slice_string(t->name), path)) {
        return true;
    }
    fd = openat(im->m.fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = -errno;
    } else if ((uint64_t)st.st_size > LOG_BYTES_MAX) {
        err = -EFBIG;
    } else {
        ret->bytes = mem_new((size_t)st.st_size + 1);
        ret->written.us = (int64_t)st.st_mtim.tv_sec * US_PER_S;
        err = spool_io_read_all(im->m.io, fd, ret->bytes, (size_t)st.st_size, 0);
    }
    if (fd >= 0) {
        (void)close(fd); /* opened for reading */
    }
    if (err != 0) {
        (void)buf_addf(why, "%s can't be read: %s", path, strerror(-err));
        mem_free(ret->bytes);
        *ret = (struct status){0};
        return false;
    }
    rest = slice_of(ret->bytes, (size_t)st.st_size);
    for (struct status_log_entry e; status_log_next(&rest, &e);) {
        ret->lines = mem_grow(ret->lines, ret->count, &ret->size, sizeof *ret->lines);
        ret->lines[ret->count] = (struct log_line){.entry = e, .order = ret->count};
        ret->count++;
    }
    if (ret->count > 0) {
        qsort(ret->lines, ret->count, sizeof *ret->lines, by_offset);
    }
    return true;
}

static void status_fini(struct status *s)
{
    mem_free(s->bytes);
    mem_free(s->lines);
    *s = (struct status){0};
}

/* Returns the last entry of the recipient at `offset`; NULL if there is none. */
static const struct status_log_entry *status_of(const struct status *s, uint64_t offset)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->lines[middle].entry.offset <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && s->lines[low - 1].entry.offset == offset ? &s->lines[low - 1].entry : NULL;
}

static struct slice keep(struct import *im, struct slice text)
{
    return text.len > 0 ? text_pool_add(&im->pool, text) : SLICE("");
}

static struct spool_verdict verdict_of(struct import *im, const struct status_log_entry *e,
                                       enum spool_rcpt_state state, struct wall when)
{
    return (struct spool_verdict){
        .state = state,
        .attempted = true,
        .status = keep(im, e->status),
        .diagnostic = keep(im, e->reason),
        .reply = keep(im, slice_equal(e->diag_type, SLICE("smtp")) ? e->diag_text : SLICE("")),
        .remote = keep(im, e->mta_mname),
        .tls = SLICE(""),
        .details = SLICE(""),
        .when = when,
    };
}

/* Adds the reasons of deferred recipients. */
static void add_reasons(struct import *im, struct taken *t, const struct status *deferred)
{
    for (size_t i = 0; deferred->count > 0 && i < t->count; i++) {
        const struct status_log_entry *e = status_of(deferred, t->notes[i].offset);

        if (e != NULL) {
            t->notes[i].settled = true;
            t->notes[i].verdict = verdict_of(im, e, SPOOL_RCPT_PENDING, deferred->written);
        }
    }
}

/* Adds recipients whose result bounce(8) has not reported yet. */
static void add_reports(struct import *im, struct taken *t, const struct status *log, bool failed)
{
    for (size_t i = 0; i < log->count; i++) {
        const struct status_log_entry *e = &log->lines[i].entry;
        bool relayed = slice_equal(e->action, SLICE("relayed"));

        if (!failed && ((e->notify & NOTIFY_SUCCESS) == 0 ||
                        (!relayed && !slice_equal(e->action, SLICE("delivered"))))) {
            continue; /* a recipient of sendmail -v that is not done */
        }
        add_rcpt(im, t, e->recipient, e->dsn_original, e->notify, e->offset);
        t->notes[t->count - 1].settled = true;
        t->notes[t->count - 1].verdict = verdict_of(im, e,
                                                    failed    ? SPOOL_RCPT_FAILED
                                                    : relayed ? SPOOL_RCPT_RELAYED
                                                              : SPOOL_RCPT_DELIVERED,
                                                    log->written);
    }
}

static bool read_logs(struct import *im, struct taken *t, struct buf *why)
{
    struct status deferred, bounced, traced;
    bool ok = status_read(im, t, QUEUE_DIR_DEFER, &deferred, why);

    ok = status_read(im, t, QUEUE_DIR_BOUNCE, &bounced, why) && ok;
    ok = status_read(im, t, QUEUE_DIR_TRACE, &traced, why) && ok;
    if (ok) {
        add_reasons(im, t, &deferred);
        add_reports(im, t, &bounced, true);
        add_reports(im, t, &traced, false);
    }
    status_fini(&deferred);
    status_fini(&bounced);
    status_fini(&traced);
    return ok;
}

/* ---- what a spool keeps otherwise ----------------------------------------------------------- */

static size_t pending(const struct taken *t)
{
    size_t count = 0;

    for (size_t i = 0; i < t->count; i++) {
        count += !t->notes[i].settled || t->notes[i].verdict.state == SPOOL_RCPT_PENDING;
    }
    return count;
}

/* Replaces all pending recipients by the redirect's address, in the place of the first. */
static void redirect(struct import *im, struct taken *t)
{
    struct slice to = queue_file_text(&t->envelope, QUEUE_FILE_REDIRECT);
    size_t kept = 0;
    bool first = true;

    if (to.len == 0) {
        return;
    }
    for (size_t i = 0; i < t->count; i++) {
        bool waits = !t->notes[i].settled || t->notes[i].verdict.state == SPOOL_RCPT_PENDING;

        if (waits && !first) {
            continue;
        }
        t->rcpts[kept] = t->rcpts[i];
        t->notes[kept] = t->notes[i];
        if (waits) {
            first = false;
            t->rcpts[kept].address = external(im, to);
        }
        kept++;
    }
    t->count = kept;
}

/* Routes mail for a content filter to that filter. Returns false if its transport does not
 * exist. */
static bool set_filter(struct import *im, struct taken *t, struct buf *why)
{
    struct slice target = queue_file_text(&t->envelope, QUEUE_FILE_FILTER);

    if (target.len == 0 || queue_file_text(&t->envelope, QUEUE_FILE_REDIRECT).len > 0) {
        return true;
    }
    for (size_t i = 0; i < t->count; i++) {
        struct route route;

        if (im->m.move->conf == NULL ||
            !route_forced(im->m.move->conf, target, t->rcpts[i].address, &route)) {
            (void)buf_addf(why,
                           "it is on its way to the content filter %.*s, and the configuration "
                           "has no such transport",
                           SLICE_ARGS(target));
            return false;
        }
        t->rcpts[i].transport = text_pool_add(&im->pool, slice_string(route.transport));
        t->rcpts[i].nexthop = text_pool_add(&im->pool, slice_string(route.nexthop));
        t->rcpts[i].route_generation = SPOOL_ROUTE_FIXED;
    }
    return true;
}

/* Returns the property of the message that a spool can't store; NULL if there is none. */
static const char *unfit(const struct taken *t)
{
    const struct queue_file_envelope *e = &t->envelope;

    if ((e->trace_flags & (QUEUE_FILE_TRACE_MTA_PROBE | QUEUE_FILE_TRACE_USER_PROBE)) != 0) {
        return "it is an address probe, no mail";
    }
    if (queue_file_text(e, QUEUE_FILE_INSPECTOR).len > 0) {
        return "it goes to a content inspector";
    }
    if ((e->sendopts & 32) != 0) {
        return "it demands REQUIRETLS";
    }
    return NULL;
}

static bool fits(const struct taken *t, const struct spool_message *m, struct buf *why)
{
    if (m->sender.len > SPOOL_SENDER_MAX || m->envid.len > DSN_ENVID_MAX) {
        (void)buf_add_string(why, m->sender.len > SPOOL_SENDER_MAX
                                      ? "its sender is longer than an address may be"
                                      : "its ENVID is longer than allowed");
        return false;
    }
    for (size_t i = 0; i < t->count; i++) {
        if (t->rcpts[i].address.len == 0 || t->rcpts[i].address.len > ADDRESS_MAX ||
            t->rcpts[i].orcpt.len > DSN_ORCPT_MAX) {
            (void)buf_add_string(why, t->rcpts[i].orcpt.len > DSN_ORCPT_MAX
                                          ? "an ORCPT is longer than allowed"
                                          : "a recipient is empty, or longer than allowed");
            return false;
        }
    }
    return true;
}

/* ---- submission ----------------------------------------------------------------------------- */

static struct slice client_of(struct import *im, const struct queue_file_envelope *e)
{
    struct slice address = queue_file_text(e, QUEUE_FILE_CLIENT_ADDRESS);
    struct slice kept;
    struct buf both;

    if (address.len == 0) {
        return SLICE("");
    }
    buf_init(&both, TEXT_MAX_BYTES);
    (void)buf_addf(&both, "%.*s[%.*s]", SLICE_ARGS(queue_file_text(e, QUEUE_FILE_CLIENT_NAME)),
                   SLICE_ARGS(address)); /* there is room for the longest */
    kept = text_pool_add(&im->pool, buf_slice(&both));
    buf_fini(&both);
    return kept;
}

static unsigned flags_of(const struct queue_file_envelope *e)
{
    unsigned flags =
        slice_equal(queue_file_text(e, QUEUE_FILE_ENCODING), SLICE("8bit")) ? ENVELOPE_8BIT : 0;

    flags |= (e->sendopts & 15) != 0 ? ENVELOPE_SMTPUTF8 : 0;
    flags |= e->ret_flags == 1 ? ENVELOPE_RET_FULL : e->ret_flags == 2 ? ENVELOPE_RET_HDRS : 0;
    flags |= (e->trace_flags & QUEUE_FILE_TRACE_RECORD) != 0 ? ENVELOPE_TRACE : 0;
    return flags;
}

static void describe(struct import *im, const struct taken *t, struct spool_message *ret)
{
    const struct queue_file_envelope *e = &t->envelope;
    struct wall now = im->m.move->now;
    bool waits = t->which == QUEUE_DIR_DEFERRED || t->which == QUEUE_DIR_HOLD;

    *ret = (struct spool_message){
        .sender = external(im, queue_file_text(e, QUEUE_FILE_SENDER)),
        .envid = queue_file_text(e, QUEUE_FILE_ENVELOPE_ID).len > 0
                     ? xtext(im, SLICE(""), queue_file_text(e, QUEUE_FILE_ENVELOPE_ID))
                     : SLICE(""),
        .flags = flags_of(e),
        .arrived = e->arrived,
        .created = e->created.us > 0 ? e->created : e->arrived,
        .due = waits ? t->file.modified : wall_min(t->file.modified, now),
        .reason = SLICE(""),
        .parked = SLICE(""),
        .client = client_of(im, e),
        .class_name = SLICE(""),
    };
}

/* Builds the sender of a recipient with VERP: "list@good.example", "+=", "y1@hard.example" ->
 * "list+y1=hard.example@good.example". */
static struct slice verp_sender(struct import *im, const struct taken *t,
                                const struct spool_rcpt *r)
{
    struct slice sender = queue_file_text(&t->envelope, QUEUE_FILE_SENDER);
    struct slice marks = queue_file_text(&t->envelope, QUEUE_FILE_VERP);
    size_t at = slice_find_last(sender, '@'), rcpt_at = slice_find_last(r->address, '@');
    struct slice kept;
    struct buf out;

    buf_init(&out, TEXT_MAX_BYTES);
    (void)buf_addf(&out, "%.*s%c%.*s", SLICE_ARGS(slice_of(sender.ptr, at)), marks.ptr[0],
                   SLICE_ARGS(slice_of(r->address.ptr, rcpt_at)));
    if (rcpt_at < r->address.len) {
        (void)buf_addf(&out, "%c%.*s", marks.ptr[1],
                       SLICE_ARGS(slice_skip(r->address, rcpt_at + 1)));
    }
    (void)buf_add(&out, slice_skip(sender, at));
    kept = external(im, buf_slice(&out));
    buf_fini(&out);
    return kept;
}

static int settle_all(struct import *im, struct msg_id id, const struct taken_rcpt *notes,
                      size_t count)
{
    int err = 0;

    for (size_t i = 0; err == 0 && i < count; i++) {
        if (notes[i].settled) {
            err = spool_settle(im->m.move->spool, id, (uint32_t)i + 1, &notes[i].verdict);
        }
    }
    return err;
}

/* Submits one message with its properties and results to the open batch. */
static int submit(struct import *im, struct taken *t, const struct spool_message *m, size_t from,
                  size_t count, struct msg_id *ret_id)
{
    struct spool *sp = im->m.move->spool;
    struct spool_content content = {
        .bytes = buf_slice(&t->inlined), .fd = t->content_fd, .fd_size = t->content_size};
    bool claim = t->which == QUEUE_DIR_HOLD || t->which == QUEUE_DIR_DEFERRED ||
                 pending(t) < t->count; /* a claim that ends lists a staying message at once */
    bool gone = false;
    struct msg_id id;
    int err = spool_submit(sp, m, t->rcpts + from, (uint32_t)count, SLICE(""), &content, claim,
                           SLICE(""), &id);

    if (err == 0) {
        err = settle_all(im, id, t->notes + from, count);
    }
    if (err == 0 && t->envelope.warn_s < 0) {
        err = spool_set_warned(sp, id);
    }
    if (err == 0 && queue_dir_force_expire(&t->file)) {
        err = spool_set_force_expire(sp, id);
    }
    if (err == 0 && t->which == QUEUE_DIR_HOLD) {
        err = spool_hold(sp, id, SLICE(HELD_REASON));
    } else if (err == 0 && t->which == QUEUE_DIR_DEFERRED) {
        err = spool_finish(sp, id, m->due, &gone);
        CHECK(err != 0 || !gone);
    } else if (err == 0 && claim) {
        spool_unclaim(sp, id);
    }
    if (err == 0) {
        *ret_id = id;
    }
    return err;
}

/* ---- the batch ------------------------------------------------------------------------------ */

static void forget_staged(struct import *im)
{
    stage_free(im->staged, im->staged_count);
    im->staged = NULL;
    im->staged_count = im->staged_size = 0;
}

/* Parses a staged name "deferred.4A1..". */
static bool parse_staged(const char *name, enum queue_dir_name *ret_which, struct slice *ret_id)
{
    struct slice rest = slice_string(name), word = slice_cut(&rest, '.');

    for (size_t i = 0; i < QUEUE_DIRS; i++) {
        if (slice_equal(word, slice_string(queue_dir_word((enum queue_dir_name)i)))) {
            *ret_which = (enum queue_dir_name)i;
            *ret_id = rest;
            return rest.ptr != NULL && queue_id_ok(rest);
        }
    }
    return false;
}

static int put_back(struct import *im, char *const *names, size_t count)
{
    int err = 0;

    for (size_t i = 0; err == 0 && i < count; i++) {
        enum queue_dir_name which;
        char path[MOVER_PATH_MAX];
        struct slice id;

        stage_path(&im->m, names[i], NULL, path);
        if (!parse_staged(names[i], &which, &id)) {
            mover_leave(&im->m, "%s: this file is not ours; it stays", path);
        } else {
            err = mover_place(&im->m, path, which, id);
        }
    }
    return err;
}

static int remove_logs(struct import *im, struct slice id)
{
    static const enum queue_dir_name logs[] = {QUEUE_DIR_BOUNCE, QUEUE_DIR_DEFER, QUEUE_DIR_TRACE};
    char path[QUEUE_DIR_PATH_MAX];
    int err = 0;

    for (size_t i = 0; err == 0 && i < sizeof logs / sizeof logs[0]; i++) {
        if (mover_find_log(&im->m, logs[i], id, path)) {
            err = mover_remove(&im->m, path);
        }
    }
    return err;
}

/* Removes staged files, and their logs, that the spool has as messages. */
static int remove_staged(struct import *im, char *const *names, size_t count, uint64_t *ret_removed)
{
    int err = 0;

    for (size_t i = 0; err == 0 && i < count; i++) {
        enum queue_dir_name which;
        char path[MOVER_PATH_MAX];
        struct slice id;

        if (!parse_staged(names[i], &which, &id)) {
            continue;
        }
        stage_path(&im->m, names[i], NULL, path);
        err = remove_logs(im, id);
        if (err == 0) {
            err = mover_remove(&im->m, path);
        }
        if (err == 0) {
            (*ret_removed)++;
        }
    }
    return err;
}

static int batch_begin(struct import *im)
{
    struct buf text;
    int err;

    (void)strcpy(im->key, KEY_PREFIX); /* it fits */
    entropy_text(im->key + sizeof KEY_PREFIX - 1, KEY_RANDOM);
    im->key[KEY_MAX - 1] = '\0';
    buf_init(&text, MARK_MAX_BYTES);
    (void)buf_addf(&text, "%s\n%s\n", im->key, im->m.move->url);
    err = text.failed
              ? mover_fail(&im->m, -ENAMETOOLONG, "%s: the name is too long", im->m.move->url)
              : stage_make(&im->m);
    if (err == 0) {
        err = stage_mark_write(&im->m, buf_slice(&text));
    }
    buf_fini(&text);
    im->batch_open = err == 0;
    im->first = (struct msg_id){0};
    im->batch = (struct spool_moved){0};
    im->batch_bytes = 0;
    return err;
}

/* Undoes the batch on disk after the spool's batch has failed. */
static int batch_undo(struct import *im, int why)
{
    struct buf words;
    int err;

    buf_init(&words, MARK_MAX_BYTES);
    (void)buf_add(&words, buf_slice(im->m.error)); /* may be cut */
    (void)spool_commit(im->m.move->spool);         /* undoes the spool's batch, which has failed */
    err = put_back(im, im->staged, im->staged_count);
    if (err == 0) {
        err = mover_fail(&im->m, why, "%.*s", SLICE_ARGS(buf_slice(&words)));
    }
    buf_fini(&words);
    forget_staged(im);
    im->batch_open = false;
    return err;
}

static int batch_end(struct import *im)
{
    struct spool *sp = im->m.move->spool;
    struct spool_moved *all = im->m.moved;
    uint64_t removed = 0;
    int err;

    if (!im->batch_open) {
        return 0;
    }
    err = mover_sync(&im->m);
    if (err == 0 && im->first.n != 0) {
        struct spool_key key = {.key = slice_string(im->key),
                                .id = im->first,
                                .until = wall_after(im->m.move->now, KEY_KEPT_US)};

        err = spool_key_add(sp, &key);
        if (err == 0) {
            err = spool_commit(sp);
        }
        if (err != 0) {
            (void)mover_fail(&im->m, err, "%s", spool_error(sp));
        }
    }
    if (err != 0) {
        return batch_undo(im, err);
    }
    all->incoming += im->batch.incoming;
    all->deferred += im->batch.deferred;
    all->hold += im->batch.hold;
    all->rcpts += im->batch.rcpts;
    all->reports += im->batch.reports;
    err = remove_staged(im, im->staged, im->staged_count, &removed);
    forget_staged(im);
    im->batch_open = false;
    return err;
}

/* ---- one file ------------------------------------------------------------------------------- */

static void taken_init(struct taken *t, enum queue_dir_name which, const char *name)
{
    *t = (struct taken){.which = which, .fd = -1, .content_fd = -1};
    (void)snprintf(t->name, sizeof t->name, "%s", name); /* it fits */
    buf_init(&t->inlined, INLINE_CONTENT + QUEUE_FILE_RECORD_MAX + 2);
}

static void taken_fini(struct taken *t)
{
    if (t->fd >= 0) {
        (void)close(t->fd); /* opened for reading */
    }
    if (t->content_fd >= 0) {
        (void)close(t->content_fd); /* it is memory */
    }
    if (t->has_envelope) {
        queue_file_envelope_fini(&t->envelope);
    }
    mem_free(t->rcpts);
    mem_free(t->notes);
    buf_fini(&t->inlined);
}

/* Opens and locks the file. Returns false with *why if it can't be moved. */
static bool open_file(struct import *im, struct taken *t, struct buf *why)
{
    struct stat st;

    t->fd = openat(im->m.fd, t->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (t->fd < 0 || fstat(t->fd, &st) != 0) {
        (void)buf_addf(why, "can't be opened: %s", strerror(errno));
        return false;
    }
    t->file = (struct queue_dir_file){.mode = st.st_mode,
                                      .size = (uint64_t)st.st_size,
                                      .modified = {(int64_t)st.st_mtim.tv_sec * US_PER_S}};
    if (!queue_dir_usable(&t->file)) {
        (void)buf_add_string(why, !S_ISREG(st.st_mode)          ? "no regular file"
                                  : (st.st_mode & 0700) == 0400 ? "an agent has found it damaged"
                                                                : "it was not written to its end");
        return false;
    }
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0) {
        (void)buf_add_string(why, errno == EWOULDBLOCK
                                      ? "a delivery agent still has it; run this again"
                                      : strerror(errno));
        return false;
    }
    return true;
}

static bool read_file(struct import *im, struct taken *t, struct buf *why)
{
    const char *cannot;

    if (!open_file(im, t, why) || !read_envelope(im, t, why) || !read_content(im, t, why)) {
        return false;
    }
    cannot = unfit(t);
    if (cannot != NULL) {
        (void)buf_add_string(why, cannot);
        return false;
    }
    if (!read_logs(im, t, why)) {
        return false;
    }
    redirect(im, t);
    return set_filter(im, t, why);
}

static void classify(struct import *im, const struct taken *t, struct spool_message *m,
                     char room[CLASS_NAME_MAX])
{
    const struct spool_move *move = im->m.move;

    if (move->classify != NULL) {
        move->classify(move->context, m->sender, m->client, buf_slice(&t->inlined), room,
                       &m->class_name, &m->class_source);
    }
}

static void count_one(const struct taken *t, struct spool_moved *counts)
{
    size_t waits = pending(t);

    if (t->count == 0) {
        return; /* all recipients are done, and none needs a report */
    }
    *(t->which == QUEUE_DIR_HOLD       ? &counts->hold
      : t->which == QUEUE_DIR_DEFERRED ? &counts->deferred
                                       : &counts->incoming) += 1;
    counts->rcpts += waits;
    counts->reports += t->count - waits;
}

static bool by_verp(const struct taken *t)
{
    return queue_file_text(&t->envelope, QUEUE_FILE_VERP).len == 2 &&
           queue_file_text(&t->envelope, QUEUE_FILE_SENDER).len > 0;
}

/* Submits a file to the open batch: one message, or with VERP one for each recipient. */
static int submit_all(struct import *im, struct taken *t, struct spool_message *m)
{
    size_t each = by_verp(t) ? 1 : t->count;
    int err = 0;

    for (size_t i = 0; err == 0 && i < t->count; i += each) {
        struct spool_message one = *m;
        struct msg_id id;

        if (by_verp(t)) {
            one.sender = verp_sender(im, t, &t->rcpts[i]);
        }
        err = submit(im, t, &one, i, each, &id);
        if (err == 0 && im->first.n == 0) {
            im->first = id;
        }
    }
    return err == 0 ? 0 : mover_fail(&im->m, err, "%s", spool_error(im->m.move->spool));
}

/* Renames a file into the stage, where it is in no queue. */
static int stage_file(struct import *im, const struct taken *t)
{
    char name[QUEUE_ID_MAX + 16], path[MOVER_PATH_MAX];
    int err;

    (void)snprintf(name, sizeof name, "%s.%s", queue_dir_word(t->which), t->name); /* it fits */
    stage_path(&im->m, name, NULL, path);
    err = im->m.io->renameat(im->m.fd, t->path, im->m.fd, path);
    if (err != 0) {
        return mover_fail(&im->m, err, "rename %s to %s: %s", t->path, path, strerror(-err));
    }
    im->staged = mem_grow(im->staged, im->staged_count, &im->staged_size, sizeof *im->staged);
    im->staged[im->staged_count++] = mem_string(name);
    return 0;
}

static int take(struct import *im, struct taken *t, struct spool_message *m)
{
    int err = im->batch_open ? 0 : batch_begin(im);

    if (err != 0) {
        return err;
    }
    err = submit_all(im, t, m);
    if (err == 0) {
        err = stage_file(im, t);
    }
    if (err != 0) {
        return batch_undo(im, err);
    }
    count_one(t, &im->batch);
    im->batch_bytes += buf_len(&t->inlined) + t->content_size;
    return im->staged_count >= BATCH_MESSAGES || im->batch_bytes >= BATCH_BYTES ? batch_end(im) : 0;
}

static int import_file(struct import *im, enum queue_dir_name which, const char *name,
                       const char *path)
{
    char room[CLASS_NAME_MAX];
    struct spool_message m;
    struct taken t;
    struct buf why;
    int err = 0;

    text_pool_clear(&im->pool);
    taken_init(&t, which, name);
    (void)snprintf(t.path, sizeof t.path, "%s", path); /* it fits */
    buf_init(&why, MARK_MAX_BYTES);
    if (!read_file(im, &t, &why)) {
        mover_leave(&im->m, "%s is left: %s", path, why.failed ? "damaged" : buf_cstr(&why));
    } else {
        describe(im, &t, &m);
        if (by_verp(&t)) {
            mover_tell(&im->m, "%s: one message for each of its %zu recipients (VERP)", path,
                       t.count);
        }
        if (!fits(&t, &m, &why)) {
            mover_leave(&im->m, "%s is left: %s", path, buf_cstr(&why));
        } else if (im->m.move->dry_run) {
            count_one(&t, im->m.moved);
        } else {
            classify(im, &t, &m, room);
            err = take(im, &t, &m);
        }
    }
    buf_fini(&why);
    taken_fini(&t);
    return err;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int import_queue(struct import *im, enum queue_dir_name which)
{
    char name[QUEUE_ID_MAX + 1], path[QUEUE_DIR_PATH_MAX];
    struct queue_scan scan;
    int err = 0;

    queue_scan_begin(&scan, &im->m.dir, which);
    for (bool more = true; more && err == 0;) {
        int failed = 0;

        switch (queue_scan_next(&scan, SCAN_ENTRIES, name, &failed)) {
        case QUEUE_SCAN_ID:
            queue_scan_path(&scan, name, path);
            err = import_file(im, which, name, path);
            break;
        case QUEUE_SCAN_OTHER:
            queue_scan_path(&scan, name, path);
            mover_leave(&im->m, "%s is left: its name is no queue id", path);
            break;
        case QUEUE_SCAN_MORE:
            break;
        case QUEUE_SCAN_END:
            more = false;
            break;
        case QUEUE_SCAN_FAILED:
            err = mover_fail(&im->m, failed, "%s/%s: %s", im->m.move->directory,
                             queue_dir_word(which), strerror(-failed));
            break;
        }
    }
    queue_scan_end(&scan);
    if (err == 0) {
        return batch_end(im);
    }
    return im->batch_open ? batch_undo(im, err) : err;
}

/* Counts the files in a directory that is not moved. */
static uint64_t count_files(struct import *im, const char *directory)
{
    struct mover there = im->m;
    char **names = NULL;
    size_t count = 0;

    there.stage = directory;
    if (stage_list(&there, &names, &count) == 0) {
        stage_free(names, count);
    }
    return count;
}

static void tell_the_rest(struct import *im)
{
    uint64_t maildrop = count_files(im, "maildrop");
    uint64_t corrupt = count_files(im, queue_dir_word(QUEUE_DIR_CORRUPT));

    if (maildrop > 0) {
        mover_tell(&im->m,
                   "maildrop: %" PRIu64
                   " submissions of sendmail(1) that Postfix has not cleaned up "
                   "yet are left; let Postfix run until there are none, then stop it and run this "
                   "again",
                   maildrop);
        im->m.moved->left += maildrop;
    }
    if (corrupt > 0) {
        mover_tell(&im->m, "corrupt: %" PRIu64 " files that Postfix found damaged are left there",
                   corrupt);
    }
}

/* Finishes an interrupted run. */
static int finish_before(struct import *im)
{
    struct slice rest, key, url;
    struct spool_key known = {0};
    char **names = NULL;
    size_t count = 0;
    struct buf text;
    int err;

    buf_init(&text, MARK_MAX_BYTES);
    err = stage_mark_read(&im->m, &text);
    if (err == -ENOENT) {
        err = 0;
    }
    rest = buf_slice(&text);
    key = slice_cut(&rest, '\n');
    url = rest.ptr != NULL ? slice_cut(&rest, '\n') : SLICE("");
    if (err == 0 && key.len > 0 && !slice_equal(url, slice_string(im->m.move->url))) {
        err =
            mover_fail(&im->m, -EEXIST, "a move into %.*s was interrupted here: finish that first",
                       SLICE_ARGS(url));
    }
    if (err == 0) {
        err = stage_list(&im->m, &names, &count);
    }
    if (err == 0 && im->m.move->dry_run) {
        if (count > 0) {
            mover_tell(&im->m,
                       "a move was interrupted: %zu files in " STAGE " would be brought to "
                       "their end first",
                       count);
        }
    } else if (err == 0) {
        known.key = key;
        err = key.len == 0 ? -ENOENT
                           : spool_key_find(im->m.move->spool, &known, im->m.move->now, UINT64_MAX);
        if (err == 0) {
            err = remove_staged(im, names, count, &im->m.moved->finished);
        } else if (err == -ENOENT) {
            err = put_back(im, names, count);
        } else {
            (void)mover_fail(&im->m, err, "%s", spool_error(im->m.move->spool));
        }
        if (err == 0) {
            err = stage_remove(&im->m);
        }
    }
    stage_free(names, count);
    buf_fini(&text);
    return err;
}

/* Checks that the engine stores keys and accepts mail. */
static int check_spool(struct import *im)
{
    struct spool_key none = {.key = SLICE(KEY_PREFIX)};
    int err;

    if (im->m.move->dry_run) {
        return 0;
    }
    err = spool_key_find(im->m.move->spool, &none, im->m.move->now, UINT64_MAX);
    return err == 0 || err == -ENOENT
               ? 0
               : mover_fail(&im->m, err, "mail can't be moved into %s: %s", im->m.move->url,
                            err == -ENOTSUP ? "only a database takes it"
                                            : spool_error(im->m.move->spool));
}

int postfix_import(const struct spool_move *move, struct spool_moved *ret_moved,
                   struct buf *ret_error)
{
    static const enum queue_dir_name queues[] = {QUEUE_DIR_ACTIVE, QUEUE_DIR_INCOMING,
                                                 QUEUE_DIR_DEFERRED, QUEUE_DIR_HOLD};
    struct import im = {0};
    int err = mover_open(&im.m, move, STAGE, ret_moved, ret_error);

    if (err != 0) {
        return err;
    }
    err = check_spool(&im);
    if (err == 0) {
        err = finish_before(&im);
    }
    for (size_t i = 0; err == 0 && i < sizeof queues / sizeof queues[0]; i++) {
        err = import_queue(&im, queues[i]);
    }
    if (err == 0) {
        tell_the_rest(&im);
        err = move->dry_run ? 0 : stage_remove(&im.m);
    }
    forget_staged(&im);
    text_pool_fini(&im.pool);
    mover_close(&im.m);
    return err;
}
