#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "header.h"
#include "inject_mail.h"
#include "inject_message.h"

static const struct inject_mail_limits limits = {.rcpts = 3, .memory = 1 << 20};

/* A document, in pieces of so many bytes, and the mail that is read out of it, one recipient at a
 * time. */
struct reading {
    struct json_document document;
    struct inject_mail *m;
    enum inject_mail_result result;
    char error[500];
};

static void read_pieces(const char *text, size_t piece, struct reading *r)
{
    struct slice rest = slice_string(text);
    struct buf error;

    inject_mail_document(&r->document, rest.len);
    while (rest.len > 0) {
        size_t len = piece < rest.len ? piece : rest.len;

        assert_true(json_document_add(&r->document, slice_of(rest.ptr, len)));
        rest = slice_skip(rest, len);
    }
    json_document_end(&r->document);
    buf_init(&error, sizeof r->error - 1);
    r->m = inject_mail_new(&r->document, &limits);
    do {
        r->result = inject_mail_read(r->m, 1, &error);
    } while (r->result == INJECT_MAIL_MORE);
    (void)snprintf(r->error, sizeof r->error, "%s", buf_cstr(&error));
    buf_fini(&error);
}

static void free_reading(struct reading *r)
{
    inject_mail_free(r->m);
    json_document_fini(&r->document);
}

/* Message `number` of the mail, made in pieces of so many bytes. False: it is too large. */
static bool make_message(const struct inject_mail *m, size_t number, size_t bytes, struct buf *out)
{
    struct inject_message *im = inject_message_new(m, number);
    enum inject_message_result result;
    struct slice piece;

    buf_clear(out);
    do {
        result = inject_message_next(im, bytes, &piece);
        assert_true(buf_add(out, piece));
    } while (result == INJECT_MESSAGE_MORE);
    inject_message_free(im);
    return result == INJECT_MESSAGE_END;
}

/* What is wrong with the document; empty: nothing. */
static enum inject_mail_result problem_of(const char *text, char ret_error[500])
{
    struct reading r;

    read_pieces(text, SIZE_MAX, &r);
    free_reading(&r);
    (void)snprintf(ret_error, 500, "%s", r.error);
    return r.result;
}

static void read_mail(const char *text, struct reading *r)
{
    read_pieces(text, SIZE_MAX, r);
    if (r->result != INJECT_MAIL_OK) {
        fail_msg("%s", r->error);
    }
}

static void what_is_wrong_is_told_with_its_place(void **unused)
{
    static const struct {
        const char *in;
        enum inject_mail_result want;
        const char *error;
    } cases[] = {
        {"", INJECT_MAIL_NO_JSON, "JSON: line 1, column 0: "},
        {"{\"a\": }", INJECT_MAIL_NO_JSON, "JSON: line 1, column 7: "},
        {"{\"text\": \"\\u0000\"}", INJECT_MAIL_NO_JSON, "JSON: line 1, "},
        {"3", INJECT_MAIL_NO_JSON, "JSON: "},
        {"[]", INJECT_MAIL_WRONG, "expected an object with from, to, subject and text"},
        {"{}", INJECT_MAIL_WRONG, "to: expected at least one recipient"},
        {"{\"to\":\"a@b.c\"}", INJECT_MAIL_WRONG, "from: expected an address"},
        /* in and around what is read element by element */
        {"{\"from\":\"a@b.c\",\"text\":\"\",\n\"recipients\":[\"a@b.c\",\n{\"address\": }]}",
         INJECT_MAIL_NO_JSON, "JSON: line 3, column 13: "},
        {"{\"from\":\"a@b.c\",\"text\":\"\",\"recipients\":[\"a@b.c\" \"a@b.c\"]}",
         INJECT_MAIL_NO_JSON, "JSON: line 1, column 49: expected , or ]"},
        {"{\"from\":\"a@b.c\",\"text\":\"\",\"recipients\":[\"a@b.c\",]}", INJECT_MAIL_NO_JSON,
         "JSON: line 1, column 48: "},
        {"{\"recipients\":[\n\"a@b.c\",\n\"a@b.c\"],\n\"text\" 1}", INJECT_MAIL_NO_JSON,
         "JSON: line 4, column 8: "},
        {"{\"from\" 1,\n\"recipients\":[\"a@b.c\"]}", INJECT_MAIL_NO_JSON,
         "JSON: line 1, column 9: "},
        {"{\"recipients\":[\"a@b.c\"", INJECT_MAIL_NO_JSON, "JSON: line 1, column "},
        {"{\"recipients\":[\"a@b.c\"}", INJECT_MAIL_NO_JSON, "JSON: line 1, column "},
        {"{\"recipients\":[],\"recipients\":[]}", INJECT_MAIL_NO_JSON,
         "JSON: line 1, column 29: dup"},
        {"{\"from\":\"a@b.c\",\"recipients\":[{\"address\":\"a@b.c\",\"name\":\"\",\"name\":\"\"}],"
         "\"text\":\"\"}",
         INJECT_MAIL_NO_JSON, "JSON: line 1, column "},
        {"{\"from\":\"a@b.c\",\"recipients\":[ ],\"text\":\"\"}", INJECT_MAIL_WRONG,
         "to: expected at least one recipient"},
        {"{\"from\":\"a@b.c\",\"recipients\":\"a@b.c\",\"text\":\"\"}", INJECT_MAIL_WRONG,
         "recipients: expected an array"},
        {"{\"from\":\"a@b.c\",\"recipi\\u0065nts\":[\"a@b.c\"],\"to\":\"a@b.c\",\"text\":\"\"}",
         INJECT_MAIL_WRONG, "recipients: expected an array, and this name without escapes"},
        {"{\"from\":\"a@b.c\",\"recipients\":[\"a@b.c\",\"a@b.c\",\"a@b.c\",\"a@b.c\"],"
         "\"text\":\"\"}",
         INJECT_MAIL_WRONG, "recipients: expected at most 3 recipients (inject_recipient_limit)"},
        {"{\"from\":\"a@b.c\",\"recipients\":[\"a@b.c\",{\"address\":\"b\"}],\"text\":\"\"}",
         INJECT_MAIL_WRONG, "recipients[1]: found \"b\", "},
        {"{\"to\":[\"a@b.c\",\"a@b.c\",\"a@b.c\",\"a@b.c\"]}", INJECT_MAIL_WRONG,
         "to: expected at most 3 recipients (inject_recipient_limit)"},
        {"{\"to\":[\"a@b.c\",\"a@b.c\"],\"cc\":[\"a@b.c\",\"a@b.c\"]}", INJECT_MAIL_WRONG,
         "to: expected at most 3 recipients (inject_recipient_limit)"},
        {"{\"to\":{\"name\":\"x\"}}", INJECT_MAIL_WRONG, "to.address: expected an address"},
        {"{\"to\":{\"address\":\"a@b.c\",\"x\":1}}", INJECT_MAIL_WRONG, "to.x: this member is not"},
        {"{\"to\":\"X\\nY <a@b.c>\"}", INJECT_MAIL_WRONG, "to: found \"X?Y\", expected no control"},
        {"{\"to\":\"a@b.c>\"}", INJECT_MAIL_WRONG, "to: found \"a@b.c>\", "},
        {"{\"from\":\"a@b.c\",\"to\":[\"a@b.c\",\n\"b\"],\"text\":\"\"}", INJECT_MAIL_WRONG,
         "to[1]: found \"b\", "},
        {"{\"from\":\"a@b.c\",\"to\":[\"a@b.c\",\n\"b]}", INJECT_MAIL_NO_JSON, "JSON: line 2, "},
        {"{\"from\":\"a@b.c\",\"to\":[\"a@b.c\"],\n\"cc\":[\"a@b.c\" \"\"]}", INJECT_MAIL_NO_JSON,
         "JSON: line 2, column 15: expected , or ]"},
        {"{\"from\":\"a@b.c\",\"to\":[\"a@b.c\"],\n\"cc\":[\"a@b.c\"], x}", INJECT_MAIL_NO_JSON,
         "JSON: line 2, column 17: "},
        {"{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"attachments\":[{\"content\":\"AA=A\"}]}",
         INJECT_MAIL_WRONG, "attachments[0].content: expected base64"},
        {"{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"text\":\"\",\"subject\":\"a\\u0085b\"}",
         INJECT_MAIL_WRONG, "subject: found"},
        {"{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"text\":\"\",\"headers\":{\"X-A\\r\\nB\":\"c\"}}",
         INJECT_MAIL_WRONG, "headers: found"},
        {"{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"text\":\"\",\"headers\":{\"Resent-To\":\"c\"}}",
         INJECT_MAIL_WRONG, "headers.Resent-To: this field is not"},
        {"{\"from\":\"a@b.c\",\"recipients\":[\"a@b.c\"],\"text\":\"{{}}\"}", INJECT_MAIL_WRONG,
         "text: found \"\", expected {{NAME}}"},
        {"{\"from\":\"a@b.c\",\"recipients\":[\"a@b.c\"],\"text\":\"{{x}}\"}", INJECT_MAIL_WRONG,
         "recipients[0].substitutions.x: there is no such value, and text uses it"},
        {"{\"from\":\"a@b.c\",\"recipients\":[\"a@b.c\"],\"substitutions\":{\"x\":\"a\\nb\"},"
         "\"subject\":\"{{x}}\",\"text\":\"{{x}}\"}",
         INJECT_MAIL_WRONG, "substitutions.x: found \"a?b\", expected no control"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char error[500];

        assert_int_equal(problem_of(cases[i].in, error), cases[i].want);
        if (strncmp(error, cases[i].error, strlen(cases[i].error)) != 0) {
            fail_msg("%s: found \"%s\", expected \"%s\"", cases[i].in, error, cases[i].error);
        }
    }
}

static void a_document_takes_no_more_memory_than_it_may(void **unused)
{
    struct buf text;
    char error[500];

    (void)unused;
    buf_init(&text, 1 << 20);
    (void)buf_add_string(&text, "{\"a\":[");
    for (int i = 0; i < 20000; i++) {
        (void)buf_add_string(&text, "{},");
    }
    (void)buf_add_string(&text, "{}]}");
    assert_int_equal(problem_of(buf_cstr(&text), error), INJECT_MAIL_TOO_LARGE);
    assert_non_null(strstr(error, "inject_json_limit"));
    buf_fini(&text);
}

/* So that others of the process have their turn: each call reads a few recipients, of so many bytes
 * in all, whichever member has them, or some of the contents of attachments. */
static void a_large_document_is_read_in_many_calls(void **unused)
{
    static const char *const names[] = {"to", "cc", "bcc", "recipients"};
    static const struct inject_mail_limits many = {.rcpts = 100000, .memory = 1 << 28};
    const size_t count = 10000, at_once = 20;
    struct json_document d;
    struct buf text, error;
    struct inject_mail *m;
    size_t calls;

    (void)unused;
    buf_init(&text, 1 << 22);
    buf_init(&error, 1000);
    for (size_t i = 0; i < COUNT(names); i++) {
        enum inject_mail_result result;
        size_t at = 0, rcpts = 0;
        struct slice rcpt;

        buf_clear(&text);
        (void)buf_addf(&text, "{\"from\":\"a@b.c\",\"text\":\"\",\"%s\":[", names[i]); /* fits */
        for (size_t n = 0; n < count; n++) {
            (void)buf_addf(&text, "%s{\"address\":\"r%zu@b.c\"}", n > 0 ? "," : "", n);
        }
        (void)buf_add_string(&text, "]}");
        inject_mail_document(&d, buf_len(&text));
        assert_true(json_document_add(&d, buf_slice(&text)));
        json_document_end(&d);
        m = inject_mail_new(&d, &many);
        for (calls = 1; (result = inject_mail_read(m, at_once, &error)) == INJECT_MAIL_MORE;) {
            calls++;
        }
        assert_int_equal(result, INJECT_MAIL_OK);
        assert_true(calls >= count / at_once);
        for (size_t n = 0; n < inject_mail_count(m); n++, at = 0) {
            while (inject_mail_next_rcpt(m, n, &at, &rcpt)) {
                rcpts++;
            }
        }
        assert_int_equal(rcpts, count);
        /* Only what stands in a header that all of them share makes it long: `to' and `cc'. */
        assert_int_equal(inject_mail_header_least(m),
                         i < 2 ? 10 * 6 + 90 * 7 + 900 * 8 + 9000 * 9 : 0);
        inject_mail_free(m);
        json_document_fini(&d);
    }
    buf_clear(&text);
    (void)buf_add_string(&text,
                         "{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"attachments\":[{\"content\":\"");
    for (size_t n = 0; n < 1 << 20; n++) {
        (void)buf_add_byte(&text, 'A');
    }
    (void)buf_add_string(&text, "\"}]}");
    inject_mail_document(&d, buf_len(&text));
    assert_true(json_document_add(&d, buf_slice(&text)));
    json_document_end(&d);
    m = inject_mail_new(&d, &many);
    for (calls = 1; inject_mail_read(m, at_once, &error) == INJECT_MAIL_MORE;) {
        calls++;
    }
    assert_true(calls >= (1 << 20) / INJECT_AT_ONCE);
    inject_mail_free(m);
    json_document_fini(&d);
    buf_fini(&text);
    buf_fini(&error);
}

/* What is read at once has a limit. */
static void members_and_recipients_are_not_too_large(void **unused)
{
    static const char *const heads[] = {
        "{\"from\":\"a@b.c\",\"to\":\"a@b.c\",\"text\":\"\",\"x\":[\"",
        "{\"from\":\"a@b.c\",\"to\":[{\"address\":\"a@b.c\",\"x\":[\"",
        "{\"from\":\"a@b.c\",\"text\":\"\",\"recipients\":[\"a@b.c\",{\"address\":\"\",\"x\":[\"",
    };
    static const char *const ends[] = {"\"]}", "\"]}]}", "\"]}]}"};
    static const char *const errors[] = {"expected at most 262144 bytes, besides rec",
                                         "to[0]: expected at most 262144 bytes, besides long",
                                         "recipients[1]: expected at most 262144 bytes"};
    struct buf text;

    (void)unused;
    buf_init(&text, 1 << 20);
    for (size_t i = 0; i < COUNT(heads); i++) {
        char error[500];

        buf_clear(&text);
        (void)buf_add_string(&text, heads[i]); /* fits, all of it */
        while (buf_len(&text) < INJECT_MEMBERS_MAX + 1000) {
            (void)buf_addf(&text, "%0200d\",\"", 0); /* not too many for the memory that there is */
        }
        (void)buf_add_string(&text, ends[i]);
        assert_int_equal(problem_of(buf_cstr(&text), error), INJECT_MAIL_TOO_LARGE);
        if (strncmp(error, errors[i], strlen(errors[i])) != 0) {
            fail_msg("found \"%s\", expected \"%s\"", error, errors[i]);
        }
    }
    buf_fini(&text);
}

static void the_envelope_is_that_of_the_document(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"{\"from\":\"F "
         "<f@b.c>\",\"to\":\"t@b.c\",\"cc\":[\"c@b.c\"],\"bcc\":\"x@b.c\",\"text\":\"\"}",
         "f@b.c: t@b.c c@b.c x@b.c;"},
        {"{\"from\":\"f@b.c\",\"sender\":\"s@b.c\",\"to\":\"\\\"a\\\"@b.c\",\"text\":\"\"}",
         "s@b.c: a@b.c;"},
        {"{\"sender\":\"\",\"to\":\"t@b.c\",\"message\":\"x\"}", ": t@b.c;"},
        {"{\"from\":\"f@b.c\",\"recipients\":[\"t@b.c\",{\"address\":\"u@b.c\"}],\"text\":\"\"}",
         "f@b.c: t@b.c; u@b.c;"},
        {" { \"subject\" : \"recipients\" , \"headers\":{\"recipients\":\"[\\\"]\"}, "
         "\"recipients\" : [ "
         "\"t@b.c\" , {\"address\":\"u@b.c\", \"name\":\"]},\\\"[{\" } ] , "
         "\"from\":\"f@b.c\",\"text\":\"\"} ",
         "f@b.c: t@b.c; u@b.c;"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct inject_mail *m;
        struct reading r;
        struct slice rcpt;
        char story[500];
        size_t at;

        read_mail(cases[i].in, &r);
        m = r.m;
        at = (size_t)snprintf(story, sizeof story, "%.*s:", SLICE_ARGS(inject_mail_sender(m)));
        for (size_t n = 0; n < inject_mail_count(m); n++) {
            for (size_t next = 0; inject_mail_next_rcpt(m, n, &next, &rcpt);) {
                at += (size_t)snprintf(story + at, sizeof story - at, " %.*s", SLICE_ARGS(rcpt));
            }
            at += (size_t)snprintf(story + at, sizeof story - at, ";");
        }
        assert_string_equal(story, cases[i].want);
        free_reading(&r);
    }
}

static void values_are_put_where_they_belong(void **unused)
{
    struct reading r;
    struct inject_mail *m;
    struct buf out;
    const char *text;

    (void)unused;
    read_mail(
        "{\"from\":\"f@b.c\",\"subject\":\"S {{ n }} {{n}\",\"text\":\"T {{n}} {\",\"html\":"
        "\"<{{n}}> {{{n}}}\",\"headers\":{\"X-N\":\"{{n}}\"},\"substitutions\":{\"n\":\"all\"},"
        "\"recipients\":[\"t@b.c\",{\"address\":\"u@b.c\",\"substitutions\":{\"n\":\"<&'\\\">\"}}]"
        "}",
        &r);
    m = r.m;
    buf_init(&out, 10000);
    assert_true(make_message(m, 0, 1000, &out));
    text = buf_cstr(&out);
    assert_non_null(strstr(text, "X-N: all\r\n"));
    assert_non_null(strstr(text, "Subject: S all {{n}\r\n"));
    assert_non_null(strstr(text, "\r\n\r\nT all {\r\n"));
    assert_non_null(strstr(text, "<all> all"));
    assert_true(make_message(m, 1, 2, &out));
    text = buf_cstr(&out);
    assert_non_null(strstr(text, "X-N: <&'\">\r\n"));
    assert_non_null(strstr(text, "T <&'\"> {\r\n"));
    assert_non_null(strstr(text, "<&lt;&amp;&#39;&quot;&gt;> <&'\">"));
    assert_non_null(strstr(text, "To: u@b.c\r\n"));
    buf_fini(&out);
    free_reading(&r);
}

static void a_message_is_no_larger_than_it_may_be(void **unused)
{
    static const struct {
        const char *text;
        bool want;
    } cases[] = {
        {"{{n}}{{n}}{{n}}{{n}}{{n}}", true}, /* of 20 bytes */
        {"{{n}}{{n}}{{n}}{{n}}{{n}}.", false},
        {"{{n}}{{n}}{{n}}{{n}}{{n}}{{m}}", true},
    };
    struct inject_mail_limits small = {.rcpts = 1, .memory = 1 << 20, .message_bytes = 100};
    struct buf out;

    (void)unused;
    buf_init(&out, 10000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char document[1000];
        struct reading r;

        (void)snprintf(document, sizeof document,
                       "{\"from\":\"f@b.c\",\"recipients\":[\"t@b.c\"],\"substitutions\":{\"n\":"
                       "\"01234567890123456789\",\"m\":\"\"},\"text\":\"%s\"}",
                       cases[i].text);
        read_mail(document, &r);
        inject_mail_free(r.m);
        r.m = inject_mail_new(&r.document, &small);
        while (inject_mail_read(r.m, 1, &out) == INJECT_MAIL_MORE) {
        }
        assert_int_equal(make_message(r.m, 0, 1000, &out), cases[i].want);
        free_reading(&r);
    }
    buf_fini(&out);
}

/* So that others of the process have their turn: each call makes a piece, however large all is. */
static void a_large_message_is_made_in_many_pieces(void **unused)
{
    static const char *const members[] = {
        "\"text\":\"",
        "\"html\":\"\\u00e9",
        "\"html\":\"<p>{{n}}{{n}}",
        "\"message\":\"A: b\\n\\n",
        "\"attachments\":[{\"name\":\"\\u00e9\",\"content\":\"",
    };
    const size_t size = 1 << 20, piece = 10000;
    struct buf document, all, out;

    (void)unused;
    buf_init(&document, 2 * size);
    buf_init(&all, 4 * size);
    buf_init(&out, 4 * size);
    for (size_t i = 0; i < COUNT(members); i++) {
        bool divided = i == 2, closes = i == 4;
        struct inject_message *im;
        enum inject_message_result result;
        struct slice some;
        struct reading r;
        size_t calls = 0;

        buf_clear(&document);
        (void)buf_addf(&document, "{\"from\":\"f@b.c\",%s,%s",
                       divided ? "\"recipients\":[\"t@b.c\"],\"substitutions\":{\"n\":\"&\"}"
                               : "\"to\":\"t@b.c\"",
                       members[i]); /* sticky, all of it */
        for (size_t n = 0; n < size; n++) {
            (void)buf_add_byte(&document, "abcd"[n % 4]);
        }
        (void)buf_add_string(&document, closes ? "\"}]}" : "\"}");
        read_mail(buf_cstr(&document), &r);
        im = inject_message_new(r.m, 0);
        buf_clear(&all);
        do {
            result = inject_message_next(im, piece, &some);
            assert_true(some.len <= 4 * piece); /* with encodings, line ends, the header */
            assert_true(buf_add(&all, some));
            calls++;
        } while (result == INJECT_MESSAGE_MORE);
        assert_int_equal(result, INJECT_MESSAGE_END);
        assert_true(calls >= size / piece);
        inject_message_free(im);
        if (i < 2) { /* else boundaries differ, or there is nothing to compare */
            assert_true(make_message(r.m, 0, 2, &out));
            assert_true(slice_equal(buf_slice(&out), buf_slice(&all)));
        }
        free_reading(&r);
    }
    buf_fini(&document);
    buf_fini(&all);
    buf_fini(&out);
}

/* What GMime does not have to encode is put into what it writes: at its place, whole. */
static void bodies_stand_in_their_parts(void **unused)
{
    struct reading r;
    struct buf out;
    const char *text, *html, *first, *second;

    (void)unused;
    read_mail(
        "{\"from\":\"f@b.c\",\"to\":\"t@b.c\",\"text\":\"a\\r\\n\\nb\\rc\",\"html\":\"<p>\\u00e9</"
        "p>\","
        "\"attachments\":[{\"name\":\"x\",\"content\":\"eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
        "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eA==\"},{\"name\":\"y\",\"content\":\"\"},"
        "{\"name\":\"z\",\"id\":\"z\",\"disposition\":\"inline\",\"content\":\"enp6\"}]}",
        &r);
    buf_init(&out, 10000);
    assert_true(make_message(r.m, 0, 100, &out));
    text = strstr(buf_cstr(&out), "\r\n\r\na\r\n\r\nb\r\nc\r\n--=_");
    assert_non_null(text);
    html = strstr(text, "<p>=C3=A9</p>");
    assert_non_null(html == NULL ? strstr(text, "PHA+w6k8L3A+") : html);
    first = strstr(text, "\r\n\r\nenp6\r\n--=_");
    assert_non_null(first);
    second =
        strstr(first, "\r\n\r\neHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
                      "eHh4eHh4\r\neA==\r\n--=_");
    assert_non_null(second);
    assert_non_null(strstr(second + 4, "\r\n\r\n\r\n--=_")); /* the empty one */
    buf_fini(&out);
    free_reading(&r);
}

static int start(void **unused)
{
    (void)unused;
    inject_mail_start();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_told_with_its_place),
        cmocka_unit_test(a_document_takes_no_more_memory_than_it_may),
        cmocka_unit_test(a_large_document_is_read_in_many_calls),
        cmocka_unit_test(members_and_recipients_are_not_too_large),
        cmocka_unit_test(the_envelope_is_that_of_the_document),
        cmocka_unit_test(values_are_put_where_they_belong),
        cmocka_unit_test(a_message_is_no_larger_than_it_may_be),
        cmocka_unit_test(a_large_message_is_made_in_many_pieces),
        cmocka_unit_test(bodies_stand_in_their_parts),
    };

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, start, NULL);
}
