/*
 * The system calls that the spool makes for itself: its lock, and content outside the database.
 *
 * They are a table, so that tests can fail call 1, 2, 3 ... and cut the power between them. Each
 * function is the system call of its name, but returns -errno instead of -1 and errno. (SQLite
 * makes its system calls through its VFS, which tests replace, too.)
 */
#ifndef SPOOL_SPOOL_IO_H
#define SPOOL_SPOOL_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "checksum.h"

struct spool_io {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*write)(int fd, const void *bytes, size_t len);
    ssize_t (*pread)(int fd, void *bytes, size_t len, uint64_t at);
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    int (*fstat_size)(int fd, uint64_t *ret_size); /* fstat, reduced to st_size */
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    /* The rest is mainly for engines that work from directories: all their calls that change a
     * disk. */
    int (*openat)(int dir, const char *path, int flags, mode_t mode);
    ssize_t (*pwrite)(int fd, const void *bytes, size_t len, uint64_t at);
    int (*renameat)(int from_dir, const char *from, int to_dir, const char *to);
    int (*unlinkat)(int dir, const char *path);
    int (*mkdirat)(int dir, const char *path, mode_t mode);
    int (*ftruncate)(int fd, uint64_t size);
    int (*utimensat)(int dir, const char *path, const struct timespec times[2], int flags);
    int (*fchmod)(int fd, mode_t mode);
    int (*syncfs)(int fd);
};

extern const struct spool_io spool_io_real;

/* Writes `len` bytes: all of them, or returns an error. */
int spool_io_write_all(const struct spool_io *io, int fd, const void *bytes, size_t len);

/* Reads `len` bytes from offset `at`; -ENODATA if the file ends before. */
int spool_io_read_all(const struct spool_io *io, int fd, void *bytes, size_t len, uint64_t at);

/* Appends `len` bytes of `from`, starting at its offset 0, to `to`, and adds them to `sum`;
 * -ENODATA if `from` ends before. */
int spool_io_copy(const struct spool_io *io, int from, int to, uint64_t len, struct checksum *sum);

/* Adds the first `len` bytes of `fd` to `sum`; -ENODATA if the file ends before. */
int spool_io_sum(const struct spool_io *io, int fd, uint64_t len, struct checksum *sum);

/* Makes the names in the directory `path` durable. */
int spool_io_sync_dir(const struct spool_io *io, const char *path);

/* Creates the directory `path` (mode 0700) if it is missing, and makes it durable. */
int spool_io_make_dir(const struct spool_io *io, const char *path);

#endif
