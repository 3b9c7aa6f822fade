#include "unit.h"

#include <string.h>

#include "status.h"

static void codes_are_parsed_strictly_and_printed_back(void **state)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: no code */
    } table[] = {
        {"2.0.0", "2.0.0"},
        {"5.7.999", "5.7.999"},
        {"4.999.0", "4.999.0"},
        {"5.1.1 user unknown", NULL},
        {"3.0.0", NULL},
        {"0.0.0", NULL},
        {"5.1", NULL},
        {"5.1.", NULL},
        {"5..1", NULL},
        {"5.1.1.1", NULL},
        {"5.01.1", NULL},
        {"5.1000.1", NULL},
        {"5.1.12345678901234567890", NULL},
        {"25.1.1", NULL},
        {"", NULL},
        {"-2.0.0", NULL},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        struct status s;
        char out[STATUS_SIZE];
        bool ok = status_parse(slice_string(table[i].text), &s);

        assert_int_equal(ok, table[i].want != NULL);
        if (ok) {
            assert_string_equal(status_print(s, out), table[i].want);
        }
    }
}

static void a_prefix_ends_at_a_blank_or_the_end(void **state)
{
    static const struct {
        const char *text;
        size_t want_len; /* 0: no code */
    } table[] = {
        {"5.1.1 no such user", 5},  {"5.1.1\tno such user", 5}, {"2.0.0", 5},    {"2.6.0", 5},
        {"5.1.1: no such user", 0}, {"192.0.2.1 said", 0},      {" 5.1.1 x", 0}, {"4.2.10 x", 6},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        struct status s;
        size_t len = 0;

        assert_int_equal(status_prefix(slice_string(table[i].text), &s, &len),
                         table[i].want_len > 0);
        assert_int_equal(len, table[i].want_len);
    }
}

static void a_code_is_found_among_words(void **state)
{
    static const struct {
        const char *text;
        enum status_class class;
        const char *want; /* "": none */
    } table[] = {
        {"smtp; 550 5.1.1 user unknown", STATUS_PERMANENT, "5.1.1"},
        {"5.7.1 not you, 5.1.1", STATUS_PERMANENT, "5.7.1"},
        {"smtp; 550-5.1.1 no\t5.2.1", STATUS_PERMANENT, "5.1.1"},
        {"greylisted\t4.7.1", STATUS_TRANSIENT, "4.7.1"},
        {"4.7.1 was, 5.7.1 is", STATUS_PERMANENT, "5.7.1"},
        {"smtp; 550 5.1.1 user unknown", STATUS_TRANSIENT, ""},
        {"smtp; 550 user unknown", STATUS_PERMANENT, ""},
        {"host 192.5.1.1 said no", STATUS_PERMANENT, ""},
        {"[5.1.1.7] said no", STATUS_PERMANENT, ""},
        {"v5.1.1 said no", STATUS_PERMANENT, ""},
        {"", STATUS_PERMANENT, ""},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        struct status s = {0};
        char out[STATUS_SIZE];

        assert_int_equal(status_find(slice_string(table[i].text), table[i].class, &s),
                         table[i].want[0] != '\0');
        assert_string_equal(status_print(s, out), table[i].want);
    }
}

static void a_bare_reply_code_gives_its_class_alone(void **state)
{
    char out[STATUS_SIZE];
    (void)state;

    assert_string_equal(status_print(status_of_reply(250), out), "2.0.0");
    assert_string_equal(status_print(status_of_reply(450), out), "4.0.0");
    assert_string_equal(status_print(status_of_reply(550), out), "5.0.0");
    assert_string_equal(status_print(status_of_reply(354), out), "4.0.0");
    assert_string_equal(status_print(status_of_reply(0), out), "4.0.0");
    assert_string_equal(status_print((struct status){0, 0, 0}, out), "");
}

static void a_status_of_another_class_is_repaired(void **state)
{
    char out[STATUS_SIZE];
    (void)state;

    assert_string_equal(status_print(status_repair((struct status){5, 1, 1}, 5), out), "5.1.1");
    assert_string_equal(status_print(status_repair((struct status){5, 1, 1}, 4), out), "4.0.0");
    assert_string_equal(status_print(status_repair((struct status){0, 0, 0}, 2), out), "2.0.0");
}

static void exit_statuses_follow_sysexits(void **state)
{
    static const struct {
        int exit_status;
        const char *want;
        const char *want_text;
    } table[] = {
        {0, "2.0.0", "delivered"},
        {67, "5.1.1", "user unknown"},
        {69, "5.3.0", "service unavailable"},
        {71, "4.3.0", "system resource problem"},
        {75, "4.3.0", "temporary failure"},
        {77, "5.7.0", "permission denied"},
        {64, "4.3.0", "command line usage error"},
        {70, "4.3.0", "internal software error"},
        {73, "4.2.0", "cannot create user output file"},
        {78, "4.3.5", "local configuration error"},
        {1, "4.3.0", "unknown mail system error"},
        {-1, "4.3.0", "unknown mail system error"},
        {127, "4.3.0", "unknown mail system error"},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        char out[STATUS_SIZE];
        const char *text;

        assert_string_equal(status_print(status_of_exit(table[i].exit_status, &text), out),
                            table[i].want);
        assert_string_equal(text, table[i].want_text);
    }
}

UNIT_MAIN(cmocka_unit_test(codes_are_parsed_strictly_and_printed_back),
          cmocka_unit_test(a_prefix_ends_at_a_blank_or_the_end),
          cmocka_unit_test(a_code_is_found_among_words),
          cmocka_unit_test(a_bare_reply_code_gives_its_class_alone),
          cmocka_unit_test(a_status_of_another_class_is_repaired),
          cmocka_unit_test(exit_statuses_follow_sysexits))
