#include "unit.h"

#include <string.h>

#include "buf.h"
#include "content.h"

/* Feed in pieces of `piece` bytes; true when the end was found. */
static bool scan(struct content *c, struct slice in, size_t piece, struct buf *out,
                 struct slice *ret_rest)
{
    while (in.len > 0) {
        struct slice part = slice_of(in.ptr, piece < in.len ? piece : in.len), content;
        size_t used;
        bool end = content_feed(c, part, &used, &content);

        assert_true(used > 0 || content.len > 0);
        buf_add(out, content);
        in = slice_skip(in, used);
        if (end) {
            *ret_rest = in;
            content_finish(c);
            return true;
        }
    }
    content_finish(c);
    return false;
}

static void content_is_the_same_under_every_split(void **unused)
{
    const struct {
        struct slice in;
        struct slice want; /* content */
        const char *want_rest;
        unsigned want_flags;
        uint64_t want_header, want_lines, want_longest;
        uint32_t want_received;
    } cases[] = {
        {SLICE(".\r\nrest"), SLICE(""), "rest", 0, 0, 0, 0, 0},
        {SLICE("A: b\r\n\r\nbody\r\n.\r\n"), SLICE("A: b\r\n\r\nbody\r\n"), "", 0, 6, 3, 4, 0},
        {SLICE("..\r\n...\r\n.x\r\n.\r\n"), SLICE(".\r\n..\r\nx\r\n"), "", 0, 0, 3, 2, 0},
        {SLICE("a\n.\nb\r\n.\r\n"), SLICE("a\n.\nb\r\n"), "", CONTENT_BARE_LF | CONTENT_FALSE_END,
         0, 1, 5, 0},
        {SLICE("a\n.\r\nb\r\n.\r\n"), SLICE("a\n.\r\nb\r\n"), "",
         CONTENT_BARE_LF | CONTENT_FALSE_END, 0, 2, 3, 0},
        {SLICE("a\n.\rb\n..\n.\r\rb\r\n.\r\n"), SLICE("a\n.\rb\n..\n.\r\rb\r\n"), "",
         CONTENT_BARE_LF | CONTENT_BARE_CR, 0, 1, 13, 0},
        {SLICE("a\r.\rb\r\n.\r\n"), SLICE("a\r.\rb\r\n"), "", CONTENT_BARE_CR, 0, 1, 5, 0},
        {SLICE("a\r\n.\n\r\n.\r\n"), SLICE("a\r\n\n\r\n"), "", CONTENT_BARE_LF | CONTENT_FALSE_END,
         0, 2, 1, 0},
        {SLICE("a\r\n.\r.\r\n.\r\n"), SLICE("a\r\n\r.\r\n"), "", CONTENT_BARE_CR, 0, 2, 2, 0},
        {SLICE("a\r\n.\r\r\n.\r\n"), SLICE("a\r\n\r\r\n"), "", CONTENT_BARE_CR, 0, 2, 1, 0},
        {SLICE("a: \0\xff\r\n.\r\n"), SLICE("a: \0\xff\r\n"), "",
         CONTENT_NUL | CONTENT_8BIT | CONTENT_HEADER_8BIT, 7, 1, 5, 0},
        {SLICE("a: b\r\n\r\n\xff\r\n.\r\n"), SLICE("a: b\r\n\r\n\xff\r\n"), "", CONTENT_8BIT, 6, 3,
         4, 0},
        {SLICE("Received: a\r\n b\r\nreceived : c\r\nReceivedX: d\r\n.\r\n"),
         SLICE("Received: a\r\n b\r\nreceived : c\r\nReceivedX: d\r\n"), "", 0, 45, 4, 12, 2},
        {SLICE("A: b\r\nnot a field\r\nReceived: c\r\n.\r\n"),
         SLICE("A: b\r\nnot a field\r\nReceived: c\r\n"), "", 0, 6, 3, 11, 0},
        {SLICE("A: b\r\n\r\nReceived: c\r\n.\r\n"), SLICE("A: b\r\n\r\nReceived: c\r\n"), "", 0, 6,
         3, 11, 0},
        {SLICE(" a\r\nReceived: c\r\n.\r\n"), SLICE(" a\r\nReceived: c\r\n"), "", 0, 0, 2, 11, 0},
        {SLICE(".Received: c\r\n.\r\n"), SLICE("Received: c\r\n"), "", 0, 13, 1, 11, 1},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t piece = 1; piece <= cases[i].in.len; piece++) {
            struct content c;
            struct slice rest = {NULL, 0};
            struct buf out;

            buf_init(&out, 1000);
            content_init(&c, CONTENT_DOTTED);
            assert_true(scan(&c, cases[i].in, piece, &out, &rest));
            assert_true(slice_equal(buf_slice(&out), cases[i].want));
            assert_true(slice_equal(rest, slice_string(cases[i].want_rest)));
            assert_int_equal(c.facts.bytes, cases[i].want.len);
            assert_int_equal(c.facts.flags, cases[i].want_flags);
            assert_int_equal(c.facts.header_bytes, cases[i].want_header);
            assert_int_equal(c.facts.lines, cases[i].want_lines);
            assert_int_equal(c.facts.longest_line, cases[i].want_longest);
            assert_int_equal(c.facts.received, cases[i].want_received);
            buf_fini(&out);
        }
    }
}

/* Clients on devices that end lines with LF: jeboehm/docker-mailserver#805, VernissageServer#28,
 * inverse-inc/packetfence#5380. */
static void bare_lf_is_a_line_end_if_accepted(void **unused)
{
    const struct {
        enum content_framing framing;
        struct slice in, want;
        const char *want_rest;
        unsigned want_flags;
        uint64_t want_header, want_lines, want_longest;
    } cases[] = {
        {CONTENT_DOTTED, SLICE("A: b\n\nx\n.\nQUIT\n"), SLICE("A: b\r\n\r\nx\r\n"), "QUIT\n", 0, 6,
         3, 4},
        {CONTENT_DOTTED, SLICE("A: b\n\nx\r\n.\r\nQUIT"), SLICE("A: b\r\n\r\nx\r\n"), "QUIT", 0, 6,
         3, 4},
        {CONTENT_DOTTED, SLICE("x\n.\r\nrest"), SLICE("x\r\n"), "rest", 0, 0, 1, 1},
        {CONTENT_DOTTED, SLICE("x\r\n.\nrest"), SLICE("x\r\n"), "rest", 0, 0, 1, 1},
        {CONTENT_DOTTED, SLICE(".\nrest"), SLICE(""), "rest", 0, 0, 0, 0},
        {CONTENT_DOTTED, SLICE("..\n...\n.x\n\n\n.\n"), SLICE(".\r\n..\r\nx\r\n\r\n\r\n"), "", 0, 0,
         5, 2},
        {CONTENT_DOTTED, SLICE("a\rb\n\r\r\n.\r.\n.\n"), SLICE("a b\r\n\r\n .\r\n"), "", 0, 0, 3,
         3},
        {CONTENT_DOTTED, SLICE("A: b\r\r\n\r\r\nx\r\ry\r\r\r\n.\r\r\nrest"),
         SLICE("A: b\r\n\r\nx y\r\n"), "rest", 0, 6, 3, 4},
        {CONTENT_COUNTED, SLICE("\rA: b\r\n\r\nx\r"), SLICE(" A: b\r\n\r\nx"), "", 0, 0, 2, 5},
        {CONTENT_DOTTED, SLICE("\n\r\n.\r\n"), SLICE("\r\n\r\n"), "", 0, 0, 2, 0},
        {CONTENT_COUNTED, SLICE("A: b\n\n.\n\n"), SLICE("A: b\r\n\r\n.\r\n\r\n"), "", 0, 6, 4, 4},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t piece = 1; piece <= cases[i].in.len; piece++) {
            struct content c;
            struct slice rest = {NULL, 0};
            struct buf out;

            buf_init(&out, 1000);
            content_init(&c, cases[i].framing);
            content_accept_bare_lf(&c);
            assert_int_equal(scan(&c, cases[i].in, piece, &out, &rest),
                             cases[i].framing == CONTENT_DOTTED);
            assert_true(slice_equal(buf_slice(&out), cases[i].want));
            if (cases[i].framing == CONTENT_DOTTED) {
                assert_true(slice_equal(rest, slice_string(cases[i].want_rest)));
            }
            assert_int_equal(c.facts.bytes, cases[i].want.len);
            assert_int_equal(c.facts.flags, cases[i].want_flags);
            assert_int_equal(c.facts.header_bytes, cases[i].want_header);
            assert_int_equal(c.facts.lines, cases[i].want_lines);
            assert_int_equal(c.facts.longest_line, cases[i].want_longest);
            buf_fini(&out);
        }
    }
}

static void counted_content_has_no_dots(void **unused)
{
    struct slice in = SLICE("Delivered-To: x\r\n.\r\n..\r\n\r"), rest;

    (void)unused;
    for (size_t piece = 1; piece <= in.len; piece++) {
        struct content c;
        struct buf out;

        buf_init(&out, 1000);
        content_init(&c, CONTENT_COUNTED);
        assert_false(scan(&c, in, piece, &out, &rest));
        assert_true(slice_equal(buf_slice(&out), in));
        assert_int_equal(c.facts.delivered_to, 1);
        assert_int_equal(c.facts.flags, CONTENT_BARE_CR); /* the last byte */
        buf_fini(&out);
    }
}

static void long_lines_are_flagged(void **unused)
{
    for (size_t len = CONTENT_LINE_ADVISED; len <= CONTENT_LINE_ADVISED + 1; len++) {
        struct content c;
        struct buf in, out;
        struct slice rest;

        buf_init(&in, 2000);
        buf_init(&out, 2000);
        for (size_t i = 0; i < len; i++) {
            buf_add_byte(&in, 'x');
        }
        buf_add_string(&in, "\r\n.\r\n");
        content_init(&c, CONTENT_DOTTED);
        assert_true(scan(&c, buf_slice(&in), 7, &out, &rest));
        assert_int_equal(c.facts.longest_line, len);
        assert_int_equal(c.facts.flags, len > CONTENT_LINE_ADVISED ? CONTENT_LONG_LINE : 0);
        buf_fini(&in);
        buf_fini(&out);
    }
    (void)unused;
}

UNIT_MAIN(cmocka_unit_test(content_is_the_same_under_every_split),
          cmocka_unit_test(bare_lf_is_a_line_end_if_accepted),
          cmocka_unit_test(counted_content_has_no_dots), cmocka_unit_test(long_lines_are_flagged))
