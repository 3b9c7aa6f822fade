#include "spool_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "check.h"
#include "mem.h"
#include "memory_spool.h"

#define RCPTS_MAX 16

void fixture_init(struct fixture *fx)
{
    /* In memory where that is possible: these tests sync ten thousand times. */
    snprintf(fx->dir, sizeof fx->dir, "%s/spool-test-XXXXXX",
             access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(fx->dir) != NULL);
    snprintf(fx->path, sizeof fx->path, "%s/queue.db", fx->dir);
    snprintf(fx->url, sizeof fx->url, "sqlite:%s", fx->path);
}

static void remove_dir(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[512];

    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR) {
            remove_dir(name);
        } else {
            CHECK(unlink(name) == 0);
        }
    }
    closedir(dir);
    CHECK(rmdir(path) == 0);
}

void fixture_fini(struct fixture *fx)
{
    remove_dir(fx->dir);
}

int fixture_try(const struct fixture *fx, enum spool_open_mode mode, const struct spool_io *io,
                struct spool **ret_spool)
{
    struct spool_options options = {
        .inline_limit = INLINE_LIMIT, .segment_bytes = SEGMENT_SIZE, .io = io};
    struct buf error;
    int err;

    buf_init(&error, 1024);
    err = spool_open(fx->url, mode, &options, &error, ret_spool);
    if (err != 0) {
        printf("# %s\n", buf_cstr(&error));
    }
    buf_fini(&error);
    return err;
}

struct spool *fixture_open(const struct fixture *fx)
{
    struct spool *sp;

    CHECK(fixture_try(fx, SPOOL_OPEN_WRITE, NULL, &sp) == 0);
    return sp;
}

struct spool *fixture_open_memory(void)
{
    struct spool_options options = {.inline_limit = INLINE_LIMIT};

    return memory_spool_open(&options);
}

void fixture_ok(const struct spool *sp, int err)
{
    if (err != 0) {
        printf("# unexpected error %d: %s\n", err, spool_error(sp));
    }
    CHECK(err == 0);
}

static char content_byte(struct slice sender, size_t size, size_t i)
{
    return (char)('a' + (sender.len * 7 + size + i * 3) % 26);
}

int fixture_submit(struct spool *sp, const char *sender, const char *rcpts, int64_t when,
                   size_t size, bool claim, struct msg_id *ret_id)
{
    struct spool_rcpt list[RCPTS_MAX];
    struct spool_message m = {.sender = slice_string(sender),
                              .client = SLICE("local uid 1000"),
                              .arrived = {when},
                              .created = {when},
                              .due = {when}};
    struct slice rest = slice_string(rcpts);
    char *content = mem_new(size);
    uint32_t count = 0;
    int err;

    for (size_t i = 0; i < size; i++) {
        content[i] = content_byte(m.sender, size, i);
    }
    while (rest.ptr != NULL) {
        CHECK(count < RCPTS_MAX);
        list[count++] = (struct spool_rcpt){.address = slice_cut(&rest, ' ')};
    }
    err = spool_submit(sp, &m, list, count, SLICE(""),
                       &(struct spool_content){.bytes = slice_of(content, size), .fd = -1}, claim,
                       SLICE(""), ret_id);
    mem_free(content);
    return err;
}

bool fixture_content_ok(struct spool *sp, const struct spool_message *m)
{
    struct buf bytes;
    uint64_t size;
    bool ok;
    int fd;

    buf_init(&bytes, 1 << 22);
    ok = spool_read_content(sp, m->id, &bytes, &fd, &size) == 0 && size == m->size;
    if (ok && fd >= 0) {
        char *room = buf_room(&bytes, size);

        ok = pread(fd, room, size, 0) == (ssize_t)size;
        buf_grew(&bytes, size);
        close(fd);
    }
    for (size_t i = 0; ok && i < size; i++) {
        ok = buf_slice(&bytes).ptr[i] == content_byte(m->sender, size, i);
    }
    buf_fini(&bytes);
    return ok;
}

void fixture_sql(const struct fixture *fx, const char *sql)
{
    sqlite3 *db;

    CHECK(sqlite3_open(fx->path, &db) == SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("# %s: %s\n", sql, sqlite3_errmsg(db));
        UNREACHABLE("the statement failed");
    }
    CHECK(sqlite3_close(db) == SQLITE_OK);
}

const char *fixture_ask(const struct fixture *fx, const char *sql)
{
    static char answer[4096];
    sqlite3_stmt *st;
    sqlite3 *db;

    CHECK(sqlite3_open(fx->path, &db) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK);
    answer[0] = '\0';
    if (sqlite3_step(st) == SQLITE_ROW && sqlite3_column_text(st, 0) != NULL) {
        snprintf(answer, sizeof answer, "%s", (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    return answer;
}
