#include "unixlines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Written at once. A piece may be larger than that; it is cut. */
#define CHUNK_MAX 65536

void unixlines_init(struct unixlines *u)
{
    *u = (struct unixlines){0};
}

static void add(struct unixlines *u, struct slice bytes, struct buf *out)
{
    if (bytes.len > 0 && buf_add(out, bytes)) {
        u->in_line = bytes.ptr[bytes.len - 1] != '\n';
    }
}

void unixlines_add(struct unixlines *u, struct slice in, struct buf *out)
{
    while (in.len > 0) {
        size_t cr;

        if (u->held_cr) {
            u->held_cr = false;
            if (in.ptr[0] != '\n') {
                add(u, SLICE("\r"), out);
            }
        }
        cr = slice_find(in, '\r');
        add(u, slice_of(in.ptr, cr), out);
        u->held_cr = cr < in.len;
        in = slice_skip(in, cr + 1);
    }
}

void unixlines_end(struct unixlines *u, struct buf *out)
{
    if (u->held_cr) {
        u->held_cr = false;
        add(u, SLICE("\r"), out);
    }
    if (u->in_line) {
        add(u, SLICE("\n"), out);
    }
}

static int write_all(int fd, struct buf *out)
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

static int convert(int fd, struct unixlines *u, struct slice piece, struct buf *out)
{
    int rc = 0;

    while (rc == 0 && piece.len > 0) {
        size_t len = piece.len < CHUNK_MAX ? piece.len : CHUNK_MAX;

        unixlines_add(u, slice_of(piece.ptr, len), out);
        piece = slice_skip(piece, len);
        if (buf_len(out) >= CHUNK_MAX) {
            rc = write_all(fd, out);
        }
    }
    return rc;
}

int unixlines_write(int fd, struct slice head, agent_read *read, void *arg)
{
    struct unixlines u;
    struct slice piece;
    struct buf out;
    int rc, more;

    unixlines_init(&u);
    buf_init(&out, head.len + 2 * CHUNK_MAX + 2);
    rc = buf_add(&out, head) ? 0 : -ENOMEM;
    while (rc == 0 && (more = read(arg, &piece)) != 0) {
        rc = more < 0 ? more : convert(fd, &u, piece, &out);
    }
    if (rc == 0) {
        unixlines_end(&u, &out);
        rc = write_all(fd, &out);
    }
    if (rc == 0 && out.failed) {
        rc = -ENOMEM;
    }
    buf_fini(&out);
    return rc;
}
