/*
 * Where simulated mail goes: for each domain the transport and next hop that the configuration
 * routes it to, what its policy says there, and the simulated site behind it.
 *
 * Domains with the same transport and next hop share one place: behind a relay host everything is
 * one. Places are numbered in the order of the workload's domains.
 */
#ifndef SIM_PLACES_H
#define SIM_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "hash.h"
#include "scheduler.h"
#include "sim_site.h"
#include "sim_tally.h"
#include "tuning.h"
#include "workload.h"

struct sim_place {
    char *key;          /* owned: transport/nexthop, in lower case; also its name */
    struct slice dest;  /* the destination within its transport: the key's end */
    uint32_t transport; /* index in the scheduler */
    enum conf_agent agent;
    bool per_mailbox; /* each recipient is a destination of its own: localpart@dest */
    struct tuning_dest tuning;
    struct sim_site site;
    struct sim_tally tally;
    uint32_t number; /* index in the list */
    uint32_t rank;   /* by name, after sim_places_rank */
    UT_hash_handle hh;
};

struct sim_places {
    const struct conf *conf;         /* borrowed */
    const struct workload *workload; /* borrowed */
    struct sched *sched;             /* borrowed */
    struct sim_events *events;       /* borrowed */
    uint64_t seed;
    struct sim_site_model plain; /* of what no `site` line describes */
    struct sim_place **list;     /* owned, with the places */
    uint32_t count;
    size_t size;
    struct sim_place *by_key;
};

/* All of these must outlive the places. Tells the scheduler of every transport. */
void sim_places_init(struct sim_places *p, const struct conf *conf, const struct workload *workload,
                     struct sched *sched, struct sim_events *events, uint64_t seed);
void sim_places_fini(struct sim_places *p);

/* The number of the place that mail for this domain goes to. `model` (borrowed, or NULL) describes
 * its site if the domain is its own next hop, or `relayed` says that it holds behind a relay, too;
 * else, the workload does. */
uint32_t sim_places_need(struct sim_places *p, struct slice domain,
                         const struct sim_site_model *model, bool relayed);

/* After the last sim_places_need: give each its rank. */
void sim_places_rank(struct sim_places *p);

/* The seed of one of several independent streams of random numbers, each with its own `name`. */
uint64_t sim_stream_seed(uint64_t seed, const char *name);

#endif
