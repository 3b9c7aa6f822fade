/*
 * The door to Postfix's world: all that the rooms know of it is registered here.
 *
 *     dialect.h       the configuration that is made from Postfix's
 *     spool_engine.h  the spool in Postfix's queue directory
 *     agent_kind.h    Postfix's delivery agents and other services, for the queue process
 *     extension.h     Postfix's parameters, for the parent
 */
#ifndef POSTFIX_POSTFIX_DOOR_H
#define POSTFIX_POSTFIX_DOOR_H

#include "slice.h"

/* For the program, first of all: before a role begins, or the parent. */
void postfix_open_door(void);

/* Postfix's parameters, for the processes that the parent starts. Borrowed for good. */
void postfix_keep_parameters(struct slice text);

#endif
