#include "unit.h"

#include <string.h>

#include "mem.h"
#include "patterns.h"

static struct patterns *read_text(const char *text, enum action_place place)
{
    struct patterns_error error = {.text = ""};
    struct patterns *p = patterns_new(slice_string(text), place, NULL, &error);

    assert_string_equal(error.text, "");
    assert_non_null(p);
    return p;
}

/* What one text gives: "line: ACTION text", "none", "limit", "bad". */
static void match(const struct patterns *p, const char *subject, const char *want)
{
    struct patterns_hit hit;
    struct buf room, got;

    buf_init(&room, 2000);
    buf_init(&got, 2000);
    switch (patterns_match(p, slice_string(subject), &room, &hit)) {
    case PATTERNS_NONE:
        (void)buf_add_string(&got, "none");
        break;
    case PATTERNS_FOUND:
        (void)buf_addf(&got, "%u: %s %.*s", hit.line, action_name(hit.action.kind),
                       SLICE_ARGS(hit.action.text));
        break;
    case PATTERNS_LIMIT:
        (void)buf_addf(&got, "limit %u: %s", hit.line, hit.why);
        break;
    case PATTERNS_BAD:
        (void)buf_addf(&got, "bad %u: %s", hit.line, hit.why);
        break;
    }
    assert_string_equal(buf_cstr(&got), want);
    buf_fini(&room);
    buf_fini(&got);
}

static void the_first_pattern_that_fits_decides(void **unused)
{
    struct patterns *p = read_text("# comment\n"
                                   "/^subject: *make money/   REJECT no  money\n"
                                   "/^subject: (.*) for (.*)$/ WARN $2 and ${1} and $(1), $$5\n"
                                   "|^x-a/b:|               HOLD\n"
                                   "/^X-Case:/i             WARN case counts\n"
                                   "/^to:.*list/            DUNNO\n"
                                   "!/^(to|from|subject|x-)/ WARN what is this\n"
                                   "/a.b/                   WARN dot\n"
                                   "/^c d/x                 WARN no blank\n"
                                   "/e\\/f/                 WARN slash\n",
                                   ACTION_IN_HEADER_CHECKS);

    (void)unused;
    match(p, "Subject: MAKE money fast", "2: REJECT no  money");
    match(p, "Subject: a\n b for c", "3: WARN c and a  b and a  b, $5");
    match(p, "x-A/B: c", "4: HOLD ");
    match(p, "X-Case: y", "5: WARN case counts");
    match(p, "x-case: y", "none");
    match(p, "To: a, list", "6: DUNNO ");
    match(p, "Date: now", "7: WARN what is this");
    match(p, "From: a\nb", "8: WARN dot");
    match(p, "To: cd", "none");
    match(p, "To: e/f", "10: WARN slash");
    match(p, "", "7: WARN what is this");
    patterns_free(p);
}

static void what_stands_in_an_if_is_asked_only_there(void **unused)
{
    struct patterns *p = read_text("if /^Received:/\n"
                                   "/evil/ REJECT 1\n"
                                   "if !/good/\n"
                                   "/bad/ REJECT 2\n"
                                   "endif\n"
                                   "/middling/ REJECT 3\n"
                                   "endif\n"
                                   "/evil|bad/ WARN 4\n",
                                   ACTION_IN_HEADER_CHECKS);

    (void)unused;
    match(p, "Received: evil", "2: REJECT 1");
    match(p, "Received: bad", "4: REJECT 2");
    match(p, "Received: good, bad", "8: WARN 4");
    match(p, "Received: middling", "6: REJECT 3");
    match(p, "Subject: evil", "8: WARN 4");
    match(p, "Subject: middling", "none");
    patterns_free(p);
}

static void a_pattern_that_explodes_is_given_up(void **unused)
{
    struct patterns *p = read_text("/^(a+)+$/ REJECT\n/^b/ REJECT\n", ACTION_IN_BODY_CHECKS);
    char many[101];

    (void)unused;
    memset(many, 'a', sizeof many - 1);
    many[sizeof many - 2] = '!';
    many[sizeof many - 1] = '\0';
    match(p, many, "limit 1: more than 200000 steps");
    match(p, "aaaaaaaaaa", "1: REJECT ");
    match(p, "b", "2: REJECT ");
    patterns_free(p);
}

static void a_text_of_a_megabyte_is_bounded_by_the_same_limit(void **unused)
{
    struct patterns *p =
        read_text("/(x|xx)*[yz]{2}/ REJECT\n/^q/ REJECT\n", ACTION_IN_HEADER_CHECKS);
    char *many = mem_array(1000001, 1);
    struct patterns_hit hit;
    struct buf room;

    (void)unused;
    buf_init(&room, 2000);
    memset(many, 'x', 1000000);
    assert_int_equal(patterns_match(p, slice_of(many, 1000000), &room, &hit), PATTERNS_LIMIT);
    assert_int_equal(hit.line, 1); /* of steps or of memory, as the machine has it */
    buf_fini(&room);
    patterns_free(p);
    mem_free(many);
}

static void groups_that_spoil_an_action_are_told(void **unused)
{
    struct patterns *p =
        read_text("/^to: (.*)/ REDIRECT $1\n/^cc: (.*)/ PREPEND $1\n", ACTION_IN_HEADER_CHECKS);

    (void)unused;
    match(p, "to: a@b.test", "1: REDIRECT a@b.test");
    match(p, "to: nonsense", "bad 1: needs a mail address with a domain after it");
    match(p, "cc: X: a\r\nX-Evil: b", "2: PREPEND X: a  X-Evil: b");
    match(p, "cc: x", "bad 2: needs a header field after it, NAME: VALUE");
    patterns_free(p);
}

static void a_mistake_is_told_with_its_place(void **unused)
{
    static const struct {
        const char *text;
        unsigned line, column;
        const char *want;
    } cases[] = {
        {"word REJECT\n", 1, 1, "expected /PATTERN/FLAGS ACTION, if /PATTERN/, or endif"},
        {"\n/a REJECT\n", 2, 1, "expected a `/' at the end of the pattern"},
        {"/a[/ REJECT\n", 1, 4,
         "the pattern is invalid: missing terminating ] for character class"},
        {"/a/q REJECT\n", 1, 4,
         "expected a flag of i, m, s, x, A, E, U or a blank after the pattern"},
        {"/a/\n", 1, 4, "`' has no action"},
        {"/a/ REJECT $1\n", 1, 12, "the pattern has 0 groups, there is no $1"},
        {"/a/ REJECT 5 $\n", 1, 14, "expected the number of a group after `$'; $$ is a dollar"},
        {"!/(a)/ REJECT $1\n", 1, 15, "a negated pattern has no groups"},
        {"endif\n", 1, 1, "endif without `if'"},
        {"if /a/\n/b/ REJECT\n", 1, 1, "expected an endif for this `if'"},
        {"if /a/ REJECT\n", 1, 8, "expected nothing after the pattern of an `if'"},
        {"/\\C/ REJECT\n/a/ FILTER\n", 2, 5, "`FILTER' needs a TRANSPORT:NEXTHOP after it"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct patterns_error error;

        assert_null(patterns_new(slice_string(cases[i].text), ACTION_IN_BODY_CHECKS, NULL, &error));
        assert_string_equal(error.text, cases[i].want);
        assert_int_equal(error.line, cases[i].line);
        assert_int_equal(error.column, cases[i].column);
    }
}

UNIT_MAIN(cmocka_unit_test(the_first_pattern_that_fits_decides),
          cmocka_unit_test(what_stands_in_an_if_is_asked_only_there),
          cmocka_unit_test(a_pattern_that_explodes_is_given_up),
          cmocka_unit_test(a_text_of_a_megabyte_is_bounded_by_the_same_limit),
          cmocka_unit_test(groups_that_spoil_an_action_are_told),
          cmocka_unit_test(a_mistake_is_told_with_its_place))
