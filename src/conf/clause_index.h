/*
 * Index to find the first clause that matches, without a test of each pattern of a long file.
 *
 * Most patterns are a name, or a star and the end of a name. The index finds these by their text:
 * it looks up the name itself, and a star with each end of the name. The other patterns are tested
 * one by one in their order. So a lookup costs as much as the name is long. To read a file of N
 * clauses costs N lookups, as each clause is searched among the previous ones.
 */
#ifndef CONF_CLAUSE_INDEX_H
#define CONF_CLAUSE_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct clause;
struct pool;

struct clause_index {
    const struct clause *clauses; /* borrowed, in the order of the file */
    struct clause_key *keys;      /* hash of keys, which are in the pool */
    size_t *others;               /* numbers of clauses without a key, in the pool */
    size_t other_count;
};

/* Makes the index. The clauses must exist until clause_index_fini. */
void clause_index_init(struct clause_index *index, const struct clause *clauses, size_t count,
                       struct pool *pool);
void clause_index_fini(struct clause_index *index);

/* Returns whether the pattern of the clause covers the two texts. */
typedef bool clause_covers(const struct clause *c, struct slice channel, struct slice host);

/* Returns the first among the first `count` clauses that covers channel and host, and that is a
 * clause of a class if `is_class`, otherwise of destinations. Returns `count` if there is none. A
 * clause covers a text that it matches, or that is its pattern. */
size_t clause_index_find(const struct clause_index *index, bool is_class, struct slice channel,
                         struct slice host, size_t count, clause_covers *covers);

#endif
