#include "unit.h"

#include "router_file.h"

static void an_envelope_says_all_that_is_known(void **state)
{
    const struct router_envelope e = {
        .program = "hold",
        .host = "mill.example",
        .via = "suspension",
        .eight_bit = true,
        .sender = SLICE("miller@mill.example"),
        .envid = SLICE("QQ+2B314"),
        .ret = CONTROL_RET_HEADERS,
    };
    struct buf out;

    (void)state;
    buf_init(&out, 1000);
    assert_true(router_file_begin(&out, &e));
    assert_true(router_file_rcpt(&out, SLICE("\"odd user\"@oven.example"), SLICE("NOTIFY=NEVER")));
    assert_true(router_file_rcpt(&out, SLICE("baker"), SLICE("")));
    router_file_end(&out);
    assert_string_equal(buf_cstr(&out), "rcvdfrom STDIN (\"hold\"@mill.example)\n"
                                        "via suspension\n"
                                        "bodytype 8BITMIME\n"
                                        "from <miller@mill.example>\n"
                                        "envid QQ+2B314\n"
                                        "notaryret HDRS\n"
                                        "todsn NOTIFY=NEVER\n"
                                        "to <\"odd user\"@oven.example>\n"
                                        "to <baker>\n"
                                        "env-end\n");
    buf_fini(&out);
}

static void a_report_is_from_the_channel_error(void **state)
{
    const struct router_envelope e = {
        .program = "errormail", .host = "mill.example", .sender = SLICE(""), .envid = SLICE("")};
    struct buf out;

    (void)state;
    buf_init(&out, 1000);
    assert_true(router_file_begin(&out, &e));
    assert_string_equal(buf_cstr(&out), "rcvdfrom STDIN (\"errormail\"@mill.example)\n"
                                        "channel error\n"
                                        "errormsg\n");
    buf_fini(&out);
}

static void nothing_makes_a_line_of_its_own(void **state)
{
    const struct slice bad[] = {SLICE("a\nto <root>"), slice_of("a\0b", 3), SLICE("\n")};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct router_envelope from = {
            .program = "x", .host = "y", .sender = bad[i], .envid = SLICE("")};
        struct router_envelope envid = {
            .program = "x", .host = "y", .sender = SLICE("a"), .envid = bad[i]};
        struct buf out;

        buf_init(&out, 1000);
        assert_false(router_file_begin(&out, &from));
        assert_false(router_file_begin(&out, &envid));
        assert_false(router_file_rcpt(&out, bad[i], SLICE("")));
        assert_false(router_file_rcpt(&out, SLICE("a"), bad[i]));
        buf_fini(&out);
    }
}

UNIT_MAIN(cmocka_unit_test(an_envelope_says_all_that_is_known),
          cmocka_unit_test(a_report_is_from_the_channel_error),
          cmocka_unit_test(nothing_makes_a_line_of_its_own))
