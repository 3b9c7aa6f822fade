#include "unit.h"

#include <string.h>

#include "keys.h"

static struct conf *conf_of(const char *text)
{
    struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "c", "/d", &world, &problems);

    conf_problems_fini(&problems);
    assert_non_null(conf);
    return conf;
}

static void an_address_is_looked_for_by_its_keys_the_closest_first(void **unused)
{
    static const struct {
        enum keys_form form;
        const char *address, *want;
    } cases[] = {
        {KEYS_ACCESS, "User+Ext@A.B.test",
         "user+ext@a.b.test user@a.b.test a.b.test .b.test b.test .test test user+ext@ user@ "},
        {KEYS_ACCESS, "user@test", "user@test test user@ "},
        {KEYS_ACCESS, "user", "user@ "},
        {KEYS_ACCESS, "", "<> "},
        {KEYS_ACCESS, "\"a@b\"@test", "\"a@b\"@test test \"a@b\"@ "},
        {KEYS_RECIPIENT, "User+Ext@A.test", "user+ext@a.test user@a.test @a.test "},
        {KEYS_RECIPIENT, "user+ext@Local.test",
         "user+ext@local.test user@local.test user+ext user @local.test "},
        {KEYS_RECIPIENT, "postmaster", "postmaster "},
        {KEYS_RECIPIENT, "+x@a.test", "+x@a.test @a.test "},
        {KEYS_RECIPIENT, "", ""},
        {KEYS_RECIPIENT, "j\xc3\xbcrg", "j\xc3\xbcrg "},
        {KEYS_RECIPIENT, "j\xc3\xbcrg@\xc3\xbc.test", "j\xc3\xbcrg@xn--tda.test @xn--tda.test "},
        {KEYS_ACCESS, "j\xc3\xbcrg@\xc3\xbc.test",
         "j\xc3\xbcrg@xn--tda.test xn--tda.test .test test j\xc3\xbcrg@ "},
    };
    struct conf *conf = conf_of("local_domains = local.test\nrecipient_delimiter = +\n");

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct keys keys;
        struct slice key;
        struct buf got;

        buf_init(&got, 10000);
        keys_init(&keys, cases[i].form, conf, slice_string(cases[i].address));
        while (keys_next(&keys, &key)) {
            (void)buf_addf(&got, "%.*s ", SLICE_ARGS(key));
        }
        assert_string_equal(buf_cstr(&got), cases[i].want);
        buf_fini(&got);
    }
    conf_free(conf);
}

/* The longest address that there can be, with as many labels as it can have. */
static void the_longest_address_fits(void **unused)
{
    struct conf *conf = conf_of("local_domains = x\nrecipient_delimiter = +\n");
    char address[ADDRESS_MAX];
    struct keys keys;
    struct slice key;
    size_t count = 0;

    (void)unused;
    for (size_t i = 0; i < sizeof address; i++) {
        address[i] = i % 2 == 0 ? 'a' : '.';
    }
    address[61] = '@';
    address[3] = '+';
    keys_init(&keys, KEYS_ACCESS, conf, slice_of(address, sizeof address));
    while (keys_next(&keys, &key)) {
        assert_in_range(key.len, 1, ADDRESS_MAX + 1);
        count++;
    }
    assert_in_range(count, 200, 1000);
    conf_free(conf);
}

UNIT_MAIN(cmocka_unit_test(an_address_is_looked_for_by_its_keys_the_closest_first),
          cmocka_unit_test(the_longest_address_fits))
