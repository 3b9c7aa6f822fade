/*
 * What the spool has acknowledged is there after any failure of the disk, and nothing is there by
 * halves.
 *
 * A random workload runs on a sqlite spool over a disk that fails, and on a memory spool, which
 * does not. The memory spool's answers, as a text, are what the sqlite spool may say when it is
 * opened again: as of the last commit that succeeded, or, when commits have failed since, as of one
 * of those ("doubt costs a duplicate, never a loss").
 *
 * A failure prints the seed and the call or sync; SEED=n AT=n run that one only.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "fault_disk.h"
#include "mem.h"
#include "rng.h"
#include "spool_engine.h"
#include "spool_fixture.h"
#include "spool_keys.h"

#define MESSAGES_MAX 64
#define DOUBTS_MAX   16
#define BATCHES      8
#define CUT_SEEDS    6
#define STORY_MAX    ((size_t)1 << 18)
#define NO_MESSAGE   UINT64_C(123456789) /* an id that is never given */

struct world {
    struct fixture fx;
    struct rng rng;
    struct spool *sp;     /* NULL while it can't be opened */
    struct spool *oracle; /* memory */
    struct msg_id ids[MESSAGES_MAX], oracle_ids[MESSAGES_MAX];
    size_t count;               /* messages submitted, each with a sender of its own */
    bool has_key[MESSAGES_MAX]; /* which of them have a key, in the oracle's place */
    size_t committed;           /* of them, those whose commit is over */
    char *acknowledged;
    char *doubts[DOUBTS_MAX]; /* of commits that failed since */
    size_t doubt_count;
};

static uint64_t pick(struct world *w, uint64_t bound)
{
    return rng_below(&w->rng, bound);
}

/* ---- a spool as a text ---------------------------------------------------------------------- */

static void tell_message(struct spool *sp, struct msg_id id, struct buf *story)
{
    struct spool_rcpt rcpts[8];
    struct spool_message m;
    size_t count;

    fixture_ok(sp, spool_read(sp, id, &m));
    buf_addf(story,
             "%.*s state %d due %lld warned %d reason '%.*s' parked '%.*s' pending %u report %u:",
             SLICE_ARGS(m.sender), m.state, (long long)m.due.us, m.warnings > 0,
             SLICE_ARGS(m.reason), SLICE_ARGS(m.parked), m.rcpt_pending, m.rcpt_to_report);
    CHECK(fixture_content_ok(sp, &m));
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, false, COUNT(rcpts), rcpts, &count));
    for (size_t i = 0; i < count; i++) {
        buf_addf(story, " %u %.*s %d %u '%.*s'", rcpts[i].n, SLICE_ARGS(rcpts[i].address),
                 rcpts[i].state, rcpts[i].attempts, SLICE_ARGS(rcpts[i].diagnostic));
    }
    buf_add_byte(story, '\n');
}

/* The key of a message of this number, in the sqlite spool. */
static int find_key(struct spool *sp, size_t n, char name[32], struct spool_key *ret_key)
{
    snprintf(name, 32, "key %zu", n);
    *ret_key = (struct spool_key){.key = slice_string(name)};
    return spool_key_find(sp, ret_key, (struct wall){1}, MESSAGES_MAX + 1);
}

/* All that is in it. Freed with mem_free. */
static char *tell(struct world *w, struct spool *sp)
{
    struct msg_id ids[MESSAGES_MAX];
    struct spool_totals totals;
    struct buf story;
    size_t count;

    buf_init(&story, STORY_MAX);
    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, MESSAGES_MAX, ids, &count));
    for (size_t i = 0; i < count; i++) {
        tell_message(sp, ids[i], &story);
    }
    fixture_ok(sp, spool_totals(sp, &totals));
    buf_addf(&story, "%llu %llu %llu %llu, %llu bytes\n", (unsigned long long)totals.incoming,
             (unsigned long long)totals.deferred, (unsigned long long)totals.hold,
             (unsigned long long)totals.corrupt, (unsigned long long)totals.bytes);
    for (size_t n = 0; n < w->count; n++) {
        struct spool_key k;
        char name[32];

        if (sp == w->oracle ? w->has_key[n] : find_key(sp, n, name, &k) == 0) {
            buf_addf(&story, " key %zu", n);
        }
    }
    return buf_take(&story);
}

/* ---- the workload --------------------------------------------------------------------------- */

static void forget_doubts(struct world *w)
{
    while (w->doubt_count > 0) {
        mem_free(w->doubts[--w->doubt_count]);
    }
}

static void do_submit(struct world *w)
{
    static const size_t sizes[] = {0, 100, 900, 5000, 15000, OWN_FILE};
    static const char *const rcpts[] = {"a@example.com", "a@example.com b@example.net",
                                        "a@example.com b@example.net c@example.org"};
    size_t n = w->count, size = sizes[pick(w, COUNT(sizes))];
    const char *to = rcpts[pick(w, COUNT(rcpts))];
    bool claim = pick(w, 3) > 0;
    char sender[32], name[32];
    struct spool_key k;

    if (n == MESSAGES_MAX) {
        return;
    }
    snprintf(sender, sizeof sender, "s%zu@example.com", n);
    if (fixture_submit(w->sp, sender, to, (int64_t)n, size, claim, &w->ids[n]) == 0) {
        fixture_ok(w->oracle, fixture_submit(w->oracle, sender, to, (int64_t)n, size, claim,
                                             &w->oracle_ids[n]));
        w->count++;
        if (find_key(w->sp, n, name, &k) == -ENOENT) {
            k.id = w->ids[n];
            k.until.us = 2;
            w->has_key[n] = spool_key_add(w->sp, &k) == 0; /* else the batch has failed */
        }
    }
}

/* Claim everything, in both, so that finishing means the same in both whatever was reopened. */
static void claim_all(struct world *w)
{
    struct msg_id ids[MESSAGES_MAX];
    size_t count;

    for (int state = SPOOL_INCOMING; state <= SPOOL_DEFERRED; state++) {
        if (spool_claim(w->sp, (enum spool_state)state, (struct wall){INT64_MAX - 1}, MESSAGES_MAX,
                        ids, &count) != 0) {
            return;
        }
    }
    for (int state = SPOOL_INCOMING; state <= SPOOL_DEFERRED; state++) {
        fixture_ok(w->oracle, spool_claim(w->oracle, (enum spool_state)state,
                                          (struct wall){INT64_MAX - 1}, MESSAGES_MAX, ids, &count));
    }
}

static void do_end(struct world *w, size_t n)
{
    bool gone;

    if (pick(w, 2) == 0) {
        if (spool_finish_all_done(w->sp, w->ids[n]) == 0) {
            fixture_ok(w->oracle, spool_finish_all_done(w->oracle, w->oracle_ids[n]));
        }
    } else if (spool_is_claimed(w->sp, w->ids[n]) &&
               spool_is_claimed(w->oracle, w->oracle_ids[n]) &&
               spool_finish(w->sp, w->ids[n], (struct wall){1000}, &gone) == 0) {
        fixture_ok(w->oracle,
                   spool_finish(w->oracle, w->oracle_ids[n], (struct wall){1000}, &gone));
    }
}

static void do_settle(struct world *w, size_t n)
{
    struct spool_verdict v = {.state = (enum spool_rcpt_state)(1 + pick(w, 3)),
                              .done = pick(w, 2) == 0,
                              .attempted = true,
                              .diagnostic = SLICE("450 later"),
                              .when = {77}};
    uint32_t rcpt = 1 + (uint32_t)pick(w, 2);

    if (spool_settle(w->sp, w->ids[n], rcpt, &v) == 0) {
        fixture_ok(w->oracle, spool_settle(w->oracle, w->oracle_ids[n], rcpt, &v));
    }
}

static void do_change(struct world *w, size_t n)
{
    struct msg_id id = w->ids[n], other = w->oracle_ids[n];

    switch (pick(w, 4)) {
    case 0:
        if (spool_hold(w->sp, id, SLICE("wait")) == 0) {
            fixture_ok(w->oracle, spool_hold(w->oracle, other, SLICE("wait")));
        }
        break;
    case 1:
        if (spool_release(w->sp, id, (struct wall){5}) == 0) {
            fixture_ok(w->oracle, spool_release(w->oracle, other, (struct wall){5}));
        }
        break;
    case 2:
        if (spool_requeue(w->sp, id, (struct wall){6}) == 0) {
            fixture_ok(w->oracle, spool_requeue(w->oracle, other, (struct wall){6}));
        }
        break;
    case 3:
        if (spool_remove(w->sp, id) == 0) {
            fixture_ok(w->oracle, spool_remove(w->oracle, other));
        }
        break;
    }
}

/* After a failure one engine may have claimed what the other has not. */
static bool claims_agree(const struct world *w)
{
    for (size_t i = 0; i < w->count; i++) {
        if (spool_is_claimed(w->sp, w->ids[i]) != spool_is_claimed(w->oracle, w->oracle_ids[i])) {
            return false;
        }
    }
    return true;
}

static void do_park(struct world *w, size_t n)
{
    static const char *const keys[] = {"smtp/example.com", "smtp/example.net"};
    struct slice key = slice_string(keys[pick(w, COUNT(keys))]);
    struct wall now = {(int64_t)n};
    struct msg_id ids[2];
    size_t count;
    bool more;

    if (pick(w, 3) > 0) {
        if (spool_park(w->sp, w->ids[n], key, now) == 0) {
            fixture_ok(w->oracle, spool_park(w->oracle, w->oracle_ids[n], key, now));
        }
    } else if (claims_agree(w) &&
               spool_claim_parked(w->sp, key, now, COUNT(ids), ids, &count, &more) == 0) {
        fixture_ok(w->oracle,
                   spool_claim_parked(w->oracle, key, now, COUNT(ids), ids, &count, &more));
    }
}

static void do_commit(struct world *w)
{
    char *after = tell(w, w->oracle);
    bool dirty = spool_dirty(w->sp);
    int err = spool_commit(w->sp);

    if (!dirty) { /* not even opened */
        CHECK(!spool_dirty(w->oracle));
        mem_free(after);
        return;
    }
    for (; w->committed < w->count; w->committed++) {
        if (err != 0) { /* opened again, the spool may give its id to another message */
            w->ids[w->committed].n = NO_MESSAGE;
            w->has_key[w->committed] = false;
        }
    }
    if (err == 0) {
        fixture_ok(w->oracle, spool_commit(w->oracle));
        forget_doubts(w);
        mem_free(w->acknowledged);
        w->acknowledged = after;
        return;
    }
    if (spool_dirty(w->oracle)) {
        spool_batch_failed(w->oracle, err);
        CHECK(spool_commit(w->oracle) == err);
    }
    CHECK(w->doubt_count < DOUBTS_MAX);
    w->doubts[w->doubt_count++] = after;
}

/* The oracle's open batch, which sqlite has not got, is undone. */
static void drop_batch(struct world *w)
{
    if (spool_dirty(w->oracle)) {
        spool_batch_failed(w->oracle, -EIO);
        CHECK(spool_commit(w->oracle) == -EIO);
    }
}

static void try_open(struct world *w)
{
    if (fixture_try(&w->fx, SPOOL_OPEN_WRITE, &fault_disk_io, &w->sp) != 0) {
        w->sp = NULL;
    }
}

static void work(struct world *w)
{
    try_open(w);
    for (int i = 0; i < BATCHES && w->sp != NULL; i++) {
        uint64_t steps = 1 + pick(w, 6);

        claim_all(w);
        for (uint64_t j = 0; j < steps; j++) {
            size_t n = w->count == 0 ? 0 : pick(w, w->count);

            if (w->count == 0 || pick(w, 2) == 0) {
                do_submit(w);
            } else {
                static void (*const does[])(struct world *, size_t) = {do_end, do_settle, do_change,
                                                                       do_park};

                does[pick(w, COUNT(does))](w, n);
            }
        }
        do_commit(w);
        if (pick(w, 4) == 0) {
            spool_tidy(w->sp);
        }
        if (pick(w, 6) == 0) {
            spool_close(w->sp);
            try_open(w);
        }
    }
    spool_close(w->sp);
    w->sp = NULL;
    drop_batch(w);
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* No file without its message, but for those that are kept to be written again. (Messages
 * without their file were found by tell.) */
static void check_files(struct world *w)
{
    struct msg_id id;
    struct dirent *entry;
    char name[128];
    DIR *dir;

    snprintf(name, sizeof name, "%s.d", w->fx.path);
    dir = opendir(name);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct spool_message m;

        if (entry->d_name[0] != '.' && strstr(entry->d_name, ".segment") == NULL &&
            strstr(entry->d_name, ".passage") == NULL) {
            CHECK(spool_id_parse(slice_string(entry->d_name), &id));
            fixture_ok(w->sp, spool_read(w->sp, id, &m));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void check_after(struct world *w, uint64_t seed, uint64_t at)
{
    char *told;
    bool allowed;

    w->sp = fixture_open(&w->fx);
    told = tell(w, w->sp);
    allowed = strcmp(told, w->acknowledged) == 0;
    for (size_t i = 0; i < w->doubt_count; i++) {
        allowed = allowed || strcmp(told, w->doubts[i]) == 0;
    }
    if (!allowed) {
        printf("# SEED=%llu AT=%llu, %zu failed commits\n# acknowledged:\n%s# found:\n%s",
               (unsigned long long)seed, (unsigned long long)at, w->doubt_count, w->acknowledged,
               told);
    }
    assert_true(allowed);
    check_files(w);
    mem_free(told);
    spool_close(w->sp);
    assert_string_equal(fixture_ask(&w->fx, "PRAGMA integrity_check"), "ok");
}

/* One workload on one disk. True if what was planned has happened. */
static bool run(uint64_t seed, uint64_t at, const struct fault_plan *plan)
{
    struct world w = {.count = 0};
    bool happened;

    fixture_init(&w.fx);
    rng_init(&w.rng, seed);
    w.oracle = fixture_open_memory();
    w.acknowledged = tell(&w, w.oracle);
    fault_disk_begin(plan);
    work(&w);
    happened = fault_disk_happened();
    fault_disk_end();
    fault_disk_begin(&(struct fault_plan){.seed = 0});
    check_after(&w, seed, at);
    fault_disk_end();
    spool_close(w.oracle);
    forget_doubts(&w);
    mem_free(w.acknowledged);
    fixture_fini(&w.fx);
    return happened;
}

static uint64_t number_from_environment(const char *name)
{
    const char *value = getenv(name);

    return value == NULL ? 0 : strtoull(value, NULL, 10);
}

/* Calls of odd and even number fail differently, so the stride is odd. */
static void fail_each_call(uint64_t seed, uint64_t stride, bool ever_more)
{
    uint64_t at = 1;

    while (run(seed, at, &(struct fault_plan){.fail_call = at, .fail_ever_more = ever_more})) {
        at += stride;
    }
    printf("# seed %llu: %llu calls\n", (unsigned long long)seed, (unsigned long long)at);
}

static void any_call_may_fail_once(void **state)
{
    (void)state;
    fail_each_call(1, 1, false);
    fail_each_call(2, 7, false);
    fail_each_call(3, 7, false);
}

static void any_call_may_be_the_first_of_a_dead_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 103; seed++) {
        fail_each_call(seed, 17, true);
    }
}

/* A commit whose sync failed is undone, yet its bytes may survive: then all of it must be there. */
static void the_power_may_go_after_a_failed_sync(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CUT_SEEDS; seed++) {
        struct fault_plan plan = {.fail_sync = 6, .seed = seed};

        do {
            plan.fail_sync++;
            plan.cut_sync = plan.fail_sync + 1;
        } while (run(seed, plan.cut_sync, &plan));
    }
}

static void the_power_may_go_at_any_sync(void **state)
{
    uint64_t only = number_from_environment("SEED"), at = number_from_environment("AT");

    (void)state;
    for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : CUT_SEEDS); seed++) {
        struct fault_plan plan = {.cut_sync = at != 0 ? at : 1, .seed = seed};

        while (run(seed, plan.cut_sync, &plan) && at == 0) {
            plan.cut_sync++;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail_once),
        cmocka_unit_test(any_call_may_be_the_first_of_a_dead_disk),
        cmocka_unit_test(the_power_may_go_at_any_sync),
        cmocka_unit_test(the_power_may_go_after_a_failed_sync),
    };

    fault_disk_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
