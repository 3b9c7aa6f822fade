#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "envelope.h"
#include "mem.h"
#include "report.h"
#include "report_reader.h"

static void a_failure_report_has_its_three_parts(void **state)
{
    struct report r = plain_report(&plain_rcpt, 1);
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    r.envid = SLICE("id+2B1");
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_int_equal(p.count, 3);
    assert_contains(p.header, "From: Mail Delivery System <MAILER-DAEMON@mta.example>\r\n");
    assert_contains(p.header, "To: s@y.example\r\n");
    assert_contains(p.header, "Auto-Submitted: auto-replied\r\n");
    assert_contains(p.header, "Message-ID: <4ABD@mta.example>\r\n");
    assert_contains(p.header, "Date: Wed, 12 Sep 2001 01:46:41 +0000\r\n");
    assert_contains(p.header, "report-type=delivery-status;");
    assert_contains(p.parts[0], "Content-Type: text/plain; charset=us-ascii\r\n");
    assert_contains(p.parts[0], "<a@x.example>\r\n    Not delivered.\r\n"
                                "    host mx.x.example[192.0.2.1] said: 550 5.1.1 no such user "
                                "(in reply to\r\n    RCPT TO command)\r\n");
    assert_contains(p.parts[1], "Content-Type: message/delivery-status\r\n\r\n"
                                "Original-Envelope-Id: id+1\r\n"
                                "Reporting-MTA: dns; mta.example\r\n"
                                "X-Sluice-Queue-ID: 4ABC\r\n"
                                "X-Sluice-Sender: rfc822; s@y.example\r\n"
                                "Arrival-Date: Wed, 12 Sep 2001 01:30:00 +0000\r\n"
                                "\r\n"
                                "Final-Recipient: rfc822; a@x.example\r\n"
                                "Action: failed\r\n"
                                "Status: 5.1.1\r\n"
                                "Remote-MTA: dns; mx.x.example\r\n"
                                "Diagnostic-Code: smtp; 550 5.1.1 no such user\r\n"
                                "Last-Attempt-Date: Wed, 12 Sep 2001 01:46:40 +0000\r\n");
    assert_contains(p.parts[2], "Content-Type: message/rfc822\r\n\r\n"
                                "From: s@y.example\r\nSubject: hello\r\n\r\nThe text.\r\n");
    buf_fini(&out);
}

static void the_header_alone_or_nothing_may_go_back(void **state)
{
    struct report r = plain_report(&plain_rcpt, 1);
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    r.headers_only = true;
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_int_equal(p.count, 3);
    assert_contains(p.parts[2], "Content-Type: text/rfc822-headers\r\n\r\n"
                                "From: s@y.example\r\nSubject: hello\r\n");
    assert_false(contains(p.parts[2], "The text"));
    r.original = slice_of("", 0);
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_int_equal(p.count, 2);
    assert_false(contains(p.parts[0], "at the end of this report"));
    buf_fini(&out);
}

static void actions_statuses_and_dates_fit_the_kind(void **state)
{
    static const struct {
        enum report_kind kind;
        enum report_action action;
        struct status status;
        const char *want;
        const char *want_subject;
    } table[] = {
        {REPORT_FAILURE,
         REPORT_FAILED,
         {5, 1, 1},
         "Action: failed\r\nStatus: 5.1.1\r\n",
         "Subject: Undeliverable mail"},
        {REPORT_FAILURE,
         REPORT_FAILED,
         {4, 4, 7},
         "Action: failed\r\nStatus: 4.4.7\r\n",
         "Subject: Undeliverable mail"},
        {REPORT_FAILURE,
         REPORT_FAILED,
         {2, 0, 0},
         "Action: failed\r\nStatus: 5.0.0\r\n",
         "Subject: Undeliverable mail"},
        {REPORT_DELAY,
         REPORT_DELAYED,
         {4, 4, 1},
         "Action: delayed\r\nStatus: 4.4.1\r\n",
         "Subject: Delayed mail"},
        {REPORT_DELAY,
         REPORT_DELAYED,
         {0, 0, 0},
         "Action: delayed\r\nStatus: 4.0.0\r\n",
         "Subject: Delayed mail"},
        {REPORT_SUCCESS,
         REPORT_DELIVERED,
         {2, 1, 5},
         "Action: delivered\r\nStatus: 2.1.5\r\n",
         "Subject: Delivery report"},
        {REPORT_SUCCESS,
         REPORT_RELAYED,
         {2, 0, 0},
         "Action: relayed\r\nStatus: 2.0.0\r\n",
         "Subject: Delivery report"},
        {REPORT_SUCCESS,
         REPORT_EXPANDED,
         {5, 0, 0},
         "Action: expanded\r\nStatus: 2.0.0\r\n",
         "Subject: Delivery report"},
    };
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct report_rcpt rcpt = plain_rcpt;
        struct report r = plain_report(&rcpt, 1);
        struct parsed p;

        r.kind = table[i].kind;
        r.utc_offset_minutes = 60;
        rcpt.action = table[i].action;
        rcpt.status = table[i].status;
        rcpt.retry_until = (struct wall){1000262800 * US_PER_S};
        build(&r, &out, &p, ENVELOPE_REPORT);
        assert_contains(p.parts[1], table[i].want);
        assert_contains(p.header, table[i].want_subject);
        assert_int_equal(
            contains(p.parts[1], "Will-Retry-Until: Wed, 12 Sep 2001 03:46:40 +0100\r\n"),
            table[i].action == REPORT_DELAYED);
        assert_int_equal(contains(p.parts[0], "until Wed, 12 Sep 2001 03:46:40 +0100.\r\n"),
                         table[i].action == REPORT_DELAYED);
    }
    buf_fini(&out);
}

static void an_original_recipient_is_decoded(void **state)
{
    static const struct {
        const char *orcpt;
        const char *want; /* NULL: no field */
    } table[] = {
        {"rfc822;b+2Bc@z", "Original-Recipient: rfc822;b+c@z\r\nFinal"},
        {"RFC822;b+0D+0AX-Evil:+20y", "Original-Recipient: RFC822;b??X-Evil: y\r\nFinal"},
        {"utf-8;b\\x{FC}@z", "Original-Recipient: utf-8;b\\x{FC}@z\r\nFinal"},
        {"rfc822;b+C3+BC", "Original-Recipient: rfc822;b??\r\nFinal"},
        {"rfc822", NULL},
        {"rfc822;", NULL},
        {";x", NULL},
        {"a\r\nb;x", NULL},
    };
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct report_rcpt rcpt = plain_rcpt;
        struct report r = plain_report(&rcpt, 1);
        struct parsed p;

        rcpt.orcpt = slice_string(table[i].orcpt);
        build(&r, &out, &p, ENVELOPE_REPORT);
        if (table[i].want != NULL) {
            assert_contains(p.parts[1], table[i].want);
        } else {
            assert_false(contains(p.parts[1], "Original-Recipient"));
        }
    }
    buf_fini(&out);
}

static void nothing_from_outside_starts_a_line(void **state)
{
#define EVIL "x\r\nEvil: yes\r\n\r\n--=_\r\n\x01\x7f\xff"
    struct report_rcpt rcpt = {
        .address = SLICE(EVIL),
        .orcpt = SLICE("rfc822;" EVIL),
        .action = REPORT_FAILED,
        .status = {5, 0, 0},
        .remote_mta = SLICE(EVIL),
        .diagnostic = SLICE(EVIL),
        .text = SLICE(EVIL),
    };
    struct report r = plain_report(&rcpt, 1);
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    r.reporting_mta = r.queue_id = r.sender = r.message_id = SLICE(EVIL);
    r.envid = SLICE("x+0D+0AEvil:+20yes");
    build(&r, &out, &p, ENVELOPE_REPORT | ENVELOPE_SMTPUTF8 | ENVELOPE_8BIT);
    assert_int_equal(p.count, 3);
    assert_false(contains(buf_slice(&out), "\nEvil"));
    assert_false(contains(buf_slice(&out), "\xff"));
    buf_fini(&out);
}

static void utf8_addresses_make_a_global_report(void **state)
{
    struct report_rcpt rcpt = plain_rcpt;
    struct report r = plain_report(&rcpt, 1);
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    rcpt.address = SLICE("\xc3\xbc@x.example");
    rcpt.diagnostic = SLICE("550 unbekannt: \xc3\xbc");
    r.original = SLICE("Subject: gr\xc3\xbc\xc3\x9f\x65\r\n\r\ntext\r\n");
    build(&r, &out, &p, ENVELOPE_REPORT | ENVELOPE_SMTPUTF8 | ENVELOPE_8BIT);
    assert_contains(p.header, "report-type=global-delivery-status;");
    assert_contains(p.header, "Content-Transfer-Encoding: 8bit\r\n");
    assert_contains(p.parts[0], "charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n");
    assert_contains(p.parts[0], "<\xc3\xbc@x.example>\r\n");
    assert_contains(p.parts[1], "Content-Type: message/global-delivery-status\r\n");
    assert_contains(p.parts[1], "Final-Recipient: utf-8; \xc3\xbc@x.example\r\n");
    assert_contains(p.parts[1], "Diagnostic-Code: smtp; 550 unbekannt: \xc3\xbc\r\n");
    assert_contains(p.parts[2], "Content-Type: message/global\r\n"
                                "Content-Transfer-Encoding: 8bit\r\n\r\n");
    r.headers_only = true;
    build(&r, &out, &p, ENVELOPE_REPORT | ENVELOPE_SMTPUTF8 | ENVELOPE_8BIT);
    assert_contains(p.parts[2], "Content-Type: message/global-headers\r\n");
    buf_fini(&out);
}

static void without_utf8_addresses_all_of_ours_is_ascii(void **state)
{
    struct report_rcpt rcpt = plain_rcpt;
    struct report r = plain_report(&rcpt, 1);
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 100000);
    rcpt.diagnostic = rcpt.text = SLICE("550 unbekannt: \xc3\xbc");
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_contains(p.parts[1], "Diagnostic-Code: smtp; 550 unbekannt: ??\r\n");
    r.original = SLICE("Subject: x\r\n\r\ngr\xfc\xdf\x65\r\n");
    build(&r, &out, &p, ENVELOPE_REPORT | ENVELOPE_8BIT);
    assert_contains(p.header, "Content-Transfer-Encoding: 8bit\r\n");
    assert_contains(p.parts[2], "Content-Type: message/rfc822\r\n"
                                "Content-Transfer-Encoding: 8bit\r\n\r\nSubject");
    assert_contains(p.parts[2], "gr\xfc\xdf\x65\r\n");
    r.headers_only = true;
    build(&r, &out, &p, ENVELOPE_REPORT);
    buf_fini(&out);
}

static void the_boundary_avoids_all_that_others_wrote(void **state)
{
    enum { ORIGINAL, ADDRESS, ORCPT, REMOTE, DIAGNOSTIC, TEXT, ID, ENVID, PLACES };
    struct buf first, out, line;
    (void)state;

    buf_init(&first, 100000);
    buf_init(&out, 100000);
    buf_init(&line, 1000);
    for (int place = 0; place < PLACES; place++) {
        struct report_rcpt rcpt = plain_rcpt;
        struct report r = plain_report(&rcpt, 1);
        struct slice boundary, s;
        struct parsed p;
        char encoded[100];

        buf_clear(&first);
        build(&r, &first, &p, ENVELOPE_REPORT);
        boundary = boundary_of(buf_slice(&first));

        /* The same seed, and a text that holds the very boundary it leads to. */
        buf_clear(&line);
        buf_addf(&line, "--%.*s", SLICE_ARGS(boundary));
        s = buf_slice(&line);
        r.original = place == ORIGINAL ? buf_slice(&first) : r.original;
        rcpt.address = place == ADDRESS ? s : rcpt.address;
        rcpt.remote_mta = place == REMOTE ? s : rcpt.remote_mta;
        rcpt.diagnostic = place == DIAGNOSTIC ? s : rcpt.diagnostic;
        rcpt.text = place == TEXT ? s : rcpt.text;
        r.queue_id = place == ID ? s : r.queue_id;
        buf_clear(&out);
        /* '=' as xtext: it comes to light when it is decoded. */
        (void)snprintf(encoded, sizeof encoded, "%s--+3D%.*s", place == ORCPT ? "rfc822;" : "",
                       (int)boundary.len - 1, boundary.ptr + 1);
        rcpt.orcpt = place == ORCPT ? slice_string(encoded) : rcpt.orcpt;
        r.envid = place == ENVID ? slice_string(encoded) : r.envid;
        build(&r, &out, &p, ENVELOPE_REPORT);
        s = boundary_of(buf_slice(&out));
        assert_false(slice_equal(s, boundary));
        assert_int_equal(p.count, r.original.len > 0 ? 3 : 2);
    }
    buf_fini(&first);
    buf_fini(&out);
    buf_fini(&line);
}

static void long_words_and_texts_stay_within_the_limits(void **state)
{
    static const char *const units[] = {"x",  "word ", "\xe2\x82\xac",
                                        "  ", "a ",    "thirty-nine-letters-so-that-two-do-not-f "};
    struct buf text, out;
    struct report_rcpt *rcpts = mem_array(REPORT_RCPTS_MAX, sizeof(*rcpts));
    (void)state;

    buf_init(&text, 100000);
    buf_init(&out, 2 * REPORT_FRAME_MAX + REPORT_RCPTS_MAX * REPORT_PER_RCPT_MAX);
    for (size_t i = 0; i < COUNT(units); i++) {
        struct report r = plain_report(rcpts, REPORT_RCPTS_MAX);
        struct parsed p;
        struct slice s;
        unsigned flags;

        buf_clear(&text);
        while (buf_len(&text) < 20000) {
            buf_add_string(&text, units[i]);
        }
        s = buf_slice(&text);
        for (size_t k = 0; k < REPORT_RCPTS_MAX; k++) {
            rcpts[k] = (struct report_rcpt){.address = s,
                                            .orcpt = slice_of("rfc822;xxx", 10),
                                            .action = k % 5,
                                            .status = {5, 999, 999},
                                            .remote_mta = s,
                                            .diagnostic = s,
                                            .text = s,
                                            .last_attempt = {1000259200 * US_PER_S},
                                            .retry_until = {1000259200 * US_PER_S},
                                            .status_words = s,
                                            .agent = s,
                                            .control = s};
        }
        r.reporting_mta = r.queue_id = r.message_id = s;
        buf_clear(&out);
        assert_true(report_build(&r, &out, &flags));
        assert_true(buf_len(&out) <=
                    REPORT_FRAME_MAX + REPORT_RCPTS_MAX * REPORT_PER_RCPT_MAX + r.original.len);
        parse(buf_slice(&out), &p);
    }
    mem_free(rcpts);
    buf_fini(&text);
    buf_fini(&out);
}

static void a_full_buffer_is_told(void **state)
{
    struct report r = plain_report(&plain_rcpt, 1);
    unsigned flags = 77;
    struct buf out;
    size_t len;
    (void)state;

    buf_init(&out, 100000);
    assert_true(report_build(&r, &out, &flags));
    len = buf_len(&out);
    buf_fini(&out);
    for (size_t limit = 0; limit <= len; limit++) {
        flags = 77;
        buf_init(&out, limit);
        assert_int_equal(report_build(&r, &out, &flags), limit == len);
        assert_int_equal(flags, limit == len ? ENVELOPE_REPORT : 77);
        buf_fini(&out);
    }
}

UNIT_MAIN(cmocka_unit_test(a_failure_report_has_its_three_parts),
          cmocka_unit_test(the_header_alone_or_nothing_may_go_back),
          cmocka_unit_test(actions_statuses_and_dates_fit_the_kind),
          cmocka_unit_test(an_original_recipient_is_decoded),
          cmocka_unit_test(nothing_from_outside_starts_a_line),
          cmocka_unit_test(utf8_addresses_make_a_global_report),
          cmocka_unit_test(without_utf8_addresses_all_of_ours_is_ascii),
          cmocka_unit_test(the_boundary_avoids_all_that_others_wrote),
          cmocka_unit_test(long_words_and_texts_stay_within_the_limits),
          cmocka_unit_test(a_full_buffer_is_told))
