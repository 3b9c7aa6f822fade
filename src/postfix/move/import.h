/*
 * Moves mail from Postfix's queue directory into a spool; export.h is the reverse.
 */
#ifndef POSTFIX_IMPORT_H
#define POSTFIX_IMPORT_H

#include "spool_mover.h"

spool_move_call postfix_import;

#endif
