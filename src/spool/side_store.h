/*
 * A small database beside the store of another mail system, for what that has no place for: notes
 * (spool_notes.h) and events (spool_events.h). spool_open opens one for an engine that lacks these
 * parts when its caller names a file; the calls are the same, and the engine knows nothing of it.
 *
 * Mail never waits for it, and does not depend on it. So a change is durable by itself when its
 * call returns, apart from the batch of the spool, and an error leaves that batch as it was. The
 * file may be removed, damaged or full at any time:
 *
 *     removed      a new one is made by the next change, with all notes of before, as they are in
 *                  memory, too; events of before are lost
 *     damaged      it is set aside as FILE.damaged; then the same
 *     full         nothing can be changed until there is room
 *     unreadable   at the start: there is none until the next start
 *
 * Each is told once (spool_next_event), and so is that it works again.
 *
 * The file is a spool of the sqlite engine without messages. It is made by the first change.
 */
#ifndef SPOOL_SIDE_STORE_H
#define SPOOL_SIDE_STORE_H

#include "spool.h"
#include "spool_events.h"

struct side_store;

/* Open `path` when it is there. -EBUSY: another process has it; *ret_error says which. No other
 * error keeps the spool from being opened. `io` is borrowed for good. */
int side_store_open(const char *path, const struct spool_io *io, struct buf *ret_error,
                    struct side_store **ret_store);
void side_store_close(struct side_store *s); /* NULL is fine */

/* As spool_tidy. */
void side_store_tidy(struct side_store *s);

/* Words for the last error. */
const char *side_store_error(const struct side_store *s);

/* The next line for the log, a warning or (*ret_is_warning false) not; NULL: there is none. Lasts
 * until the next call of the store. */
const char *side_store_line(struct side_store *s, bool *ret_is_warning);

/* As spool_notes.h and spool_events.h have them; arguments are checked. */
int side_note_put(struct side_store *s, struct slice name, struct slice text);
int side_note_remove(struct side_store *s, struct slice name);
int side_note_next(const struct side_store *s, struct slice after, struct slice *ret_name,
                   struct slice *ret_text);
int side_events_range(struct side_store *s, bool count_bytes, struct spool_events_range *ret);
int side_events_add(struct side_store *s, uint64_t first, uint64_t last, struct wall at,
                    struct slice lines);
int side_events_read(struct side_store *s, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                     struct slice *ret_lines);
int side_events_forget(struct side_store *s, uint64_t *ret_bytes);

#endif
