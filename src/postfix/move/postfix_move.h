/*
 * Mail from Postfix's queue directory into a spool, and back: `sluice import postfix`, `sluice
 * export postfix`.
 */
#ifndef POSTFIX_POSTFIX_MOVE_H
#define POSTFIX_POSTFIX_MOVE_H

/* From now on spool_mover_find knows "postfix". */
void postfix_move_register(void);

#endif
