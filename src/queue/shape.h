/*
 * The shape of the queue: counts of waiting recipients by destination, sender or class, and by age,
 * like Postfix's qshape(1). It is computed by a walk along the tables of the spool.
 *
 * Each answer covers SHAPE_PIECE recipients or messages, so that no answer delays deliveries. If an
 * answer has `next`, the client asks again with that as `after`, and adds up the counts.
 */
#ifndef QUEUE_SHAPE_H
#define QUEUE_SHAPE_H

#include <jansson.h>

#include "spool_search.h"
#include "times.h"

#define SHAPE_PIECE 2000
/* Number of ages: below 5 minutes, 10, 20, .., 1280, and more. */
#define SHAPE_AGES 10

/* Answers {"by": "destination", "after": NEXT} with {"rows": [{"name", "incoming": [N..],
 * "deferred": [..], "hold": [..], "corrupt": [..]}], "next"}. The lists have recipients by age. A
 * name may appear again in the next answer. Errors are those of listing_ask. */
unsigned shape_ask(struct spool *sp, const json_t *question, struct wall now, json_t **ret_answer);

#endif
