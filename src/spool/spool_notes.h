/*
 * Part of a spool: notes, short texts by name, that hold for as long as the mail does: what an
 * operator has decided about it (queue/interventions.h).
 *
 * A note is written in the batch and is there after a crash if its commit was. Their number is the
 * caller's to bound.
 *
 * An engine offers it that has a place for more than messages. For others there may be one beside
 * their store (side_store.h): then a change is durable when its call returns, and an error leaves
 * the batch as it was. Else every call is -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_NOTES_H
#define SPOOL_SPOOL_NOTES_H

#include "spool.h"

#define SPOOL_NOTE_NAME_MAX 64
#define SPOOL_NOTE_TEXT_MAX 8192

/* Write it, in place of the one that has the name. -EINVAL: name or text is empty or too long. */
int spool_note_put(struct spool *sp, struct slice name, struct slice text);

/* Remove it. No error when there is none. */
int spool_note_remove(struct spool *sp, struct slice name);

/* The first behind `after` (empty: of all) in order of names. -ENOENT: there is no more. Slices as
 * of reading. */
int spool_note_next(struct spool *sp, struct slice after, struct slice *ret_name,
                    struct slice *ret_text);

/* The part, as spool_engine.h wants it: arguments and batch are checked. */
struct spool_notes_part {
    int (*put)(struct spool *sp, struct slice name, struct slice text);
    int (*remove)(struct spool *sp, struct slice name);
    int (*next)(struct spool *sp, struct slice after, struct slice *ret_name,
                struct slice *ret_text);
};

#endif
