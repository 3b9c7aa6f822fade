#include "spool_io.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"

#define COPY_CHUNK ((size_t)1 << 18) /* bytes per read and write */

static int real_open(const char *path, int flags, mode_t mode)
{
    int fd = open(path, flags | O_CLOEXEC, mode);

    return fd < 0 ? -errno : fd;
}

static int real_close(int fd)
{
    return close(fd) != 0 ? -errno : 0;
}

static ssize_t real_write(int fd, const void *bytes, size_t len)
{
    ssize_t n = write(fd, bytes, len);

    return n < 0 ? -errno : n;
}

static ssize_t real_pread(int fd, void *bytes, size_t len, uint64_t at)
{
    ssize_t n = pread(fd, bytes, len, (off_t)at);

    return n < 0 ? -errno : n;
}

static int real_fsync(int fd)
{
    return fsync(fd) != 0 ? -errno : 0;
}

static int real_fdatasync(int fd)
{
    return fdatasync(fd) != 0 ? -errno : 0;
}

static int real_fstat_size(int fd, uint64_t *ret_size)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

static int real_unlink(const char *path)
{
    return unlink(path) != 0 ? -errno : 0;
}

static int real_mkdir(const char *path, mode_t mode)
{
    return mkdir(path, mode) != 0 ? -errno : 0;
}

static int real_openat(int dir, const char *path, int flags, mode_t mode)
{
    int fd = openat(dir, path, flags | O_CLOEXEC, mode);

    return fd < 0 ? -errno : fd;
}

static ssize_t real_pwrite(int fd, const void *bytes, size_t len, uint64_t at)
{
    ssize_t n = pwrite(fd, bytes, len, (off_t)at);

    return n < 0 ? -errno : n;
}

static int real_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return renameat(from_dir, from, to_dir, to) != 0 ? -errno : 0;
}

static int real_unlinkat(int dir, const char *path)
{
    return unlinkat(dir, path, 0) != 0 ? -errno : 0;
}

static int real_mkdirat(int dir, const char *path, mode_t mode)
{
    return mkdirat(dir, path, mode) != 0 ? -errno : 0;
}

static int real_ftruncate(int fd, uint64_t size)
{
    return ftruncate(fd, (off_t)size) != 0 ? -errno : 0;
}

static int real_utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    return utimensat(dir, path, times, flags) != 0 ? -errno : 0;
}

static int real_syncfs(int fd)
{
    return syncfs(fd) == 0 ? 0 : -errno;
}

static int real_fchmod(int fd, mode_t mode)
{
    return fchmod(fd, mode) != 0 ? -errno : 0;
}

const struct spool_io spool_io_real = {
    .open = real_open,
    .close = real_close,
    .write = real_write,
    .pread = real_pread,
    .fsync = real_fsync,
    .fdatasync = real_fdatasync,
    .fstat_size = real_fstat_size,
    .unlink = real_unlink,
    .mkdir = real_mkdir,
    .openat = real_openat,
    .pwrite = real_pwrite,
    .renameat = real_renameat,
    .unlinkat = real_unlinkat,
    .mkdirat = real_mkdirat,
    .ftruncate = real_ftruncate,
    .utimensat = real_utimensat,
    .fchmod = real_fchmod,
    .syncfs = real_syncfs,
};

int spool_io_write_all(const struct spool_io *io, int fd, const void *bytes, size_t len)
{
    const char *p = bytes;

    while (len > 0) {
        ssize_t n = io->write(fd, p, len);

        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? (int)n : -EIO;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int spool_io_read_all(const struct spool_io *io, int fd, void *bytes, size_t len, uint64_t at)
{
    char *p = bytes;

    while (len > 0) {
        ssize_t n = io->pread(fd, p, len, at);

        if (n == -EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? (int)n : -ENODATA;
        }
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

/* Reads `from` in pieces, adds them to `sum` and, unless `to` is -1, appends them to `to`. */
static int pass_on(const struct spool_io *io, int from, int to, uint64_t len, struct checksum *sum)
{
    char *chunk = mem_new(COPY_CHUNK);
    uint64_t at = 0;
    int err = 0;

    while (err == 0 && at < len) {
        size_t part = len - at < COPY_CHUNK ? (size_t)(len - at) : COPY_CHUNK;

        err = spool_io_read_all(io, from, chunk, part, at);
        if (err == 0) {
            checksum_add(sum, slice_of(chunk, part));
        }
        if (err == 0 && to >= 0) {
            err = spool_io_write_all(io, to, chunk, part);
        }
        at += part;
    }
    mem_free(chunk);
    return err;
}

int spool_io_sync_dir(const struct spool_io *io, const char *path)
{
    int fd = io->open(path, O_RDONLY | O_DIRECTORY, 0);
    int err = fd < 0 ? fd : io->fsync(fd);

    if (fd >= 0) {
        (void)io->close(fd); /* opened for reading */
    }
    return err;
}

int spool_io_make_dir(const struct spool_io *io, const char *path)
{
    int err = io->mkdir(path, 0700);
    char *copy;

    if (err != 0 && err != -EEXIST) {
        return err;
    }
    /* An existing directory is synced, too: the process that made it may have died before its
     * sync. */
    copy = mem_string(path);
    err = spool_io_sync_dir(io, dirname(copy));
    mem_free(copy);
    return err;
}

int spool_io_copy(const struct spool_io *io, int from, int to, uint64_t len, struct checksum *sum)
{
    return pass_on(io, from, to, len, sum);
}

int spool_io_sum(const struct spool_io *io, int fd, uint64_t len, struct checksum *sum)
{
    return pass_on(io, fd, -1, len, sum);
}
