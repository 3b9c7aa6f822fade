/*
 * Postfix's queue directory: the places of files, and the renames, times and modes that are their
 * state. queue_file.h describes their content.
 *
 *     incoming/ID   new mail from cleanup(8); also mail to try at once
 *     active/ID     mail that the queue manager has
 *     deferred/ID   mail that waits; its modification time is the earliest next attempt
 *     hold/ID       mail that an operator has put on hold: read only by searches
 *     corrupt/ID    damaged files: only moved there
 *     bounce/ID, defer/ID, trace/ID   the logs of bounce(8) for its reports
 *
 * Some of these are hashed (hash_queue_names, hash_queue_depth): deferred/4/4A1.. Paths are
 * computed from the id. A scan does not depend on the parameters: it enters each directory whose
 * name is one character.
 *
 *               take                           queue_dir_move
 *   incoming -----------> active ------------> deferred    (queue_dir_set_time first)
 *   deferred ---^            |    -----------> corrupt
 *                            |    -----------> incoming    (lock conflict; all files at a start)
 *                            `--- queue_dir_remove
 *
 * cleanup, postsuper, flush, bounce and agents work in the same directory at any time: a file may
 * be gone at each call, which is -ENOENT and no error. No fact about a file is kept from one call
 * to the next. A file that is still being written does not have the mode 0700, and is not read.
 *
 * Nothing is synced, as in Postfix: a rename that a power failure undoes is repeated, and a file
 * that reappears after its removal has its recipients marked, as far as agents have synced.
 */
#ifndef POSTFIX_QUEUE_DIR_H
#define POSTFIX_QUEUE_DIR_H

#include <dirent.h>
#include <sys/types.h>

#include "buf.h"
#include "queue_file.h"
#include "slice.h"
#include "spool_io.h"
#include "times.h"

#define QUEUE_ID_MAX         255
#define QUEUE_DIR_DEPTH_MAX  64 /* limit of the hash's depth */
#define QUEUE_DIR_PATH_MAX   (16 + 2 * QUEUE_DIR_DEPTH_MAX + QUEUE_ID_MAX + 1) /* with its NUL */
#define QUEUE_DIR_SLACK_S    1  /* a file is due so early, as in Postfix */
#define QUEUE_DIR_LOCKED_S   60 /* pause before a locked file is tried again */
#define QUEUE_DIR_HASH_NAMES "deferred, defer"
#define QUEUE_DIR_HASH_DEPTH 1

enum queue_dir_name {
    QUEUE_DIR_INCOMING,
    QUEUE_DIR_ACTIVE,
    QUEUE_DIR_DEFERRED,
    QUEUE_DIR_HOLD,
    QUEUE_DIR_CORRUPT,
    QUEUE_DIR_BOUNCE,
    QUEUE_DIR_DEFER,
    QUEUE_DIR_TRACE,
    QUEUE_DIR_MAILDROP, /* of pickup(8): files are moved there, and never read */
    QUEUE_DIRS,
};

/* An open queue directory; may be copied. Fields are private to queue_dir.c. */
struct queue_dir {
    int fd; /* owned */
    const struct spool_io *io;
    unsigned hashed; /* bits 1 << enum queue_dir_name */
    unsigned depth;
};

struct queue_dir_options {
    const char *hash_queue_names; /* separated by commas or blanks; NULL = Postfix's default */
    int hash_queue_depth;         /* 1 .. QUEUE_DIR_DEPTH_MAX; 0 = Postfix's default */
    const struct spool_io *io;    /* borrowed; NULL = the real system calls */
};

/* Opens the queue directory `path`. Ignores names of queues that are not in it (flush, ..). On
 * failure *ret_error has the cause: a missing directory, or an invalid depth. */
int queue_dir_open(struct queue_dir *d, const char *path, const struct queue_dir_options *options,
                   struct buf *ret_error);
void queue_dir_close(struct queue_dir *d);

/* Returns a queue's name, "incoming" etc. */
const char *queue_dir_word(enum queue_dir_name which);

/* Is it a queue id: 1 to 255 letters, digits and underscores? Files with other names are
 * incomplete. */
bool queue_id_ok(struct slice id);

/* Sets the hash depth of a queue, in place of that of the options. */
void queue_dir_hash(struct queue_dir *d, enum queue_dir_name which, unsigned depth);

/* Builds the path of an id's file, below the queue directory. The id must be valid
 * (queue_id_ok). */
void queue_dir_path(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX]);

/* ---- one file ---- */

struct queue_dir_file {
    mode_t mode;
    uint64_t size;
    uint64_t links;
    struct wall modified; /* in incoming/ and deferred/ the earliest next attempt; whole seconds */
    uid_t owner;
    /* No program has set its time since it was written: programs that defer a file or move it back
     * set whole seconds (utime(2)). But a later write makes it look new again, and on a file system
     * without fractions of a second no file looks new. */
    bool is_new;
};

/* Reads the facts about a file; -ENOENT if there is none. Never follows a symbolic link. */
int queue_dir_stat(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   struct queue_dir_file *ret_file);

/* Is it complete, a regular file, and not marked corrupt by an agent? */
bool queue_dir_usable(const struct queue_dir_file *file);
/* Was it flushed by postqueue -i? Then its destinations are revived, and defer_transports does not
 * apply. */
bool queue_dir_flushed(const struct queue_dir_file *file);
/* Must it expire, by postsuper -e or -f? */
bool queue_dir_force_expire(const struct queue_dir_file *file);

/* Renames a file, and creates missing hash directories. */
int queue_dir_move(const struct queue_dir *d, struct slice id, enum queue_dir_name from,
                   enum queue_dir_name to);
/* Sets both time stamps, to whole seconds. */
int queue_dir_set_time(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                       struct wall when);
int queue_dir_remove(const struct queue_dir *d, enum queue_dir_name which, struct slice id);

/* Opens a file for reading or, with O_RDWR, for marks; the caller closes *ret_fd. */
int queue_dir_open_file(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        int flags, int *ret_fd);

/* Writes a mark. Returns 0 if it was already there, too; -EBADMSG if the file has other bytes
 * there. */
int queue_dir_mark(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   const struct queue_file_mark *mark);
/* Reads the type byte of a recipient's record: 'R' to be tried again, 'D' done. */
int queue_dir_rcpt_type(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        uint64_t offset, char *ret_type);

/* ---- taking a file into the active queue ---- */

enum queue_dir_take {
    QUEUE_DIR_TAKEN,   /* *ret_fd is open for reading and marks, and locked; the caller must close
                        * it before agents or bounce(8) get the message */
    QUEUE_DIR_SKIPPED, /* not usable, or gone */
    QUEUE_DIR_NOT_DUE, /* too early: *ret_file has its time */
    QUEUE_DIR_RACED,   /* it was there, but gone at the rename or the open */
    QUEUE_DIR_LOCKED,  /* an agent of the previous manager has it: moved back to incoming/, due in
                        * QUEUE_DIR_LOCKED_S */
    QUEUE_DIR_FAILED,  /* *ret_error has the cause; it is in its queue, or in active/ */
};

/* Takes `id` from incoming/ or deferred/ into active/. `any_time`: even before its time. */
enum queue_dir_take queue_dir_take(const struct queue_dir *d, enum queue_dir_name from,
                                   struct slice id, struct wall now, bool any_time, int *ret_fd,
                                   struct queue_dir_file *ret_file, int *ret_error);

/* Clears the bit of postqueue -i, after the file was read successfully. */
int queue_dir_clear_flushed(const struct queue_dir *d, int fd, const struct queue_dir_file *file);

/* Sets the bit of postsuper -e. */
int queue_dir_set_force_expire(const struct queue_dir *d, int fd,
                               const struct queue_dir_file *file);

/* ---- looking through a queue ---- */

/* Fields are private to queue_dir.c. */
struct queue_scan {
    const struct queue_dir *dir; /* borrowed */
    enum queue_dir_name which;
    bool starts;
    unsigned level;                     /* number of open directories */
    DIR *open[QUEUE_DIR_DEPTH_MAX + 1]; /* owned */
    char path[QUEUE_DIR_PATH_MAX];      /* path of the innermost, with a slash */
    unsigned path_len[QUEUE_DIR_DEPTH_MAX + 1];
};

enum queue_scan_found {
    QUEUE_SCAN_ID,    /* a name that is a queue id */
    QUEUE_SCAN_OTHER, /* another name, in ret_name, cut if it is long */
    QUEUE_SCAN_MORE,  /* none within the allowed entries: call again */
    QUEUE_SCAN_END,
    QUEUE_SCAN_FAILED, /* a directory can't be read, *ret_error; the scan continues with the next
                        * one */
};

/* Begins a scan. Files that arrive or leave meanwhile may be found or not; each that stays is found
 * once. Memory is one directory stream per hash level, whatever the size of the queue. */
void queue_scan_begin(struct queue_scan *scan, const struct queue_dir *d,
                      enum queue_dir_name which);
/* Finds the next name, reading at most `entries` entries. */
enum queue_scan_found queue_scan_next(struct queue_scan *scan, unsigned entries,
                                      char ret_name[QUEUE_ID_MAX + 1], int *ret_error);
/* Builds the path of the name that was found last, below the queue directory: a scan finds files
 * with any hash depth. */
void queue_scan_path(const struct queue_scan *scan, const char *name,
                     char ret_path[QUEUE_DIR_PATH_MAX]);
/* Ends a scan at any time; may be called again. */
void queue_scan_end(struct queue_scan *scan);

/* ---- start ---- */

/* Receives a warning for the log, which lasts for the call. */
typedef void queue_dir_told(void *context, const char *line);

/* Moves the files of the previous manager from active/ to incoming/, due at `now`. *ret_count is
 * their number; files that can't be moved are reported, and stay. */
int queue_dir_restart(const struct queue_dir *d, struct wall now, queue_dir_told *told,
                      void *context, size_t *ret_count);

#endif
