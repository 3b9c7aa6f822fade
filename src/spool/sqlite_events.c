/* The sqlite engine: the journal of events (spool_events.h). */
#include "sqlite_engine.h"

#include <errno.h>

#include "spool_events.h"

static int range(struct spool *sp, bool count_bytes, struct spool_events_range *ret)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_EVENTS_RANGE);
    int rc = sqlite_step(s, st), err;

    *ret = (struct spool_events_range){.first = 1};
    if (rc == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL) {
        ret->first = (uint64_t)sqlite3_column_int64(st, 0);
        ret->last = (uint64_t)sqlite3_column_int64(st, 1);
        ret->oldest.us = sqlite3_column_int64(st, 2);
    }
    err = sqlite_done(s, st, rc);
    if (err != 0 || !count_bytes) {
        return err;
    }
    st = sqlite_ask(s, ST_EVENTS_BYTES);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        ret->bytes = (uint64_t)sqlite3_column_int64(st, 0);
    }
    return sqlite_done(s, st, rc);
}

static int add(struct spool *sp, uint64_t first, uint64_t last, struct wall at, struct slice lines)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_EVENTS_ADD);
    int err;

    sqlite_bind_int(st, 1, (int64_t)first);
    sqlite_bind_int(st, 2, (int64_t)last);
    sqlite_bind_int(st, 3, at.us);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 4, lines.ptr, lines.len, SQLITE_STATIC);
    }
    err = sqlite_done(s, st, sqlite_step(s, st));
    s->has_rows_beside = true;
    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

static int read_block(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                      struct slice *ret_lines)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_EVENTS_READ);
    bool found;
    int rc, err;

    sqlite_bind_int(st, 1, (int64_t)number);
    rc = sqlite_step(s, st);
    found = rc == SQLITE_ROW;
    if (found) {
        text_pool_clear(&s->pool);
        *ret_first = (uint64_t)sqlite3_column_int64(st, 0);
        *ret_last = (uint64_t)sqlite3_column_int64(st, 1);
        *ret_lines = text_pool_add(
            &s->pool, slice_of(sqlite3_column_blob(st, 2), (size_t)sqlite3_column_bytes(st, 2)));
    }
    err = sqlite_done(s, st, rc);
    return err != 0 ? err : found ? 0 : -ENOENT;
}

static int forget(struct spool *sp, uint64_t *ret_bytes)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_EVENTS_FORGET);
    int rc = sqlite_step(s, st), err;

    *ret_bytes = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    err = sqlite_done(s, st, rc == SQLITE_ROW ? sqlite_step(s, st) : rc);
    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

const struct spool_events_part sqlite_events = {
    .range = range, .add = add, .read = read_block, .forget = forget};
