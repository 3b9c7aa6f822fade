/*
 * Part of a spool: a file in which a sender follows a message.
 *
 * For stores in which a message can name such a file (the `v` line of a control file). It is no
 * record: nothing depends on it.
 */
#ifndef SPOOL_SPOOL_VERBOSE_H
#define SPOOL_SPOOL_VERBOSE_H

#include "spool.h"

/* Add a line to the file that the sender has asked to follow the message in. Where there is none,
 * or it can't be written as its owner, or the engine lacks the part, nothing happens. Inside a
 * batch or outside, at once; not undone with the batch. */
void spool_verbose(struct spool *sp, struct msg_id id, struct slice line);

/* The part, as spool_engine.h wants it. */
struct spool_verbose_part {
    void (*add)(struct spool *sp, struct msg_id id, struct slice line);
};

#endif
