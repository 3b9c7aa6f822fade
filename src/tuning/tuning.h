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

/* A transport's policy from its own parameters. Of ta agents an entry is one job line: all
 * recipients that a message has for a destination, whatever destination_recipient_limit says.
 */
struct sched_transport_policy tuning_transport(const struct conf *conf, const struct policy *p);

/* The scheduler's name for mail of this class from this sender, which came from `client`: the
 * class, or where its mail is divided (class_fairness) a group of it. The result may be of `room`.
 */
struct slice tuning_sched_class(const struct conf *conf, struct slice class_name,
                                struct slice sender, struct slice client,
                                char room[SCHED_CLASS_NAME_MAX]);

/* The name of a group of a class: its number is one that sender_group gives. */
struct slice tuning_sched_class_of_group(struct slice class_name, uint32_t group,
                                         char room[SCHED_CLASS_NAME_MAX]);

/* The class of such a name. */
struct slice tuning_class_of(struct slice sched_class);

/* Is it a name that tuning_sched_class could have made? */
bool tuning_sched_class_valid(struct slice sched_class);

/* What one destination has of its own. */
struct tuning_dest {
    bool own; /* it differs from its transport: tuning_tell is to be called */
    struct sched_dest_policy policy;
    struct sched_ring_policy ring; /* maxring, maxchannel, maxta of policy.ring */
};

/* From the policy that holds for the destination, clauses included. Its ring is that of the clause
 * that matches, if that limits agents: in the scheduler a ring is one of a transport, as in ZMailer
 * it is one of clause and channel. ZMailer's other rule of rings, one host for each when the
 * command names it, is for the part that starts agents to keep. */
struct tuning_dest tuning_dest(const struct conf *conf, const struct policy *p);

/* Give the scheduler the destination's ring and policy; see sched_dest_policy for when. */
void tuning_tell(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                 const struct tuning_dest *tuning);

#endif
