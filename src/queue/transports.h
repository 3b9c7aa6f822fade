/*
 * The transports' names to the scheduler's numbers, and which kind of agent serves each.
 *
 * Owns the names. A transport is never forgotten, as the scheduler keeps its number: one that the
 * configuration has lost goes on with what it had. Limit: SCHED_TRANSPORTS_MAX.
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
    char **names; /* owned, each; by the scheduler's index */
    enum conf_agent *agents;
    uint32_t count;
    unsigned nodes; /* by which limits of a transport are divided; 0 as 1 */
};

/* Take over those of the configuration, with what interventions say of them, and tell the
 * scheduler. */
void transports_load(struct queue *q);
void transports_fini(struct transports *t);

/* The part that one of so many nodes (0: as 1) has of limits of all destinations of a transport, or
 * of all transports: at least 1 of each. */
void transports_divide(unsigned nodes, struct policy *policy);

static inline const char *transport_name(const struct transports *t, uint32_t index)
{
    return t->names[index];
}

static inline enum conf_agent transport_agent(const struct transports *t, uint32_t index)
{
    return t->agents[index];
}

/* False: there is none of this name. */
bool transport_find(const struct transports *t, struct slice name, uint32_t *ret_index);

/* The same; the error transport's when nothing declares it. */
uint32_t transport_index(const struct transports *t, const char *name);

/* The same of a channel that a store names, made when missing; false: there are too many. */
bool transport_need(struct transports *t, const struct conf *conf, struct sched *sched,
                    const char *name, uint32_t *ret_index);

#endif
