/*
 * Shared by the files of the engine: struct cluster_spool, and the open batch of its optional
 * parts.
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
    int64_t timeline; /* the server's timeline, the highest seen; url.target.timeline points here */
    int epoll_fd;     /* owned; watches all connections */
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
    uint64_t begun, ended;        /* number of commits begun and ended */
    uint64_t sharing;             /* last commit in flight that changes shared texts; 0 if none */
    bool shares;                  /* whether the open batch changes shared texts */
    int64_t now;                  /* time of the last claim, in microseconds */
    /* Statements of the open batch that are not about messages (notes, events, keys). They are sent
     * after those about messages. Owned; NULL unless a batch is open. */
    struct committer_batch *extra;
};

static inline struct cluster_spool *cluster_of(struct spool *sp)
{
    return (struct cluster_spool *)sp;
}

#endif
