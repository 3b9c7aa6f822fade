/* How a message waits: what was deferred in its pass, one after the other, and what follows. */
#include "unit.h"

#include "mem.h"
#include "waiting.h"

/* What is deferred: "d1" and "d2" as destination 1 or 2 is dead, "r1" and "r2" until 10 s or 20 s
 * as destination 1 or 2 says, "x" until it is given up at 30 s, "b" by the back-off. */
static void defer(struct waiting *w, const char *what)
{
    struct sched_action dead = {
        .type = SCHED_DEFER, .transport = 1, .dest = what[1] == '1' ? SLICE("one") : SLICE("two")};

    if (what[0] == 'd') {
        waiting_for_dead(w, &dead);
        return;
    }
    waiting_not_for_dead(w);
    if (what[0] == 'b') {
        waiting_for_backoff(w);
    } else if (what[0] == 'x') {
        waiting_until(w, (struct wall){30 * US_PER_S}, NULL);
    } else {
        waiting_until(w, (struct wall){(what[1] == '1' ? 10 : 20) * US_PER_S},
                      mem_string(what[1] == '1' ? "one" : "two"));
    }
}

static void each_deferral_changes_what_the_message_waits_for(void **state)
{
    static const struct {
        const char *what; /* words */
        enum waits want;
        int64_t want_s; /* retry_at */
        const char *want_key;
        bool want_dead; /* to be parked at the dead destination */
    } cases[] = {
        {"", WAITS_NOT, 0, NULL, false},
        {"b", WAITS_BACKOFF, 0, NULL, false},
        {"r2", WAITS_RETRY, 20, "two", false},
        {"r2 r2", WAITS_RETRY, 20, "two", false},
        {"r2 r1", WAITS_RETRIES, 10, NULL, false},
        {"r1 r2 r1", WAITS_RETRIES, 10, NULL, false},
        {"r1 b", WAITS_BACKOFF, 10, NULL, false},
        {"b r1", WAITS_BACKOFF, 10, NULL, false},
        {"r1 r2 b", WAITS_BACKOFF, 10, NULL, false},
        {"x", WAITS_BACKOFF, 30, NULL, false},
        {"r1 x", WAITS_BACKOFF, 10, NULL, false},
        {"d1", WAITS_BACKOFF, 0, NULL, true},
        {"d1 d1", WAITS_BACKOFF, 0, NULL, true},
        {"d1 d2", WAITS_BACKOFF, 0, NULL, false},
        {"d1 b", WAITS_BACKOFF, 0, NULL, false},
        {"b d1", WAITS_BACKOFF, 0, NULL, false},
        {"r1 d1", WAITS_BACKOFF, 10, NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice rest = slice_string(cases[i].what);
        struct waiting w = {0}, taken;
        char *key;

        while (rest.len > 0) {
            defer(&w, slice_cut(&rest, ' ').ptr);
        }
        assert_int_equal(w.state, cases[i].want);
        assert_int_equal(w.retry_at.us, cases[i].want_s * US_PER_S);
        assert_int_equal(owner_target_is_one(&w.dead), cases[i].want_dead);
        assert_int_equal(waiting_has_backoff(&w), w.state == WAITS_NOT || w.state == WAITS_BACKOFF);
        taken = waiting_take(&w);
        assert_int_equal(w.state, WAITS_NOT);
        assert_null(w.retry_key);
        key = waiting_take_key(&taken);
        assert_true((key != NULL) == (cases[i].want_key != NULL));
        if (key != NULL) {
            assert_string_equal(key, cases[i].want_key);
        }
        mem_free(key);
        waiting_fini(&taken);
        waiting_fini(&w);
    }
}

static void a_message_has_its_own_age_limit_when_all_that_waits_has_one(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_has_own_expiry(&w));
    defer(&w, "r1");
    assert_true(waiting_has_own_expiry(&w));
    waiting_for_lifetime(&w);
    assert_false(waiting_has_own_expiry(&w));
    waiting_fini(&w);
}

static void its_time_moves_with_the_clock(void **state)
{
    struct waiting w = {0};

    (void)state;
    waiting_move(&w, US_PER_S);
    assert_int_equal(w.retry_at.us, 0);
    defer(&w, "r1");
    waiting_move(&w, -4 * US_PER_S);
    assert_int_equal(w.retry_at.us, 6 * US_PER_S);
    waiting_fini(&w);
}

UNIT_MAIN(cmocka_unit_test(each_deferral_changes_what_the_message_waits_for),
          cmocka_unit_test(a_message_has_its_own_age_limit_when_all_that_waits_has_one),
          cmocka_unit_test(its_time_moves_with_the_clock))
