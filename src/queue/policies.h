/*
 * MTA-STS policies of domains: connects delivering processes, which request policies, with the
 * cache (sts_cache.h) and with the process `fetch`, which fetches policies.
 *
 * Owns the cache, its store (sts_store.h) and the channel to `fetch`. When that process ends, the
 * parent starts another; meanwhile deliveries use the policies in the cache.
 */
#ifndef QUEUE_POLICIES_H
#define QUEUE_POLICIES_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "sts_cache.h"
#include "sts_store.h"
#include "times.h"

struct queue;

/* Changed policies that one turn stores; the rest waits for the next turn. */
#define POLICIES_STORE_TURN 16u

struct policies {
    struct queue *queue;
    struct sts_cache *cache;
    struct sts_store *store;
    struct channel *fetch; /* NULL while the process is away */
    bool store_more;       /* the next turn has policies to store */
};

/* Reads the stored policies into the cache. */
void policies_begin(struct queue *q);
/* Stores all changed policies and frees everything. */
void policies_end(struct queue *q);

/* Adopts a connection from the process `fetch`; takes `fd`. */
void policies_adopt(struct queue *q, int fd);

/* Handles a request of delivering process number `agent`. Returns false if the frame breaks the
 * protocol. */
bool policies_ask(struct queue *q, uint32_t agent, struct slice body);
/* Drops the requests of a delivering process that has gone. */
void policies_asker_lost(struct queue *q, uint32_t agent);

/* Sends requests and answers and stores changes, at the end of each turn. */
void policies_turn(struct queue *q);
/* Returns when the next turn is needed, even without events. */
struct mono policies_wake_at(const struct policies *p);

#endif
