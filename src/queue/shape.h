/*
 * The shape of the queue: for whom, or from whom, mail waits and how old it is, as Postfix's
 * qshape(1) shows it, by a walk along the tables of the spool.
 *
 * A question is answered in pieces of SHAPE_PIECE recipients or messages, so that none keeps
 * deliveries waiting: as long as the answer has a `next` the asker asks on with it (`after`), and
 * adds up.
 */
#ifndef QUEUE_SHAPE_H
#define QUEUE_SHAPE_H

#include <jansson.h>

#include "spool_search.h"
#include "times.h"

#define SHAPE_PIECE 2000
/* The ages: below 5 minutes, 10, 20, .., 1280, and more. */
#define SHAPE_AGES 10

/* Answer {"by": "destination", "after": NEXT}: {"rows": [{"name", "incoming": [N..], "deferred":
 * [..], "hold": [..], "corrupt": [..]}], "next"}, the lists with recipients by age. A name may
 * come again in the next answer. As listing_ask. */
unsigned shape_ask(struct spool *sp, const json_t *question, struct wall now, json_t **ret_answer);

#endif
