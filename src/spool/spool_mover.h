/*
 * Moving all mail between a spool and the queue of another mail system, while neither runs. A door
 * offers it for its system; the command line finds it by that system's name.
 *
 * A move may be killed at any moment and run again: each message is then in exactly one of both, or
 * in a place of the other system's queue directory where neither of them looks and where the next
 * run finds it. Until that has ended neither system is to be started: nothing is lost or delivered
 * twice then, but what is in that place waits.
 */
#ifndef SPOOL_SPOOL_MOVER_H
#define SPOOL_SPOOL_MOVER_H

#include "spool.h"
#include "spool_io.h"

struct spool_move {
    const char *directory;     /* the other system's queue */
    const char *url;           /* of the spool */
    struct spool *spool;       /* open for writing; for a dry run for reading, or NULL */
    const struct conf *conf;   /* what the spool's daemon has */
    const struct spool_io *io; /* NULL = the real one */
    struct wall now;
    bool dry_run; /* say what would be done */

    /* A line about a message or file, without its end. */
    void (*tell)(void *context, const char *line);
    /* The class that the message will have, by what its header says; may be NULL. `content` is its
     * beginning, as much as is at hand. The name is of `room`. */
    void (*classify)(void *context, struct slice sender, struct slice client, struct slice content,
                     char room[CLASS_NAME_MAX], struct slice *ret_name,
                     enum class_source *ret_source);
    void *context;
};

struct spool_moved {
    uint64_t incoming, deferred, hold; /* messages that were moved, by where they are now */
    uint64_t rcpts;                    /* of them, those that are to be tried */
    uint64_t reports;                  /* of them, those whose end is to be reported */
    uint64_t finished;                 /* messages of a run before, brought to their end */
    uint64_t left;                     /* messages or files that were not moved, each told of */
};

/* 0, also when something was left; or negative errno, and *ret_error says why: -EBUSY (the other
 * system runs), -ENOENT (no such queue), -ENOTSUP, and what disks say. *ret_moved is set in any
 * case. */
typedef int spool_move_call(const struct spool_move *move, struct spool_moved *ret_moved,
                            struct buf *ret_error);

struct spool_mover {
    const char *system; /* "postfix" */
    spool_move_call *in, *out;
};

#define SPOOL_MOVERS_MAX 4
/* At the start of a program; `mover` lasts as long as it does. */
void spool_mover_register(const struct spool_mover *mover);
/* NULL: there is none. */
const struct spool_mover *spool_mover_find(struct slice system);

#endif
