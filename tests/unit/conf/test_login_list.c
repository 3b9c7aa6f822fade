#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "login_list.h"

static void the_login_that_fits_best_is_found(void **unused)
{
    static const char text[] =
        "# of the shop\n"
        "\n"
        "[smtp.example.org]:587   app:secret\r\n"
        "  [smtp.example.org]:587\t@Shop.example  shop@shop.example:two  words: x \n"
        "[smtp.example.org]:587 A@shop.example other:pass\n"
        "[smtp.example.org]:587 later:unused\n"
        "relay.example:26 user@relay.example:p\n"
        "b\xc3\xbc"
        "cher.test. u:q\n";
    static const struct {
        const char *nexthop, *sender, *want_user, *want_password;
    } cases[] = {
        {"[smtp.example.org]:587", "x@y", "app", "secret"},
        {"[SMTP.example.org]:587", "", "app", "secret"},
        {"[smtp.example.org]:587", "b@shop.EXAMPLE", "shop@shop.example", "two  words: x"},
        {"[smtp.example.org]:587", "a@shop.example", "other", "pass"},
        {"[smtp.example.org]:587", "a@sub.shop.example", "app", "secret"},
        {"relay.example:26", "a@b", "user@relay.example", "p"},
        {"relay.example", "a@b", NULL, NULL},
        {"smtp.example.org", "a@b", NULL, NULL},
        {"[smtp.example.org]:submission", "x@y", "app", "secret"},
        {"[xn--bcher-kva.test]:26", "x@y", "u", "q"},
    };
    struct login_list *list;
    struct buf error;

    (void)unused;
    buf_init(&error, 1000);
    list = login_list_new(slice_string(text), &error);
    assert_string_equal(buf_cstr(&error), "");
    assert_non_null(list);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct login *login =
            login_list_find(list, slice_string(cases[i].nexthop), slice_string(cases[i].sender));

        assert_int_equal(login != NULL, cases[i].want_user != NULL);
        if (login != NULL) {
            assert_string_equal(login->user, cases[i].want_user);
            assert_string_equal(login->password, cases[i].want_password);
        }
    }
    login_list_free(list);
    assert_null(login_list_find(NULL, SLICE("x"), SLICE("")));
    buf_fini(&error);
}

/* Postfix keys its table of logins by host, next hop or sender, and looks the sender up first. */
static void a_table_of_postfix_is_a_list(void **unused)
{
    static const char text[] = "@domain.test abc@mg.domain.test:password\n"
                               "Me@domain.test\tme:own:colon\n"
                               "[smtp.example.net]:587 default:pw\n"
                               "mx.example.net host:pw\n"
                               "provider.example domain:pw\n";
    static const struct {
        const char *nexthop, *sender, *want_user;
    } cases[] = {
        {"[smtp.example.net]:587", "x@domain.test", "abc@mg.domain.test"},
        {"[smtp.example.net]:587", "me@domain.test", "me"},
        {"[smtp.example.net]:submission", "x@other.test", "default"},
        {"[smtp.example.net]:25", "x@other.test", NULL},
        {"[mx.example.net]:2525", "x@other.test", "host"},
        {"[MX.example.net]", "", "host"},
        {"[mx.example.net]", "x@domain.test", "abc@mg.domain.test"},
        {"mx.example.net", "x@other.test", "host"},
        {"mx.example.net:2525", "x@other.test", NULL},
        {"provider.example", "x@domain.test", "domain"},
        /* the MX hosts of a stranger's domain get no password */
        {"stranger.example", "x@domain.test", NULL},
        {"stranger.example:25", "me@domain.test", NULL},
        {"unix:/run/x", "me@domain.test", NULL},
    };
    struct login_list *list;
    struct buf error;

    (void)unused;
    buf_init(&error, 1000);
    list = login_list_new(slice_string(text), &error);
    assert_string_equal(buf_cstr(&error), "");
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct login *login =
            login_list_find(list, slice_string(cases[i].nexthop), slice_string(cases[i].sender));

        assert_string_equal(login == NULL ? "none" : login->user,
                            cases[i].want_user == NULL ? "none" : cases[i].want_user);
    }
    login_list_free(list);
    buf_fini(&error);
}

/* Next hops of a full list are parsed when it is read, and not again for each delivery. */
static void each_login_of_a_full_list_is_found(void **unused)
{
    struct login_list *list;
    struct buf text, error;

    (void)unused;
    buf_init(&text, LOGIN_LIST_FILE_MAX);
    buf_init(&error, 1000);
    for (unsigned i = 0; i < LOGIN_LIST_MAX; i++) {
        assert_true(buf_addf(&text, "[relay%u.example]:submission u%u:p\n", i, i));
    }
    list = login_list_new(buf_slice(&text), &error);
    assert_non_null(list);
    for (unsigned i = 0; i < LOGIN_LIST_MAX; i += 10) {
        char nexthop[50], user[20];

        (void)snprintf(nexthop, sizeof nexthop, "[Relay%u.example]:587", i);
        (void)snprintf(user, sizeof user, "u%u", i);
        assert_string_equal(login_list_find(list, slice_string(nexthop), SLICE("a@b"))->user, user);
    }
    login_list_free(list);
    buf_fini(&text);
    buf_fini(&error);
}

static void a_typo_is_told_with_its_place(void **unused)
{
    static char many[3000];
    const struct {
        const char *text, *want;
    } cases[] = {
        {"[smtp.example:587 a:b\n",
         "1:1: expected a next hop (host, [host] or [host]:port) or a sender (an address or "
         "@DOMAIN)"},
        {"\n  smtp.example user secret\n",
         "2:16: expected USER:PASSWORD, or a sender (an address or @DOMAIN) before it"},
        {"smtp.example\n", "1:13: expected USER:PASSWORD with a user of 1 to 255 bytes"},
        {"smtp.example :b\n", "1:14: expected USER:PASSWORD with a user of 1 to 255 bytes"},
        {"smtp.example a@b\n", "1:14: expected USER:PASSWORD with a user of 1 to 255 bytes"},
        {"smtp.example user:\n",
         "1:19: expected a password of 1 to 1024 bytes without control characters"},
        {"smtp.example user:a\tb\n",
         "1:19: expected a password of 1 to 1024 bytes without control characters"},
        {many, "1:3: expected a password of 1 to 1024 bytes without control characters"},
    };

    (void)unused;
    memset(many, 'x', sizeof many - 1);
    memcpy(many, "h u:", 4);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf error;
        struct login_list *list;

        buf_init(&error, 1000);
        list = login_list_new(slice_string(cases[i].text), &error);
        assert_null(list);
        if (cases[i].text != many) {
            assert_string_equal(buf_cstr(&error), cases[i].want);
        }
        assert_null(strstr(buf_cstr(&error), "secret"));
        assert_null(strstr(buf_cstr(&error), "xxxx"));
        buf_fini(&error);
    }
    {
        struct buf error;

        buf_init(&error, 1000);
        assert_null(login_list_new(slice_of("h u:p\0q\n", 8), &error));
        assert_string_equal(buf_cstr(&error), "1:1: there is a NUL byte in the line");
        buf_fini(&error);
    }
}

UNIT_MAIN(cmocka_unit_test(the_login_that_fits_best_is_found),
          cmocka_unit_test(a_table_of_postfix_is_a_list),
          cmocka_unit_test(each_login_of_a_full_list_is_found),
          cmocka_unit_test(a_typo_is_told_with_its_place))
