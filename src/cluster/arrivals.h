/*
 * Arrivals: notices to another node about mail in its partitions. They are rows of the table
 * `arrival`, inserted in the transaction that inserts the mail.
 *
 *     a batch of A inserts mail of a partition of B --> a row for B: (partition, id), ..
 *     B is woken (member_link_notify), or polls --> reads the rows, loads the mail
 *     the next batch of B, or a statement of its own if there is none --> deletes the rows
 *
 * The inserting statement finds the node that has the lease of the partition. Without such a node
 * no row is inserted, as a node that takes a partition looks for all of its mail. A partition may
 * change hands between the statement and its commit; therefore the new node looks twice. A node
 * that gets an arrival of a partition which has left it passes the arrival on to the current node.
 * That node does not count the mail: it has counted all mail of the partition when it gained the
 * partition, perhaps long ago, as arrivals for a dead node are passed on when that node starts.
 *
 * Only rows above a floor are read, so that the query does not scan dead rows. The floor is the
 * highest number that had been read at least a minute ago, as numbers do not rise in the order of
 * commits. A row whose commit took more than a minute may lie below the floor; the sweep finds its
 * mail.
 */
#ifndef CLUSTER_ARRIVALS_H
#define CLUSTER_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "columns.h"
#include "committer.h"

enum arrival_kind {
    ARRIVAL_MAIL, /* message or part */
    ARRIVAL_TOLD, /* report part that got results, or a part of which has ended */
};

struct arrived_mail {
    uint16_t p;
    uint64_t id;
    enum arrival_kind kind;
    unsigned counts_as; /* enum spool_state; 0 if not counted */
    uint64_t size;
};

/* Statement of a batch that inserts arrivals. Columns: partition, arrival. */
extern const char arrivals_insert_sql[], arrivals_insert_types[];
/* Statements to prepare: delete arrivals that were read, and read more. */
extern const char arrivals_delete_sql[], arrivals_ask_sql[];

/* Appends the two columns of the statement. */
void arrived_put(struct columns *c, const struct arrived_mail *a);

/* Bytes of an arrival in a row: kind, counted state, partition, id and size, big-endian. */
#define ARRIVAL_SIZE 20
/* Largest number of rows in an answer. */
#define ARRIVALS_PAGE 64
/* Number of rows that wait for their deletion at which no more are read. */
#define ARRIVALS_MAX      1024
#define ARRIVALS_ALONE_US (2 * INT64_C(1000000))

struct arrivals {
    int64_t *seqs; /* owned; first those of batches in flight (oldest first), then others */
    size_t count, size;
    size_t under_way[COMMITTER_UNDER_WAY_MAX];
    unsigned under_way_count;
    struct columns handed_on;
    bool is_asked;
    int64_t highest, highest_before, floor;
    int64_t floor_at, read_at; /* microseconds */
};

void arrivals_init(struct arrivals *a);
void arrivals_fini(struct arrivals *a);

/* Returns a query for rows of node `no`, or NULL if one is in flight or too many rows wait for
 * their deletion. */
struct committer_batch *arrivals_ask(struct arrivals *a, int no, int64_t now);
/* Reads the result and calls `arrived` for each arrival. An arrival for which it returns true is
 * passed on to the current node of its partition. */
void arrivals_answer(struct arrivals *a, const PGresult *r,
                     bool (*arrived)(void *arg, const struct arrived_mail *arrival), void *arg);
/* Ends the query, whose answer had so many rows. Returns whether more rows may wait. */
bool arrivals_ended(struct arrivals *a, unsigned rows);

/* Returns statements that delete rows which were read over ARRIVALS_ALONE_US ago and which no batch
 * has deleted; NULL if there are none. They change nothing if another incarnation of the node is in
 * force. */
struct committer_batch *arrivals_delete(struct arrivals *a, int no, int64_t incarnation,
                                        int64_t now);

/* Adds the deletion of all rows that are in no batch to this batch, which is then in flight. */
void arrivals_begin(struct arrivals *a, int no, struct committer_batch *b);
/* Ends the oldest batch, which is durable. */
void arrivals_kept(struct arrivals *a);
void arrivals_undone(struct arrivals *a);

#endif
