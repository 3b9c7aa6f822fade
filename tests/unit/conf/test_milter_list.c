#include "unit.h"

#include "conf.h"
#include "milter_list.h"

/* A configuration with nothing but this line, which is fine. */
static struct conf *load(const char *line)
{
    const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(line), "conf", "/dir", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

static void addresses_have_one_of_four_forms(void **state)
{
    static const struct {
        const char *text, *want_host; /* NULL: refused */
        unsigned want_port;
        bool want_unix, want_v6;
    } cases[] = {
        {"inet:127.0.0.1:8891", "127.0.0.1", 8891, false, false},
        {"inet:filter.example:1", "filter.example", 1, false, false},
        {"inet:[2001:db8::1]:65535", "2001:db8::1", 65535, false, false},
        {"inet6:filter:8891", "filter", 8891, false, true},
        {"unix:/run/f.sock", "/run/f.sock", 0, true, false},
        {"local:run/f.sock", "run/f.sock", 0, true, false},
        {"inet:8891", NULL, 0, false, false},
        {"inet::8891", NULL, 0, false, false},
        {"inet:host:", NULL, 0, false, false},
        {"inet:host:0", NULL, 0, false, false},
        {"inet:host:65536", NULL, 0, false, false},
        {"inet:ho st:1", NULL, 0, false, false},
        {"inet:2001:db8::1:25", NULL, 0, false, false},
        {"unix:", NULL, 0, false, false},
        {"/run/f.sock", NULL, 0, false, false},
        {"tcp:host:1", NULL, 0, false, false},
        {"", NULL, 0, false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct milter_address a;
        bool ok = milter_address_parse(slice_string(cases[i].text), &a);

        assert_int_equal(ok, cases[i].want_host != NULL);
        if (ok) {
            assert_true(slice_equal(a.host, slice_string(cases[i].want_host)));
            assert_int_equal(a.port, cases[i].want_port);
            assert_int_equal(a.is_unix, cases[i].want_unix);
            assert_int_equal(a.is_v6, cases[i].want_v6);
        }
    }
}

static void what_a_filter_does_not_say_is_as_the_parameters(void **state)
{
    struct conf *conf = load("milter_command_timeout = 7s\nmilter_default_action = reject\n"
                             "milter_protocol = 4\n");
    struct milter_list list;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    assert_true(milter_list_parse(conf,
                                  "inet:a:1,unix:f.sock { inet:b:2, connect_timeout=2m "
                                  "command_timeout=1s, content_timeout=1h,default_action=accept,"
                                  " protocol=6 }",
                                  &list, &error));
    assert_int_equal(list.count, 2 + 1);
    assert_string_equal(list.at[0].text, "inet:a:1");
    assert_int_equal(list.at[0].connect_timeout_us, 30 * US_PER_S);
    assert_int_equal(list.at[0].command_timeout_us, 7 * US_PER_S);
    assert_int_equal(list.at[0].content_timeout_us, 300 * US_PER_S);
    assert_int_equal(list.at[0].default_action, CONF_MILTER_ACTION_REJECT);
    assert_int_equal(list.at[0].protocol, 4);
    assert_string_equal(list.at[1].text, "unix:/var/spool/sluice/f.sock");
    assert_string_equal(list.at[2].text, "inet:b:2");
    assert_int_equal(list.at[2].connect_timeout_us, 120 * US_PER_S);
    assert_int_equal(list.at[2].command_timeout_us, US_PER_S);
    assert_int_equal(list.at[2].content_timeout_us, 3600 * US_PER_S);
    assert_int_equal(list.at[2].default_action, CONF_MILTER_ACTION_ACCEPT);
    assert_int_equal(list.at[2].protocol, 6);

    assert_true(milter_list_parse(conf, "", &list, &error));
    assert_int_equal(list.count, 0);
    assert_true(milter_list_parse(conf, "none", &list, &error));
    assert_int_equal(list.count, 0);
    conf_free(conf);
    buf_fini(&error);
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"inet:a", "filter `inet:a': inet:HOST:PORT, inet6:HOST:PORT or unix:PATH is expected"},
        {"none inet:a:1",
         "filter `none': inet:HOST:PORT, inet6:HOST:PORT or unix:PATH is expected"},
        {"{ inet:a:1", "filter `': a brace that is closed is expected"},
        {"{ }", "filter `': an address in the braces is expected"},
        {"{ inet:a:1, default_action=maybe }",
         "default_action of a filter `maybe': accept, reject, tempfail, quarantine or shutdown is "
         "expected"},
        {"{ inet:a:1, protocol=7 }", "protocol of a filter `7': a number from 2 to 6 is expected"},
        {"{ inet:a:1, protocol=1 }", "protocol of a filter `1': a number from 2 to 6 is expected"},
        {"{ inet:a:1, connect_timeout=0 }",
         "connect_timeout of a filter `0': a time from 1s to 1d is expected"},
        {"{ inet:a:1, hurry=yes }",
         "option of a filter `hurry': connect_timeout, command_timeout, content_timeout, "
         "default_action or protocol is expected"},
        {"inet:a:1 inet:a:2 inet:a:3 inet:a:4 inet:a:5 inet:a:6 inet:a:7 inet:a:8 inet:a:9",
         "filter `inet:a:9': a list of at most 8 is expected"},
    };
    struct conf *conf = load("");

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct milter_list list;
        struct buf error;

        buf_init(&error, 1000);
        assert_false(milter_list_parse(conf, cases[i].text, &list, &error));
        assert_string_equal(buf_cstr(&error), cases[i].want);
        buf_fini(&error);
    }
    conf_free(conf);
}

UNIT_MAIN(cmocka_unit_test(addresses_have_one_of_four_forms),
          cmocka_unit_test(what_a_filter_does_not_say_is_as_the_parameters),
          cmocka_unit_test(what_is_wrong_is_said))
