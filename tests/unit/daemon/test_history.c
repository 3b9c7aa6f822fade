#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "history.h"

static struct history h;

static int start(void **state)
{
    (void)state;
    history_init(&h);
    return 0;
}

static int end(void **state)
{
    (void)state;
    history_fini(&h);
    return 0;
}

static void reply(const char *dest, int64_t at, const char *host, const char *text)
{
    history_add_reply(&h, 1, slice_string(dest), (struct wall){at}, SLICE("4.2.0"),
                      slice_string(host), slice_string(text));
}

static void the_last_steps_are_kept_in_order(void **state)
{
    const struct history_site *site;

    (void)state;
    assert_null(history_find(&h, 1, SLICE("a")));
    for (uint32_t i = 0; i < HISTORY_STEPS_MAX + 5; i++) {
        history_add_step(&h, 1, SLICE("a"),
                         (struct history_step){.at = {i}, .before = i, .after = i + 1});
    }
    site = history_find(&h, 1, SLICE("a"));
    assert_int_equal(site->step_count, HISTORY_STEPS_MAX);
    for (size_t i = 0; i < site->step_count; i++) {
        assert_int_equal(
            site->steps[(site->newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX].after,
            HISTORY_STEPS_MAX + 5 - i);
    }
    assert_null(history_find(&h, 2, SLICE("a")));
    assert_null(history_find(&h, 1, SLICE("A")));
}

static void replies_that_differ_in_numbers_and_addresses_are_one(void **state)
{
    const struct history_site *site;

    (void)state;
    reply("a", 1, "mx1", "450 4.2.0 <b@x>: queue 17 is busy");
    reply("a", 2, "mx1", "450 4.2.0 <c@y>: queue 9 is busy");
    reply("a", 3, "mx2", "450 4.2.0 <c@y>: queue 9 is busy");
    reply("a", 4, "mx2", "451 4.2.0 try later");
    reply("a", 5, "mx1", "450 4.2.0 <unclosed");
    site = history_find(&h, 1, SLICE("a"));
    assert_int_equal(site->reply_count, 4);
    assert_string_equal(site->replies[0].text, "450 4.2.0 <unclosed");
    assert_string_equal(site->replies[3].text, "450 4.2.0 <c@y>: queue 9 is busy");
    assert_int_equal(site->replies[3].count, 2);
    assert_int_equal(site->replies[3].first.us, 1);
    assert_int_equal(site->replies[3].last.us, 2);
    reply("a", 6, "mx1", "450 4.2.0 <d@z>: queue 1 is busy"); /* comes to the front again */
    assert_int_equal(site->reply_count, 4);
    assert_int_equal(site->replies[0].count, 3);
}

static void only_so_many_replies_are_kept_and_none_is_too_long(void **state)
{
    char text[2 * HISTORY_TEXT_MAX];
    const struct history_site *site;

    (void)state;
    for (int i = 0; i < HISTORY_REPLIES_MAX + 3; i++) {
        memset(text, 'a' + i, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        reply("a", i + 1, "mx", text);
    }
    site = history_find(&h, 1, SLICE("a"));
    assert_int_equal(site->reply_count, HISTORY_REPLIES_MAX);
    assert_int_equal(strlen(site->replies[0].text), HISTORY_TEXT_MAX);
    assert_int_equal(site->replies[0].text[0], 'a' + HISTORY_REPLIES_MAX + 2);
    assert_int_equal(site->replies[HISTORY_REPLIES_MAX - 1].text[0], 'a' + 3);
}

static void destinations_to_which_nothing_happens_are_forgotten_first(void **state)
{
    char dest[20];

    (void)state;
    for (int i = 0; i < HISTORY_SITES_MAX + 10; i++) {
        (void)snprintf(dest, sizeof dest, "d%d", i);
        reply(dest, i + 1, "mx", "no");
        reply("busy", i + 1, "mx", "no");
    }
    assert_non_null(history_find(&h, 1, SLICE("busy")));
    assert_null(history_find(&h, 1, SLICE("d10")));
    assert_non_null(history_find(&h, 1, SLICE("d11")));
    assert_int_equal(HASH_COUNT(h.sites), HISTORY_SITES_MAX);
}

#define HISTORY_TEST(f) cmocka_unit_test_setup_teardown(f, start, end)

UNIT_MAIN(HISTORY_TEST(the_last_steps_are_kept_in_order),
          HISTORY_TEST(replies_that_differ_in_numbers_and_addresses_are_one),
          HISTORY_TEST(only_so_many_replies_are_kept_and_none_is_too_long),
          HISTORY_TEST(destinations_to_which_nothing_happens_are_forgotten_first))
