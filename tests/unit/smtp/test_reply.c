#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "reply.h"

/* Feed `in` in pieces of `step` bytes and write down what comes out. */
static void tell_as(bool tolerant, struct slice in, size_t step, struct buf *story)
{
    struct reply r;
    enum reply_event event = REPLY_MORE;
    char status[STATUS_SIZE];

    reply_init(&r);
    r.tolerant = tolerant;
    buf_clear(story);
    while (in.len > 0 && event != REPLY_BAD) {
        struct slice piece = slice_of(in.ptr, in.len < step ? in.len : step);
        size_t used;

        event = reply_feed(&r, piece, &used);
        in = slice_skip(in, used);
        switch (event) {
        case REPLY_MORE:
            assert_int_equal(used, piece.len);
            break;
        case REPLY_LINE:
            buf_addf(story, "[%.*s]", SLICE_ARGS(reply_line(&r)));
            break;
        case REPLY_DONE:
            assert_true(reply_is_idle(&r));
            buf_addf(story, "%u %s{%.*s}", r.code, status_print(r.status, status),
                     SLICE_ARGS(reply_text(&r)));
            break;
        case REPLY_BAD:
            buf_addf(story, "BAD{%.*s}", SLICE_ARGS(reply_text(&r)));
            break;
        }
    }
    assert_false(story->failed);
    reply_fini(&r);
}

static void tell(struct slice in, size_t step, struct buf *story)
{
    tell_as(false, in, step, story);
}

/* What servers send between the lines of their replies. */
static void lines_without_a_code_are_skipped_where_that_is_safe(void **state)
{
    static const struct {
        const char *in, *want;
    } table[] = {
        {"\r\n220 mx\r\n", "220 2.0.0{220 mx}"},
        {"220-mx\r\n\r\n220 x\r\n", "[mx]220 2.0.0{220-mx 220 x}"},
        {"250 Nice to meet you.\r\nSIZE\r\n250 Ok\r\n",
         "250 2.0.0{250 Nice to meet you.}250 2.0.0{250 Ok}"},
        {"250-Nice\r\n8BITMIME\r\n250 SIZE\r\n", "[Nice]250 2.0.0{250-Nice 250 SIZE}"},
        {"250-a\nb\nc\n250-d\n250x\n199 y\n250 e\n", "[a][d]250 2.0.0{250-a 250-d 250 e}"},
        {"hello", ""},
        {"hello\n\n", ""},
    };
    struct buf story;
    (void)state;

    buf_init(&story, 100000);
    for (size_t i = 0; i < COUNT(table); i++) {
        for (size_t step = 1; step <= strlen(table[i].in); step++) {
            tell_as(true, slice_string(table[i].in), step, &story);
            assert_string_equal(buf_cstr(&story), table[i].want);
        }
    }
    buf_fini(&story);
}

static void replies_are_read_the_same_under_every_split(void **state)
{
    static const struct {
        const char *in;
        size_t len; /* 0: strlen */
        const char *want;
    } table[] = {
        {"220 mx ESMTP\r\n", 0, "220 2.0.0{220 mx ESMTP}"},
        {"250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n", 0, "250 2.1.0{250 2.1.0 Ok}250 2.1.5{250 2.1.5 Ok}"},
        {"550 5.1.1 <a@b>: unknown\r\n", 0, "550 5.1.1{550 5.1.1 <a@b>: unknown}"},
        {"550 no code\r\n", 0, "550 5.0.0{550 no code}"},
        {"450 5.1.1 wrong class\r\n", 0, "450 4.0.0{450 5.1.1 wrong class}"},
        {"250-mx\r\n250-SIZE 10\r\n250 DSN\r\n", 0,
         "[mx][SIZE 10]250 2.0.0{250-mx 250-SIZE 10 250 DSN}"},
        {"550-5.7.1 first\r\n550 5.7.1 last\r\n", 0,
         "[5.7.1 first]550 5.7.1{550-5.7.1 first 550 5.7.1 last}"},
        {"550-5.7.1 first\r\n550 last\r\n", 0, "[5.7.1 first]550 5.7.1{550-5.7.1 first 550 last}"},
        {"550-5.7.1 first\r\n450 last\r\n", 0, "[5.7.1 first]450 4.0.0{550-5.7.1 first 450 last}"},
        {"250\r\n", 0, "250 2.0.0{250}"},
        {"250\n", 0, "250 2.0.0{250}"},
        {"250 \r\n", 0, "250 2.0.0{250 }"},
        {"250-\r\n250\r\n", 0, "[]250 2.0.0{250- 250}"},
        {"250 a\rb\r\r\n", 0, "250 2.0.0{250 a?b?}"},
        {"250 a\tb\x01\x7f\xff\r\n", 0, "250 2.0.0{250 a b???}"},
        {"250 nul\0nul\r\n", 13, "250 2.0.0{250 nul?nul}"},
        {"250 gr\xc3\xbc\xc3\x9f\x65\r\n", 0, "250 2.0.0{250 gr\xc3\xbc\xc3\x9f\x65}"},
        {"250 \xc2\x85 \xc3\r\n", 0, "250 2.0.0{250 ?? ?}"},
        {"\n", 0, "BAD{}"},
        {"\r\n", 0, "BAD{}"},
        {"hello\r\n", 0, "BAD{hello}"},
        {"SSH-2.0-OpenSSH\r\n", 0, "BAD{SSH-2.0-OpenSSH}"},
        {"25\r\n", 0, "BAD{25}"},
        {"2500 x\r\n", 0, "BAD{2500 x}"},
        {"199 x\r\n", 0, "BAD{199 x}"},
        {"600 x\r\n", 0, "BAD{600 x}"},
        {"250x\r\n", 0, "BAD{250x}"},
        {"25\0 x\r\n", 7, "BAD{25? x}"},
        {"250-ok\r\nboo\r\n", 0, "[ok]BAD{250-ok boo}"},
        {"250-ok\r\n\n", 0, "[ok]BAD{250-ok }"},
    };
    struct buf story;
    (void)state;

    buf_init(&story, 100000);
    for (size_t i = 0; i < COUNT(table); i++) {
        size_t len = table[i].len > 0 ? table[i].len : strlen(table[i].in);

        for (size_t step = 1; step <= len; step++) {
            tell(slice_of(table[i].in, len), step, &story);
            assert_string_equal(buf_cstr(&story), table[i].want);
        }
    }
    buf_fini(&story);
}

static void a_long_line_is_cut_and_still_a_reply(void **state)
{
    struct buf in, story;
    char want[REPLY_LINE_MAX + 100];
    (void)state;

    buf_init(&in, 100000);
    buf_init(&story, 100000);
    buf_add_string(&in, "250 ");
    for (size_t i = 0; i < 5000; i++) {
        buf_add_byte(&in, 'x');
    }
    buf_add_string(&in, "\r\n");
    snprintf(want, sizeof(want), "250 2.0.0{250 %0*d}", REPLY_LINE_MAX - 4, 0);
    for (char *c = strchr(want, '{') + 5; *c == '0'; c++) {
        *c = 'x';
    }
    static const size_t steps[] = {1, 7, 999, 1000, 1001, 10000};
    for (size_t i = 0; i < COUNT(steps); i++) {
        tell(buf_slice(&in), steps[i], &story);
        assert_string_equal(buf_cstr(&story), want);
    }
    buf_fini(&in);
    buf_fini(&story);
}

/* How a reply of `lines` lines with `len` bytes of text each ends, fed in steps. */
static enum reply_event end_of_long_reply(size_t lines, size_t len, size_t step)
{
    struct reply r;
    struct buf in;
    enum reply_event event = REPLY_MORE;
    size_t used;

    buf_init(&in, 10000000);
    for (size_t i = 0; i < lines; i++) {
        buf_addf(&in, "250%c%0*d\r\n", i + 1 < lines ? '-' : ' ', (int)len, 0);
    }
    reply_init(&r);
    while (buf_len(&in) > 0 && event != REPLY_BAD && event != REPLY_DONE) {
        struct slice piece = buf_slice(&in);

        piece.len = piece.len < step ? piece.len : step;
        event = reply_feed(&r, piece, &used);
        buf_consume(&in, used);
        assert_true(reply_text(&r).len <= REPLY_TEXT_MAX);
    }
    reply_fini(&r);
    buf_fini(&in);
    return event;
}

static void a_reply_without_end_is_bad(void **state)
{
    (void)state;

    for (size_t step = 1; step < 100000; step = step * 10 + 1) {
        assert_int_equal(end_of_long_reply(10000, 10, step), REPLY_DONE);
        assert_int_equal(end_of_long_reply(20000, 10, step), REPLY_BAD);
        assert_int_equal(end_of_long_reply(250, 1000, step), REPLY_DONE);
        assert_int_equal(end_of_long_reply(270, 1000, step), REPLY_BAD);
        assert_int_equal(end_of_long_reply(1, 260000, step), REPLY_DONE);
        assert_int_equal(end_of_long_reply(1, 270000, step), REPLY_BAD);
    }
}

static void bad_is_final_until_reset(void **state)
{
    struct reply r;
    size_t used;
    (void)state;

    reply_init(&r);
    assert_int_equal(reply_feed(&r, SLICE("boo\r\n250 ok\r\n"), &used), REPLY_BAD);
    assert_int_equal(reply_feed(&r, SLICE("250 ok\r\n"), &used), REPLY_BAD);
    assert_int_equal(used, 0);
    reply_reset(&r);
    assert_int_equal(reply_feed(&r, SLICE("250 ok\r\n"), &used), REPLY_DONE);
    reply_fini(&r);
}

UNIT_MAIN(cmocka_unit_test(replies_are_read_the_same_under_every_split),
          cmocka_unit_test(lines_without_a_code_are_skipped_where_that_is_safe),
          cmocka_unit_test(a_long_line_is_cut_and_still_a_reply),
          cmocka_unit_test(a_reply_without_end_is_bad), cmocka_unit_test(bad_is_final_until_reset))
