/*
 * What a configuration means to the scheduler: the one translation from parameters to limits and
 * policies, used by the queue process and by the simulator, so that both schedule alike.
 */
#ifndef TUNING_TUNING_H
#define TUNING_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "scheduler.h"

/* Limits over everything. A recipient limit below the active limit is raised to it, as Postfix
 * does. */
struct sched_limits tuning_limits(const struct conf *conf);

/* A transport's policy from its own parameters, clauses left aside. maxchannel and process_limit
 * both bound it; the smaller one holds. */
struct sched_transport_policy tuning_transport(const struct conf *conf, const struct policy *p);

/* What one destination has of its own. */
struct tuning_dest {
    bool own; /* a clause matches: sched_dest_policy is to be told */
    struct window_limits window;
    int64_t rate_delay_us;
};

/* From the policy that holds for the destination, clauses included. */
struct tuning_dest tuning_dest(const struct conf *conf, const struct policy *p);

#endif
