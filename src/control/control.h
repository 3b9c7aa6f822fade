/*
 * Interface of the control process for its services: queries to the queue process. The HTTP
 * interface is in control.c; service.h explains how other services are added.
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "slice.h"

struct control;

/* Takes an answer. If `status` is not 200, `answer` is the error, or NULL. It is valid during the
 * call. */
typedef void control_answered(void *arg, unsigned status, const json_t *answer);

/* Sends a query of docs/api.md or another operation of the queue process; takes `question`.
 * `answered` is called from the event loop, exactly once unless control_forget is called before;
 * with status 503 if the queue process ends. Returns a name for control_forget, or 0 if no query
 * can be sent now (`question` is freed, too). */
uint64_t control_ask(struct control *c, json_t *question, control_answered *answered, void *arg);

/* Takes an answer that has bytes next to its JSON, from control_ask_bytes. */
typedef void control_bytes_answered(void *arg, unsigned status, const json_t *answer,
                                    struct slice bytes);
uint64_t control_ask_bytes(struct control *c, json_t *question, control_bytes_answered *answered,
                           void *arg);
void control_forget(struct control *c, uint64_t name);

/* Is the peer of this socket one of the daemon's processes that talk to the network? Such a process
 * gets no answer, which is logged. */
bool control_refuses(const struct control *c, int fd);

#endif
