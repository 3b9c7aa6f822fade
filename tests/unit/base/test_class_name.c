#include "unit.h"

#include <string.h>

#include "class_name.h"

static void names_are_short_and_of_safe_bytes(void **state)
{
    char longest[CLASS_NAME_MAX + 1];

    (void)state;
    memset(longest, 'x', sizeof longest);
    assert_true(class_name_valid(slice_of(longest, CLASS_NAME_MAX)));
    assert_false(class_name_valid(slice_of(longest, CLASS_NAME_MAX + 1)));
    assert_false(class_name_valid(SLICE("")));
    assert_true(class_name_valid(SLICE("news_2.a+b=c@x.example-1")));
    assert_false(class_name_valid(SLICE("Bulk")));
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool safe = c != 0 && strchr("-_.+=@0123456789abcdefghijklmnopqrstuvwxyz", c) != NULL;

        assert_int_equal(class_name_valid(slice_of(&byte, 1)), safe);
    }
}

static void reading_makes_lower_case_and_refuses_the_rest(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } cases[] = {
        {"bulk", "bulk"}, {"Bulk", "bulk"}, {"", NULL},
        {"a b", NULL},    {"a\"b", NULL},   {"a/b", NULL},
    };
    char room[CLASS_NAME_MAX], longer[CLASS_NAME_MAX + 1] = {0};
    struct slice name = SLICE("before");

    (void)state;
    assert_false(class_name_parse(slice_of(longer, sizeof longer), room, &name));
    assert_true(slice_equal(name, SLICE("before")));
    for (size_t i = 0; i < COUNT(cases); i++) {
        bool ok = class_name_parse(slice_string(cases[i].text), room, &name);

        assert_int_equal(ok, cases[i].want != NULL);
        assert_true(!ok || slice_equal(name, slice_string(cases[i].want)));
    }
}

static void every_sender_gives_a_name(void **state)
{
    char room[CLASS_NAME_MAX], address[320];

    (void)state;
    assert_true(slice_equal(class_name_of_sender(SLICE("News@Example.org"), room),
                            SLICE("news@example.org")));
    assert_true(slice_equal(class_name_of_sender(SLICE(""), room), SLICE("mailer-daemon")));
    assert_true(
        slice_equal(class_name_of_sender(SLICE("\"a b\"@\xc3\xa9"), room), SLICE("_a_b_@__")));
    for (size_t i = 0; i < sizeof address; i++) {
        address[i] = (char)i;
        assert_true(class_name_valid(class_name_of_sender(slice_of(address, i + 1), room)));
    }
}

UNIT_MAIN(cmocka_unit_test(names_are_short_and_of_safe_bytes),
          cmocka_unit_test(reading_makes_lower_case_and_refuses_the_rest),
          cmocka_unit_test(every_sender_gives_a_name))
