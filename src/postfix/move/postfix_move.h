/*
 * Moves mail from Postfix's queue directory into a spool, and back: `sluice import postfix`,
 * `sluice export postfix`.
 */
#ifndef POSTFIX_POSTFIX_MOVE_H
#define POSTFIX_POSTFIX_MOVE_H

/* Registers "postfix" for spool_mover_find. */
void postfix_move_register(void);

#endif
