#include "unit.h"

#include <string.h>

#include "grammar.h"

/* What the grammar reports, one item per line, for comparison. */
static void tell(struct slice text, struct buf *story)
{
    static const char *const kinds[] = {
        [ITEM_END] = "end",
        [ITEM_PARAMETER] = "parameter",
        [ITEM_PARAM_LINE] = "zmailer",
        [ITEM_INCLUDE] = "include",
        [ITEM_CLAUSE] = "clause",
        [ITEM_VALUE] = "value",
        [ITEM_FLAG] = "flag",
        [ITEM_BAD] = "bad",
    };
    struct grammar g;
    struct item item;

    grammar_init(&g, text);
    for (grammar_next(&g, &item); item.kind != ITEM_END; grammar_next(&g, &item)) {
        (void)buf_addf(story, "%u:%u %s %.*s", item.line, item.column, kinds[item.kind],
                       SLICE_ARGS(item.name));
        if (item.kind == ITEM_BAD) {
            (void)buf_addf(story, "%s%s", item.name.len > 0 ? ": " : "", item.error);
        } else if (item.value_line > 0) {
            (void)buf_addf(story, "=<%.*s>@%u:%u", SLICE_ARGS(item.value), item.value_line,
                           item.value_column);
        }
        (void)buf_add_byte(story, '\n');
    }
    grammar_fini(&g);
}

static void every_line_has_one_meaning(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", ""},
        {"# nothing\n\n   \n  # here\n", ""},
        {"a = b\n", "1:1 parameter a=<b>@1:5\n"},
        {"a=b # c", "1:1 parameter a=<b # c>@1:3\n"},
        {"a =\n", "1:1 parameter a=<>@1:4\n"},
        {"a = b,\r\n  c\r\n\n # x\n\td\r\ne=f",
         "1:1 parameter a=<b, c d>@1:5\n6:1 parameter e=<f>@6:3\n"},
        {"2bounce_notice_recipient = x", "1:1 parameter 2bounce_notice_recipient=<x>@1:28\n"},
        {"smtp/* interval=1m queueonly",
         "1:1 clause smtp/*\n1:8 value interval=<1m>@1:17\n1:20 flag queueonly\n"},
        {"local interval = 10s", "1:1 clause local\n1:7 value interval=<10s>@1:18\n"},
        {"a/*\n\tx=1 # y=2\n# c\n  z=#3\n",
         "1:1 clause a/*\n2:2 value x=<1>@2:4\n4:3 value z=<#3>@4:5\n"},
        {"a/*\n b=\"c d\" e", "1:1 clause a/*\n2:2 value b=<c d>@2:4\n2:10 flag e\n"},
        {"a/*\n b=\"c \\\n  d\" e", "1:1 clause a/*\n2:2 value b=<c   d>@2:4\n3:6 flag e\n"},
        {"PARAMauthfile = \"/x y\" # c\n", "1:1 zmailer authfile=</x y>@1:17\n"},
        {"a/*\nparamX=1\n b=2\n", "1:1 clause a/*\n2:1 zmailer X=<1>@2:8\n3:2 value b=<2>@3:4\n"},
        {"include other.conf\n", "1:1 include =<other.conf>@1:9\n"},
        {"include = x\n", "1:1 parameter include=<x>@1:11\n"},
        {" x\n", "1:2 bad an indented line, but nothing before it that it continues\n"},
        {"= x\n", "1:1 bad `=' without a name before it\n"},
        {"a/* =x b=1\n", "1:1 clause a/*\n1:5 bad `=' without a name before it\n"},
        {"a/* b=\"c\n d=1\n",
         "1:1 clause a/*\n1:8 bad a quoted value must end with `\"' on the same line\n"
         "2:2 value d=<1>@2:4\n"},
        {"a/* b=\"c\\\n", "1:1 clause a/*\n1:8 bad the file ends within a quoted value\n"},
        {"a/* b=\"c\"d e\n",
         "1:1 clause a/*\n1:10 bad a blank is expected after the closing `\"'\n"},
        {"PARAMx\n", "1:7 bad `=' and a value are expected\n"},
        {"PARAMx=1 y\n", "1:10 bad nothing is expected after the value of a PARAM line\n"},
    };
    struct buf story;

    (void)state;
    buf_init(&story, 10000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        buf_clear(&story);
        tell(slice_string(cases[i].text), &story);
        assert_string_equal(buf_cstr(&story), cases[i].want);
    }
    buf_fini(&story);
}

static void lines_and_values_have_a_limit(void **state)
{
    static char text[200000];
    struct buf story;

    (void)state;
    buf_init(&story, 300000);
    memset(text, 'x', sizeof text);
    tell(slice_of(text, sizeof text), &story);
    assert_string_equal(buf_cstr(&story), "1:1 bad the line is longer than 65536 bytes\n");

    memcpy(text, "a =", 3);
    buf_clear(&story);
    tell(slice_of(text, sizeof text), &story);
    assert_string_equal(buf_cstr(&story), "1:1 bad a: the line is longer than 65536 bytes\n");
    for (size_t i = 3; i + 1 < sizeof text; i += 1000) {
        memcpy(text + i, "\n ", 2);
    }
    buf_clear(&story);
    tell(slice_of(text, sizeof text), &story);
    assert_string_equal(buf_cstr(&story), "1:1 bad a: the value is longer than 65536 bytes\n");
    buf_fini(&story);
}

UNIT_MAIN(cmocka_unit_test(every_line_has_one_meaning),
          cmocka_unit_test(lines_and_values_have_a_limit))
