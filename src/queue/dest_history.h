/*
 * Recent events of destinations: changes of their windows, deaths, revivals and replies. For
 * operators only; no decision depends on them.
 *
 * At most DEST_HISTORIES_MAX destinations have a history: those with the latest events. A
 * destination whose window never changes and that accepts all mail has none.
 */
#ifndef QUEUE_DEST_HISTORY_H
#define QUEUE_DEST_HISTORY_H

#include <stdint.h>
#include <sys/queue.h>

#include "slice.h"
#include "times.h"

#define DEST_HISTORIES_MAX  2000
#define HISTORY_STEPS_MAX   16
#define HISTORY_REPLIES_MAX 5
#define HISTORY_TEXT_MAX    200 /* longest stored text of a reply, in bytes */
#define HISTORY_WORD_MAX    128 /* longest stored name of a host, in bytes */

enum history_why {
    HISTORY_SUCCESS, /* successful deliveries changed the window */
    HISTORY_FAILURE, /* failed deliveries changed the window */
    HISTORY_DEAD,    /* was declared dead; `after` is 0 */
    HISTORY_PROBED,  /* a probe begins: one delivery */
    HISTORY_REVIVED, /* is ready again */
};

struct history_step {
    struct wall at;
    uint32_t before, after; /* window */
    enum history_why why;
};

/* Equal replies; replies that differ only in digits or in text within <> count as equal. */
struct history_reply {
    struct wall first, last;
    uint64_t count;
    char status[16]; /* "4.4.1"; NUL-terminated, like host and text */
    char host[HISTORY_WORD_MAX + 1];
    char text[HISTORY_TEXT_MAX + 1];
};

struct destination;

/* History of a destination, which owns it (destination.history). The i-th step, from the newest, is
 * steps[(newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX] for i < step_count. */
struct dest_history {
    struct history_step steps[HISTORY_STEPS_MAX];
    size_t newest, step_count;
    struct history_reply replies[HISTORY_REPLIES_MAX]; /* the latest first */
    size_t reply_count;
    struct destination *of; /* private, as the next member is */
    TAILQ_ENTRY(dest_history) recent;
};

struct dest_histories {
    TAILQ_HEAD(dest_history_list, dest_history) recent; /* the latest change first */
    size_t count;
};

void dest_histories_init(struct dest_histories *all);
void dest_histories_fini(struct dest_histories *all);

void dest_history_add_step(struct dest_histories *all, struct destination *d,
                           struct history_step step);

/* Adds a reply with which the destination refused mail, or an error of its connection. */
void dest_history_add_reply(struct dest_histories *all, struct destination *d, struct wall now,
                            struct slice status, struct slice host, struct slice text);

#endif
