/*
 * A small database next to the store of another mail system, for data that the store has no place
 * for: notes (spool_notes.h) and events (spool_events.h). spool_open opens one for an engine that
 * lacks these parts if its caller names a file. The calls of both parts stay the same, and the
 * engine is not involved.
 *
 * Mail never waits for this database. So each change is durable when its call returns, apart from
 * the batch of the spool, and an error leaves that batch as it was. The file may be removed,
 * damaged or full at any time:
 *
 *     removed      the next change makes a new file with all earlier notes, which are also in
 *                  memory; earlier events are lost
 *     damaged      the file is renamed to FILE.damaged; the rest is as above. If that happens at
 *                  the start, the notes are lost: the new file has SPOOL_NOTE_LOST until that is
 *                  removed
 *     full         no change is possible until there is room
 *     unreadable   at the start: there is no database until the next start; reading notes fails
 *
 * Each of these is reported once (spool_next_event), and so is the recovery.
 *
 * The file is a spool of the sqlite engine without messages. The first change creates it.
 */
#ifndef SPOOL_SIDE_STORE_H
#define SPOOL_SIDE_STORE_H

#include "spool.h"
#include "spool_events.h"
#include "spool_notes.h"

struct side_store;

/* Opens `path` if it exists. -EBUSY: another process has it open; *ret_error has the path. No other
 * error prevents the opening of the spool. `io` is borrowed until side_store_close. */
int side_store_open(const char *path, const struct spool_io *io, struct buf *ret_error,
                    struct side_store **ret_store);
void side_store_close(struct side_store *s); /* NULL is allowed */

/* Does the same as spool_tidy. */
void side_store_tidy(struct side_store *s);

/* Returns the text of the last error. */
const char *side_store_error(const struct side_store *s);

/* Returns the next line for the log and whether it is a warning; NULL if there is none. The line
 * lasts until the next call of the store. */
const char *side_store_line(struct side_store *s, bool *ret_is_warning);

/* Does the same as the calls of spool_notes.h and spool_events.h; so do those below. The caller has
 * checked the arguments. */
int side_note_put(struct side_store *s, struct slice name, struct slice text);
int side_note_remove(struct side_store *s, struct slice name);
int side_note_remove_damaged(struct side_store *s, struct slice name);
int side_notes_read(const struct side_store *s, spool_note_read *read, void *context);
int side_events_range(struct side_store *s, bool count_bytes, struct spool_events_range *ret);
int side_events_add(struct side_store *s, uint64_t first, uint64_t last, struct wall at,
                    struct slice lines);
int side_events_read(struct side_store *s, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                     struct slice *ret_lines);
int side_events_forget(struct side_store *s, uint64_t *ret_bytes);

#endif
