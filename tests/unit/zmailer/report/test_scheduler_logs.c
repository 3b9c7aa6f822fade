#include "scheduler_logs.h"

#include "unit.h"

#include <stdio.h>
#include <string.h>

#define AT(seconds)                                                                                \
    {                                                                                              \
        (seconds) * US_PER_S                                                                       \
    }

static const struct statistics_line plain = {
    .spoolid = {"S11059230AbmKTNSaerpyH", 22},
    .name = {"11059230", 8},
    .word = "ok3",
    .channel = {"smtp", 4},
    .host = {"[127.0.0.1]", 11},
    .created = AT(1795180710),
    .listed = AT(1795180777),
};

static const char *printed(enum conf_statistics_format format, const struct statistics_line *line)
{
    static char text[8192];
    struct buf out;

    buf_init(&out, sizeof text - 1);
    statistics_print(&out, format, (struct wall)AT(1795180811), line);
    assert_false(out.failed);
    snprintf(text, sizeof text, "%.*s", SLICE_ARGS(buf_slice(&out)));
    buf_fini(&out);
    return text;
}

static void a_line_has_both_of_zmailers_forms(void **state)
{
    (void)state;
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &plain),
                        "S11059230AbmKTNSaerpyH 67 34 ok3 smtp/[127.0.0.1]\n");
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_OLD, &plain),
                        "1795180710 11059230 67 34 ok3 smtp/[127.0.0.1]\n");
}

static void without_a_router_all_time_is_the_schedulers(void **state)
{
    struct statistics_line line = plain;

    (void)state;
    line.listed = (struct wall){0};
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &line),
                        "S11059230AbmKTNSaerpyH 0 101 ok3 smtp/[127.0.0.1]\n");
}

/* Programs split such lines at blanks. */
static void hostile_names_stay_one_field(void **state)
{
    struct statistics_line line = plain;
    char host[5000];
    const char *text;

    (void)state;
    line.host = SLICE("a b\n\tS1 0 0 ok x/y");
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &line),
                        "S11059230AbmKTNSaerpyH 67 34 ok3 smtp/a?b??S1?0?0?ok?x/y\n");
    memset(host, 'h', sizeof host);
    line.host = line.channel = line.spoolid = slice_of(host, sizeof host);
    text = printed(CONF_STATISTICS_FORMAT_CURRENT, &line);
    assert_int_equal(strlen(text), 3 * 1024 + strlen(" 67 34 ok3 /\n"));
}

UNIT_MAIN(cmocka_unit_test(a_line_has_both_of_zmailers_forms),
          cmocka_unit_test(without_a_router_all_time_is_the_schedulers),
          cmocka_unit_test(hostile_names_stay_one_field))
