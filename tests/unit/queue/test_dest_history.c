#include "unit.h"

#include <string.h>

#include "destination.h"
#include "mem.h"

static struct dest_histories all;
static struct destination *a, *busy;

static int start(void **state)
{
    (void)state;
    dest_histories_init(&all);
    a = mem_new(sizeof *a + 1);
    busy = mem_new(sizeof *busy + 1);
    return 0;
}

static int end(void **state)
{
    (void)state;
    dest_histories_fini(&all);
    mem_free(a);
    mem_free(busy);
    return 0;
}

static void reply(struct destination *d, int64_t at, const char *host, const char *text)
{
    dest_history_add_reply(&all, d, (struct wall){at}, SLICE("4.2.0"), slice_string(host),
                           slice_string(text));
}

static void the_last_steps_are_kept_in_order(void **state)
{
    const struct dest_history *h;

    (void)state;
    assert_null(a->history);
    for (uint32_t i = 0; i < HISTORY_STEPS_MAX + 5; i++) {
        dest_history_add_step(&all, a,
                              (struct history_step){.at = {i}, .before = i, .after = i + 1});
    }
    h = a->history;
    assert_int_equal(h->step_count, HISTORY_STEPS_MAX);
    for (size_t i = 0; i < h->step_count; i++) {
        assert_int_equal(h->steps[(h->newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX].after,
                         HISTORY_STEPS_MAX + 5 - i);
    }
    assert_null(busy->history);
}

static void replies_that_differ_in_numbers_and_addresses_are_one(void **state)
{
    const struct dest_history *h;

    (void)state;
    reply(a, 1, "mx1", "450 4.2.0 <b@x>: queue 17 is busy");
    reply(a, 2, "mx1", "450 4.2.0 <c@y>: queue 9 is busy");
    reply(a, 3, "mx2", "450 4.2.0 <c@y>: queue 9 is busy");
    reply(a, 4, "mx2", "451 4.2.0 try later");
    reply(a, 5, "mx1", "450 4.2.0 <unclosed");
    h = a->history;
    assert_int_equal(h->reply_count, 4);
    assert_string_equal(h->replies[0].text, "450 4.2.0 <unclosed");
    assert_string_equal(h->replies[3].text, "450 4.2.0 <c@y>: queue 9 is busy");
    assert_int_equal(h->replies[3].count, 2);
    assert_int_equal(h->replies[3].first.us, 1);
    assert_int_equal(h->replies[3].last.us, 2);
    reply(a, 6, "mx1", "450 4.2.0 <d@z>: queue 1 is busy"); /* comes to the front again */
    assert_int_equal(h->reply_count, 4);
    assert_int_equal(h->replies[0].count, 3);
}

static void only_so_many_replies_are_kept_and_none_is_too_long(void **state)
{
    char text[2 * HISTORY_TEXT_MAX];
    const struct dest_history *h;

    (void)state;
    for (int i = 0; i < HISTORY_REPLIES_MAX + 3; i++) {
        memset(text, 'a' + i, sizeof text - 1);
        text[sizeof text - 1] = '\0';
        reply(a, i + 1, "mx", text);
    }
    h = a->history;
    assert_int_equal(h->reply_count, HISTORY_REPLIES_MAX);
    assert_int_equal(strlen(h->replies[0].text), HISTORY_TEXT_MAX);
    assert_int_equal(h->replies[0].text[0], 'a' + HISTORY_REPLIES_MAX + 2);
    assert_int_equal(h->replies[HISTORY_REPLIES_MAX - 1].text[0], 'a' + 3);
}

static void destinations_to_which_nothing_happens_are_forgotten_first(void **state)
{
    struct destination *many[DEST_HISTORIES_MAX + 10];

    (void)state;
    for (int i = 0; i < DEST_HISTORIES_MAX + 10; i++) {
        many[i] = mem_new(sizeof *many[i] + 1);
        reply(many[i], i + 1, "mx", "no");
        reply(busy, i + 1, "mx", "no");
    }
    assert_non_null(busy->history);
    assert_null(many[10]->history);
    assert_non_null(many[11]->history);
    assert_int_equal(all.count, DEST_HISTORIES_MAX);
    dest_histories_fini(&all);
    for (int i = 0; i < DEST_HISTORIES_MAX + 10; i++) {
        assert_null(many[i]->history);
        mem_free(many[i]);
    }
}

#define HISTORY_TEST(f) cmocka_unit_test_setup_teardown(f, start, end)

UNIT_MAIN(HISTORY_TEST(the_last_steps_are_kept_in_order),
          HISTORY_TEST(replies_that_differ_in_numbers_and_addresses_are_one),
          HISTORY_TEST(only_so_many_replies_are_kept_and_none_is_too_long),
          HISTORY_TEST(destinations_to_which_nothing_happens_are_forgotten_first))
