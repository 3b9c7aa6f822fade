/*
 * Searches through the tables of a cluster (spool_search.h), for a process that waits
 * for the answer, or one that asks and calls again when it is there.
 */
#ifndef CLUSTER_CLUSTER_SEARCH_H
#define CLUSTER_CLUSTER_SEARCH_H

#include <libpq-fe.h>

#include "buf.h"
#include "partition.h"
#include "spool_engine.h"
#include "text_pool.h"

#define CLUSTER_QUERY_SQL_MAX 32768
/* Six for a whole filter, for each state of parts, divided or not, and each fresh table. */
#define CLUSTER_QUERY_PARAMS_MAX 80

/* A statement that is being made, with its parameters: numbers are written into it. */
struct cluster_query {
    struct buf sql;
    struct text_pool pool;                        /* of texts that are marked */
    const char *values[CLUSTER_QUERY_PARAMS_MAX]; /* borrowed; in binary */
    int lengths[CLUSTER_QUERY_PARAMS_MAX], formats[CLUSTER_QUERY_PARAMS_MAX];
    int count;
};

/* A message, and where its row is: one that is in parts, its report part's. */
struct cluster_place {
    uint64_t id;
    uint16_t p;
};

/* A list that is read page by page is asked for in larger and larger pieces, up to so many: what a
 * piece costs may be all that matches, or all that passes. It is kept so long. */
#define CLUSTER_PIECE_MAX 16384
#define CLUSTER_PIECE_US  (2 * INT64_C(1000000))

struct cluster_piece {
    struct cluster_place *places; /* owned; in the order of ids */
    size_t count;
    struct buf filter; /* as the statement has it, from the start */
    uint64_t from;     /* all that match are there behind this one */
    uint64_t told;     /* the last one that a page has had */
    size_t asked;      /* at most so many */
    bool is_all;       /* there are none behind them */
    int64_t time;      /* us */
};

struct cluster_search {
    struct spool *sp; /* borrowed: for words of errors */
    /* Ask; 0 with s->last, or an error. Takes what the query owns. */
    int (*ask)(struct cluster_search *s, struct cluster_query *q);
    const PGresult *last; /* of `ask`, in binary; what is handed out points into it */
    struct cluster_piece piece;
    struct text_pool pool; /* of what is handed out */
};

void cluster_search_fini(struct cluster_search *s);

/* Where the message is, if a list has just told of it; else NULL. */
const struct cluster_place *cluster_search_place(const struct cluster_search *s, uint64_t id);

void cluster_query_init(struct cluster_query *q);
void cluster_query_fini(struct cluster_query *q);
/* Borrows the bytes; returns the parameter's number, from 1. */
int cluster_query_bytes(struct cluster_query *q, struct slice bytes);
/* The same of a text, as columns of type text have it. */
int cluster_query_text(struct cluster_query *q, struct slice text);
int cluster_query_number(struct cluster_query *q, int64_t n); /* a bigint */

/* As spool_search.h. */
int cluster_search_scan(struct cluster_search *s, const struct spool_filter *f, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count);
int cluster_search_count(struct cluster_search *s, const struct spool_filter *f,
                         uint64_t *ret_count);
int cluster_search_destinations(struct cluster_search *s, size_t max, struct spool_destination *ret,
                                size_t *ret_count);
int cluster_search_destinations_from(struct cluster_search *s, const struct spool_destination *from,
                                     size_t max, struct spool_destination *ret, size_t *ret_count);
/* As spool_routes.h, of these partitions. */
int cluster_search_stale(struct cluster_search *s, const bool is_mine[PARTITIONS], uint64_t own,
                         const struct spool_routed *after, size_t max, struct spool_routed *ret,
                         size_t *ret_count);
int cluster_search_oldest(struct cluster_search *s, const struct spool_destination *of,
                          struct wall *ret_arrived);

#endif
