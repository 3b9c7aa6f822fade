/*
 * Common code of both directions of a move: the queue directory of a Postfix that does not run, and
 * the stage, a directory in it that holds messages while they are in neither queue.
 *
 * The stage has a name that Postfix does not use, so Postfix never reads it. A file `mark` in the
 * stage names the spool and the current batch.
 */
#ifndef POSTFIX_MOVER_H
#define POSTFIX_MOVER_H

#include "queue_dir.h"
#include "spool_mover.h"

#define MOVER_PATH_MAX 400 /* size of paths below the queue directory, with the NUL */

/* Fields are for import.c and export.c, too. */
struct mover {
    const struct spool_move *move; /* borrowed */
    const struct spool_io *io;
    const char *stage; /* name of the stage */
    struct queue_dir dir;
    int fd;      /* owned; descriptor of the queue directory */
    int lock;    /* owned; lock that prevents a start of Postfix; -1 = Postfix was never started
                  * here */
    uid_t owner; /* owner of Postfix's files */
    gid_t group;
    struct spool_moved *moved; /* borrowed, as error */
    struct buf *error;
};

/* Opens the queue directory and locks it. Errors as of spool_move_call. */
int mover_open(struct mover *m, const struct spool_move *move, const char *stage,
               struct spool_moved *ret_moved, struct buf *ret_error);
void mover_close(struct mover *m);

/* Stores the text for the caller; returns `err`. */
int mover_fail(struct mover *m, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reports a line to the operator. */
void mover_tell(struct mover *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reports a line to the operator, and counts a message as left. */
void mover_leave(struct mover *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the stage ---- */

/* Creates the stage if it is missing. */
int stage_make(struct mover *m);
/* Builds the path "STAGE/NAME" or, with a suffix, "STAGE/NAME.SUFFIX". */
void stage_path(const struct mover *m, const char *name, const char *suffix,
                char ret_path[MOVER_PATH_MAX]);
/* Reads the text of the mark; -ENOENT if there is none. */
int stage_mark_read(struct mover *m, struct buf *ret_text);
int stage_mark_write(struct mover *m, struct slice text);
/* Removes mark and stage at the end of the move. */
int stage_remove(struct mover *m);

/* Lists the names in the stage, except the mark; stage_free frees the list. It is empty if there is
 * no stage. */
int stage_list(struct mover *m, char ***ret_names, size_t *ret_count);
void stage_free(char **names, size_t count);

/* ---- files ---- */

/* Syncs everything that was written and renamed. */
int mover_sync(struct mover *m);
/* Renames `path` to its place in the queue, and creates directories of the hash. */
int mover_place(struct mover *m, const char *path, enum queue_dir_name which, struct slice id);
/* Finds a log of bounce(8), with any depth of the hash. Returns false if there is none. */
bool mover_find_log(struct mover *m, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX]);
/* Removes a file, which may be missing. */
int mover_remove(struct mover *m, const char *path);
/* Creates an empty file with Postfix's owner and mode 0600, or empties an existing one, and opens
 * it for writing. */
int mover_create(struct mover *m, const char *path, int *ret_fd);

#endif
