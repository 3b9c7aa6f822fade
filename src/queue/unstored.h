/*
 * Deliveries whose result the spool could not store, because a page of its database is damaged.
 *
 * Owns the file `unstored_results` in the state directory, and a copy of it in memory. The file is
 * not part of the database, so that no damaged page affects it. A message that the file names is
 * not delivered again before its results are stored. They are tried again at the next start, too
 * (queue_damage.h). A line of the file is
 *
 *     QUEUE-ID all CHECKSUM           every recipient has the message
 *     QUEUE-ID 1,4,7 CHECKSUM         the recipients with these numbers have it
 *
 * The whole file is written again, synced and renamed into place, at most once per turn. It is
 * removed when it would be empty. A crash between a delivery and that write repeats the delivery,
 * as a crash before a commit does.
 *
 * Limits: the file names messages whose results wait in memory, qmgr_message_active_limit at most.
 * A file of more than UNSTORED_FILE_MAX bytes is not read. The file is not used if several nodes
 * share the spool, or if other programs record results in it, since its lines could be outdated.
 */
#ifndef QUEUE_UNSTORED_H
#define QUEUE_UNSTORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "spool.h"

#define UNSTORED_FILE_MAX ((size_t)64 << 20)

struct queue;
struct unstored_message;

/* State of the file; private to unstored.c. */
struct unstored {
    char *path; /* path of the file; owned; NULL: not used with this spool */
    struct unstored_message *table;
    bool changed;      /* the table has changes that the file has not */
    bool write_failed; /* the last write failed, which was logged */
};

/* Reads the file and lets its messages wait (damage_resume). Called at the start, before any mail
 * is claimed. */
void unstored_begin(struct queue *q);

/* Adds the deliveries of `steps`; unstored_sync makes them durable. */
void unstored_add(struct queue *q, struct msg_id id, const struct step_list *steps);

/* Removes a message whose results are stored or no longer needed. */
void unstored_forget(struct queue *q, struct msg_id id);

/* Writes the file if the table has changed. Returns true if the file has all changes. A failure is
 * logged once, and tried again if `again` is set. */
bool unstored_sync(struct queue *q, bool again);

void unstored_fini(struct unstored *u);

#endif
