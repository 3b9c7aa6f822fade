/* The sqlite engine: keys of messages (spool_keys.h). Their number stands beside them, as counting
 * them would read them all, and is written once for a batch. What is known of them in memory is
 * forgotten when a batch fails. */
#include "sqlite_engine.h"

#include <errno.h>
#include <string.h>

#include "spool_keys.h"

static int run_keys(struct sqlite_spool *s, sqlite3_stmt *st)
{
    return sqlite_done(s, st, sqlite_step(s, st));
}

/* Learn how many there are, and when the first is to be forgotten. */
static int look_at_keys(struct sqlite_spool *s)
{
    sqlite3_stmt *st;
    int rc, err;

    if (s->keys.known) {
        return 0;
    }
    st = sqlite_ask(s, ST_KEYS_COUNT);
    rc = sqlite_step(s, st);
    if (rc == SQLITE_ROW) {
        s->keys.count = (uint64_t)sqlite3_column_int64(st, 0);
        s->keys.first.us =
            sqlite3_column_type(st, 1) == SQLITE_NULL ? INT64_MAX : sqlite3_column_int64(st, 1);
    }
    err = sqlite_done(s, st, rc);
    s->keys.known = err == 0;
    return err;
}

int sqlite_flush_keys(struct sqlite_spool *s)
{
    sqlite3_stmt *st;

    if (s->keys.change == 0) {
        return 0;
    }
    st = sqlite_ask(s, ST_KEYS_COUNT_ADD);
    sqlite_bind_int(st, 1, s->keys.change);
    s->keys.change = 0;
    return run_keys(s, st);
}

/* Some whose time is over, and this one if its is. */
static int forget_some(struct sqlite_spool *s, struct slice key, struct wall now)
{
    sqlite3_stmt *st;
    int err;

    if (now.us < s->keys.first.us) {
        return 0;
    }
    st = sqlite_ask(s, ST_KEYS_FORGET);
    sqlite_bind_int(st, 1, now.us);
    sqlite_bind_int(st, 2, SPOOL_KEYS_FORGOTTEN);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 3, key.ptr, key.len, SQLITE_STATIC);
    }
    err = run_keys(s, st);
    if (err == 0) {
        s->keys.change -= sqlite3_changes(s->db);
        err = sqlite_flush_keys(s);
    }
    s->keys.known = false; /* another is the first now */
    return err == 0 ? look_at_keys(s) : err;
}

static int find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st;
    bool found;
    int rc, err = look_at_keys(s);

    if (err == 0) {
        err = forget_some(s, k->key, now);
    }
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
    return s->keys.count >= max ? -ENOSPC : -ENOENT;
}

static int add(struct spool *sp, const struct spool_key *k)
{
    struct sqlite_spool *s = sqlite_of(sp);
    sqlite3_stmt *st;
    int err = look_at_keys(s);

    if (err != 0) {
        return spool_batch_failed(sp, err);
    }
    st = sqlite_ask(s, ST_KEY_ADD);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 1, k->key.ptr, k->key.len, SQLITE_STATIC);
        sqlite3_bind_blob64(st, 2, k->sum, SPOOL_KEY_SUM, SQLITE_STATIC);
    }
    sqlite_bind_int(st, 3, (int64_t)k->id.n);
    sqlite_bind_int(st, 4, k->until.us);
    err = run_keys(s, st);
    s->has_rows_beside = true;
    s->keys.count++;
    s->keys.change++;
    s->keys.first = k->until.us < s->keys.first.us ? k->until : s->keys.first;
    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

const struct spool_keys_part sqlite_keys = {.find = find, .add = add};
