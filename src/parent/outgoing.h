/*
 * Connections that the parent begins for confined processes, which can't make sockets: only to the
 * filters that the configuration names, whatever a process requests.
 *
 * Names are looked up when a configuration is read, as those of listeners, so that no answer waits
 * for a name server. A changed address takes effect at the next reload. Connecting does not wait
 * either: the socket is passed on while it connects.
 */
#ifndef PARENT_OUTGOING_H
#define PARENT_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "slice.h"

struct outgoing;

/* Looks up the filters of `conf`. Returns NULL if a name has no address; then *ret_error has a line
 * for each, as in preflight.h. */
struct outgoing *outgoing_new(const struct conf *conf, struct buf *ret_error);

/* Frees all addresses. NULL is fine. */
void outgoing_free(struct outgoing *o);

/* Begins to connect to a filter of `conf`. Attempts 0, 1, .. use its addresses in turn; *ret_count
 * is their number. Returns a non-blocking socket, or -1 and the reason in *ret_error. */
int outgoing_connect(const struct outgoing *o, struct slice address, uint32_t attempt,
                     uint32_t *ret_count, struct buf *ret_error);

#endif
