/*
 * Sums of a cluster's counters for the plots of the last hour. Each node counts from its own start,
 * so a plain sum would jump when a node is missing, returns or restarts. These sums grow only by
 * what a node has counted between two samples.
 */
#ifndef CONTROL_CLUSTER_COUNTS_H
#define CONTROL_CLUSTER_COUNTS_H

#include <jansson.h>

struct cluster_counts {
    json_t *seen;   /* owned: node -> its last counters; NULL: none yet */
    json_t *totals; /* owned: sums of the counters */
};

void cluster_counts_fini(struct cluster_counts *c);

/* Adds an answer of "cluster", and replaces one node's counters in `sample`, an answer of "sample",
 * by the sums. */
void cluster_counts_put(struct cluster_counts *c, const json_t *cluster, json_t *sample);

#endif
