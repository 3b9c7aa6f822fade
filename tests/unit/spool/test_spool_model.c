/*
 * The engines are models of each other: random calls on both give the same answers, over failed
 * batches and reopening, too. A failure prints the seed; SEED=n runs that one only.
 */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "rng.h"
#include "spool_engine.h"
#include "spool_fixture.h"
#include "spool_parts.h"

#define RUNS      40
#define STEPS     250
#define IDS_MAX   1024
#define CLAIM_MAX 8
#define PAGE      IDS_MAX

#ifdef MODEL_POSTGRESQL
#define RUNS_HERE 8
/* Another process searches its database; and when the next is due it knows as a lower bound. */
#define SEARCHES false
/* What a batch has changed is not claimed before it has ended. */
#define CLAIMS_WHAT_IS_DURABLE true
/* Mail that was never tried is due at once: its time may come from another machine's clock. */
#define NEW_IS_DUE true
#include "cluster_spool.h"
#include "postgres_server.h"

/* The other engine is PostgreSQL's, and is opened again with SQLite's. */
static struct postgres_server server;

/* Let everything come that was asked for. */
static void pump(struct spool *sp)
{
    struct spool_event event;

    spool_commits_turn(sp);
    while (!cluster_spool_is_idle(sp)) {
        (void)spool_commits_wait(sp, US_PER_S);
        spool_commits_turn(sp);
    }
    while (spool_next_event(sp, &event)) {
        assert_true(event.type == SPOOL_EVENT_READY || event.type == SPOOL_EVENT_LOG);
    }
}

/* The engine's own ids are those of a node: here they are SQLite's. */
static uint64_t last_id;

static struct msg_id next_id(struct spool *sp)
{
    (void)sp;
    return (struct msg_id){++last_id};
}

static struct spool *open_other(void)
{
    static struct spool_engine undivided;
    struct spool_options options = {.inline_limit = INLINE_LIMIT};
    struct spool *sp = NULL;
    struct buf error;

    buf_init(&error, 1000);
    if (spool_open(postgres_server_url(&server), SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    undivided = *sp->engine;
    undivided.parts = NULL; /* as the other (scenario/test_cluster_parts divides) */
    undivided.next_id = next_id;
    last_id = (uint64_t)atoll(postgres_server_ask(
        &server, "SELECT greatest(0, (SELECT max(id) FROM sluice.message), (SELECT max(id) FROM "
                 "sluice.fresh_0), (SELECT max(id) FROM sluice.fresh_1), (SELECT max(id) FROM "
                 "sluice.fresh_2))"));
    sp->engine = &undivided;
    cluster_spool_move_at_once(sp);
    buf_fini(&error);
    pump(sp);
    return sp;
}

static struct spool *make_other(void)
{
    if (server.target.database == NULL) {
        postgres_server_init(&server);
    }
    postgres_server_make_tables(&server);
    return open_other();
}

static void close_server(void)
{
    postgres_server_fini(&server);
}

/* Mail that passes goes to another table, and what is in this one comes to wait. */
static void turn_tables(void)
{
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = (fresh_now + 1) % 3");
}

static void bring_message(struct spool *sp, struct msg_id id)
{
    while (spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT) == -EAGAIN) {
        pump(sp);
    }
}

static void bring_due(struct spool *sp, int64_t now)
{
    struct msg_id id;
    size_t count;

    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){now}, 0, &id, &count));
    pump(sp);
}

static void bring_key(struct spool *sp, struct slice key)
{
    struct msg_id id;
    size_t count;
    bool more = true;

    for (int pages = 0; pages < 10 && more; pages++) {
        fixture_ok(sp, spool_claim_parked(sp, key, (struct wall){0}, 0, &id, &count, &more));
        pump(sp);
    }
}
#else
#define RUNS_HERE              RUNS
#define SEARCHES               true
#define CLAIMS_WHAT_IS_DURABLE false
#define NEW_IS_DUE             false

static void turn_tables(void)
{
}

/* All is at hand. */
static void bring_message(struct spool *sp, struct msg_id id)
{
    assert_int_equal(spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT), 0);
}

static void bring_due(struct spool *sp, int64_t now)
{
    (void)sp;
    (void)now;
}

static void bring_key(struct spool *sp, struct slice key)
{
    (void)sp;
    (void)key;
}

static struct spool *make_other(void)
{
    return fixture_open_memory();
}

static void close_server(void)
{
}
#endif

struct pair {
    struct fixture fx;
    struct spool *a; /* sqlite */
    struct spool *b; /* memory */
    struct rng rng;
    uint64_t ids[IDS_MAX]; /* all that were ever given */
    size_t count;
    int64_t now;
};

static uint64_t pick(struct pair *p, uint64_t bound)
{
    return rng_below(&p->rng, bound);
}

static bool chance(struct pair *p, uint64_t one_in)
{
    return pick(p, one_in) == 0;
}

static struct msg_id any_id(struct pair *p)
{
    uint64_t n = p->count == 0 || chance(p, 30) ? 12345678 : p->ids[pick(p, p->count)];

    /* Mostly recent ones, as old ones tend to be gone. */
    if (p->count > 20 && !chance(p, 4)) {
        n = p->ids[p->count - 1 - pick(p, 20)];
    }
    bring_message(p->b, (struct msg_id){n});
    return (struct msg_id){n};
}

static const char *any_domain(struct pair *p)
{
    static const char *const domains[] = {"example.com", "Example.COM", "example.net",
                                          "a.example.org", ""};

    return domains[pick(p, COUNT(domains))];
}

static struct slice any_address(struct pair *p, char space[64])
{
    const char *domain = any_domain(p);

    snprintf(space, 64, "%s%u%s%s", chance(p, 5) ? "USER" : "user", (unsigned)pick(p, 4),
             domain[0] == '\0' ? "" : "@", domain);
    return slice_string(space);
}

static struct slice any_text(struct pair *p)
{
    static const char *const texts[] = {
        "",         "4.4.1",          "connect to mx.example.org: refused", "550 no such user",
        "deferred", "it's \"quoted\""};

    return slice_string(texts[pick(p, COUNT(texts))]);
}

static struct slice any_key(struct pair *p)
{
    static const char *const keys[] = {"smtp/example.com", "smtp/example.net", "relay/example.com"};

    return slice_string(keys[pick(p, COUNT(keys))]);
}

static struct slice any_class(struct pair *p)
{
    static const char *const classes[] = {"", "", "bulk", "reset", "news@example.org"};

    return slice_string(classes[pick(p, COUNT(classes))]);
}

static int64_t any_time(struct pair *p)
{
    return p->now - 50 + (int64_t)pick(p, 100);
}

static void both(struct pair *p, int a, int b)
{
    if (a != b) {
        printf("# sqlite %d (%s), memory %d (%s)\n", a, spool_error(p->a), b, spool_error(p->b));
    }
    assert_int_equal(a, b);
}

static void assert_slices(struct slice a, struct slice b)
{
    if (!slice_equal(a, b)) {
        printf("# sqlite \"%.*s\", memory \"%.*s\"\n", SLICE_ARGS(a), SLICE_ARGS(b));
    }
    assert_true(slice_equal(a, b));
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void step_submit(struct pair *p)
{
    struct spool_rcpt rcpts[4];
    char space[4][64], sender[64];
    uint32_t count = 1 + (uint32_t)pick(p, COUNT(rcpts));
    bool hold = chance(p, 8), claim = !hold && chance(p, 2);
    struct spool_message m = {.flags = (unsigned)pick(p, 64),
                              .envid = chance(p, 4) ? SLICE("env+2D1") : SLICE(""),
                              .client = any_text(p),
                              .class_name = any_class(p),
                              .class_source = (enum class_source)pick(p, CLASS_SOURCE_MAX + 1),
                              .arrived = {any_time(p)},
                              .created = {any_time(p)},
                              .due = {any_time(p)}};
    static char content[3000];
    struct spool_content c = {.bytes = slice_of(content, pick(p, sizeof content)), .fd = -1};
    struct msg_id a = {0}, b = {0};

    memset(content, 'c', sizeof content);
    m.sender = chance(p, 5) ? SLICE("") : any_address(p, sender);
    m.parked = !hold && !claim && chance(p, 3) ? any_key(p) : SLICE("");
    for (uint32_t i = 0; i < count; i++) {
        rcpts[i] = (struct spool_rcpt){.address = any_address(p, space[i]),
                                       .notify = (unsigned)pick(p, 16)};
        if (chance(p, 3)) {
            rcpts[i].transport = SLICE("smtp");
            rcpts[i].nexthop = slice_string(any_domain(p));
            rcpts[i].route_generation = 7;
        }
    }
    struct slice reason = hold ? SLICE("because") : SLICE("");
    both(p, spool_submit(p->a, &m, rcpts, count, SLICE("Received: \1;\n"), &c, claim, reason, &a),
         spool_submit(p->b, &m, rcpts, count, SLICE("Received: \1;\n"), &c, claim, reason, &b));
    assert_int_equal(a.n, b.n);
    if (a.n != 0 && p->count < IDS_MAX) {
        p->ids[p->count++] = a.n;
    }
}

static void step_settle(struct pair *p)
{
    struct msg_id id = any_id(p);
    uint32_t n = 1 + (uint32_t)pick(p, 4);
    struct spool_verdict v = {.state = (enum spool_rcpt_state)(1 + pick(p, 4)),
                              .done = chance(p, 2),
                              .attempted = chance(p, 2),
                              .status = SLICE("4.7.0"),
                              .diagnostic = any_text(p),
                              .reply = any_text(p),
                              .remote = any_text(p),
                              .tls = any_text(p),
                              .when = {p->now}};

    both(p, spool_settle(p->a, id, n, &v), spool_settle(p->b, id, n, &v));
}

static void step_route(struct pair *p)
{
    struct msg_id id = any_id(p);
    uint32_t n = 1 + (uint32_t)pick(p, 4);
    struct slice transport = chance(p, 4) ? SLICE("") : SLICE("relay");
    struct slice nexthop = slice_string(any_domain(p));

    both(p, spool_set_route(p->a, id, n, transport, nexthop, 9),
         spool_set_route(p->b, id, n, transport, nexthop, 9));
}

/* Engines of one partition: nothing lies elsewhere, and nothing moves. */
static void step_move(struct pair *p)
{
    const struct spool_rcpt r = {.transport = SLICE("relay"), .nexthop = SLICE("example.com")};
    struct spool *const spools[] = {p->a, p->b};
    struct msg_id id = any_id(p);
    uint32_t moved = 1;

    for (size_t i = 0; i < COUNT(spools); i++) {
        bool was_dirty = spool_dirty(spools[i]);

        assert_false(spool_lies_elsewhere(spools[i], id, &r));
        fixture_ok(spools[i],
                   spool_move(spools[i], id, (struct wall){p->now}, (struct wall){p->now}, &moved));
        assert_int_equal(moved, 0);
        assert_true(spool_dirty(spools[i]) == was_dirty);
    }
}

static void step_finish(struct pair *p)
{
    struct msg_id id = any_id(p);
    struct wall due = {any_time(p)};
    bool a = false, b = false;

    if (chance(p, 3)) {
        both(p, spool_finish_all_done(p->a, id), spool_finish_all_done(p->b, id));
        return;
    }
    if (chance(p, 3)) {
        struct slice key = any_key(p);

        both(p, spool_park(p->a, id, key, due), spool_park(p->b, id, key, due));
        return;
    }
    both(p, spool_finish(p->a, id, due, &a), spool_finish(p->b, id, due, &b));
    assert_int_equal(a, b);
}

static void step_change(struct pair *p)
{
    struct msg_id id = any_id(p);
    struct wall t = {any_time(p)};

    switch (pick(p, 9)) {
    case 0:
        both(p, spool_set_warned(p->a, id), spool_set_warned(p->b, id));
        break;
    case 1:
        both(p, spool_set_force_expire(p->a, id), spool_set_force_expire(p->b, id));
        break;
    case 2:
        both(p, spool_hold(p->a, id, SLICE("held")), spool_hold(p->b, id, SLICE("held")));
        break;
    case 3:
        both(p, spool_release(p->a, id, t), spool_release(p->b, id, t));
        break;
    case 4:
        both(p, spool_requeue(p->a, id, t), spool_requeue(p->b, id, t));
        break;
    case 5:
        both(p, spool_set_due(p->a, id, t), spool_set_due(p->b, id, t));
        break;
    case 6:
        both(p, spool_remove(p->a, id), spool_remove(p->b, id));
        break;
    case 7:
        if (chance(p, 3)) {
            both(p, spool_quarantine(p->a, id, SLICE("odd")),
                 spool_quarantine(p->b, id, SLICE("odd")));
        }
        break;
    case 8:
        both(p, spool_reported(p->a, id), spool_reported(p->b, id));
        break;
    }
}

static void before_a_claim(struct pair *p)
{
    if (CLAIMS_WHAT_IS_DURABLE) {
        both(p, spool_commit(p->a), spool_commit(p->b));
    }
}

static void step_claim(struct pair *p)
{
    enum spool_state from = chance(p, 2) ? SPOOL_INCOMING : SPOOL_DEFERRED;
    struct wall now = {NEW_IS_DUE && from == SPOOL_INCOMING ? US_FOREVER : p->now};
    struct msg_id a[CLAIM_MAX], b[CLAIM_MAX];
    size_t in_a = 0, in_b = 0, max = 1 + pick(p, CLAIM_MAX);

    if (chance(p, 4)) {
        struct msg_id id = any_id(p);

        spool_unclaim(p->a, id);
        spool_unclaim(p->b, id);
        return;
    }
    before_a_claim(p);
    bring_due(p->b, p->now);
    both(p, spool_claim(p->a, from, now, max, a, &in_a),
         spool_claim(p->b, from, now, max, b, &in_b));
    assert_int_equal(in_a, in_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_int_equal(a[i].n, b[i].n);
    }
}

static void step_claim_parked(struct pair *p)
{
    struct msg_id a[CLAIM_MAX], b[CLAIM_MAX];
    size_t in_a = 0, in_b = 0, max = pick(p, CLAIM_MAX);
    bool more_a = false, more_b = false;
    struct slice key = any_key(p);
    struct wall now = {p->now};

    before_a_claim(p);
    bring_key(p->b, key);
    both(p, spool_claim_parked(p->a, key, now, max, a, &in_a, &more_a),
         spool_claim_parked(p->b, key, now, max, b, &in_b, &more_b));
    assert_int_equal(in_a, in_b);
    assert_int_equal(more_a, more_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_int_equal(a[i].n, b[i].n);
    }
}

static void step_commit(struct pair *p)
{
    assert_int_equal(spool_dirty(p->a), spool_dirty(p->b));
    if (spool_dirty(p->a) && chance(p, 4)) {
        spool_batch_failed(p->a, -EIO); /* as if the disk had said so */
        spool_batch_failed(p->b, -EIO);
    }
    both(p, spool_commit(p->a), spool_commit(p->b));
    if (chance(p, 8)) {
        spool_tidy(p->a);
    }
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void compare_content(struct pair *p, struct msg_id id)
{
    struct buf a, b;
    uint64_t in_a, in_b;
    int fd_a, fd_b;

    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    fixture_ok(p->a, spool_read_content(p->a, id, &a, &fd_a, &in_a));
    fixture_ok(p->b, spool_read_content(p->b, id, &b, &fd_b, &in_b));
    if (fd_a >= 0) {
        assert_true(in_a > INLINE_LIMIT);
        assert_int_equal(spool_io_read_all(&spool_io_real, fd_a, buf_room(&a, in_a), in_a, 0), 0);
        buf_grew(&a, in_a);
        spool_io_real.close(fd_a);
    }
    assert_int_equal(in_a, in_b);
    assert_slices(buf_slice(&a), buf_slice(&b));
    buf_fini(&a);
    buf_fini(&b);
}

static void compare_rcpts(struct pair *p, struct msg_id id)
{
    struct spool_rcpt a[8], b[8];
    size_t in_a, in_b, max = 1 + pick(p, COUNT(a));
    uint32_t after = (uint32_t)pick(p, 3);
    bool only = chance(p, 2);

    fixture_ok(p->a, spool_read_rcpts(p->a, id, after, only, max, a, &in_a));
    fixture_ok(p->b, spool_read_rcpts(p->b, id, after, only, max, b, &in_b));
    assert_int_equal(in_a, in_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_int_equal(a[i].n, b[i].n);
        assert_slices(a[i].address, b[i].address);
        assert_slices(a[i].orcpt, b[i].orcpt);
        assert_int_equal(a[i].notify, b[i].notify);
        assert_int_equal(a[i].state, b[i].state);
        assert_slices(a[i].transport, b[i].transport);
        assert_slices(a[i].nexthop, b[i].nexthop);
        assert_int_equal(a[i].route_generation, b[i].route_generation);
        assert_int_equal(a[i].attempts, b[i].attempts);
        assert_slices(a[i].status, b[i].status);
        assert_slices(a[i].diagnostic, b[i].diagnostic);
        assert_slices(a[i].reply, b[i].reply);
        assert_slices(a[i].remote, b[i].remote);
        assert_slices(a[i].tls, b[i].tls);
        assert_int_equal(a[i].last_attempt.us, b[i].last_attempt.us);
    }
}

static void compare_message(struct pair *p, struct msg_id id)
{
    struct spool_message a, b;
    int err;

    bring_message(p->b, id);
    err = spool_read(p->b, id, &b);

    both(p, spool_read(p->a, id, &a), err);
    assert_int_equal(spool_is_claimed(p->a, id), spool_is_claimed(p->b, id));
    if (err != 0) {
        return;
    }
    assert_int_equal(a.state, b.state);
    assert_slices(a.sender, b.sender);
    assert_slices(a.envid, b.envid);
    assert_slices(a.client, b.client);
    assert_slices(a.reason, b.reason);
    assert_slices(a.parked, b.parked);
    assert_slices(a.class_name, b.class_name);
    assert_int_equal(a.class_source, b.class_source);
    assert_int_equal(a.flags, b.flags);
    assert_int_equal(a.arrived.us, b.arrived.us);
    assert_int_equal(a.created.us, b.created.us);
    assert_int_equal(a.due.us, b.due.us);
    assert_int_equal(a.size, b.size);
    assert_int_equal(a.rcpt_total, b.rcpt_total);
    assert_int_equal(a.rcpt_pending, b.rcpt_pending);
    assert_int_equal(a.rcpt_to_report, b.rcpt_to_report);
    assert_int_equal(a.warnings > 0, b.warnings > 0);
    assert_int_equal(a.force_expire, b.force_expire);
    compare_rcpts(p, id);
    compare_content(p, id);
}

static void compare_search(struct pair *p, const struct spool_filter *f)
{
    static struct msg_id a[PAGE], b[PAGE];
    size_t in_a, in_b, max = chance(p, 2) ? PAGE : 1 + pick(p, 10);
    uint64_t count_a, count_b;

    if (!SEARCHES) {
        return;
    }
    fixture_ok(p->a, spool_scan(p->a, f, max, a, &in_a));
    fixture_ok(p->b, spool_scan(p->b, f, max, b, &in_b));
    assert_int_equal(in_a, in_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_int_equal(a[i].n, b[i].n);
    }
    fixture_ok(p->a, spool_count(p->a, f, &count_a));
    fixture_ok(p->b, spool_count(p->b, f, &count_b));
    assert_int_equal(count_a, count_b);
}

static void compare_random_search(struct pair *p)
{
    struct spool_filter f = {.states = 0};
    char sender[64], rcpt[64], destination[64];

    if (chance(p, 3)) {
        f.states = (unsigned)pick(p, 32);
    }
    if (chance(p, 3)) {
        snprintf(sender, sizeof sender, "@%s", any_domain(p));
        f.sender = chance(p, 3)   ? SLICE("<>")
                   : chance(p, 2) ? slice_string(sender)
                                  : any_address(p, sender);
    }
    if (chance(p, 3)) {
        snprintf(rcpt, sizeof rcpt, "@%s", any_domain(p));
        f.rcpt = chance(p, 2) ? slice_string(rcpt) : any_address(p, rcpt);
    }
    if (chance(p, 3)) {
        snprintf(destination, sizeof destination, "%s%s", chance(p, 2) ? "smtp/" : "",
                 any_domain(p));
        f.destination = slice_string(destination);
    }
    if (chance(p, 4)) {
        f.class_name = any_class(p);
    }
    if (chance(p, 4)) {
        f.arrived_before.us = any_time(p);
    }
    if (chance(p, 4)) {
        f.arrived_after.us = any_time(p);
    }
    if (chance(p, 4)) {
        f.size_min = pick(p, 3000);
    }
    if (chance(p, 4)) {
        f.size_max = pick(p, 3000);
    }
    if (chance(p, 4)) {
        f.after = any_id(p);
    }
    compare_search(p, &f);
}

static void compare_keys(struct pair *p)
{
    struct slice a[2], b[2], after = chance(p, 2) ? SLICE("") : any_key(p);
    size_t in_a, in_b, max = 1 + pick(p, COUNT(a));

    fixture_ok(p->a, spool_parked_keys(p->a, after, max, a, &in_a));
    fixture_ok(p->b, spool_parked_keys(p->b, after, max, b, &in_b));
    assert_int_equal(in_a, in_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_slices(a[i], b[i]);
    }
}

/* All destinations, page by page, and each only once. */
static void compare_destination_pages(struct pair *p)
{
    struct spool_destination from = {.nexthop = SLICE(""), .transport = SLICE("")};
    struct spool_destination a[3], b[3];
    char nexthop[SPOOL_ROUTE_MAX + ADDRESS_MAX], transport[SPOOL_ROUTE_MAX];
    size_t in_a = COUNT(a), in_b, sum = 0;
    struct spool_destination all[1000];
    size_t count;

    while (in_a == COUNT(a)) {
        fixture_ok(p->a, spool_destinations_from(p->a, &from, COUNT(a), a, &in_a));
        fixture_ok(p->b, spool_destinations_from(p->b, &from, COUNT(b), b, &in_b));
        assert_int_equal(in_a, in_b);
        for (size_t i = 0; i < in_a; i++) {
            assert_int_equal(a[i].rcpts, b[i].rcpts);
            assert_int_equal(a[i].messages, b[i].messages);
            assert_slices(a[i].transport, b[i].transport);
            assert_slices(a[i].nexthop, b[i].nexthop);
        }
        if (in_a == COUNT(a)) { /* the last is the first of the next page */
            assert_true(a[2].nexthop.len < sizeof nexthop && a[2].transport.len < sizeof transport);
            from.nexthop =
                slice_of(memcpy(nexthop, a[2].nexthop.ptr, a[2].nexthop.len), a[2].nexthop.len);
            from.transport = slice_of(memcpy(transport, a[2].transport.ptr, a[2].transport.len),
                                      a[2].transport.len);
            sum += COUNT(a) - 1;
        }
    }
    fixture_ok(p->a, spool_destinations(p->a, COUNT(all), all, &count));
    assert_int_equal(sum + in_a, count);
}

static void compare_all(struct pair *p)
{
    struct spool_totals a, b;
    struct spool_destination top_a[20], top_b[20];
    struct wall due_a, due_b;
    size_t in_a, in_b;

    bring_due(p->b, p->now);
    for (size_t i = 0; i < p->count; i++) {
        compare_message(p, (struct msg_id){p->ids[i]});
    }
    compare_search(p, &(struct spool_filter){.states = 0});
    compare_keys(p);
    for (int i = 0; i < 20; i++) {
        compare_random_search(p);
    }
    fixture_ok(p->a, spool_totals(p->a, &a));
    fixture_ok(p->b, spool_totals(p->b, &b));
    assert_memory_equal(&a, &b, sizeof a);
    fixture_ok(p->a, spool_next_due(p->a, &due_a));
    fixture_ok(p->b, spool_next_due(p->b, &due_b));
    if (!CLAIMS_WHAT_IS_DURABLE || !spool_dirty(p->a)) {
        assert_true(SEARCHES ? due_a.us == due_b.us : due_b.us <= due_a.us);
    }
    if (!SEARCHES) {
        return;
    }
    compare_destination_pages(p);
    fixture_ok(p->a, spool_destinations(p->a, COUNT(top_a), top_a, &in_a));
    fixture_ok(p->b, spool_destinations(p->b, COUNT(top_b), top_b, &in_b));
    assert_int_equal(in_a, in_b);
    for (size_t i = 0; i < in_a; i++) {
        assert_int_equal(top_a[i].rcpts, top_b[i].rcpts);
        assert_int_equal(top_a[i].messages, top_b[i].messages);
        assert_slices(top_a[i].transport, top_b[i].transport);
        assert_slices(top_a[i].nexthop, top_b[i].nexthop);
    }
}

/* Another process takes over: the same messages, nothing claimed. */
static void reopen(struct pair *p)
{
    step_submit(p); /* so that both agree on the last id */
    both(p, spool_commit(p->a), spool_commit(p->b));
    spool_close(p->a);
    assert_string_equal(
        fixture_ask(&p->fx, "SELECT count(*) FROM (SELECT nexthop, transport, count(*),"
                            " count(DISTINCT message) FROM recipient WHERE listed = 1 AND state = 1"
                            " GROUP BY nexthop, transport EXCEPT SELECT nexthop, transport,"
                            " recipients, messages FROM destination)"),
        "0");
    p->a = fixture_open(&p->fx);
#ifdef MODEL_POSTGRESQL
    spool_close(p->b);
    p->b = open_other();
#endif
    for (size_t i = 0; i < p->count; i++) {
        spool_unclaim(p->b, (struct msg_id){p->ids[i]});
    }
    assert_string_equal(fixture_ask(&p->fx, "PRAGMA integrity_check"), "ok");
}

static void run(uint64_t seed)
{
    struct pair p = {.now = 1000000};

    fixture_init(&p.fx);
    p.a = fixture_open(&p.fx);
    p.b = make_other();
    rng_init(&p.rng, seed);
    printf("# seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < STEPS; i++) {
        static void (*const steps[])(struct pair *) = {
            step_submit,       step_submit, step_settle, step_settle, step_settle,
            step_finish,       step_finish, step_change, step_change, step_claim,
            step_claim,        step_route,  step_commit, step_commit, compare_random_search,
            step_claim_parked, step_move,
        };

        p.now += (int64_t)pick(&p, 5);
        steps[pick(&p, COUNT(steps))](&p);
        if (chance(&p, 60)) {
            compare_all(&p);
        }
        if (chance(&p, 80)) {
            reopen(&p);
        }
        if (chance(&p, 80)) {
            turn_tables();
        }
    }
    both(&p, spool_commit(p.a), spool_commit(p.b));
    compare_all(&p);
    spool_close(p.a);
    spool_close(p.b);
    fixture_fini(&p.fx);
}

static void random_calls_get_the_same_answers_from_both_engines(void **state)
{
    const char *seed = getenv("SEED");

    (void)state;
    if (seed != NULL) {
        run(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t i = 1; i <= RUNS_HERE; i++) {
        run(i);
    }
    close_server();
}

#ifdef MODEL_POSTGRESQL
POSTGRES_MAIN(NULL, NULL, cmocka_unit_test(random_calls_get_the_same_answers_from_both_engines))
#else
UNIT_MAIN(cmocka_unit_test(random_calls_get_the_same_answers_from_both_engines))
#endif
