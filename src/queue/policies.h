/*
 * MTA-STS policies of domains: between the processes that deliver, which ask for them, the one that
 * fetches them, and sts_cache.h, which knows them.
 *
 * Owns the cache, its store (sts_store.h) and the channel to the process `fetch`. When that ends,
 * the parent starts another; when there is none, deliveries go on with what is known.
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

/* Files written in one turn: the rest waits for the next. */
#define POLICIES_STORE_TURN 16u

struct policies {
    struct queue *queue;
    struct sts_cache *cache;
    struct sts_store *store;
    struct channel *fetch; /* NULL: there is none at the moment */
    bool store_more;       /* at the next turn */
};

/* Read what is stored. */
void policies_begin(struct queue *q);
/* Store what is not stored yet. */
void policies_end(struct queue *q);

/* The process that fetches; `fd` is taken. */
void policies_adopt(struct queue *q, int fd);

/* A process that delivers, by its number, asks. False for what it must not send. */
bool policies_ask(struct queue *q, uint32_t agent, struct slice body);
/* It is gone. */
void policies_asker_lost(struct queue *q, uint32_t agent);

/* At the end of each turn. */
void policies_turn(struct queue *q);
/* When there is something to do, whatever happens. */
struct mono policies_wake_at(const struct policies *p);

#endif
