/*
 * Arrivals: what a node tells another of mail in the other's partitions, in rows of the table
 * arrival, in the same transaction.
 *
 *     a batch of A inserts mail that lies in a partition of B --> a row for B: (partition, id), ..
 *     B is woken (member_link_notify), or looks now and then --> reads the rows, loads the mail
 *     the next batch of B, or a statement of its own when none comes --> deletes them
 *
 * To whom a row goes is found out by its statement: who has the lease then. Where no node has it
 * there is no row, as who takes a partition looks for all of its mail. That may also happen between
 * the statement and its commit: so who takes one looks twice. A row that has come to a node which
 * has not the partition any more is handed on to who has it.
 *
 * Rows are read behind a floor, the highest number that was there a minute ago, so that a look does
 * not go over dead rows; numbers do not rise in the order of commits. What a commit of over a
 * minute leaves behind is found by the sweep.
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
    ARRIVAL_MAIL, /* a message, or a part */
    ARRIVAL_TOLD, /* a report part that was given to, or of which a part has ended */
};

struct arrived_mail {
    uint16_t p;
    uint64_t id;
    enum arrival_kind kind;
    unsigned counts_as; /* enum spool_state; 0: it is not counted */
    uint64_t size;
};

/* The statement by which a batch tells: (p, arrival). */
extern const char arrivals_insert_sql[], arrivals_insert_types[];
/* That by which it takes away what was told, and the question for more: to be prepared. */
extern const char arrivals_delete_sql[], arrivals_ask_sql[];

/* The two columns. */
void arrived_put(struct columns *c, const struct arrived_mail *a);

/* In a row: kind, what it counts as, partition, id, size; the highest byte first. */
#define ARRIVAL_SIZE 20
/* Rows that were read. */
#define ARRIVALS_PAGE 64
/* More than so many that wait to be deleted are not read. */
#define ARRIVALS_MAX      1024
#define ARRIVALS_ALONE_US (2 * INT64_C(1000000))

struct arrivals {
    int64_t *seqs; /* owned: of batches under way, the oldest first, then those in none */
    size_t count, size;
    size_t under_way[COMMITTER_UNDER_WAY_MAX];
    unsigned under_way_count;
    struct columns handed_on;
    bool is_asked;
    int64_t highest, highest_before, floor;
    int64_t floor_at, read_at; /* us */
};

void arrivals_init(struct arrivals *a);
void arrivals_fini(struct arrivals *a);

/* A question for rows of node `no`; NULL: one is under way, or enough have come. */
struct committer_batch *arrivals_ask(struct arrivals *a, int no, int64_t now);
/* Its answer. Each arrival is told; true: to be handed on. */
void arrivals_answer(struct arrivals *a, const PGresult *r,
                     bool (*arrived)(void *arg, const struct arrived_mail *arrival), void *arg);
/* It has ended; true: there may be more. */
bool arrivals_ended(struct arrivals *a, unsigned rows);

/* Statements that delete what was read over ARRIVALS_ALONE_US ago while no batch has come; NULL:
 * nothing was. They change nothing if another incarnation of the node is in force. */
struct committer_batch *arrivals_delete(struct arrivals *a, int no, int64_t incarnation,
                                        int64_t now);

/* What was read and is in no batch joins this one, which goes under way. */
void arrivals_begin(struct arrivals *a, int no, struct committer_batch *b);
/* The oldest batch is durable; or all are undone. */
void arrivals_kept(struct arrivals *a);
void arrivals_undone(struct arrivals *a);

#endif
