/*
 * Part of a spool: notes, short texts with names that last as long as the mail does: the overrides
 * of operators (`queue/interventions.h`).
 *
 * A note is written in the batch, so it exists after a crash if its commit was durable. The caller
 * limits their number. A checksum covers name and text; a damaged note is returned as damaged,
 * never left out.
 *
 * Engines that can store more than messages offer this part. For the others a database next to
 * their store may offer it (side_store.h): then a change is durable when its call returns, and an
 * error leaves the batch as it was. Otherwise every call returns -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_NOTES_H
#define SPOOL_SPOOL_NOTES_H

#include "spool.h"

#define SPOOL_NOTE_NAME_MAX 64
#define SPOOL_NOTE_TEXT_MAX 8192

/* The name of a note that the spool writes itself when a damaged store has lost notes, and which
 * ones is not known. It remains until the spool's user removes it. */
#define SPOOL_NOTE_LOST "lost"

/* Writes a note, replacing any note with the same name. -EINVAL: name or text is empty or too
 * long. */
int spool_note_put(struct spool *sp, struct slice name, struct slice text);

/* Removes a note. A missing note is no error. */
int spool_note_remove(struct spool *sp, struct slice name);

/* Removes the damaged notes that are read with this name. */
int spool_note_remove_damaged(struct spool *sp, struct slice name);

/* Receives a note. `is_damaged`: name and text are not as stored; either may be anything, and the
 * name may be empty or that of another note. Both last for the call, which must not use the
 * spool. */
typedef void spool_note_read(void *context, struct slice name, struct slice text, bool is_damaged);

/* Reads all notes, in no particular order. After an error some notes were not read. */
int spool_notes_read(struct spool *sp, spool_note_read *read, void *context);

/* Functions of an engine with this part; arguments and batch are checked before the call. */
struct spool_notes_part {
    int (*put)(struct spool *sp, struct slice name, struct slice text);
    int (*remove)(struct spool *sp, struct slice name);
    int (*remove_damaged)(struct spool *sp, struct slice name);
    int (*read)(struct spool *sp, spool_note_read *read, void *context);
};

#endif
