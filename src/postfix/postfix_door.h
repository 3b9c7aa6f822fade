/*
 * The door to Postfix's world: registers everything that other rooms use of it.
 *
 *     dialect.h       the configuration that is made from Postfix's
 *     spool_engine.h  the spool in Postfix's queue directory
 *     agent_kind.h    Postfix's delivery agents and other services, for the queue process
 *     extension.h     Postfix's parameters, for the parent
 */
#ifndef POSTFIX_POSTFIX_DOOR_H
#define POSTFIX_POSTFIX_DOOR_H

#include "slice.h"

/* Registers all of Postfix's parts. A program calls it first, before a role or the parent
 * begins. */
void postfix_open_door(void);

/* Sets Postfix's parameters for the processes that the parent starts. `text` must last as long as
 * the program. */
void postfix_keep_parameters(struct slice text);

#endif
