#include "zmailer_form.h"

#include "unit.h"

#include <string.h>

#include "envelope.h"
#include "mem.h"
#include "report.h"
#include "report_reader.h"

static const char site_form[] = "HDR From: The Post Office <postmaster>\n"
                                "HDR Sender: mailer-daemon\n"
                                "SUB Returned mail: see the transcript\n"
                                "ADR Bcc: <archive@x.example> (a copy)\n"
                                "This is a collection of reports.\n"
                                "\n"
                                "Help: help@x.example\n";

static const struct report_rcpt agents_rcpts[] = {
    {.address = LITERAL("u1@x.example"),
     .orcpt = LITERAL("rfc822;o1+20y@x.example"),
     .action = REPORT_FAILED,
     .status = {5, 1, 1},
     .status_words = LITERAL("5.1.1 (no such user)"),
     .remote_type = LITERAL("dns"),
     .remote_mta = LITERAL("mx.example"),
     .diagnostic_type = LITERAL("x-local"),
     .diagnostic = LITERAL("500 (no such user)"),
     .agent = LITERAL("smtp[4711]"),
     .control = LITERAL("smtp x.example u1@x.example 65534"),
     .text = LITERAL("<- RCPT To:<u1@x.example>\r-> 550 no such user\r"),
     .last_attempt = {1000259200 * US_PER_S}},
    {.address = LITERAL("u2"), .action = REPORT_DELIVERED, .status = {2, 0, 0}},
    {.address = LITERAL("u3@x.example"),
     .action = REPORT_DELAYED,
     .status = {4, 4, 1},
     .retry_until = {1000259200 * US_PER_S}},
    {.address = LITERAL("u4@x.example"), .action = REPORT_FAILED, .status = {5, 4, 7}},
};

static void a_form_gives_zmailers_layout(void **state)
{
    struct report r = plain_report(agents_rcpts, COUNT(agents_rcpts));
    struct report_form form;
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 200000);
    zmailer_layout.read(slice_string(site_form), &form);
    r.form = &form;
    r.envid = SLICE("EID+2B1");
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_int_equal(p.count, 3);
    assert_contains(p.header, "From: The Post Office <postmaster>\r\n");
    assert_contains(p.header, "Sender: mailer-daemon\r\n");
    assert_contains(p.header, "Bcc: <archive@x.example> (a copy)\r\n");
    assert_contains(p.header, "Subject: Returned mail: see the transcript "
                              "[FAILED(2),DELAYED(1),DELIVERED-OK(1)]\r\n");
    assert_false(contains(p.header, "MAILER-DAEMON"));
    assert_contains(p.header, "To: s@y.example\r\n");
    assert_contains(p.parts[0], "\r\n\r\nThis is a collection of reports.\r\n\r\n"
                                "Help: help@x.example\r\n"
                                "Reporting-MTA: dns; mta.example\r\n"
                                "Return-Path: <s@y.example>\r\n"
                                "Original-Envelope-Id: EID+1\r\n"
                                "Arrival-Date: Wed, 12 Sep 2001 01:30:00 +0000\r\n"
                                "Local-Spool-ID: 4ABC\r\n"
                                "\r\n"
                                "FAILED:\r\n"
                                "  Original Recipient:\r\n"
                                "      rfc822;o1 y@x.example\r\n"
                                "  Final Recipient:\r\n"
                                "      rfc822; u1@x.example\r\n"
                                "  Action:\r\n"
                                "      failed\r\n"
                                "  Status:\r\n"
                                "      5.1.1 (no such user)\r\n"
                                "  Remote-MTA:\r\n"
                                "      dns; mx.example\r\n"
                                "  Last-Attempt-Date:\r\n"
                                "      Wed, 12 Sep 2001 01:46:40 +0000\r\n"
                                "  X-ZTAID:\r\n"
                                "      smtp[4711]\r\n"
                                "  Diagnostic-Code:\r\n"
                                "      x-local; 500 (no such user)\r\n"
                                "\r\n"
                                "  Control data:\r\n"
                                "      smtp x.example u1@x.example 65534\r\n"
                                "  Diagnostic texts:\r\n"
                                "      <- RCPT To:<u1@x.example>\r\n"
                                "      -> 550 no such user\r\n"
                                "\r\n"
                                "DELIVERED (successfully):\r\n"
                                "  Final Recipient:\r\n"
                                "      X-LOCAL; u2\r\n");
    assert_contains(p.parts[0], "DELAYED (still in queue):\r\n");
    assert_contains(p.parts[1], "Content-Type: message/delivery-status\r\n\r\n"
                                "Original-Envelope-Id: EID+1\r\n"
                                "Reporting-MTA: dns; mta.example\r\n"
                                "Local-Spool-ID: 4ABC\r\n"
                                "Arrival-Date: Wed, 12 Sep 2001 01:30:00 +0000\r\n"
                                "\r\n"
                                "Original-Recipient: rfc822;o1 y@x.example\r\n"
                                "Final-Recipient: rfc822; u1@x.example\r\n"
                                "Action: failed\r\n"
                                "Status: 5.1.1\r\n"
                                "Remote-MTA: dns; mx.example\r\n"
                                "Diagnostic-Code: x-local; 500 (no such user)\r\n"
                                "Last-Attempt-Date: Wed, 12 Sep 2001 01:46:40 +0000\r\n"
                                "\r\n"
                                "Final-Recipient: X-LOCAL; u2\r\n"
                                "Action: delivered\r\n");
    report_form_fini(&form);
    buf_fini(&out);
}

static void a_double_fault_goes_to_nobody_by_name(void **state)
{
    struct report r = plain_report(agents_rcpts, 1);
    struct report_form form;
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 200000);
    zmailer_layout.read(slice_string(site_form), &form);
    r.form = &form;
    r.sender = SLICE("");
    r.double_fault = true;
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_contains(p.header, "To: dummy:; (error trapped source)\r\n");
    assert_contains(p.header,
                    "Subject: Double-fault: Returned mail: see the transcript [FAILED(1)]\r\n");
    assert_contains(p.parts[0], "Return-Path: <>\r\n");
    report_form_fini(&form);
    buf_fini(&out);
}

/* Whoever edits the form may write Latin-1, UTF-8, or what a program left there. */
static void a_forms_letters_set_the_encoding(void **state)
{
    struct report r = plain_report(agents_rcpts, 1);
    struct report_form form;
    struct parsed p;
    struct buf out;
    (void)state;

    buf_init(&out, 200000);
    r.form = &form;
    zmailer_layout.read(SLICE("HDR X-Note: gr\xc3\xbc\xc3\x9f\x65\nSUB gr\xc3\xbc\xc3\x9f\x65\n"
                              "gr\xc3\xbc\xc3\x9f\x65\ngr\xfc\xdf\x65\n"),
                        &form);
    build(&r, &out, &p, ENVELOPE_REPORT | ENVELOPE_8BIT);
    assert_contains(p.header, "Content-Transfer-Encoding: 8bit\r\n");
    assert_contains(p.header, "X-Note: gr????e\r\n");
    assert_contains(p.header, "Subject: gr????e [FAILED(1)]\r\n");
    assert_contains(p.parts[0], "charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n"
                                "gr\xc3\xbc\xc3\x9f\x65\r\ngr??e\r\n");
    report_form_fini(&form);
    buf_fini(&out);
}

static void the_boundary_avoids_what_a_form_says(void **state)
{
    struct buf first, out, form_text;
    struct report r = plain_report(&plain_rcpt, 1);
    struct report_form form;
    struct slice boundary;
    struct parsed p;

    (void)state;
    buf_init(&first, 100000);
    buf_init(&out, 100000);
    buf_init(&form_text, 1000);
    zmailer_layout.builtin(&form);
    r.form = &form;
    build(&r, &first, &p, ENVELOPE_REPORT);
    boundary = boundary_of(buf_slice(&first));
    report_form_fini(&form);
    /* The same seed, and a text that holds the very boundary it leads to. */
    buf_addf(&form_text, "SUB x\nbefore\n--%.*s\nafter\n", SLICE_ARGS(boundary));
    zmailer_layout.read(buf_slice(&form_text), &form);
    build(&r, &out, &p, ENVELOPE_REPORT);
    assert_false(slice_equal(boundary_of(buf_slice(&out)), boundary));
    assert_int_equal(p.count, 3);
    report_form_fini(&form);
    buf_fini(&first);
    buf_fini(&out);
    buf_fini(&form_text);
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
        struct report_form form;
        struct report r = plain_report(rcpts, REPORT_RCPTS_MAX);
        struct parsed p;
        struct slice s;
        unsigned flags;

        buf_clear(&text);
        while (buf_len(&text) < 20000) {
            buf_add_string(&text, units[i]);
        }
        s = buf_slice(&text);
        zmailer_layout.read(s, &form);
        r.form = &form;
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
        report_form_fini(&form);
    }
    mem_free(rcpts);
    buf_fini(&text);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(a_form_gives_zmailers_layout),
          cmocka_unit_test(a_double_fault_goes_to_nobody_by_name),
          cmocka_unit_test(a_forms_letters_set_the_encoding),
          cmocka_unit_test(the_boundary_avoids_what_a_form_says),
          cmocka_unit_test(long_words_and_texts_stay_within_the_limits))
