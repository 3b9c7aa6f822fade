/*
 * Part of a spool: external changes. Other programs change the store while it is open: a router or
 * a cleanup service adds files, agents mark recipients, operators move or remove mail, other nodes
 * write rows.
 *
 *     spool_external_fd readable, or *ret_again reached --> spool_poll --> messages to claim,
 *                                                                          spool_next_event
 *     a file is not as expected                         --> spool_resync --> the same
 *
 * The process that has the spool open for writing calls these outside a batch, and never in a
 * callback of the engine. The engine processes its findings by itself. It only reports changes of
 * messages that are claimed (SPOOL_EVENT_CHANGED); slices of such a message end with the event. For
 * a message that another program removed, the call that notices returns -ENOENT; no call may rely
 * on the file being there. Without this part the store never changes by itself: there is no
 * descriptor and no time, and spool_resync returns -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_EXTERNAL_H
#define SPOOL_SPOOL_EXTERNAL_H

#include "spool.h"

/* Returns a descriptor that is readable when there is work for spool_poll; -1 = never. It belongs
 * to the engine; the caller only watches it. */
int spool_external_fd(const struct spool *sp);

/* Reads a bounded piece of the changes that others have made, for a few milliseconds. *ret_again is
 * the time of the next call even if the descriptor is not readable (WALL_NEVER: none). New mail can
 * be claimed afterwards. Errors are those of storage; they lose nothing, and a later call
 * continues. */
int spool_poll(struct spool *sp, struct wall now, struct wall *ret_again);

/* Makes the next spool_poll examine the whole store, whatever the last *ret_again was. */
void spool_look(struct spool *sp);

/* Reads the file of a message again that was found changed or not as expected. `path` is that of
 * spool_message. Recipients that no longer need delivery leave the message. -ENOENT: unknown, or
 * gone. */
int spool_resync(struct spool *sp, struct slice path);

/* Does this spool serve only a selection of messages, which it looks up once? After they are done,
 * no further mail appears. */
bool spool_single_pass(const struct spool *sp);

/* Functions of an engine with this part, as the calls above. */
struct spool_external_part {
    int (*fd)(const struct spool *sp);
    int (*poll)(struct spool *sp, struct wall now, struct wall *ret_again);
    void (*look)(struct spool *sp);
    int (*resync)(struct spool *sp, struct slice path);
    bool (*single_pass)(const struct spool *sp);
};

#endif
