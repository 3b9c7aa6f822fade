/*
 * Members of a cluster over a small model of a database, in virtual time.
 *
 * The database: rows of fence, node and lease with locks; transactions go through their statements
 * one by one, as member_request.c has them, wait for locks (or give up after LOCK_US), and commit.
 * Each node has a clock of its own rate, and a program that works in its partitions: it begins work
 * before the deadline, stores it by a write under the fence, drains what is asked for. Requests and
 * answers take time; connections are lost, and what was sent may be done long after; nodes are
 * stopped for a while, killed, started again.
 *
 * What is found wrong is counted, with the words of the first:
 *   A1  a write commits under an incarnation that is not in force, or in another's partition
 *   A2  a node may begin work in a partition that is not its own, or that another may work in, too
 *   A5  a partition is let go with work open in it
 */
#ifndef TESTS_MEMBER_WORLD_H
#define TESTS_MEMBER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "membership.h"
#include "rng.h"

#define WORLD_NODES 6
#define WORLD_TX    400

/* What is left out, to see that it is missed. */
enum world_flaw {
    FLAW_NONE,
    FLAW_NO_FENCE,   /* writes do not look at the incarnation */
    FLAW_NO_LOCK,    /* they look, but keep no lock until the commit */
    FLAW_NO_BEAT,    /* who takes over does not look whether the other has been renewed */
    FLAW_NO_EPOCH,   /* letting go does not name the lease's epoch */
    FLAW_RUDE,       /* partitions are let go with work open */
    FLAW_SLOW_CLOCK, /* a clock runs at half the speed of the others */
};

struct world_node {
    char name[16];
    struct membership_config config;
    struct membership *m; /* NULL: not running */
    double rate;          /* of its clock */
    int64_t offset_us;
    int64_t stopped_until; /* SIGSTOP */
    int64_t ready_at;      /* old attempts have ended; 0: they have */
    int request;           /* its transaction; -1: none is awaited */
    int64_t lost_at;       /* its connection is lost then; 0: it is not */
    unsigned given_up, registered;
    struct partition_set mine;     /* as its events told */
    int64_t drains_at[PARTITIONS]; /* 0: does not drain */
    bool open[PARTITIONS];         /* work that is not stored */
    int64_t write_of[PARTITIONS];  /* the number of its write; 0: none */
};

struct world {
    struct rng rng;
    int64_t now; /* real time */
    enum world_flaw flaw;
    struct world_node nodes[WORLD_NODES];
    int latency_us;   /* at most, each way and each statement */
    double loss;      /* of connections, for each request */
    bool faults;      /* stops and kills at random */
    int64_t drain_us; /* at least so long what is open in a partition goes on */
    int64_t number;   /* of writes */
    uint64_t commits;
    unsigned moves; /* of partitions from one node to another */
    unsigned violations;
    char first[200];
    /* the database */
    struct {
        int64_t fence[MEMBERSHIP_NODES_MAX];
        struct {
            bool is_there;
            char name[16];
            int64_t incarnation, beat, state;
        } node[MEMBERSHIP_NODES_MAX];
        struct {
            int node, wanted, last;
            int64_t epoch;
        } lease[PARTITIONS];
        int64_t stored[PARTITIONS]; /* the last write's number, so that none is done twice */
        struct membership_view settings;
    } db;
    struct world_tx *tx; /* owned: WORLD_TX of them */
};

void world_init(struct world *w, uint64_t seed);
void world_fini(struct world *w);
void world_start(struct world *w, int i);
void world_kill(struct world *w, int i);
/* Everything that happens in so much time. */
void world_run(struct world *w, int64_t us);
/* Partitions that belong to a node that runs, by the database. */
int world_count(const struct world *w, int i);
struct mono world_clock(const struct world *w, int i);

#endif
