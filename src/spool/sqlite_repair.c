/*
 * Makes a sound spool of what is left of a damaged one.
 *
 *      PATH                    the old database, only read; its log is not moved into it
 *      PATH.repairing          the new one while it is filled; a crash leaves it, and the next
 *                              repair starts over
 *      PATH.repaired           the new one, complete and synced
 *      PATH.damaged-N          the old one, kept; with its log, PATH.damaged-N-wal
 *
 * Files are renamed in this order. A spool whose PATH is missing while another of these files
 * exists refuses to open, so a crash between two steps leaves nothing that could be mistaken for a
 * spool:
 *
 *      PATH.repairing -> PATH.repaired     the old spool is still in place
 *      PATH -> PATH.damaged-N              no spool is in place; the next repair continues here
 *      PATH-wal -> PATH.damaged-N-wal
 *      PATH.repaired -> PATH               the new spool is in place
 *
 * A damaged page hides the rows after it from each way of reading. So the repair finds rows in
 * every possible way: along the table upwards, past a page that can't be read, downwards, and along
 * indexes and other tables that name the rows. Then it reads each row by itself. Rows that can't be
 * read are rebuilt from indexes, as far as these have their values, and quarantined.
 *
 * Records in segments name their message, but do not show whether it was delivered. They become
 * messages of their own (quarantined) only if the table of messages could not be read to its end.
 *
 * Finally all copied rows are read from the new database with the checks that the daemon makes; a
 * message that fails is quarantined.
 */
#include "spool_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "row_sum.h"
#include "spool_notes.h"
#include "sqlite_engine.h"
#include "sqlite_graft.h"
#include "sqlite_schema.h"

#define COLUMNS_MAX 64
#define KEPT_MAX    10000 /* limit of N in PATH.damaged-N */
#define REASON_MAX  512
/* First version of the tables that has notes. */
#define NOTES_VERSION 9

/* A list of ids; after list_sort in order and without duplicates. */
struct id_list {
    int64_t *ids; /* owned */
    size_t count, size;
};

struct repair {
    spool_told *told;
    void *context;
    struct buf *error; /* the caller's */
    char *path, *content_dir, *repairing, *repaired, *grafted;
    sqlite3 *old; /* NULL = no old database, or it can't be opened */
    sqlite3 *new;
    struct id_list found;   /* ids of messages */
    struct id_list trouble; /* ids of messages some of whose recipients could not be read by
                             * number */
    struct id_list made;    /* ids of messages whose row was missing and was made again */
    uint64_t doubtful;
    struct id_list passing; /* ids of messages in passage, which have rows in the new database */
    int64_t last_id, commits, tag, passage_from;
    bool messages_are_whole;        /* the old table of messages could be read to its end */
    struct segment_record *records; /* owned, by id; records of large content */
    size_t record_count, record_size;
};

static void tell(const struct repair *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(const struct repair *r, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* may be cut */
    va_end(args);
    r->told(r->context, line);
}

static int failed(struct repair *r, int err, const char *what, const char *path)
{
    (void)buf_addf(r->error, "%s: %s: %s", what, path, strerror(-err));
    return err;
}

static int failed_new(struct repair *r, const char *what)
{
    (void)buf_addf(r->error, "%s: %s: %s", what, r->repairing, sqlite3_errmsg(r->new));
    return -EIO;
}

static int exec_new(struct repair *r, const char *sql)
{
    return sqlite3_exec(r->new, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed_new(r, "write");
}

static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 1;
    char *both = mem_new(size);

    (void)snprintf(both, size, "%s%s", a, b); /* it fits */
    return both;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Gives a file to the owner of the old database, as the daemon opens it as that user. */
static int give_to_owner(struct repair *r, int fd, const char *path)
{
    char *copy = mem_string(r->path);
    struct stat owner;
    int err = 0;

    if (geteuid() == 0 &&
        (stat(r->path, &owner) == 0 || stat(r->content_dir, &owner) == 0 ||
         stat(dirname(copy), &owner) == 0) &&
        fchown(fd, owner.st_uid, owner.st_gid) != 0) {
        err = failed(r, -errno, "give to its owner", path);
    }
    mem_free(copy);
    return err;
}

/* ---- lists of ids --------------------------------------------------------------------------- */

static void list_add(struct id_list *list, int64_t id)
{
    if (list->count == list->size) {
        list->size = list->size == 0 ? 1024 : list->size * 2;
        list->ids = mem_resize(list->ids, list->size, sizeof list->ids[0]);
    }
    list->ids[list->count++] = id;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void list_sort(struct id_list *list)
{
    size_t kept = 0;

    if (list->count == 0) {
        return;
    }
    qsort(list->ids, list->count, sizeof list->ids[0], compare_ids);
    for (size_t i = 0; i < list->count; i++) {
        if (kept == 0 || list->ids[i] != list->ids[kept - 1]) {
            list->ids[kept++] = list->ids[i];
        }
    }
    list->count = kept;
}

/* Searches a sorted list. */
static bool list_has(const struct id_list *list, int64_t id)
{
    return list->count > 0 && bsearch(&id, list->ids, list->count, sizeof id, compare_ids) != NULL;
}

/* ---- finding what is there ------------------------------------------------------------------ */

/* Adds the ids that a statement returns. Returns true if the statement ended, false if it
 * failed. */
static bool gather_rows(struct repair *r, sqlite3_stmt *st, int64_t *ret_last)
{
    int rc = SQLITE_ERROR;

    while (st != NULL && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0);

        if (id > 0 && sqlite3_column_type(st, 0) == SQLITE_INTEGER) {
            list_add(&r->found, id);
            *ret_last = id;
        }
        if (r->found.count % 65536 == 0) {
            list_sort(&r->found);
        }
    }
    return rc == SQLITE_DONE;
}

static bool gather(struct repair *r, const char *sql, int64_t after, int64_t *ret_last)
{
    sqlite3_stmt *st = NULL;
    bool is_whole;

    (void)sqlite3_prepare_v2(r->old, sql, -1, &st, NULL); /* NULL on an error */
    sqlite_bind_int(st, 1, after);
    is_whole = gather_rows(r, st, ret_last);
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    return is_whole;
}

/* Reads ids along a table upwards. Where that fails, it continues after a gap, which grows until
 * rows can be read again; and it reads downwards from the end. Returns false after a failure. */
static bool gather_table(struct repair *r, const char *what, const char *up, const char *down)
{
    int64_t last = 0, unused = 0;
    bool is_whole = gather(r, up, last, &last);

    if (is_whole) {
        return true;
    }
    tell(r, "%s: pages can't be read: %s", what, sqlite3_errmsg(r->old));
    for (unsigned gap = 0; !is_whole && gap < 62;) {
        int64_t from = last, before = last;

        if (__builtin_add_overflow(from, INT64_C(1) << gap, &from)) {
            break;
        }
        is_whole = gather(r, up, from, &last);
        gap = last != before ? 0 : gap + 1; /* the smallest one again after rows were found */
    }
    (void)gather(r, down, INT64_MAX, &unused);
    return false;
}

/* ---- indexes -------------------------------------------------------------------------------- */

enum index {
    INDEX_ADDRESS,
    INDEX_NEXTHOP,
    INDEX_SENDER,
    INDEX_ARRIVED,
    INDEX_STATE,
    INDEX_DUE,
    INDEX_DOMAIN,
    INDEX_COUNT
};

/* `columns` lists an entry's columns in their order: the indexed ones, then those of the table's
 * key that are not among them. */
static const struct {
    const char *name, *columns, *first, *message;
} indexes[INDEX_COUNT] = {
    [INDEX_ADDRESS] = {"recipient_address", "address COLLATE NOCASE PRIMARY KEY, message, n",
                       "address", "message"},
    [INDEX_NEXTHOP] = {"recipient_nexthop", "nexthop PRIMARY KEY, message, transport, state, n",
                       "nexthop", "message"},
    [INDEX_DOMAIN] = {"recipient_domain", "domain PRIMARY KEY, message, n", "domain", "message"},
    [INDEX_SENDER] = {"message_sender", "sender COLLATE NOCASE PRIMARY KEY, id", "sender", "id"},
    [INDEX_ARRIVED] = {"message_arrived", "arrived PRIMARY KEY, id", "arrived", "id"},
    [INDEX_STATE] = {"message_state", "state PRIMARY KEY, id", "state", "id"},
    [INDEX_DUE] = {"message_due", "state PRIMARY KEY, due, id", "state", "id"},
};

/* Makes the indexes readable without their tables, as tables `entry_NAME`. An ordinary query on an
 * index looks up each entry in the table, if only for the index's own condition, and so finds
 * nothing after a lost page of the table.
 *
 * SQLite allows to declare a page as the root of another table; its shell does so for such cases
 * (`.imposter`). Nothing is written or copied. Changed definitions in a copy of the database would
 * need its space again. If SQLite was built without its test controls, the declaration is refused,
 * because the connection must not write. */
static void declare_indexes(struct repair *r)
{
    for (size_t i = 0; i < INDEX_COUNT; i++) {
        sqlite3_stmt *st = NULL;
        char sql[300];
        int root = 0, rc;

        (void)snprintf(sql, sizeof sql,
                       "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND name = '%s'",
                       indexes[i].name); /* it fits */
        rc = sqlite3_prepare_v2(r->old, sql, -1, &st, NULL);
        if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
            root = sqlite3_column_int(st, 0);
        }
        (void)sqlite3_finalize(st); /* an error is reported below */
        if (root > 1) {
            (void)snprintf(sql, sizeof sql, "CREATE TABLE entry_%s(%s) WITHOUT ROWID",
                           indexes[i].name, indexes[i].columns); /* it fits */
            (void)sqlite3_test_control(SQLITE_TESTCTRL_IMPOSTER, r->old, "main", 1, root);
            rc = sqlite3_exec(r->old, sql, NULL, NULL, NULL);
            (void)sqlite3_test_control(SQLITE_TESTCTRL_IMPOSTER, r->old, "main", 0, 0);
        }
        if (root <= 1 || rc != SQLITE_OK) {
            tell(r, "index %s: can't be read: %s", indexes[i].name, sqlite3_errmsg(r->old));
        }
    }
}

/* Returns a statement that reads an index upwards, or downwards from the end; a lost page ends
 * either direction. NULL if the index could not be declared. The caller finalizes the statement. */
static sqlite3_stmt *read_index(struct repair *r, enum index which, const char *columns, bool down)
{
    sqlite3_stmt *st = NULL;
    char sql[200];

    (void)snprintf(sql, sizeof sql, "SELECT %s FROM entry_%s ORDER BY %s %s", columns,
                   indexes[which].name, indexes[which].first, down ? "DESC" : "ASC"); /* it fits */
    (void)sqlite3_prepare_v2(r->old, sql, -1, &st, NULL); /* the error was already reported */
    return st;
}

static void gather_index(struct repair *r, enum index which)
{
    for (int down = 0; down < 2; down++) {
        sqlite3_stmt *st = read_index(r, which, indexes[which].message, down == 1);
        int64_t unused;
        bool is_whole = gather_rows(r, st, &unused);

        (void)sqlite3_finalize(st); /* other sources have the entries that were not read */
        if (is_whole) {
            return;
        }
    }
}

/* ---- content in segments -------------------------------------------------------------------- */

static void add_record(void *context, const struct segment_record *record)
{
    struct repair *r = context;

    if (r->tag != 0 && record->tag != (uint64_t)r->tag) {
        return; /* of another spool */
    }
    r->tag = (int64_t)record->tag;
    if (r->record_count == r->record_size) {
        r->record_size = r->record_size == 0 ? 1024 : r->record_size * 2;
        r->records = mem_resize(r->records, r->record_size, sizeof r->records[0]);
    }
    r->records[r->record_count++] = *record;
}

static int compare_records(const void *a, const void *b)
{
    const struct segment_record *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

static void gather_records(struct repair *r)
{
    segments_walk(&spool_io_real, r->content_dir, add_record, r);
    if (r->record_count > 0) {
        qsort(r->records, r->record_count, sizeof r->records[0], compare_records);
    }
    for (size_t i = 0; !r->messages_are_whole && i < r->record_count; i++) {
        list_add(&r->found, (int64_t)r->records[i].id);
    }
}

/* Finds a record of a message with `size` bytes of content; 0 = any size. Records of one message
 * are copies of each other; the one at `at` is preferred. */
static const struct segment_record *find_record(const struct repair *r, int64_t id, uint64_t size,
                                                struct segment_place at)
{
    const struct segment_record key = {.id = (uint64_t)id}, *best = NULL, *record;
    const struct segment_record *end = r->records + r->record_count;

    record = r->record_count == 0 ? NULL
                                  : bsearch(&key, r->records, r->record_count, sizeof r->records[0],
                                            compare_records);
    while (record != NULL && record > r->records && record[-1].id == (uint64_t)id) {
        record--;
    }
    for (; record != NULL && record < end && record->id == (uint64_t)id; record++) {
        bool is_there = record->place.segment == at.segment && record->place.at == at.at;

        if ((size == 0 || record->size == size) && (best == NULL || is_there)) {
            best = record;
        }
    }
    return best;
}

static void gather_files(struct repair *r)
{
    DIR *dir = opendir(r->content_dir);
    struct dirent *entry;
    struct msg_id id;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (spool_id_parse(slice_string(entry->d_name), &id) && id.n > 0 && id.n <= INT64_MAX) {
            list_add(&r->found, (int64_t)id.n);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static void gather_all(struct repair *r)
{
    gather_files(r);
    if (r->old == NULL) {
        gather_records(r);
        list_sort(&r->found);
        return;
    }
    r->messages_are_whole =
        gather_table(r, "messages", "SELECT id FROM message NOT INDEXED WHERE id > ?1 ORDER BY id",
                     "SELECT id FROM message NOT INDEXED WHERE id < ?1 ORDER BY id DESC");
    (void)gather_table(r, "recipients",
                       "SELECT DISTINCT message FROM recipient NOT INDEXED WHERE message > ?1"
                       " ORDER BY message",
                       "SELECT DISTINCT message FROM recipient NOT INDEXED WHERE message < ?1"
                       " ORDER BY message DESC");
    (void)gather_table(r, "contents",
                       "SELECT message FROM content WHERE message > ?1 ORDER BY message",
                       "SELECT message FROM content WHERE message < ?1 ORDER BY message DESC");
    declare_indexes(r);
    for (size_t i = 0; i < INDEX_COUNT; i++) {
        gather_index(r, (enum index)i);
    }
    gather_records(r);
    list_sort(&r->found);
}

/* ---- copying -------------------------------------------------------------------------------- */

/* Statements that copy a table: the columns that both databases have. */
struct copy {
    const char *table;
    sqlite3_stmt *read, *write;
    int count;
    int types[COLUMNS_MAX]; /* SQLITE_INTEGER, SQLITE_TEXT or SQLITE_BLOB */
    bool may_be_null[COLUMNS_MAX];
    int n_at; /* index of the column `n`, or -1 */
};

static bool has_column(sqlite3 *db, const char *table, const char *column)
{
    return sqlite3_table_column_metadata(db, "main", table, column, NULL, NULL, NULL, NULL, NULL) ==
           SQLITE_OK;
}

static int type_named(const char *name)
{
    return strcmp(name, "INTEGER") == 0 ? SQLITE_INTEGER
           : strcmp(name, "TEXT") == 0  ? SQLITE_TEXT
                                        : SQLITE_BLOB;
}

static int copy_begin(struct repair *r, struct copy *c, const char *table, const char *key,
                      const char *order)
{
    char sql[200];
    struct buf columns, marks, read, write;
    sqlite3_stmt *st = NULL;
    int rc;

    *c = (struct copy){.table = table, .n_at = -1};
    buf_init(&columns, 1u << 16);
    buf_init(&marks, 1u << 16);
    buf_init(&read, 1u << 16);
    buf_init(&write, 1u << 16);
    (void)snprintf(sql, sizeof sql, "SELECT name, type, \"notnull\" FROM pragma_table_info('%s')",
                   table); /* it fits */
    rc = sqlite3_prepare_v2(r->new, sql, -1, &st, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);

        rc = SQLITE_OK;
        if (!has_column(r->old, table, name)) {
            continue;
        }
        CHECK(c->count < COLUMNS_MAX);
        if (strcmp(name, "n") == 0) {
            c->n_at = c->count;
        }
        c->types[c->count] = type_named((const char *)sqlite3_column_text(st, 1));
        c->may_be_null[c->count] = sqlite3_column_int(st, 2) == 0;
        (void)buf_addf(&columns, "%s%s", c->count > 0 ? ", " : "", name); /* all fit */
        (void)buf_addf(&marks, "%s?%d", c->count > 0 ? ", " : "", c->count + 1);
        c->count++;
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    (void)buf_addf(&read, "SELECT %s FROM %s NOT INDEXED WHERE %s = ?1 %s", buf_cstr(&columns),
                   table, key, order);
    (void)buf_addf(&write, "INSERT OR IGNORE INTO %s (%s) VALUES (%s)", table, buf_cstr(&columns),
                   buf_cstr(&marks));
    if (rc == SQLITE_DONE && c->count > 0) {
        rc = sqlite3_prepare_v2(r->new, buf_cstr(&write), -1, &c->write, NULL);
        if (rc == SQLITE_OK) {
            /* gather_table has reported a table that can't be read; its rows are missing. */
            (void)sqlite3_prepare_v2(r->old, buf_cstr(&read), -1, &c->read, NULL);
        }
    }
    buf_fini(&columns);
    buf_fini(&marks);
    buf_fini(&read);
    buf_fini(&write);
    return rc == SQLITE_OK || rc == SQLITE_DONE ? 0 : failed_new(r, "prepare");
}

static void copy_end(struct copy *c)
{
    (void)sqlite3_finalize(c->read);  /* no error is left */
    (void)sqlite3_finalize(c->write); /* no error is left */
}

/* Binds a value if it has the column's type, else NULL, 0 or an empty value. Returns false in the
 * second case. */
static bool bind_value(struct copy *c, int at)
{
    sqlite3_value *value = sqlite3_column_value(c->read, at);
    int type = sqlite3_column_type(c->read, at);

    if (type == c->types[at] || (type == SQLITE_NULL && c->may_be_null[at])) {
        CHECK(sqlite3_bind_value(c->write, at + 1, value) == SQLITE_OK);
        return true;
    }
    if (c->may_be_null[at]) {
        CHECK(sqlite3_bind_null(c->write, at + 1) == SQLITE_OK);
    } else if (c->types[at] == SQLITE_INTEGER) {
        CHECK(sqlite3_bind_int64(c->write, at + 1, 0) == SQLITE_OK);
    } else if (c->types[at] == SQLITE_TEXT) {
        CHECK(sqlite3_bind_text(c->write, at + 1, "", 0, SQLITE_STATIC) == SQLITE_OK);
    } else {
        CHECK(sqlite3_bind_blob(c->write, at + 1, "", 0, SQLITE_STATIC) == SQLITE_OK);
    }
    return false;
}

struct copied {
    uint64_t rows;
    bool whole;   /* all rows could be read */
    bool changed; /* values had impossible types, or recipients got new numbers */
};

/* Copies the rows of one message. A recipient whose number is invalid or in use gets the next free
 * one. */
static int copy_rows(struct repair *r, struct copy *c, int64_t id, struct copied *ret)
{
    int64_t free_n = SPOOL_RCPTS_MAX / 2;
    int rc;

    *ret = (struct copied){.whole = c->read != NULL};
    if (c->read == NULL) {
        return 0;
    }
    sqlite_bind_int(c->read, 1, id);
    while ((rc = sqlite3_step(c->read)) == SQLITE_ROW) {
        int wrote;

        for (int i = 0; i < c->count; i++) {
            ret->changed |= !bind_value(c, i);
        }
        if (c->n_at >= 0 && (sqlite3_column_int64(c->read, c->n_at) < 1 ||
                             sqlite3_column_int64(c->read, c->n_at) > SPOOL_RCPTS_MAX)) {
            sqlite_bind_int(c->write, c->n_at + 1, free_n++);
            ret->changed = true;
        }
        wrote = sqlite3_step(c->write);
        if (wrote == SQLITE_DONE && sqlite3_changes(r->new) == 0 && c->n_at >= 0) {
            (void)sqlite3_reset(c->write); /* the row was refused */
            sqlite_bind_int(c->write, c->n_at + 1, free_n++);
            ret->changed = true;
            wrote = sqlite3_step(c->write);
        }
        ret->rows += sqlite3_changes(r->new) > 0;
        (void)sqlite3_reset(c->write); /* returns the error of the last step again */
        if (wrote != SQLITE_DONE) {
            (void)sqlite3_reset(c->read);
            return failed_new(r, "write");
        }
    }
    ret->whole = rc == SQLITE_DONE;
    (void)sqlite3_reset(c->read); /* returns the error of the last step again */
    return 0;
}

/* ---- doubts --------------------------------------------------------------------------------- */

static int run_on(struct repair *r, const char *sql, int64_t id, const char *text)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(r->new, sql, -1, &st, NULL);

    if (rc == SQLITE_OK) {
        sqlite_bind_int(st, 1, id);
        if (text != NULL) {
            sqlite_bind_slice(st, 2, slice_string(text));
        }
        rc = sqlite3_step(st);
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : failed_new(r, "write");
}

/* Quarantines a message, for this reason. */
static int doubt(struct repair *r, int64_t id, const char *reason)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = run_on(r, sqlite_statement_sql[ST_MESSAGE_QUARANTINE], id, reason);

    spool_id_print((struct msg_id){(uint64_t)id}, text);
    tell(r, "%s: quarantined as corrupt: %s", text, reason);
    r->doubtful++;
    return err;
}

/* ---- the messages --------------------------------------------------------------------------- */

/* Makes a row for a message whose own row is missing. */
static int make_message(struct repair *r, int64_t id, bool in_file, uint64_t size)
{
    char sql[400];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO message (id, listed, state, due, arrived, created, size, in_file,"
                   " flags, rcpt_total, rcpt_pending, rcpt_to_report, warned, force_expire, sender,"
                   " sender_domain, envid, client, reason)"
                   " VALUES (?1, 1, 4, 0, 0, 0, %llu, %d, 0, 1, 0, 0, 0, 0, '', '', '', '', '')",
                   (unsigned long long)size, in_file); /* it fits */
    return run_on(r, sql, id, NULL);
}

static int set_place(struct repair *r, int64_t id, const struct segment_record *record)
{
    char sql[200];

    (void)snprintf(
        sql, sizeof sql, "UPDATE message SET in_file = 1, segment = %lu, at = %llu WHERE id = ?1",
        (unsigned long)record->place.segment, (unsigned long long)record->place.at); /* it fits */
    return run_on(r, sql, id, NULL);
}

/* Corrects the place of content in a copied row, which may be out of date if the database is from a
 * backup and the segments are newer. */
static int find_content(struct repair *r, int64_t id)
{
    sqlite3_stmt *st = NULL;
    const struct segment_record *record = NULL;
    struct segment_place place = {.segment = 0};

    if (sqlite3_prepare_v2(r->new,
                           "SELECT segment, at, size FROM message WHERE id = ?1"
                           " AND segment IS NOT NULL",
                           -1, &st, NULL) != SQLITE_OK) {
        return failed_new(r, "read");
    }
    sqlite_bind_int(st, 1, id);
    if (sqlite3_step(st) == SQLITE_ROW) {
        place.segment = sqlite_segment_number(sqlite3_column_int64(st, 0));
        place.at = (uint64_t)sqlite3_column_int64(st, 1);
        record = find_record(r, id, (uint64_t)sqlite3_column_int64(st, 2), place);
    }
    (void)sqlite3_finalize(st); /* look_at reports a row that can't be read */
    if (record == NULL ||
        (record->place.segment == place.segment && record->place.at == place.at)) {
        return 0;
    }
    return set_place(r, id, record);
}

static bool file_size(const struct repair *r, int64_t id, uint64_t *ret_size)
{
    char text[SPOOL_ID_TEXT_MAX], path[4352];
    struct stat st;

    spool_id_print((struct msg_id){(uint64_t)id}, text);
    (void)snprintf(path, sizeof path, "%s/%s", r->content_dir, text); /* a path that is cut is not
                                                                       * found */
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return false;
    }
    *ret_size = (uint64_t)st.st_size;
    return true;
}

/* Is the message finished, and only the removal of its content was left? */
static bool is_removed(struct repair *r, int64_t id)
{
    sqlite3_stmt *st = NULL;
    bool yes =
        r->old != NULL && sqlite3_prepare_v2(r->old, "SELECT 1 FROM removed WHERE message = ?1", -1,
                                             &st, NULL) == SQLITE_OK;

    sqlite_bind_int(st, 1, id);
    yes = yes && sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_finalize(st); /* an error means no, which keeps the content */
    return yes;
}

static int64_t content_size(struct repair *r, int64_t id)
{
    sqlite3_stmt *st = NULL;
    int64_t size = 0;

    if (sqlite3_prepare_v2(r->new, "SELECT length(bytes) FROM content WHERE message = ?1", -1, &st,
                           NULL) == SQLITE_OK) {
        sqlite_bind_int(st, 1, id);
        size = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    }
    (void)sqlite3_finalize(st); /* 0 after an error */
    return size;
}

/* Returns the number of recipients that the message's row counts; 0 if the row is invalid. */
static uint64_t rcpts_expected(struct repair *r, int64_t id)
{
    sqlite3_stmt *st = NULL;
    int64_t count = 0;

    if (sqlite3_prepare_v2(r->new,
                           "SELECT rcpt_pending + rcpt_to_report FROM message WHERE id = ?1", -1,
                           &st, NULL) == SQLITE_OK) {
        sqlite_bind_int(st, 1, id);
        count = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    }
    (void)sqlite3_finalize(st); /* look_at reports counts that are wrong */
    return count < 0 || count > SPOOL_RCPTS_MAX ? 0 : (uint64_t)count;
}

struct copies {
    struct copy message, rcpt, content;
};

static int copy_message(struct repair *r, struct copies *c, int64_t id)
{
    struct copied message = {0}, rcpts = {0}, content = {0};
    const struct segment_record *record = NULL;
    bool has_file;
    uint64_t size = 0;
    int err = 0;

    if (r->old != NULL) {
        err = copy_rows(r, &c->message, id, &message);
        if (err == 0) {
            err = copy_rows(r, &c->rcpt, id, &rcpts);
        }
        if (err == 0) {
            err = copy_rows(r, &c->content, id, &content);
        }
    }
    if (err != 0) {
        return err;
    }
    has_file = file_size(r, id, &size);
    if (message.rows == 0) {
        if (content.rows == 0 && !has_file && (rcpts.rows > 0 || !r->messages_are_whole)) {
            record = find_record(r, id, 0, (struct segment_place){.segment = 0});
        }
        if (rcpts.rows == 0 && content.rows == 0 && record == NULL &&
            (has_file ? is_removed(r, id) : r->messages_are_whole)) {
            return 0; /* the message is finished, or was only named by an index and nothing is left
                       * of it */
        }
        size = has_file ? size : record != NULL ? record->size : (uint64_t)content_size(r, id);
        err = make_message(r, id, has_file, size);
        if (err == 0 && record != NULL) {
            err = set_place(r, id, record);
        }
        list_add(&r->made, id);
    } else {
        err = find_content(r, id);
    }
    /* A page that was overwritten with one of the same kind can be read, but rows are missing. */
    if (r->old != NULL && (!rcpts.whole || rcpts.rows < rcpts_expected(r, id))) {
        list_add(&r->trouble, id);
    }
    if (err == 0 && message.rows > 0 && (message.changed || rcpts.changed)) {
        return doubt(r, id, "values of its rows were impossible");
    }
    return err;
}

/* Runs `to` with the columns of each index entry of these messages, whose rows could not all be
 * read. The first column is the message's id. Skips entries with values of a wrong type. */
static int copy_entries(struct repair *r, enum index which, const char *columns, const char *types,
                        const struct id_list *messages, const char *to)
{
    int count = (int)strlen(types), err = 0;
    sqlite3_stmt *write = NULL;

    if (messages->count == 0) {
        return 0;
    }
    if (sqlite3_prepare_v2(r->new, to, -1, &write, NULL) != SQLITE_OK) {
        return failed_new(r, "prepare");
    }
    for (int down = 0; err == 0 && down < 2; down++) {
        sqlite3_stmt *read = read_index(r, which, columns, down == 1);

        while (err == 0 && read != NULL && sqlite3_step(read) == SQLITE_ROW) {
            bool fits = list_has(messages, sqlite3_column_int64(read, 0));

            for (int at = 0; fits && at < count; at++) {
                fits = sqlite3_column_type(read, at) ==
                       (types[at] == 'i' ? SQLITE_INTEGER : SQLITE_TEXT);
                CHECK(sqlite3_bind_value(write, at + 1, sqlite3_column_value(read, at)) ==
                      SQLITE_OK);
            }
            if (fits) {
                err = sqlite3_step(write) == SQLITE_DONE ? 0 : failed_new(r, "write");
                (void)sqlite3_reset(write); /* returns the error of the last step again */
            }
        }
        (void)sqlite3_finalize(read); /* entries that could not be read are reported as missing
                                       * recipients */
    }
    (void)sqlite3_finalize(write); /* no error is left */
    return err;
}

_Static_assert(SPOOL_RCPTS_MAX == 10000000, "copy_from_indexes");

/* Rebuilds recipients and senders. One index has the addresses, another the states: a delivered or
 * failed recipient must not be delivered again because its row was lost. */
static int copy_from_indexes(struct repair *r)
{
    int err = exec_new(r, "CREATE TEMP TABLE route (message, n, transport, nexthop, state,"
                          " PRIMARY KEY (message, n)) WITHOUT ROWID");

    list_sort(&r->trouble);
    list_sort(&r->made);
    err = err != 0 ? err
                   : copy_entries(r, INDEX_NEXTHOP, "message, n, transport, nexthop, state",
                                  "iitti", &r->trouble,
                                  "INSERT OR IGNORE INTO route SELECT ?1, ?2, ?3, ?4, ?5"
                                  " WHERE ?5 BETWEEN 1 AND 4");
    err = err != 0
              ? err
              : copy_entries(
                    r, INDEX_ADDRESS, "message, n, address", "iit", &r->trouble,
                    "INSERT OR IGNORE INTO recipient (message, n, listed, state, notify, attempts,"
                    " last_attempt, route_generation, address, domain, transport, nexthop, orcpt,"
                    " status, diagnostic, remote)"
                    " SELECT ?1, ?2, 1, ifnull(state, 1), 0, 0, 0, 0, ?3,"
                    " lower(replace(?3, rtrim(?3, replace(?3, '@', '')), '')),"
                    " ifnull(transport, ''), ifnull(nexthop, ''), '', '', '', ''"
                    " FROM (SELECT 1) LEFT JOIN route ON message = ?1 AND n = ?2"
                    " WHERE ?2 BETWEEN 1 AND 10000000");
    err = err != 0 ? err
                   : copy_entries(r, INDEX_SENDER, "id, sender", "it", &r->made,
                                  "UPDATE message SET sender = ?2, sender_domain ="
                                  " lower(replace(?2, rtrim(?2, replace(?2, '@', '')), ''))"
                                  " WHERE id = ?1");
    return err != 0 ? err
                    : copy_entries(r, INDEX_ARRIVED, "id, arrived", "ii", &r->made,
                                   "UPDATE message SET arrived = ?2, created = ?2 WHERE id = ?1");
}

static bool has_row(struct repair *r, const char *sql, int64_t id)
{
    sqlite3_stmt *st = NULL;
    bool yes = sqlite3_prepare_v2(r->new, sql, -1, &st, NULL) == SQLITE_OK;

    sqlite_bind_int(st, 1, id);
    yes = yes && sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_finalize(st); /* the message is quarantined in any case */
    return yes;
}

/* Quarantines a message whose row was missing; the reason lists what was found. */
static int doubt_made(struct repair *r, int64_t id)
{
    bool has_rcpts = has_row(r, "SELECT 1 FROM recipient WHERE message = ?1", id);
    bool has_sender = has_row(r, "SELECT 1 FROM message WHERE id = ?1 AND sender <> ''", id);
    bool is_in_segment = has_row(r, "SELECT 1 FROM message WHERE id = ?1 AND segment > 0", id);
    const char *reason = "found without sender and recipients: look at its headers";

    if (has_rcpts && list_has(&r->trouble, id)) {
        reason = has_sender
                     ? "its row can't be read, and not all of its recipients could be read"
                     : "found without its sender, and not all of its recipients could be read";
    } else if (has_rcpts) {
        reason = has_sender ? "its row can't be read: its sender is from an index"
                            : "found without its sender";
    } else if (has_sender) {
        reason = "found without its recipients: look at its headers";
    } else if (is_in_segment) {
        reason = "found in a segment alone: it may have been delivered; look at its headers";
    }
    return doubt(r, id, reason);
}

static int64_t old_number(struct repair *r, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int64_t n = 0;

    if (r->old != NULL && sqlite3_prepare_v2(r->old, sql, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        n = sqlite3_column_int64(st, 0);
    }
    (void)sqlite3_finalize(st); /* 0 is a safe value */
    return n > 0 && n < INT64_C(1) << 60 ? n : 0;
}

/* Copies a note. A damaged one keeps its wrong sum; one of an old spool without sums gets a sum.
 * Returns false if the new table refuses the note. */
static bool copy_note(struct repair *r, sqlite3_stmt *from, bool has_sum, sqlite3_stmt *to)
{
    struct slice name, text;
    bool is_whole = sqlite_note_row(from, &name, &text), ok;

    if (has_sum && !is_whole) {
        tell(r, "note %.*s: it is damaged", SLICE_ARGS(name));
    }
    sqlite_bind_slice(to, 1, name);
    sqlite_bind_slice(to, 2, text);
    if (has_sum) {
        (void)sqlite3_bind_value(to, 3, sqlite3_column_value(from, 2)); /* sqlite3_step would
                                                                         * fail */
    } else {
        sqlite_bind_int(to, 3, (int64_t)row_sum_note(name, text));
    }
    ok = name.len > 0 && sqlite3_step(to) == SQLITE_DONE;
    (void)sqlite3_reset(to); /* returns the error of the last step again */
    return ok;
}

static int put_lost(struct repair *r)
{
    const struct slice name = SLICE(SPOOL_NOTE_LOST), text = SLICE("by a repair");
    char sql[200];

    tell(r, "not all interventions could be read: all mail is held until an operator cancels that; "
            "see \"sluice interventions\"");
    (void)snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO note VALUES ('%s', '%s', %lld)",
                   name.ptr, text.ptr, (long long)row_sum_note(name, text)); /* it fits */
    return exec_new(r, sql);
}

/* Copies the overrides of operators. If not all can be read, the new spool gets SPOOL_NOTE_LOST. */
static int copy_notes(struct repair *r)
{
    sqlite3_stmt *from = NULL, *to = NULL;
    bool all = true, has_sum;
    int read;

    if (r->old == NULL) {
        return put_lost(r);
    }
    read = sqlite3_prepare_v2(r->old, sqlite_statement_sql[ST_NOTES], -1, &from, NULL);
    has_sum = read == SQLITE_OK;
    if (!has_sum) {
        read = sqlite3_prepare_v2(r->old, "SELECT name, text, NULL FROM note", -1, &from, NULL);
    }
    if (read != SQLITE_OK) {
        int64_t version = old_number(r, "PRAGMA user_version");

        return version > 0 && version < NOTES_VERSION ? 0 : put_lost(r);
    }
    if (sqlite3_prepare_v2(r->new, "INSERT INTO note (name, text, sum) VALUES (?1, ?2, ?3)", -1,
                           &to, NULL) != SQLITE_OK) {
        (void)sqlite3_finalize(from); /* it was never stepped */
        return failed_new(r, "make the tables");
    }
    while ((read = sqlite3_step(from)) == SQLITE_ROW) {
        all = copy_note(r, from, has_sum, to) && all;
    }
    (void)sqlite3_finalize(from); /* returns the error of the last step again */
    (void)sqlite3_finalize(to);
    return read == SQLITE_DONE && all ? 0 : put_lost(r);
}

static int copy_all(struct repair *r)
{
    struct copies c = {.message = {.count = 0}};
    int err = 0;

    if (r->old != NULL) {
        err = copy_begin(r, &c.message, "message", "id", "");
        err = err != 0 ? err : copy_begin(r, &c.rcpt, "recipient", "message", "ORDER BY n");
        err = err != 0 ? err : copy_begin(r, &c.content, "content", "message", "");
    }
    for (size_t i = 0; err == 0 && i < r->found.count; i++) {
        if (!list_has(&r->passing, r->found.ids[i])) {
            err = copy_message(r, &c, r->found.ids[i]);
        }
    }
    if (err == 0 && r->old != NULL) {
        err = copy_from_indexes(r);
    }
    for (size_t i = 0; err == 0 && i < r->made.count; i++) {
        err = doubt_made(r, r->made.ids[i]);
    }
    for (size_t i = 0; err == 0 && i < r->trouble.count; i++) {
        if (!list_has(&r->made, r->trouble.ids[i])) {
            err = doubt(r, r->trouble.ids[i], "not all of its recipients could be read");
        }
    }
    if (err == 0) {
        err = copy_notes(r);
    }
    copy_end(&c.message);
    copy_end(&c.rcpt);
    copy_end(&c.content);
    return err;
}

static void note_passing(void *context, int64_t id)
{
    struct repair *r = context;

    list_add(&r->passing, id);
    list_add(&r->found, id);
}

/* Makes rows for mail in passage. This comes first, since such mail has no rows in the old
 * database. If the old database has lost its counters, all marks of messages that moved into it are
 * believed. */
static int take_passing(struct repair *r)
{
    int64_t commits = r->commits - 1;
    struct sqlite_passing passing = {.tag = (uint64_t)r->tag,
                                     .from = (uint64_t)r->passage_from,
                                     .commits = commits > 0 ? (uint64_t)commits : INT64_MAX};
    int err = sqlite_passage_recover(r->new, r->content_dir, &passing, note_passing, r);

    if (err != 0) {
        return failed(r, err, "read mail in passage", r->content_dir);
    }
    if (passing.damaged > 0) {
        tell(r, "mail in passage: %llu records are damaged: some of it may be lost",
             (unsigned long long)passing.damaged);
    }
    list_sort(&r->found);
    list_sort(&r->passing);
    r->tag = r->tag == 0 ? (int64_t)passing.tag : r->tag;
    r->passage_from = (int64_t)passing.found.next;
    if ((int64_t)passing.found.last_id > r->last_id) {
        r->last_id = (int64_t)passing.found.last_id;
    }
    if (passing.found.commits < INT64_MAX - 1 && (int64_t)passing.found.commits >= r->commits) {
        r->commits = (int64_t)passing.found.commits + 1;
    }
    return 0;
}

/* ---- looking at the new one ----------------------------------------------------------------- */

/* Checks a message in the new database as the daemon would, and quarantines it if it fails. */
static int look_at(struct repair *r, struct spool *sp, int64_t id)
{
    struct msg_id msg = {(uint64_t)id};
    char text[SPOOL_ID_TEXT_MAX], reason[REASON_MAX];
    struct slice words;
    int err = sqlite_look_at(sqlite_of(sp), msg);

    if (err == 0 || err == -ENOENT) {
        return 0;
    }
    words = slice_string(spool_error(sp));
    spool_id_print(msg, text);
    if (slice_starts(words, slice_string(text))) {
        words = slice_skip(words, strlen(text) + 2);
    }
    (void)snprintf(reason, sizeof reason, "%.*s", SLICE_ARGS(words)); /* may be cut */
    return doubt(r, id, reason);
}

static int look_at_all(struct repair *r)
{
    static const struct spool_options options = {.inline_limit = SPOOL_INLINE_MAX};
    char *url = join("sqlite:", r->repairing);
    struct spool *sp;
    int err = spool_open(url, SPOOL_OPEN_READ, &options, r->error, &sp);

    mem_free(url);
    if (err != 0) {
        return err;
    }
    content_files_fini(&sqlite_of(sp)->content);
    content_files_init(&sqlite_of(sp)->content, sqlite_of(sp)->io, r->content_dir);
    segments_fini(&sqlite_of(sp)->segments);
    segments_init(&sqlite_of(sp)->segments, sqlite_of(sp)->io, r->content_dir, (uint64_t)r->tag, 0);
    for (size_t i = 0; err == 0 && i < r->found.count; i++) {
        err = look_at(r, sp, r->found.ids[i]);
    }
    spool_close(sp);
    return err;
}

/* ---- the new database ----------------------------------------------------------------------- */

/* Returns the number that is in every segment of this spool; 0 if it can't be read. */
static int64_t old_tag(struct repair *r)
{
    sqlite3_stmt *st = NULL;
    int64_t tag = 0;

    if (r->old != NULL &&
        sqlite3_prepare_v2(r->old, "SELECT tag FROM spool", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        tag = sqlite3_column_int64(st, 0);
    }
    (void)sqlite3_finalize(st); /* then the segments have it */
    return tag;
}

static int make_new(struct repair *r)
{
    const char *why = "";
    int fd, rc, err;

    (void)unlink(r->repairing); /* left by an earlier repair */
    fd = open(r->repairing, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return failed(r, -errno, "create", r->repairing);
    }
    err = give_to_owner(r, fd, r->repairing);
    (void)close(fd); /* nothing was written */
    if (err != 0) {
        return err;
    }
    rc = sqlite3_open_v2(r->repairing, &r->new,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                         NULL);
    if (rc != SQLITE_OK) {
        return failed_new(r, "open");
    }
    /* The file is synced when it is complete; before that a loss does not matter. */
    rc = sqlite3_exec(r->new,
                      "PRAGMA page_size = 4096; PRAGMA journal_mode = MEMORY;"
                      "PRAGMA synchronous = OFF",
                      NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        rc = schema_upgrade(r->new, schema_steps, schema_version, &why);
    }
    if (rc == SQLITE_OK) {
        /* Values are checked after everything is copied. */
        rc = sqlite3_exec(r->new, "PRAGMA ignore_check_constraints = ON", NULL, NULL, NULL);
    }
    return rc == SQLITE_OK ? 0 : failed_new(r, "make the tables");
}

/* Computes counters and columns that depend on other rows. */
static int count_again(struct repair *r)
{
    char sql[400];
    int err = exec_new(r, "UPDATE recipient SET nexthop = domain WHERE transport = '';"
                          "UPDATE message SET listed = 1 WHERE listed <> 1;"
                          "UPDATE recipient SET listed = 1 WHERE listed <> 1;"
                          "DELETE FROM destination;"
                          "INSERT INTO destination SELECT nexthop, transport, count(*),"
                          " count(DISTINCT message) FROM recipient WHERE listed = 1 AND state = 1"
                          " GROUP BY nexthop, transport;");

    (void)snprintf(sql, sizeof sql,
                   "UPDATE spool SET last_id = max(%lld, (SELECT ifnull(max(id), 0) FROM message"
                   " WHERE id < 1 << 60)), commits = %lld, bytes = (SELECT ifnull(sum(size), 0)"
                   " FROM message)",
                   (long long)r->last_id, (long long)r->commits); /* it fits */
    err = err != 0 ? err : exec_new(r, sql);
    return err != 0 ? err
                    : exec_new(r, "UPDATE spool SET unlisted_from = last_id + 1,"
                                  " incoming = (SELECT count(*) FROM message WHERE state = 1),"
                                  " deferred = (SELECT count(*) FROM message WHERE state = 2),"
                                  " hold = (SELECT count(*) FROM message WHERE state = 3),"
                                  " corrupt = (SELECT count(*) FROM message WHERE state = 4)");
}

static int fill(struct repair *r)
{
    char sql[100];
    int err = exec_new(r, "BEGIN");

    err = err != 0 ? err : take_passing(r);
    err = err != 0 ? err : copy_all(r);
    if (err == 0) {
        (void)snprintf(sql, sizeof sql, "UPDATE spool SET passage_from = %lld",
                       (long long)r->passage_from); /* it fits */
        err = exec_new(r, sql);
    }
    if (err == 0 && r->tag != 0) {
        (void)snprintf(sql, sizeof sql, "UPDATE spool SET tag = %lld",
                       (long long)r->tag); /* it fits */
        err = exec_new(r, sql);
    }
    err = err != 0 ? err : exec_new(r, "COMMIT");
    err = err != 0 ? err : look_at_all(r);
    err = err != 0 ? err : exec_new(r, "BEGIN");
    err = err != 0 ? err : count_again(r);
    return err != 0 ? err : exec_new(r, "COMMIT");
}

/* ---- names ---------------------------------------------------------------------------------- */

static int sync_path(struct repair *r, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC), err = 0;

    if (fd < 0 || fsync(fd) != 0) {
        err = failed(r, -errno, "sync", path);
    }
    if (fd >= 0) {
        (void)close(fd); /* already synced, or failed */
    }
    return err;
}

static int sync_dir(struct repair *r)
{
    char *copy = mem_string(r->path);
    int err = sync_path(r, dirname(copy), O_RDONLY | O_DIRECTORY);

    mem_free(copy);
    return err;
}

static int move(struct repair *r, const char *from, const char *to)
{
    return rename(from, to) == 0 ? 0 : failed(r, -errno, "rename", from);
}

/* Returns the first free name PATH.damaged-N; with `last` the last one in use, if any. */
static char *kept_name(const struct repair *r, bool last)
{
    char suffix[32], *name = NULL;

    for (unsigned n = 1; n < KEPT_MAX; n++) {
        char *next;

        (void)snprintf(suffix, sizeof suffix, ".damaged-%u", n); /* it fits */
        next = join(r->path, suffix);
        if (!exists(next)) {
            if (last && name != NULL) {
                mem_free(next);
                return name;
            }
            mem_free(name);
            return next;
        }
        mem_free(name);
        name = next;
    }
    return name;
}

/* Puts PATH.repaired in place, from any step at which an earlier repair was interrupted. */
static int put_in_place(struct repair *r)
{
    char *log = join(r->path, "-wal"), *index = join(r->path, "-shm");
    char *kept = kept_name(r, !exists(r->path)), *kept_log = join(kept, "-wal");
    int err = 0;

    if (exists(r->path)) {
        err = move(r, r->path, kept);
        err = err != 0 ? err : sync_dir(r);
        if (err == 0) {
            tell(r, "the damaged database is kept as %s", kept);
        }
    }
    if (err == 0 && exists(log)) {
        err = move(r, log, kept_log);
    }
    (void)unlink(index); /* the index is rebuilt from the log */
    err = err != 0 ? err : sync_dir(r);
    err = err != 0 ? err : move(r, r->repaired, r->path);
    err = err != 0 ? err : sync_dir(r);
    mem_free(log);
    mem_free(index);
    mem_free(kept);
    mem_free(kept_log);
    return err;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Opens a database for reading alone, so that its log stays as it is. Returns false if it can't be
 * read. */
static bool open_to_read(struct repair *r, const char *path)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_open_v2(path, &r->old,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                             NULL);

    if (rc == SQLITE_OK) {
        (void)sqlite3_db_config(r->old, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        rc = sqlite3_exec(r->old, "PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;", NULL,
                          NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(r->old, "SELECT 1 FROM message, recipient, content LIMIT 0", -1,
                                &st, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st) == SQLITE_DONE ? SQLITE_OK : SQLITE_CORRUPT;
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    if (rc != SQLITE_OK) {
        tell(r, "%s: can't be read as a database: %s", path, sqlite3_errmsg(r->old));
        (void)sqlite3_close(r->old); /* no statement is open */
        r->old = NULL;
    }
    return rc == SQLITE_OK;
}

static void open_old(struct repair *r)
{
    char *fresh;
    int err;

    if (!exists(r->path)) {
        tell(r, "%s: missing", r->path);
        return;
    }
    if (open_to_read(r, r->path)) {
        return;
    }
    fresh = join(r->path, ".fresh");
    err = sqlite_graft(r->path, r->grafted, fresh);
    mem_free(fresh);
    if (err != 0) {
        tell(r, "%s: can't be copied: %s", r->path, strerror(-err));
    } else if (open_to_read(r, r->grafted)) {
        tell(r, "%s: its definitions are damaged, it is read with those of a new spool", r->path);
    }
}

static int take_lock(struct repair *r, int *ret_fd)
{
    char *path = join(r->path, ".lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), err = 0;

    if (fd < 0) {
        err = failed(r, -errno, "open", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        err = errno == EWOULDBLOCK ? -EBUSY : -errno;
        (void)buf_addf(r->error, "spool %s: %s", r->path,
                       err == -EBUSY ? "the daemon works with it: stop it first" : strerror(-err));
        (void)close(fd);
    } else {
        *ret_fd = fd;
        err = give_to_owner(r, fd, path);
    }
    mem_free(path);
    return err;
}

static int make_repaired(struct repair *r)
{
    int err = make_new(r);

    if (err != 0) {
        return err;
    }
    open_old(r);
    r->last_id = old_number(r, "SELECT last_id FROM spool");
    r->commits = old_number(r, "SELECT commits FROM spool") + 1;
    r->passage_from = old_number(r, "SELECT passage_from FROM spool");
    r->tag = old_tag(r);
    gather_all(r);
    err = fill(r);
    (void)sqlite3_close(r->old); /* its statements are finalized */
    sqlite_graft_remove(r->grafted);
    if (sqlite3_close(r->new) != SQLITE_OK && err == 0) {
        err = failed_new(r, "close");
    }
    err = err != 0 ? err : sync_path(r, r->repairing, O_RDWR);
    err = err != 0 ? err : move(r, r->repairing, r->repaired);
    return err != 0 ? err : sync_dir(r);
}

int spool_repair(const char *url, spool_told *told, void *context, struct buf *ret_error,
                 struct spool_repaired *ret_repaired)
{
    struct repair r = {.told = told, .context = context, .error = ret_error};
    int lock = -1, err;

    if (strncmp(url, "sqlite:", 7) != 0 || url[7] == '\0') {
        (void)buf_addf(ret_error, "spool %s: only sqlite:PATH can be repaired", url);
        return -EINVAL;
    }
    r.path = mem_string(url + 7);
    r.content_dir = join(r.path, ".d");
    r.repairing = join(r.path, ".repairing");
    r.repaired = join(r.path, ".repaired");
    r.grafted = join(r.path, ".grafted");
    err = take_lock(&r, &lock);
    if (err == 0 && (exists(r.path) || !exists(r.repaired))) {
        err = make_repaired(&r); /* else only the renaming is left */
    }
    if (err == 0) {
        err = put_in_place(&r);
    }
    if (err == 0) {
        *ret_repaired = (struct spool_repaired){.messages = r.found.count, .doubtful = r.doubtful};
    }
    if (lock >= 0) {
        (void)close(lock); /* releases the lock */
    }
    mem_free(r.found.ids);
    mem_free(r.trouble.ids);
    mem_free(r.made.ids);
    mem_free(r.passing.ids);
    mem_free(r.records);
    mem_free(r.path);
    mem_free(r.content_dir);
    mem_free(r.repairing);
    mem_free(r.repaired);
    mem_free(r.grafted);
    return err;
}
