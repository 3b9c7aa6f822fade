/*
 * Whose SMTP dialogues operators want to see (`sluice trace`), and what of them goes to the control
 * process. process/dialogue.h has the other half.
 *
 * A watch ends when the control process says so ("unwatch"), or has ended. A process that talks and
 * is started again is told of all that there are.
 *
 * Limits: WIRE_WATCHES_MAX watches. While WATCHES_WAITING_MAX bytes wait for the control process,
 * lines are dropped and counted, so that it never holds mail up.
 */
#ifndef QUEUE_WATCHES_H
#define QUEUE_WATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "channel.h"
#include "slice.h"
#include "wire.h"

struct queue;

#define WATCHES_WAITING_MAX (1u << 20)

struct watch {
    uint64_t number;
    enum wire_watch_kind kind;
    char *what;       /* owned */
    uint64_t dropped; /* that the control process was not told of yet */
};

/* All zero at first. */
struct watches {
    struct watch at[WIRE_WATCHES_MAX];
    unsigned count;
    uint64_t last_number;
};

/* As operation.answer: {"destination", "client" or "queue_id": TEXT} is answered with the number of
 * the watch, which ends it. */
unsigned watches_begin(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned watches_end(struct queue *q, const json_t *question, json_t **ret_answer);

/* The control process has ended. */
void watches_drop(struct queue *q);

/* Tell a process that talks of all watches. */
void watches_tell(const struct watches *w, struct channel *ch);

/* WIRE_DIALOGUE of such a process. False: it does not decode. */
bool watches_heard(struct queue *q, enum wire_role role, unsigned index, struct slice body);

#endif
