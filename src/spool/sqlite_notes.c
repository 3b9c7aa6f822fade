/* The sqlite engine: notes (spool_notes.h). */
#include "sqlite_engine.h"

#include <errno.h>

#include "row_sum.h"
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
    sqlite_bind_int(st, 3, (int64_t)row_sum_note(name, text));
    return run_note(sp, st);
}

static int remove_note(struct spool *sp, struct slice name)
{
    sqlite3_stmt *st = sqlite_ask(sqlite_of(sp), ST_NOTE_REMOVE);

    sqlite_bind_slice(st, 1, name);
    return run_note(sp, st);
}

static int remove_damaged(struct spool *sp, struct slice name)
{
    sqlite3_stmt *st = sqlite_ask(sqlite_of(sp), ST_NOTE_REMOVE_DAMAGED);

    sqlite_bind_slice(st, 1, name);
    return run_note(sp, st);
}

static struct slice text_of(sqlite3_stmt *st, int column)
{
    return sqlite3_column_type(st, column) != SQLITE_TEXT
               ? SLICE("")
               : slice_of((const char *)sqlite3_column_text(st, column),
                          (size_t)sqlite3_column_bytes(st, column));
}

bool sqlite_note_row(sqlite3_stmt *st, struct slice *ret_name, struct slice *ret_text)
{
    *ret_name = text_of(st, 0);
    *ret_text = text_of(st, 1);
    return ret_name->len > 0 && ret_name->len <= SPOOL_NOTE_NAME_MAX && ret_text->len > 0 &&
           ret_text->len <= SPOOL_NOTE_TEXT_MAX && sqlite3_column_type(st, 2) == SQLITE_INTEGER &&
           (uint64_t)sqlite3_column_int64(st, 2) == row_sum_note(*ret_name, *ret_text);
}

/* Reads the whole table: a search by name would not find a row whose name is damaged. */
static int read_notes(struct spool *sp, spool_note_read *read, void *context)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_NOTES);
    struct slice name, text;
    int rc;

    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        bool is_whole = sqlite_note_row(st, &name, &text);

        read(context, name, text, !is_whole);
    }
    return sqlite_done(s, st, rc);
}

const struct spool_notes_part sqlite_notes = {
    .put = put, .remove = remove_note, .remove_damaged = remove_damaged, .read = read_notes};
