/*
 * How far web hooks have come in the journal, and their dead letters. The process `hook`
 * (fetch/hook.h) calls them; it knows what they are, this one their names alone.
 *
 *     WIRE_HOOK_ASK --> wanted --journal has more--> WIRE_HOOK_EVENTS --> under way --+
 *       ^                                                                            |
 *       +------------------- the note journal/hook/NAME <-- WIRE_HOOK_DONE ----------+
 *
 * A hook that is new begins with what comes now. One that is not named any more keeps its place: it
 * goes on there when it is named again, as far as the events are kept. What the journal has
 * forgotten before a hook has taken it is counted, logged, and told to the hook.
 *
 * Dead letters, events that a hook has not taken in time, are lines in STATE/web_hook.NAME.dead, up
 * to web_hook_dead_size; more of them are counted and logged. A process that tells of letters that
 * the journal does not have is not believed.
 *
 * Limits: HOOKS_MAX of them, also of names that were in use once.
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
    uint64_t taken;         /* events up to this one */
    bool wanted;            /* the process waits for more */
    uint64_t sent;          /* up to this one they are under way; 0: none are */
    uint64_t lost;          /* that the journal has forgotten */
    uint64_t lost_noted;    /* those up to this one are counted there */
    uint64_t dead, dropped; /* letters that were written, and for which there was no room */
    bool full_told;         /* the log was told that there is no room */
    struct wall failing;    /* since then; us 0: it is not */
    char *why;              /* owned */
};

struct hook_places {
    struct channel *channel; /* NULL: there is no process now */
    struct hook_place at[HOOKS_MAX];
    size_t count;
    bool full_told, off_told; /* to the log */
};

void hooks_begin(struct queue *q);
void hooks_end(struct queue *q);

/* The process; `fd` is taken. */
void hooks_adopt(struct queue *q, int fd);

/* Events were committed. */
void hooks_more(struct queue *q);

/* An array: name, taken, behind (so many it has not taken), lost, dead, dropped, and while it fails
 * failing_since and error. */
json_t *hooks_json(const struct queue *q);

#endif
