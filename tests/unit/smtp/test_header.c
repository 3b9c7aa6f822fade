#include "unit.h"

#include <string.h>

#include "header.h"

static void fields_are_found_with_their_folding(void **unused)
{
    struct slice rest = SLICE("A: one\r\n two\r\nb :x\nC:\r\n\r\nD: body\r\n");
    struct header_field field;
    struct buf out;

    (void)unused;
    buf_init(&out, 100);
    assert_true(header_find(rest, SLICE("a"), &field));
    assert_true(slice_equal(field.value, SLICE(" one\r\n two")));
    assert_true(header_unfold(field.value, &out));
    assert_string_equal(buf_cstr(&out), "one two");
    assert_true(header_find(rest, SLICE("B"), &field));
    assert_true(slice_equal(field.value, SLICE("x")));
    assert_false(header_find(rest, SLICE("D"), &field));
    for (int i = 0; i < 3; i++) {
        assert_true(header_next(&rest, &field));
    }
    assert_true(slice_equal(field.whole, SLICE("C:\r\n")));
    assert_int_equal(field.value.len, 0);
    assert_false(header_next(&rest, &field));
    assert_true(slice_equal(rest, SLICE("\r\nD: body\r\n")));
    buf_fini(&out);
}

static void dates_need_no_clock(void **unused)
{
    static const struct {
        int64_t seconds;
        int offset;
        const char *want;
    } cases[] = {
        {0, 0, "Thu, 1 Jan 1970 00:00:00 +0000"},
        {880127706, -360, "Fri, 21 Nov 1997 09:55:06 -0600"},
        {951782400, 0, "Tue, 29 Feb 2000 00:00:00 +0000"},
        {1709251199, 60, "Fri, 1 Mar 2024 00:59:59 +0100"},
        {4107542400, 0, "Mon, 1 Mar 2100 00:00:00 +0000"},
        {-5, 330, "Thu, 1 Jan 1970 05:29:55 +0530"},
        {-99999, 0, "Thu, 1 Jan 1970 00:00:00 +0000"},
        {253402300799, 0, "Fri, 31 Dec 9999 23:59:59 +0000"},
        {253402300800, 0, "Fri, 31 Dec 9999 23:59:59 +0000"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;

        buf_init(&out, HEADER_DATE_MAX);
        assert_true(header_date((struct wall){cases[i].seconds * US_PER_S}, cases[i].offset, &out));
        assert_string_equal(buf_cstr(&out), cases[i].want);
        buf_fini(&out);
    }
}

static void the_trace_leaves_room_for_the_queue_id(void **unused)
{
    struct header_trace trace = {
        .helo = SLICE("evil)\r\nX: y"),
        .client_ip = SLICE("2001:db8::1"),
        .protocol = header_protocol(false, true, true, false, false),
        .tls = SLICE("TLSv1.3 with cipher X (256/256 bits)"),
        .hostname = SLICE("mx.example"),
        .recipient = SLICE("a@b.example"),
        .time = {880127706 * US_PER_S},
    };
    struct buf before, after;

    (void)unused;
    buf_init(&before, 1000);
    buf_init(&after, 1000);
    assert_true(header_received(&trace, &before, &after));
    assert_string_equal(buf_cstr(&before),
                        "Received: from evil???X: y (unknown [IPv6:2001:db8::1])\r\n"
                        "\t(using TLSv1.3 with cipher X (256/256 bits))\r\n\tby mx.example "
                        "(Sluice) with ESMTPS id ");
    assert_string_equal(buf_cstr(&after),
                        "\r\n\tfor <a@b.example>; Fri, 21 Nov 1997 15:55:06 +0000\r\n");
    buf_clear(&after);
    trace.recipient = SLICE("");
    assert_true(header_received(&trace, &before, &after));
    assert_string_equal(buf_cstr(&after), ";\r\n\tFri, 21 Nov 1997 15:55:06 +0000\r\n");
    buf_fini(&before);
    buf_fini(&after);
}

static void protocols_have_registered_names(void **unused)
{
    (void)unused;
    assert_string_equal(header_protocol(false, false, false, false, false), "SMTP");
    assert_string_equal(header_protocol(false, true, false, false, false), "ESMTP");
    assert_string_equal(header_protocol(false, true, true, false, true), "UTF8SMTPS");
    assert_string_equal(header_protocol(false, true, true, true, false), "ESMTPSA");
    assert_string_equal(header_protocol(false, true, false, true, false), "ESMTPA");
    assert_string_equal(header_protocol(false, true, true, true, true), "UTF8SMTPSA");
    assert_string_equal(header_protocol(true, true, false, false, false), "LMTP");
    assert_string_equal(header_protocol(true, true, true, false, true), "UTF8LMTPS");
}

UNIT_MAIN(cmocka_unit_test(fields_are_found_with_their_folding),
          cmocka_unit_test(dates_need_no_clock),
          cmocka_unit_test(the_trace_leaves_room_for_the_queue_id),
          cmocka_unit_test(protocols_have_registered_names))
