#include "log_quota.h"

#include "unit.h"

#define LINES 10

static struct mono at(int64_t seconds)
{
    return (struct mono){seconds * US_PER_S};
}

static void so_many_lines_are_logged_and_the_others_counted(void **unused)
{
    struct log_quota q = {.lines_max = LINES};
    int logged = 0;

    (void)unused;
    assert_int_equal(log_quota_due(&q).us, US_FOREVER);
    for (int i = 0; i < 1000; i++) {
        logged += log_quota_take(&q, at(100));
        assert_int_equal(log_quota_is_spent(&q, at(100)), i >= LINES);
    }
    assert_int_equal(logged, LINES);
    assert_int_equal(log_quota_due(&q).us, at(160).us);
    assert_int_equal(log_quota_tell(&q, at(159)), 0);
    assert_int_equal(log_quota_tell(&q, at(160)), 1000 - LINES);
    assert_int_equal(log_quota_tell(&q, at(160)), 0);
    assert_int_equal(log_quota_due(&q).us, US_FOREVER);
    assert_false(log_quota_is_spent(&q, at(160)));
    assert_true(log_quota_take(&q, at(160))); /* a new period */
}

static void what_was_not_told_in_time_is_told_later(void **unused)
{
    struct log_quota q = {.lines_max = LINES};

    (void)unused;
    for (int i = 0; i < LINES + 3; i++) {
        (void)log_quota_take(&q, at(0));
    }
    assert_true(log_quota_take(&q, at(70)));
    assert_int_equal(log_quota_due(&q).us, at(130).us);
    assert_int_equal(log_quota_tell(&q, at(130)), 3);
}

UNIT_MAIN(cmocka_unit_test(so_many_lines_are_logged_and_the_others_counted),
          cmocka_unit_test(what_was_not_told_in_time_is_told_later))
