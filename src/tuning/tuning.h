/*
 * Translates a configuration into limits and policies of the scheduler. The queue process and the
 * simulator share this code, so that both schedule alike.
 */
#ifndef TUNING_TUNING_H
#define TUNING_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "scheduler.h"

/* Returns the limits of the whole scheduler. A recipient limit below the active limit is raised to
 * it, as in Postfix. */
struct sched_limits tuning_limits(const struct conf *conf);

/* Returns a transport's policy from its own parameters. For ta agents an entry is one job line: all
 * recipients that a message has for a destination, whatever destination_recipient_limit is. */
struct sched_transport_policy tuning_transport(const struct conf *conf, const struct policy *p);

/* Returns the scheduler's name for mail of this class from this sender and `client`: the class, or
 * a group of the class if its mail is divided (class_fairness). The result may point into
 * `room`. */
struct slice tuning_sched_class(const struct conf *conf, struct slice class_name,
                                struct slice sender, struct slice client,
                                char room[SCHED_CLASS_NAME_MAX]);

/* Returns the name of a group of a class, for a number returned by sender_group. */
struct slice tuning_sched_class_of_group(struct slice class_name, uint32_t group,
                                         char room[SCHED_CLASS_NAME_MAX]);

/* Returns the class in such a name. */
struct slice tuning_class_of(struct slice sched_class);

/* Can tuning_sched_class return this name? */
bool tuning_sched_class_valid(struct slice sched_class);

/* Settings of one destination. */
struct tuning_dest {
    bool own; /* whether they differ from the transport's, so that tuning_tell must be called */
    struct sched_dest_policy policy;
    struct sched_ring_policy ring; /* maxring, maxchannel, maxta of policy.ring */
};

/* Returns the settings from the policy that applies to the destination, clauses included. The
 * destination is in the ring of the matching clause if that limits agents: a ring belongs to one
 * transport in the scheduler, and to one clause and channel in ZMailer. ZMailer's other rule for
 * rings, one host for each if the command names it, is left to the code that starts agents. */
struct tuning_dest tuning_dest(const struct conf *conf, const struct policy *p);

/* Passes the destination's ring and policy to the scheduler; see sched_dest_policy for the right
 * time. */
void tuning_tell(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                 const struct tuning_dest *tuning);

#endif
