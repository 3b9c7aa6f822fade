#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "zmailer_form.h"

/* Read `text` and tell what came of it: "subject|headers|text|copy,copy," */
static const char *told(struct slice text)
{
    static char out[200000];
    struct report_form form;
    int len;

    zmailer_layout.read(text, &form);
    assert_false(form.headers.failed);
    assert_false(form.text.failed);
    len = snprintf(out, sizeof out, "%s|%.*s|%.*s|", form.subject,
                   SLICE_ARGS(buf_slice(&form.headers)), SLICE_ARGS(buf_slice(&form.text)));
    for (size_t i = 0; i < form.copy_count; i++) {
        len += snprintf(out + len, sizeof out - (size_t)len, "%s,", form.copies[i]);
    }
    report_form_fini(&form);
    return out;
}

static void a_form_is_read_by_its_words(void **state)
{
    static const struct {
        const char *form, *want;
    } table[] = {
        {"", "|||"},
        {"text", "||text\r\n|"},
        {"a\n\nb\r\n", "||a\r\n\r\nb\r\n|"},
        {"SUB one\nSUB  two \n", "two|||"},
        {"HDR X-A: 1\nHDR   Sender:\tm\n", "|X-A: 1\r\nSender: m\r\n||"},
        {"ADR Bcc: <a@x> (me)\nADR Cc: b@x\n", "|Bcc: <a@x> (me)\r\nCc: b@x\r\n||a@x,b@x,"},
        /* an address alone is no line of a header, but gets its copy */
        {"ADR c@x\n", "|||c@x,"},
        {"HDR\nSUB\nADR\nHDRX-A: 1\n", "||HDR\r\nSUB\r\nADR\r\nHDRX-A: 1\r\n|"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_string_equal(told(slice_string(table[i].form)), table[i].want);
    }
}

static void what_would_break_the_report_is_left_out(void **state)
{
    static const struct {
        const char *form, *want;
    } table[] = {
        {"HDR no header\nHDR Two words: x\nHDR : x\nHDR  folded\n", "|||"},
        {"HDR To: x\nHDR subject: x\nHDR MIME-Version: 2\nHDR Content-Type: text/html\n", "|||"},
        {"ADR To: a@x\n", "|||a@x,"},
        {"ADR Bcc: \nADR Bcc: <>\nADR Bcc: a b\nADR Bcc: (x)\nADR\n", "||ADR\r\n|"},
        {"HDR X: a\rB: c\nSUB a\rb\nx\033[0my\n", "a?b|X: a?B: c\r\n|x?[0my\r\n|"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_string_equal(told(slice_string(table[i].form)), table[i].want);
    }
    assert_string_equal(told(SLICE("a\0b\nHDR X\0: y\nADR Bcc: a\0@x\n")), "||a?b\r\n|");
}

static void a_form_of_any_size_stays_within_the_limits(void **state)
{
    static const char *const units[] = {"\n",       "x\n",   "x",   "ADR B:a@x\n",
                                        "HDR A:\n", "SUB x", "\xff"};
    struct report_form form;
    struct buf text;

    (void)state;
    buf_init(&text, 4 * REPORT_FORM_MAX);
    for (size_t i = 0; i < COUNT(units); i++) {
        struct slice rest;

        buf_clear(&text);
        while (buf_len(&text) < 2 * REPORT_FORM_MAX) {
            assert_true(buf_add_string(&text, units[i]));
        }
        zmailer_layout.read(buf_slice(&text), &form);
        assert_false(form.headers.failed);
        assert_false(form.text.failed);
        assert_true(form.copy_count <= REPORT_FORM_COPIES_MAX);
        assert_true(strlen(form.subject) <= REPORT_FORM_LINE_MAX + 3);
        assert_true(buf_len(&form.text) <= 2 * REPORT_FORM_MAX);
        for (rest = buf_slice(&form.text); rest.len > 0;) {
            assert_true(slice_cut(&rest, '\n').len <= REPORT_FORM_LINE_MAX + 4);
        }
        report_form_fini(&form);
    }
    buf_fini(&text);
}

static void a_subject_may_repeat_its_name(void **state)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"SUB Subject: Returned mail\n", "Returned mail"},
        {"SUB   SUBJECT:Returned mail \n", "Returned mail"},
        {"SUB Subject:\n", ""},
        {"SUB Subjects: two\n", "Subjects: two"},
        {"SUB Subject: Subject: x\n", "Subject: x"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct report_form form;

        zmailer_layout.read(slice_string(cases[i].line), &form);
        assert_string_equal(form.subject, cases[i].want);
        report_form_fini(&form);
    }
}

static void a_missing_form_tells_the_postmaster(void **state)
{
    struct report_form form;

    (void)state;
    zmailer_layout.missing(SLICE("/share/forms/deli\nvery"), &form);
    assert_true(buf_add_byte(&form.text, '\0'));
    assert_non_null(strstr(buf_cstr(&form.text), "\r\n    /share/forms/deli?very\r\n"));
    assert_string_equal(form.subject, "Multiple-fault: Report template missing");
    assert_int_equal(form.copy_count, 1);
    assert_string_equal(form.copies[0], "postmaster");
    report_form_fini(&form);
    zmailer_layout.builtin(&form);
    assert_int_equal(form.copy_count, 0);
    assert_true(report_form_has_header(&form, SLICE("from")));
    assert_false(report_form_has_header(&form, SLICE("fro")));
    report_form_fini(&form);
}

UNIT_MAIN(cmocka_unit_test(a_form_is_read_by_its_words),
          cmocka_unit_test(what_would_break_the_report_is_left_out),
          cmocka_unit_test(a_form_of_any_size_stays_within_the_limits),
          cmocka_unit_test(a_subject_may_repeat_its_name),
          cmocka_unit_test(a_missing_form_tells_the_postmaster))
