#include "report_reader.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

const struct report_rcpt plain_rcpt = {
    .address = LITERAL("a@x.example"),
    .action = REPORT_FAILED,
    .status = {5, 1, 1},
    .remote_mta = LITERAL("mx.x.example"),
    .diagnostic = LITERAL("550 5.1.1 no such user"),
    .text = LITERAL("host mx.x.example[192.0.2.1] said: 550 5.1.1 no such user (in reply to "
                    "RCPT TO command)"),
    .last_attempt = {1000259200 * US_PER_S},
};

struct report plain_report(const struct report_rcpt *rcpts, size_t count)
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

void parse(struct slice message, struct parsed *p)
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

bool contains(struct slice in, const char *what)
{
    return memmem(in.ptr, in.len, what, strlen(what)) != NULL;
}

void assert_contains(struct slice in, const char *what)
{
    if (!contains(in, what)) {
        fail_msg("no '%s' in:\n%.*s", what, SLICE_ARGS(in));
    }
}

void build(const struct report *r, struct buf *out, struct parsed *p, unsigned want_flags)
{
    unsigned flags = 0;

    buf_clear(out);
    assert_true(report_build(r, out, &flags));
    assert_int_equal(flags, want_flags);
    parse(buf_slice(out), p);
}

struct slice boundary_of(struct slice text)
{
    static const char mark[] = "boundary=\"";
    const char *at = memmem(text.ptr, text.len, mark, sizeof(mark) - 1);

    assert_non_null(at);
    text = slice_skip(text, (size_t)(at - text.ptr) + sizeof(mark) - 1);
    return slice_of(text.ptr, slice_find(text, '"'));
}
