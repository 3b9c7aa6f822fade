/*
 * The gates that the queue process alone knows, in words, as docs/api.md has them: those of the
 * scheduler, and its own. Those that need no more than the spool are in gate.h.
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

/* One destination, as the gates see it. */
struct gate_place {
    struct destination_facts is;
    struct buf name; /* "smtp/example.com", what commands take */
};

/* `dest` and the facts last until the queue process goes on. */
void gate_place_init(struct gate_place *p, const struct queue *q, uint32_t transport,
                     struct slice dest);
void gate_place_fini(struct gate_place *p);

/* Append where a value of the destination is to be changed: "NAME (FILE:LINE)", or "NAME in the
 * clause PATTERN (FILE:LINE)". */
void gate_place_origin(struct buf *out, const struct gate_place *p, const char *value);

/* The parameter that makes the limit of the window. */
const char *gate_place_window_limit(const struct gate_place *p);

/* A gate of the scheduler. `p` may be NULL for SCHED_GATE_UNREAD. */
json_t *queue_gate(const struct queue *q, struct gate_place *p, const struct sched_wait *w,
                   const struct sched_gate *g);

/* Put the gate of a message that can't be read, or whose results can't be stored, for that reason,
 * before the others. `command` finds what is wrong. */
void queue_gate_damage(const char *why, struct mono again, const char *command, json_t *gates);

/* Put the gates that are closed for all mail before the others: results can't be stored, or this
 * node's lease is over. Until that is repaired nothing starts at any time. */
void queue_gate_all_mail(const struct queue *q, json_t *gates);

/* Append the gate of room for messages in memory, for one that is due. */
void queue_gate_room(const struct queue *q, json_t *gates);

/* On the wall clock; us 0 stays 0. */
struct wall gate_wall(struct mono t);

#endif
