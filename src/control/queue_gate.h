/*
 * Gates that only the queue process has, with their texts as in docs/api.md: those of the
 * scheduler, and its own. Gates that need only the spool are in gate.h.
 *
 * Nothing here changes anything; each gate is a bounded piece of work.
 */
#ifndef CONTROL_QUEUE_GATE_H
#define CONTROL_QUEUE_GATE_H

#include <jansson.h>

#include "buf.h"
#include "facts.h"
#include "times.h"

struct queue;

/* A destination with the facts that gates need. */
struct gate_place {
    struct destination_facts is;
    struct buf name; /* "smtp/example.com", as commands accept it */
};

/* Collects the facts. `dest` and the facts are valid until the queue process goes on. */
void gate_place_init(struct gate_place *p, const struct queue *q, uint32_t transport,
                     struct slice dest);
void gate_place_fini(struct gate_place *p);

/* Appends the place where a value of the destination is set: "NAME (FILE:LINE)", or "NAME in the
 * clause PATTERN (FILE:LINE)". */
void gate_place_origin(struct buf *out, const struct gate_place *p, const char *value);

/* Returns the parameter that limits the window. */
const char *gate_place_window_limit(const struct gate_place *p);

/* Makes a gate of the scheduler. `p` may be NULL for SCHED_GATE_UNREAD. */
json_t *queue_gate(const struct queue *q, struct gate_place *p, const struct sched_wait *w,
                   const struct sched_gate *g);

/* Puts the gate of a message that can't be read, or whose results can't be stored, before all
 * others. `why` is the reason; `command` finds the fault. */
void queue_gate_damage(const char *why, struct mono again, const char *command, json_t *gates);

/* Puts the gates that are closed for all mail before the others: results can't be stored, or this
 * node's lease is over. Until that is repaired nothing starts. */
void queue_gate_all_mail(const struct queue *q, json_t *gates);

/* Appends the gate of memory for messages, for a message that is due. */
void queue_gate_room(const struct queue *q, json_t *gates);

/* Converts a time to the wall clock; us 0 stays 0. */
struct wall gate_wall(struct mono t);

#endif
