/*
 * What happened lately at destinations: steps of their windows, deaths and revivals, and what they
 * replied. For operators; no decision depends on it.
 *
 * Bounded: at most HISTORY_SITES_MAX destinations are remembered, those to which something happened
 * last; a destination whose window never moves and that accepts everything has no history.
 */
#ifndef DAEMON_HISTORY_H
#define DAEMON_HISTORY_H

#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "slice.h"
#include "times.h"

#define HISTORY_SITES_MAX   2000
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

/* Newest first: steps[(newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX], i < step_count. */
struct history_site {
    struct history_step steps[HISTORY_STEPS_MAX];
    size_t newest, step_count;
    struct history_reply replies[HISTORY_REPLIES_MAX]; /* the latest first */
    size_t reply_count;
    char *key; /* private from here on */
    TAILQ_ENTRY(history_site) recent;
    UT_hash_handle hh;
};

struct history {
    struct history_site *sites;
    TAILQ_HEAD(history_recent, history_site) recent; /* what changed last is first */
};

void history_init(struct history *h);
void history_fini(struct history *h);

void history_add_step(struct history *h, uint32_t transport, struct slice dest,
                      struct history_step step);

/* A site said no, or could not be reached. */
void history_add_reply(struct history *h, uint32_t transport, struct slice dest, struct wall now,
                       struct slice status, struct slice host, struct slice text);

/* NULL when nothing is known. Lasts until the next call that adds something. */
const struct history_site *history_find(const struct history *h, uint32_t transport,
                                        struct slice dest);

#endif
