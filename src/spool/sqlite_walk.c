/* The sqlite engine: a walk over all waiting mail (spool_walk). */
#include "sqlite_engine.h"

#include "spool_search.h"

/* Copies a text of a row, which may be damaged: cut at SPOOL_ROUTE_MAX. */
static struct slice keep(struct sqlite_spool *s, sqlite3_stmt *st, int column)
{
    const void *text = sqlite3_column_text(st, column);
    size_t len = text != NULL ? (size_t)sqlite3_column_bytes(st, column) : 0;

    len = len > SPOOL_ROUTE_MAX ? SPOOL_ROUTE_MAX : len;
    return text_pool_add(&s->pool, slice_of(text != NULL ? text : "", len));
}

/* Decodes a row; false if it has no waiting recipients. */
static bool read_row(struct sqlite_spool *s, sqlite3_stmt *st, struct spool_walked *row)
{
    int64_t rcpts = sqlite3_column_int64(st, 4), state = sqlite3_column_int64(st, 5);

    *row = (struct spool_walked){.key = keep(s, st, 2),
                                 .transport = keep(s, st, 3),
                                 .state = (enum spool_state)state,
                                 .arrived = {sqlite3_column_int64(st, 6)},
                                 .rcpts = rcpts > 0 ? (uint64_t)rcpts : 0};
    return state >= SPOOL_INCOMING && state <= SPOOL_CORRUPT && row->rcpts > 0;
}

int sqlite_walk(struct spool *sp, enum spool_walk_by by, struct spool_walk *w, size_t max,
                struct spool_walked *ret, size_t *ret_count)
{
    struct sqlite_spool *s = sqlite_of(sp);
    bool of_rcpts = by == SPOOL_WALK_DESTINATION;
    size_t count = 0, rows = 0;
    sqlite3_stmt *st;
    int rc, err = w->id.n == 0 ? sqlite_need_all_rows(s) : 0;

    if (err != 0) {
        return err;
    }
    st = sqlite_ask(s, of_rcpts ? ST_WALK_RCPTS : ST_WALK_MESSAGES);
    text_pool_clear(&s->pool);
    sqlite_bind_int(st, 1, (int64_t)w->id.n);
    sqlite_bind_int(st, 2, of_rcpts ? (int64_t)w->n : (int64_t)by);
    sqlite_bind_int(st, 3, (int64_t)max);
    while ((rc = sqlite_step(s, st)) == SQLITE_ROW) {
        w->id.n = (uint64_t)sqlite3_column_int64(st, 0);
        w->n = (uint32_t)sqlite3_column_int64(st, 1);
        count += read_row(s, st, &ret[count]);
        rows++;
    }
    err = sqlite_done(s, st, rc);
    if (err == 0) {
        w->ended = rows < max;
        *ret_count = count;
    }
    return err;
}
