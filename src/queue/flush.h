/*
 * Mail that was asked for: ETRN of a domain, and the flush of an operator. A domain's mail is made
 * due page by page, as it may be a lot.
 */
#ifndef QUEUE_FLUSH_H
#define QUEUE_FLUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "slice.h"
#include "spool.h"

struct queue;
struct flush;

/* Domains whose mail is being made due. */
struct flushes {
    STAILQ_HEAD(, flush) list;
    size_t count;
};

void flushes_init(struct flushes *f);
void flushes_fini(struct flushes *f);

/* Make the mail of a domain due, in the turns that follow. */
void flush_domain(struct queue *q, struct slice domain);

/* Go on with it as far as one turn allows; true when there is more. */
bool flush_some(struct queue *q);

/* Destinations of that name, "nexthop" or "transport/nexthop", are tried again at once. */
void flush_revive(struct queue *q, struct slice wanted);

/* Make a message due in the open batch, unless that changes nothing. 0 or negative errno. */
int flush_message(struct queue *q, struct msg_id id, const struct spool_message *m);

#endif
