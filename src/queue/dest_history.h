/*
 * What happened lately at destinations: steps of their windows, deaths and revivals, and what they
 * replied. For operators; no decision depends on it.
 *
 * Bounded: at most DEST_HISTORIES_MAX destinations are remembered, those to which something
 * happened last; a destination whose window never moves and that accepts everything has no history.
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
#define HISTORY_TEXT_MAX    200 /* bytes kept of a reply */
#define HISTORY_WORD_MAX    128 /* of a host's name */

enum history_why {
    HISTORY_SUCCESS, /* the window was changed by good deliveries */
    HISTORY_FAILURE, /* by failed ones */
    HISTORY_DEAD,    /* it was declared dead; `after` is 0 */
    HISTORY_PROBED,  /* it gets one delivery */
    HISTORY_REVIVED, /* it is alive again */
};

struct history_step {
    struct wall at;
    uint32_t before, after; /* window */
    enum history_why why;
};

/* Replies that differ in numbers or addresses only are one. */
struct history_reply {
    struct wall first, last;
    uint64_t count;
    char status[16]; /* "4.4.1"; NUL-terminated, as are the others */
    char host[HISTORY_WORD_MAX + 1];
    char text[HISTORY_TEXT_MAX + 1];
};

struct destination;

/* Of one destination, which owns it (destination.history). Newest first:
 * steps[(newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX], i < step_count. */
struct dest_history {
    struct history_step steps[HISTORY_STEPS_MAX];
    size_t newest, step_count;
    struct history_reply replies[HISTORY_REPLIES_MAX]; /* the latest first */
    size_t reply_count;
    struct destination *of; /* private from here on */
    TAILQ_ENTRY(dest_history) recent;
};

struct dest_histories {
    TAILQ_HEAD(dest_history_list, dest_history) recent; /* what changed last is first */
    size_t count;
};

void dest_histories_init(struct dest_histories *all);
void dest_histories_fini(struct dest_histories *all);

void dest_history_add_step(struct dest_histories *all, struct destination *d,
                           struct history_step step);

/* The destination refused something, or could not be reached. */
void dest_history_add_reply(struct dest_histories *all, struct destination *d, struct wall now,
                            struct slice status, struct slice host, struct slice text);

#endif
