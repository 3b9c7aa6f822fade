/*
 * Requested mail: by ETRN of a domain, or an operator's flush. The mail of a domain is made due
 * page by page, because it may be a lot.
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

/* Makes the mail of a domain due in the next turns. */
void flush_domain(struct queue *q, struct slice domain);

/* Continues the oldest flush by one page; returns true if there is more to do. */
bool flush_some(struct queue *q);

/* Lets destinations named `wanted`, "nexthop" or "transport/nexthop", be tried again at once. */
void flush_revive(struct queue *q, struct slice wanted);

/* Makes a message due in the open batch, unless that changes nothing, and lets its destinations be
 * tried again. Returns 0 or a negative errno. */
int flush_message(struct queue *q, struct msg_id id, const struct spool_message *m);

#endif
