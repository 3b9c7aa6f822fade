/*
 * What keeps the tables small, on a connection of its own: nothing here holds up the queue.
 *
 * New mail that passes goes to one of three fresh tables. Each FRESH_TURN_US, or when the table has
 * grown to FRESH_TURN_BYTES, the next one is emptied and used instead: deleted rows take room until
 * they are vacuumed, which an older snapshot anywhere prevents; TRUNCATE takes no notice of it.
 * Rows that are still in the next table are looked for under the lock that TRUNCATE needs, so a
 * node that has not heard of the turn can lose nothing. Each node moves its own rows out of a table
 * before its turn comes again (fresh_mover.h). A table that is not empty all the same, or that
 * another reads (pg_dump), is passed over, the one behind it is tried; when neither can be emptied,
 * the fresh tables are vacuumed until one can.
 *
 * Beside that, small tables whose rows change all the time are vacuumed, and what is of no more use
 * is deleted: markers of old batches, chunks of content without a message, what was told to nodes
 * that have gone, answers that were not fetched, notes and keys whose time is over.
 *
 * One node has the duty: the owner of partition 0. Two at once do no harm. The others only ask
 * which fresh table is in use.
 *
 * And each node counts the mail of some of its partitions in each round, and looks now and then for
 * what is measured of the database.
 */
#ifndef CLUSTER_HOUSEKEEPER_H
#define CLUSTER_HOUSEKEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "committer.h"
#include "link.h"

#define HOUSEKEEPER_ROUND_US     (1 * INT64_C(1000000))
#define HOUSEKEEPER_TURN_S       20
#define HOUSEKEEPER_TURN_MAX     "209715200" /* bytes, with TOAST and index */
#define HOUSEKEEPER_VACUUM       10          /* rounds from one vacuum to the next */
#define HOUSEKEEPER_TIDY         60          /* rounds from one look for what is of no use */
#define HOUSEKEEPER_VACUUM_FRESH 60 /* rounds between two vacuums of fresh tables, while: */
#define HOUSEKEEPER_STUCK_S      60 /* the turn of the one in use began before that */
#define HOUSEKEEPER_AGAIN_US     (5 * INT64_C(1000000))
#define HOUSEKEEPER_SILENCE_US   (600 * INT64_C(1000000))

/* Rounds from one measurement to the next. */
#define HOUSEKEEPER_MEASURE 5

struct housekeeper;

/* All is called in housekeeper_turn. */
struct housekeeper_owner {
    /* Which fresh table is in use. */
    void (*fresh)(void *arg, unsigned now);
    /* The question by which partitions are counted, in this round; NULL: none are. Taken. */
    struct committer_batch *(*recount)(void *arg);
    /* Its answer. When the connection was lost there is none. */
    void (*counted)(void *arg, const PGresult *r);
};

struct housekeeper_measures {
    int64_t fresh_bytes;        /* of the fresh tables, with TOAST and indexes */
    int64_t oldest_snapshot_us; /* how long ago the oldest transaction began that keeps dead rows:
                                   of those that our role may look at; 0: there is none */
};

/* Borrows what link_new borrows, and the owner. */
struct housekeeper *housekeeper_new(int epoll_fd, const struct link_target *target,
                                    const struct housekeeper_owner *owner, void *arg);
void housekeeper_free(struct housekeeper *h); /* NULL is fine */

/* Is it this node's duty? From the start it is. */
void housekeeper_set_duty(struct housekeeper *h, bool is_ours);

/* As they were a few seconds ago. */
const struct housekeeper_measures *housekeeper_measures(const struct housekeeper *h);

/* When the epoll descriptor is readable. Never waits. */
void housekeeper_turn(struct housekeeper *h);

#endif
