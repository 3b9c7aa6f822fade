/*
 * The parameters under which something was recorded: the object `params` of a recording, over
 * Postfix's defaults.
 *
 * A name stands as it does in main.cf: with the transport's name in front
 * (tst_delivery_slot_cost), with default_, or without either. Every parameter that
 * sluice.conf(5) knows is understood; what is unknown is an error. What Postfix does not have at
 * all (shares of the active queue, memory of destinations) is off.
 */
#ifndef REPLAY_RECORDED_PARAMS_H
#define REPLAY_RECORDED_PARAMS_H

#include <stdbool.h>

#include <jansson.h>

#include "buf.h"
#include "scheduler.h"

struct recorded_params {
    struct sched_limits limits;
    struct sched_transport_policy policy; /* feedback as in Postfix's program */
};

/* `params` may be NULL: all are at their defaults. `one_at_a_time`: of a recording of single
 * deliveries, made with one process, one recipient per delivery and one delivery per destination as
 * the transport's own settings. False: *error says what is wrong, without place. */
bool recorded_params_read(const json_t *params, bool one_at_a_time, struct recorded_params *ret,
                          struct buf *error);

#endif
