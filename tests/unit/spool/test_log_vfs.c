#include "unit.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "log_vfs.h"
#include "mem.h"

/* ---- a VFS below, which counts and fails ---------------------------------------------------- */

struct spy_file {
    sqlite3_file base;
    /* Behind this struct: the real file. */
};

static struct {
    sqlite3_vfs *real;
    unsigned writes, largest; /* of logs */
    bool unsynced;            /* written to since the last sync */
    bool fail_write, fail_sync;
    bool harms_neighbours; /* what a torn write may do */
} spy;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return (sqlite3_file *)((struct spy_file *)file + 1);
}

static int spy_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int spy_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xRead(real_of(file), bytes, len, at);
}

static int spy_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    if (spy.fail_write) {
        return SQLITE_IOERR_WRITE;
    }
    spy.writes++;
    spy.largest = (unsigned)len > spy.largest ? (unsigned)len : spy.largest;
    spy.unsynced = true;
    return real_of(file)->pMethods->xWrite(real_of(file), bytes, len, at);
}

static int spy_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int spy_sync(sqlite3_file *file, int flags)
{
    if (spy.fail_sync) {
        return SQLITE_IOERR_FSYNC;
    }
    spy.unsynced = false;
    return real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int spy_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), ret_size);
}

static int spy_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int spy_sector_size(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int spy_characteristics(sqlite3_file *file)
{
    int all = real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));

    return spy.harms_neighbours ? all & ~SQLITE_IOCAP_POWERSAFE_OVERWRITE : all;
}

static int spy_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    static const sqlite3_io_methods methods = {
        .iVersion = 1,
        .xClose = spy_close,
        .xRead = spy_read,
        .xWrite = spy_write,
        .xTruncate = spy_truncate,
        .xSync = spy_sync,
        .xFileSize = spy_size,
        .xFileControl = spy_control,
        .xSectorSize = spy_sector_size,
        .xDeviceCharacteristics = spy_characteristics,
    };
    int rc;

    (void)vfs;
    if ((flags & SQLITE_OPEN_WAL) == 0) {
        return spy.real->xOpen(spy.real, path, file, flags, ret_flags);
    }
    rc = spy.real->xOpen(spy.real, path, real_of(file), flags, ret_flags);
    if (real_of(file)->pMethods != NULL) {
        file->pMethods = &methods;
    }
    return rc;
}

static void spy_install(void)
{
    static sqlite3_vfs vfs;

    spy.real = sqlite3_vfs_find(NULL);
    assert_non_null(spy.real);
    vfs = *spy.real;
    vfs.zName = "spy";
    vfs.szOsFile = (int)sizeof(struct spy_file) + spy.real->szOsFile;
    vfs.xOpen = spy_open;
    assert_int_equal(sqlite3_vfs_register(&vfs, 1), SQLITE_OK);
}

/* ---- the world ------------------------------------------------------------------------------ */

struct world {
    char dir[64], path[96];
    sqlite3 *db;
};

static void must(sqlite3 *db, const char *sql)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    if (rc != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
}

static int64_t number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int64_t n;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    n = sqlite3_column_int64(st, 0);
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    return n;
}

static sqlite3 *open_db(const struct world *w, const char *vfs)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs),
                     SQLITE_OK);
    must(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0");
    return db;
}

static int start(void **state)
{
    struct world *w = mem_new(sizeof *w);

    if (spy.real == NULL) {
        spy_install();
    }
    spy.fail_write = spy.fail_sync = spy.unsynced = false;
    snprintf(w->dir, sizeof w->dir, "/tmp/sluice-log-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof w->path, "%s/db", w->dir);
    assert_string_equal(log_vfs(), log_vfs());
    w->db = open_db(w, log_vfs());
    must(w->db, "CREATE TABLE t (n INTEGER PRIMARY KEY, bytes BLOB NOT NULL)");
    *state = w;
    return 0;
}

static int end(void **state)
{
    static const char *const names[] = {"db", "db-wal", "db-shm"};
    struct world *w = *state;
    char path[128];

    assert_int_equal(sqlite3_close(w->db), SQLITE_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", w->dir, names[i]);
        (void)unlink(path); /* not all are there */
    }
    assert_int_equal(rmdir(w->dir), 0);
    mem_free(w);
    return 0;
}

/* A read by another connection, which knows nothing of what the first one keeps. */
static int64_t seen_by_others(const struct world *w, const char *sql)
{
    sqlite3 *db = open_db(w, NULL);
    int64_t n = number(db, sql);

    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return n;
}

#define ROWS(count)                                                                                \
    "WITH RECURSIVE c (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM c WHERE i < " #count ")"      \
    " INSERT INTO t (bytes) SELECT zeroblob(3000) FROM c"

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_commit_is_one_write_and_then_its_sync(void **state)
{
    struct world *w = *state;

    spy.writes = spy.largest = 0;
    must(w->db, ROWS(1));
    assert_int_equal(spy.writes, 1);
    assert_true(spy.largest > 3000);
    assert_false(spy.unsynced);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 1);
}

static void a_long_commit_is_several_large_writes(void **state)
{
    struct world *w = *state;

    spy.writes = spy.largest = 0;
    must(w->db, ROWS(500));
    assert_in_range(spy.writes, 500 * 3000 / LOG_VFS_BYTES, 500 * 4120 * 2 / LOG_VFS_BYTES);
    assert_true(spy.largest <= LOG_VFS_BYTES);
    assert_false(spy.unsynced);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 500);
}

static void a_failing_write_fails_its_commit_and_no_other(void **state)
{
    struct world *w = *state;

    must(w->db, ROWS(3));
    must(w->db, "BEGIN; " ROWS(20));
    spy.fail_write = true;
    assert_int_equal(sqlite3_exec(w->db, "COMMIT", NULL, NULL, NULL), SQLITE_IOERR);
    spy.fail_write = false;
    if (!sqlite3_get_autocommit(w->db)) {
        must(w->db, "ROLLBACK");
    }
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 3);
    must(w->db, ROWS(4));
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 7);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM pragma_integrity_check"
                                       " WHERE integrity_check = 'ok'"),
                     1);
}

static void what_a_failed_sync_left_is_written_over(void **state)
{
    struct world *w = *state;

    must(w->db, "BEGIN; " ROWS(20));
    spy.fail_sync = true;
    assert_int_equal(sqlite3_exec(w->db, "COMMIT", NULL, NULL, NULL), SQLITE_IOERR);
    spy.fail_sync = false;
    if (!sqlite3_get_autocommit(w->db)) {
        must(w->db, "ROLLBACK");
    }
    must(w->db, ROWS(2));
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 2);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 2);
}

/* More than the cache holds: pages go to the log before the commit, and are read back from it. */
static void what_is_read_back_was_written(void **state)
{
    struct world *w = *state;

    must(w->db, "PRAGMA cache_size = 10; BEGIN; " ROWS(300));
    must(w->db, "UPDATE t SET bytes = randomblob(3100)");
    assert_int_equal(number(w->db, "SELECT sum(length(bytes)) FROM t"), 300 * 3100);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 0);
    must(w->db, "ROLLBACK");
    assert_int_equal(number(w->db, "SELECT count(*) FROM t"), 0);
    must(w->db, "BEGIN; " ROWS(300) "; UPDATE t SET bytes = randomblob(3200); COMMIT");
    assert_int_equal(seen_by_others(w, "SELECT sum(length(bytes)) FROM t"), 300 * 3200);
    must(w->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(seen_by_others(w, "SELECT sum(length(bytes)) FROM t"), 300 * 3200);
}

static void nothing_is_kept_where_sectors_are_filled_after_the_sync(void **state)
{
    struct world *w = *state;

    assert_int_equal(sqlite3_close(w->db), SQLITE_OK);
    spy.harms_neighbours = true;
    w->db = open_db(w, log_vfs());
    spy.writes = 0;
    must(w->db, ROWS(20));
    spy.harms_neighbours = false;
    assert_true(spy.writes > 40);
    assert_int_equal(seen_by_others(w, "SELECT count(*) FROM t"), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_is_one_write_and_then_its_sync, start, end),
        cmocka_unit_test_setup_teardown(a_long_commit_is_several_large_writes, start, end),
        cmocka_unit_test_setup_teardown(a_failing_write_fails_its_commit_and_no_other, start, end),
        cmocka_unit_test_setup_teardown(what_a_failed_sync_left_is_written_over, start, end),
        cmocka_unit_test_setup_teardown(what_is_read_back_was_written, start, end),
        cmocka_unit_test_setup_teardown(nothing_is_kept_where_sectors_are_filled_after_the_sync,
                                        start, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
