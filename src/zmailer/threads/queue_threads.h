/*
 * Threads as the mailq protocols ask for them, as operations of the queue process.
 */
#ifndef ZMAILER_QUEUE_THREADS_H
#define ZMAILER_QUEUE_THREADS_H

/* Register "threads", "vertices", "kill" and "reroute" (operation.h), before the queue process
 * begins. */
void threads_register(void);

#endif
