/*
 * Messages that wait for the share of their destination, stored under keys as in the spool.
 *
 * A message is parked under its destination and its class, by the scheduler's names for them, as
 * new or as deferred mail; the oldest of each kind is admitted first. A key exists while a message
 * is parked under it.
 */
#ifndef SIM_PARKING_H
#define SIM_PARKING_H

#include <stdbool.h>
#include <stdint.h>

#include "heap.h"
#include "slice.h"

struct sim_parking;

/* A key: destination, class (empty: none) and kind of parked mail. */
struct sim_parking_key {
    uint32_t transport;
    struct slice dest, class_name;
    bool deferred;
};

/* State of a parked message; embedded in the message. */
struct sim_parked {
    struct heap_node node;
    struct sim_parking *parking; /* NULL: the message is not parked */
    uint64_t number;             /* ascending by age; 1..UINT64_MAX */
};

struct sim_parkings {
    struct sim_parking *by_key;
    uint32_t count; /* number of messages */
};

void sim_parkings_init(struct sim_parkings *p);

/* Frees all parkings; the messages belong to the caller. */
void sim_parkings_fini(struct sim_parkings *p);

void sim_parked_init(struct sim_parked *m, uint64_t number);

/* Parks a message that is not parked. */
void sim_parking_add(struct sim_parkings *p, const struct sim_parking_key *key,
                     struct sim_parked *m);

/* Removes a message that is parked. */
void sim_parking_remove(struct sim_parkings *p, struct sim_parked *m);

/* Moves all mail parked for the destination as new mail, of any class, to deferred mail. */
void sim_parkings_defer(struct sim_parkings *p, uint32_t transport, struct slice dest);

/* Returns the oldest message, or NULL if none is parked under the key. */
struct sim_parked *sim_parking_first(const struct sim_parkings *p,
                                     const struct sim_parking_key *key);

#endif
