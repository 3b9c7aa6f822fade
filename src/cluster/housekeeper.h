/*
 * Housekeeper: keeps the tables small, on a connection of its own, so that the queue never waits
 * for it.
 *
 * New mail in passage goes to one of three fresh tables. Each HOUSEKEEPER_TURN_S, or when the table
 * has grown to HOUSEKEEPER_TURN_MAX, the next table is emptied by TRUNCATE and used instead.
 * Deleted rows would take room until a vacuum, which any older snapshot prevents; TRUNCATE is not
 * affected by snapshots. The check for remaining rows is made under TRUNCATE's lock, so a node that
 * has missed the turn cannot lose mail. Each node moves its own rows out of a table before the
 * table's next turn (fresh_mover.h). A table that is not empty, or that another session reads
 * (pg_dump), is skipped, and the one after it is tried. If neither can be emptied, the fresh tables
 * are vacuumed until one can.
 *
 * In addition, small tables whose rows change all the time are vacuumed. Useless rows are deleted:
 * markers of old batches, chunks of content without a message, arrivals for nodes that are gone,
 * answers that were not read, expired notes and keys.
 *
 * One node has the duty: the owner of partition 0. Two at once do no damage. The other nodes only
 * read which fresh table is in use.
 *
 * In addition, each node counts the mail of some of its partitions in each round (recount.h), and
 * sometimes measures the database.
 */
#ifndef CLUSTER_HOUSEKEEPER_H
#define CLUSTER_HOUSEKEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "committer.h"
#include "link.h"

#define HOUSEKEEPER_ROUND_US (1 * INT64_C(1000000))
#define HOUSEKEEPER_TURN_S   20
#define HOUSEKEEPER_TURN_MAX "209715200" /* bytes, with TOAST and index */
#define HOUSEKEEPER_VACUUM   10          /* rounds between two vacuums */
#define HOUSEKEEPER_TIDY     60          /* rounds between two deletions of useless rows */
/* rounds between two vacuums of the fresh tables while they are stuck */
#define HOUSEKEEPER_VACUUM_FRESH 60
/* seconds after which a turn that should be over counts as stuck */
#define HOUSEKEEPER_STUCK_S    60
#define HOUSEKEEPER_AGAIN_US   (5 * INT64_C(1000000))
#define HOUSEKEEPER_SILENCE_US (600 * INT64_C(1000000))

/* Rounds between two measurements. */
#define HOUSEKEEPER_MEASURE 5

struct housekeeper;

/* Callbacks; called in housekeeper_turn. */
struct housekeeper_owner {
    /* Receives the number of the fresh table in use. */
    void (*fresh)(void *arg, unsigned now);
    /* Returns the query that counts partitions in this round, which is taken; NULL if there is
     * none. */
    struct committer_batch *(*recount)(void *arg);
    /* Receives the answer. There is none if the connection was lost. */
    void (*counted)(void *arg, const PGresult *r);
};

struct housekeeper_measures {
    int64_t fresh_bytes;        /* size of the fresh tables with TOAST and indexes */
    int64_t oldest_snapshot_us; /* age of the oldest transaction that keeps dead rows, of those that
                                 * the role may see; 0 if there is none */
};

/* Creates the housekeeper. Borrows what link_new borrows, and the owner. */
struct housekeeper *housekeeper_new(int epoll_fd, const struct link_target *target,
                                    const struct housekeeper_owner *owner, void *arg);
void housekeeper_free(struct housekeeper *h); /* NULL is allowed */

/* Sets whether this node has the duty. It has the duty at first. */
void housekeeper_set_duty(struct housekeeper *h, bool is_ours);

/* Returns the measurements, which are some seconds old. */
const struct housekeeper_measures *housekeeper_measures(const struct housekeeper *h);

/* Does the work that is due without waiting; must be called when the epoll descriptor is
 * readable. */
void housekeeper_turn(struct housekeeper *h);

#endif
