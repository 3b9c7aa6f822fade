/*
 * Content outside the database: one file per message in one directory, named by the queue id.
 *
 * A file exists on disk before the row that names it, and is removed after that row is gone:
 *
 *      content_files_write      file written, not synced    a crash leaves an orphan
 *      content_files_sync       files and directory synced  a crash leaves an orphan
 *      (commit)                 the row names the file
 *      content_files_doom       (nothing yet)
 *      (commit)                 the row is gone             a crash leaves an orphan
 *      content_files_committed  file removed
 *
 * Orphans cost only space; content_files_sweep removes them when the spool is opened for writing.
 * The directory is flat: a batch then needs one sync of a directory, and ext4, XFS and Btrfs find a
 * name among a million in one step. The first file creates the directory.
 *
 * Names are never reused, because ids are not, so no rename is needed: a file without a row is not
 * read.
 */
#ifndef SPOOL_CONTENT_FILE_H
#define SPOOL_CONTENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"
#include "spool.h"
#include "spool_io.h"

/* Limit of a batch's files that stay open until its sync. Further files cause an early sync. */
#define CONTENT_OPEN_MAX 64

struct content_list {
    uint64_t *ids; /* owned */
    size_t count, size;
};

struct content_files {
    const struct spool_io *io; /* borrowed */
    char *dir;                 /* owned */
    int dir_fd;                /* -1 = not open yet */
    bool dir_changed;          /* names were added since the last sync */
    int fds[CONTENT_OPEN_MAX]; /* descriptors of files that are written and not synced yet */
    size_t fd_count;
    struct content_list made;   /* ids of files made in this batch */
    struct content_list doomed; /* ids of files to remove once the batch is durable */
    size_t in_doubt; /* number of the first `doomed` that are of failed commits and stay doomed if
                      * the batch is undone */
};

/* Sets up the struct and copies `dir`. Makes no system call. */
void content_files_init(struct content_files *cf, const struct spool_io *io, const char *dir);

/* Closes all descriptors; removes no file. */
void content_files_fini(struct content_files *cf);

/* Writes the file of `id`; *ret_sum is the checksum of all its content. On an error no file is left
 * and nothing else has changed. */
int content_files_write(struct content_files *cf, struct msg_id id, struct slice prefix,
                        const struct spool_content *content, uint64_t *ret_sum);

/* Makes all files of the batch durable. */
int content_files_sync(struct content_files *cf);

/* Marks the file of `id` for removal when the batch is committed. */
void content_files_doom(struct content_files *cf, struct msg_id id);

/* Removes the marked files after the batch became durable. A file that can't be removed becomes an
 * orphan. */
void content_files_committed(struct content_files *cf);

/* Undoes the batch's files. With `in_doubt` (the commit itself failed, and may still turn out
 * durable after a crash) they stay until a later commit has settled that they are not needed. */
void content_files_undone(struct content_files *cf, bool in_doubt);

/* Opens the file of `id` for reading. -EBADMSG: missing, or not `size` bytes long. */
int content_files_read(struct content_files *cf, struct msg_id id, uint64_t size, int *ret_fd);

/* Makes removals durable. */
int content_files_sync_dir(struct content_files *cf);

/* Does the directory contain any file that this program could have made? */
bool content_files_are_there(const struct content_files *cf);

/* Removes each file named by an id for which `wanted` returns 0; 1 keeps it, a negative value stops
 * with that error. Ignores other names. */
int content_files_sweep(struct content_files *cf, int (*wanted)(void *context, struct msg_id id),
                        void *context);

#endif
