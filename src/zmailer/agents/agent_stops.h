/*
 * Stops of threads that the queue process has not processed yet.
 *
 * A result that stops its thread crosses deliveries that the queue process sent before. Those are
 * returned untried until the queue process has acknowledged the result (WIRE_GO_ON): the channel
 * keeps the order of frames, so each later delivery was sent with knowledge of the stop.
 */
#ifndef ZMAILER_AGENT_STOPS_H
#define ZMAILER_AGENT_STOPS_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"
#include "slice.h"

/* Zeroed: no stops. */
struct agent_stops {
    struct agent_stop *by_entry;      /* owned */
    struct stopped_thread *by_thread; /* owned */
};
void agent_stops_fini(struct agent_stops *all);

/* Adds the stop of a thread by the result of this entry. */
void agent_stops_add(struct agent_stops *all, uint64_t entry, struct slice transport,
                     struct slice nexthop);
/* Removes the stop of an entry, which the queue process has processed. Returns false if there is
 * none. */
bool agent_stops_processed(struct agent_stops *all, uint64_t entry);
/* Has the thread a stop? */
bool agent_stops_holds(const struct agent_stops *all, struct slice transport, struct slice nexthop);

#endif
