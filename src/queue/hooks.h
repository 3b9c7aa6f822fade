/*
 * Positions of web hooks in the journal, and their dead letters. The process `hook` (fetch/hook.h)
 * calls the URLs of web hooks; this process has only their names.
 *
 *     WIRE_HOOK_ASK --> wanted --journal has more--> WIRE_HOOK_EVENTS --> in flight --+
 *       ^                                                                             |
 *       +------------------- the note journal/hook/NAME <-- WIRE_HOOK_DONE -----------+
 *
 * A new hook begins with the next event. A hook that is no longer configured keeps its position,
 * and continues there when it is configured again, as far as events are kept. Events that the
 * journal has deleted before a hook accepted them are counted, logged, and reported to the hook.
 *
 * Dead letters are events that a hook has not accepted in time: lines in STATE/web_hook.NAME.dead,
 * up to web_hook_dead_size bytes. Further ones are counted and logged. Letters that are not in the
 * journal are a protocol error of the process.
 *
 * Limit: HOOKS_MAX names, including those that are no longer configured.
 */
#ifndef QUEUE_HOOKS_H
#define QUEUE_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "channel.h"
#include "hook_list.h"
#include "times.h"

struct queue;

struct hook_place {
    char name[HOOK_NAME_MAX + 1];
    uint64_t taken;         /* last event that the hook has accepted */
    bool wanted;            /* the process waits for events */
    uint64_t sent;          /* last event in flight; 0: none */
    uint64_t lost;          /* number of events deleted before they were accepted */
    uint64_t lost_noted;    /* last event counted in `lost` */
    uint64_t dead, dropped; /* letters written, and letters without room */
    bool full_told;         /* the lack of room was logged */
    struct wall failing;    /* start of its failure; us 0: it works */
    char *why;              /* owned; reason of the failure; NULL: it works */
};

struct hook_places {
    struct channel *channel; /* NULL: the process is not running */
    struct hook_place at[HOOKS_MAX];
    size_t count;
    bool full_told, off_told; /* logged */
};

void hooks_begin(struct queue *q);
void hooks_end(struct queue *q);

/* Adopts the connection to a new process; `fd` is taken. */
void hooks_adopt(struct queue *q, int fd);

/* Sends events that were committed. */
void hooks_more(struct queue *q);

/* Returns an array of hooks: name, taken, `behind` (events not accepted yet), lost, dead, dropped,
 * and while the hook fails failing_since and error. */
json_t *hooks_json(const struct queue *q);

#endif
