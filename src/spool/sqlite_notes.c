/* The sqlite engine: notes (spool_notes.h). */
#include "sqlite_engine.h"

#include <errno.h>

#include "spool_notes.h"

static int run_note(struct spool *sp, sqlite3_stmt *st)
{
    struct sqlite_spool *s = sqlite_of(sp);
    int err = sqlite_done(s, st, sqlite_step(s, st));

    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

static int put(struct spool *sp, struct slice name, struct slice text)
{
    sqlite3_stmt *st = sqlite_ask(sqlite_of(sp), ST_NOTE_PUT);

    sqlite_bind_slice(st, 1, name);
    sqlite_bind_slice(st, 2, text);
    return run_note(sp, st);
}

static int remove_note(struct spool *sp, struct slice name)
{
    sqlite3_stmt *st = sqlite_ask(sqlite_of(sp), ST_NOTE_REMOVE);

    sqlite_bind_slice(st, 1, name);
    return run_note(sp, st);
}

static struct slice keep(struct sqlite_spool *s, sqlite3_stmt *st, int column)
{
    const void *text = sqlite3_column_text(st, column);

    return text_pool_add(&s->pool, slice_of(text, (size_t)sqlite3_column_bytes(st, column)));
}

static int next(struct spool *sp, struct slice after, struct slice *ret_name,
                struct slice *ret_text)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_NOTE_NEXT);
    bool found;
    int rc, err;

    sqlite_bind_slice(st, 1, after);
    rc = sqlite_step(s, st);
    found = rc == SQLITE_ROW;
    if (found) {
        text_pool_clear(&s->pool);
        *ret_name = keep(s, st, 0);
        *ret_text = keep(s, st, 1);
    }
    err = sqlite_done(s, st, rc);
    return err != 0 ? err : found ? 0 : -ENOENT;
}

const struct spool_notes_part sqlite_notes = {.put = put, .remove = remove_note, .next = next};
