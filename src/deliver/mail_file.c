#include "mail_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "envelope.h"
#include "lines.h"

/* Bytes written at once. A longer piece is split. */
#define CHUNK_MAX 65536

static void put_field(struct buf *out, const char *name, struct slice value, const char *brackets)
{
    (void)buf_addf(out, "%s: %.1s", name, brackets); /* the error sticks, here and below */
    for (size_t i = 0; i < value.len && i < ADDRESS_MAX; i++) {
        char c = value.ptr[i];

        (void)buf_add_byte(out, c == '\n' || c == '\r' || c == '\0' ? ' ' : c);
    }
    (void)buf_addf(out, "%s\n", brackets[0] == '\0' ? "" : brackets + 1);
}

void mail_file_put_header(struct buf *out, const struct mail_copy *copy)
{
    put_field(out, "Return-Path", copy->sender, "<>");
    put_field(out, "Delivered-To", copy->recipient, "");
}

int mail_file_flush(int fd, struct buf *out)
{
    while (buf_len(out) > 0) {
        struct slice bytes = buf_slice(out);
        ssize_t n = write(fd, bytes.ptr, bytes.len);

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        buf_consume(out, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

/* A file during writing. */
struct mail_writer {
    int fd;
    struct buf lines; /* lines before the filter; unused without one */
    struct buf out;
    mail_filter *filter;
    void *filter_arg;
};

static void pass_lines(struct mail_writer *w, bool last)
{
    if (w->filter != NULL) {
        w->filter(w->filter_arg, buf_slice(&w->lines), last, &w->out);
        buf_clear(&w->lines);
    }
}

static int add_piece(struct mail_writer *w, struct unixlines *u, struct slice piece)
{
    int rc = 0;

    while (rc == 0 && piece.len > 0) {
        size_t len = piece.len < CHUNK_MAX ? piece.len : CHUNK_MAX;

        unixlines_add(u, slice_of(piece.ptr, len), w->filter == NULL ? &w->out : &w->lines);
        piece = slice_skip(piece, len);
        pass_lines(w, false);
        rc = buf_len(&w->out) < CHUNK_MAX ? 0 : mail_file_flush(w->fd, &w->out);
    }
    return rc;
}

int mail_file_write(int fd, struct slice head, mail_filter *filter, void *filter_arg,
                    mail_read *read, void *read_arg)
{
    struct mail_writer w = {.fd = fd, .filter = filter, .filter_arg = filter_arg};
    struct unixlines u;
    struct slice piece;
    int rc, more;

    unixlines_init(&u);
    buf_init(&w.lines, CHUNK_MAX + 2);
    buf_init(&w.out, head.len + (size_t)4 * CHUNK_MAX + 4096);
    rc = buf_add(&w.out, head) ? 0 : -ENOMEM;
    while (rc == 0 && (more = read(read_arg, &piece)) != 0) {
        rc = more < 0 ? more : add_piece(&w, &u, piece);
    }
    if (rc == 0) {
        unixlines_end(&u, filter == NULL ? &w.out : &w.lines);
        pass_lines(&w, true);
        rc = w.out.failed || w.lines.failed ? -ENOMEM : mail_file_flush(fd, &w.out);
    }
    buf_fini(&w.lines);
    buf_fini(&w.out);
    return rc;
}

int mail_file_sync_directory(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == EBADF ? 0 : -errno;
}

struct status mail_file_status(int error, struct status otherwise)
{
    switch (error < 0 ? -error : error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return (struct status){STATUS_TRANSIENT, 2, 2};
    case ENAMETOOLONG:
        return (struct status){STATUS_PERMANENT, 1, 1};
    default:
        return otherwise;
    }
}

int mail_file_as_input(struct slice head, mail_read *read, void *arg)
{
    int fd = memfd_create("message", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : mail_file_write(fd, head, NULL, NULL, read, arg);

    return rc != 0 || (lseek(fd, 0, SEEK_SET) == 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO)
               ? rc
               : -errno;
}
