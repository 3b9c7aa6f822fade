#include "unit.h"

#include <string.h>

#include "downgrade.h"

#define OUT_MAX 65535
#define E8      "\xc3\xa9" /* e with an acute accent */
#define QP8     "=C3=A9"

/* Converts the text in pieces of `step` bytes. Returns whether the content is fit. */
static bool convert(struct slice in, size_t step, struct buf *out)
{
    struct downgrade *d = downgrade_new();
    bool fit;

    while (in.len > 0) {
        size_t len = step < in.len ? step : in.len, before = buf_len(out);

        downgrade_add(d, slice_of(in.ptr, len), out);
        assert_true(buf_len(out) - before <= DOWNGRADE_SIZE(len));
        in = slice_skip(in, len);
    }
    downgrade_finish(d, out);
    fit = !downgrade_unfit(d);
    downgrade_free(d);
    return fit;
}

static void parts_are_converted_each_in_its_way(void **unused)
{
#define MIME "MIME-Version: 1.0\r\n"
#define CTE  "Content-Transfer-Encoding: "
    static const struct {
        const char *in, *want; /* NULL: unchanged */
        bool unfit;
    } cases[] = {
        /* One part. */
        {MIME "Content-Type: text/plain; charset=utf-8\r\n" CTE "8bit\r\n\r\ncaf" E8 "\r\n",
         MIME "Content-Type: text/plain; charset=utf-8\r\n" CTE "quoted-printable\r\n\r\ncaf" QP8
              "\r\n",
         false},
        {CTE "8bit\r\n" MIME "Subject: x\r\n\r\n" E8 "\r\n",
         MIME "Subject: x\r\n" CTE "quoted-printable\r\n\r\n" QP8 "\r\n", false},
        {MIME "content-transfer-encoding : (a comment (in one)) BINARY\r\n\r\n" E8,
         MIME CTE "quoted-printable\r\n\r\n" QP8, false},
        {MIME CTE "7bit\r\n\r\n" E8 "\r\n", MIME CTE "quoted-printable\r\n\r\n" QP8 "\r\n", false},
        {MIME CTE "\r\n 8bit\r\n\r\n" E8, MIME CTE "quoted-printable\r\n\r\n" QP8, false},
        {MIME CTE "8bit\r\n" CTE "7bit\r\n\r\n" E8, MIME CTE "quoted-printable\r\n\r\n" QP8, false},
        {MIME CTE "base64\r\n\r\nw6k=\r\n", NULL, false},
        {MIME CTE "x-own\r\n\r\n" E8 "\r\n", NULL, false},
        {MIME CTE "base64\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n" E8
                  "\r\n--b--\r\n",
         MIME "Content-Type: multipart/mixed; boundary=b\r\n" CTE "base64\r\n\r\n--b\r\n" CTE
              "quoted-printable\r\n\r\n" QP8 "\r\n--b--\r\n",
         false},
        {MIME "Subject: " E8 "\r\n" CTE "quoted-printable\r\n\r\n=C3=A9\r\n", NULL, false},
        /* No MIME. */
        {"Subject: x\r\n\r\n" E8 "\r\n",
         "Subject: x\r\n" MIME "Content-Type: text/plain; charset=unknown-8bit\r\n" CTE
         "quoted-printable\r\n\r\n" QP8 "\r\n",
         false},
        {"Content-Type: text/html\r\n\r\n" E8,
         "Content-Type: text/html\r\n" MIME CTE "quoted-printable\r\n\r\n" QP8, false},
        {"\r\n" E8,
         MIME "Content-Type: text/plain; charset=unknown-8bit\r\n" CTE
              "quoted-printable\r\n\r\n" QP8,
         false},
        {"Subject: x\n\n" E8 "\n",
         "Subject: x\n" MIME "Content-Type: text/plain; charset=unknown-8bit\r\n" CTE
         "quoted-printable\r\n\n" QP8 "\n",
         false},
        {"Subject: only fields\r\n", NULL, false},
        {"", NULL, false},
        /* Quoted-printable. */
        {MIME "\r\na=b \r\n\tc\t\r\n.\r\n~\x7f\r\n",
         MIME CTE "quoted-printable\r\n\r\na=3Db=20\r\n\tc=09\r\n.\r\n~=7F\r\n", false},
        {MIME "\r\na\rb\r\r\nend ", MIME CTE "quoted-printable\r\n\r\na=0Db=0D\r\nend=20", false},
        {MIME "\r\nx\r", MIME CTE "quoted-printable\r\n\r\nx=0D", false},
        /* Multiparts. */
        {MIME CTE "8bit\r\nContent-Type: multipart/mixed;\r\n boundary=\"b 1\"\r\n\r\npre" E8 "\r\n"
                  "--b 1\r\nContent-Type: text/plain\r\n" CTE "8bit\r\n\r\n" E8 "\r\n--b 1x\r\n"
                  "--b 1 \r\n" CTE "base64\r\n\r\nw6k=\r\n"
                  "--b 1--\r\npost" E8 "\r\n",
         MIME "Content-Type: multipart/mixed;\r\n boundary=\"b 1\"\r\n" CTE "7bit\r\n\r\npre??\r\n"
              "--b 1\r\nContent-Type: text/plain\r\n" CTE "quoted-printable\r\n\r\n" QP8
              "\r\n--b 1x\r\n"
              "--b 1 \r\n" CTE "base64\r\n\r\nw6k=\r\n"
              "--b 1--\r\npost??\r\n",
         false},
        {MIME "Content-Type: multipart/mixed; charset=x; BOUNDARY=o\r\n\r\n"
              "--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\n\r\n" E8 "\r\n"
              "--o\r\n\r\n" E8 "\r\n--o--\r\n",
         MIME "Content-Type: multipart/mixed; charset=x; BOUNDARY=o\r\n\r\n"
              "--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n--i\r\n" CTE
              "quoted-printable\r\n\r\n" QP8 "\r\n"
              "--o\r\n" CTE "quoted-printable\r\n\r\n" QP8 "\r\n--o--\r\n",
         false},
        {MIME "Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n" CTE "8bit\r\n--o--\r\n",
         NULL, false},
        {MIME "Content-Type: multipart/mixed\r\n\r\n" E8 "\r\n", NULL, false}, /* no boundary */
        /* Messages in messages. */
        {MIME CTE "8bit\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\n" E8,
         MIME "Content-Type: message/rfc822\r\n" CTE "7bit\r\n\r\nSubject: in\r\n" MIME
              "Content-Type: text/plain; charset=unknown-8bit\r\n" CTE
              "quoted-printable\r\n\r\n" QP8,
         false},
        /* The parts of a digest are messages by default. */
        {MIME "Content-Type: multipart/digest; boundary=d\r\n\r\n--d\r\n\r\nSubject: " E8
              "\r\n\r\n" E8 "\r\n--d\r\nContent-Type: text/plain\r\n\r\n" E8 "\r\n--d--\r\n",
         MIME "Content-Type: multipart/digest; boundary=d\r\n\r\n--d\r\n\r\nSubject: " E8
              "\r\n" MIME "Content-Type: text/plain; charset=unknown-8bit\r\n" CTE
              "quoted-printable\r\n\r\n" QP8 "\r\n--d\r\nContent-Type: text/plain\r\n" CTE
              "quoted-printable\r\n\r\n" QP8 "\r\n--d--\r\n",
         false},
        /* Fields of MIME without MIME-Version. */
        {"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n" E8 "\r\n--b--\r\n",
         "Content-Type: multipart/mixed; boundary=b\r\n" MIME "\r\n--b\r\n" CTE
         "quoted-printable\r\n\r\n" QP8 "\r\n--b--\r\n",
         false},
        {"Content-Type: message/rfc822\r\n\r\n" MIME "\r\n" E8,
         "Content-Type: message/rfc822\r\n" MIME "\r\n" MIME CTE "quoted-printable\r\n\r\n" QP8,
         false},
        {"Content-Type: image/png\r\n" CTE "base64\r\n\r\nw6k=\r\n", NULL, false},
        {MIME "Content-Type: message/delivery-status\r\n\r\nStatus: " E8 "\r\n", NULL, false},
        /* What is signed. */
        {MIME "Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\nplain \r\n--s\r\n"
              "Content-Type: application/pgp-signature\r\n\r\nabc=\r\n--s--\r\n",
         NULL, false},
        {MIME
         "Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\nContent-Type: text/plain\r\n" CTE
         "8bit\r\n\r\n" E8 "\r\n--s--\r\n",
         NULL, true},
        {MIME "Content-Type: multipart/signed; boundary=s\r\n\r\npre" E8 "\r\n--s\r\n\r\nplain\r\n"
              "--s--\r\npost" E8 "\r\n",
         MIME "Content-Type: multipart/signed; boundary=s\r\n\r\npre??\r\n--s\r\n\r\nplain\r\n"
              "--s--\r\npost??\r\n",
         false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice in = slice_string(cases[i].in);

        for (size_t step = 1; step <= in.len + 1; step = step < 20 ? step + 1 : step * 2) {
            struct buf out;

            buf_init(&out, OUT_MAX);
            assert_int_equal(convert(in, step, &out), !cases[i].unfit);
            assert_string_equal(buf_cstr(&out),
                                cases[i].want != NULL ? cases[i].want : cases[i].in);
            buf_fini(&out);
        }
    }
}

static void lines_are_broken_softly_and_never_look_like_a_boundary(void **unused)
{
    struct buf in, out;
    struct slice rest;
    size_t lines = 0;

    (void)unused;
    buf_init(&in, OUT_MAX);
    buf_init(&out, OUT_MAX);
    assert_true(buf_add_string(
        &in, "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n"));
    for (int i = 0; i < 2000; i++) {
        assert_true(buf_add_string(&in, i % 3 == 0 ? "--b" : i % 3 == 1 ? "x" : E8));
    }
    assert_true(convert(buf_slice(&in), 300, &out));
    rest = buf_slice(&out);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        assert_true(line.len <= 77); /* 76 and a CR */
        lines += slice_starts(line, SLICE("--b")) ? 1 : 0;
    }
    assert_int_equal(lines, 2); /* the boundary, and the start of the text */
    buf_fini(&in);
    buf_fini(&out);
}

/* The most is added to a digest of messages without fields. */
static void many_short_parts_stay_within_the_bound(void **unused)
{
    static const char *const types[] = {"mixed", "digest"};

    (void)unused;
    for (size_t i = 0; i < COUNT(types); i++) {
        struct buf in, out;

        buf_init(&in, OUT_MAX);
        buf_init(&out, (size_t)2 * DOWNGRADE_SIZE(OUT_MAX));
        assert_true(buf_addf(&in, "Content-Type: multipart/%s; boundary=b\n\n", types[i]));
        for (int k = 0; k < 8000; k++) {
            assert_true(buf_add_string(&in, i == 0 ? "--b\n\n" : "--b\n\n\n"));
        }
        assert_true(convert(buf_slice(&in), OUT_MAX, &out)); /* which checks the bound */
        assert_true(convert(buf_slice(&in), 1000, &out));
        buf_fini(&in);
        buf_fini(&out);
    }
}

static void memory_is_bounded_for_long_lines_and_deep_nesting(void **unused)
{
    struct buf in, out;

    (void)unused;
    buf_init(&in, OUT_MAX);
    buf_init(&out, OUT_MAX);
    for (int i = 0; i < 40; i++) {
        assert_true(
            buf_addf(&in, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i));
    }
    assert_true(buf_add_string(&in, "\r\n" E8));
    assert_true(convert(buf_slice(&in), 100, &out));
    buf_clear(&in);
    buf_clear(&out);
    assert_true(buf_add_string(&in, "Content-Type: text/plain; x="));
    for (int i = 0; i < 6000; i++) {
        assert_true(buf_add_byte(&in, 'y'));
    }
    assert_true(buf_add_string(&in, "\r\n\r\n"));
    for (int i = 0; i < 6000; i++) {
        assert_true(buf_add_byte(&in, 'z'));
    }
    assert_true(convert(buf_slice(&in), 1, &out));
    assert_true(buf_len(&out) > buf_len(&in));
    buf_clear(&in);
    buf_clear(&out);
    assert_true(buf_addf(
        &in,
        "MIME-Version: 1.0\r\nContent-Transfer-Encoding:\r\n (%0600d)\r\n base64\r\n\r\nw6k=\r\n",
        1));
    assert_true(convert(buf_slice(&in), 100, &out));
    assert_string_equal(buf_cstr(&out), buf_cstr(&in));
    buf_fini(&in);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(parts_are_converted_each_in_its_way),
          cmocka_unit_test(lines_are_broken_softly_and_never_look_like_a_boundary),
          cmocka_unit_test(many_short_parts_stay_within_the_bound),
          cmocka_unit_test(memory_is_bounded_for_long_lines_and_deep_nesting))
