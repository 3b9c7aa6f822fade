/* The sqlite engine: keys of messages (spool_keys.h). Their number stands beside them, as counting
 * them would read them all. */
#include "sqlite_engine.h"

#include <errno.h>
#include <string.h>

#include "spool_keys.h"

static int run_keys(struct sqlite_spool *s, sqlite3_stmt *st)
{
    return sqlite_done(s, st, sqlite_step(s, st));
}

static int add_to_count(struct sqlite_spool *s, int64_t change)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_KEYS_COUNT_ADD);

    sqlite_bind_int(st, 1, change);
    return run_keys(s, st);
}

/* Some whose time is over, and this one if its is. */
static int forget_some(struct sqlite_spool *s, struct slice key, struct wall now)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_KEYS_FORGET);
    int err;

    sqlite_bind_int(st, 1, now.us);
    sqlite_bind_int(st, 2, SPOOL_KEYS_FORGOTTEN);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 3, key.ptr, key.len, SQLITE_STATIC);
    }
    err = run_keys(s, st);
    return err != 0 || sqlite3_changes(s->db) == 0 ? err : add_to_count(s, -sqlite3_changes(s->db));
}

static int count_keys(struct sqlite_spool *s, uint64_t *ret_count)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_KEYS_COUNT);
    int rc = sqlite_step(s, st);

    *ret_count = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    return sqlite_done(s, st, rc);
}

static int find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max)
{
    struct sqlite_spool *s = sqlite_of(sp);
    uint64_t count;
    sqlite3_stmt *st;
    bool found;
    int rc, err = forget_some(s, k->key, now);

    if (err != 0) {
        return spool_batch_failed(sp, err);
    }
    st = sqlite_ask(s, ST_KEY_READ);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 1, k->key.ptr, k->key.len, SQLITE_STATIC);
    }
    sqlite_bind_int(st, 2, now.us);
    rc = sqlite_step(s, st);
    found = rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == SPOOL_KEY_SUM;
    if (found) {
        memcpy(k->sum, sqlite3_column_blob(st, 0), SPOOL_KEY_SUM);
        k->id.n = (uint64_t)sqlite3_column_int64(st, 1);
        k->until.us = sqlite3_column_int64(st, 2);
    }
    err = sqlite_done(s, st, rc);
    if (err != 0 || found) {
        return err;
    }
    err = count_keys(s, &count);
    return err != 0 ? err : count >= max ? -ENOSPC : -ENOENT;
}

static int add(struct spool *sp, const struct spool_key *k)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st = sqlite_ask(s, ST_KEY_ADD);
    int err;

    if (st != NULL) {
        sqlite3_bind_blob64(st, 1, k->key.ptr, k->key.len, SQLITE_STATIC);
        sqlite3_bind_blob64(st, 2, k->sum, SPOOL_KEY_SUM, SQLITE_STATIC);
    }
    sqlite_bind_int(st, 3, (int64_t)k->id.n);
    sqlite_bind_int(st, 4, k->until.us);
    err = run_keys(s, st);
    if (err == 0) {
        err = add_to_count(s, 1);
    }
    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

const struct spool_keys_part sqlite_keys = {.find = find, .add = add};
