/*
 * Part of a spool: texts that all nodes of a cluster share, the overrides of operators
 * (`queue/interventions.h`).
 *
 *     spool_shared_put --commit--> the store numbers it --> it is in the copies of all nodes
 *     spool_shared_remove --commit--> it is in no copy any longer
 *
 * Each node has a copy in memory, which follows the store within about a second. Until the node has
 * its first copy, and while the copy is known to be older than about a second, nothing is delivered
 * (spool_lease_left_us is 0). Texts never change. A change joins the open batch. After the commit
 * the node's own copy lags for some moments; spool_shared_look shows when it has caught up.
 *
 * A spool may get this part while it is open, when the tables of a cluster are upgraded.
 */
#ifndef SPOOL_SPOOL_SHARED_H
#define SPOOL_SPOOL_SHARED_H

#include "spool.h"

/* Limit for all nodes together. */
#define SPOOL_SHARED_MAX 10000u
/* Limit in bytes. */
#define SPOOL_SHARED_TEXT_MAX 8192

struct spool_shared {
    uint64_t number;   /* number assigned by the store: from 1, higher for later texts, never
                        * reused */
    uint32_t token;    /* token of spool_shared_put in this process; 0 = put by another process */
    struct slice text; /* may be any bytes; empty if it was too long. Lasts until the next
                        * spool_commits_turn */
};

bool spool_has_shared(const struct spool *sp);

/* Stores a text. `reroutes`: it changes where mail goes (spool_shared_reroutes). `token` is not 0
 * and used once in this process. A text for which there is no place is not stored, though the
 * commit succeeds. */
int spool_shared_put(struct spool *sp, uint32_t token, bool reroutes, struct slice text);
/* Removes a text. A missing text is no error. */
int spool_shared_remove(struct spool *sp, uint64_t number, bool reroutes);

/* Returns a number N: once spool_shared_looks has reached N, the copy includes everything that is
 * committed now. That happens soon. */
uint64_t spool_shared_look(struct spool *sp);
/* Returns how often the copy was compared with the store; the copy changes only then. */
uint64_t spool_shared_looks(const struct spool *sp);
/* Returns how many changes all nodes together have made, as of the copy. */
uint64_t spool_shared_changes(const struct spool *sp);
/* Publishes to the other nodes that this node's queue has applied the copy of this many changes. */
void spool_shared_go_by(struct spool *sp, uint64_t changes);
/* Begins to check the other nodes; the number is for spool_shared_behind. */
uint64_t spool_shared_watch(struct spool *sp);
/* Finds the other nodes that may deliver, or are about to, and have applied fewer changes: a bit
 * for each. Returns false if that is not known yet, because they were not checked since
 * spool_shared_watch; each call requests another check. A node that comes up later, or whose lease
 * was over, reads all texts before it delivers. */
bool spool_shared_behind(struct spool *sp, uint64_t watch, uint64_t changes, uint64_t *ret_nodes);
/* Returns the number of the last change that reroutes, as of the copy: it grows with each. */
uint64_t spool_shared_reroutes(const struct spool *sp);
/* Returns the first text of the copy with a number above `after`; false if there is none. */
bool spool_shared_next(const struct spool *sp, uint64_t after, struct spool_shared *ret);
/* Does the store have more texts than the copy can hold? */
bool spool_shared_is_cut(const struct spool *sp);

/* Functions of an engine with this part; arguments and batch are checked before the call. */
struct spool_shared_part {
    bool (*is_there)(const struct spool *sp);
    int (*put)(struct spool *sp, uint32_t token, bool reroutes, struct slice text);
    int (*remove)(struct spool *sp, uint64_t number, bool reroutes);
    uint64_t (*look)(struct spool *sp);
    uint64_t (*looks)(const struct spool *sp);
    uint64_t (*changes)(const struct spool *sp);
    void (*go_by)(struct spool *sp, uint64_t changes);
    uint64_t (*watch)(struct spool *sp);
    bool (*behind)(struct spool *sp, uint64_t watch, uint64_t changes, uint64_t *ret_nodes);
    uint64_t (*reroutes)(const struct spool *sp);
    bool (*next)(const struct spool *sp, uint64_t after, struct spool_shared *ret);
    bool (*is_cut)(const struct spool *sp);
};

#endif
