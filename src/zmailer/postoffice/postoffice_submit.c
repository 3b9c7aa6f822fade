/*
 * Hands mail to the router as every submitter does. The engine writes a file in public/ with the
 * envelope as header lines and the message, and syncs it. Then it renames the file to router/INODE
 * and sends a datagram.
 *
 * Reports with a null sender use the channel `error`; other mail has its sender. Mail that is
 * submitted to hold goes to postman/ instead, with the reason in its name.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "envelope.h"
#include "lines.h"
#include "mem.h"
#include "postoffice_engine.h"
#include "router_file.h"
#include "xtext.h"

/* Bytes of two lines for each recipient; enough for all that spool_submit accepts. */
#define ENVELOPE_PER_RCPT ((size_t)4 * (ADDRESS_MAX + DSN_ORCPT_MAX))
/* Size of the pieces in which content is written. */
#define PIECE_MAX ((size_t)65536)

/* ---- the envelope --------------------------------------------------------------------------- */

static void put_notify(struct buf *out, unsigned notify)
{
    static const struct {
        unsigned wish;
        const char *word;
    } words[] = {
        {NOTIFY_NEVER, "NEVER"},
        {NOTIFY_SUCCESS, "SUCCESS"},
        {NOTIFY_FAILURE, "FAILURE"},
        {NOTIFY_DELAY, "DELAY"},
    };
    const char *before = "NOTIFY=";

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if ((notify & words[i].wish) != 0) {
            (void)buf_addf(out, "%s%s", before, words[i].word);
            before = ",";
        }
    }
    if (notify != NOTIFY_DEFAULT) {
        (void)buf_add_byte(out, ' ');
    }
}

/* Appends the words of an `N` line. A report requests no reports. */
static void put_dsn(struct buf *out, const struct spool_rcpt *r, bool is_report)
{
    if (!is_report) {
        put_notify(out, r->notify);
    }
    (void)buf_add_string(out, "ORCPT=");
    if (r->orcpt.len > 0) {
        (void)buf_add(out, r->orcpt);
    } else {
        (void)buf_add_string(out, "rfc822;");
        (void)xtext_encode(r->address, out);
    }
}

static bool put_envelope(struct postoffice *po, const struct spool_new *n, struct buf *out)
{
    const struct spool_message *m = n->m;
    const struct router_envelope envelope = {
        .program = "??",
        .host = po->options.hostname,
        .eight_bit = (m->flags & ENVELOPE_8BIT) != 0,
        .sender = m->sender,
        .envid = m->envid,
        .ret = (m->flags & ENVELOPE_RET_FULL) != 0   ? CONTROL_RET_FULL
               : (m->flags & ENVELOPE_RET_HDRS) != 0 ? CONTROL_RET_HEADERS
                                                     : CONTROL_RET_UNKNOWN,
    };
    bool ok = router_file_begin(out, &envelope);
    struct buf dsn;

    buf_init(&dsn, ENVELOPE_PER_RCPT);
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        buf_clear(&dsn);
        put_dsn(&dsn, &n->rcpts[i], m->sender.len == 0);
        ok = router_file_rcpt(out, n->rcpts[i].address, buf_slice(&dsn)) && ok;
    }
    ok = ok && !dsn.failed;
    buf_fini(&dsn);
    router_file_end(out);
    (void)buf_add(out, n->prefix);
    return ok && !out->failed;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Writer of a message file, whose lines end with LF. Submitted content has CR LF; content from a
 * message file is copied (`as_it_is`). */
struct letter_writer {
    const struct spool_io *io;
    bool as_it_is;
    int fd;
    struct unixlines lines;
    struct buf out;
};

static int write_piece(struct letter_writer *w, struct slice piece)
{
    int err = 0;

    while (err == 0 && piece.len > 0) {
        size_t len = piece.len < PIECE_MAX ? piece.len : PIECE_MAX;

        if (w->as_it_is) {
            (void)buf_add(&w->out, slice_of(piece.ptr, len)); /* fits, as the next one */
        } else {
            unixlines_add(&w->lines, slice_of(piece.ptr, len), &w->out);
        }
        piece = slice_skip(piece, len);
        err = spool_io_write_all(w->io, w->fd, buf_slice(&w->out).ptr, buf_len(&w->out));
        buf_clear(&w->out);
    }
    return err;
}

static int write_from_fd(struct letter_writer *w, int from, uint64_t size)
{
    char *piece = mem_new(PIECE_MAX);
    uint64_t at = 0;
    int err = 0;

    while (err == 0 && at < size) {
        size_t len = size - at < PIECE_MAX ? (size_t)(size - at) : PIECE_MAX;

        err = spool_io_read_all(w->io, from, piece, len, at);
        at += len;
        if (err == 0) {
            err = write_piece(w, slice_of(piece, len));
        }
    }
    mem_free(piece);
    return err;
}

static int write_letter(struct postoffice *po, int fd, struct slice envelope,
                        const struct spool_new *n, bool as_it_is)
{
    struct letter_writer w = {.io = po->io, .as_it_is = as_it_is, .fd = fd};
    int err;

    unixlines_init(&w.lines);
    buf_init(&w.out, PIECE_MAX + 2);
    err = write_piece(&w, envelope);
    if (err == 0) {
        err = write_piece(&w, n->content->bytes);
    }
    if (err == 0 && n->content->fd >= 0) {
        err = write_from_fd(&w, n->content->fd, n->content->fd_size);
    }
    if (err == 0) {
        unixlines_end(&w.lines, &w.out);
        err = spool_io_write_all(po->io, fd, buf_slice(&w.out).ptr, buf_len(&w.out));
    }
    buf_fini(&w.out);
    if (err == 0 && !po->options.msgwriteasync) {
        err = po->io->fsync(fd);
    }
    return err;
}

/* Names the file in router/ by its inode, as every submitter does; in postman/ with the reason
 * added. Users get the spoolid that the router and all others will derive from the file. */
static int name_file(struct postoffice *po, struct post_router_file *file, int fd,
                     struct slice reason)
{
    char spoolid[CONTROL_SPOOLID_MAX];
    struct stat st;
    size_t len;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    len = (size_t)snprintf(file->to, sizeof file->to, "%" PRIu64, (uint64_t)st.st_ino);
    if (reason.len > 0) {
        file->to_postman = true;
        (void)snprintf(file->to + len, 100, ":%.*s", SLICE_ARGS(reason)); /* may be cut */
        for (char *c = file->to; *c != '\0'; c++) {
            *c = *c == '/' || *c <= ' ' ? '-' : *c;
        }
        (void)snprintf(po->texts, sizeof po->texts, "postman/%s", file->to); /* fits */
    } else {
        control_spoolid((uint64_t)st.st_ino, st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec,
                        spoolid);
        (void)snprintf(po->texts, sizeof po->texts, "%s", spoolid); /* fits */
    }
    return 0;
}

int router_file_write(struct postoffice *po, struct msg_id id, const struct spool_new *n,
                      bool as_it_is)
{
    struct post_router_file *file = mem_new(sizeof *file);
    struct buf envelope;
    int fd, err;

    (void)snprintf(file->from, sizeof file->from, "%.100s:%ld.%" PRIu64, po->options.hostname,
                   (long)getpid(), id.n);
    buf_init(&envelope, 4096 + n->prefix.len + n->rcpt_count * ENVELOPE_PER_RCPT);
    if (!put_envelope(po, n, &envelope)) {
        err = spool_fail(&po->base, -EINVAL, "submit: a line feed in an address");
        goto out;
    }
    fd = po->io->openat(po->public, file->from, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        err = spool_fail(&po->base, fd, "public/%s: %s", file->from, strerror(-fd));
        goto out;
    }
    err = write_letter(po, fd, buf_slice(&envelope), n, as_it_is);
    if (err == 0) {
        err = name_file(po, file, fd, n->m->reason);
    }
    int closed = po->io->close(fd);
    err = err != 0 ? err : closed;
    if (err != 0) {
        (void)po->io->unlinkat(po->public, file->from); /* ZMailer removes such debris */
        err = spool_fail(&po->base, err, "public/%s: %s", file->from, strerror(-err));
    }
out:
    buf_fini(&envelope);
    if (err != 0) {
        mem_free(file);
        return err;
    }
    STAILQ_INSERT_TAIL(&po->router_files, file, by_batch);
    return 0;
}

int router_files_send(struct postoffice *po)
{
    struct post_router_file *file;
    bool to_router = false, to_postman = false;
    int err = 0;

    STAILQ_FOREACH(file, &po->router_files, by_batch)
    {
        err = po->io->renameat(po->public, file->from, file->to_postman ? po->postman : po->router,
                               file->to);
        if (err != 0) {
            return spool_fail(&po->base, err, "%s/%s: %s", file->to_postman ? "postman" : "router",
                              file->to, strerror(-err));
        }
        file->sent = true;
        to_router = to_router || !file->to_postman;
        to_postman = to_postman || file->to_postman;
    }
    if (!po->options.msgwriteasync) {
        err = to_router ? po->io->fsync(po->router) : 0;
        err = err == 0 && to_postman ? po->io->fsync(po->postman) : err;
    }
    if (err != 0) {
        return spool_fail(&po->base, err, "router: %s", strerror(-err));
    }
    STAILQ_FOREACH(file, &po->router_files, by_batch)
    {
        if (!file->to_postman && po->tell_router >= 0) {
            router_file_tell(po->tell_router, po->options.router_notify, file->to);
        }
    }
    return 0;
}

void router_files_drop(struct postoffice *po)
{
    struct post_router_file *file;

    while ((file = STAILQ_FIRST(&po->router_files)) != NULL) {
        STAILQ_REMOVE_HEAD(&po->router_files, by_batch);
        if (!file->sent) {
            (void)po->io->unlinkat(po->public, file->from); /* as above */
        }
        mem_free(file);
    }
}
