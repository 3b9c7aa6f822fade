/*
 * Postfix's queue directory: which file is where, and the renames, times and modes that are its
 * state. queue_file.h has what is in the files.
 *
 *     incoming/ID   new mail, of cleanup(8); also mail that is to be tried at once
 *     active/ID     mail that the queue manager has
 *     deferred/ID   mail that waits; its modification time is when it may be tried
 *     hold/ID       mail that an operator keeps: never looked at
 *     corrupt/ID    damaged files: only moved there
 *     bounce/ID, defer/ID, trace/ID   what bounce(8) has to report of it
 *
 * Some of them are hashed (hash_queue_names, hash_queue_depth): deferred/4/4A1.. Paths are computed
 * from the id; a scan trusts no parameter and enters each directory whose name is one character.
 *
 *               take                           queue_dir_move
 *   incoming -----------> active ------------> deferred    (queue_dir_set_time first)
 *   deferred ---^            |    -----------> corrupt
 *                            |    -----------> incoming    (lock conflict; each at a start)
 *                            `--- queue_dir_remove
 *
 * cleanup, postsuper, flush, bounce and agents work in the same directory at any time: a file may
 * be gone at each call, which is -ENOENT and no fault. Nothing that was seen of a file is kept from
 * one call to the next. A file that is being written has not the mode 0700, and is not looked into.
 *
 * Nothing is synced, as in Postfix: a rename that a power failure undoes is made again, and a file
 * that comes back after it was removed has its recipients marked, as far as agents have synced.
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
#define QUEUE_DIR_DEPTH_MAX  16                                                /* of hashing */
#define QUEUE_DIR_PATH_MAX   (16 + 2 * QUEUE_DIR_DEPTH_MAX + QUEUE_ID_MAX + 1) /* with its NUL */
#define QUEUE_DIR_LOCKED_S   60 /* a file that an agent still has is tried again after */
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
    QUEUE_DIR_MAILDROP, /* pickup(8)'s: files are put there, and not looked for */
    QUEUE_DIRS,
};

/* A plain value; fields are private to queue_dir.c. */
struct queue_dir {
    int fd; /* owned */
    const struct spool_io *io;
    unsigned hashed; /* bit 1 << enum queue_dir_name */
    unsigned depth;
};

struct queue_dir_options {
    const char *hash_queue_names; /* separated by commas or blanks; NULL = Postfix's default */
    int hash_queue_depth;         /* 1 .. QUEUE_DIR_DEPTH_MAX; 0 = Postfix's default */
    const struct spool_io *io;    /* borrowed; NULL = the real one */
};

/* Open queue_directory `path`. Names of queues that are not in it (flush, ..) are left out. On
 * failure *ret_error says what and where: a directory that is missing, or a depth. */
int queue_dir_open(struct queue_dir *d, const char *path, const struct queue_dir_options *options,
                   struct buf *ret_error);
void queue_dir_close(struct queue_dir *d);

/* "incoming" .. */
const char *queue_dir_word(enum queue_dir_name which);

/* Is it a queue id: 1 to 255 letters, digits and underscores? All others are files on their way. */
bool queue_id_ok(struct slice id);

/* Look for the files of this queue below `depth` directories, whatever the options said. */
void queue_dir_hash(struct queue_dir *d, enum queue_dir_name which, unsigned depth);

/* Where the file of an id is, below the queue directory. The id is one (queue_id_ok). */
void queue_dir_path(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                    char ret_path[QUEUE_DIR_PATH_MAX]);

/* ---- one file ---- */

struct queue_dir_file {
    mode_t mode;
    uint64_t size;
    uint64_t links;
    struct wall modified; /* the earliest next attempt, in incoming and deferred; whole seconds */
    uid_t owner;
    /* No program has set its time since it was written: who defers a file or moves it back does
     * that by whole seconds (utime(2)). But a later write makes it look new again, and on a file
     * system that has no parts of a second none is. */
    bool is_new;
};

/* What is there now, -ENOENT when nothing is. Never follows a symbolic link. */
int queue_dir_stat(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   struct queue_dir_file *ret_file);

/* Complete, a regular file, and not marked corrupt by an agent. */
bool queue_dir_usable(const struct queue_dir_file *file);
/* Asked for by postqueue -i: its destinations are revived, defer_transports does not hold. */
bool queue_dir_flushed(const struct queue_dir_file *file);
/* To be given up, by postsuper -e or -f. */
bool queue_dir_force_expire(const struct queue_dir_file *file);

/* Rename, and make the directories of hashing when they are missing. */
int queue_dir_move(const struct queue_dir *d, struct slice id, enum queue_dir_name from,
                   enum queue_dir_name to);
/* Set both time stamps, to whole seconds. */
int queue_dir_set_time(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                       struct wall when);
int queue_dir_remove(const struct queue_dir *d, enum queue_dir_name which, struct slice id);

/* Open for reading or, with O_RDWR, for marks; the caller closes *ret_fd. */
int queue_dir_open_file(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        int flags, int *ret_fd);

/* Write a mark. 0 also when it is there already; -EBADMSG when the file has other bytes there. */
int queue_dir_mark(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                   const struct queue_file_mark *mark);
/* The type byte of a recipient's record: 'R' to be tried again, 'D' done. */
int queue_dir_rcpt_type(const struct queue_dir *d, enum queue_dir_name which, struct slice id,
                        uint64_t offset, char *ret_type);

/* ---- taking a file into the active queue ---- */

enum queue_dir_take {
    QUEUE_DIR_TAKEN,   /* *ret_fd is open for reading and marks, and locked; the caller closes it
                          before agents or bounce(8) hear of the message */
    QUEUE_DIR_SKIPPED, /* not usable, not due, or gone */
    QUEUE_DIR_RACED,   /* it was there, and its rename or open found it gone */
    QUEUE_DIR_LOCKED,  /* an agent of a manager before this one has it: back in incoming, due in
                          QUEUE_DIR_LOCKED_S */
    QUEUE_DIR_FAILED,  /* *ret_error says why; it is where it was, or in active/ */
};

/* Take `id` from incoming/ or deferred/. `any_time`: also before its time has come. */
enum queue_dir_take queue_dir_take(const struct queue_dir *d, enum queue_dir_name from,
                                   struct slice id, struct wall now, bool any_time, int *ret_fd,
                                   struct queue_dir_file *ret_file, int *ret_error);

/* The file has proved readable: the wish of postqueue -i is taken. */
int queue_dir_clear_flushed(const struct queue_dir *d, int fd, const struct queue_dir_file *file);

/* What postsuper -e does. */
int queue_dir_set_force_expire(const struct queue_dir *d, int fd,
                               const struct queue_dir_file *file);

/* ---- looking through a queue ---- */

/* Fields are private to queue_dir.c. */
struct queue_scan {
    const struct queue_dir *dir; /* borrowed */
    enum queue_dir_name which;
    bool starts;
    unsigned level;                     /* directories that are open */
    DIR *open[QUEUE_DIR_DEPTH_MAX + 1]; /* owned */
    char path[QUEUE_DIR_PATH_MAX];      /* of the innermost, with a slash */
    unsigned path_len[QUEUE_DIR_DEPTH_MAX + 1];
};

enum queue_scan_found {
    QUEUE_SCAN_ID,    /* a name that is a queue id */
    QUEUE_SCAN_OTHER, /* a name that is none, in ret_name, cut if it is long */
    QUEUE_SCAN_MORE,  /* nothing in as many entries as were allowed: call again */
    QUEUE_SCAN_END,
    QUEUE_SCAN_FAILED, /* a directory can't be read, *ret_error; the scan goes on behind it */
};

/* Files that come or go meanwhile may be found or not; each that stays is found once. Memory is one
 * directory stream per level of hashing, whatever the queue has. */
void queue_scan_begin(struct queue_scan *scan, const struct queue_dir *d,
                      enum queue_dir_name which);
/* The next name, after reading at most `entries`. */
enum queue_scan_found queue_scan_next(struct queue_scan *scan, unsigned entries,
                                      char ret_name[QUEUE_ID_MAX + 1], int *ret_error);
/* Where the name is that was found last, below the queue directory: a scan finds files wherever
 * they are, whatever the options say of hashing. */
void queue_scan_path(const struct queue_scan *scan, const char *name,
                     char ret_path[QUEUE_DIR_PATH_MAX]);
/* At any time; fine after the end. */
void queue_scan_end(struct queue_scan *scan);

/* ---- start ---- */

/* A line for the log, a warning. Lasts for the call. */
typedef void queue_dir_told(void *context, const char *line);

/* Move what the manager before this one had active back to incoming, due at `now`. Its number is in
 * *ret_count; what can't be moved is told, and stays. */
int queue_dir_restart(const struct queue_dir *d, struct wall now, queue_dir_told *told,
                      void *context, size_t *ret_count);

#endif
