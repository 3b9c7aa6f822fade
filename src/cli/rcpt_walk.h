/*
 * All recipients of a message, page by page: those that came with it, then those that are asked
 * for. So a message with a million recipients is shown without being held.
 */
#ifndef CLI_RCPT_WALK_H
#define CLI_RCPT_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "ask.h"

/* Fields are private to rcpt_walk.c, but for `cut`. */
struct rcpt_walk {
    struct ask *ask; /* borrowed; NULL: only what came with the message */
    json_t *page;    /* owned */
    size_t index;    /* of the next one in the page */
    int64_t left;    /* recipients that are still wanted */
    bool cut;        /* the walk ended at the limit, and there are more */
    unsigned status; /* of the last question */
    json_t *answer;  /* owned; what went wrong, when `status` is not ASK_OK */
};

/* `message` gets one more reference. At most `max` recipients will come. */
void rcpt_walk_init(struct rcpt_walk *w, struct ask *ask, json_t *message, int64_t max);

/* The next recipient (until the next call), or NULL at the end. */
const json_t *rcpt_walk_next(struct rcpt_walk *w);

/* Release. 0, or after a failure, which is printed, an exit status. */
int rcpt_walk_fini(struct rcpt_walk *w);

#endif
