/*
 * Part of a spool: a file in which a sender follows a message.
 *
 * For stores in which a message can name such a file (the `v` line of a control file). Nothing
 * depends on its content.
 */
#ifndef SPOOL_SPOOL_VERBOSE_H
#define SPOOL_SPOOL_VERBOSE_H

#include "spool.h"

/* Appends a line to the file in which the sender follows the message. Does nothing if there is
 * none, if its owner could not write to it, or if the engine lacks this part. Inside a batch or
 * outside; takes effect at once and is not undone with the batch. */
void spool_verbose(struct spool *sp, struct msg_id id, struct slice line);

/* Functions of an engine with this part. */
struct spool_verbose_part {
    void (*add)(struct spool *sp, struct msg_id id, struct slice line);
};

#endif
