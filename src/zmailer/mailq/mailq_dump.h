/*
 * The dump of mailq version 1: every vertex (a message's recipients for one thread), then for each
 * channel and each host the numbers of its vertices.
 *
 * Messages come in pages, as "vertices" tells of them; recipients of one message that are too many
 * for a page come in several, one after the other. What is kept of a vertex that was written is the
 * number of its thread, so a dump of a long queue costs little more than its threads.
 */
#ifndef ZMAILER_MAILQ_DUMP_H
#define ZMAILER_MAILQ_DUMP_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"

/* Listed; what comes behind is left out. */
#define MAILQ_DUMP_VERTICES_MAX 10000000u

struct mailq_dump;

struct mailq_dump *mailq_dump_new(void);
/* NULL is fine. */
void mailq_dump_free(struct mailq_dump *d);

/* Some recipients of a message, with the threads of its page. `last`: all of them have come; its
 * vertices are written. */
void mailq_dump_message(struct mailq_dump *d, const json_t *message, const json_t *threads,
                        bool last, struct buf *out);

/* The lists of channels and hosts, and the end. */
void mailq_dump_end(struct mailq_dump *d, struct buf *out);

#endif
