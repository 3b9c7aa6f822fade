/*
 * What the sqlite engine does with a store that was damaged: bytes of content that changed, rows
 * that make no sense, pages that can't be read. Damage is told; it harms only its message; what was
 * acknowledged is delivered or remains visible.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "mem.h"
#include "rng.h"
#include "spool_check.h"
#include "spool_fixture.h"
#include "spool_search.h"
#include "sqlite_schema.h"

static struct fixture fx;

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fx);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_fini(&fx);
    return 0;
}

static const char *content_path(struct msg_id id)
{
    static char path[256];
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    snprintf(path, sizeof path, "%s.d/%s", fx.path, text);
    return path;
}

static int read_content(struct spool *sp, struct msg_id id)
{
    struct buf bytes;
    uint64_t size;
    int fd = -1, err;

    buf_init(&bytes, 1 << 20);
    err = spool_read_content(sp, id, &bytes, &fd, &size);
    if (err == 0 && fd >= 0) {
        close(fd);
    }
    buf_fini(&bytes);
    return err;
}

/* ---- content -------------------------------------------------------------------------------- */

static void flip_in_file(struct msg_id id, off_t at)
{
    int fd = open(content_path(id), O_RDWR);
    char c;

    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void changed_content_is_noticed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id small, large;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 10, 300, false, &small));
    fixture_ok(sp,
               fixture_submit(sp, "b@example.com", "x@example.net", 10, OWN_FILE, false, &large));
    fixture_ok(sp, spool_commit(sp));
    for (int at = 0; at < 300; at += 23) {
        char sql[200];

        fixture_ok(sp, read_content(sp, small));
        for (int undo = 0; undo < 2; undo++) {
            snprintf(sql, sizeof sql,
                     "UPDATE content SET bytes = CAST(substr(bytes, 1, %d) ||"
                     " char(unicode(substr(bytes, %d, 1)) %+d) || substr(bytes, %d) AS BLOB)",
                     at, at + 1, undo == 1 ? -1 : 1, at + 2);
            fixture_sql(&fx, sql);
            assert_int_equal(read_content(sp, small), undo == 1 ? 0 : -EBADMSG);
        }
    }
    for (off_t at = 0; at < OWN_FILE; at += 3999) {
        fixture_ok(sp, read_content(sp, large));
        flip_in_file(large, at);
        assert_int_equal(read_content(sp, large), -EBADMSG);
        assert_non_null(strstr(spool_error(sp), "checksum"));
        flip_in_file(large, at);
    }
    spool_close(sp);
}

static void content_of_another_message_is_noticed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id ids[4];
    char path[256];

    (void)state;
    for (size_t i = 0; i < COUNT(ids); i++) {
        char sender[32];

        snprintf(sender, sizeof sender, "%.*s@example.com", (int)i + 1, "abcdef");
        fixture_ok(sp, fixture_submit(sp, sender, "x@example.net", 10, i < 2 ? 100 : OWN_FILE,
                                      false, &ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    fixture_sql(&fx, "UPDATE content SET bytes = (SELECT bytes FROM content ORDER BY message DESC"
                     " LIMIT 1)");
    assert_int_equal(read_content(sp, ids[0]), -EBADMSG);
    fixture_ok(sp, read_content(sp, ids[1]));
    snprintf(path, sizeof path, "%s", content_path(ids[2]));
    assert_int_equal(rename(content_path(ids[3]), path), 0);
    assert_int_equal(read_content(sp, ids[2]), -EBADMSG);
    assert_int_equal(read_content(sp, ids[3]), -EBADMSG);
    spool_close(sp);
}

/* What an older version has stored has no checksum, and is delivered as before. */
static void content_without_a_checksum_is_believed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id small, large;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 10, 300, false, &small));
    fixture_ok(sp,
               fixture_submit(sp, "b@example.com", "x@example.net", 10, OWN_FILE, false, &large));
    fixture_ok(sp, spool_commit(sp));
    fixture_sql(&fx, "UPDATE message SET content_sum = NULL, sum = NULL");
    fixture_ok(sp, read_content(sp, small));
    fixture_ok(sp, read_content(sp, large));
    spool_close(sp);
}

/* ---- a queue in small ----------------------------------------------------------------------- */

#define MESSAGES 8
#define RCPTS    4

/* What was acknowledged, and what came of it. */
static struct {
    struct msg_id ids[MESSAGES];
    unsigned delivered[MESSAGES][RCPTS];
    bool out_of_reach[MESSAGES]; /* on pages that can't be read or written */
} mail;

static void address(char text[64], size_t message, size_t rcpt)
{
    snprintf(text, 64, "r%zu@m%zu.example", rcpt, message);
}

/* Messages of all kinds: listed and not, inline and in files, new, deferred, parked, on hold, with
 * one recipient and several, some of them done. */
static unsigned problems; /* that were printed */

static struct spool *open_with_mail(void)
{
    struct spool *sp = fixture_open(&fx);
    bool gone;

    memset(&mail, 0, sizeof mail);
    for (size_t i = 0; i < MESSAGES; i++) {
        char rcpts[RCPTS * 64] = "", one[64], sender[64];

        for (size_t j = 0; j < (i == 3 ? 1 : RCPTS); j++) {
            address(one, i, j);
            snprintf(rcpts + strlen(rcpts), sizeof rcpts - strlen(rcpts), "%s%s", j > 0 ? " " : "",
                     one);
        }
        for (size_t j = i == 3 ? 1 : RCPTS; j < RCPTS; j++) {
            mail.delivered[i][j] = 1; /* there is none */
        }
        snprintf(sender, sizeof sender, "s%zu@sender.example", i);
        /* One has a file of its own, one is in a segment. */
        fixture_ok(sp, fixture_submit(sp, sender, rcpts, 10 + (int64_t)i,
                                      i == 2   ? OWN_FILE
                                      : i == 5 ? 3000
                                               : 200,
                                      i % 2 == 0, &mail.ids[i]));
    }
    for (size_t i = 0; i < MESSAGES; i += 4) {
        fixture_ok(sp, spool_settle(sp, mail.ids[i], 1,
                                    &(struct spool_verdict){.state = SPOOL_RCPT_PENDING,
                                                            .attempted = true,
                                                            .status = SLICE("4.4.1"),
                                                            .diagnostic = SLICE("no answer"),
                                                            .remote = SLICE("mx.example"),
                                                            .when = {20}}));
        fixture_ok(sp, spool_finish(sp, mail.ids[i], (struct wall){30}, &gone));
    }
    fixture_ok(sp, spool_settle(sp, mail.ids[4], 2, &(struct spool_verdict){.done = true}));
    mail.delivered[4][1]++;
    fixture_ok(sp, spool_hold(sp, mail.ids[5], SLICE("to be looked at")));
    fixture_ok(sp, spool_park(sp, mail.ids[7], SLICE("smtp/m7.example"), (struct wall){40}));
    fixture_ok(sp, spool_commit(sp));
    return sp;
}

static size_t number_of(struct msg_id id)
{
    size_t i = 0;

    while (i < MESSAGES && mail.ids[i].n != id.n) {
        i++;
    }
    return i;
}

static bool is_out_of_reach(int err)
{
    return err == -EUCLEAN || err == -EIO;
}

static void deliver(struct msg_id id, const struct spool_rcpt *r)
{
    char text[64];
    size_t i = number_of(id), j;

    assert_true(i < MESSAGES);
    for (j = 0; j < RCPTS; j++) {
        address(text, i, j);
        if (slice_equal(slice_string(text), r->address)) {
            break;
        }
    }
    if (j == RCPTS) {
        printf("# delivered to %.*s, which nobody sent\n", SLICE_ARGS(r->address));
        problems++;
        return;
    }
    mail.delivered[i][j]++;
}

/* One pass of a message, as the queue process makes it: read all, deliver all, delete. 0, or what
 * the queue process quarantines it for. */
static int pass(struct spool *sp, struct msg_id id)
{
    struct spool_rcpt rcpts[2 * RCPTS];
    struct spool_message m;
    size_t count;
    bool gone;
    int err = spool_read(sp, id, &m);

    if (err == 0 && m.state != SPOOL_INCOMING && m.state != SPOOL_DEFERRED) {
        err = -EBADMSG; /* an index that names the wrong message */
    }
    if (err == 0) {
        err = read_content(sp, id);
    }
    if (err == 0) {
        err = spool_read_rcpts(sp, id, 0, true, COUNT(rcpts), rcpts, &count);
    }
    for (size_t i = 0; err == 0 && i < count; i++) {
        deliver(id, &rcpts[i]);
    }
    for (size_t i = 0; err == 0 && i < count; i++) {
        err = spool_settle(sp, id, rcpts[i].n, &(struct spool_verdict){.done = true});
    }
    return err != 0 ? err : spool_finish(sp, id, (struct wall){1000000}, &gone);
}

/* Deliver all that is due; what makes no sense is quarantined, what is on damaged pages left. */
static void run_queue(struct spool *sp)
{
    for (size_t turn = 0; turn < 4 * MESSAGES; turn++) {
        enum spool_state from = turn % 2 == 0 ? SPOOL_INCOMING : SPOOL_DEFERRED;
        struct msg_id id;
        size_t count = 0;
        int err = spool_claim(sp, from, (struct wall){INT64_MAX - 1}, 1, &id, &count), end;

        if (err != 0) {
            assert_true(is_out_of_reach(err));
            continue;
        }
        if (count == 0) {
            continue;
        }
        err = pass(sp, id);
        if (err == -EBADMSG) {
            err = spool_quarantine(sp, id, slice_string(spool_error(sp)));
        }
        end = spool_commit(sp);
        err = err != 0 ? err : end;
        if (err != 0 && err != -ENOENT) {
            assert_true(is_out_of_reach(err));
            if (number_of(id) < MESSAGES) {
                mail.out_of_reach[number_of(id)] = true;
            }
        }
    }
}

/* As the auditor does, slowly: what no due time leads to. Returns whether there was any. */
static bool look_at_all_rows(struct spool *sp)
{
    struct msg_id ids[3 * MESSAGES];
    struct spool_message m;
    size_t count = 0, found = 0;

    if (spool_scan(sp, &(struct spool_filter){.states = 0}, COUNT(ids), ids, &count) != 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        int err = spool_read(sp, ids[i], &m);

        if (err == -EBADMSG) {
            err = spool_quarantine(sp, ids[i], slice_string(spool_error(sp)));
        } else if (err == 0 && !spool_is_claimed(sp, ids[i]) &&
                   (m.state == SPOOL_INCOMING || m.state == SPOOL_DEFERRED)) {
            err = spool_set_due(sp, ids[i], (struct wall){10});
            found += err == 0;
        }
        /* An index may name what is not there. */
        assert_true(err == 0 || err == -ENOENT || is_out_of_reach(err));
        err = spool_commit(sp);
        assert_true(err == 0 || is_out_of_reach(err));
    }
    return found > 0;
}

/* Can an operator see it, and that something is wrong? */
static bool is_visible(struct spool *sp, struct msg_id id)
{
    struct spool_rcpt rcpts[2 * RCPTS];
    struct spool_message m;
    size_t count;

    if (spool_read(sp, id, &m) != 0) {
        return false;
    }
    /* One on hold is listed, with what is wrong with its recipients. */
    return m.state == SPOOL_HOLD ||
           (m.state == SPOOL_CORRUPT &&
            spool_read_rcpts(sp, id, 0, false, COUNT(rcpts), rcpts, &count) == 0);
}

/* Does an operator who looks for damage learn of it? */
static bool is_told_by_check(const char *what);

static void problem(const char *what, size_t message, size_t rcpt, const char *how)
{
    printf("# %s: message %zu, recipient %zu: %s\n", what, message, rcpt, how);
    problems++;
}

/* Each recipient was delivered to once, or its message is there to be seen. `bad`: the message that
 * was damaged; the others have to be delivered, but for the one on hold. */
static void nothing_is_lost(struct spool *sp, size_t bad, const char *what)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        for (size_t j = 0; j < RCPTS; j++) {
            if (mail.delivered[i][j] > 1) {
                problem(what, i, j, "delivered twice");
            } else if (mail.delivered[i][j] == 0 && !is_visible(sp, mail.ids[i]) &&
                       !is_told_by_check(what)) {
                problem(what, i, j, "lost");
            } else if (mail.delivered[i][j] == 0 && i != bad && i != 5) {
                problem(what, i, j, "not delivered");
            }
        }
    }
}

static void on_told(void *context, const char *line)
{
    (void)context;
    if (getenv("SPOOL_DAMAGE_VERBOSE") != NULL) {
        printf("# %s\n", line);
    }
}

static bool is_told_by_check(const char *what)
{
    struct buf error;
    uint64_t findings = 0;
    int err;

    buf_init(&error, 1024);
    err = spool_check(fx.url, on_told, NULL, &error, &findings);
    if (err != 0) {
        printf("# %s: %s\n", what, buf_cstr(&error));
    }
    buf_fini(&error);
    return err != 0 || findings > 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Run a statement that the tables would refuse, for the columns' types, too. False: even so it is
 * impossible. */
static bool damage(const char *sql)
{
    static const char *const loose =
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql ="
        " replace(replace(replace(sql, 'STRICT, ', ''), ') STRICT', ')'), ' NOT NULL', '')"
        " WHERE type = 'table'";
    static const char *const strict =
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema AS t SET sql = (SELECT sql FROM kept k"
        " WHERE k.name = t.name) WHERE type = 'table' AND name <> 'kept';";
    sqlite3 *db;
    bool ok;

    fixture_sql(&fx, "CREATE TABLE kept AS SELECT name, sql FROM sqlite_schema WHERE type ="
                     " 'table'");
    fixture_sql(&fx, loose);
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA ignore_check_constraints = 1", NULL, NULL, NULL),
                     SQLITE_OK);
    ok = sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    fixture_sql(&fx, strict);
    fixture_sql(&fx, "DROP TABLE kept");
    return ok;
}

static void every_value_of_every_column_can_be_damaged(void **state)
{
    static const struct {
        const char *table, *columns[24];
    } tables[] = {
        {"message",
         {"id",     "listed",       "state",  "due",           "arrived",      "created",
          "size",   "in_file",      "flags",  "rcpt_total",    "rcpt_pending", "rcpt_to_report",
          "warned", "force_expire", "sender", "sender_domain", "envid",        "client",
          "reason", "parked",       "class",  "content_sum",   "sum"}},
        {"recipient",
         {"message", "n", "listed", "state", "notify", "attempts", "last_attempt",
          "route_generation", "address", "domain", "transport", "nexthop", "orcpt", "status",
          "diagnostic", "remote", "reply", "tls", "sum"}},
        {"content", {"message", "bytes"}},
        {"destination", {"nexthop", "transport", "recipients", "messages"}},
    };
    static const char *const values[] = {
        "NULL",
        "-1",
        "0",
        "3",
        "9",
        "77777",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5e300",
        "'text'",
        "''",
        "x'00ff'",
        "x''",
        "'a' || char(0) || 'b'",
        "CAST(x'ff80' AS TEXT)",
        "printf('%.9999c', 'x')",
    };
    size_t runs = 0, done = 0;

    (void)state;
    for (size_t t = 0; t < COUNT(tables); t++) {
        for (size_t c = 0; tables[t].columns[c] != NULL; c++) {
            for (size_t v = c % 2; v < COUNT(values);
                 v += 2) { /* half of them, for the time it takes */
                /* Another message each time: unlisted, deferred, parked, in a file ... */
                size_t bad = runs++ % MESSAGES;
                struct spool *sp = open_with_mail();
                char sql[400];

                spool_close(sp);
                if (t == 3) {
                    snprintf(sql, sizeof sql, "UPDATE OR IGNORE destination SET %s = %s",
                             tables[t].columns[c], values[v]);
                } else {
                    snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s SET %s = %s WHERE %s = %llu%s",
                             tables[t].table, tables[t].columns[c], values[v],
                             t == 0 ? "id" : "message", (unsigned long long)mail.ids[bad].n,
                             t == 1 && runs % 3 != 0 ? " AND n = 1" : "");
                }
                done += damage(sql);
                if (fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp) != 0) {
                    fail_msg("%s: it does not open", sql);
                }
                run_queue(sp);
                if (look_at_all_rows(sp)) {
                    run_queue(sp);
                }
                nothing_is_lost(sp, bad, sql);
                spool_close(sp);
                tear_down(NULL);
                set_up(NULL);
            }
        }
    }
    assert_true(done > runs * 3 / 4);
    assert_int_equal(problems, 0);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

#define FLIPS 200

static char *read_file(const char *path, size_t *ret_size)
{
    FILE *f = fopen(path, "r");
    struct stat st;
    char *bytes;

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *ret_size = (size_t)st.st_size;
    bytes = mem_new(*ret_size);
    assert_int_equal(fread(bytes, 1, *ret_size, f), *ret_size);
    fclose(f);
    return bytes;
}

static void repair(const char *what)
{
    struct spool_repaired repaired;
    struct buf error;

    buf_init(&error, 1024);
    if (spool_repair(fx.url, on_told, NULL, &error, &repaired) != 0) {
        printf("# %s: repair: %s\n", what, buf_cstr(&error));
        problems++;
    }
    buf_fini(&error);
}

/* Is there anything that neither went out nor can be seen? */
static bool is_anything_missing(struct spool *sp)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        for (size_t j = 0; j < RCPTS; j++) {
            if (mail.delivered[i][j] == 0 && !is_visible(sp, mail.ids[i])) {
                return true;
            }
        }
    }
    return false;
}

static void run_all(struct spool *sp)
{
    run_queue(sp);
    if (look_at_all_rows(sp)) {
        run_queue(sp);
    }
}

/* After damage of any kind: what runs, runs; what is missing then is there after a repair. */
static void survive(const char *what, unsigned *ret_refused, unsigned *ret_repaired)
{
    struct spool *sp;

    if (fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp) != 0) {
        (*ret_refused)++;
        repair(what);
        if (fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp) != 0) {
            printf("# %s: it does not open after the repair\n", what);
            problems++;
            return;
        }
    }
    run_all(sp);
    if (is_anything_missing(sp)) {
        spool_close(sp);
        if (!is_told_by_check(what)) {
            printf("# %s: something is missing, and nothing tells of it\n", what);
            problems++;
        }
        (*ret_repaired)++;
        repair(what);
        if (fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp) != 0) {
            printf("# %s: it does not open after the repair\n", what);
            problems++;
            return;
        }
        run_all(sp);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        for (size_t j = 0; j < RCPTS; j++) {
            if (mail.delivered[i][j] == 0 && !is_visible(sp, mail.ids[i])) {
                problem(what, i, j, "lost");
            }
            if (mail.delivered[i][j] > 2) {
                problem(what, i, j, "delivered again and again");
            }
        }
    }
    spool_close(sp);
}

static void any_byte_can_change(void **state)
{
    struct spool *sp = open_with_mail();
    size_t size;
    unsigned refused = 0, repaired = 0;
    struct rng rng;

    (void)state;
    spool_close(sp);
    problems = 0;
    rng_init(&rng, 2026);
    for (unsigned i = 0; i < FLIPS; i++) {
        char what[64], *bytes;
        size_t at;
        FILE *f;

        tear_down(NULL);
        set_up(NULL);
        spool_close(open_with_mail());
        bytes = read_file(fx.path, &size);
        at = (size_t)(rng_next(&rng) % size);
        bytes[at] = (char)(bytes[at] ^ 1 << rng_next(&rng) % 8);
        f = fopen(fx.path, "w");
        assert_int_equal(fwrite(bytes, 1, size, f), size);
        assert_int_equal(fclose(f), 0);
        mem_free(bytes);
        snprintf(what, sizeof what, "flip %u: byte %zu (page %zu)", i, at, at / 4096 + 1);
        survive(what, &refused, &repaired);
    }
    printf("# %u starts refused, %u more repaired\n", refused, repaired);
    assert_int_equal(problems, 0);
}

static void zero_page(long page)
{
    static const char zeros[4096];
    int fd = open(fx.path, O_WRONLY);

    assert_int_equal(pwrite(fd, zeros, sizeof zeros, (off_t)(page - 1) * 4096), sizeof zeros);
    close(fd);
}

static void any_page_can_be_lost(void **state)
{
    unsigned refused = 0, repaired = 0;
    size_t size = 4096, pages = 2;

    (void)state;
    problems = 0;
    for (size_t page = 0; page < pages; page++) {
        char what[64];

        tear_down(NULL);
        set_up(NULL);
        spool_close(open_with_mail());
        mem_free(read_file(fx.path, &size));
        pages = size / 4096;
        zero_page((long)page + 1);
        snprintf(what, sizeof what, "page %zu zeroed", page + 1);
        survive(what, &refused, &repaired);
    }
    printf("# %u starts refused, %u more repaired\n", refused, repaired);
    assert_int_equal(problems, 0);
}

/* The least that can be read as a leaf page of an index: it has no entries. */
static void empty_page(long page)
{
    static const char bytes[4096] = {10, 0, 0, 0, 0, 0x10};
    int fd = open(fx.path, O_WRONLY);

    assert_int_equal(pwrite(fd, bytes, sizeof bytes, (off_t)(page - 1) * 4096), sizeof bytes);
    close(fd);
}

/* Recipients of an operator's view, in a message that can be seen: "message/n address state
 * nexthop". */
static bool is_listed(const char *rcpt)
{
    char sql[500];

    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM recipient r JOIN message m ON m.id = r.message"
             " WHERE m.listed = 1 AND r.listed = 1 AND"
             " message || '/' || n || ' ' || address || ' ' || r.state || ' ' || nexthop"
             " = '%.200s'",
             rcpt);
    return strcmp(fixture_ask(&fx, sql), "1") == 0;
}

/* The first page of any table or index can be lost: what it led to is found by the others. Nothing
 * that was delivered or failed comes back as pending, and what is made again is not sent by itself.
 */
static void any_root_can_be_lost(void **state)
{
    static const char roots[] = "SELECT group_concat(name || ' ' || rootpage, ' ') FROM"
                                " sqlite_schema WHERE rootpage > 0";
    static const char everyone[] =
        "SELECT group_concat(message || '/' || n || ' ' || address || ' ' || state || ' ' ||"
        " nexthop, ';') FROM recipient";
    static const char senders[] = "SELECT group_concat(id || sender || arrived) FROM message";
    char rcpts[4096], all[2000], kept_senders[1000];
    struct slice rest, word;
    size_t rounds = 0;
    bool gone, emptied = false;

    (void)state;
    for (size_t i = 0;; i++) {
        struct spool *sp = open_with_mail();
        char name[64], page[16];

        for (size_t m = 0; m < MESSAGES; m++) {
            (void)spool_finish(sp, mail.ids[m], (struct wall){30}, &gone); /* list all */
        }
        fixture_ok(sp, spool_settle(sp, mail.ids[1], 2,
                                    &(struct spool_verdict){.state = SPOOL_RCPT_FAILED,
                                                            .attempted = true,
                                                            .status = SLICE("5.1.1"),
                                                            .diagnostic = SLICE("no such user"),
                                                            .remote = SLICE("mx.example"),
                                                            .when = {20}}));
        fixture_ok(sp, spool_commit(sp));
        spool_close(sp);
        assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM recipient WHERE listed = 0"),
                            "0");
        assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM recipient WHERE state = 2"),
                            "1");
        snprintf(all, sizeof all, "%s", fixture_ask(&fx, roots));
        snprintf(rcpts, sizeof rcpts, "%s", fixture_ask(&fx, everyone));
        snprintf(kept_senders, sizeof kept_senders, "%s", fixture_ask(&fx, senders));
        rest = slice_string(all);
        for (size_t skip = 0; skip < i && rest.ptr != NULL; skip++) {
            (void)slice_cut(&rest, ' ');
            (void)slice_cut(&rest, ' ');
        }
        if (rest.ptr == NULL || rest.len == 0) {
            break;
        }
        word = slice_cut(&rest, ' ');
        snprintf(name, sizeof name, "%.*s", SLICE_ARGS(word));
        word = slice_cut(&rest, ' ');
        snprintf(page, sizeof page, "%.*s", SLICE_ARGS(word));
        if (strcmp(name, "recipient") == 0 && !emptied) {
            emptied = true;
            empty_page(strtol(page, NULL, 10));
            i--; /* and once more, with zeros */
        } else {
            zero_page(strtol(page, NULL, 10));
        }
        repair(name);
        rounds++;
        for (rest = slice_string(rcpts); rest.ptr != NULL;) {
            char one[200];

            word = slice_cut(&rest, ';');
            snprintf(one, sizeof one, "%.*s", SLICE_ARGS(word));
            if (!is_listed(one)) {
                printf("# root of %s: lost: recipient %s\n", name, one);
                problems++;
            }
        }
        if (strcmp(kept_senders, fixture_ask(&fx, senders)) != 0) {
            printf("# root of %s: senders: %s\n", name, fixture_ask(&fx, senders));
            problems++;
        }
        sp = fixture_open(&fx);
        if (strcmp(name, "recipient") == 0 || strcmp(name, "message") == 0) {
            run_all(sp);
            for (size_t m = 0; m < MESSAGES; m++) {
                assert_true(is_visible(sp, mail.ids[m]));
                fixture_ok(sp, spool_hold(sp, mail.ids[m], SLICE("")));
                fixture_ok(sp, spool_release(sp, mail.ids[m], (struct wall){10}));
                fixture_ok(sp, spool_commit(sp));
            }
            mail.delivered[1][1]++; /* that one failed before */
            run_all(sp);
            nothing_is_lost(sp, MESSAGES, name);
            assert_int_equal(mail.delivered[5][0], 1);
        }
        spool_close(sp);
        assert_string_equal(fixture_ask(&fx, "PRAGMA integrity_check"), "ok");
        tear_down(NULL);
        set_up(NULL);
    }
    assert_true(rounds >= 18); /* each table and each index */
    assert_int_equal(problems, 0);
}

/* An index with a lost page is made again without a repair: new mail gets in, and old mail goes. */
static void any_index_is_made_again_in_use(void **state)
{
    static const char indexes[] = "SELECT group_concat(name || ' ' || rootpage, ' ') FROM"
                                  " sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
    static const char others[] = "SELECT count(*) FROM pragma_integrity_check"
                                 " WHERE integrity_check NOT LIKE '%never used%'"
                                 " AND integrity_check <> 'ok'";
    size_t rounds = 0;

    (void)state;
    for (size_t i = 0;; i++) {
        struct spool *sp = open_with_mail();
        struct slice rest, word;
        char all[2000], name[64], page[16], sql[200];
        struct msg_id more;
        bool gone;
        int tries = 0, err;

        for (size_t m = 0; m < MESSAGES; m++) {
            (void)spool_finish(sp, mail.ids[m], (struct wall){30}, &gone); /* list all */
        }
        fixture_ok(sp, spool_commit(sp));
        spool_close(sp);
        snprintf(all, sizeof all, "%s", fixture_ask(&fx, indexes));
        rest = slice_string(all);
        for (size_t skip = 0; skip < i && rest.ptr != NULL; skip++) {
            (void)slice_cut(&rest, ' ');
            (void)slice_cut(&rest, ' ');
        }
        if (rest.ptr == NULL || rest.len == 0) {
            break;
        }
        word = slice_cut(&rest, ' ');
        snprintf(name, sizeof name, "%.*s", SLICE_ARGS(word));
        word = slice_cut(&rest, ' ');
        snprintf(page, sizeof page, "%.*s", SLICE_ARGS(word));
        zero_page(strtol(page, NULL, 10));
        sp = fixture_open(&fx);
        run_all(sp);
        do {
            (void)fixture_submit(sp, "more@sender.example", "x@more.example", 10, 200, true, &more);
            err = spool_commit(sp); /* fails if the submission did */
            assert_true(err == 0 || (err == -EUCLEAN && ++tries < 3));
        } while (err != 0);
        run_all(sp);
        nothing_is_lost(sp, MESSAGES, name);
        for (size_t m = 0; m < MESSAGES; m++) { /* but for those on hold and parked */
            if (m != 5 && m != 7 && mail.delivered[m][0] != 1) {
                problem(name, m, 0, "not delivered");
            }
        }
        spool_close(sp);
        snprintf(sql, sizeof sql, "SELECT count(*) FROM sqlite_schema WHERE name = '%s'", name);
        assert_string_equal(fixture_ask(&fx, sql), "1");
        if (strcmp(name, "message_class") != 0 && strcmp(name, "call_key_until") != 0) {
            assert_string_equal(fixture_ask(&fx, others), "0"); /* no row was in those two */
        }
        rounds++;
        tear_down(NULL);
        set_up(NULL);
    }
    assert_true(rounds >= 12); /* each index */
    assert_int_equal(problems, 0);
}

/* ---- files ---------------------------------------------------------------------------------- */

static char *beside(const char *suffix)
{
    static char path[200];

    snprintf(path, sizeof path, "%s%s", fx.path, suffix);
    return path;
}

static void make_file(const char *path)
{
    close(open(path, O_WRONLY | O_CREAT, 0600));
}

/* What the log would tell of the start; "" when there is nothing. */
static const char *events_of(struct spool *sp)
{
    static char text[2000];
    struct spool_event event;

    text[0] = '\0';
    while (spool_next_event(sp, &event)) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s\n", SLICE_ARGS(event.text));
    }
    return text;
}

static void a_spool_does_not_start_over_beside_contents(void **state)
{
    struct spool_totals totals;
    struct spool *sp = open_with_mail();

    (void)state;
    problems = 0;
    spool_close(sp);
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        unlink(fx.path);
        if (is_empty) {
            make_file(fx.path);
        }
        assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EUCLEAN);
        fixture_ok(NULL, access(content_path(mail.ids[2]), F_OK));
    }
    repair("missing");
    sp = fixture_open(&fx);
    fixture_ok(sp, spool_totals(sp, &totals));
    assert_int_equal(totals.corrupt, 2); /* those that were beside the database */
    assert_true(is_visible(sp, mail.ids[2]));
    assert_true(is_visible(sp, mail.ids[5]));
    fixture_ok(sp, read_content(sp, mail.ids[5]));
    spool_close(sp);
    assert_int_equal(problems, 0);
}

static void a_spool_does_not_start_over_without_its_database(void **state)
{
    struct spool *sp;

    (void)state;
    make_file(beside(".repaired"));
    sp = fixture_open(&fx); /* empty: nothing is lost */
    spool_close(sp);
    unlink(fx.path);
    close(open(beside("-wal"), O_WRONLY | O_CREAT, 0600));
    assert_int_equal(truncate(beside("-wal"), 5000), 0);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EUCLEAN);
}

static void a_content_that_is_not_known_is_kept(void **state)
{
    struct spool *sp = open_with_mail();
    char unknown[256], crashed[256];

    (void)state;
    spool_close(sp);
    fixture_sql(&fx, "UPDATE spool SET last_id = last_id + 100");
    snprintf(unknown, sizeof unknown, "%s", content_path((struct msg_id){mail.ids[7].n + 50}));
    snprintf(crashed, sizeof crashed, "%s", content_path((struct msg_id){mail.ids[7].n + 150}));
    make_file(unknown);
    make_file(crashed);
    assert_true(is_told_by_check("unknown"));
    sp = fixture_open(&fx);
    assert_non_null(strstr(events_of(sp), "1 contents"));
    assert_int_equal(access(unknown, F_OK), 0);
    assert_int_equal(access(crashed, F_OK), -1); /* nobody was told that it was stored */
    spool_close(sp);
}

/* A crash between the commit that ended a message and the removal of its content. */
static void a_content_that_was_finished_goes(void **state)
{
    struct spool *sp = open_with_mail();
    char path[256], saved[256];

    (void)state;
    snprintf(path, sizeof path, "%s", content_path(mail.ids[2]));
    snprintf(saved, sizeof saved, "%s", beside(".saved"));
    assert_int_equal(link(path, saved), 0);
    fixture_ok(sp, spool_remove(sp, mail.ids[2]));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    assert_int_equal(rename(saved, path), 0);
    sp = fixture_open(&fx);
    assert_string_equal(events_of(sp), "");
    assert_int_equal(access(path, F_OK), -1);
    spool_close(sp);
}

static void a_database_that_goes_away_is_noticed(void **state)
{
    static const char *const suffixes[] = {"", "-wal"};

    (void)state;
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
            struct spool *sp = open_with_mail();
            char away[256];
            struct msg_id id;

            snprintf(away, sizeof away, "%s.away", fx.path);
            assert_int_equal(rename(beside(suffixes[i]), away), 0);
            if (is_replaced) {
                make_file(beside(suffixes[i]));
            }
            fixture_ok(sp, fixture_submit(sp, "a@b.c", "x@y.z", 1, 10, false, &id));
            assert_int_equal(spool_commit(sp), -ESTALE);
            assert_non_null(strstr(spool_error(sp), "removed or replaced"));
            assert_int_equal(rename(away, beside(suffixes[i])), 0);
            fixture_ok(sp, fixture_submit(sp, "a@b.c", "x@y.z", 1, 10, false, &id));
            fixture_ok(sp, spool_commit(sp));
            spool_close(sp);
            tear_down(NULL);
            set_up(NULL);
        }
    }
}

/* A log that is cut by hand, or a database from a backup: whole, and older than what was told. */
static void a_spool_that_went_back_is_told(void **state)
{
    struct spool *sp = open_with_mail();
    size_t size;
    char *before;
    struct msg_id id;
    FILE *f;

    (void)state;
    spool_close(sp);
    before = read_file(fx.path, &size);
    sp = fixture_open(&fx);
    assert_string_equal(events_of(sp), "");
    for (int i = 0; i < 3; i++) {
        fixture_ok(sp, fixture_submit(sp, "a@b.c", "x@y.z", 1, OWN_FILE, false, &id));
        fixture_ok(sp, spool_commit(sp));
    }
    spool_close(sp);
    f = fopen(fx.path, "w");
    assert_int_equal(fwrite(before, 1, size, f), size);
    fclose(f);
    mem_free(before);
    sp = fixture_open(&fx);
    assert_non_null(strstr(events_of(sp), "went back: 3 commits are missing"));
    assert_int_equal(access(content_path(id), F_OK), 0);  /* it was acknowledged */
    assert_int_equal(access(beside(".d/keep"), F_OK), 0); /* so may have been what is in segments */
    fixture_ok(sp, fixture_submit(sp, "a@b.c", "x@y.z", 1, 10, false, &id));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    sp = fixture_open(&fx);
    assert_non_null(strstr(events_of(sp), "3 contents")); /* they are told until they are adopted */
    spool_close(sp);
}

/* ---- repair --------------------------------------------------------------------------------- */

/* Of what is sound nothing changes. */
static void a_repair_keeps_what_is_sound(void **state)
{
    static const char all[] =
        "SELECT group_concat(x, ' ') FROM (SELECT id || state || due || created || size || in_file"
        " || rcpt_total || rcpt_pending || sender || reason || ifnull(parked, '') || content_sum ||"
        " sum AS x FROM message UNION ALL SELECT message || n || state || attempts || address ||"
        " domain || nexthop || diagnostic || sum FROM recipient)";
    struct spool *sp = open_with_mail();
    char before[4096];

    (void)state;
    problems = 0;
    spool_close(sp);
    snprintf(before, sizeof before, "%s", fixture_ask(&fx, all));
    assert_true(strlen(before) > 500);
    repair("sound");
    assert_string_equal(before, fixture_ask(&fx, all));
    assert_string_equal(fixture_ask(&fx, "PRAGMA integrity_check"), "ok");
    assert_false(is_told_by_check("sound"));
    assert_int_equal(access(beside(".damaged-1"), F_OK), 0);
    sp = fixture_open(&fx);
    assert_string_equal(events_of(sp), "");
    run_all(sp);
    nothing_is_lost(sp, MESSAGES, "sound");
    assert_int_equal(problems, 0);
    spool_close(sp);
}

static void a_repair_waits_for_the_daemon_to_stop(void **state)
{
    struct spool *sp = open_with_mail();
    struct spool_repaired repaired;
    struct buf error;

    (void)state;
    buf_init(&error, 1024);
    assert_int_equal(spool_repair(fx.url, on_told, NULL, &error, &repaired), -EBUSY);
    assert_non_null(strstr(buf_cstr(&error), "stop it first"));
    buf_fini(&error);
    spool_close(sp);
}

/* Killed at any time it leaves the old spool, or none that opens, until the next one ends it. */
static void a_repair_can_be_killed(void **state)
{
    unsigned killed = 0;
    bool done = false;

    (void)state;
    problems = 0;
    for (useconds_t us = 100; !done; us = us * 5 / 4) {
        struct spool *sp = open_with_mail();
        int status;
        pid_t pid;

        spool_close(sp);
        damage("DELETE FROM recipient WHERE message = 1 AND n = 2");
        pid = fork();
        if (pid == 0) {
            repair("killed");
            _exit(0);
        }
        usleep(us); /* whatever it has done by then */
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        done = WIFEXITED(status) || us > 20000000;
        killed += WIFSIGNALED(status);
        if (fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp) == 0) {
            spool_close(sp);
        }
        repair("after the kill");
        sp = fixture_open(&fx);
        run_all(sp);
        nothing_is_lost(sp, 0, "killed");
        spool_close(sp);
        tear_down(NULL);
        set_up(NULL);
    }
    assert_true(killed > 0);
    assert_int_equal(problems, 0);
}

/* What is known of a damaged message can go on. */
static void who_is_left_can_be_delivered_to(void **state)
{
    struct spool *sp = open_with_mail();

    (void)state;
    problems = 0;
    spool_close(sp);
    damage("DELETE FROM recipient WHERE message = 1 AND n IN (2, 4)");
    damage("UPDATE recipient SET address = 'r9@m2.example' WHERE message = 2 AND n = 1");
    sp = fixture_open(&fx);
    run_all(sp);
    assert_true(is_visible(sp, mail.ids[0]));
    assert_int_equal(mail.delivered[0][0], 0);
    fixture_ok(sp, spool_hold(sp, mail.ids[0], SLICE("")));
    fixture_ok(sp, spool_release(sp, mail.ids[0], (struct wall){10}));
    fixture_ok(sp, spool_commit(sp));
    run_all(sp);
    assert_int_equal(mail.delivered[0][0], 1);
    assert_int_equal(mail.delivered[0][1], 0);
    assert_int_equal(mail.delivered[0][2], 1);
    /* What was said of message 2 is not believed, unless an operator does. */
    assert_true(is_visible(sp, mail.ids[1]));
    /* Damaged content goes nowhere. */
    fixture_sql(&fx, "UPDATE content SET bytes = x'41' WHERE message = 2");
    assert_int_equal(spool_hold(sp, mail.ids[1], SLICE("")), -EBADMSG);
    assert_int_equal(problems, 0);
    spool_close(sp);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(changed_content_is_noticed),
        EACH(content_of_another_message_is_noticed),
        EACH(content_without_a_checksum_is_believed),
        EACH(every_value_of_every_column_can_be_damaged),
        EACH(any_byte_can_change),
        EACH(any_page_can_be_lost),
        EACH(any_root_can_be_lost),
        EACH(any_index_is_made_again_in_use),
        EACH(who_is_left_can_be_delivered_to),
        EACH(a_repair_can_be_killed),
        EACH(a_repair_waits_for_the_daemon_to_stop),
        EACH(a_repair_keeps_what_is_sound),
        EACH(a_spool_that_went_back_is_told),
        EACH(a_database_that_goes_away_is_noticed),
        EACH(a_content_that_was_finished_goes),
        EACH(a_content_that_is_not_known_is_kept),
        EACH(a_spool_does_not_start_over_without_its_database),
        EACH(a_spool_does_not_start_over_beside_contents),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was found is told before a panic */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
