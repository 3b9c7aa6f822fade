/*
 * Moves mail from a spool into Postfix's queue directory.
 */
#ifndef POSTFIX_EXPORT_H
#define POSTFIX_EXPORT_H

#include "spool_mover.h"

spool_move_call postfix_export;

#endif
