/*
 * The operations of docs/api.md that the queue process answers, but for those of listing.h, which
 * need no more than the spool.
 */
#ifndef CONTROL_QUEUE_ASK_H
#define CONTROL_QUEUE_ASK_H

/* Register them (operation.h), before the queue process begins. */
void ask_register(void);

#endif
