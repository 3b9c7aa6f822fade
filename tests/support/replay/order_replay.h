/*
 * The order of deliveries that the scheduler chooses when one agent works off what arrives.
 *
 * Virtual time. A plug, a message of one recipient, arrives first and keeps the agent busy while
 * the scenario's messages arrive; then each delivery takes the same time. Recipients are read when
 * the scheduler asks, as Postfix reads them in the midst of a selection. A message that finds the
 * active queue full waits outside, first come, first served. All mail is of class `personal`, as it
 * is with the default configuration when nothing of it is marked as bulk.
 */
#ifndef REPLAY_ORDER_REPLAY_H
#define REPLAY_ORDER_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"

#define ORDER_REPLAY_MESSAGES_MAX   100000u
#define ORDER_REPLAY_RECIPIENTS_MAX 1000000u /* of all messages */

struct order_arrival {
    int64_t at_us; /* after the plug; not before the arrival in front of it */
    uint32_t recipients;
};

struct order_scenario {
    struct sched_limits limits;
    struct sched_transport_policy policy;
    const struct order_arrival *arrivals; /* borrowed */
    size_t arrival_count;
    int64_t phase_us;    /* what the clock's second is past when the plug arrives */
    int64_t plug_us;     /* how long the plug's delivery takes */
    int64_t delivery_us; /* how long every other delivery takes */
    bool audit;          /* check the scheduler's invariants after each step; slow */
};

/* Play it. With a recipient limit of 1 each recipient is a destination of its own, as with
 * Postfix; else all share one. Returns the index of the message of each delivery, in order of
 * selection (to be released with mem_free), and their number. */
uint32_t *order_replay(const struct order_scenario *scenario, size_t *ret_count);

#endif
