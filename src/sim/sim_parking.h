/*
 * Messages that wait for the share of their destination: what the spool keeps under keys.
 *
 * A message is parked under one destination and its class, by the scheduler's names for them; the
 * oldest is admitted first. A key is here while something is parked under it.
 */
#ifndef SIM_PARKING_H
#define SIM_PARKING_H

#include <stdint.h>

#include "heap.h"
#include "slice.h"

struct sim_parking;

/* A key: where mail waits, and of which class (empty: none). */
struct sim_parking_key {
    uint32_t transport;
    struct slice dest, class_name;
};

/* Embed it in the message. */
struct sim_parked {
    struct heap_node node;
    struct sim_parking *parking; /* NULL: it is not parked */
    uint64_t number;             /* by age; 1..UINT64_MAX */
};

struct sim_parkings {
    struct sim_parking *by_key;
    uint32_t count; /* messages */
};

void sim_parkings_init(struct sim_parkings *p);

/* Forgets what is parked; the messages are the caller's. */
void sim_parkings_fini(struct sim_parkings *p);

void sim_parked_init(struct sim_parked *m, uint64_t number);

/* Park a message that is not. */
void sim_parking_add(struct sim_parkings *p, const struct sim_parking_key *key,
                     struct sim_parked *m);

/* Take out one that is parked. */
void sim_parking_remove(struct sim_parkings *p, struct sim_parked *m);

/* The oldest, or NULL when nothing is parked there. */
struct sim_parked *sim_parking_first(const struct sim_parkings *p,
                                     const struct sim_parking_key *key);

#endif
