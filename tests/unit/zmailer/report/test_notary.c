#include "notary.h"

#include "unit.h"

#include <string.h>

#define TEXT_MAX 1000

static void expect(struct slice got, const char *want)
{
    assert_int_equal(got.len, strlen(want));
    assert_memory_equal(got.ptr, want, got.len);
}

static void fields_are_found_whatever_is_missing(void **state)
{
    static const struct {
        const char *text, *address, *status, *host, *agent;
    } cases[] = {
        {"u0\1delayed\1"
         "4.2.0\1x-local; 4xx (test)\1mx.example\1testta[7234]",
         "u0", "4.2.0", "mx.example", "testta[7234]"},
        {"\"odd user\"@x\1failed\1"
         "5.1.1 (no such user)\1smtp; 550 (unknown)\1"
         "dns; oven.example (192.0.2.1)\1smtp[4711]",
         "\"odd user\"@x", "5.1.1", "oven.example", "smtp[4711]"},
        {"u1\1failed\1"
         "5.7.0 (Administrative deletion command)\1x-local; 500 (gone)\1",
         "u1", "5.7.0", "", ""},
        {"u1\1failed", "u1", "", "", ""},
        {"", "", "", "", ""},
        {"\1\1\1\1\1\1\1", "", "", "", "\1\1"},
        {"a\1b\1"
         "5.1.1x\1c\1dns;\1smtp[99999999999]",
         "a", "", "", "smtp[99999999999]"},
        {"a\1b\1"
         "2.0.0\1c\1smtp;h\1smtp[7",
         "a", "2.0.0", "h", "smtp[7"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct notary n;

        notary_parse(slice_string(cases[i].text), &n);
        expect(n.address, cases[i].address);
        expect(notary_status(&n), cases[i].status);
        expect(notary_host(&n), cases[i].host);
        expect(n.agent, cases[i].agent);
    }
}

static void what_is_put_is_read_back(void **state)
{
    struct notary n = {.address = SLICE("u@x"),
                       .action = SLICE("failed"),
                       .status = SLICE("5.4.7 (unspecified timeout failure)"),
                       .diagnostic = SLICE("smtp; 500 (Expired after 3 days)"),
                       .host = SLICE("")},
                  back;
    struct buf text;

    (void)state;
    buf_init(&text, TEXT_MAX);
    notary_put(&text, &n);
    expect(buf_slice(&text), "u@x\1failed\1"
                             "5.4.7 (unspecified timeout failure)\1"
                             "smtp; 500 (Expired after 3 days)\1");
    n.agent = SLICE("smtp[1]");
    buf_clear(&text);
    notary_put(&text, &n);
    notary_parse(buf_slice(&text), &back);
    assert_true(slice_equal(back.diagnostic, n.diagnostic));
    assert_true(slice_equal(back.agent, n.agent));
    buf_fini(&text);
}

static void no_field_ends_another(void **state)
{
    struct notary n = {.address = SLICE("a\tb\nc\1d")}, back;
    struct buf text;

    (void)state;
    buf_init(&text, TEXT_MAX);
    notary_put(&text, &n);
    notary_parse(buf_slice(&text), &back);
    expect(back.address, "a b c d");
    expect(back.action, "");
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found_whatever_is_missing),
        cmocka_unit_test(what_is_put_is_read_back),
        cmocka_unit_test(no_field_ends_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
