/*
 * Moves all mail between a spool and the queue of another mail system, while neither runs. The door
 * of that system offers it; the command line finds it by the system's name.
 *
 * A move may be killed at any moment and run again: each message is then in exactly one of both
 * queues, or in a directory of the other system's queue that neither system reads and that the next
 * run empties. Start neither system after a killed move before another run has ended: nothing would
 * be lost or delivered twice, but the mail in that directory would wait.
 */
#ifndef SPOOL_SPOOL_MOVER_H
#define SPOOL_SPOOL_MOVER_H

#include "spool.h"
#include "spool_io.h"

struct spool_move {
    const char *directory;     /* directory of the other system's queue */
    const char *url;           /* URL of the spool */
    struct spool *spool;       /* open for writing; for a dry run open for reading, or NULL */
    const struct conf *conf;   /* configuration of the spool's daemon */
    const struct spool_io *io; /* NULL = the real system calls */
    struct wall now;
    bool dry_run; /* report only what would be done */

    /* Receives a line about a message or file, without its line end. */
    void (*tell)(void *context, const char *line);
    /* Finds the class of a message by its header; may be NULL. `content` is its loaded beginning.
     * The name is stored in `room`. */
    void (*classify)(void *context, struct slice sender, struct slice client, struct slice content,
                     char room[CLASS_NAME_MAX], struct slice *ret_name,
                     enum class_source *ret_source);
    void *context;
};

struct spool_moved {
    uint64_t incoming, deferred, hold; /* number of messages moved, by their new state */
    uint64_t rcpts;                    /* number of their recipients that will be tried */
    uint64_t reports;                  /* number of their recipients that need a report */
    uint64_t finished;                 /* number of messages that an earlier run had begun and this
                                        * one finished */
    uint64_t left;                     /* number of messages or files that were not moved, each
                                        * reported by `tell` */
};

/* Returns 0, even if something was left; or negative errno with the text in *ret_error: -EBUSY (the
 * other system runs), -ENOENT (no such queue), -ENOTSUP, or an error of the disk. Sets *ret_moved
 * in any case. */
typedef int spool_move_call(const struct spool_move *move, struct spool_moved *ret_moved,
                            struct buf *ret_error);

struct spool_mover {
    const char *system; /* "postfix" */
    spool_move_call *in, *out;
};

#define SPOOL_MOVERS_MAX 4
/* Registers a mover at the start of a program; `mover` must last as long as the program. */
void spool_mover_register(const struct spool_mover *mover);
/* Returns the mover of a system; NULL if there is none. */
const struct spool_mover *spool_mover_find(struct slice system);

#endif
