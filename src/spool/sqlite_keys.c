/*
 * The sqlite engine: keys of client requests (spool_keys.h). A key is stored with its message. If
 * the batch does not change the database for other reasons, the key goes into passage (passage.h)
 * and is found in memory. It gets its row together with many others: when there are
 * KEYS_PASSING_MAX, when their file should be reused, or when the spool is closed. A key that the
 * start finds in passage may already have its row, or a newer key may have replaced it: the one
 * that lasts longer is kept.
 *
 * The number of rows is stored in a table of its own, because counting reads them all, and is
 * written once per batch. When a batch fails, the counters in memory are read again.
 */
#include "sqlite_engine.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "spool_keys.h"

/* Limit of keys in passage: their rows are made in a few milliseconds, and are changes of at most 4
 * MiB in the log. */
#define KEYS_PASSING_MAX 512

/* Bytes of `until` and the sum, before the key in its record. */
#define RECORD_HEAD (8 + SPOOL_KEY_SUM)

static int run_keys(struct sqlite_spool *s, sqlite3_stmt *st)
{
    return sqlite_done(s, st, sqlite_step(s, st));
}

/* Reads the number of keys, and the time at which the first expires. */
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
    for (size_t i = 0; i < s->keys.listed_count && !s->keys.have_rows; i++) {
        struct wall until = s->keys.listed[i]->k.until;

        s->keys.count++;
        s->keys.first = until.us < s->keys.first.us ? until : s->keys.first;
    }
    s->keys.known = err == 0;
    return err;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static int write_count(struct sqlite_spool *s)
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

static int make_row(struct sqlite_spool *s, const struct spool_key *k)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_KEY_ADD);
    int err;

    if (st != NULL) {
        sqlite3_bind_blob64(st, 1, k->key.ptr, k->key.len, SQLITE_STATIC);
        sqlite3_bind_blob64(st, 2, k->sum, SPOOL_KEY_SUM, SQLITE_STATIC);
    }
    sqlite_bind_int(st, 3, (int64_t)k->id.n);
    sqlite_bind_int(st, 4, k->until.us);
    err = run_keys(s, st);
    s->keys.change += err == 0 ? sqlite3_changes(s->db) : 0;
    return err;
}

/* Removes up to `most` expired keys, and `key` if it has expired. */
static int forget_some(struct sqlite_spool *s, struct slice key, size_t most)
{
    sqlite3_stmt *st;
    int err;

    if (s->keys.now.us < s->keys.first.us) {
        return 0;
    }
    st = sqlite_ask(s, ST_KEYS_FORGET);
    sqlite_bind_int(st, 1, s->keys.now.us);
    sqlite_bind_int(st, 2, (int64_t)most);
    if (st != NULL) {
        sqlite3_bind_blob64(st, 3, key.ptr, key.len, SQLITE_STATIC);
    }
    err = run_keys(s, st);
    if (err == 0) {
        s->keys.change -= sqlite3_changes(s->db);
        err = write_count(s);
    }
    s->keys.known = false; /* another key is the first now */
    return err == 0 ? look_at_keys(s) : err;
}

int sqlite_need_key_rows(struct sqlite_spool *s)
{
    size_t count = s->keys.have_rows ? 0 : s->keys.listed_count;

    for (size_t i = 0; i < count; i++) {
        int err = make_row(s, &s->keys.listed[i]->k);

        if (err != 0) {
            return spool_batch_failed(&s->base, err);
        }
        err = passage_end_key(&s->passage, s->keys.listed[i]->file);
        if (err != 0) {
            return sqlite_passage_failed(s, err);
        }
    }
    s->keys.have_rows = s->keys.have_rows || count > 0;
    return 0;
}

int sqlite_flush_keys(struct sqlite_spool *s)
{
    bool is_time = s->keys.listed_count >= KEYS_PASSING_MAX ||
                   (s->keys.listed_count > 0 && passage_to_empty(&s->passage) != 0);
    int err = is_time ? sqlite_need_key_rows(s) : 0;

    if (err == 0 && is_time) {
        err = forget_some(s, SLICE(""), SPOOL_KEYS_FORGOTTEN * s->keys.listed_count);
    }
    return err == 0 ? write_count(s) : err;
}

/* ---- in passage ------------------------------------------------------------------------------ */

static struct sqlite_passing_key *find_passing(const struct sqlite_spool *s, struct slice key)
{
    struct sqlite_passing_key *p;

    HASH_FIND(hh, s->keys.passing, key.ptr, key.len, p);
    return p;
}

static void forget_passing(struct sqlite_spool *s, size_t from)
{
    while (s->keys.listed_count > from) {
        struct sqlite_passing_key *p = s->keys.listed[--s->keys.listed_count];

        HASH_DEL(s->keys.passing, p);
        mem_free(p);
    }
}

void sqlite_keys_committed(struct sqlite_spool *s)
{
    if (s->keys.have_rows) {
        forget_passing(s, 0);
    }
    s->keys.have_rows = false;
    s->keys.fresh = 0;
}

void sqlite_keys_undone(struct sqlite_spool *s)
{
    forget_passing(s, s->keys.listed_count - s->keys.fresh);
    s->keys.known = s->keys.have_rows = false;
    s->keys.change = 0;
    s->keys.fresh = 0;
}

void sqlite_keys_fini(struct sqlite_spool *s)
{
    forget_passing(s, 0);
    mem_free(s->keys.listed);
}

/* Can this key go into passage? Not if the batch changes the database in any case, as for messages
 * (sqlite_passage_takes). */
static bool passes(const struct sqlite_spool *s, const struct spool_key *k)
{
    return !s->in_transaction && !s->rows_beside && s->reserve.held &&
           find_passing(s, k->key) == NULL &&
           passage_fits(&s->passage, RECORD_HEAD + k->key.len, 0);
}

static int add_passing(struct sqlite_spool *s, const struct spool_key *k)
{
    struct sqlite_passing_key *p = mem_new(sizeof *p + k->key.len);
    uint64_t until = htole64((uint64_t)k->until.us);
    char record[RECORD_HEAD + SPOOL_KEY_MAX];
    int err;

    memcpy(record, &until, sizeof until);
    memcpy(record + sizeof until, k->sum, SPOOL_KEY_SUM);
    memcpy(record + RECORD_HEAD, k->key.ptr, k->key.len);
    err = passage_add_key(&s->passage, k->id, slice_of(record, RECORD_HEAD + k->key.len), &p->file);
    if (err != 0) {
        mem_free(p);
        return sqlite_passage_failed(s, err);
    }
    p->k = *k;
    memcpy(p->text, k->key.ptr, k->key.len);
    p->k.key.ptr = p->text;
    HASH_ADD_KEYPTR(hh, s->keys.passing, p->text, k->key.len, p);
    s->keys.listed = mem_grow(s->keys.listed, s->keys.listed_count, &s->keys.listed_size,
                              sizeof(struct sqlite_passing_key *));
    s->keys.listed[s->keys.listed_count++] = p;
    s->keys.fresh++;
    return 0;
}

int sqlite_take_passing_key(struct sqlite_spool *s, struct msg_id id, struct slice record)
{
    struct spool_key k = {.id = id};
    uint64_t until;

    if (record.len <= RECORD_HEAD || record.len > RECORD_HEAD + SPOOL_KEY_MAX ||
        id.n > SQLITE_LAST_ID_MAX) {
        return spool_fail(&s->base, -EBADMSG, "a key in passage makes no sense");
    }
    memcpy(&until, record.ptr, sizeof until);
    k.until.us = (int64_t)le64toh(until);
    memcpy(k.sum, record.ptr + sizeof until, SPOOL_KEY_SUM);
    k.key = slice_skip(record, RECORD_HEAD);
    return make_row(s, &k);
}

/* ---- the part ------------------------------------------------------------------------------- */

/* Reads the row of a key. *ret_found: it exists, but may have expired. */
static int read_row(struct sqlite_spool *s, struct spool_key *k, bool *ret_found)
{
    sqlite3_stmt *st = sqlite_ask(s, ST_KEY_READ);
    int rc;

    if (st != NULL) {
        sqlite3_bind_blob64(st, 1, k->key.ptr, k->key.len, SQLITE_STATIC);
    }
    rc = sqlite_step(s, st);
    *ret_found = rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == SPOOL_KEY_SUM;
    if (*ret_found) {
        memcpy(k->sum, sqlite3_column_blob(st, 0), SPOOL_KEY_SUM);
        k->id.n = (uint64_t)sqlite3_column_int64(st, 1);
        k->until.us = sqlite3_column_int64(st, 2);
    }
    return sqlite_done(s, st, rc);
}

static int find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max)
{
    struct sqlite_spool *s = sqlite_of(sp);
    const struct sqlite_passing_key *passing = find_passing(s, k->key);
    bool found = false;
    int err;

    if (passing != NULL && passing->k.until.us > now.us) {
        struct slice key = k->key;

        *k = passing->k;
        k->key = key;
        return 0;
    }
    s->keys.now = now;
    err = look_at_keys(s);
    if (err == 0) {
        err = read_row(s, k, &found);
    }
    if (err == 0 && found && k->until.us > now.us) {
        return 0;
    }
    /* Other keys are removed when their place is needed, or when the batch changes the database in
     * any case. */
    if (err == 0 && s->keys.count >= max && now.us >= s->keys.first.us) {
        err = sqlite_need_key_rows(s);
    }
    if (err == 0 && (found || s->in_transaction || s->keys.count >= max)) {
        err = forget_some(s, k->key, SPOOL_KEYS_FORGOTTEN);
    }
    if (err != 0) {
        return spool_batch_failed(sp, err);
    }
    return s->keys.count >= max ? -ENOSPC : -ENOENT;
}

static int add(struct spool *sp, const struct spool_key *k)
{
    struct sqlite_spool *s = sqlite_of(sp);
    int err = look_at_keys(s);

    if (err == 0) {
        err = passes(s, k) ? add_passing(s, k) : make_row(s, k);
    }
    s->keys.count++;
    s->keys.first = k->until.us < s->keys.first.us ? k->until : s->keys.first;
    return err == 0 ? 0 : spool_batch_failed(sp, err);
}

const struct spool_keys_part sqlite_keys = {.find = find, .add = add};
