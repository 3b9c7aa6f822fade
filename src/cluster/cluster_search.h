/*
 * Searches through the tables of a cluster (spool_search.h), for a process that waits
 * for the answer, or one that asks and calls again when it is there.
 */
#ifndef CLUSTER_CLUSTER_SEARCH_H
#define CLUSTER_CLUSTER_SEARCH_H

#include <libpq-fe.h>

#include "buf.h"
#include "spool_engine.h"

#define CLUSTER_QUERY_SQL_MAX 32768
/* Six for a whole filter, for each state of parts, divided or not, and each fresh table. */
#define CLUSTER_QUERY_PARAMS_MAX 80

/* A statement that is being made, with its parameters: numbers are written into it. */
struct cluster_query {
    struct buf sql;
    const char *values[CLUSTER_QUERY_PARAMS_MAX]; /* borrowed; in binary */
    int lengths[CLUSTER_QUERY_PARAMS_MAX], formats[CLUSTER_QUERY_PARAMS_MAX];
    int count;
};

struct cluster_search {
    struct spool *sp; /* borrowed: for words of errors */
    /* Ask; 0 with s->last, or an error. Takes what the query owns. */
    int (*ask)(struct cluster_search *s, struct cluster_query *q);
    const PGresult *last; /* of `ask`, in binary; what is handed out points into it */
};

void cluster_query_init(struct cluster_query *q);
/* Borrows the bytes; returns the parameter's number, from 1. */
int cluster_query_bytes(struct cluster_query *q, struct slice bytes);

/* As spool_search.h. */
int cluster_search_scan(struct cluster_search *s, const struct spool_filter *f, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count);
int cluster_search_count(struct cluster_search *s, const struct spool_filter *f,
                         uint64_t *ret_count);
int cluster_search_destinations(struct cluster_search *s, size_t max, struct spool_destination *ret,
                                size_t *ret_count);
int cluster_search_destinations_from(struct cluster_search *s, const struct spool_destination *from,
                                     size_t max, struct spool_destination *ret, size_t *ret_count);
int cluster_search_oldest(struct cluster_search *s, const struct spool_destination *of,
                          struct wall *ret_arrived);

#endif
