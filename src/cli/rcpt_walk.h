/*
 * Iterates over all recipients of a message: those in the message's answer, then further pages. So
 * a message with a million recipients needs the memory of one page.
 */
#ifndef CLI_RCPT_WALK_H
#define CLI_RCPT_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "ask.h"

/* Members are private to rcpt_walk.c, except `cut`. */
struct rcpt_walk {
    struct ask *ask; /* borrowed; NULL: no further pages */
    json_t *page;    /* owned */
    size_t index;    /* index of the next recipient in the page */
    int64_t left;    /* number of recipients that the walk may still return */
    bool cut;        /* the limit ended the walk early */
    unsigned status; /* status of the last query */
    json_t *answer;  /* owned; error if `status` is not ASK_OK */
};

/* Begins a walk of at most `max` recipients. Takes a new reference to `message`. */
void rcpt_walk_init(struct rcpt_walk *w, struct ask *ask, json_t *message, int64_t max);

/* Returns the next recipient, valid until the next call, or NULL at the end. */
const json_t *rcpt_walk_next(struct rcpt_walk *w);

/* Releases the walk. Returns 0, or an exit status after an error, which was printed. */
int rcpt_walk_fini(struct rcpt_walk *w);

#endif
