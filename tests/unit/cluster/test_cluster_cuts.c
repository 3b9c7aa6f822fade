/*
 * The engine's connections are cut, at each message of what it says to its database and what it is
 * answered: batches happen once, what is read comes, partitions stay. And each statement of a batch
 * is refused, for each of the reasons that a server has.
 *
 * One round is the life of some messages: alone and in parts, small and large, delivered, deferred,
 * reported; or routed anew, so that they move to other partitions in each way there is. What the
 * tables have after each of its stages does not depend on what befell the connections.
 *
 * What only takes time is made short: connections that were lost are made again at once.
 */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "buf.h"
#include "committer.h"
#include "conf.h"
#include "partition.h"
#include "pg_proxy.h"
#include "postgres_server.h"
#include "reader.h"
#include "seeds.h"
#include "spool_engine.h"
#include "spool_fixture.h"
#include "spool_others.h"

#define NOW   1000000
#define LATER 2000000
#define LAST  3000000
#define LARGE 300000 /* two chunks */

static struct postgres_server server;
static struct pg_proxy proxy;
static PGconn *observer;       /* of the tables */
static struct spool *nodes[2]; /* the second: NULL, or there for a test */
static struct spool *sp;       /* of them, the one that does something */
static bool may_fail;          /* batches may, as a statement is refused */

#define NOTHING "arm front 0 cut *" /* is to be harmed any more */

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *at,
                           struct itimerspec *ret_before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at,
                           struct itimerspec *ret_before);

/* What waits to connect again has waited. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at,
                           struct itimerspec *ret_before)
{
    static const struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
    int64_t us = at->it_value.tv_sec * US_PER_S + at->it_value.tv_nsec / 1000;

    return __real_timerfd_settime(
        fd, flags, us == COMMITTER_AGAIN_US || us == READER_AGAIN_US ? &soon : at, ret_before);
}

/* ---- the spool ------------------------------------------------------------------------------- */

static int make_tables(void **state)
{
    (void)state;
    postgres_server_init(&server);
    pg_proxy_init(&proxy, server.dir);
    (void)pg_proxy_tell(&proxy, "late 60");
    postgres_server_make_tables(&server);
    observer = postgres_server_connect(&server);
    return 0;
}

static int end_server(void **state)
{
    (void)state;
    PQfinish(observer);
    pg_proxy_fini(&proxy);
    postgres_server_fini(&server);
    return 0;
}

static struct spool *open_node(const char *name)
{
    struct conf conf = {.cluster_node = (char *)(uintptr_t)name,
                        .cluster_standby = CONF_CLUSTER_STANDBY_NONE};
    struct spool_options options = {.inline_limit = INLINE_LIMIT, .conf = &conf};
    struct spool *node = NULL;
    char url[200];
    struct buf error;

    buf_init(&error, 1000);
    (void)snprintf(url, sizeof url, "postgresql://tester@/postgres?host=%s", proxy.dir);
    if (spool_open(url, SPOOL_OPEN_WRITE, &options, &error, &node) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return node;
}

static int open_spool(void **state)
{
    (void)state;
    sp = nodes[0] = open_node("first");
    return 0;
}

static int close_spool(void **state)
{
    (void)state;
    spool_close(nodes[0]);
    return 0;
}

static void take_events(struct spool *node)
{
    struct spool_event event;

    while (spool_next_event(node, &event)) {
        if (event.type != SPOOL_EVENT_READY && event.type != SPOOL_EVENT_LOG &&
            event.type != SPOOL_EVENT_GAINED &&
            memmem(event.text.ptr, event.text.len, "lease is not renewed", 20) == NULL) {
            fail_msg("%.*s", SLICE_ARGS(event.text));
        }
    }
}

/* What was called for goes out before it waits for anything. */
static void turn(void)
{
    struct pollfd ready[2] = {{.fd = -1}, {.fd = -1}};

    for (int i = 0; i < 2 && nodes[i] != NULL; i++) {
        spool_commits_turn(nodes[i]);
        ready[i] = (struct pollfd){.fd = spool_commits_fd(nodes[i]), .events = POLLIN};
    }
    (void)poll(ready, 2, 100);
    for (int i = 0; i < 2 && nodes[i] != NULL; i++) {
        spool_commits_turn(nodes[i]);
        take_events(nodes[i]);
    }
}

/* The only value of the answer, in a static buffer. */
static const char *observe(const char *sql)
{
    static char text[1000];
    PGresult *result = PQexec(observer, sql);

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(observer));
    }
    (void)snprintf(text, sizeof text, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return text;
}

/* What the tables have; no ids, no times of theirs, and of a report part no times. */
static const char *tables(void)
{
    return observe(
        "SELECT concat_ws(' ', 'fresh', (SELECT concat(count(*), '/', sum(size)) FROM (SELECT size "
        "FROM fresh_0 UNION ALL SELECT size FROM fresh_1 UNION ALL SELECT size FROM fresh_2) f), "
        "'message', (SELECT concat(count(*), '/', sum(size), '/', sum(chunks), '/', sum(parts)) "
        "FROM message), 'part', (SELECT string_agg(concat_ws('/', kind, CASE kind WHEN 0 THEN "
        "concat_ws('/', p, state, due) END, size, pending, to_report, rcpts, parts_left), ',' "
        "ORDER BY kind, size, pending, to_report, p) FROM part), 'recipient', (SELECT "
        "string_agg(concat_ws('/', n, state, attempts, nexthop, convert_from(address, 'UTF8'), "
        "convert_from(diagnostic, 'UTF8')), ',' ORDER BY address, n, nexthop) FROM recipient), "
        "'content', (SELECT concat(count(*), '/', sum(length(bytes))) FROM content), "
        "'named by nothing', (SELECT count(*) FROM recipient r WHERE NOT EXISTS (SELECT FROM part "
        "x WHERE x.p = r.p AND x.id = r.id)) + (SELECT count(*) FROM part x WHERE NOT EXISTS "
        "(SELECT FROM message m WHERE m.id = x.message)) + (SELECT count(*) FROM message m WHERE "
        "NOT EXISTS (SELECT FROM part x WHERE x.message = m.id AND x.p = m.home)) + (SELECT "
        "count(*) FROM content c WHERE NOT EXISTS (SELECT FROM message m WHERE m.id = c.id)))");
}

/* ---- batches --------------------------------------------------------------------------------- */

static int end_one(void)
{
    int rc;

    while (!spool_commit_end(sp, &rc)) {
        turn();
    }
    return rc;
}

/* Both go under way at once. What fails, which only a refused statement may, is done again; the
 * second may be NULL. */
static void commit(void (*first)(void), void (*second)(void))
{
    int rc = 0, younger;

    first();
    spool_commit_begin(sp);
    if (second != NULL) {
        second();
        spool_commit_begin(sp);
    }
    rc = end_one();
    younger = second != NULL ? end_one() : 0;
    if ((rc != 0 || younger != 0) && !may_fail) {
        fail_msg("%s", spool_error(sp));
    }
    if (rc != 0) {
        assert_true(second == NULL || younger == -ECANCELED);
        while (spool_lease_left_us(sp) <= 0) { /* in doubt whether it is in force */
            turn();
        }
        commit(first, second);
    } else if (younger != 0) {
        while (spool_lease_left_us(sp) <= 0) {
            turn();
        }
        commit(second, NULL);
    }
}

/* ---- a round --------------------------------------------------------------------------------- */

static struct {
    struct msg_id small, second, large, many;
    struct msg_id parts[2]; /* of `many`: to a.example, b.example */
} mail;

static struct msg_id submit(const char *sender, const char *rcpts, size_t size)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, sender, rcpts, NOW, size, true, &id));
    return id;
}

static void some_come(void)
{
    mail.small = submit("small@from.test", "r@a.example", 100);
    mail.large = submit("large@from.test", "r@b.example", LARGE);
    mail.many = submit("many@from.test", "r@a.example r@b.example", 200);
}

static void another_comes(void)
{
    mail.second = submit("second@from.test", "r@b.example", 300);
}

static void settle(struct msg_id id, uint32_t n, enum spool_rcpt_state to, bool done)
{
    struct spool_verdict v = {.state = to,
                              .done = done,
                              .attempted = true,
                              .status = SLICE("4.0.0"),
                              .diagnostic = SLICE("as it was said"),
                              .when = {NOW}};

    fixture_ok(sp, spool_settle(sp, id, n, &v));
}

static void finish(struct msg_id id, int64_t due)
{
    bool gone;

    fixture_ok(sp, spool_finish(sp, id, (struct wall){due}, &gone));
}

static void some_are_tried(void)
{
    settle(mail.small, 1, SPOOL_RCPT_PENDING, true);
    finish(mail.small, LATER);
    settle(mail.large, 1, SPOOL_RCPT_PENDING, false);
    finish(mail.large, LATER);
    settle(mail.parts[0], 1, SPOOL_RCPT_FAILED, false);
    fixture_ok(sp, spool_give(sp, mail.parts[0], (struct wall){LATER}));
    finish(mail.parts[0], LATER);
}

static void others_are_tried(void)
{
    settle(mail.second, 1, SPOOL_RCPT_PENDING, false);
    finish(mail.second, LATER);
    settle(mail.parts[1], 2, SPOOL_RCPT_PENDING, true);
    finish(mail.parts[1], LATER);
}

static void the_report_is_made(void)
{
    fixture_ok(sp, spool_reported(sp, mail.many));
    finish(mail.many, LATER);
}

static void the_rest_is_delivered(void)
{
    fixture_ok(sp, spool_finish_all_done(sp, mail.second));
    settle(mail.large, 1, SPOOL_RCPT_PENDING, true);
    finish(mail.large, LATER);
}

/* The next that is due at `now`, wherever it is; its node is `sp` then. */
static struct msg_id claim(int64_t now)
{
    const enum spool_state states[] = {SPOOL_INCOMING, SPOOL_DEFERRED};
    struct msg_id id;
    size_t got;

    for (;;) {
        for (int i = 0; i < 4 && nodes[i / 2] != NULL; i++) {
            sp = nodes[i / 2];
            fixture_ok(sp, spool_claim(sp, states[i % 2], (struct wall){now}, 1, &id, &got));
            if (got == 1) {
                return id;
            }
        }
        turn();
    }
}

static struct spool_message read_message(struct msg_id id)
{
    struct spool_message m;

    while (spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT) == -EAGAIN) {
        turn();
    }
    fixture_ok(sp, spool_read(sp, id, &m));
    return m;
}

static void claim_parts(void)
{
    struct msg_id id;

    for (int i = 0; i < 2;) {
        struct spool_rcpt r;
        size_t count;

        id = claim(NOW);
        assert_int_equal(read_message(id).whole.n, mail.many.n);
        if (id.n == mail.many.n) { /* its report part, which is due, too */
            commit(the_report_is_made, NULL);
            continue;
        }
        fixture_ok(sp, spool_read_rcpts(sp, id, 0, false, 1, &r, &count));
        assert_int_equal(count, 1);
        assert_true(r.n == 1 || r.n == 2);
        mail.parts[r.n - 1] = id;
        i++;
    }
}

/* A report part may have been read before its parts gave to it. Then it waits for another turn. */
static void claim_waiting(void)
{
    bool is_told = false;
    struct msg_id id;

    for (int others = 0; others < 2 || !is_told;) {
        struct spool_message m;

        id = claim(LATER);
        m = read_message(id);
        assert_true(fixture_content_ok(sp, &m));
        if (id.n == mail.many.n) {
            is_told = m.rcpt_to_report > 0;
            if (!is_told) {
                commit(the_report_is_made, NULL);
            }
        } else {
            assert_true(id.n == mail.second.n || id.n == mail.large.n);
            others++;
        }
    }
}

/* ---- a round of moves ------------------------------------------------------------------------ */

#define MOVING 7 /* recipients */
#define HOST   32

static struct {
    /* Hosts of the first node; and next hops to which mail moves, of another node but for the last.
     */
    char from[2][HOST], to[4][HOST];
    struct msg_id alone, passing, pair, many;
    struct msg_id
        parts[2]; /* of `many`: to two recipients at the first host, to one at the other */
    struct {
        uint64_t whole;
        uint32_t n;
    } seen[MOVING];
    struct msg_id at[MOVING]; /* where each was seen */
    struct spool *by[MOVING]; /* .. by which node */
    bool is_last[MOVING];     /* the last of the message or part */
} moving;

static bool is_of(struct spool *node, unsigned p)
{
    struct spool_places own = {{0}};

    spool_own_places(node, &own);
    return spool_places_has(&own, p);
}

/* Names in different partitions of that node: of next hops, or, without a transport, of hosts. */
static void find_names(struct spool *node, const char *transport, char (*ret)[HOST], int count)
{
    static unsigned number; /* a name is given once */
    unsigned taken[4];

    for (int i = 0; i < count; number++) {
        char name[HOST];
        bool is_taken = false;
        struct spool_rcpt r = {.transport = slice_string(transport)};

        (void)snprintf(name, sizeof name, "r@%u.example", number);
        r.address = slice_string(name);
        r.nexthop = slice_string(name + 2);
        taken[i] = partition_of(&r, SLICE(""));
        for (int k = 0; k < i; k++) {
            is_taken = is_taken || taken[k] == taken[i];
        }
        if (!is_taken && is_of(node, taken[i])) {
            memcpy(ret[i++], name + 2, HOST - 2);
        }
    }
}

static void find_places(void)
{
    struct spool *other = nodes[1] != NULL ? nodes[1] : nodes[0];

    find_names(nodes[0], "", moving.from, 2);
    find_names(other, "smtp", moving.to, 3);
    find_names(nodes[0], "smtp", moving.to + 3, 1);
}

static struct msg_id submit_to(const char *sender, const char *format, size_t size)
{
    char rcpts[200];

    (void)snprintf(rcpts, sizeof rcpts, format, moving.from[0], moving.from[0], moving.from[1]);
    return submit(sender, rcpts, size);
}

static void what_moves_comes(void)
{
    moving.alone = submit_to("alone@from.test", "r@%s", LARGE);
    moving.passing = submit_to("passing@from.test", "r@%s", 100);
    moving.pair = submit_to("pair@from.test", "q@%s r@%s", 200);
    moving.many = submit_to("many@from.test", "q@%s r@%s r@%s", 300);
}

static struct msg_id gathering;

/* Others that wait come before it then. */
static void a_report_is_made(void)
{
    fixture_ok(sp, spool_reported(sp, gathering));
    finish(gathering, LAST);
}

static void claim_parts_that_move(void)
{
    for (int i = 0; i < 2;) {
        struct msg_id id;
        struct spool_message m;

        id = claim(NOW);
        m = read_message(id);
        assert_int_equal(m.whole.n, moving.many.n);
        if (m.gathers) {
            gathering = id;
            commit(a_report_is_made, NULL);
            continue;
        }
        moving.parts[m.rcpt_pending == 2 ? 0 : 1] = id;
        i++;
    }
}

static void route(struct msg_id id, uint32_t n, const char *nexthop)
{
    fixture_ok(sp, spool_set_route(sp, id, n, SLICE("smtp"), slice_string(nexthop),
                                   spool_route_generation(sp, 0)));
}

/* At the end of its pass. */
static void move(struct msg_id id, uint32_t count)
{
    uint32_t moved;

    finish(id, LATER);
    fixture_ok(sp, spool_move(sp, id, (struct wall){NOW}, (struct wall){LATER}, &moved));
    assert_int_equal(moved, count);
}

/* All of a message; some of one, which is divided. */
static void messages_move(void)
{
    route(moving.alone, 1, moving.to[0]);
    move(moving.alone, 1);
    route(moving.pair, 2, moving.to[1]);
    move(moving.pair, 1);
}

/* All of a part; some of one; and what only passes. */
static void parts_move_and_what_passes(void)
{
    route(moving.parts[0], 1, moving.to[2]);
    move(moving.parts[0], 1);
    route(moving.parts[1], 3, moving.to[2]);
    move(moving.parts[1], 1);
    route(moving.passing, 1, moving.to[3]);
    move(moving.passing, 1);
}

static void claim_what_has_moved(void)
{
    for (size_t count = 0; count < MOVING;) {
        struct spool_rcpt rcpts[MOVING];
        struct spool_message m;
        struct msg_id id;
        size_t here;

        id = claim(LATER);
        m = read_message(id);
        assert_true(fixture_content_ok(sp, &m));
        if (m.gathers) {
            gathering = id;
            commit(a_report_is_made, NULL);
            continue;
        }
        fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, MOVING, rcpts, &here));
        assert_in_range(here, 1, MOVING - count);
        for (size_t i = 0; i < here; i++, count++) {
            for (size_t k = 0; k < count; k++) {
                assert_false(moving.seen[k].whole == spool_whole(&m).n &&
                             moving.seen[k].n == rcpts[i].n);
            }
            moving.seen[count].whole = spool_whole(&m).n;
            moving.seen[count].n = rcpts[i].n;
            moving.at[count] = id;
            moving.by[count] = sp;
            moving.is_last[count] = i == here - 1;
        }
    }
}

static int seen_by(const struct spool *node)
{
    int count = 0;

    for (size_t i = 0; i < MOVING; i++) {
        count += moving.by[i] == node;
    }
    return count;
}

/* At this node. One of a part that was made by a move fails. */
static void what_has_moved_is_delivered(void)
{
    for (size_t i = 0; i < MOVING; i++) {
        bool fails = moving.seen[i].whole == moving.many.n && moving.seen[i].n == 1;

        if (moving.by[i] != sp) {
            continue;
        }
        settle(moving.at[i], moving.seen[i].n, fails ? SPOOL_RCPT_FAILED : SPOOL_RCPT_PENDING,
               !fails);
        if (fails) {
            fixture_ok(sp, spool_give(sp, moving.at[i], (struct wall){LATER}));
        }
        if (moving.is_last[i]) {
            finish(moving.at[i], LATER);
        }
    }
}

/* ---- lives ----------------------------------------------------------------------------------- */

/* A round, and what the tables should have, one after the other: as one without harm has made
 * them. */
struct life {
    void (*play)(struct life *l);
    char want[3][2000];
    bool is_known;
};

static void check(struct life *l, int stage)
{
    if (!l->is_known) {
        (void)snprintf(l->want[stage], sizeof l->want[stage], "%s", tables());
    } else {
        assert_string_equal(tables(), l->want[stage]);
    }
}

static int parts_left(void)
{
    return atoi(observe("SELECT count(*) FROM part"));
}

static char harm[64] = NOTHING; /* that this round is to have */

static void play_round(struct life *l)
{
    (void)pg_proxy_tell(&proxy, "%s", harm);
    commit(some_come, another_comes);
    check(l, 0);
    claim_parts();
    commit(some_are_tried, others_are_tried);
    check(l, 1);
    claim_waiting();
    commit(the_report_is_made, the_rest_is_delivered);
    while (parts_left() > 0) {
        struct msg_id id; /* its last part has ended since it was read: it has another turn */

        id = claim(LATER);
        assert_int_equal(id.n, mail.many.n);
        commit(the_report_is_made, NULL);
    }
    check(l, 2);
}

/* Harm is done to the batches of moves, or while what has moved is found. */
static void play_moves(struct life *l)
{
    bool is_read = harm[strlen(harm) - 1] == 'R';
    uint32_t reported = 0;

    sp = nodes[0];
    commit(what_moves_comes, NULL);
    claim_parts_that_move();
    check(l, 0);
    sp = nodes[0];
    (void)pg_proxy_tell(&proxy, "%s", is_read ? NOTHING : harm);
    commit(messages_move, parts_move_and_what_passes);
    (void)pg_proxy_tell(&proxy, "%s", is_read ? harm : NOTHING);
    check(l, 1);
    claim_what_has_moved();
    (void)pg_proxy_tell(&proxy, NOTHING);
    assert_int_equal(seen_by(nodes[0]), nodes[1] != NULL ? MOVING - 4 : MOVING);
    for (int i = 0; i < 2 && nodes[i] != NULL; i++) {
        sp = nodes[i];
        commit(what_has_moved_is_delivered, NULL);
    }
    while (parts_left() > 0) {
        struct spool_message m;

        gathering = claim(LAST);
        m = read_message(gathering);
        assert_true(m.gathers);
        reported += m.rcpt_to_report;
        commit(a_report_is_made, NULL);
    }
    assert_int_equal(reported, 1);
    check(l, 2);
}

static struct life of_mail = {.play = play_round}, of_moves = {.play = play_moves};

static int own_count(struct spool *node)
{
    int count = 0;

    for (unsigned p = 0; p < SPOOL_PARTITIONS_MAX; p++) {
        count += is_of(node, p);
    }
    return count;
}

/* Another node has half of the partitions. */
static int open_two(void **state)
{
    (void)open_spool(state);
    nodes[1] = open_node("second");
    while (own_count(nodes[0]) != SPOOL_PARTITIONS_MAX / 2 ||
           own_count(nodes[1]) != SPOOL_PARTITIONS_MAX / 2) {
        turn();
    }
    return 0;
}

static int close_two(void **state)
{
    spool_close(nodes[1]);
    nodes[1] = NULL;
    return close_spool(state);
}

static void play_without_harm(struct life *l)
{
    l->is_known = false;
    l->play(l);
    l->is_known = true;
    l->play(l);
}

/* Rounds with such a harm at message `from`, from + by, .. until one ends before it; how many there
 * were. */
static int sweep(struct life *l, const char *side, const char *how, char kind, int from, int by)
{
    long fired = pg_proxy_tell(&proxy, "fired"), before;
    int rounds = 0;

    for (int n = from;; n += by, rounds++) {
        (void)snprintf(harm, sizeof harm, "arm %s %d %s %c", side, n, how, kind);
        l->play(l);
        (void)strcpy(harm, NOTHING);
        before = fired;
        fired = pg_proxy_tell(&proxy, "%s", harm);
        if (fired == before) {
            return rounds;
        }
    }
}

static void batches_happen_once_wherever_they_are_cut(void **state)
{
    (void)state;
    play_without_harm(&of_mail);
    assert_in_range(sweep(&of_mail, "statements", "cut", 'W', 1, 1), 30, 300);
    assert_in_range(sweep(&of_mail, "answers", "cut", 'W', 1, 2), 15, 300);
}

/* Half of the partitions of what moves are another node's. */
static void moves_to_another_node_happen_once_wherever_they_are_cut(void **state)
{
    (void)state;
    find_places();
    play_without_harm(&of_moves);
    assert_in_range(sweep(&of_moves, "statements", "cut", 'W', 1, 1), 15, 300);
    assert_in_range(sweep(&of_moves, "answers", "cut", 'W', 1, 2), 8, 300);
    assert_in_range(sweep(&of_moves, "statements", "half", 'W', 2, 3), 5, 300);
    assert_in_range(sweep(&of_moves, "answers", "swallow", 'W', 1, 5), 3, 300);
    assert_in_range(sweep(&of_moves, "statements", "cut", 'R', 1, 3), 1, 300);
    assert_in_range(sweep(&of_moves, "answers", "swallow", 'R', 1, 5), 1, 300);
}

/* The session goes on with what it has, while a new one asks what has become of it. */
static void batches_happen_once_when_the_server_hears_of_the_end_late(void **state)
{
    (void)state;
    play_without_harm(&of_mail);
    assert_in_range(sweep(&of_mail, "statements", "half", 'W', 1, 3), 10, 300);
    assert_in_range(sweep(&of_mail, "answers", "swallow", 'W', 2, 5), 5, 300);
}

static void a_batch_of_which_a_statement_is_refused_happens_or_is_told(void **state)
{
    static const struct {
        const char *state;
        bool may_fail;
    } refusals[] = {
        {"40001", false}, /* serialization */
        {"40P01", false}, /* deadlock */
        {"25006", false}, /* no writes here */
        {"53100", true},  /* disk full */
        {"53300", true},  /* too many connections */
        {"22012", true},  /* the incarnation is not in force */
    };

    (void)state;
    find_places();
    play_without_harm(&of_mail);
    play_without_harm(&of_moves);
    for (size_t i = 0; i < COUNT(refusals); i++) {
        may_fail = refusals[i].may_fail;
        assert_in_range(sweep(&of_mail, "statements", refusals[i].state, 'W', 1 + (int)i % 5, 5), 5,
                        300);
        assert_in_range(sweep(&of_moves, "statements", refusals[i].state, 'W', 1 + (int)i % 5, 5),
                        3, 300);
    }
    may_fail = false;
}

static void what_is_read_comes_wherever_it_is_cut(void **state)
{
    (void)state;
    play_without_harm(&of_mail);
    assert_in_range(sweep(&of_mail, "statements", "cut", 'R', 1, 4), 3, 300);
    assert_in_range(sweep(&of_mail, "answers", "swallow", 'R', 2, 5), 3, 300);
}

static int64_t incarnation(void)
{
    return atoll(
        postgres_server_ask(&server, "SELECT incarnation FROM sluice.node WHERE name = 'first'"));
}

/* Of membership a round has some renewals, and may have none. */
static void the_lease_is_kept_wherever_its_renewal_is_cut(void **state)
{
    int64_t before = incarnation();

    (void)state;
    for (int n = 1; n < 40; n += 9) {
        long fired = pg_proxy_tell(&proxy, "fired");

        (void)pg_proxy_tell(&proxy, "arm %s %d swallow L", n % 2 == 1 ? "front" : "back", n);
        while (pg_proxy_tell(&proxy, "fired") == fired) {
            turn();
        }
        play_round(&of_mail);
        while (spool_lease_left_us(sp) <= 0) {
            turn();
        }
    }
    assert_int_equal(incarnation(), before);
}

static void a_node_registers_wherever_it_is_cut(void **state)
{
    for (int n = 3; n < 40; n += 15) {
        (void)close_spool(state);
        (void)pg_proxy_tell(&proxy, "arm %s %d half L", n % 2 == 1 ? "front" : "back", n);
        (void)open_spool(state);
        play_round(&of_mail);
    }
    (void)pg_proxy_tell(&proxy, NOTHING);
    assert_string_equal(
        postgres_server_ask(&server, "SELECT count(*) FROM sluice.node WHERE name = 'first'"), "1");
}

/* Several harms in one round, also to the dialogue about what has become of a batch. */
static void play_with_random_harm(uint64_t seed)
{
    printf("# seed %llu\n", (unsigned long long)seed);
    (void)pg_proxy_tell(&proxy, "random %llu 400", (unsigned long long)seed);
    play_round(&of_mail);
    (void)pg_proxy_tell(&proxy, "random 0 0");
}

static void nothing_is_lost_or_doubled_by_random_harm(void **state)
{
    (void)state;
    play_without_harm(&of_mail);
    for_each_seed(1, 8, play_with_random_harm);
}

/* ---- what is at hand ------------------------------------------------------------------------- */

/* As operators do: they want it, end its claim, and change it. */
static void what_was_wanted_stays_when_its_claim_ends(void **state)
{
    struct msg_id id = submit("a@from.test", "r@a.example", 100);

    (void)state;
    assert_int_equal(spool_commit(sp), 0);
    assert_int_equal(spool_want(sp, id, SPOOL_WANT_ROWS), 0);
    spool_unclaim(sp, id);
    fixture_ok(sp, spool_hold(sp, id, SLICE("by an operator")));
    assert_int_equal(spool_commit(sp), 0);
    while (spool_want(sp, id, SPOOL_WANT_ROWS) == -EAGAIN) {
        turn();
    }
    fixture_ok(sp, spool_remove(sp, id));
    assert_int_equal(spool_commit(sp), 0);
}

static void parked_mail_that_is_not_at_hand_is_waited_for(void **state)
{
    struct msg_id id = submit("a@from.test", "r@a.example", 100), got;
    size_t count;
    bool more;
    int err;

    fixture_ok(sp, spool_park(sp, id, SLICE("key"), (struct wall){LATER}));
    assert_int_equal(spool_commit(sp), 0);
    (void)close_spool(state);
    (void)open_spool(state);
    do { /* its key is counted first */
        turn();
        err = spool_claim_parked(sp, SLICE("key"), (struct wall){NOW}, 1, &got, &count, &more);
        assert_true(err == -EAGAIN || (err == 0 && (count == 1 || !more)));
    } while (err != 0 || count == 0);
    assert_int_equal(got.n, id.n);
    fixture_ok(sp, spool_remove(sp, id));
    assert_int_equal(spool_commit(sp), 0);
}

/* ---- moves ----------------------------------------------------------------------------------- */

static uint32_t try_to_move(struct msg_id id)
{
    uint32_t moved;

    fixture_ok(sp, spool_move(sp, id, (struct wall){NOW}, (struct wall){LATER}, &moved));
    return moved;
}

/* As spool_parts.h has it. */
static void what_lies_elsewhere_moves_and_all_else_stays(void **state)
{
    struct spool_rcpt r = {.transport = SLICE("smtp")}, got;
    struct msg_id id, parts[3];
    uint32_t moved, numbers = 0;
    size_t count, one;
    int err;

    (void)state;
    find_places();
    r.nexthop = slice_string(moving.to[0]);
    id = submit_to("pair@from.test", "q@%s r@%s", 200);
    assert_int_equal(spool_commit(sp), 0);
    assert_int_equal(try_to_move(id), 0); /* not routed */
    assert_true(spool_lies_elsewhere(sp, id, &r));
    fixture_ok(sp, spool_set_route(sp, id, 2, r.transport, r.nexthop, SPOOL_ROUTE_FIXED));
    assert_int_equal(try_to_move(id), 0); /* tables that are not in force */
    fixture_ok(sp, spool_set_route(sp, id, 2, r.transport, r.nexthop, 0));
    fixture_ok(sp, spool_hold(sp, id, SLICE("by an operator")));
    assert_int_equal(try_to_move(id), 0);
    fixture_ok(sp, spool_release(sp, id, (struct wall){NOW}));
    assert_int_equal(spool_commit(sp), 0);
    while ((err = spool_move(sp, (struct msg_id){999}, (struct wall){NOW}, (struct wall){LATER},
                             &moved)) == -EAGAIN) {
        turn();
    }
    assert_int_equal(err, -ENOENT);
    for (int attempt = 0; attempt < 2; attempt++) {
        (void)read_message(id);
        assert_int_equal(try_to_move(id), 1);
        if (attempt == 0) {
            (void)spool_batch_failed(sp, -EIO);
        }
        assert_int_equal(spool_commit(sp), attempt == 0 ? -EIO : 0);
        assert_true(read_message(id).gathers == (attempt == 1));
    }
    while (spool_parts_want(sp, id) == -EAGAIN) {
        turn();
    }
    fixture_ok(sp, spool_parts_of(sp, id, (struct msg_id){0}, 3, parts, &count));
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        struct spool_message m = read_message(parts[i]);

        assert_true(m.whole.n == id.n && m.due.us <= NOW && fixture_content_ok(sp, &m));
        fixture_ok(sp, spool_read_rcpts(sp, parts[i], 0, true, 1, &got, &one));
        assert_true(m.rcpt_pending == 1 && got.n == (got.nexthop.len > 0 ? 2 : 1));
        numbers += got.n;
        fixture_ok(sp, spool_remove(sp, parts[i]));
    }
    assert_int_equal(numbers, 1 + 2);
    fixture_ok(sp, spool_remove(sp, id));
    assert_int_equal(spool_commit(sp), 0);
}

/* ---- ids and the clock ----------------------------------------------------------------------- */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
static time_t clock_error; /* of the wall clock */

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = __real_clock_gettime(clock, t);

    t->tv_sec += clock == CLOCK_REALTIME ? clock_error : 0;
    return rc;
}

static int rows_left(void)
{
    return atoi(postgres_server_ask(
        &server, "SET search_path = sluice; SELECT (SELECT count(*) FROM fresh_0) + (SELECT "
                 "count(*) FROM fresh_1) + (SELECT count(*) FROM fresh_2) + (SELECT count(*) FROM "
                 "part)"));
}

/* All that is there; messages of one id are found one after the other. */
static void deliver_all(void **state)
{
    while (rows_left() > 0) {
        struct msg_id id;

        (void)close_spool(state);
        (void)open_spool(state);
        id = claim(NOW);
        (void)read_message(id);
        fixture_ok(sp, spool_finish_all_done(sp, id));
        assert_int_equal(spool_commit(sp), 0);
    }
}

static struct msg_id submit_after(struct msg_id older)
{
    struct msg_id id = submit("a@from.test", "r@a.example", 100);

    assert_true(id.n > older.n);
    assert_int_equal(spool_commit(sp), 0);
    fixture_ok(sp, spool_remove(sp, id));
    assert_int_equal(spool_commit(sp), 0);
    return id;
}

static void ids_grow_and_are_given_whatever_befalls_the_clock(void **state)
{
    static const time_t errors[] = {3600, -3600, 30 * 86400, 0};
    struct msg_id id = submit_after((struct msg_id){0});

    for (size_t i = 0; i < COUNT(errors); i++) {
        clock_error = errors[i];
        for (int k = 0; k < 3; k++) {
            id = submit_after(id);
        }
        if (i % 2 == 1) {
            (void)close_spool(state);
            (void)open_spool(state);
            id = submit_after(id);
        }
    }
}

/* After the row of a node was deleted by hand, or its number of ids was made nonsense. */
static void ids_go_on_above_all_that_have_a_row(void **state)
{
    static const char *const harms[] = {
        "DELETE FROM sluice.node; SELECT 1",
        "UPDATE sluice.node SET id_reserved = 0; SELECT 1",
        "UPDATE sluice.node SET id_reserved = 9223372036854775807; SELECT 1",
    };
    struct msg_id passing = submit("passing@from.test", "r@a.example", 100);
    struct msg_id waiting = submit("waiting@from.test", "q@a.example r@a.example", 100);

    assert_int_equal(spool_commit(sp), 0);
    clock_error = -3600; /* what the clock says is used long ago */
    for (size_t i = 0; i < COUNT(harms); i++) {
        (void)close_spool(state);
        (void)postgres_server_ask(&server, harms[i]);
        (void)open_spool(state);
        (void)submit_after(passing.n > waiting.n ? passing : waiting);
    }
    clock_error = 0;
    deliver_all(state);
}

static struct msg_id taken_id;

static struct msg_id next_taken_id(struct spool *spool)
{
    (void)spool;
    return taken_id;
}

/* Submit a message under an id that is taken. */
static void submit_taken(void)
{
    static struct spool_engine engine;
    const struct spool_engine *before = sp->engine;

    engine = *before;
    engine.next_id = next_taken_id;
    sp->engine = &engine;
    (void)submit("new@from.test", "r@a.example", 200);
    sp->engine = before;
}

static void an_id_that_is_taken_in_its_table_costs_the_new_message(void **state)
{
    taken_id = submit("old@from.test", "r@a.example", 100);
    assert_int_equal(spool_commit(sp), 0);
    for (char table = '0'; table <= '2'; table++) { /* whichever has its turn */
        char sql[400];

        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO sluice.fresh_%c SELECT * FROM (SELECT * FROM sluice.fresh_0 "
                       "UNION SELECT * FROM sluice.fresh_1 UNION SELECT * FROM sluice.fresh_2) f "
                       "WHERE id = %llu ON CONFLICT DO NOTHING; SELECT 1",
                       table, (unsigned long long)taken_id.n);
        (void)postgres_server_ask(&server, sql);
    }
    (void)close_spool(state);
    (void)open_spool(state);
    submit_taken();
    assert_int_equal(spool_commit(sp), -EUCLEAN);
    assert_non_null(strstr(spool_error(sp), "duplicate key"));
    (void)submit_after((struct msg_id){0});
    deliver_all(state);
}

/* They can't be, but for what was done by hand. */
static void messages_of_one_id_in_two_tables_are_neither_mixed_nor_lost(void **state)
{
    unsigned small = 0, large = 0;

    taken_id = submit("old@from.test", "r@a.example", 100);
    assert_int_equal(spool_commit(sp), 0);
    /* A table with rows does not get its turn. */
    (void)postgres_server_ask(
        &server, "SET search_path = sluice; INSERT INTO fresh_2 SELECT * FROM fresh_0 UNION ALL "
                 "SELECT * FROM fresh_1; DELETE FROM fresh_0; DELETE FROM fresh_1; UPDATE cluster "
                 "SET fresh_now = 0; SELECT 1");
    (void)close_spool(state);
    (void)open_spool(state);
    submit_taken();
    assert_int_equal(spool_commit(sp), 0);
    for (int i = 0; i < 2; i++) {
        struct spool_message m;
        struct msg_id id;

        (void)close_spool(state);
        (void)open_spool(state);
        id = claim(NOW);
        assert_int_equal(id.n, taken_id.n);
        m = read_message(id);
        assert_true(fixture_content_ok(sp, &m));
        small += m.size == 100;
        large += m.size == 200;
        fixture_ok(sp, spool_finish_all_done(sp, id));
        assert_int_equal(spool_commit(sp), 0);
    }
    assert_int_equal(small, 1);
    assert_int_equal(large, 1);
    assert_int_equal(rows_left(), 0);
}

/* ---- a life that has ended ------------------------------------------------------------------- */

/* The same node gets the partition again. */
static void what_was_claimed_in_a_life_that_has_ended_is_found_again(void **state)
{
    struct msg_id id = submit("a@from.test", "r@a.example", 100), got;
    bool is_over = false;

    (void)state;
    settle(id, 1, SPOOL_RCPT_PENDING, false);
    finish(id, LATER);
    assert_int_equal(spool_commit(sp), 0);
    got = claim(LATER);
    assert_int_equal(got.n, id.n);
    (void)postgres_server_ask(&server, "UPDATE sluice.fence SET incarnation = incarnation + 1; "
                                       "UPDATE sluice.node SET incarnation = incarnation + 1; "
                                       "SELECT 1");
    while (!is_over) {
        struct spool_event event;

        (void)spool_commits_wait(sp, 100 * US_PER_MS);
        spool_commits_turn(sp);
        while (spool_next_event(sp, &event)) {
            is_over = is_over || (event.type == SPOOL_EVENT_LOST && event.id.n == 0);
        }
    }
    spool_lease_ended(sp);
    got = claim(LATER);
    assert_int_equal(got.n, id.n);
    fixture_ok(sp, spool_finish_all_done(sp, id));
    assert_int_equal(spool_commit(sp), 0);
}

#define CUTS_TEST(f) cmocka_unit_test_setup_teardown(f, open_spool, close_spool)

POSTGRES_MAIN(make_tables, end_server, CUTS_TEST(batches_happen_once_wherever_they_are_cut),
              cmocka_unit_test_setup_teardown(
                  moves_to_another_node_happen_once_wherever_they_are_cut, open_two, close_two),
              CUTS_TEST(batches_happen_once_when_the_server_hears_of_the_end_late),
              CUTS_TEST(a_batch_of_which_a_statement_is_refused_happens_or_is_told),
              CUTS_TEST(what_is_read_comes_wherever_it_is_cut),
              CUTS_TEST(the_lease_is_kept_wherever_its_renewal_is_cut),
              CUTS_TEST(a_node_registers_wherever_it_is_cut),
              CUTS_TEST(nothing_is_lost_or_doubled_by_random_harm),
              CUTS_TEST(what_was_wanted_stays_when_its_claim_ends),
              CUTS_TEST(parked_mail_that_is_not_at_hand_is_waited_for),
              CUTS_TEST(what_lies_elsewhere_moves_and_all_else_stays),
              CUTS_TEST(ids_grow_and_are_given_whatever_befalls_the_clock),
              CUTS_TEST(ids_go_on_above_all_that_have_a_row),
              CUTS_TEST(an_id_that_is_taken_in_its_table_costs_the_new_message),
              CUTS_TEST(messages_of_one_id_in_two_tables_are_neither_mixed_nor_lost),
              CUTS_TEST(what_was_claimed_in_a_life_that_has_ended_is_found_again))
