/*
 * Part of a spool: texts that all nodes of a cluster have in common, what operators have decided
 * (queue/interventions.h).
 *
 *     spool_shared_put --commit--> the store numbers it --> it is in the copies of all nodes
 *     spool_shared_remove --commit--> it is in no copy any more
 *
 * Each node has a copy in memory, which follows the store within about a second. Until the copy
 * that a node begins with is there, and while it is known to be older than that, nothing is
 * delivered (spool_lease_left_us is 0). Texts never change. A change joins the open batch; when its
 * commit has ended the own copy is some moments behind, which spool_shared_look tells.
 *
 * A spool may get the part while it is open: a cluster whose tables are raised.
 */
#ifndef SPOOL_SPOOL_SHARED_H
#define SPOOL_SPOOL_SHARED_H

#include "spool.h"

/* All nodes together have at most so many. */
#define SPOOL_SHARED_MAX 10000u
/* Bytes. */
#define SPOOL_SHARED_TEXT_MAX 8192

struct spool_shared {
    uint64_t number;   /* the store's: from 1, higher for later ones, never used twice */
    uint32_t token;    /* of spool_shared_put in this process; 0: another has put it */
    struct slice text; /* may be anything; empty: it was too long. Until the next spool_commits_turn
                        */
};

bool spool_has_shared(const struct spool *sp);

/* `reroutes`: it changes where mail goes (spool_shared_reroutes). `token` is not 0 and used once in
 * this process. One for which there is no place is not stored, though the commit ends well. */
int spool_shared_put(struct spool *sp, uint32_t token, bool reroutes, struct slice text);
/* No error when it is not there any more. */
int spool_shared_remove(struct spool *sp, uint64_t number, bool reroutes);

/* What is committed now is in the copy when spool_shared_looks has come to the number that is
 * returned; it does so soon. */
uint64_t spool_shared_look(struct spool *sp);
/* How often the copy was compared with the store; it changes only then. */
uint64_t spool_shared_looks(const struct spool *sp);
/* How often all nodes together have changed something, as of the copy. */
uint64_t spool_shared_changes(const struct spool *sp);
/* This node's queue goes by the copy of so many changes; it tells the others. */
void spool_shared_go_by(struct spool *sp, uint64_t changes);
/* From now on the other nodes are looked at; the number is for spool_shared_behind. */
uint64_t spool_shared_watch(struct spool *sp);
/* The other nodes that may deliver, or begin to, and go by fewer changes: a bit for each. False: it
 * is not known yet, as they have not been looked at since spool_shared_watch. Asked again, it looks
 * again. A node that comes up later, or whose lease was over, reads all before it delivers. */
bool spool_shared_behind(struct spool *sp, uint64_t watch, uint64_t changes, uint64_t *ret_nodes);
/* The last change of one that reroutes, as of the copy: grows with each. */
uint64_t spool_shared_reroutes(const struct spool *sp);
/* The first of the copy with a higher number. False: none. */
bool spool_shared_next(const struct spool *sp, uint64_t after, struct spool_shared *ret);
/* Are there more than the copy takes? */
bool spool_shared_is_cut(const struct spool *sp);

/* The part, as spool_engine.h wants it: arguments and batch are checked. */
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
