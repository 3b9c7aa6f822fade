/*
 * KILL THREAD and REROUTE of the mailq protocol, as operations of the queue process (operation.h).
 */
#ifndef ZMAILER_DISMISS_H
#define ZMAILER_DISMISS_H

#include <stdint.h>

#include <jansson.h>

struct queue;

/* Removes recipients of a thread, one page at a time. dismiss_reroute returns them to the router
 * instead. */
unsigned dismiss_kill(struct queue *q, const json_t *question, uint64_t token, json_t **ret_answer);
unsigned dismiss_reroute(struct queue *q, const json_t *question, uint64_t token,
                         json_t **ret_answer);

#endif
