/*
 * The environment of child processes: those variables of the parent that a role or a library reads.
 *
 * A service manager or an operator's shell may have other variables, even secrets, which an
 * attacker in a child process could read. Programs that children start (commands, transport agents)
 * get an environment of their own (pipe_environment, ta_command.h).
 */
#ifndef PARENT_CHILD_ENVIRONMENT_H
#define PARENT_CHILD_ENVIRONMENT_H

#include "wire.h"

/* Returns an array of "NAME=VALUE" for a process of this role, with NULL at the end. Free the array
 * with mem_free; the strings are those of `environ`. */
char **child_environment(enum wire_role role);

#endif
