/*
 * Sums of a cluster for the plots of the last hour. Counters are each node's since its own start:
 * their sum jumps when one is missing, comes back or begins anew. What is kept here grows only by
 * what nodes have counted from one sample to the next.
 */
#ifndef CONTROL_CLUSTER_COUNTS_H
#define CONTROL_CLUSTER_COUNTS_H

#include <jansson.h>

struct cluster_counts {
    json_t *seen;   /* owned: node -> its counters, as they were last; NULL: none yet */
    json_t *totals; /* owned: counters */
};

void cluster_counts_fini(struct cluster_counts *c);

/* `cluster` is an answer of "cluster"; its values go into `sample`, an answer of "sample", in the
 * place of one node's. */
void cluster_counts_put(struct cluster_counts *c, const json_t *cluster, json_t *sample);

#endif
