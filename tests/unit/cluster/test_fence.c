/*
 * What a node writes when it was given up and does not know it yet: nothing. The life of an engine
 * in a real database, in which each statement that changes something is sent for once at least; and
 * before any of them goes out it is tried under a fence that another has raised, in a transaction
 * that is rolled back, and without that.
 *
 * `writes` has what changes something in src/cluster, but for rows_statement, which has the rest:
 * what is sent and stands in neither fails the test, and so does what stands there and was never
 * tried. That it has all there is says structure/test_cluster_writes.py.
 *
 * The clock of leases is the test's. The other node is rows that the test writes.
 */
#include "unit.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arrivals.h"
#include "buf.h"
#include "cluster_spool.h"
#include "handover.h"
#include "mem.h"
#include "partition.h"
#include "postgres_server.h"
#include "rows.h"
#include "spool_commits.h"
#include "spool_fixture.h"
#include "spool_handover.h"
#include "spool_lease.h"
#include "spool_others.h"
#include "spool_parts.h"
#include "spool_routes.h"
#include "spool_shared.h"

#define NOW   1000000
#define LATER 2000000
#define LARGE 300000 /* two chunks */

/* ---- what writes ----------------------------------------------------------------------------- */

enum fence {
    NO_WRITE,
    BEFORE, /* a count of its fence's row divides, first in its transaction: 22012 */
    ITSELF, /* it says whose life it is for, and finds no row */
    EITHER, /* as what else its transaction has */
    NONE,
};

/* A line for each, from the file and the words by which it begins to write there. */
static const struct {
    const char *file, *words;
    enum fence fence;
    const char *why; /* NONE: it needs none */
} writes[] = {
    {"arrivals.c", "INSERT INTO arrival (node, parts) SELECT l.node", BEFORE, NULL},
    {"arrivals.c", "DELETE FROM arrival WHERE node = $1::smallint", BEFORE, NULL},
    {"arrivals.c", "DELETE FROM arrival WHERE node = ($3", ITSELF, NULL},
    {"asks.c", "INSERT INTO ask", NONE, "a question changes nothing, and has its life's number"},
    {"asks.c", "UPDATE ask SET answer", ITSELF, NULL},
    {"asks.c", "DELETE FROM ask WHERE from_node", NONE, "of rows that have its life's number"},
    {"committer.c", "INSERT INTO batch SELECT", BEFORE, NULL},
    {"committer.c", "INSERT INTO batch (node, n) SELECT", NONE,
     "it asks what has become of its own batches"},
    {"handover.c", "DELETE FROM lease_note WHERE p", BEFORE, NULL},
    {"handover.c", "INSERT INTO lease_note", BEFORE, NULL},
    {"housekeeper.c", "TRUNCATE fresh_", NONE, "of a table without rows, under its lock"},
    {"housekeeper.c", "UPDATE cluster SET fresh_now", NONE, "with that"},
    {"housekeeper.c", "VACUUM (TRUNCATE OFF) arrival", NONE, "it takes no rows away"},
    {"housekeeper.c", "VACUUM (TRUNCATE OFF) fresh_0", NONE, "likewise"},
    {"housekeeper.c", "DELETE FROM batch b", NONE, "too old, whoever looks"},
    {"housekeeper.c", "DELETE FROM content WHERE (id, n) IN", NONE, "nothing names it, likewise"},
    {"housekeeper.c", "DELETE FROM arrival a WHERE NOT EXISTS", NONE, "for no owner, likewise"},
    {"housekeeper.c", "DELETE FROM ask WHERE at", NONE, "too old, likewise"},
    {"housekeeper.c", "DELETE FROM lease_note WHERE until", NONE, "too old, likewise"},
    {"member_request.c", "UPDATE fence SET incarnation = incarnation + 1", BEFORE, NULL},
    {"member_request.c", "UPDATE node SET beat = beat + 1, state = CASE WHEN state = 0", ITSELF,
     NULL},
    {"member_request.c", "UPDATE cluster SET timeline", NONE, "the server's, and it only rises"},
    {"member_request.c", "UPDATE cluster SET active_route", NONE, "of tables, which are no node's"},
    {"member_request.c", "INSERT INTO route", NONE, "likewise"},
    {"member_request.c", "INSERT INTO node", NONE, "it begins a life"},
    {"member_request.c", "INSERT INTO fence SELECT no, 1", NONE, "likewise"},
    {"member_request.c", "UPDATE node SET incarnation = f.incarnation FROM", NONE, "likewise"},
    {"member_request.c", "UPDATE node SET incarnation = f.incarnation, beat", NONE, "likewise"},
    {"member_request.c", "UPDATE node SET incarnation = incarnation + 1 WHERE", BEFORE, NULL},
    {"member_request.c", "UPDATE node SET incarnation = incarnation + 1, state", BEFORE, NULL},
    {"member_request.c", "UPDATE lease SET node = $1, epoch", BEFORE, NULL},
    {"member_request.c", "UPDATE lease SET wanted = $1", BEFORE, NULL},
    {"member_request.c", "UPDATE lease SET node = (SELECT", BEFORE, NULL},
    {"member_link.c", "pg_notify", NONE, "who is woken looks for himself"},
    {"member_sql.h", "INSERT INTO fence SELECT $1", EITHER, NULL},
    {"member_sql.h", "UPDATE lease SET epoch", EITHER, NULL},
    {"shared_texts.c", "UPDATE cluster SET interventions", BEFORE, NULL},
    {"shared_texts.c", "INSERT INTO intervention", BEFORE, NULL},
    {"shared_texts.c", "DELETE FROM intervention", BEFORE, NULL},
};

#define ROWS_MAX 64

/* Of each of them, then of rows_statement: what it has changed without another's fence. */
static unsigned effects[COUNT(writes) + ROWS_MAX];
static unsigned tried; /* transactions */

static struct postgres_server server;
static PGconn *observer;
static struct spool *sp;
static char digest_sql[4000];

/* A statement that is not sent yet. */
struct held {
    const char *sql;
    struct link_param params[LINK_PARAMS_MAX];
    int count;
};

static struct held held[64];
static size_t held_count;

void __real_link_send(struct link *l, const char *sql, const struct link_param *params, int count);
void __wrap_link_send(struct link *l, const char *sql, const struct link_param *params, int count);
void __real_link_sync(struct link *l);
void __wrap_link_sync(struct link *l);

static bool is_listen(const char *sql)
{
    return strncmp(sql, "LISTEN", 6) == 0;
}

void __wrap_link_send(struct link *l, const char *sql, const struct link_param *params, int count)
{
    struct held *h = &held[held_count];

    if (is_listen(sql)) { /* it does not last */
        __real_link_send(l, sql, params, count);
        return;
    }
    assert_true(held_count < COUNT(held));
    h->sql = sql;
    h->count = count;
    for (int i = 0; i < count; i++) {
        size_t len = params[i].bytes == NULL ? 0
                     : params[i].is_binary   ? params[i].len
                                             : strlen(params[i].bytes) + 1;
        char *copy = mem_new(len + 1);

        h->params[i] = params[i];
        if (params[i].bytes != NULL) {
            memcpy(copy, params[i].bytes, len);
        }
        h->params[i].bytes = params[i].bytes != NULL ? copy : NULL;
        if (params[i].bytes == NULL) {
            mem_free(copy);
        }
    }
    held_count++;
}

/* ---- trying ---------------------------------------------------------------------------------- */

static PGresult *run(const char *sql)
{
    PGresult *r = PQexec(observer, sql);

    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(observer));
    }
    return r;
}

/* The first value of the answer, in one of two buffers in turn. */
static const char *ask(const char *sql)
{
    static char text[2][200];
    static unsigned turns;
    char *at = text[turns++ % 2];
    PGresult *r = run(sql);

    (void)snprintf(at, sizeof text[0], "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    return at;
}

static void change(const char *sql)
{
    PQclear(run(sql));
}

static bool writes_at_all(const char *sql)
{
    static regex_t pattern;
    static bool is_compiled;

    if (!is_compiled) {
        is_compiled = true;
        assert_int_equal(regcomp(&pattern,
                                 "(INSERT INTO|DELETE FROM|TRUNCATE|pg_notify|UPDATE [a-z_]+"
                                 "( [a-z])? SET|MERGE INTO|CREATE|DROP|ALTER)",
                                 REG_EXTENDED | REG_NOSUB),
                         0);
    }
    return regexec(&pattern, sql, 0, NULL, 0) == 0;
}

/* The n-th of rows_statement. */
static bool is_of_rows(const char *sql, size_t *ret)
{
    const char *of_rows;

    for (unsigned n = 0; (of_rows = rows_statement(n)) != NULL; n++) {
        if (of_rows == sql) {
            *ret = COUNT(writes) + n;
            return true;
        }
    }
    return false;
}

static bool is_of_writes(const char *sql, size_t i)
{
    return strstr(sql, writes[i].words) != NULL;
}

static enum fence fence_of(const char *sql)
{
    size_t at;
    enum fence fence = is_of_rows(sql, &at) ? BEFORE : NO_WRITE;

    for (size_t i = 0; i < COUNT(writes); i++) {
        if (is_of_writes(sql, i) && writes[i].fence > fence) {
            fence = writes[i].fence;
        }
    }
    if (writes_at_all(sql) && fence == NO_WRITE) {
        fail_msg("`writes` does not have: %s", sql);
    }
    return fence;
}

static void note_effect(const char *sql)
{
    size_t at;

    for (size_t i = 0; i < COUNT(writes); i++) {
        effects[i] += is_of_writes(sql, i);
    }
    if (is_of_rows(sql, &at)) {
        assert_true(at < COUNT(effects));
        effects[at]++;
    }
}

/* Run the n-th; whether it has, and changed something or is one of those that fail else. */
static bool try_one(size_t n, bool *ret_changed, char ret_state[6])
{
    const char *values[LINK_PARAMS_MAX], *state;
    int lengths[LINK_PARAMS_MAX], formats[LINK_PARAMS_MAX];
    PGresult *r;
    bool is_good;

    for (int i = 0; i < held[n].count; i++) {
        values[i] = held[n].params[i].bytes;
        lengths[i] = (int)held[n].params[i].len;
        formats[i] = held[n].params[i].is_binary;
    }
    r = PQexecParams(observer, held[n].sql, held[n].count, NULL, values, lengths, formats, 1);
    is_good = PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK;
    state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    (void)snprintf(ret_state, 6, "%s", state != NULL ? state : "");
    *ret_changed = atoi(PQcmdTuples(r)) > 0;
    PQclear(r);
    return is_good;
}

/* All of them, as one transaction; the SQLSTATE of the error that ends it. */
static const char *try_all(bool notes)
{
    static char state[6];
    bool changed;

    change("SAVEPOINT all_of_it");
    for (size_t n = 0; n < held_count; n++) {
        if (strcmp(held[n].sql, "BEGIN") == 0 || strcmp(held[n].sql, "COMMIT") == 0) {
            continue;
        }
        if (!try_one(n, &changed, state)) {
            change("ROLLBACK TO all_of_it");
            return state;
        }
        if (changed && notes) {
            note_effect(held[n].sql);
        }
    }
    return "";
}

/* As another does who takes over. */
static const char raise_sql[] =
    "UPDATE fence SET incarnation = fence.incarnation + 1 FROM node WHERE fence.no = node.no AND "
    "name = 'sluice'";

/* Then what is held is sent by one who does not know it. */
static void try_when_fenced(enum fence fence, const char *what)
{
    char before[200];
    const char *state;

    (void)snprintf(before, sizeof before, "%s", ask(digest_sql));
    state = try_all(false);
    if (strcmp(before, ask(digest_sql)) != 0) {
        fail_msg("one whose fence was raised has changed something, by: %s", what);
    }
    if (strcmp(state, fence == ITSELF ? "" : "22012") != 0) {
        fail_msg("one whose fence was raised was told '%s' of: %s", state, what);
    }
}

/* Sessions of the engine may have locks. */
static void wait_for_sessions(void)
{
    while (strcmp(ask("SELECT count(*) FROM pg_stat_activity WHERE application_name <> 'test' AND "
                      "backend_type = 'client backend' AND state <> 'idle'"),
                  "0") != 0) {
        (void)poll(NULL, 0, 1);
    }
}

static void try_held(void)
{
    enum fence fence = NO_WRITE;
    const char *what = NULL;

    for (size_t n = 0; n < held_count; n++) {
        enum fence this = fence_of(held[n].sql);

        if (this != EITHER && this > fence) {
            fence = this;
            what = held[n].sql;
        }
    }
    if (fence == NO_WRITE || fence == NONE) {
        return;
    }
    tried++;
    wait_for_sessions();
    change("BEGIN; LOCK TABLE fence, node, cluster, lease, arrival, ask, lease_note IN EXCLUSIVE "
           "MODE; SAVEPOINT not_raised");
    change(raise_sql);
    try_when_fenced(fence, what);
    change("ROLLBACK TO not_raised");
    assert_string_equal(try_all(true), "");
    change("ROLLBACK");
}

void __wrap_link_sync(struct link *l)
{
    try_held();
    for (size_t n = 0; n < held_count; n++) {
        __real_link_send(l, held[n].sql, held[n].params, held[n].count);
        for (int i = 0; i < held[n].count; i++) {
            mem_free((char *)(uintptr_t)held[n].params[i].bytes);
        }
    }
    held_count = 0;
    __real_link_sync(l);
}

/* ---- time ------------------------------------------------------------------------------------ */

static int64_t passed_us = US_PER_S; /* by the clock of leases, which stands still else */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (clock != CLOCK_BOOTTIME) {
        return __real_clock_gettime(clock, t);
    }
    *t = (struct timespec){.tv_sec = passed_us / US_PER_S, .tv_nsec = passed_us % US_PER_S * 1000};
    return 0;
}

static void turn(void)
{
    struct spool_event event;

    spool_commits_turn(sp);
    (void)spool_commits_wait(sp, 5 * US_PER_MS);
    spool_commits_turn(sp);
    while (spool_next_event(sp, &event)) {
        if (event.type == SPOOL_EVENT_WARNING || event.type == SPOOL_EVENT_LOST) {
            fail_msg("%.*s", SLICE_ARGS(event.text));
        }
    }
}

/* Half a second, in which its lease is renewed if that is due. */
static void let_time_pass(void)
{
    passed_us += US_PER_S / 2;
    do {
        turn();
    } while (spool_lease_left_us(sp) < 29 * US_PER_S / 10);
}

/* ---- the world ------------------------------------------------------------------------------- */

/* All rows of all tables. */
static void make_digest_sql(void)
{
    PGresult *r =
        run("SELECT format('SELECT md5(concat_ws(''|'', %s))', string_agg(format('(SELECT "
            "string_agg(t::text, '';'' ORDER BY t::text) FROM sluice.%I t)', relname), "
            "', ')) FROM pg_class WHERE relnamespace = 'sluice'::regnamespace AND "
            "relkind = 'r'");

    (void)snprintf(digest_sql, sizeof digest_sql, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
}

static int start(void **state)
{
    (void)state;
    postgres_server_init(&server);
    postgres_server_make_tables(&server);
    observer = postgres_server_connect(&server);
    make_digest_sql();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    PQfinish(observer);
    postgres_server_fini(&server);
    return 0;
}

static void open_spool(void)
{
    struct spool_options options = {.inline_limit = INLINE_LIMIT};
    struct buf error;

    buf_init(&error, 1000);
    if (spool_open(postgres_server_url(&server), SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
}

static void commit(void)
{
    int rc;

    spool_commit_begin(sp);
    while (!spool_commit_end(sp, &rc)) {
        turn();
    }
    fixture_ok(sp, rc);
}

/* Number 0, which has all until the engine comes, and is heard of when the test says so. */
static void other_begins(void)
{
    change("SET search_path = sluice; INSERT INTO node (no, name, incarnation, beat, state, "
           "id_reserved, program) VALUES (0, 'other', 1, 1, 1, 0, ''); INSERT INTO fence VALUES "
           "(0, 1); UPDATE lease SET node = 0, epoch = 1");
}

static void other_beats(void)
{
    change("UPDATE node SET beat = beat + 1 WHERE no = 0");
}

static int own_count(void)
{
    struct spool_places own = {{0}};
    int count = 0;

    spool_own_places(sp, &own);
    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        count += spool_places_has(&own, p);
    }
    return count;
}

/* ---- mail ------------------------------------------------------------------------------------ */

static struct msg_id submit(const char *rcpts, size_t size)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, "s@from.test", rcpts, NOW, size, true, &id));
    return id;
}

static void settle(struct msg_id id, uint32_t n, enum spool_rcpt_state to, bool done)
{
    struct spool_verdict v = {.state = to, .done = done, .attempted = true, .when = {NOW}};

    fixture_ok(sp, spool_settle(sp, id, n, &v));
}

static void finish(struct msg_id id)
{
    bool gone;

    fixture_ok(sp, spool_finish(sp, id, (struct wall){LATER}, &gone));
}

static void bring(struct msg_id id)
{
    while (spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT) == -EAGAIN) {
        turn();
    }
}

static void take_away(struct msg_id id)
{
    bring(id);
    fixture_ok(sp, spool_remove(sp, id));
}

/* In each of the tables; one is delivered, one comes to wait. */
static void what_passes(void)
{
    for (int table = 0; table < 3; table++) {
        char sql[100];
        struct msg_id ids[2];

        (void)snprintf(sql, sizeof sql, "UPDATE cluster SET fresh_now = %d", table);
        change(sql);
        while (effects[COUNT(writes) + 2 + (unsigned)table] < 2) {
            let_time_pass();
            ids[0] = submit("r@a.example", 100);
            commit();
            ids[1] = submit("r@a.example", 100);
            commit();
            fixture_ok(sp, spool_finish_all_done(sp, ids[0]));
            settle(ids[1], 1, SPOOL_RCPT_PENDING, false);
            finish(ids[1]);
            commit();
            take_away(ids[1]);
            commit();
        }
    }
}

/* Of two recipients, the first is delivered before the other; and a large one. */
static void what_waits(void)
{
    struct msg_id two = submit("q@a.example r@a.example", 100),
                  large = submit("r@a.example", LARGE);

    commit();
    settle(two, 1, SPOOL_RCPT_PENDING, true);
    settle(two, 2, SPOOL_RCPT_PENDING, false);
    finish(two);
    settle(large, 1, SPOOL_RCPT_PENDING, false);
    finish(large);
    commit();
    take_away(two);
    take_away(large);
    commit();
}

static void route(struct msg_id id, uint32_t n, const char *nexthop)
{
    uint32_t moved;

    fixture_ok(sp, spool_set_route(sp, id, n, SLICE("smtp"), slice_string(nexthop),
                                   spool_route_generation(sp, 0)));
    finish(id);
    fixture_ok(sp, spool_move(sp, id, (struct wall){NOW}, (struct wall){LATER}, &moved));
    assert_int_equal(moved, 1);
}

/* A message is divided by a move; a part moves; one recipient fails, and is reported. */
static void what_moves(void)
{
    struct msg_id whole = submit("q@a.example r@a.example", LARGE), parts[2];
    bool gone = false;
    size_t count;

    commit();
    route(whole, 2, "y.example");
    commit();
    bring(whole);
    while (spool_parts_want(sp, whole) == -EAGAIN) {
        turn();
    }
    fixture_ok(sp, spool_parts_of(sp, whole, (struct msg_id){0}, 2, parts, &count));
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        struct spool_rcpt r;
        size_t one;

        bring(parts[i]);
        fixture_ok(sp, spool_read_rcpts(sp, parts[i], 0, true, 1, &r, &one));
        if (r.n == 1) {
            route(parts[i], 1, "z.example");
            commit();
            bring(parts[i]);
        }
        settle(parts[i], r.n, SPOOL_RCPT_FAILED, false);
        fixture_ok(sp, spool_give(sp, parts[i], (struct wall){NOW}));
        finish(parts[i]);
        commit();
        bring(whole);
        fixture_ok(sp, spool_reported(sp, whole));
        fixture_ok(sp, spool_set_due(sp, whole, (struct wall){LATER + (int64_t)i}));
        commit();
    }
    while (!gone) { /* until it has read that its last part has ended */
        turn();
        bring(whole);
        fixture_ok(sp, spool_finish(sp, whole, (struct wall){LATER}, &gone));
        commit();
    }
}

/* ---- what else a node writes ----------------------------------------------------------------- */

static void tell(void *arg, void (*add)(void *to, const struct spool_suspension *s), void *to)
{
    struct spool_suspension s = {.transport = SLICE("smtp"), .is_dead = true, .left_us = US_PER_S};
    char name[20];

    (void)arg;
    for (int i = 0; i < 1000; i++) { /* in most partitions */
        (void)snprintf(name, sizeof name, "%d.example", i);
        s.nexthop = s.destination = slice_string(name);
        add(to, &s);
    }
}

/* Twice, so that the first notes are deleted. */
static void what_is_handed_over(void)
{
    spool_hand_over_from(sp, tell, NULL);
    for (int i = 0; i < 2; i++) {
        while (!spool_commit_is_wanted(sp)) {
            let_time_pass();
        }
        commit();
    }
}

static void what_is_shared(void)
{
    struct spool_shared text;
    uint64_t looks;

    fixture_ok(sp, spool_shared_put(sp, 1, true, SLICE("text")));
    commit();
    looks = spool_shared_look(sp);
    while (spool_shared_looks(sp) < looks) {
        turn();
    }
    assert_true(spool_shared_next(sp, 0, &text));
    fixture_ok(sp, spool_shared_remove(sp, text.number, true));
    commit();
}

/* The other puts one. */
static void what_is_answered(void)
{
    struct spool_told told;

    change("INSERT INTO ask (from_node, n, to_node, question, at) VALUES (0, 1, 1, 'why', (extract("
           "epoch FROM clock_timestamp()) * 1000000)::bigint)");
    while (!spool_next_told(sp, &told)) {
        let_time_pass();
    }
    spool_answer(sp, told.token, SLICE("because"));
    while (strcmp(ask("SELECT count(answer) FROM ask"), "1") != 0) {
        turn();
    }
}

/* A next hop in a partition of the other, as the engine knows; NULL: there is none. */
static const char *nexthop_of_other(void)
{
    static char name[32];

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "%d.example", i);
        if (spool_owner(sp, spool_partition_of(sp, SLICE("smtp"), slice_string(name))) == 0) {
            return name;
        }
    }
    return NULL;
}

/* The other joins again, and is given what it wants. */
static void what_is_given_away(void)
{
    change("UPDATE node SET state = 1, beat = beat + 1 WHERE no = 0; UPDATE lease SET wanted = 0 "
           "WHERE p < 40");
    while (nexthop_of_other() == NULL) {
        other_beats();
        let_time_pass();
    }
}

/* A row of arrival for the engine, of mail that is the other's by now. */
static void misled_arrival(void)
{
    char sql[200];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO arrival (node, parts) VALUES (1, '\\x0001%04x%016x%016x')",
                   spool_partition_of(sp, SLICE("smtp"), slice_string(nexthop_of_other())), 7, 5);
    change(sql);
}

static void what_arrives(void)
{
    struct spool_message m = {.sender = SLICE("s@from.test"), .due = {NOW}};
    struct spool_rcpt r = {.address = SLICE("r@a.example"), .transport = SLICE("smtp")};
    struct spool_content content = {.bytes = SLICE("x\r\n"), .fd = -1};
    struct msg_id id;

    r.nexthop = slice_string(nexthop_of_other());
    fixture_ok(sp, spool_submit(sp, &m, &r, 1, SLICE(""), &content, false, SLICE(""), &id));
    commit();
    for (int alone = 0; alone < 2; alone++) {
        misled_arrival();
        while (strcmp(ask("SELECT count(*) FROM arrival WHERE node = 1"), "0") != 0) {
            other_beats();
            let_time_pass();
            if (!alone) {
                commit();
            }
        }
    }
}

static void one_whose_fence_was_raised_writes_nothing(void **state)
{
    (void)state;
    other_begins();
    open_spool();
    while (strcmp(ask("SELECT count(*) FROM lease WHERE wanted = 1"), "0") == 0) {
        other_beats();
        let_time_pass();
    }
    spool_route_by(sp, 77);
    while (own_count() < PARTITIONS) { /* it is not heard of any more, and taken over */
        let_time_pass();
    }
    what_passes();
    what_waits();
    what_moves();
    what_is_handed_over();
    what_is_shared();
    what_is_answered();
    what_is_given_away();
    what_arrives();
    spool_close(sp);
    for (size_t i = 0; i < COUNT(writes); i++) {
        if (writes[i].fence != NONE && effects[i] == 0) {
            fail_msg("never tried: %s", writes[i].words);
        }
        assert_true((writes[i].why != NULL) == (writes[i].fence == NONE));
    }
    for (unsigned n = 0; rows_statement(n) != NULL; n++) {
        if (effects[COUNT(writes) + n] == 0) {
            fail_msg("never tried: %s", rows_statement(n));
        }
    }
    printf("# %u transactions were tried\n", tried);
}

POSTGRES_MAIN(start, stop, cmocka_unit_test(one_whose_fence_was_raised_writes_nothing))
