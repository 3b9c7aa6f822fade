/*
 * Searches of a process that does not wait: a question that was not asked a moment ago is sent to
 * the database and is -EAGAIN until its answer has come, which is kept for a while.
 */
#ifndef CLUSTER_ENGINE_SEARCH_H
#define CLUSTER_ENGINE_SEARCH_H

#include "cluster_search.h"
#include "link.h"

/* Answers that are kept, and for how long once they were given. */
#define ENGINE_SEARCHES_MAX 16
#define ENGINE_SEARCH_US    (2 * INT64_C(1000000))

struct engine_search;

/* What the last three are is borrowed. */
struct engine_search *engine_search_new(int epoll_fd, const struct link_target *target,
                                        struct spool *sp);
void engine_search_free(struct engine_search *e); /* NULL is fine */

struct cluster_search *engine_search_of(struct engine_search *e);

void engine_search_turn(struct engine_search *e);
/* Has an answer come since this was asked last? */
bool engine_search_has_come(struct engine_search *e);

#endif
