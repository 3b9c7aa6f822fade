/*
 * Messages on disk whose delivery was requested by name (flush, ETRN): defer_transports and
 * queueonly do not apply to their next pass.
 *
 * Owns the list. Limit: REQUESTED_MAX messages; defer_transports applies to further messages.
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
/* Was it requested? Also removes the message from the list. */
bool requested_take(struct requested *r, struct msg_id id);
void requested_fini(struct requested *r);

#endif
