#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "envelope.h"
#include "mem.h"
#include "report.h"

#define LITERAL(text)                                                                              \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct report_rcpt plain_rcpt = {
    .address = LITERAL("a@x.example"),
    .action = REPORT_FAILED,
    .status = {5, 1, 1},
    .remote_mta = LITERAL("mx.x.example"),
    .diagnostic = LITERAL("550 5.1.1 no such user"),
    .text = LITERAL("host mx.x.example[192.0.2.1] said: 550 5.1.1 no such user (in reply to "
                    "RCPT TO command)"),
    .last_attempt = {1000259200 * US_PER_S},
};

static struct report plain_report(const struct report_rcpt *rcpts, size_t count)
{
    return (struct report){
        .kind = REPORT_FAILURE,
        .reporting_mta = SLICE("mta.example"),
        .queue_id = SLICE("4ABC"),
        .arrival = {1000258200 * US_PER_S},
        .sender = SLICE("s@y.example"),
        .message_id = SLICE("4ABD"),
        .now = {1000259201 * US_PER_S},
        .seed = 1,
        .original = SLICE("From: s@y.example\r\nSubject: hello\r\n\r\nThe text.\r\n"),
        .rcpts = rcpts,
        .rcpt_count = count,
    };
}

/*
 * A small reader of such messages, written apart from the builder: it splits at the boundary that
 * the header names, and wants every line within 998 bytes, ended by CRLF, without control
 * characters (but for the returned part).
 */
struct parsed {
    struct slice header;
    struct slice parts[4]; /* header and body of each */
    size_t count;
};

static void check_lines(struct slice text)
{
    while (text.len > 0) {
        struct slice line = slice_cut(&text, '\n');

        assert_true(line.len > 0 && line.ptr[line.len - 1] == '\r' && line.len <= 999);
        for (size_t i = 0; i + 1 < line.len; i++) {
            unsigned char c = (unsigned char)line.ptr[i];

            assert_true((c >= 0x20 && c != 0x7f) || c == '\t');
        }
    }
}

static void parse(struct slice message, struct parsed *p)
{
    const char *end = memmem(message.ptr, message.len, "\r\n\r\n", 4), *at, *next;
    char delimiter[100];
    size_t len;

    memset(p, 0, sizeof(*p));
    assert_non_null(end);
    p->header = slice_of(message.ptr, (size_t)(end + 2 - message.ptr));
    at = memmem(p->header.ptr, p->header.len, "boundary=\"", 10);
    assert_non_null(at);
    len = (size_t)snprintf(delimiter, sizeof(delimiter), "\r\n--%.*s",
                           (int)((char *)memchr(at + 10, '"', 100) - at - 10), at + 10);
    at = memmem(end, message.len - (size_t)(end - message.ptr), delimiter, len);
    assert_non_null(at);
    for (; memcmp(at + len, "--", 2) != 0; at = next) {
        assert_memory_equal(at + len, "\r\n", 2);
        at += len + 2;
        next = memmem(at, message.len - (size_t)(at - message.ptr), delimiter, len);
        assert_non_null(next);
        assert_true(p->count < COUNT(p->parts));
        p->parts[p->count++] = slice_of(at, (size_t)(next - at));
    }
    assert_ptr_equal(at + len + 4, message.ptr + message.len);
    check_lines(p->header);
    for (size_t i = 0; i < p->count && i < 2; i++) {
        /* the CRLF at the end belongs to the delimiter; it was cut with it */
        check_lines(slice_of(p->parts[i].ptr, p->parts[i].len + 2));
    }
}

static bool contains(struct slice in, const char *what)
{
    return memmem(in.ptr, in.len, what, strlen(what)) != NULL;
}

static void assert_contains(struct slice in, const char *what)
{
    if (!contains(in, what)) {
        fail_msg("no '%s' in:\n%.*s", what, SLICE_ARGS(in));
    }
}

static void build(const struct report *r, struct buf *out, struct parsed *p, unsigned want_flags)
{
    unsigned flags = 0;

    buf_clear(out);
    assert_true(report_build(r, out, &flags));
    assert_int_equal(flags, want_flags);
    parse(buf_slice(out), p);
}

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

/* Of a report that has been built. */
static struct slice boundary_of(struct slice text)
{
    static const char mark[] = "boundary=\"";
    const char *at = memmem(text.ptr, text.len, mark, sizeof(mark) - 1);

    assert_non_null(at);
    text = slice_skip(text, (size_t)(at - text.ptr) + sizeof(mark) - 1);
    return slice_of(text.ptr, slice_find(text, '"'));
}

static void the_boundary_avoids_all_that_others_wrote(void **state)
{
    enum { ORIGINAL, ADDRESS, ORCPT, REMOTE, DIAGNOSTIC, TEXT, ID, ENVID, FORM_TEXT, PLACES };
    struct buf first, out, form_text, line;
    (void)state;

    buf_init(&first, 100000);
    buf_init(&out, 100000);
    buf_init(&form_text, 1000);
    buf_init(&line, 1000);
    for (int place = 0; place < PLACES; place++) {
        struct report_rcpt rcpt = plain_rcpt;
        struct report r = plain_report(&rcpt, 1);
        struct report_form form;
        struct slice boundary, s;
        struct parsed p;
        char encoded[100];

        report_form_builtin(&form);
        r.form = place == FORM_TEXT ? &form : NULL;
        buf_clear(&first);
        build(&r, &first, &p, ENVELOPE_REPORT);
        boundary = boundary_of(buf_slice(&first));
        report_form_fini(&form);

        /* The same seed, and a text that holds the very boundary it leads to. */
        buf_clear(&line);
        buf_addf(&line, "--%.*s", SLICE_ARGS(boundary));
        s = buf_slice(&line);
        buf_clear(&form_text);
        buf_addf(&form_text, "SUB x\nbefore\n%.*s\nafter\n", SLICE_ARGS(s));
        report_form_read(buf_slice(&form_text), &form);
        r.form = place == FORM_TEXT ? &form : NULL;
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
        report_form_fini(&form);
    }
    buf_fini(&first);
    buf_fini(&out);
    buf_fini(&form_text);
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
    for (size_t i = 0; i < 2 * COUNT(units); i++) {
        struct report_form form;
        struct report r = plain_report(rcpts, REPORT_RCPTS_MAX);
        struct parsed p;
        struct slice s;
        unsigned flags;

        buf_clear(&text);
        while (buf_len(&text) < 20000) {
            buf_add_string(&text, units[i / 2]);
        }
        s = buf_slice(&text);
        report_form_read(s, &form);
        r.form = i % 2 == 0 ? &form : NULL;
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

/* ---- with a form ---------------------------------------------------------------------------- */

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
    report_form_read(slice_string(site_form), &form);
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
    report_form_read(slice_string(site_form), &form);
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
    report_form_read(SLICE("HDR X-Note: gr\xc3\xbc\xc3\x9f\x65\nSUB gr\xc3\xbc\xc3\x9f\x65\n"
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

UNIT_MAIN(cmocka_unit_test(a_failure_report_has_its_three_parts),
          cmocka_unit_test(the_header_alone_or_nothing_may_go_back),
          cmocka_unit_test(actions_statuses_and_dates_fit_the_kind),
          cmocka_unit_test(an_original_recipient_is_decoded),
          cmocka_unit_test(nothing_from_outside_starts_a_line),
          cmocka_unit_test(utf8_addresses_make_a_global_report),
          cmocka_unit_test(without_utf8_addresses_all_of_ours_is_ascii),
          cmocka_unit_test(the_boundary_avoids_all_that_others_wrote),
          cmocka_unit_test(long_words_and_texts_stay_within_the_limits),
          cmocka_unit_test(a_full_buffer_is_told), cmocka_unit_test(a_form_gives_zmailers_layout),
          cmocka_unit_test(a_double_fault_goes_to_nobody_by_name),
          cmocka_unit_test(a_forms_letters_set_the_encoding))
