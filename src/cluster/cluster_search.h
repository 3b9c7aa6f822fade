/*
 * Searches in the tables of a cluster (spool_search.h). The callback `ask` either waits for the
 * answer, or starts the query and fails until the caller asks again after the answer has arrived.
 */
#ifndef CLUSTER_CLUSTER_SEARCH_H
#define CLUSTER_CLUSTER_SEARCH_H

#include <libpq-fe.h>

#include "buf.h"
#include "partition.h"
#include "spool_engine.h"
#include "text_pool.h"

#define CLUSTER_QUERY_SQL_MAX 32768
/* Number of parameters: at most seven for a filter, repeated for each state of parts (undivided and
 * divided mail) and each fresh table. */
#define CLUSTER_QUERY_PARAMS_MAX 80

/* Statement under construction, with its parameters. Numbers of the filter are written into the
 * text. */
struct cluster_query {
    struct buf sql;
    struct text_pool pool;                        /* owned; texts that must be marked */
    const char *values[CLUSTER_QUERY_PARAMS_MAX]; /* borrowed; binary */
    int lengths[CLUSTER_QUERY_PARAMS_MAX], formats[CLUSTER_QUERY_PARAMS_MAX];
    int count;
};

/* Message and the partition of its row; of a message in parts, that of its report part. */
struct cluster_place {
    uint64_t id;
    uint16_t p;
};

/* A list that is read page by page is queried in pieces that grow up to CLUSTER_PIECE_MAX, as each
 * query may have to read all mail that matches. A piece is kept for CLUSTER_PIECE_US. */
#define CLUSTER_PIECE_MAX 16384
#define CLUSTER_PIECE_US  (2 * INT64_C(1000000))

struct cluster_piece {
    struct cluster_place *places; /* owned; in the order of ids */
    size_t count;
    struct buf filter; /* owned; statement and parameters, without a first id */
    uint64_t from;     /* id after which the piece begins */
    uint64_t told;     /* last id that a page has returned */
    size_t asked;      /* largest number of places in this query */
    bool is_all;       /* whether no further places exist after these */
    int64_t time;      /* time of the query, in microseconds */
};

struct cluster_search {
    struct spool *sp; /* borrowed; for error texts */
    /* Executes the query and frees it. Returns 0 with the result in s->last, or an error. */
    int (*ask)(struct cluster_search *s, struct cluster_query *q);
    const PGresult *last; /* result of `ask`, binary; valid until the next query */
    struct cluster_piece piece;
    struct text_pool pool; /* owned; texts that were returned */
};

void cluster_search_fini(struct cluster_search *s);

/* Returns the place of a message that the last list contains, or NULL. */
const struct cluster_place *cluster_search_place(const struct cluster_search *s, uint64_t id);

void cluster_query_init(struct cluster_query *q);
void cluster_query_fini(struct cluster_query *q);
/* Adds a parameter of type bytea; borrows the bytes. Returns its number, from 1. */
int cluster_query_bytes(struct cluster_query *q, struct slice bytes);
/* Adds a parameter of type text. Returns its number. */
int cluster_query_text(struct cluster_query *q, struct slice text);
int cluster_query_number(struct cluster_query *q, int64_t n); /* type bigint */

/* Implements spool_search.h. */
int cluster_search_scan(struct cluster_search *s, const struct spool_filter *f, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count);
int cluster_search_count(struct cluster_search *s, const struct spool_filter *f,
                         uint64_t *ret_count);
int cluster_search_destinations(struct cluster_search *s, size_t max, struct spool_destination *ret,
                                size_t *ret_count);
int cluster_search_destinations_from(struct cluster_search *s, const struct spool_destination *from,
                                     size_t max, struct spool_destination *ret, size_t *ret_count);
/* Implements spool_routes.h, for these partitions. */
int cluster_search_stale(struct cluster_search *s, const bool is_mine[PARTITIONS], uint64_t own,
                         const struct spool_routed *after, size_t max, struct spool_routed *ret,
                         size_t *ret_count);
int cluster_search_oldest(struct cluster_search *s, const struct spool_destination *of,
                          struct wall *ret_arrived);

#endif
