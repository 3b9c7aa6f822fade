/*
 * The system calls that the spool makes for itself: its lock, and content beside the database.
 *
 * A table, so that tests can fail call 1, 2, 3 ... and cut the power between them. Each function is
 * the system call of its name, but returns -errno instead of -1 and errno. (The database has such a
 * table of its own, SQLite's VFS; tests replace the default one.)
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
    int (*fstat_size)(int fd, uint64_t *ret_size); /* fstat, of which only st_size is wanted */
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, mode_t mode);
    /* Of engines that work from directories; these are all their calls that change a disk. */
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

/* `len` bytes, all of them or an error. */
int spool_io_write_all(const struct spool_io *io, int fd, const void *bytes, size_t len);

/* `len` bytes from offset `at`; -ENODATA when the file ends before. */
int spool_io_read_all(const struct spool_io *io, int fd, void *bytes, size_t len, uint64_t at);

/* Append `len` bytes of `from`, starting at its offset 0, to `to`, and add them to `sum`; -ENODATA
 * when `from` ends before. */
int spool_io_copy(const struct spool_io *io, int from, int to, uint64_t len, struct checksum *sum);

/* Add the first `len` bytes of `fd` to `sum`; -ENODATA when it ends before. */
int spool_io_sum(const struct spool_io *io, int fd, uint64_t len, struct checksum *sum);

/* Make the names in the directory `path` durable. */
int spool_io_sync_dir(const struct spool_io *io, const char *path);

/* The directory `path` is there (mode 0700 when it had to be made), durably. */
int spool_io_make_dir(const struct spool_io *io, const char *path);

#endif
