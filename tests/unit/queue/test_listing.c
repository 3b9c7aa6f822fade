/* Questions about a queue, asked of a spool in memory. */
#include "unit.h"

#include <string.h>

#include "listing.h"
#include "mem.h"
#include "memory_spool.h"
#include "spool_search.h"

#define NOW ((struct wall){INT64_C(1800000000) * US_PER_S})

static struct spool *spool;

static int open_spool(void **state)
{
    (void)state;
    spool = memory_spool_open(&(struct spool_options){0});
    return 0;
}

static int close_spool(void **state)
{
    (void)state;
    spool_close(spool);
    return 0;
}

static struct msg_id add(struct slice sender, const struct spool_rcpt *rcpts, uint32_t count,
                         int64_t age_s)
{
    struct spool_message m = {.sender = sender,
                              .arrived = {NOW.us - age_s * US_PER_S},
                              .created = NOW,
                              .due = NOW,
                              .client = SLICE("client[192.0.2.1]")};
    struct spool_content content = {.bytes = SLICE("x\r\n"), .fd = -1};
    struct msg_id id;

    assert_int_equal(spool_submit(spool, &m, rcpts, count, slice_of("", 0), &content, false,
                                  slice_of("", 0), &id),
                     0);
    assert_int_equal(spool_commit(spool), 0);
    return id;
}

static json_t *ask(const char *question, unsigned want)
{
    json_t *json = json_loads(question, 0, NULL), *answer;

    assert_non_null(json);
    assert_int_equal(listing_ask(spool, json, NOW, &answer), want);
    json_decref(json);
    return answer;
}

static void filters_are_read_strictly(void **state)
{
    static const struct {
        const char *filter;
        bool want;
    } cases[] = {
        {"{}", true},
        {"{\"state\":\"hold\"}", true},
        {"{\"state\":[\"hold\",\"deferred\"]}", true},
        {"{\"state\":[\"hold\",7]}", false},
        {"{\"state\":7}", false},
        {"{\"sender\":\"<>\",\"recipient\":\"@b\",\"destination\":\"smtp/b\"}", true},
        {"{\"class\":\"bulk\"}", true},
        {"{\"class\":\"\"}", false},
        {"{\"sender\":\"\"}", false},
        {"{\"sender\":7}", false},
        {"{\"older_than\":60,\"newer_than\":3600,\"min_size\":1,\"max_size\":2}", true},
        {"{\"older_than\":-1}", false},
        {"{\"older_than\":1.5}", false},
        {"{\"older_than\":9223372036854775807}", false},
        {"{\"colour\":\"red\"}", false},
        {"[]", false},
        {"\"hold\"", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        json_t *json = json_loads(cases[i].filter, JSON_DECODE_ANY, NULL);
        const char *error = NULL;
        struct listing_filter f;

        if (listing_filter(json, NOW, &f, &error) != cases[i].want) {
            fail_msg("%s", cases[i].filter);
        }
        assert_true((error == NULL) == cases[i].want);
        json_decref(json);
    }
    struct listing_filter f;
    const char *error;
    assert_true(listing_filter(NULL, NOW, &f, &error));
    assert_int_equal(f.spool.states, 0);
}

static void addresses_are_taken_as_people_type_them(void **state)
{
    static const struct {
        const char *typed, *want; /* NULL: refused */
        bool of_sender;
    } cases[] = {
        {"a@b.test", "a@b.test", true},
        {" <a@b.test> ", "a@b.test", true},
        {"@b.test", "@b.test", true},
        {"*@b.test", "@b.test", true},
        {"b.test", "@b.test", true},
        {"<>", "<>", true},
        {"<>", NULL, false},
        {"<postmaster>", "postmaster", false},
        {"<a*b@c.test>", "a*b@c.test", false},
        {"\\\"a@b\\\"@c.test", "\"a@b\"@c.test", false},
        {"a*@b.test", NULL, true},
        {"*", NULL, true},
        {"*.b.test", NULL, true},
        {".b.test", NULL, true},
        {"@.b.test", NULL, true},
        {"a@", NULL, true},
        {"@", NULL, true},
        {"<@b.test>", NULL, true},
        {"a@b.test, c@d.test", NULL, true},
        {"a@b.test c", NULL, true},
        {" ", NULL, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        json_t *json;
        const char *error;
        struct listing_filter f;
        struct slice found;

        snprintf(text, sizeof text, "{\"%s\":\"%s\"}", cases[i].of_sender ? "sender" : "recipient",
                 cases[i].typed);
        json = json_loads(text, 0, NULL);
        if (listing_filter(json, NOW, &f, &error) != (cases[i].want != NULL)) {
            fail_msg("%s", text);
        }
        if (cases[i].want != NULL) {
            found = cases[i].of_sender ? f.spool.sender : f.spool.rcpt;
            assert_true(slice_equal(found, slice_string(cases[i].want)));
            assert_true(listing_filter(json, NOW, &f, &error)); /* once more, as pages are asked */
            found = cases[i].of_sender ? f.spool.sender : f.spool.rcpt;
            assert_true(slice_equal(found, slice_string(cases[i].want)));
        }
        json_decref(json);
    }
}

static void a_message_is_shown_with_all_that_is_known(void **state)
{
    struct spool_rcpt rcpt = {.address = SLICE("b@there.test"),
                              .transport = SLICE("smtp"),
                              .nexthop = SLICE("there.test")};
    struct msg_id id = add(SLICE("s@from.test"), &rcpt, 1, 60);
    struct spool_verdict v = {.state = SPOOL_RCPT_PENDING,
                              .attempted = true,
                              .status = SLICE("4.2.0"),
                              .diagnostic = SLICE("later \xff"), /* not UTF-8 */
                              .remote = SLICE("mx[192.0.2.9]:25"),
                              .when = NOW};
    char question[100], text[SPOOL_ID_TEXT_MAX];
    const json_t *r;
    json_t *a;

    (void)state;
    assert_int_equal(spool_settle(spool, id, 1, &v), 0);
    assert_int_equal(spool_commit(spool), 0);
    spool_id_print(id, text);
    (void)snprintf(question, sizeof question, "{\"op\":\"show\",\"id\":\"%s\"}", text);
    a = ask(question, 200);
    assert_string_equal(json_string_value(json_object_get(a, "queue_id")), text);
    assert_string_equal(json_string_value(json_object_get(a, "queue_name")), "incoming");
    assert_string_equal(json_string_value(json_object_get(a, "sender")), "s@from.test");
    r = json_array_get(json_object_get(a, "recipients"), 0);
    assert_string_equal(json_string_value(json_object_get(r, "delay_reason")), "later \xc3\xbf");
    assert_int_equal(json_integer_value(json_object_get(r, "attempts")), 1);
    json_decref(a);
    a = ask("{\"op\":\"show\",\"id\":\"00000000999\"}", 404);
    json_decref(a);
}

static void lists_come_in_pages(void **state)
{
    struct spool_rcpt rcpts[3] = {{.address = SLICE("a@there.test")},
                                  {.address = SLICE("b@there.test")},
                                  {.address = SLICE("c@there.test")}};
    char question[200];
    size_t seen = 0;
    json_t *a;

    (void)state;
    for (int i = 0; i < 7; i++) {
        (void)add(SLICE("s@from.test"), rcpts, 3, 60);
    }
    (void)strcpy(question, "{\"op\":\"list\",\"max\":3,\"recipients\":2}");
    for (;;) {
        const json_t *list, *first;
        const char *next;

        a = ask(question, 200);
        list = json_object_get(a, "messages");
        first = json_array_get(list, 0);
        seen += json_array_size(list);
        assert_int_equal(json_array_size(json_object_get(first, "recipients")), 2);
        assert_int_equal(json_integer_value(json_object_get(first, "next_recipient")), 2);
        next = json_string_value(json_object_get(a, "next"));
        if (next == NULL) {
            break;
        }
        (void)snprintf(question, sizeof question,
                       "{\"op\":\"list\",\"max\":3,\"recipients\":2,\"after\":\"%s\"}", next);
        json_decref(a);
    }
    json_decref(a);
    assert_int_equal(seen, 7);
    a = ask("{\"op\":\"count\",\"filter\":{\"older_than\":120}}", 200);
    assert_int_equal(json_integer_value(json_object_get(a, "count")), 0);
    json_decref(a);
    a = ask("{\"op\":\"totals\"}", 200);
    assert_int_equal(json_integer_value(json_object_get(a, "incoming")), 7);
    json_decref(a);
    a = ask("{\"op\":\"destinations\"}", 200);
    assert_int_equal(json_integer_value(json_object_get(
                         json_array_get(json_object_get(a, "destinations"), 0), "recipients")),
                     21);
    json_decref(a);
}

static void only_questions_that_read_are_known(void **state)
{
    (void)state;
    assert_true(listing_knows("list") && listing_knows("show") && listing_knows("count") &&
                listing_knows("destinations") && listing_knows("totals"));
    assert_false(listing_knows("hold") || listing_knows("") || listing_knows("lis"));
}

#define LISTING_TEST(f) cmocka_unit_test_setup_teardown(f, open_spool, close_spool)

UNIT_MAIN(LISTING_TEST(filters_are_read_strictly),
          LISTING_TEST(addresses_are_taken_as_people_type_them),
          LISTING_TEST(a_message_is_shown_with_all_that_is_known),
          LISTING_TEST(lists_come_in_pages), LISTING_TEST(only_questions_that_read_are_known))
