/*
 * Handing mail to the router, as every submitter does: a file in public/ with the envelope as
 * header lines and the message, synced, then renamed to router/INODE, and a datagram that says so.
 *
 * Reports of null sender come from the channel `error`; other mail has its sender. Mail that is
 * submitted to be held goes to postman/ instead, with the reason behind its name.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "envelope.h"
#include "lines.h"
#include "mem.h"
#include "postoffice_engine.h"

/* Per recipient two lines; enough for all that spool_submit accepts. */
#define ENVELOPE_PER_RCPT ((size_t)4 * (ADDRESS_MAX + DSN_ORCPT_MAX))
/* Content is written in pieces of this size. */
#define PIECE_MAX ((size_t)65536)

/* ---- the envelope --------------------------------------------------------------------------- */

/* RFC 3461, 4: what is not printable, and the two characters of the encoding. */
static void put_xtext(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        if (c > ' ' && c < 127 && c != '+' && c != '=') {
            (void)buf_add_byte(out, (char)c); /* sticky */
        } else {
            (void)buf_addf(out, "+%02X", c);
        }
    }
}

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

/* Envelope words come from addresses, which may hold anything but NUL: no line may be made of one.
 */
static bool is_one_line(struct slice word)
{
    return slice_find(word, '\n') == word.len;
}

static bool put_envelope(struct postoffice *po, const struct spool_new *n, struct buf *out)
{
    const struct spool_message *m = n->m;
    bool is_report = m->sender.len == 0;

    if (!is_one_line(m->sender)) {
        return false;
    }
    (void)buf_addf(out, "rcvdfrom STDIN (\"??\"@%s)\n", po->options.hostname);
    if ((m->flags & ENVELOPE_8BIT) != 0) {
        (void)buf_add_string(out, "bodytype 8BITMIME\n");
    }
    if (is_report) {
        (void)buf_add_string(out, "channel error\nerrormsg\n");
    } else {
        (void)buf_addf(out, "from <%.*s>\n", SLICE_ARGS(m->sender));
    }
    if (m->envid.len > 0 && is_one_line(m->envid)) {
        (void)buf_addf(out, "envid %.*s\n", SLICE_ARGS(m->envid));
    }
    if ((m->flags & (ENVELOPE_RET_FULL | ENVELOPE_RET_HDRS)) != 0) {
        (void)buf_addf(out, "notaryret %s\n",
                       (m->flags & ENVELOPE_RET_FULL) != 0 ? "FULL" : "HDRS");
    }
    for (uint32_t i = 0; i < n->rcpt_count; i++) {
        const struct spool_rcpt *r = &n->rcpts[i];

        if (!is_one_line(r->address) || !is_one_line(r->orcpt)) {
            return false;
        }
        (void)buf_add_string(out, "todsn ");
        if (!is_report) {
            put_notify(out, r->notify);
        }
        if (r->orcpt.len > 0) {
            (void)buf_addf(out, "ORCPT=%.*s\n", SLICE_ARGS(r->orcpt));
        } else {
            (void)buf_add_string(out, "ORCPT=rfc822;");
            put_xtext(out, r->address);
            (void)buf_add_byte(out, '\n');
        }
        (void)buf_addf(out, "to <%.*s>\n", SLICE_ARGS(r->address));
    }
    (void)buf_add_string(out, "env-end\n");
    (void)buf_add(out, n->prefix);
    return !out->failed;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Lines of message files end in LF; what is submitted comes as it travels. */
struct letter_writer {
    const struct spool_io *io;
    int fd;
    struct unixlines lines;
    struct buf out;
};

static int write_piece(struct letter_writer *w, struct slice piece)
{
    int err = 0;

    while (err == 0 && piece.len > 0) {
        size_t len = piece.len < PIECE_MAX ? piece.len : PIECE_MAX;

        unixlines_add(&w->lines, slice_of(piece.ptr, len), &w->out); /* fits */
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
                        const struct spool_new *n)
{
    struct letter_writer w = {.io = po->io, .fd = fd};
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

/* Its name in router/ is its inode, as every submitter has it; in postman/ with the reason. */
static int name_letter(struct post_letter *letter, int fd, struct slice reason)
{
    struct stat st;
    size_t len;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    len = (size_t)snprintf(letter->to, sizeof letter->to, "%" PRIu64, (uint64_t)st.st_ino);
    if (reason.len > 0) {
        letter->to_postman = true;
        (void)snprintf(letter->to + len, 100, ":%.*s", SLICE_ARGS(reason)); /* or its beginning */
        for (char *c = letter->to; *c != '\0'; c++) {
            *c = *c == '/' || *c <= ' ' ? '-' : *c;
        }
    }
    return 0;
}

int letter_write(struct postoffice *po, struct msg_id id, const struct spool_new *n)
{
    struct post_letter *letter = mem_new(sizeof *letter);
    struct buf envelope;
    int fd, err;

    (void)snprintf(letter->from, sizeof letter->from, "%.100s:%ld.%" PRIu64, po->options.hostname,
                   (long)getpid(), id.n);
    buf_init(&envelope, 4096 + n->prefix.len + n->rcpt_count * ENVELOPE_PER_RCPT);
    if (!put_envelope(po, n, &envelope)) {
        err = spool_fail(&po->base, -EINVAL, "submit: a line feed in an address");
        goto out;
    }
    fd = po->io->openat(po->public, letter->from, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        err = spool_fail(&po->base, fd, "public/%s: %s", letter->from, strerror(-fd));
        goto out;
    }
    err = write_letter(po, fd, buf_slice(&envelope), n);
    if (err == 0) {
        err = name_letter(letter, fd, n->m->reason);
    }
    int closed = po->io->close(fd);
    err = err != 0 ? err : closed;
    if (err != 0) {
        (void)po->io->unlinkat(po->public, letter->from); /* debris is swept up by ZMailer */
        err = spool_fail(&po->base, err, "public/%s: %s", letter->from, strerror(-err));
    }
out:
    buf_fini(&envelope);
    if (err != 0) {
        mem_free(letter);
        return err;
    }
    STAILQ_INSERT_TAIL(&po->letters, letter, by_batch);
    return 0;
}

/* A router that hears nothing looks for itself, so lost datagrams are no harm. */
static void tell_router(const struct postoffice *po, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = po->options.router_notify;
    char text[POST_PATH_MAX + 16];
    int len;

    if (po->tell_router >= 0 && strlen(path) < sizeof address.sun_path) {
        (void)strcpy(address.sun_path, path); /* measured */
        len = snprintf(text, sizeof text, "NEW router %s", name);
        (void)sendto(po->tell_router, text, (size_t)len, 0, (struct sockaddr *)&address,
                     sizeof address);
    }
}

int letters_send(struct postoffice *po)
{
    struct post_letter *letter;
    bool to_router = false, to_postman = false;
    int err = 0;

    STAILQ_FOREACH(letter, &po->letters, by_batch)
    {
        err = po->io->renameat(po->public, letter->from,
                               letter->to_postman ? po->postman : po->router, letter->to);
        if (err != 0) {
            return spool_fail(&po->base, err, "%s/%s: %s",
                              letter->to_postman ? "postman" : "router", letter->to,
                              strerror(-err));
        }
        letter->sent = true;
        to_router = to_router || !letter->to_postman;
        to_postman = to_postman || letter->to_postman;
    }
    if (!po->options.msgwriteasync) {
        err = to_router ? po->io->fsync(po->router) : 0;
        err = err == 0 && to_postman ? po->io->fsync(po->postman) : err;
    }
    if (err != 0) {
        return spool_fail(&po->base, err, "router: %s", strerror(-err));
    }
    STAILQ_FOREACH(letter, &po->letters, by_batch)
    {
        if (!letter->to_postman) {
            tell_router(po, letter->to);
        }
    }
    return 0;
}

void letters_drop(struct postoffice *po)
{
    struct post_letter *letter;

    while ((letter = STAILQ_FIRST(&po->letters)) != NULL) {
        STAILQ_REMOVE_HEAD(&po->letters, by_batch);
        if (!letter->sent) {
            (void)po->io->unlinkat(po->public, letter->from); /* as above */
        }
        mem_free(letter);
    }
}
