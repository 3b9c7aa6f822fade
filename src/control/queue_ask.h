/*
 * Operations of docs/api.md that need the queue process. Those that need only the spool are in
 * listing.h.
 */
#ifndef CONTROL_QUEUE_ASK_H
#define CONTROL_QUEUE_ASK_H

/* Registers the operations (operation.h). Called before the queue process begins. */
void ask_register(void);

#endif
