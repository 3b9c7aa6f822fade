/*
 * Searches an sqlite spool for damage.
 *
 * Each check is one statement, which sees the spool at one moment. No read transaction stays open
 * for long, so the log of a running daemon can be started over meanwhile. A message that looks
 * damaged is checked twice, since the daemon may have changed it between two statements.
 */
#include "spool_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "spool_notes.h"
#include "sqlite_engine.h"

#define INTEGRITY_LINES 100 /* limit of findings of SQLite's own check */
#define IDS_PER_PAGE    500
#define RCPTS_PER_PAGE  100
#define CONTENT_MAX     (SPOOL_INLINE_MAX + ((size_t)1 << 17))

struct checker {
    struct sqlite_spool *s;
    spool_told *told;
    void *context;
    uint64_t findings;
};

static void found(struct checker *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void found(struct checker *c, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args); /* may be cut */
    va_end(args);
    c->findings++;
    c->told(c->context, line);
}

/* Runs a check: each row of its statement is a finding, with the text of the first column. */
static void ask(struct checker *c, const char *what, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(c->s->db, sql, -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const unsigned char *words = sqlite3_column_text(st, 0);

        if (words != NULL && strcmp((const char *)words, "ok") != 0) {
            found(c, "%s: %s", what, (const char *)words);
        }
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_DONE) {
        found(c, "%s: can't be read: %s", what, sqlite3_errmsg(c->s->db));
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
}

/* ---- messages ------------------------------------------------------------------------------- */

static int read_rcpts(struct sqlite_spool *s, struct msg_id id)
{
    struct spool_rcpt rcpts[RCPTS_PER_PAGE];
    uint32_t after = 0;
    size_t count;
    int err;

    do {
        err = spool_read_rcpts(&s->base, id, after, false, RCPTS_PER_PAGE, rcpts, &count);
        if (err == 0 && count > 0) {
            after = rcpts[count - 1].n;
        }
    } while (err == 0 && count == RCPTS_PER_PAGE);
    return err;
}

int sqlite_look_at(struct sqlite_spool *s, struct msg_id id)
{
    struct spool_message m;
    struct buf bytes;
    uint64_t size;
    int fd = -1, err = spool_read(&s->base, id, &m);

    if (err != 0 || m.state == SPOOL_CORRUPT) {
        return err; /* a quarantined message is known to be damaged */
    }
    err = read_rcpts(s, id);
    if (err == 0) {
        buf_init(&bytes, CONTENT_MAX);
        err = spool_read_content(&s->base, id, &bytes, &fd, &size);
        buf_fini(&bytes);
        if (fd >= 0) {
            (void)s->io->close(fd); /* opened for reading */
        }
    }
    return err;
}

static void check_message(struct checker *c, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];
    int err = sqlite_look_at(c->s, id);

    if (err != 0 && err != -ENOENT) {
        err = sqlite_look_at(c->s, id);
    }
    if (err == -EBADMSG) {
        found(c, "%s", spool_error(&c->s->base)); /* it begins with the message's id */
    } else if (err != 0 && err != -ENOENT) {
        spool_id_print(id, text);
        found(c, "%s: can't be read: %s", text, spool_error(&c->s->base));
    }
}

/* Checks all messages in order of id. A page that can't be read ends the walk; SQLite's own check
 * has already reported it. */
static void check_messages(struct checker *c)
{
    static const char sql[] =
        "SELECT id FROM message NOT INDEXED WHERE id > ?1 ORDER BY id LIMIT ?2";
    int64_t ids[IDS_PER_PAGE], after = INT64_MIN;
    size_t count;
    int rc;

    do {
        sqlite3_stmt *st = NULL;

        count = 0;
        rc = sqlite3_prepare_v2(c->s->db, sql, -1, &st, NULL);
        sqlite_bind_int(st, 1, after);
        sqlite_bind_int(st, 2, IDS_PER_PAGE);
        while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
            ids[count++] = sqlite3_column_int64(st, 0);
            rc = SQLITE_OK;
        }
        if (rc != SQLITE_DONE) {
            found(c, "messages: can't be read: %s", sqlite3_errmsg(c->s->db));
        }
        (void)sqlite3_finalize(st); /* returns the error of the last step again */
        for (size_t i = 0; i < count; i++) {
            after = ids[i];
            if (after <= 0) {
                found(c, "message %lld: no id can be that", (long long)after);
            } else {
                check_message(c, (struct msg_id){(uint64_t)after});
            }
        }
    } while (count == IDS_PER_PAGE);
}

/* ---- what belongs to nothing ---------------------------------------------------------------- */

static bool row_exists(struct checker *c, const char *sql, struct msg_id id)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(c->s->db, sql, -1, &st, NULL);

    sqlite_bind_int(st, 1, (int64_t)id.n);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
    return rc != SQLITE_DONE;   /* an error was already reported */
}

static void check_files(struct checker *c)
{
    DIR *dir = opendir(c->s->content.dir);
    struct dirent *entry;
    struct msg_id id;
    char path[4352];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (segments_is_foreign(&c->s->segments, entry->d_name)) {
            found(c, "%s/%s: not a segment of this spool: it is left alone", c->s->content.dir,
                  entry->d_name);
        }
        if (!spool_id_parse(slice_string(entry->d_name), &id) || id.n > INT64_MAX ||
            row_exists(c, "SELECT 1 FROM message WHERE id = ?1 AND in_file = 1 AND segment IS NULL",
                       id) ||
            row_exists(c, "SELECT 1 FROM removed WHERE message = ?1", id)) {
            continue;
        }
        /* A file above the last id may be of a message whose submission is not complete. */
        (void)snprintf(path, sizeof path, "%s/%s", c->s->content.dir, entry->d_name); /* it fits */
        if (row_exists(c, "SELECT 1 FROM spool WHERE last_id >= ?1", id) &&
            access(path, F_OK) == 0) {
            found(c, "%s: a content that no message names: %s", entry->d_name, path);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* Reads the number of commits from the lock file; 0 if it is unknown. */
static uint64_t commits_told(struct checker *c)
{
    char path[4352], text[64] = "";
    struct slice rest;
    unsigned long long commits = 0;
    ssize_t n = 0;
    int fd;

    (void)snprintf(path, sizeof path, "%s.lock", c->s->path); /* a path that is cut is not found */
    fd = c->s->io->open(path, O_RDONLY, 0);
    if (fd >= 0) {
        n = c->s->io->pread(fd, text, sizeof text, 0);
        (void)c->s->io->close(fd); /* opened for reading */
    }
    rest = slice_of(text, n > 0 ? (size_t)n : 0);
    (void)slice_cut(&rest, '\n');
    return slice_number(slice_trim(slice_cut(&rest, '\n')), INT64_MAX, &commits) ? commits : 0;
}

/* Checks mail in passage, which has no rows. If the daemon commits meanwhile, its files change, and
 * the result is ignored. */
static void check_passage(struct checker *c)
{
    uint64_t before = commits_told(c);
    struct sqlite_passing passing;
    int err;

    c->s->commits_told = before;
    err = sqlite_passage_look(c->s, &passing);
    if (commits_told(c) != before) {
        return;
    }
    if (err != 0) {
        found(c, "mail in passage: can't be read: %s", strerror(-err));
    } else if (passing.damaged > 0) {
        found(c, "mail in passage: %llu records are damaged", (unsigned long long)passing.damaged);
    }
}

static void check_notes(struct checker *c)
{
    sqlite3_stmt *st = NULL;
    struct slice name, text;
    int rc = sqlite3_prepare_v2(c->s->db, sqlite_statement_sql[ST_NOTES], -1, &st, NULL);

    while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (!sqlite_note_row(st, &name, &text)) {
            found(c, "note %.*s: it is damaged; a daemon that starts with it holds all mail",
                  SLICE_ARGS(name));
        } else if (slice_equal(name, SLICE(SPOOL_NOTE_LOST))) {
            found(c, "notes were lost: %.*s; a daemon that starts so holds all mail",
                  SLICE_ARGS(text));
        }
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_DONE) {
        found(c, "notes: can't be read: %s", sqlite3_errmsg(c->s->db));
    }
    (void)sqlite3_finalize(st); /* returns the error of the last step again */
}

static const struct {
    const char *what, *sql;
} questions[] = {
    {"database", "PRAGMA integrity_check(100)"},
    {"recipient without a message",
     "SELECT printf('%lld %d %s', r.message, r.n, r.address) FROM recipient r"
     " WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.id = r.message) LIMIT 1000"},
    {"content without a message",
     "SELECT printf('%lld', c.message) FROM content c"
     " WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.id = c.message) LIMIT 1000"},
    {"counters of messages",
     "SELECT printf('%d incoming, %d deferred, %d on hold, %d corrupt; there are %d, %d, %d, %d',"
     "   s.incoming, s.deferred, s.hold, s.corrupt, i, d, h, c)"
     " FROM spool s, (SELECT count(*) FILTER (WHERE state = 1) AS i,"
     "   count(*) FILTER (WHERE state = 2) AS d, count(*) FILTER (WHERE state = 3) AS h,"
     "   count(*) FILTER (WHERE state = 4) AS c FROM message)"
     " WHERE s.incoming <> i OR s.deferred <> d OR s.hold <> h OR s.corrupt <> c"},
    {"counter of a destination",
     "SELECT printf('%s/%s: %d recipients; there are %d', transport, nexthop, max(said), max(are))"
     " FROM (SELECT transport, nexthop, recipients AS said, 0 AS are FROM destination"
     "   UNION ALL SELECT transport, nexthop, 0, count(*) FROM recipient"
     "   WHERE listed = 1 AND state = 1 GROUP BY nexthop, transport)"
     " GROUP BY nexthop, transport HAVING max(said) <> max(are) LIMIT 1000"},
};
_Static_assert(INTEGRITY_LINES == 100, "questions");

int spool_check(const char *url, spool_told *told, void *context, struct buf *ret_error,
                uint64_t *ret_findings)
{
    static const struct spool_options options = {.inline_limit = SPOOL_INLINE_MAX};
    struct checker c = {.told = told, .context = context};
    struct spool *sp;
    int err;

    if (strncmp(url, "sqlite:", 7) != 0) {
        (void)buf_addf(ret_error, "spool %s: only sqlite:PATH can be checked", url);
        return -EINVAL;
    }
    err = spool_open(url, SPOOL_OPEN_READ, &options, ret_error, &sp);
    if (err != 0) {
        return err;
    }
    c.s = sqlite_of(sp);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        ask(&c, questions[i].what, questions[i].sql);
    }
    check_messages(&c);
    check_notes(&c);
    check_passage(&c);
    check_files(&c);
    spool_close(sp);
    *ret_findings = c.findings;
    return 0;
}
