/*
 * The process that runs transport agents (agents.h), as the daemon's programs know it.
 */
#ifndef ZMAILER_AGENTS_ROLE_H
#define ZMAILER_AGENTS_ROLE_H

#include "role.h"

extern const struct role_ops agents_role;

#endif
