/*
 * Transports: maps their names to the scheduler's numbers, and to kinds of agents.
 *
 * Owns the names. A transport is never removed, as the scheduler keeps its number; a transport that
 * is no longer configured keeps its values. Limit: SCHED_TRANSPORTS_MAX.
 */
#ifndef QUEUE_TRANSPORTS_H
#define QUEUE_TRANSPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "scheduler.h"
#include "slice.h"

struct policy;
struct queue;

struct transports {
    char **names; /* names by the scheduler's number; owned */
    enum conf_agent *agents;
    uint32_t count;
    unsigned nodes; /* number of nodes that share the limits of a transport; 0 as 1 */
};

/* Loads the transports of the configuration, with the operators' overrides of limits, into the
 * scheduler. */
void transports_load(struct queue *q);
void transports_fini(struct transports *t);

/* Divides limits of all destinations of a transport, or of all transports, by the number of nodes
 * (0 as 1); at least 1 is left of each. */
void transports_divide(unsigned nodes, struct policy *policy);

static inline const char *transport_name(const struct transports *t, uint32_t index)
{
    return t->names[index];
}

static inline enum conf_agent transport_agent(const struct transports *t, uint32_t index)
{
    return t->agents[index];
}

/* Finds the number of a transport. Returns false if there is none of this name. */
bool transport_find(const struct transports *t, struct slice name, uint32_t *ret_index);

/* Returns the number of a transport, or that of "error" if the transport is not declared. */
uint32_t transport_index(const struct transports *t, const char *name);

/* Finds the number of a channel that a store names, and adds the channel if it is missing. Returns
 * false if there are too many. */
bool transport_need(struct transports *t, const struct conf *conf, struct sched *sched,
                    const char *name, uint32_t *ret_index);

#endif
