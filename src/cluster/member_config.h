/*
 * Configuration of this node's membership.
 */
#ifndef CLUSTER_MEMBER_CONFIG_H
#define CLUSTER_MEMBER_CONFIG_H

#include "conf.h"
#include "membership.h"

/* Returns the membership's configuration, with the program's times and formats. Borrows from
 * `conf`. */
struct membership_config member_config(const struct conf *conf);

#endif
