/*
 * Connections that the parent begins for confined processes, which can make no socket: to the
 * filters that the configuration names, and to nothing else, whatever such a process asks for.
 *
 * Names are looked up when a configuration is read, as those of listeners are, so that an answer
 * never waits for a name server; an address that has changed since is found by the next reload.
 * Connecting does not wait either: the socket is handed over while it connects.
 */
#ifndef PARENT_OUTGOING_H
#define PARENT_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "slice.h"

struct outgoing;

/* Look up the filters of `conf`. NULL when a name has no address: *ret_error then has a line for
 * each, as preflight.h. */
struct outgoing *outgoing_new(const struct conf *conf, struct buf *ret_error);

/* NULL is fine. */
void outgoing_free(struct outgoing *o);

/* Begin to connect to one that `conf` named; attempt 0, 1, .. take its addresses in turn, of which
 * there are *ret_count. A socket that does not block, or -1 with the reason in *ret_error. */
int outgoing_connect(const struct outgoing *o, struct slice address, uint32_t attempt,
                     uint32_t *ret_count, struct buf *ret_error);

#endif
