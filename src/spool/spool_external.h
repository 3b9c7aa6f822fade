/*
 * Part of a spool: external changes. Other programs change the store while it is open: a router or
 * a cleanup service adds files, agents mark recipients, operators move or remove mail, other nodes
 * write rows.
 *
 *     spool_external_fd readable, or its time has come --> spool_poll --> messages to be claimed,
 *                                                                         spool_next_event
 *     a file is not what it was expected to be       --> spool_resync --> the same
 *
 * The holder of a spool calls these outside a batch, in no callback of the engine. The engine takes
 * in what it finds by itself and tells the holder only what concerns it: SPOOL_EVENT_CHANGED of a
 * message that the holder has claimed, whose slices end with the event. A message that was removed
 * by another program is -ENOENT from the call that finds it gone; no call may rely on a file that
 * was there before. Without the part nothing ever changes by itself: no descriptor, no time,
 * -ENOTSUP from spool_resync.
 */
#ifndef SPOOL_SPOOL_EXTERNAL_H
#define SPOOL_SPOOL_EXTERNAL_H

#include "spool.h"

/* Readable when there is something for spool_poll; -1: never. The engine's, to be watched only. */
int spool_external_fd(const struct spool *sp);

/* Take in a bounded piece of what others have written, for a few milliseconds; *ret_again is when
 * to call again though the descriptor is silent (WALL_NEVER: never). What is new can be claimed
 * afterwards. Errors are those of storage; then nothing is lost, and a later call goes on. */
int spool_poll(struct spool *sp, struct wall now, struct wall *ret_again);

/* Whatever *ret_again was last, the next spool_poll looks at all there is. */
void spool_look(struct spool *sp);

/* The file of a message was found changed, or not what was expected: read it again. `path` as of
 * spool_message. What is no more to be delivered leaves. -ENOENT: not known, or gone. */
int spool_resync(struct spool *sp, struct slice path);

/* Is only a selection of messages served, which is looked for once? When it is done with, there
 * will be nothing more. */
bool spool_single_pass(const struct spool *sp);

/* The part, as spool_engine.h wants it: functions as the calls above. */
struct spool_external_part {
    int (*fd)(const struct spool *sp);
    int (*poll)(struct spool *sp, struct wall now, struct wall *ret_again);
    void (*look)(struct spool *sp);
    int (*resync)(struct spool *sp, struct slice path);
    bool (*single_pass)(const struct spool *sp);
};

#endif
