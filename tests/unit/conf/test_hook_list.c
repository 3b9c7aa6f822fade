#include "unit.h"

#include <string.h>

#include "hook_list.h"

#define KEY "0123456789abcdef"

static void hooks_are_read(void **unused)
{
    static const char text[] = "# ours\n"
                               "\n"
                               "a-1  https://Host.example  " KEY "\r\n"
                               "\tb https://host.example:8443/x?y=z " KEY " event=bounced,expired "
                               "sender=@shop.example\n"
                               "c http://[::1]:8080/ " KEY;
    static const struct {
        const char *name, *host, *path;
        unsigned port;
        bool tls, is_ipv6;
        size_t values;
    } wants[] = {
        {"a-1", "Host.example", "/", 443, true, false, 0},
        {"b", "host.example", "/x?y=z", 8443, true, false, 3},
        {"c", "::1", "/", 8080, false, true, 0},
    };
    struct hook_list *list;
    struct buf error;

    (void)unused;
    buf_init(&error, 256);
    list = hook_list_new(slice_string(text), &error);
    assert_non_null(list);
    assert_int_equal(list->count, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct hook *h = &list->hooks[i];

        assert_string_equal(h->name, wants[i].name);
        assert_string_equal(h->host, wants[i].host);
        assert_string_equal(h->path, wants[i].path);
        assert_string_equal(h->secret, KEY);
        assert_int_equal(h->port, wants[i].port);
        assert_int_equal(h->tls, wants[i].tls);
        assert_int_equal(h->is_ipv6, wants[i].is_ipv6);
        assert_int_equal(h->filter.count, wants[i].values);
        assert_true(hook_equal(h, h));
    }
    assert_false(hook_equal(&list->hooks[0], &list->hooks[1]));
    hook_list_free(list);
    buf_fini(&error);
}

static void what_is_no_hook_is_refused_at_its_place(void **unused)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a", "1:"},
        {"a https://", "1:3:"},
        {"a https://h\x01/ " KEY, "1:3:"},
        {"a https://u@h/ " KEY, "1:3:"},
        {"a https://h:65536/ " KEY, "1:3:"},
        {"a https://h:1x/ " KEY, "1:3:"},
        {"a https://[::1 " KEY, "1:3:"},
        {"a https://h/#x " KEY, "1:3:"},
        {"a http://h.example/ " KEY, "1:3:"},
        {"a http://127.example.org/ " KEY, "1:3:"},
        {"a https://h/ short", "1:14:"},
        {"a https://h/ " KEY " event", "1:31:"},
        {"a https://h/ " KEY " event=sneezed", "1:31:"},
        {"a https://h/ " KEY " colour=red", "1:31:"},
        {"\n123456789012345678901234567890123 https://h/ " KEY, "2:1:"},
    };
    struct buf error;

    (void)unused;
    buf_init(&error, 256);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (hook_list_new(slice_string(cases[i].text), &error) != NULL) {
            fail_msg("%s: taken", cases[i].text);
        }
        if (strncmp(buf_cstr(&error), cases[i].want, strlen(cases[i].want)) != 0) {
            fail_msg("%s: %s", cases[i].text, buf_cstr(&error));
        }
        assert_null(strstr(buf_cstr(&error), KEY));
    }
    buf_fini(&error);
}

static void events_are_wanted_by_their_members(void **unused)
{
    const struct slice line =
        SLICE("{\"number\":7,\"time\":1.5,\"event\":\"bounced\",\"queue_id\":\"A\",\"sender\":"
              "\"a@Shop.example\",\"recipient\":\"b\\\",\\\"class\\\":\\\"x@y\",\"destination\":"
              "\"smtp/mx.example\"}");
    static const struct {
        const char *member, *value;
        bool want;
    } cases[] = {
        {"event", "bounced", true},          {"event", "expired", false},
        {"sender", "@shop.example", true},   {"sender", "a@shop.EXAMPLE", true},
        {"sender", "shop.example", false},   {"class", "x@y", false},
        {"destination", "mx.example", true}, {"destination", "smtp/MX.example", true},
        {"destination", "x.example", false}, {"queue_id", "a", false},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct event_filter f = {.count = 0};

        assert_true(event_filter_holds(&f, line));
        assert_true(
            event_filter_add(&f, slice_string(cases[i].member), slice_string(cases[i].value)));
        assert_int_equal(event_filter_holds(&f, line), cases[i].want);
        assert_true(event_filter_add(&f, SLICE("event"), SLICE("lost")));
        assert_int_equal(event_filter_holds(&f, line),
                         cases[i].want && strcmp(cases[i].member, "event") == 0);
        event_filter_fini(&f);
    }
    assert_int_equal(event_number(line), 7);
    assert_int_equal(event_number(SLICE("{\"number\":x,")), 0);
    assert_int_equal(event_number(SLICE("{")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_read),
        cmocka_unit_test(what_is_no_hook_is_refused_at_its_place),
        cmocka_unit_test(events_are_wanted_by_their_members),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
