/*
 * Threads for the mailq protocols, as operations of the queue process.
 */
#ifndef ZMAILER_QUEUE_THREADS_H
#define ZMAILER_QUEUE_THREADS_H

/* Registers "threads", "vertices", "kill" and "reroute" (operation.h). Called before the queue
 * process begins. */
void threads_register(void);

#endif
