/*
 * Space set aside for the day the disk is full.
 *
 * When a write finds no space, results of deliveries could not be stored either, and the mail would
 * be delivered again: deleting needs space, too, because a deletion is written to a log first. So a
 * file of RESERVE_BYTES lies beside the database. It is given up when space runs out; what it gave
 * is enough to store results until mail that was delivered has made room, and no new mail is taken
 * meanwhile (the spool then says that there are 0 bytes free). Later it is filled again. A start on
 * a full disk needs it, too.
 *
 * Failing to have one is no error: the spool works, only without this help.
 */
#ifndef SPOOL_RESERVE_H
#define SPOOL_RESERVE_H

#include <stdbool.h>

#include "spool_io.h"

#define RESERVE_BYTES (4u << 20)

struct reserve {
    const struct spool_io *io; /* borrowed */
    char *path;                /* owned */
    bool held;
};

/* The file will be `path`; nothing is written yet. */
void reserve_init(struct reserve *r, const struct spool_io *io, const char *path);
void reserve_fini(struct reserve *r);

/* Write the file if it is not there; `held` tells whether it worked. */
void reserve_fill(struct reserve *r);

/* Give its space to the others. */
void reserve_release(struct reserve *r);

#endif
