/*
 * Searches through the desk: spool_search.h for mail that is in memory.
 */
#ifndef CLUSTER_DESK_SEARCH_H
#define CLUSTER_DESK_SEARCH_H

#include "desk.h"

int desk_scan(struct desk *d, const struct spool_filter *f, size_t max, struct msg_id *ret_ids,
              size_t *ret_count);
int desk_count(struct desk *d, const struct spool_filter *f, uint64_t *ret_count);
int desk_destinations(struct desk *d, size_t max, struct spool_destination *ret, size_t *ret_count);
int desk_destinations_from(struct desk *d, const struct spool_destination *from, size_t max,
                           struct spool_destination *ret, size_t *ret_count);

#endif
