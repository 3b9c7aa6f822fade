#include "numbered_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"

#define NAME_SIZE 32 /* eight digits, a dot and a suffix */

char *numbered_file_beside(const char *dir, const char *name)
{
    size_t size = strlen(dir) + 1 + strlen(name) + 1;
    char *path = mem_new(size);

    snprintf(path, size, "%s/%s", dir, name);
    return path;
}

char *numbered_file_path(const char *dir, uint32_t number, const char *suffix)
{
    char name[NAME_SIZE];

    snprintf(name, sizeof name, "%08x.%s", number, suffix);
    return numbered_file_beside(dir, name);
}

bool numbered_file_parse(const char *name, const char *suffix, uint32_t *ret_number)
{
    char again[NAME_SIZE];
    unsigned number;

    if (sscanf(name, "%8x.", &number) != 1 || number == 0 || number > INT32_MAX) {
        return false;
    }
    snprintf(again, sizeof again, "%08x.%s", number, suffix);
    *ret_number = number;
    return strcmp(name, again) == 0;
}

int numbered_file_open(const struct spool_io *io, const char *dir, uint32_t number,
                       const char *suffix, int flags)
{
    char *path = numbered_file_path(dir, number, suffix);
    int fd = io->open(path, flags | O_NOFOLLOW, 0600);

    mem_free(path);
    return fd;
}

int numbered_file_create(const struct spool_io *io, const char *dir, uint32_t number,
                         const char *suffix, struct slice header)
{
    int err = number > INT32_MAX ? -EMFILE : spool_io_make_dir(io, dir);
    int fd =
        err == 0 ? numbered_file_open(io, dir, number, suffix, O_RDWR | O_CREAT | O_EXCL) : err;
    char *path;

    if (fd < 0) {
        return fd;
    }
    err = spool_io_write_all(io, fd, header.ptr, header.len);
    if (err == 0) {
        err = io->fdatasync(fd);
    }
    if (err == 0) {
        err = spool_io_sync_dir(io, dir);
    }
    if (err == 0) {
        return fd;
    }
    (void)io->close(fd); /* the file is removed next */
    path = numbered_file_path(dir, number, suffix);
    (void)io->unlink(path); /* on failure the next start removes it */
    mem_free(path);
    return err;
}

bool numbered_file_keep(const struct spool_io *io, const char *dir)
{
    char *path = numbered_file_beside(dir, "keep");
    int fd = io->open(path, O_RDONLY, 0);

    mem_free(path);
    if (fd >= 0) {
        (void)io->close(fd); /* only existence counts */
    }
    return fd != -ENOENT;
}
