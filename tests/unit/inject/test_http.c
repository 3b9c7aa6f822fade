#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "http.h"
#include "mem.h"

#define STORY_MAX 2000

/* Write down what the engine reports for the requests in `text`, the body in pieces of one story.
 * Ends at what is no request, or when all is read. */
static void tell(struct slice text, size_t cut, char *story)
{
    struct slice parts[2] = {slice_of(text.ptr, cut), slice_skip(text, cut)};
    struct http_event event;
    struct http h;
    size_t at = 0;
    bool in_body = false;

    http_init(&h);
    story[0] = '\0';
    for (size_t i = 0; i < 2; i++) {
        do {
            http_next(&h, &parts[i], &event);
            if (event.type == HTTP_BODY) {
                at += (size_t)snprintf(story + at, STORY_MAX - at, "%s%.*s", in_body ? "" : "[",
                                       SLICE_ARGS(event.body));
                in_body = true;
                continue;
            }
            if (in_body && event.type != HTTP_NEED_INPUT) {
                at += (size_t)snprintf(story + at, STORY_MAX - at, "]");
                in_body = false;
            }
            if (event.type == HTTP_HEAD) {
                at += (size_t)snprintf(story + at, STORY_MAX - at, "%.*s %.*s%s%s;",
                                       SLICE_ARGS(h.method), SLICE_ARGS(h.target),
                                       h.keep_alive ? "" : " close",
                                       h.expects_continue ? " 100" : "");
            } else if (event.type == HTTP_END) {
                at += (size_t)snprintf(story + at, STORY_MAX - at, "end;");
                http_again(&h);
            } else if (event.type == HTTP_BAD) {
                (void)snprintf(story + at, STORY_MAX - at, "bad %u", event.status);
                http_fini(&h);
                return;
            }
        } while (event.type != HTTP_NEED_INPUT);
    }
    http_fini(&h);
}

#define POST  "POST /a?b HTTP/1.1\r\nHost: h\r\n"
#define CHUNK POST "Transfer-Encoding: chunked\r\n\r\n"

static void every_split_tells_the_same_story(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {POST "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: h\r\n\r\n",
         "POST /a?b;[hello]end;GET /;end;"},
        {"\r\n\r\n" POST "\r\n", "POST /a?b;end;"},
        {POST "Connection: Close\r\n\r\n", "POST /a?b close;end;"},
        {"POST / HTTP/1.0\r\n\r\n", "POST / close;end;"},
        {"POST / HTTP/1.0\r\nConnection: x, keep-alive\r\n\r\n", "POST /;end;"},
        {POST "Content-Length: 2\r\nExpect: 100-Continue\r\n\r\nab", "POST /a?b 100;[ab]end;"},
        {POST "Expect: 100-continue\r\n\r\n", "POST /a?b;end;"},
        {CHUNK "5\r\nhello\r\n0\r\n\r\n", "POST /a?b;[hello]end;"},
        {CHUNK "3;x=\"y\"\r\nhel\r\n0000002 \r\nlo\r\n0\r\nX: y\r\nZ: w\r\n\r\n" POST "\r\n",
         "POST /a?b;[hello]end;POST /a?b;end;"},
        {CHUNK "A\r\n0123456789\r\n0\r\n\r\n", "POST /a?b;[0123456789]end;"},
        /* what two readers could read in two ways */
        {CHUNK "5\nhello", "POST /a?b;bad 400"},
        {CHUNK "5\r\nhelloX", "POST /a?b;[hello]bad 400"},
        {CHUNK "\r\n", "POST /a?b;bad 400"},
        {CHUNK "-1\r\n", "POST /a?b;bad 400"},
        {CHUNK "1000000000000\r\n", "POST /a?b;bad 400"},
        {CHUNK "0\r\n\n", "POST /a?b;bad 400"},
        {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400"},
        {POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "bad 400"},
        {POST "Content-Length: 1, 1\r\n\r\n", "bad 400"},
        {POST "Content-Length: -1\r\n\r\n", "bad 400"},
        {POST "Content-Length: 99999999999999999999\r\n\r\n", "bad 400"},
        {POST "Transfer-Encoding: chunked, chunked\r\n\r\n", "bad 501"},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400"},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400"},
        {POST "X : y\r\n\r\n", "bad 400"},
        {POST "X: y\r\n z\r\n\r\n", "bad 400"},
        {POST "X\r\n\r\n", "bad 400"},
        {POST "X: a\rb\r\n\r\n", "bad 400"},
        {POST "X: a\nY: b\r\n\r\n", "bad 400"},
        {POST "X: a\x01\r\n\r\n", "bad 400"},
        /* a whole URL as the target */
        {"POST http://x.test/a?b=http://c HTTP/1.1\r\nHost: h\r\n\r\n", "POST /a?b=http://c;end;"},
        {"POST HTTPS://[::1]:8080/a HTTP/1.1\r\nHost: h\r\n\r\n", "POST /a;end;"},
        {"POST http://x HTTP/1.1\r\nHost: h\r\n\r\n", "POST ;end;"},
        {"POST http:/a HTTP/1.1\r\nHost: h\r\n\r\n", "POST http:/a;end;"},
        {"POST http:///a HTTP/1.1\r\nHost: h\r\n\r\n", "bad 400"},
        {"POST http://:80/a HTTP/1.1\r\nHost: h\r\n\r\n", "bad 400"},
        {"POST http://u@x/a HTTP/1.1\r\nHost: h\r\n\r\n", "bad 400"},
        {"POST http://x/a HTTP/1.1\r\n\r\n", "bad 400"},
        {"POST /\r\n\r\n", "bad 400"},
        {"POST  / HTTP/1.1\r\n\r\n", "bad 400"},
        {"POST / HTTP/1.1 \r\nHost: h\r\n\r\n", "bad 505"},
        {"POST / HTTP/2\r\nHost: h\r\n\r\n", "bad 505"},
        {"POST / HTTP/1.1\r\n\r\n", "bad 400"},
        {POST "Host: i\r\n\r\n", "bad 400"},
        {POST "Expect: more\r\n\r\n", "bad 417"},
        {"\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "bad 400"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice text = slice_string(cases[i].in);

        for (size_t cut = 0; cut <= text.len; cut++) {
            char story[STORY_MAX];

            tell(text, cut, story);
            assert_string_equal(story, cases[i].want);
        }
    }
}

static void heads_have_a_length(void **unused)
{
    char *text = mem_array(HTTP_HEAD_MAX + 2, 1), story[STORY_MAX];
    size_t len;

    (void)unused;
    memset(text, 'a', HTTP_HEAD_MAX + 1);
    tell(slice_of(text, HTTP_HEAD_MAX + 1), 0, story);
    assert_string_equal(story, "bad 414");
    len = (size_t)snprintf(text, HTTP_HEAD_MAX, "%sX: ", POST);
    text[len] = 'a';
    tell(slice_of(text, HTTP_HEAD_MAX + 1), 0, story);
    assert_string_equal(story, "bad 431");
    len = (size_t)snprintf(text, HTTP_HEAD_MAX, "%s", POST);
    for (unsigned i = 1; i <= HTTP_FIELDS_MAX; i++) { /* Host is the first */
        len += (size_t)snprintf(text + len, HTTP_HEAD_MAX - len, "X: y\r\n");
    }
    len += (size_t)snprintf(text + len, HTTP_HEAD_MAX - len, "\r\n");
    tell(slice_of(text, len), 0, story);
    assert_string_equal(story, "bad 431");
    mem_free(text);
}

static void parameters_are_decoded(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"a=b&c=d%40e", "a=b;c=d@e;"},
        {"a=b+c&&d&=x", "a=b+c;d=;=x;"},
        {"", ""},
        {"a=%4", "a=!"},
        {"a=%zz", "a=!"},
        {"a=b=c", "a=b=c;"},
        {"a=%00", "a=?;"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice query = slice_string(cases[i].in), name, value;
        char story[STORY_MAX] = "";
        size_t at = 0;

        while (http_parameter(&query, &name, &value)) {
            struct buf decoded;
            bool good;

            buf_init(&decoded, 100);
            good = http_decode(value, &decoded);
            value = buf_slice(&decoded);
            at += (size_t)snprintf(story + at, STORY_MAX - at, "%.*s=%.*s%s", SLICE_ARGS(name),
                                   value.len == 1 && value.ptr[0] == '\0' ? 0 : (int)value.len,
                                   value.ptr,
                                   !good                                    ? "!"
                                   : value.len == 1 && value.ptr[0] == '\0' ? "?;"
                                                                            : ";");
            buf_fini(&decoded);
        }
        assert_string_equal(story, cases[i].want);
    }
}

UNIT_MAIN(cmocka_unit_test(every_split_tells_the_same_story), cmocka_unit_test(heads_have_a_length),
          cmocka_unit_test(parameters_are_decoded))
