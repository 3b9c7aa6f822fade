#include "expiry.h"

#include "unit.h"

#include <string.h>

#define S   US_PER_S
#define DAY (INT64_C(86400) * S)

static void mail_that_was_tried_is_given_up_sooner(void **state)
{
    static const struct {
        struct expiry_rules rules;
        bool tried;
        int64_t want;
    } cases[] = {
        {{40 * S, 20 * S}, true, 1040 * S},       {{40 * S, 20 * S}, false, 1060 * S},
        {{40 * S, 0}, false, 1040 * S + DAY},     {{0, 20 * S}, true, US_FOREVER},
        {{US_FOREVER, 20 * S}, true, US_FOREVER},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct wall at = expiry_of(&cases[i].rules, (struct wall){1000 * S}, cases[i].tried);

        assert_int_equal(at.us, cases[i].want);
    }
}

static void durations_have_two_parts_and_plurals(void **state)
{
    static const struct {
        int64_t seconds;
        const char *want;
    } cases[] = {
        {0, "0 secs"},
        {1, "1 sec"},
        {40, "40 secs"},
        {3 * 86400, "3 days"},
        {86400 + 3600, "1 day 1 hour"},
        {86400 + 61, "1 day 1 min"},
        {3920, "1 hour 5 mins"},
        {-5, "0 secs"},
    };
    struct buf text;

    (void)state;
    buf_init(&text, 100);
    for (size_t i = 0; i < COUNT(cases); i++) {
        buf_clear(&text);
        expiry_put_duration(&text, cases[i].seconds);
        assert_string_equal(buf_cstr(&text), cases[i].want);
    }
    buf_fini(&text);
}

static void the_last_problem_is_told(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 200);
    expiry_put_text(&text, 3 * DAY, slice_of("", 0));
    assert_string_equal(buf_cstr(&text), "expired after 3 days");
    buf_clear(&text);
    expiry_put_text(&text, 40 * S, SLICE("try later"));
    assert_string_equal(buf_cstr(&text), "\rexpired after 40 secs, problem was:\rtry later");
    buf_fini(&text);
}

/* Without agents that note something, nothing is noted for them. */
static void without_a_form_there_are_no_details(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 500);
    expiry_put_details(&text, 40 * S, SLICE("u1\1delayed\1"));
    assert_int_equal(buf_len(&text), 0);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mail_that_was_tried_is_given_up_sooner),
        cmocka_unit_test(durations_have_two_parts_and_plurals),
        cmocka_unit_test(the_last_problem_is_told),
        cmocka_unit_test(without_a_form_there_are_no_details),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
