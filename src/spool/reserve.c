#include "reserve.h"

#include <fcntl.h>
#include <string.h>

#include "mem.h"

#define PIECE (1u << 20)

void reserve_init(struct reserve *r, const struct spool_io *io, const char *path)
{
    *r = (struct reserve){.io = io, .path = mem_string(path)};
}

void reserve_fini(struct reserve *r)
{
    mem_free(r->path);
    r->path = NULL;
}

/* Writes pseudo-random bytes, so that the file system must find room for each. A long empty file,
 * or one of equal bytes, might not use space. */
static bool write_file(const struct reserve *r, int fd)
{
    char *piece = mem_new(PIECE);
    uint64_t x = 1;
    int err = 0;

    for (size_t i = 0; i < PIECE; i += sizeof x) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(piece + i, &x, sizeof x);
    }
    for (size_t at = 0; err == 0 && at < RESERVE_BYTES; at += PIECE) {
        err = spool_io_write_all(r->io, fd, piece, PIECE);
    }
    mem_free(piece);
    return err == 0;
}

void reserve_fill(struct reserve *r)
{
    uint64_t size = 0;
    int fd;

    if (r->held) {
        return;
    }
    fd = r->io->open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return;
    }
    r->held = (r->io->fstat_size(fd, &size) == 0 && size == RESERVE_BYTES) ||
              (size == 0 && write_file(r, fd));
    (void)r->io->close(fd); /* the file's content has no meaning */
    if (!r->held) {
        (void)r->io->unlink(r->path); /* half a reserve only takes up space; if this fails, the file
                                       * stays */
    }
}

void reserve_release(struct reserve *r)
{
    r->held = false;
    (void)r->io->unlink(r->path); /* if this fails, there is no space to free */
}
