/*
 * Postfix's delivery agents as a kind of agent of the queue process (queue/agent_kind.h).
 */
#ifndef POSTFIX_MANAGER_KIND_H
#define POSTFIX_MANAGER_KIND_H

#include "agent_kind.h"
#include "conf.h"

extern const struct agent_kind manager_kind;

#endif
