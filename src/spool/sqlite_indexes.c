#include "sqlite_indexes.h"

#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "mem.h"

#define NAME_MAX_LEN 100

struct index {
    char name[NAME_MAX_LEN], table[NAME_MAX_LEN];
    char *sql; /* owned */
};

static bool run(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* Does a statement wait for its next step? The schema can't change then. */
static bool is_busy(sqlite3 *db)
{
    sqlite3_stmt *st = NULL;

    while ((st = sqlite3_next_stmt(db, st)) != NULL) {
        if (sqlite3_stmt_busy(st) != 0) {
            return true;
        }
    }
    return false;
}

/* Runs a query to its end. Returns whether it meets a damaged page. */
static bool meets_damage(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

    if (rc == SQLITE_OK) {
        do {
            rc = sqlite3_step(st);
        } while (rc == SQLITE_ROW);
    }
    (void)sqlite3_finalize(st); /* returns the error of the step again */
    return (rc & 0xff) == SQLITE_CORRUPT;
}

/* Is a page of the index damaged, and none of its table? From a damaged table an index would be
 * made that lacks mail. */
static bool is_damaged(sqlite3 *db, const struct index *index)
{
    const char *where = strstr(index->sql, " WHERE ");
    struct buf sql;
    bool damaged;

    buf_init(&sql, 1000 + strlen(index->sql));
    (void)buf_addf(&sql, "SELECT count(*) FROM \"%s\" INDEXED BY \"%s\"%s", index->table,
                   index->name, where != NULL ? where : ""); /* fits, as does the next */
    damaged = meets_damage(db, buf_cstr(&sql));
    if (damaged) {
        buf_clear(&sql);
        (void)buf_addf(&sql, "SELECT * FROM \"%s\" NOT INDEXED", index->table);
        damaged = !meets_damage(db, buf_cstr(&sql));
    }
    buf_fini(&sql);
    return damaged;
}

static bool replace(sqlite3 *db, const struct index *index)
{
    char forget[NAME_MAX_LEN + 100];
    bool ok;

    (void)snprintf(forget, sizeof forget,
                   "DELETE FROM sqlite_schema WHERE type = 'index' AND name = '%s'", index->name);
    ok = run(db, "PRAGMA writable_schema = ON; BEGIN IMMEDIATE") && run(db, forget) &&
         run(db, "PRAGMA writable_schema = RESET") && run(db, index->sql) && run(db, "COMMIT");
    if (!ok) {
        if (!sqlite3_get_autocommit(db)) {
            (void)run(db, "ROLLBACK"); /* the transaction is ours */
        }
        (void)run(db, "PRAGMA writable_schema = RESET"); /* reads the schema as it is */
    }
    return ok;
}

/* Reads the definitions of the indexes. Returns their array, to be freed. */
static struct index *read_indexes(sqlite3 *db, size_t *ret_count)
{
    static const char all[] = "SELECT name, tbl_name, sql FROM sqlite_schema"
                              " WHERE type = 'index' AND sql IS NOT NULL";
    struct index *indexes = NULL;
    size_t count = 0, size = 0;
    sqlite3_stmt *st = NULL;

    if (sqlite3_prepare_v2(db, all, -1, &st, NULL) == SQLITE_OK) {
        while (sqlite3_step(st) == SQLITE_ROW) {
            indexes = mem_grow(indexes, count, &size, sizeof *indexes);
            (void)snprintf(indexes[count].name, NAME_MAX_LEN, "%s", sqlite3_column_text(st, 0));
            (void)snprintf(indexes[count].table, NAME_MAX_LEN, "%s", sqlite3_column_text(st, 1));
            indexes[count].sql = mem_string((const char *)sqlite3_column_text(st, 2));
            count++;
        }
    }
    (void)sqlite3_finalize(st); /* a schema that can't be read has no index to make */
    *ret_count = count;
    return indexes;
}

bool indexes_mend(sqlite3 *db, indexes_told *told, void *arg)
{
    struct index *indexes;
    bool works = true;
    size_t count;

    if (is_busy(db) || !sqlite3_get_autocommit(db)) {
        return false;
    }
    indexes = read_indexes(db, &count);
    for (size_t i = 0; i < count; i++) {
        if (is_damaged(db, &indexes[i])) {
            bool made = replace(db, &indexes[i]);

            told(arg, indexes[i].name, made);
            works = works && made;
        }
        mem_free(indexes[i].sql);
    }
    mem_free(indexes);
    return works;
}
