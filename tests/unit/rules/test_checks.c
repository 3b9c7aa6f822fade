#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "mem.h"
#include "mime.h"

/* A set with these patterns; NULL: none of that kind. */
static struct rule_set *set_of(const char *header, const char *body, const char *more)
{
    struct conf_world world = {.hostname = "mail.example.org"};
    struct table_image *image = table_image_new();
    struct conf_problems problems;
    struct rule_set *set;
    static const struct conf *current;
    struct conf *conf;
    struct buf error;
    int fd;

    conf = conf_load_text(slice_string(more), "c", "/d", &world, &problems);
    conf_problems_fini(&problems);
    if (header != NULL) {
        assert_true(table_image_begin(image, TABLE_HEADER_CHECKS, SLICE("/h")));
        assert_true(table_image_add_text(image, slice_string(header)));
    }
    if (body != NULL) {
        assert_true(table_image_begin(image, TABLE_BODY_CHECKS, SLICE("/b")));
        assert_true(table_image_add_text(image, slice_string(body)));
    }
    fd = table_image_seal(image);
    buf_init(&error, 1000);
    current = conf;
    set = rule_set_new(fd, &current, &error);
    assert_string_equal(buf_cstr(&error), "");
    buf_fini(&error);
    (void)close(fd);
    table_image_free(image);
    conf_free(conf);
    return set;
}

static void put(void *arg, struct slice bytes)
{
    assert_true(buf_add(arg, bytes));
}

/* Feed a message in pieces of `step` bytes (0: all at once). What comes out, and then a line for
 * each note of the ruling. */
static char *pass(const struct rule_set *set, struct slice message, size_t step, unsigned *visits)
{
    struct ruling ruling;
    struct checks *c;
    struct buf out;

    buf_init(&out, 4u << 20);
    ruling_init(&ruling);
    c = checks_new(set, &ruling, NULL);
    for (size_t at = 0; at < message.len;) {
        size_t n = step == 0 || message.len - at < step ? message.len - at : step;

        checks_feed(c, slice_of(message.ptr + at, n), put, &out);
        at += n;
        assert_int_equal(buf_len(&out) + checks_held(c) >= at, 1);
    }
    checks_end(c, put, &out);
    assert_int_equal(checks_held(c), 0);
    *visits = checks_visits(c);
    for (size_t i = 0; i < ruling.note_count; i++) {
        (void)buf_addf(&out, "[%s %s|%s|%s]", action_name(ruling.notes[i].kind),
                       ruling.notes[i].what, ruling.notes[i].text, ruling.notes[i].rule);
    }
    if (ruling.code != 0) {
        (void)buf_addf(&out, "[%u %s %s%s%s]", ruling.code, ruling.status, ruling.text,
                       ruling.limit != NULL ? "|" : "", ruling.limit != NULL ? ruling.limit : "");
    }
    checks_free(c);
    ruling_clear(&ruling);
    return buf_take(&out);
}

/* The same for every way of cutting the message. */
static void gives(const struct rule_set *set, const char *message, const char *want)
{
    unsigned visits;

    for (size_t step = 0; step < 40; step++) {
        char *got = pass(set, slice_string(message), step, &visits);

        assert_string_equal(got, want);
        mem_free(got);
    }
}

static void fields_are_seen_whole_and_lines_one_by_one(void **unused)
{
    struct rule_set *set =
        set_of("/^subject: a\\n\\tb$/ WARN folded\n/^x-bad/ HOLD bad\n/^to:.*\\n/ WARN not last\n",
               "/^subject/ WARN body\n/^$/ WARN empty\n/end$/ WARN end\n", "");

    (void)unused;
    gives(set, "Subject: a\r\n\tb\r\nX-Bad: 1\r\nTo: x\r\n\r\nSubject: a\r\n\r\nthe end\r\n",
          "Subject: a\r\n\tb\r\nX-Bad: 1\r\nTo: x\r\n\r\nSubject: a\r\n\r\nthe end\r\n"
          "[WARN header Subject: a \tb|folded|header_checks /h:1]"
          "[HOLD header X-Bad: 1|bad|header_checks /h:2]"
          "[WARN body Subject: a|body|body_checks /b:1]"
          "[WARN body |empty|body_checks /b:2]"
          "[WARN body the end|end|body_checks /b:3]");
    /* no empty line, no last line end, no header, nothing at all */
    gives(set, "Subject: a\r\n\tb",
          "Subject: a\r\n\tb[WARN header Subject: a \tb|folded|"
          "header_checks /h:1]");
    gives(set, "no field\r\nX-Bad: 1\r\nend",
          "no field\r\nX-Bad: 1\r\nend[WARN body end|end|body_checks /b:3]");
    gives(set, "\r\nX-Bad: 1\r\n", "\r\nX-Bad: 1\r\n");
    gives(set, " X-Bad: 1\r\nX-Bad: 2\r\n", " X-Bad: 1\r\nX-Bad: 2\r\n");
    gives(set, "", "");
    rule_set_unref(set);
}

static void a_line_is_prepended_before_the_one_that_wants_it(void **unused)
{
    struct rule_set *set = set_of("/^subject: (.*)/ PREPEND X-Subject: $1\n/^x-s/ REJECT never\n",
                                  "/^(b)/ PREPEND > $1\n", "");

    (void)unused;
    gives(set, "To: a\r\nSubject: x\r\n\ty\r\nCc: c\r\n\r\na\r\nb\r\nc\r\n",
          "To: a\r\nX-Subject: x  y\r\nSubject: x\r\n\ty\r\nCc: c\r\n\r\na\r\n> b\r\nb\r\nc\r\n"
          "[PREPEND header Subject: x \ty|X-Subject: x  y|header_checks /h:1]"
          "[PREPEND body b|> b|body_checks /b:1]");
    rule_set_unref(set);
}

static void after_a_refusal_nothing_is_looked_at(void **unused)
{
    struct rule_set *set = set_of("/^a:/ REJECT 5.7.2 no\n/^b:/ HOLD\n", "/./ DISCARD\n", "");

    (void)unused;
    gives(set, "A: x\r\nB: y\r\n\r\nbody\r\n",
          "A: x\r\nB: y\r\n\r\nbody\r\n[REJECT header A: x|no|header_checks /h:1][550 5.7.2 no]");
    gives(set, "B: y\r\n\r\nbody\r\nmore\r\n",
          "B: y\r\n\r\nbody\r\nmore\r\n[HOLD header B: y||header_checks /h:2]"
          "[DISCARD body body||body_checks /b:1]");
    rule_set_unref(set);
}

static const char multipart[] = "Content-Type: multipart/mixed;\r\n boundary=\"=x y\"\r\n\r\n"
                                "preamble name=1\r\n--=x y\r\n"
                                "Content-Type: text/plain; name=a.exe\r\n\r\n"
                                "body name=2\r\n--=x y\r\n"
                                "Content-Type: message/rfc822\r\n\r\n"
                                "Subject: inner; name=b.exe\r\n\r\ninner name=3\r\n--=x y\r\n"
                                "Content-Type: message/rfc822\r\n"
                                "Content-Transfer-Encoding: base64\r\n\r\n"
                                "Subject: name=4\r\n--=x y--\r\n"
                                "epilogue: name=5\r\n";

static void headers_of_parts_and_of_messages_within_are_seen(void **unused)
{
    struct rule_set *set = set_of("/name=(\\S+)/ WARN $1\n", NULL, ""),
                    *bodies = set_of(NULL, "/name=(\\S+)/ WARN $1\n/^--/ WARN boundary\n", "");
    char want[2000];

    (void)unused;
    (void)snprintf(want, sizeof want,
                   "%s[WARN header Content-Type: text/plain; name=a.exe|a.exe|header_checks /h:1]"
                   "[WARN header Subject: inner; name=b.exe|b.exe|header_checks /h:1]",
                   multipart);
    gives(set, multipart, want);
    (void)snprintf(want, sizeof want,
                   "%s[WARN body preamble name=1|1|body_checks /b:1]"
                   "[WARN body --=x y|boundary|body_checks /b:2]"
                   "[WARN body body name=2|2|body_checks /b:1]"
                   "[WARN body --=x y|boundary|body_checks /b:2]"
                   "[WARN body inner name=3|3|body_checks /b:1]"
                   "[WARN body --=x y|boundary|body_checks /b:2]"
                   "[WARN body Subject: name=4|4|body_checks /b:1]"
                   "[WARN body --=x y--|boundary|body_checks /b:2]"
                   "[WARN body epilogue: name=5|5|body_checks /b:1]",
                   multipart);
    gives(bodies, multipart, want);
    rule_set_unref(set);
    rule_set_unref(bodies);
}

static void a_digest_is_of_messages_and_inner_boundaries_end_with_outer_ones(void **unused)
{
    struct rule_set *set = set_of("/^subject: (.*)/ WARN $1\n", NULL, "");
    static const char message[] =
        "content-type: Multipart/Digest; a=b; boundary=o (comment)\r\n\r\n"
        "--o\r\n\r\nSubject: 1\r\n\r\nSubject: no\r\n"
        "--o\r\nContent-Type: multipart/mixed; boundary=i\r\n\r\n"
        "--i\r\nSubject: 2\r\n--i\r\nSubject: 3\r\n\r\nx\r\n--o\r\nSubject: 4\r\n\r\n"
        "Subject: 5\r\n--i\r\nno\r\n--o--\r\n--o\r\nSubject: no\r\n";
    char want[2000];

    (void)unused;
    (void)snprintf(want, sizeof want,
                   "%s[WARN header Subject: 1|1|header_checks /h:1]"
                   "[WARN header Subject: 2|2|header_checks /h:1]"
                   "[WARN header Subject: 3|3|header_checks /h:1]"
                   "[WARN header Subject: 4|4|header_checks /h:1]"
                   "[WARN header Subject: 5|5|header_checks /h:1]",
                   message);
    gives(set, message, want);
    rule_set_unref(set);
}

static void only_the_first_bytes_of_each_part_are_looked_at(void **unused)
{
    struct rule_set *set = set_of(NULL, "/x/ WARN\n", "body_checks_size_limit = 4\n");
    static const char message[] = "Content-Type: multipart/x; boundary=b\r\n\r\n"
                                  "x1\r\nx2\r\n--b\r\n\r\nx3\r\nx4\r\n--b\r\n\r\na\r\nx5\r\nx6\r\n";
    char want[2000];

    (void)unused;
    (void)snprintf(want, sizeof want,
                   "%s[WARN body x1||body_checks /b:1][WARN body x3||body_checks /b:1]"
                   "[WARN body x5||body_checks /b:1]",
                   message);
    gives(set, message, want);
    rule_set_unref(set);
}

static void long_lines_are_looked_at_in_pieces(void **unused)
{
    struct rule_set *set = set_of(NULL, "/^(x*)y/ WARN\n/z/ HOLD\n", "");
    struct buf message;
    unsigned visits;

    (void)unused;
    buf_init(&message, 100000);
    (void)buf_add_string(&message, "\r\n");
    for (int i = 0; i < CHECKS_PIECE - 1; i++) {
        (void)buf_add_byte(&message, 'a');
    }
    (void)buf_add_string(&message, "yxxy");
    for (int i = 0; i < 3 * CHECKS_PIECE; i++) {
        (void)buf_add_byte(&message, 'a');
    }
    (void)buf_add_string(&message, "z\r\n");
    for (size_t step = 0; step < 5000; step += 617) {
        char *got = pass(set, buf_slice(&message), step, &visits);
        struct slice out = slice_string(got);

        assert_true(slice_starts(out, buf_slice(&message)));
        out = slice_skip(out, buf_len(&message));
        assert_true(slice_starts(out, SLICE("[WARN body xxyaaaa")));
        assert_true(slice_ends_nocase(out, SLICE("z||body_checks /b:2]")));
        mem_free(got);
    }
    buf_fini(&message);
    rule_set_unref(set);
}

static void limits_refuse_and_say_which(void **unused)
{
    struct rule_set *set = set_of("/^x: (a+)+$/ REJECT\n/^y: (.*)/ REDIRECT $1\n", NULL, ""),
                    *none = set_of("/^x/ REJECT\n", NULL, "");
    struct buf message;
    unsigned visits;
    char *got;

    (void)unused;
    gives(set, "X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\r\nY: a@b.test\r\n\r\n",
          "X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\r\nY: a@b.test\r\n\r\n"
          "[451 4.7.1 Message can't be checked, try again later|header_checks /h:1: the pattern "
          "needs more than 200000 steps]");
    gives(set, "Y: nonsense\r\n\r\n",
          "Y: nonsense\r\n\r\n[451 4.7.1 Message can't be checked, try again later|header_checks "
          "/h:2: the action needs a mail address with a domain after it]");
    buf_init(&message, 2u << 20);
    (void)buf_add_string(&message, "Z: ");
    for (unsigned i = 0; i < CHECKS_FIELD_MAX; i++) {
        (void)buf_add_byte(&message, 'a');
    }
    (void)buf_add_string(&message, "\r\nX: b\r\n\r\n");
    got = pass(none, buf_slice(&message), 65536, &visits);
    assert_true(slice_starts(slice_string(got), buf_slice(&message)));
    assert_string_equal(got + buf_len(&message),
                        "[451 4.7.1 Message can't be checked, try again later|CHECKS_FIELD_MAX: a "
                        "header field of more than 1048576 bytes]");
    mem_free(got);
    buf_clear(&message);
    for (unsigned i = 0; i <= MIME_DEPTH_MAX; i++) {
        (void)buf_addf(&message, "Content-Type: multipart/x; boundary=b%u\r\n\r\n--b%u\r\n", i, i);
    }
    got = pass(none, buf_slice(&message), 0, &visits);
    assert_true(slice_ends_nocase(slice_string(got),
                                  SLICE("[554 5.6.0 Message can't be checked|mime_nesting_limit: "
                                        "more than 100 parts within each other]")));
    mem_free(got);
    buf_fini(&message);
    rule_set_unref(set);
    rule_set_unref(none);
}

static int64_t slow_us;

static int64_t slow_clock(void)
{
    return slow_us += 500000;
}

static void a_message_that_takes_too_long_is_deferred(void **unused)
{
    struct rule_set *set = set_of(NULL, "/x/ WARN\n", "");
    struct ruling ruling;
    struct checks *c;
    struct buf out;

    (void)unused;
    ruling_init(&ruling);
    buf_init(&out, 100000);
    c = checks_new(set, &ruling, slow_clock);
    checks_feed(c, SLICE("\r\n"), put, &out);
    for (int i = 0; i < 100; i++) {
        checks_feed(c, SLICE("a\r\n"), put, &out);
    }
    assert_int_equal(ruling.code, 451);
    assert_string_equal(ruling.limit, "checks_time_limit: the patterns need more time");
    checks_free(c);
    ruling_clear(&ruling);
    buf_fini(&out);
    rule_set_unref(set);
}

static void visits_are_counted_in_our_own_fields(void **unused)
{
    struct rule_set *set = set_of(NULL, NULL, "myhostname = mail.example.org\n");
    static const char message[] =
        "Received: from a (b [192.0.2.1])\r\n\tby mail.example.org (Sluice) with ESMTP id 1; x\r\n"
        "Received: by mail.example.org (Sluice, from userid 1)\r\n\tid 2; x\r\n"
        "Received: from a by other.example.org (Sluice) with ESMTP id 3; x\r\n"
        "X-Received: by mail.example.org (Sluice)\r\n\r\n"
        "Received: by mail.example.org (Sluice)\r\n";
    unsigned visits;

    (void)unused;
    for (size_t step = 0; step < 20; step++) {
        char *got = pass(set, slice_string(message), step, &visits);

        assert_string_equal(got, message);
        assert_int_equal(visits, 2);
        mem_free(got);
    }
    rule_set_unref(set);
}

UNIT_MAIN(cmocka_unit_test(fields_are_seen_whole_and_lines_one_by_one),
          cmocka_unit_test(a_line_is_prepended_before_the_one_that_wants_it),
          cmocka_unit_test(after_a_refusal_nothing_is_looked_at),
          cmocka_unit_test(headers_of_parts_and_of_messages_within_are_seen),
          cmocka_unit_test(a_digest_is_of_messages_and_inner_boundaries_end_with_outer_ones),
          cmocka_unit_test(only_the_first_bytes_of_each_part_are_looked_at),
          cmocka_unit_test(long_lines_are_looked_at_in_pieces),
          cmocka_unit_test(limits_refuse_and_say_which),
          cmocka_unit_test(a_message_that_takes_too_long_is_deferred),
          cmocka_unit_test(visits_are_counted_in_our_own_fields))
