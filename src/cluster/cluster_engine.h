/*
 * What the files of the engine share: struct cluster_spool, and how its optional parts join a
 * batch.
 */
#ifndef CLUSTER_CLUSTER_ENGINE_H
#define CLUSTER_CLUSTER_ENGINE_H

#include "arrivals.h"
#include "asks.h"
#include "cluster_url.h"
#include "committer.h"
#include "desk.h"
#include "engine_member.h"
#include "engine_search.h"
#include "finder.h"
#include "handover.h"
#include "housekeeper.h"
#include "loader.h"
#include "fresh_mover.h"
#include "recount.h"
#include "shared_texts.h"
#include "spool_engine.h"

struct cluster_spool {
    struct spool base;
    struct cluster_url url;
    int64_t timeline; /* of the server, the highest seen: url.target.timeline */
    int epoll_fd;     /* owned: all connections */
    struct desk desk;
    struct finder finder;
    struct arrivals arrivals;
    struct engine_member *member;    /* owned */
    struct committer *committer;     /* owned; NULL until the node has registered */
    struct housekeeper *housekeeper; /* owned */
    struct loader *loader;           /* owned */
    struct fresh_mover mover;
    struct handover handover;
    struct recount recount;
    struct engine_search *search; /* owned */
    struct asks *asks;            /* owned */
    struct shared_texts *shared;  /* owned */
    uint64_t begun, ended;        /* commits */
    uint64_t sharing;             /* the last of them that changes what is shared; 0: none */
    bool shares;                  /* the open batch does */
    int64_t now;                  /* us, as of the last claim */
    /* Statements of the open batch that are not about messages (notes, events, keys): sent behind
     * those that are. Owned; there while a batch is open. */
    struct committer_batch *extra;
};

static inline struct cluster_spool *cluster_of(struct spool *sp)
{
    return (struct cluster_spool *)sp;
}

#endif
