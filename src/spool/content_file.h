/*
 * Content beside the database: one file per message in one directory, named by the queue id.
 *
 * A file exists on disk before the row that names it and is removed after that row is gone:
 *
 *      content_write      file written, not synced        a crash leaves an orphan
 *      content_sync       files and directory synced      a crash leaves an orphan
 *      (commit)           the row names the file
 *      content_doom       (nothing yet)
 *      (commit)           the row is gone                 a crash leaves an orphan
 *      content_committed  file removed
 *
 * Orphans do no harm and are removed by content_sweep when the spool is opened for writing. The
 * directory is flat: a batch then needs one directory sync, and ext4, XFS and Btrfs find a name
 * among a million in one step. It is made when the first file is needed.
 *
 * Names are never used twice, because ids are not, so no rename is needed: a file without a row
 * is not read.
 */
#ifndef SPOOL_CONTENT_FILE_H
#define SPOOL_CONTENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"
#include "spool.h"
#include "spool_io.h"

/* Files of one batch that are kept open for its sync; when there are more, some are
 * synced early. */
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
    int fds[CONTENT_OPEN_MAX]; /* written, not synced yet */
    size_t fd_count;
    struct content_list made;   /* in this batch */
    struct content_list doomed; /* to be removed once the batch is durable */
    size_t in_doubt; /* the first of them: of commits that failed, whatever the batch does */
};

/* `dir` is copied. Touches nothing. */
void content_files_init(struct content_files *cf, const struct spool_io *io, const char *dir);

/* Closes; removes nothing. */
void content_files_fini(struct content_files *cf);

/* Write the file of `id`; *ret_sum is the checksum of all of it. On an error no file is left and
 * nothing else has changed. */
int content_files_write(struct content_files *cf, struct msg_id id, struct slice prefix,
                        const struct spool_content *content, uint64_t *ret_sum);

/* Make all files of the batch durable. */
int content_files_sync(struct content_files *cf);

/* The file of `id` is to go when the batch is committed. */
void content_files_doom(struct content_files *cf, struct msg_id id);

/* The batch is durable: remove what is doomed. A file that can't be removed becomes an orphan. */
void content_files_committed(struct content_files *cf);

/* The batch was undone. With `in_doubt` (the commit itself failed, and might yet turn out durable
 * after a crash) its files stay until a later commit says that it did not. */
void content_files_undone(struct content_files *cf, bool in_doubt);

/* Open the file of `id` for reading. -EBADMSG: missing, or not `size` bytes long. */
int content_files_read(struct content_files *cf, struct msg_id id, uint64_t size, int *ret_fd);

/* Make removals durable. */
int content_files_sync_dir(struct content_files *cf);

/* Is there any file in the directory that this program could have made? */
bool content_files_are_there(const struct content_files *cf);

/* Remove each file named by an id for which `wanted` says 0; 1 = keep, negative = stop with that
 * error. Other names are left alone. */
int content_files_sweep(struct content_files *cf, int (*wanted)(void *context, struct msg_id id),
                        void *context);

#endif
