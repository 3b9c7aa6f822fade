/*
 * Watches: SMTP dialogues that operators have requested (`sluice trace`), which are passed on to
 * the control process. process/dialogue.h is the side of the processes with connections.
 *
 * A watch ends by "unwatch" or with the control process. A process with connections gets all
 * watches when it is started again.
 *
 * Limits: WIRE_WATCHES_MAX watches. While WATCHES_WAITING_MAX bytes wait for the control process,
 * lines are dropped and counted, so that a watch never delays mail.
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
    uint64_t dropped; /* number of dropped lines not yet sent to the control process */
};

/* All watches; valid when zeroed. */
struct watches {
    struct watch at[WIRE_WATCHES_MAX];
    unsigned count;
    uint64_t last_number;
};

/* Begins or ends a watch, like operation.answer. {"destination", "client" or "queue_id": TEXT} is
 * answered with the number of the watch, which ends it. */
unsigned watches_begin(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned watches_end(struct queue *q, const json_t *question, json_t **ret_answer);

/* Ends all watches when the control process has ended. */
void watches_drop(struct queue *q);

/* Sends all watches to a process with connections. */
void watches_tell(const struct watches *w, struct channel *ch);

/* Handles WIRE_DIALOGUE of such a process. Returns false if it does not decode. */
bool watches_heard(struct queue *q, enum wire_role role, unsigned index, struct slice body);

#endif
