/*
 * Dump of mailq version 1: every vertex (one message's recipients for one thread), then the numbers
 * of the vertices for each channel and each host.
 *
 * Messages arrive in pages of the answer to "vertices". A message with too many recipients for one
 * page arrives in several consecutive pages. The dump keeps no more of a written vertex than the
 * number of its thread, so the dump of a long queue needs little more memory than its threads.
 */
#ifndef ZMAILER_MAILQ_DUMP_H
#define ZMAILER_MAILQ_DUMP_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "buf.h"

/* Largest number of vertices in a dump; the rest is left out. */
#define MAILQ_DUMP_VERTICES_MAX 10000000u

struct mailq_dump;

struct mailq_dump *mailq_dump_new(void);
/* Frees the dump; `d` may be NULL. */
void mailq_dump_free(struct mailq_dump *d);

/* Adds some recipients of a message, with the threads of its page. `last`: the message is complete,
 * and its vertices are written. */
void mailq_dump_message(struct mailq_dump *d, const json_t *message, const json_t *threads,
                        bool last, struct buf *out);

/* Appends the lists of channels and hosts, and the end of the dump. */
void mailq_dump_end(struct mailq_dump *d, struct buf *out);

#endif
