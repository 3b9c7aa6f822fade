#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "mem.h"

#define OUTPUT_MAX (8u << 20)
/* What is added where everything is missing. */
#define MISSING                                                                                    \
    "Message-ID: <0.0000000000000007@h.test>\r\n"                                                  \
    "Date: Thu, 1 Jan 1970 00:00:00 +0000\r\n"                                                     \
    "From: s@a.test\r\n"
/* The end of mail that lacks nothing. */
#define WHOLE "From: a@b.test\r\nDate: x\r\nMessage-ID: <x@y>\r\n"

static void add(void *arg, struct slice bytes)
{
    assert_true(buf_add(arg, bytes));
}

static void values(void *arg, struct header_missing *ret)
{
    (void)arg;
    *ret = (struct header_missing){
        .from = SLICE("s@a.test"), .hostname = SLICE("h.test"), .random = 7};
}

/* Gives addresses of old.test and the one "name" another form. */
static struct slice canonical(void *arg, bool of_sender, struct slice address,
                              char room[ADDRESS_MAX])
{
    size_t at = slice_find(address, '@');
    int len;

    (void)arg;
    if (slice_equal(address, SLICE("name@o.test"))) {
        return SLICE("full.name@new.test");
    }
    if (!slice_equal(slice_skip(address, at), SLICE("@old.test"))) {
        return address;
    }
    len = snprintf(room, ADDRESS_MAX, "%.*s@%s.test", (int)at, address.ptr, of_sender ? "s" : "r");
    return slice_of(room, (size_t)len);
}

enum client { STRANGER, OWN };

/* Cleans `in`, which comes in two pieces, and then in single bytes. */
static void clean(enum client client, uint64_t field_bytes, struct slice in, size_t cut,
                  struct buf *out)
{
    const struct cleanup_rules rules = {.field_bytes = field_bytes,
                                        .origin = client == OWN ? SLICE("o.test") : SLICE(""),
                                        .canonical = client == OWN ? canonical : NULL,
                                        .values = client == OWN ? values : NULL,
                                        .put = add,
                                        .arg = out};
    struct cleanup c = {.field_len = 0};

    buf_clear(out);
    cleanup_begin(&c, &rules);
    cleanup_feed(&c, slice_of(in.ptr, cut));
    for (size_t i = cut; i < in.len; i++) {
        cleanup_feed(&c, slice_of(in.ptr + i, 1));
    }
    cleanup_end(&c);
    assert_int_equal(cleanup_held(&c), 0);
    cleanup_fini(&c);
    assert_true(buf_len(out) <= in.len + CLEANUP_GROWTH_MAX);
}

/* Wants the same result for every split, and no change by a second clean-up. */
static void want(enum client client, uint64_t field_bytes, struct slice in, struct slice wanted)
{
    struct buf out, again;
    size_t step = in.len < 500 ? 1 : in.len / 40;

    buf_init(&out, OUTPUT_MAX);
    buf_init(&again, OUTPUT_MAX);
    for (size_t cut = 0; cut <= in.len; cut += step) {
        clean(client, field_bytes, in, cut, &out);
        if (!slice_equal(buf_slice(&out), wanted)) {
            fprintf(stderr, "split at %zu of:\n%.*s\n", cut, SLICE_ARGS(in));
            assert_string_equal(buf_cstr(&out), wanted.ptr);
        }
    }
    clean(client, field_bytes, wanted, wanted.len, &again);
    assert_true(slice_equal(buf_slice(&again), wanted));
    buf_fini(&out);
    buf_fini(&again);
}

/* Bcc fields that reached all recipients: GUI/lua-resty-mail#9, pimalaya/himalaya#747. */
static void hidden_fields_are_removed(void **unused)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"To: u@b.test\r\nBcc: hidden@c.test\r\nSubject: q\r\n\r\nhi\r\n",
         "To: u@b.test\r\nSubject: q\r\n\r\nhi\r\n"},
        {"BCC : x@c.test,\r\n y@c.test\r\n\tz@c.test\r\nA: 1\r\n\r\n", "A: 1\r\n\r\n"},
        {"Resent-Bcc: x\r\nbcc:\r\nReturn-Path: <a@b>\r\nContent-Length: 17\r\n\r\nx\r\n",
         "\r\nx\r\n"},
        {"A: 1\r\nBcc: x@c.test\r\n", "A: 1\r\n"},
        {"A: 1\r\nBcc: x@c.test", "A: 1\r\n"},
        {"Bcc: a\r\nBcc: b\r\nB: 1\r\nbCc: c\r\n\r\nBcc: d\r\n", "B: 1\r\n\r\nBcc: d\r\n"},
        {"Bcc-List: a\r\nX-Bcc: b\r\nBc: c\r\n\r\n", "Bcc-List: a\r\nX-Bcc: b\r\nBc: c\r\n\r\n"},
        {"From you@h.test Sun Nov 29 09:00:00 2026\r\nA: 1\r\n\r\nFrom me\r\n",
         "A: 1\r\n\r\nFrom me\r\n"},
        {">From a\r\n>>From b\r\nA: 1\r\nFrom c\r\n", "A: 1\r\n\r\nFrom c\r\n"},
        {"From : a@b.test\r\n\r\n", "From : a@b.test\r\n\r\n"},
        {"From me", ""},
        {"Bcc: x\r\nFrom me\r\n", "\r\nFrom me\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        want(STRANGER, 1000, slice_string(cases[i].in), slice_string(cases[i].out));
    }
}

/* Content that no header begins, which a Received field would otherwise become a part of. */
static void a_body_begins_after_an_empty_line(void **unused)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"hello\r\n", "\r\nhello\r\n"},
        {" A: 1\r\n\r\n", "\r\n A: 1\r\n\r\n"},
        {"A: 1\r\nno field\r\nB: 2\r\n", "A: 1\r\n\r\nno field\r\nB: 2\r\n"},
        {"A: 1\r\n: x\r\n", "A: 1\r\n\r\n: x\r\n"},
        {"A: 1\r\n\r\r\n", "A: 1\r\n\r\n\r\r\n"},
        {"", ""},
        {"\r\n", "\r\n"},
        {"x", "\r\nx"},
        {"A: 1", "A: 1\r\n"},
        {"A: 1\r", "A: 1\r\r\n"},
        {"A B: 1\r\n", "\r\nA B: 1\r\n"},
        {"\xc3\xa4: 1\r\n", "\r\n\xc3\xa4: 1\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        want(STRANGER, 1000, slice_string(cases[i].in), slice_string(cases[i].out));
    }
}

/* Mail of devices: muquit/mailsend-go#51, opnsense/plugins#3489,
 * element-hq/matrix-authentication-service#4747. */
static void missing_fields_are_added_for_own_clients(void **unused)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"Subject: disk full\r\n\r\nx\r\n", "Subject: disk full\r\n" MISSING "\r\nx\r\n"},
        {"", MISSING},
        {"x\r\n", MISSING "\r\nx\r\n"},
        {"\r\nDate: in the body\r\n", MISSING "\r\nDate: in the body\r\n"},
        {"A: 1", "A: 1\r\n" MISSING},
        {WHOLE "\r\n", WHOLE "\r\n"},
        {"FROM: a@b.test\r\ndate:\r\nMessage-Id: <x@y>\r\n\r\n",
         "FROM: a@b.test\r\ndate:\r\nMessage-Id: <x@y>\r\n\r\n"},
        {"Date: x\r\nFrom: a@b.test\r\n\r\n",
         "Date: x\r\nFrom: a@b.test\r\nMessage-ID: <0.0000000000000007@h.test>\r\n\r\n"},
        {"Resent-From: a@b.test\r\nResent-Date: x\r\n\r\n",
         "Resent-From: a@b.test\r\nResent-Date: x\r\n" MISSING "\r\n"},
        {"From you\r\nA: 1\r\n\r\n", "A: 1\r\n" MISSING "\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        want(OWN, 1000, slice_string(cases[i].in), slice_string(cases[i].out));
    }
    want(STRANGER, 1000, SLICE("Subject: x\r\n\r\nx\r\n"), SLICE("Subject: x\r\n\r\nx\r\n"));
}

static void addresses_without_a_domain_are_completed_for_own_clients(void **unused)
{
    static const struct {
        const char *in, *out; /* value of To; NULL: unchanged */
    } cases[] = {
        {"root", "root@o.test"},
        {"root, a@b.test, ann", "root@o.test, a@b.test, ann@o.test"},
        {"<root>", "<root@o.test>"},
        {"Root <root> (the one),\r\n \"A, B\" < ann >",
         "Root <root@o.test> (the one),\r\n \"A, B\" < ann@o.test >"},
        {"root (Charlie Root)", "root@o.test (Charlie Root)"},
        {"\"a b\"", "\"a b\"@o.test"},
        {"\"a@b\"", "\"a@b\"@o.test"},
        {"friends: ann, bob@b.test, <carl>;", "friends: ann@o.test, bob@b.test, <carl@o.test>;"},
        {"a.b+c", "a.b+c@o.test"},
        {"undisclosed-recipients:;", NULL},
        {"", NULL},
        {"<>", NULL},
        {"John Doe", NULL},
        {"John Doe, x@y", NULL},
        {"a!b", NULL},
        {"a%b", NULL},
        {"a @ b.test", NULL},
        {"<@r.test:a@b.test>", NULL},
        {"x@[192.0.2.1]", NULL},
        {"=?utf-8?q?=C3=A4?=", NULL},
        {"=?utf-8?q?=C3=A4?= <a@b>", NULL},
        {"root, \"open", NULL},
        {"root, <open", NULL},
        {"root (open", NULL},
        {"a>b, root", NULL},
    };
    char in[200], out[300];

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(in, sizeof in, "To: %s\r\n" WHOLE "\r\nTo: x\r\n", cases[i].in);
        snprintf(out, sizeof out, "To: %s\r\n" WHOLE "\r\nTo: x\r\n",
                 cases[i].out != NULL ? cases[i].out : cases[i].in);
        want(OWN, 1000, slice_string(in), slice_string(out));
        want(STRANGER, 1000, slice_string(in), slice_string(in));
    }
    want(OWN, 1000, SLICE(WHOLE "resent-cc: a\r\nSubject: a\r\nReply-To : b\r\n\r\n"),
         SLICE(WHOLE "resent-cc: a@o.test\r\nSubject: a\r\nReply-To : b@o.test\r\n\r\n"));
}

/* Appends `count` times the text. */
static void repeat(struct buf *b, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(buf_add_string(b, text));
    }
}

/* Lists of thousands of recipients in To and Cc: trusteddomainproject/OpenDKIM#143. The limit is
 * one of a field, and more of the field is left out; Postfix 3.7 gives the same bytes. */
static void a_field_over_the_limit_is_cut(void **unused)
{
    struct buf in, out;

    (void)unused;
    buf_init(&in, OUTPUT_MAX);
    buf_init(&out, OUTPUT_MAX);
    /* 4 bytes, then lines of 10 with their LF. */
    repeat(&in, 1, "To:,");
    repeat(&in, 20, "\r\n 4567890,");
    repeat(&in, 1, "\r\nA: 1\r\n\r\nx\r\n");
    repeat(&out, 1, "To:,");
    repeat(&out, 9, "\r\n 4567890,");
    repeat(&out, 1, "\r\n 4567\r\nA: 1\r\n\r\nx\r\n");
    want(STRANGER, 100, buf_slice(&in), slice_string(buf_cstr(&out)));

    /* Pieces of a line without folding. */
    buf_clear(&in);
    buf_clear(&out);
    repeat(&in, 1, "X:");
    repeat(&in, 10000, "a");
    repeat(&in, 1, "\r\n cont\r\nA: 1\r\n\r\n");
    repeat(&out, 1, "X:");
    repeat(&out, CLEANUP_PIECE + 5 - 2, "a");
    repeat(&out, 1, "\r\nA: 1\r\n\r\n");
    want(STRANGER, CLEANUP_PIECE + 5, buf_slice(&in), slice_string(buf_cstr(&out)));

    /* A line end that reaches the limit is left out, and the name of a field never. */
    want(STRANGER, 9, SLICE("A: 45678\r\n 1234\r\nLong-Name:  x\r\n\r\n"),
         SLICE("A: 45678\r\nLong-Name:\r\n\r\n"));
    want(STRANGER, 10, SLICE("A: 45678\r\n 1234\r\n 5\r\n\r\n"), SLICE("A: 45678\r\n \r\n\r\n"));

    /* Many fields together may exceed it. */
    buf_clear(&in);
    repeat(&in, 1000, "A: 4567890\r\n");
    repeat(&in, 1, "\r\nx\r\n");
    want(STRANGER, 10, buf_slice(&in), slice_string(buf_cstr(&in)));

    /* A field that would be cut after its completion stays as it is. */
    want(OWN, 20, SLICE(WHOLE "To: a, b, c, d, e\r\n\r\n"),
         SLICE(WHOLE "To: a, b, c, d, e\r\n\r\n"));

    /* The first line without a colon, of any length, begins the body. */
    buf_clear(&in);
    buf_clear(&out);
    repeat(&in, 5000, "a");
    repeat(&in, 1, ": x\r\nBcc: y\r\n");
    repeat(&out, 1, "\r\n");
    repeat(&out, 5000, "a");
    repeat(&out, 1, ": x\r\nBcc: y\r\n");
    want(STRANGER, 100, buf_slice(&in), slice_string(buf_cstr(&out)));

    /* A long `From ' line. */
    buf_clear(&in);
    repeat(&in, 1, "From ");
    repeat(&in, 5000, "a");
    repeat(&in, 1, "\r\nA: 1\r\n\r\n");
    want(STRANGER, 100, buf_slice(&in), SLICE("A: 1\r\n\r\n"));
    buf_fini(&in);
    buf_fini(&out);
}

/* Completed addresses can make a header many times as long; that has a limit. */
static void growth_has_a_limit(void **unused)
{
    struct buf in, out, again;

    (void)unused;
    buf_init(&in, OUTPUT_MAX);
    buf_init(&out, OUTPUT_MAX);
    buf_init(&again, OUTPUT_MAX);
    repeat(&in, 1, WHOLE);
    repeat(&in, 200000, "To:a\r\n");
    repeat(&in, 1, "\r\n");
    clean(OWN, 102400, buf_slice(&in), buf_len(&in), &out);
    assert_true(buf_len(&out) < buf_len(&in) + CLEANUP_COMPLETED_MAX);
    clean(OWN, 102400, buf_slice(&out), buf_len(&out), &again);
    assert_true(slice_equal(buf_slice(&out), buf_slice(&again)));
    buf_fini(&in);
    buf_fini(&out);
    buf_fini(&again);
}

static void addresses_get_their_canonical_form_for_own_clients(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"To: a@old.test", "To: a@r.test"},
        {"Reply-To: <a@old.test>", "Reply-To: <a@s.test>"},
        {"Cc: \"A, B\" <a@old.test>, b@x.test,\r\n c@old.test (c@old.test)",
         "Cc: \"A, B\" <a@r.test>, b@x.test,\r\n c@r.test (c@old.test)"},
        {"Sender: name", "Sender: full.name@new.test"},
        {"Sender: Some Name <name>", "Sender: Some Name <full.name@new.test>"},
        {"To: \"a b\"@old.test", "To: \"a b\"@r.test"},
        {"To: team: a@old.test, b@old.test;", "To: team: a@r.test, b@r.test;"},
        {"To: <@route.test:a@old.test>", NULL},
        {"To: a @ old.test", NULL},
        {"To: a@b@old.test", NULL},
        {"To: <a@old.test", NULL},
        {"Subject: a@old.test", NULL},
        {"To: a@[192.0.2.1]", NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char in[300], wanted[300];

        (void)snprintf(in, sizeof in, "%s\r\n" WHOLE "\r\nTo: a@old.test\r\n", cases[i].in);
        (void)snprintf(wanted, sizeof wanted, "%s\r\n" WHOLE "\r\nTo: a@old.test\r\n",
                       cases[i].want != NULL ? cases[i].want : cases[i].in);
        want(OWN, 102400, slice_string(in), slice_string(wanted));
        want(STRANGER, 102400, slice_string(in), slice_string(in));
    }
}

UNIT_MAIN(cmocka_unit_test(hidden_fields_are_removed),
          cmocka_unit_test(a_body_begins_after_an_empty_line),
          cmocka_unit_test(missing_fields_are_added_for_own_clients),
          cmocka_unit_test(addresses_without_a_domain_are_completed_for_own_clients),
          cmocka_unit_test(addresses_get_their_canonical_form_for_own_clients),
          cmocka_unit_test(a_field_over_the_limit_is_cut), cmocka_unit_test(growth_has_a_limit))
