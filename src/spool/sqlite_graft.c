/*
 * The file's format: https://www.sqlite.org/fileformat2.html. Numbers have their highest byte
 * first.
 *
 *      page 1:  0  header of the file: 28 its size in pages, 32 first page of the free list,
 *                  36 number of free pages, 24 change counter, 92 the change for which 28 is valid
 *             100  header of the page: its kind (5: interior page of a table, 13: leaf), 103 number
 *                  of cells, 108 the last child (of interior pages); cell pointers from 112 on; a
 *                  cell begins with the page number of a child
 */
#include "sqlite_graft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "mem.h"
#include "spool_io.h"
#include "sqlite_schema.h"

#define PAGE           ((size_t)4096)
#define CHILDREN_MAX   64
#define COPY_PIECE     ((size_t)1 << 20)
#define KIND_INTERIOR  5
#define LAST_CHILD_AT  108
#define CELLS_AT       112
#define PAGES_AT       28
#define FREE_AT        32
#define CHANGE_AT      24
#define CHANGE_SIZE_AT 92

static uint32_t get(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put(unsigned char *p, uint32_t n)
{
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (unsigned char)(n >> (24 - 8 * i));
    }
}

static void with_suffix(char path[4352], const char *base, const char *suffix)
{
    (void)snprintf(path, 4352, "%s%s", base, suffix); /* a path that is cut can't be opened */
}

void sqlite_graft_remove(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char one[4352];

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        with_suffix(one, path, suffixes[i]);
        (void)unlink(one); /* it is usually missing */
    }
}

static int copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC), out = -1, err = 0;
    char *piece;
    ssize_t n = 0;

    if (in < 0) {
        return -errno;
    }
    out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0) {
        err = -errno;
        (void)close(in); /* opened for reading */
        return err;
    }
    piece = mem_new(COPY_PIECE);
    while (err == 0 && (n = read(in, piece, COPY_PIECE)) > 0) {
        err = spool_io_write_all(&spool_io_real, out, piece, (size_t)n);
    }
    err = err == 0 && n < 0 ? -errno : err;
    mem_free(piece);
    (void)close(in); /* opened for reading */
    return close(out) != 0 && err == 0 ? -errno : err;
}

static int make_fresh(const char *fresh)
{
    const char *why;
    sqlite3 *db;
    int rc;

    sqlite_graft_remove(fresh);
    rc = sqlite3_open(fresh, &db);
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL", NULL, NULL,
                          NULL);
    }
    if (rc == SQLITE_OK) {
        rc = schema_upgrade(db, schema_steps, schema_version, &why);
    }
    return sqlite3_close(db) == SQLITE_OK && rc == SQLITE_OK ? 0 : -EIO;
}

/* Appends the pages of definitions of `fresh` to the copy, and replaces the copy's first page. */
static int graft_pages(int fresh, int copy)
{
    unsigned char first[4096], page[4096];
    struct stat st;
    uint32_t pages;
    unsigned cells;
    int err = spool_io_read_all(&spool_io_real, fresh, first, PAGE, 0);

    if (err != 0 || fstat(copy, &st) != 0) {
        return err != 0 ? err : -errno;
    }
    pages = (uint32_t)(((uint64_t)st.st_size + PAGE - 1) / PAGE);
    cells = (unsigned)first[103] << 8 | first[104];
    if (first[100] != KIND_INTERIOR || cells >= CHILDREN_MAX) {
        return -ENOTSUP; /* the layout differs from that of our definitions */
    }
    for (unsigned i = 0; i <= cells; i++) {
        unsigned char *pointer = first + CELLS_AT + 2 * (size_t)i;
        unsigned char *child = i == cells ? first + LAST_CHILD_AT
                                          : first + (((size_t)pointer[0] << 8 | pointer[1]) & 4095);

        err = spool_io_read_all(&spool_io_real, fresh, page, PAGE, (get(child) - 1) * PAGE);
        if (err != 0) {
            return err;
        }
        pages++;
        if (pwrite(copy, page, PAGE, (off_t)((pages - 1) * PAGE)) != (ssize_t)PAGE) {
            return -EIO;
        }
        put(child, pages);
    }
    put(first + PAGES_AT, pages);
    put(first + FREE_AT, 0); /* nothing will be written, so no free page is needed */
    put(first + FREE_AT + 4, 0);
    memcpy(first + CHANGE_SIZE_AT, first + CHANGE_AT, 4);
    return pwrite(copy, first, PAGE, 0) == (ssize_t)PAGE ? 0 : -EIO;
}

static int graft_files(const char *fresh, const char *copy)
{
    int from = open(fresh, O_RDONLY | O_CLOEXEC), to = open(copy, O_RDWR | O_CLOEXEC);
    int err = from < 0 || to < 0 ? -errno : graft_pages(from, to);

    if (from >= 0) {
        (void)close(from); /* opened for reading */
    }
    if (to >= 0) {
        (void)close(to); /* it is read again at once, and removed soon */
    }
    return err;
}

/* Moves the copy's log into it. */
static int move_log(const char *copy)
{
    sqlite3 *db;
    int rc = sqlite3_open(copy, &db);

    if (rc == SQLITE_OK) {
        rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    }
    (void)sqlite3_close(db); /* errors show when the caller grafts again */
    return rc == SQLITE_OK ? 0 : -EIO;
}

int sqlite_graft(const char *path, const char *copy, const char *fresh)
{
    char from[4352], to[4352];
    int err;

    sqlite_graft_remove(copy);
    err = make_fresh(fresh);
    err = err != 0 ? err : copy_file(path, copy);
    with_suffix(from, path, "-wal");
    with_suffix(to, copy, "-wal");
    if (err == 0 && access(from, F_OK) == 0) {
        err = copy_file(from, to);
        /* The log may have pages of the damaged definitions, or newer ones. So it is moved first,
         * with a first page that lets SQLite do so, and then the definitions are grafted again. */
        err = err != 0 ? err : graft_files(fresh, copy);
        err = err != 0 ? err : move_log(copy);
    }
    err = err != 0 ? err : graft_files(fresh, copy);
    sqlite_graft_remove(fresh);
    return err;
}
