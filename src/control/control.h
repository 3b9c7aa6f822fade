/*
 * What the services of the control process share: questions to the queue process. The HTTP
 * interface is in control.c; service.h says how others are added.
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "slice.h"

struct control;

/* `answer`: with another `status` than 200 the error, or NULL. It lasts for the call. */
typedef void control_answered(void *arg, unsigned status, const json_t *answer);

/* Ask what docs/api.md and the queue's operations know; takes `question`. The answer comes from the
 * loop, exactly once unless it is forgotten before; status 503 when the queue process ends. Returns
 * a name for control_forget, 0 when nothing can be asked at present (`question` is freed then,
 * too). */
uint64_t control_ask(struct control *c, json_t *question, control_answered *answered, void *arg);

/* The same for a question whose answer has bytes beside it. */
typedef void control_bytes_answered(void *arg, unsigned status, const json_t *answer,
                                    struct slice bytes);
uint64_t control_ask_bytes(struct control *c, json_t *question, control_bytes_answered *answered,
                           void *arg);
void control_forget(struct control *c, uint64_t name);

/* Is the process at the other end of this socket one of this daemon's that talk to the network? It
 * gets no answer then, and the log says so. */
bool control_refuses(const struct control *c, int fd);

#endif
