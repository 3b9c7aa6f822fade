/*
 * Places of simulated mail: for each domain the transport and next hop to which the configuration
 * routes it, the policy there, and the simulated site.
 *
 * Domains with the same transport and next hop share one place: all mail to a relay host has one.
 * Places are numbered in the order of the workload's domains.
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
    char *key;          /* owned: transport/nexthop, in lower case; also the name */
    struct slice dest;  /* destination within its transport: the end of the key */
    uint32_t transport; /* index in the scheduler */
    enum conf_agent agent;
    bool per_mailbox; /* whether each recipient is its own destination: localpart@dest */
    struct tuning_dest tuning;
    struct sim_site site;
    struct sim_tally tally;
    uint32_t number; /* index in the list */
    uint32_t rank;   /* order by name, after sim_places_rank */
    UT_hash_handle hh;
};

struct sim_places {
    const struct conf *conf;         /* borrowed */
    const struct workload *workload; /* borrowed */
    struct sched *sched;             /* borrowed */
    struct sim_events *events;       /* borrowed */
    uint64_t seed;
    struct sim_site_model plain; /* model of sites without a `site` line */
    struct sim_place **list;     /* owned, with the places */
    uint32_t count;
    size_t size;
    struct sim_place *by_key;
};

/* Initializes the places and adds every transport to the scheduler. All arguments must outlive the
 * places. */
void sim_places_init(struct sim_places *p, const struct conf *conf, const struct workload *workload,
                     struct sched *sched, struct sim_events *events, uint64_t seed);
void sim_places_fini(struct sim_places *p);

/* Returns the number of the place for mail to this domain. `model` (borrowed, or NULL) is used for
 * its site if the domain is its own next hop, or if `relayed` is true and the workload describes no
 * site for the relay. Otherwise the workload's model is used. */
uint32_t sim_places_need(struct sim_places *p, struct slice domain,
                         const struct sim_site_model *model, bool relayed);

/* Gives each place its rank, after the last sim_places_need. */
void sim_places_rank(struct sim_places *p);

/* Returns the seed of one of several independent streams of random numbers, each with its own
 * `name`. */
uint64_t sim_stream_seed(uint64_t seed, const char *name);

#endif
