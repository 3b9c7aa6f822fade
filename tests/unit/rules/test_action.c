#include "unit.h"

#include <string.h>

#include "action.h"

static void actions_are_read_with_their_arguments(void **unused)
{
    static const struct {
        const char *text;
        enum action_place place;
        enum action_kind kind;
        unsigned code;
        const char *status, *rest;
    } cases[] = {
        {"OK", ACTION_IN_ACCESS, ACTION_OK, 0, "", ""},
        {"dunno", ACTION_IN_ACCESS, ACTION_DUNNO, 0, "", ""},
        {"REJECT", ACTION_IN_ACCESS, ACTION_REJECT, 554, "5.7.1", ""},
        {"REJECT go  away", ACTION_IN_ACCESS, ACTION_REJECT, 554, "5.7.1", "go  away"},
        {"REJECT 5.1.10 null MX", ACTION_IN_ACCESS, ACTION_REJECT, 554, "5.1.10", "null MX"},
        {"REJECT 4.1.1 other class", ACTION_IN_ACCESS, ACTION_REJECT, 554, "5.7.1",
         "4.1.1 other class"},
        {"REJECT 5.1 not one", ACTION_IN_ACCESS, ACTION_REJECT, 554, "5.7.1", "5.1 not one"},
        {"REJECT", ACTION_IN_HEADER_CHECKS, ACTION_REJECT, 550, "5.7.1", ""},
        {"DEFER", ACTION_IN_ACCESS, ACTION_DEFER, 450, "4.7.1", ""},
        {"DEFER 4.3.2 x", ACTION_IN_BODY_CHECKS, ACTION_DEFER, 451, "4.3.2", "x"},
        {"550 5.7.1 no", ACTION_IN_ACCESS, ACTION_REJECT, 550, "5.7.1", "no"},
        {"451\tlater", ACTION_IN_ACCESS, ACTION_DEFER, 451, "4.7.1", "later"},
        {"HOLD why", ACTION_IN_ACCESS, ACTION_HOLD, 0, "", "why"},
        {"DISCARD", ACTION_IN_ACCESS, ACTION_DISCARD, 0, "", ""},
        {"WARN x", ACTION_IN_ACCESS, ACTION_WARN, 0, "", "x"},
        {"PREPEND X-A: b", ACTION_IN_ACCESS, ACTION_PREPEND, 0, "", "X-A: b"},
        {"PREPEND any text", ACTION_IN_BODY_CHECKS, ACTION_PREPEND, 0, "", "any text"},
        {"REDIRECT a@b.test", ACTION_IN_ACCESS, ACTION_REDIRECT, 0, "", "a@b.test"},
        {"BCC a@b.test", ACTION_IN_ACCESS, ACTION_BCC, 0, "", "a@b.test"},
        {"FILTER scan:[127.0.0.1]:10025", ACTION_IN_ACCESS, ACTION_FILTER, 0, "",
         "scan:[127.0.0.1]:10025"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct action a;

        assert_null(action_parse(slice_string(cases[i].text), cases[i].place, true, NULL, &a));
        assert_int_equal(a.kind, cases[i].kind);
        assert_int_equal(a.code, cases[i].code);
        assert_string_equal(a.status, cases[i].status);
        assert_true(slice_equal(a.text, slice_string(cases[i].rest)));
    }
}

static void what_is_no_action_is_refused(void **unused)
{
    static const char *const bad[] = {
        "",
        " ",
        "REJCT",
        "250 ok",
        "421 go",
        "600 x",
        "5500 x",
        "REDIRECT",
        "REDIRECT x",
        "BCC a@b c@d",
        "FILTER",
        "FILTER a:b c",
        "PREPEND",
        "PREPEND x y",
        "PREPEND :x",
        "REJECT \x01",
        "PREPEND X-A: b\r\nX-B: c",
        "521 x",
    };
    char many[1000];
    struct action a = {.code = 7};

    (void)unused;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_non_null(action_parse(slice_string(bad[i]), ACTION_IN_ACCESS, true, NULL, &a));
    }
    memset(many, 'x', sizeof many);
    memcpy(many, "WARN ", 5);
    assert_non_null(action_parse(slice_of(many, sizeof many), ACTION_IN_ACCESS, true, NULL, &a));
    assert_int_equal(a.code, 7); /* untouched */
    /* of a pattern whose groups are not known yet only the action is judged */
    assert_null(action_parse(SLICE("REDIRECT $1"), ACTION_IN_HEADER_CHECKS, false, NULL, &a));
    assert_non_null(action_parse(SLICE("REDIRECT $1"), ACTION_IN_HEADER_CHECKS, true, NULL, &a));
}

UNIT_MAIN(cmocka_unit_test(actions_are_read_with_their_arguments),
          cmocka_unit_test(what_is_no_action_is_refused))
