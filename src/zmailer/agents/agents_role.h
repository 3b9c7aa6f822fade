/*
 * The role that runs transport agents (agents.h), for the daemon's programs.
 */
#ifndef ZMAILER_AGENTS_ROLE_H
#define ZMAILER_AGENTS_ROLE_H

#include "role.h"

extern const struct role_ops agents_role;

#endif
