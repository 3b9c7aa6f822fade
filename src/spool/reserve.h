/*
 * Space reserved for the time when the disk is full.
 *
 * Deleting needs space, too, because a deletion is first written to a log. Without space the
 * results of deliveries could not be stored, and the mail would be delivered again. So a file of
 * RESERVE_BYTES lies next to the database, and is removed when space runs out. Its space is enough
 * to store results until delivered mail has made room. Meanwhile no new mail is accepted (the spool
 * reports 0 free bytes). Later the file is written again. A start on a full disk needs the space,
 * too.
 *
 * A missing reserve is no error: the spool works, only without this help.
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

/* Sets the path of the file; writes nothing yet. */
void reserve_init(struct reserve *r, const struct spool_io *io, const char *path);
void reserve_fini(struct reserve *r);

/* Writes the file if it is missing; sets `held` on success. */
void reserve_fill(struct reserve *r);

/* Removes the file to free its space. */
void reserve_release(struct reserve *r);

#endif
