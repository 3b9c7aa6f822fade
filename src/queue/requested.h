/*
 * Messages whose delivery was requested by name (flush, ETRN) while they were on disk: in their
 * next pass defer_transports and queueonly do not hold for them.
 *
 * Owns the list. Limit: REQUESTED_MAX messages; of more, defer_transports holds for the rest.
 */
#ifndef QUEUE_REQUESTED_H
#define QUEUE_REQUESTED_H

#include <stdbool.h>

#include "spool.h"

#define REQUESTED_MAX 100000

struct requested_message;

struct requested {
    struct requested_message *table;
};

void requested_add(struct requested *r, struct msg_id id);
/* Was it requested? It is no longer afterwards. */
bool requested_take(struct requested *r, struct msg_id id);
void requested_fini(struct requested *r);

#endif
