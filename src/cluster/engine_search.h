/*
 * Searches of a process that must not wait. A new query is sent to the database and returns -EAGAIN
 * until its answer arrives. The answer is kept for a while.
 */
#ifndef CLUSTER_ENGINE_SEARCH_H
#define CLUSTER_ENGINE_SEARCH_H

#include "cluster_search.h"
#include "link.h"

/* Number of answers that are kept, and the age at which an answer that was used is dropped. */
#define ENGINE_SEARCHES_MAX 16
#define ENGINE_SEARCH_US    (2 * INT64_C(1000000))

struct engine_search;

/* Creates the object. The target, the spool and what link_new borrows are borrowed. */
struct engine_search *engine_search_new(int epoll_fd, const struct link_target *target,
                                        struct spool *sp);
void engine_search_free(struct engine_search *e); /* NULL is allowed */

struct cluster_search *engine_search_of(struct engine_search *e);

void engine_search_turn(struct engine_search *e);
/* Has an answer arrived since the last call? */
bool engine_search_has_come(struct engine_search *e);

#endif
