/* Places in the order of due times, early mail, and the sweep that finds what they have missed. */
#include "unit.h"

#include "finder.h"

#define P 7

static struct finder f;

static int start(void **state)
{
    (void)state;
    finder_init(&f);
    finder_own(&f, P, true);
    f.walks = false; /* as when the fresh tables were walked through */
    return 0;
}

static int stop(void **state)
{
    (void)state;
    finder_fini(&f);
    return 0;
}

/* The answer to all that is asked for at `now`: nothing behind (due, id), the next at `next`. */
static size_t answered(int64_t now, int64_t due, uint64_t id, int64_t next)
{
    struct finder_place *places[FINDER_ORDERS];
    size_t count = finder_ask(&f, now, FINDER_ORDERS, places);

    for (size_t i = 0; i < count; i++) {
        finder_answer(&f, places[i], due, id, next);
    }
    return count;
}

static void a_partition_is_looked_through_when_it_comes(void **state)
{
    (void)state;
    assert_true(finder_next(&f) == INT64_MIN);
    assert_int_equal(answered(0, 10, 1, 50), FINDER_ORDERS);
    assert_true(finder_next(&f) <= 0); /* mail that was never tried is not waited for */
    assert_int_equal(answered(49, 10, 1, FINDER_NONE), 1);
    finder_put(&f, FINDER_DEFERRED, P, 50, 1);
    assert_int_equal(finder_next(&f), 50);
    assert_int_equal(answered(49, 0, 0, 0), 0);
    finder_own(&f, P, false);
    assert_int_equal(finder_next(&f), FINDER_NONE);
}

/* Its time is of another node's clock. */
static void mail_that_was_never_tried_is_due_whatever_its_time(void **state)
{
    uint16_t p;
    uint64_t id;
    bool passes;

    (void)state;
    answered(0, 10, 5, FINDER_NONE);
    finder_put_fresh(&f, P, 7);
    assert_true(finder_take_early(&f, 1, &p, &id, &passes) && id == 7 && passes);
    finder_put(&f, FINDER_INCOMING, P, 9000, 8); /* behind its place: that is asked for */
    assert_true(finder_next(&f) <= 1);
    assert_int_equal(answered(1, 10, 5, FINDER_NONE), 1);
    finder_put(&f, FINDER_INCOMING, P, 10, 4);
    assert_true(finder_take_early(&f, 1, &p, &id, &passes) && id == 4 && !passes);
    finder_put(&f, FINDER_DEFERRED, P, 9000, 9);
    assert_int_equal(finder_next(&f), 9000);
}

static void what_leaves_before_a_place_is_known_by_its_id(void **state)
{
    uint16_t p;
    uint64_t id;
    bool passes;

    (void)state;
    answered(0, 10, 5, FINDER_NONE);
    finder_put(&f, FINDER_DEFERRED, P, 10, 4);
    finder_put(&f, FINDER_DEFERRED, P, 10, 6); /* behind it: found with the others */
    assert_int_equal(finder_next(&f), 10);
    assert_true(finder_take_early(&f, 10, &p, &id, &passes));
    assert_true(p == P && id == 4 && !passes);
    assert_false(finder_take_early(&f, 10, &p, &id, &passes));
    assert_int_equal(answered(10, 10, 6, FINDER_NONE), 1);
}

static void what_was_put_while_its_place_is_asked_is_known_by_its_id(void **state)
{
    struct finder_place *places[FINDER_ORDERS];
    uint16_t p;
    uint64_t id;
    bool passes;

    (void)state;
    assert_int_equal(finder_ask(&f, 0, FINDER_ORDERS, places), FINDER_ORDERS);
    finder_put(&f, FINDER_DEFERRED, P, 20, 9);
    finder_answer(&f, places[0], 10, 1, FINDER_NONE);
    finder_answer(&f, places[1], 10, 1, FINDER_NONE);
    assert_int_equal(finder_next(&f), 20);
    assert_true(finder_take_early(&f, 20, &p, &id, &passes) && id == 9);
}

static void a_sweep_looks_for_all_again(void **state)
{
    struct finder_place *places[FINDER_ORDERS];

    (void)state;
    answered(0, 10, 1, FINDER_NONE);
    assert_int_equal(finder_next(&f), FINDER_NONE); /* a row before the place is never seen */
    finder_sweep(&f);
    assert_true(f.walks);
    f.walks = false;
    assert_int_equal(finder_ask(&f, 0, FINDER_ORDERS, places), FINDER_ORDERS);
    assert_true(places[0]->due == INT64_MIN && places[0]->id == 0);
    finder_sweep(&f); /* beside a question that is under way */
    f.walks = false;
    finder_answer(&f, places[0], 10, 1, FINDER_NONE);
    finder_answer(&f, places[1], 10, 1, FINDER_NONE);
    assert_true(finder_next(&f) == INT64_MIN);
    assert_int_equal(finder_ask(&f, 0, FINDER_ORDERS, places), FINDER_ORDERS);
    assert_true(places[0]->due == INT64_MIN);
}

/* Nothing else finds what lies before the place of that time. */
static void what_only_a_sweep_finds_is_known_as_that(void **state)
{
    struct finder_place *places[FINDER_ORDERS];
    uint16_t p;
    uint64_t id;
    bool passes;

    (void)state;
    answered(0, 10, 5, FINDER_NONE);
    finder_sweep(&f);
    assert_int_equal(finder_ask(&f, 0, FINDER_ORDERS, places), FINDER_ORDERS);
    assert_true(finder_was_past(&f, places[0], 9, 7));
    assert_true(finder_was_past(&f, places[0], 10, 5));
    assert_false(finder_was_past(&f, places[0], 10, 6));
    finder_answer(&f, places[0], 10, 5, FINDER_NONE);
    finder_answer(&f, places[1], 10, 5, FINDER_NONE);
    finder_put(&f, FINDER_DEFERRED, P, 10, 4); /* it may be what the sweep finds first */
    finder_sweep(&f);
    assert_false(finder_was_past(&f, places[0], 9, 7));
    assert_true(finder_take_early(&f, 10, &p, &id, &passes));
    assert_true(f.walk_is_sweep == false); /* the walk of the sweep before goes on */
    f.walks = false;
    finder_sweep(&f);
    assert_true(f.walk_is_sweep);
    finder_own(&f, P, true); /* all of it is new */
    assert_false(finder_was_past(&f, places[0], 9, 7));
    assert_false(f.walk_is_sweep);
}

#define FINDER_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

UNIT_MAIN(FINDER_TEST(a_partition_is_looked_through_when_it_comes),
          FINDER_TEST(mail_that_was_never_tried_is_due_whatever_its_time),
          FINDER_TEST(what_leaves_before_a_place_is_known_by_its_id),
          FINDER_TEST(what_was_put_while_its_place_is_asked_is_known_by_its_id),
          FINDER_TEST(a_sweep_looks_for_all_again),
          FINDER_TEST(what_only_a_sweep_finds_is_known_as_that))
