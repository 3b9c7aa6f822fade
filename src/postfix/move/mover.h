/*
 * What both directions of a move share: the queue directory of a Postfix that does not run, and a
 * directory in it in which messages stand while they are in neither queue.
 *
 * Its name is that of no queue, so Postfix looks at nothing there. A file `mark` in it says which
 * spool the move is from or to, and which batch is under way.
 */
#ifndef POSTFIX_MOVER_H
#define POSTFIX_MOVER_H

#include "queue_dir.h"
#include "spool_mover.h"

#define MOVER_PATH_MAX 400 /* of files below the queue directory, with the NUL */

/* Fields are for import.c and export.c, too. */
struct mover {
    const struct spool_move *move; /* borrowed */
    const struct spool_io *io;
    const char *stage; /* name of the directory in which messages stand meanwhile */
    struct queue_dir dir;
    int fd;      /* owned; of the queue directory */
    int lock;    /* owned; held so that Postfix does not start; -1: it was never started here */
    uid_t owner; /* of Postfix's files */
    gid_t group;
    struct spool_moved *moved; /* borrowed, as error */
    struct buf *error;
};

/* Errors as of spool_move_call. */
int mover_open(struct mover *m, const struct spool_move *move, const char *stage,
               struct spool_moved *ret_moved, struct buf *ret_error);
void mover_close(struct mover *m);

/* Keep the words for the caller; returns `err`. */
int mover_fail(struct mover *m, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Tell the operator. */
void mover_tell(struct mover *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Tell, and count it as left. */
void mover_leave(struct mover *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the stage ---- */

/* Make it, if it is missing. */
int stage_make(struct mover *m);
/* "STAGE/PREFIX.NAME" */
void stage_path(const struct mover *m, const char *name, const char *suffix,
                char ret_path[MOVER_PATH_MAX]);
/* The mark: its text; -ENOENT: there is none. */
int stage_mark_read(struct mover *m, struct buf *ret_text);
int stage_mark_write(struct mover *m, struct slice text);
/* The move is at its end: remove mark and stage. */
int stage_remove(struct mover *m);

/* The names in the stage but for the mark, and how many; freed with stage_free. None when there is
 * no stage. */
int stage_list(struct mover *m, char ***ret_names, size_t *ret_count);
void stage_free(char **names, size_t count);

/* ---- files ---- */

/* All that was written and renamed is on disk when this returns. */
int mover_sync(struct mover *m);
/* Rename `path` to where the queue has the id; directories of hashing are made. */
int mover_place(struct mover *m, const char *path, enum queue_dir_name which, struct slice id);
/* Where a log of bounce(8) is, whatever the directory is hashed by. False: there is none. */
bool mover_find_log(struct mover *m, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX]);
/* Remove; it may be gone. */
int mover_remove(struct mover *m, const char *path);
/* A file of Postfix's owner, mode 0600, for writing; what was there is emptied. */
int mover_create(struct mover *m, const char *path, int *ret_fd);

#endif
