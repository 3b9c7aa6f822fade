#include "unixlines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lines.h"

/* Written at once. A piece may be larger than that; it is cut. */
#define CHUNK_MAX 65536

int agent_write(int fd, struct buf *out)
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
            rc = agent_write(fd, out);
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
        rc = agent_write(fd, &out);
    }
    if (rc == 0 && out.failed) {
        rc = -ENOMEM;
    }
    buf_fini(&out);
    return rc;
}
