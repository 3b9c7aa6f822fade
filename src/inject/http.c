#include "http.h"

#include <string.h>

#include "check.h"

/* Limits of digits, so that larger numbers are refused before they are computed. */
#define LENGTH_MAX     (1ull << 50)
#define CHUNK_DIGITS   12u
#define CHUNK_LINE_MAX 1024u

void http_init(struct http *h)
{
    *h = (struct http){.state = HTTP_AT_START};
    buf_init(&h->head, HTTP_HEAD_MAX);
    buf_keep_secret(&h->head); /* contains a token */
}

void http_fini(struct http *h)
{
    buf_fini(&h->head);
}

void http_again(struct http *h)
{
    CHECK(h->state == HTTP_COMPLETE);
    buf_fini(&h->head);
    http_init(h);
}

bool http_in_request(const struct http *h)
{
    return h->state != HTTP_AT_START && h->state != HTTP_COMPLETE;
}

static void bad(struct http *h, unsigned status, const char *reason)
{
    h->state = HTTP_BROKEN;
    h->bad = (struct http_event){.type = HTTP_BAD, .status = status, .reason = reason};
}

/* ---- the head ------------------------------------------------------------------------------- */

/* Is it a token (RFC 9110, 5.6.2)? */
static bool is_token(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_is_alnum(s.ptr[i]) && memchr("!#$%&'*+-.^_`|~", s.ptr[i], 15) == NULL) {
            return false;
        }
    }
    return s.len > 0;
}

static bool has_control(struct slice s, bool tab_ok)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];

        if ((c < ' ' && !(tab_ok && c == '\t')) || c == 127) {
            return true;
        }
    }
    return false;
}

/* Takes a line that ends with CRLF. */
static struct slice cut_line(struct slice *rest)
{
    struct slice line = slice_cut(rest, '\n');

    return line.len > 0 && line.ptr[line.len - 1] == '\r' ? slice_of(line.ptr, line.len - 1) : line;
}

/* Replaces an absolute URL by its path, which may be empty. Clients send such a URL to proxies, and
 * servers must accept it, too (RFC 9112, 3.2.2). Its host replaces that of the field Host, but all
 * hosts are equal here. Returns false if the URL has no host (RFC 9110, 4.2.1) or has a user
 * (4.2.4). */
static bool take_absolute(struct slice *target)
{
    struct slice rest = *target, host;
    size_t len = 0;

    if (slice_starts_nocase(rest, SLICE("http://"))) {
        rest = slice_skip(rest, sizeof "http://" - 1);
    } else if (slice_starts_nocase(rest, SLICE("https://"))) {
        rest = slice_skip(rest, sizeof "https://" - 1);
    } else {
        return true;
    }
    while (len < rest.len && rest.ptr[len] != '/' && rest.ptr[len] != '?') {
        len++;
    }
    host = slice_of(rest.ptr, len);
    if (len == 0 || host.ptr[0] == ':' || slice_find(host, '@') < len) {
        return false;
    }
    *target = slice_skip(rest, len);
    return true;
}

static bool parse_request_line(struct http *h, struct slice line)
{
    struct slice rest = line, version;

    h->method = slice_cut(&rest, ' ');
    h->target = slice_cut(&rest, ' ');
    version = rest;
    if (!is_token(h->method) || h->target.len == 0 || has_control(line, false) ||
        !slice_starts(version, SLICE("HTTP/"))) {
        bad(h, 400, "expected METHOD TARGET HTTP/1.1");
        return false;
    }
    if (!slice_equal(version, SLICE("HTTP/1.1")) && !slice_equal(version, SLICE("HTTP/1.0"))) {
        bad(h, 505, "expected HTTP/1.1 or HTTP/1.0");
        return false;
    }
    if (!take_absolute(&h->target)) {
        bad(h, 400, "expected a target /PATH or http://HOST/PATH");
        return false;
    }
    h->keep_alive = slice_equal(version, SLICE("HTTP/1.1"));
    return true;
}

static bool parse_field(struct http *h, struct slice line)
{
    struct slice value = line, name = slice_cut(&value, ':');

    if (value.ptr == NULL || !is_token(name) || has_control(value, true)) {
        bad(h, 400, "expected a field, NAME: VALUE, in one line, without control characters");
        return false;
    }
    if (h->field_count == HTTP_FIELDS_MAX) {
        bad(h, 431, "expected at most 100 fields");
        return false;
    }
    h->fields[h->field_count++] = (struct http_field){name, slice_trim(value)};
    return true;
}

struct slice http_field(const struct http *h, struct slice name, size_t n)
{
    for (size_t i = 0; i < h->field_count; i++) {
        if (slice_equal_nocase(h->fields[i].name, name) && n-- == 0) {
            return h->fields[i].value;
        }
    }
    return slice_of(NULL, 0);
}

/* Does the list in a field contain this word, in any case? */
static bool field_has(const struct http *h, struct slice name, struct slice word)
{
    struct slice value;

    for (size_t n = 0; (value = http_field(h, name, n)).ptr != NULL; n++) {
        while (value.ptr != NULL) {
            if (slice_equal_nocase(slice_trim(slice_cut(&value, ',')), word)) {
                return true;
            }
        }
    }
    return false;
}

static bool find_length(struct http *h, bool old)
{
    struct slice length = http_field(h, SLICE("Content-Length"), 0);
    struct slice coding = http_field(h, SLICE("Transfer-Encoding"), 0);
    unsigned long long number;

    if (coding.ptr != NULL) {
        if (old || length.ptr != NULL || http_field(h, SLICE("Transfer-Encoding"), 1).ptr != NULL) {
            bad(h, 400, "expected one Content-Length, or one Transfer-Encoding in HTTP/1.1");
            return false;
        }
        if (!slice_equal_nocase(coding, SLICE("chunked"))) {
            bad(h, 501, "expected Transfer-Encoding: chunked");
            return false;
        }
        h->chunked = true;
        return true;
    }
    if (length.ptr == NULL) {
        return true;
    }
    if (http_field(h, SLICE("Content-Length"), 1).ptr != NULL ||
        !slice_number(length, LENGTH_MAX, &number)) {
        bad(h, 400, "expected one Content-Length, a number");
        return false;
    }
    h->has_length = true;
    h->length = number;
    return true;
}

static bool find_expectation(struct http *h, bool old)
{
    struct slice expect = http_field(h, SLICE("Expect"), 0);

    if (expect.ptr == NULL || old) { /* RFC 9110, 10.1.1 */
        return true;
    }
    if (!slice_equal_nocase(expect, SLICE("100-continue"))) {
        bad(h, 417, "expected Expect: 100-continue, or none");
        return false;
    }
    h->expects_continue = h->chunked || h->length > 0;
    return true;
}

/* Parses the complete head. */
static void parse_head(struct http *h)
{
    struct slice rest = buf_slice(&h->head), line = cut_line(&rest);
    bool old;

    if (!parse_request_line(h, line)) {
        return;
    }
    old = !h->keep_alive;
    while ((line = cut_line(&rest)).len > 0) {
        if (!parse_field(h, line)) {
            return;
        }
    }
    if (!old && (http_field(h, SLICE("Host"), 0).ptr == NULL ||
                 http_field(h, SLICE("Host"), 1).ptr != NULL)) {
        bad(h, 400, "expected one Host field");
        return;
    }
    if (!find_length(h, old) || !find_expectation(h, old)) {
        return;
    }
    h->keep_alive = old ? field_has(h, SLICE("Connection"), SLICE("keep-alive"))
                        : !field_has(h, SLICE("Connection"), SLICE("close"));
    h->left = h->length;
    h->state = h->chunked ? HTTP_CHUNK_SIZE : HTTP_IN_BODY;
}

/* Returns the number of bytes before CR, LF or NUL. */
static size_t line_len(struct slice in)
{
    size_t len = slice_find(in, '\r');

    len = slice_find(slice_of(in.ptr, len), '\n');
    return slice_find(slice_of(in.ptr, len), '\0');
}

static bool put_head(struct http *h, struct slice bytes)
{
    if (!buf_add(&h->head, bytes)) {
        bad(h, h->in_line ? 431 : 414,
            h->in_line ? "expected at most 32768 bytes before the body"
                       : "expected a shorter request line");
        return false;
    }
    return true;
}

/* Takes bytes up to the empty line. */
static void read_head(struct http *h, struct slice *in)
{
    static const char end[4] = {'\r', '\n', '\r', '\n'};

    while (in->len > 0 && h->state == HTTP_IN_HEAD) {
        char c = in->ptr[0];
        bool after_cr = h->matched == 1 || h->matched == 3;
        size_t len = after_cr ? 0 : line_len(*in);

        if (len > 0) {
            h->matched = 0;
            if (put_head(h, slice_of(in->ptr, len))) {
                *in = slice_skip(*in, len);
            }
            continue;
        }
        *in = slice_skip(*in, 1);
        if (after_cr != (c == '\n') || c == '\0') {
            bad(h, 400, "expected lines that end with CRLF");
        } else if (put_head(h, slice_of(&c, 1))) {
            h->matched = c == end[h->matched] ? h->matched + 1 : c == '\r';
            h->in_line = h->in_line || c == '\n';
            if (h->matched == sizeof end) {
                parse_head(h);
            }
        }
    }
}

/* ---- the body ------------------------------------------------------------------------------- */

static int hex_of(char c)
{
    c = ascii_lower(c);
    return ascii_is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool ignore(struct http *h, uint32_t max)
{
    return ++h->ignored <= max;
}

static void size_known(struct http *h)
{
    h->digits = 0;
    h->ignored = 0;
    h->state = h->left > 0 ? HTTP_IN_CHUNK : HTTP_TRAILER_START;
}

/* Reads a byte of the framing of chunks. */
static void read_framing(struct http *h, char c)
{
    int digit = hex_of(c);
    bool good = true;

    switch (h->state) {
    case HTTP_CHUNK_SIZE:
        if (digit >= 0) {
            good = ++h->digits <= CHUNK_DIGITS;
            h->left = h->left * 16 + (uint64_t)digit;
        } else {
            good = h->digits > 0 && (c == '\r' || c == ';' || c == ' ' || c == '\t');
            h->state = c == '\r' ? HTTP_CHUNK_SIZE_LF : HTTP_CHUNK_EXTENSION;
        }
        break;
    case HTTP_CHUNK_EXTENSION:
        good = c != '\n' && c != '\0' && ignore(h, CHUNK_LINE_MAX);
        h->state = c == '\r' ? HTTP_CHUNK_SIZE_LF : HTTP_CHUNK_EXTENSION;
        break;
    case HTTP_CHUNK_SIZE_LF:
        good = c == '\n';
        size_known(h);
        break;
    case HTTP_CHUNK_CR:
        good = c == '\r';
        h->state = HTTP_CHUNK_LF;
        break;
    case HTTP_CHUNK_LF:
        good = c == '\n';
        h->state = HTTP_CHUNK_SIZE;
        break;
    case HTTP_TRAILER_START:
    case HTTP_TRAILER:
        good = c != '\n' && c != '\0' && ignore(h, HTTP_TRAILER_MAX);
        if (c == '\r') {
            h->state = h->state == HTTP_TRAILER_START ? HTTP_LAST_LF : HTTP_TRAILER_LF;
        } else {
            h->state = HTTP_TRAILER;
        }
        break;
    case HTTP_TRAILER_LF:
        good = c == '\n';
        h->state = HTTP_TRAILER_START;
        break;
    case HTTP_LAST_LF:
        good = c == '\n';
        h->state = HTTP_COMPLETE;
        break;
    case HTTP_AT_START:
    case HTTP_IN_HEAD:
    case HTTP_IN_BODY:
    case HTTP_IN_CHUNK:
    case HTTP_COMPLETE:
    case HTTP_BROKEN:
        UNREACHABLE("no framing there");
    }
    if (!good) {
        bad(h, 400, "expected chunks: SIZE in hexadecimal digits, CRLF, bytes, CRLF");
    }
}

/* Returns the available part of `left` bytes as an event. */
static bool read_bytes(struct http *h, struct slice *in, struct http_event *ret_event)
{
    size_t len = in->len < h->left ? in->len : (size_t)h->left;

    if (len == 0) {
        return false;
    }
    *ret_event = (struct http_event){.type = HTTP_BODY, .body = slice_of(in->ptr, len)};
    *in = slice_skip(*in, len);
    h->left -= len;
    if (h->left == 0 && h->state == HTTP_IN_CHUNK) {
        h->state = HTTP_CHUNK_CR;
    }
    return true;
}

/* ---- the engine ----------------------------------------------------------------------------- */

/* Skips empty lines before a request. */
static void read_start(struct http *h, struct slice *in)
{
    char c = in->ptr[0];

    if (c == '\r' || c == '\n') {
        *in = slice_skip(*in, 1);
        if (!ignore(h, HTTP_BLANK_MAX)) {
            bad(h, 400, "expected a request");
        }
        return;
    }
    h->ignored = 0;
    h->state = HTTP_IN_HEAD;
}

void http_next(struct http *h, struct slice *in, struct http_event *ret_event)
{
    *ret_event = (struct http_event){.type = HTTP_NEED_INPUT};
    for (;;) {
        switch (h->state) {
        case HTTP_AT_START:
            if (in->len == 0) {
                return;
            }
            read_start(h, in);
            break;
        case HTTP_IN_HEAD:
            read_head(h, in);
            if (h->state == HTTP_IN_HEAD) {
                return;
            }
            if (h->state != HTTP_BROKEN) {
                ret_event->type = HTTP_HEAD;
                return;
            }
            break;
        case HTTP_IN_BODY:
            if (h->left == 0) {
                h->state = HTTP_COMPLETE;
                break;
            }
            (void)read_bytes(h, in, ret_event); /* or more input is needed */
            return;
        case HTTP_IN_CHUNK:
            (void)read_bytes(h, in, ret_event); /* or more input is needed */
            return;
        case HTTP_CHUNK_SIZE:
        case HTTP_CHUNK_EXTENSION:
        case HTTP_CHUNK_SIZE_LF:
        case HTTP_CHUNK_CR:
        case HTTP_CHUNK_LF:
        case HTTP_TRAILER_START:
        case HTTP_TRAILER:
        case HTTP_TRAILER_LF:
        case HTTP_LAST_LF:
            if (in->len == 0) {
                return;
            }
            *in = slice_skip(*in, 1);
            read_framing(h, in->ptr[-1]);
            break;
        case HTTP_COMPLETE:
            ret_event->type = HTTP_END;
            return;
        case HTTP_BROKEN:
            *ret_event = h->bad;
            return;
        }
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

const char *http_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

bool http_put_answer(struct buf *out, unsigned status, const char *type, uint64_t length,
                     bool keep_alive, struct slice more)
{
    return buf_addf(out, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %llu\r\n%s%.*s\r\n",
                    status, http_reason(status), type, (unsigned long long)length,
                    keep_alive ? "" : "Connection: close\r\n", SLICE_ARGS(more));
}

/* ---- decoding targets ----------------------------------------------------------------------- */

bool http_decode(struct slice text, struct buf *out)
{
    while (text.len > 0) {
        int high, low;

        if (text.ptr[0] != '%') {
            (void)buf_add_byte(out, text.ptr[0]); /* errors of the buffer are sticky */
            text = slice_skip(text, 1);
            continue;
        }
        if (text.len < 3 || (high = hex_of(text.ptr[1])) < 0 || (low = hex_of(text.ptr[2])) < 0) {
            return false;
        }
        (void)buf_add_byte(out, (char)(unsigned char)(high << 4 | low));
        text = slice_skip(text, 3);
    }
    return !out->failed;
}

bool http_parameter(struct slice *query, struct slice *ret_name, struct slice *ret_value)
{
    while (query->ptr != NULL && query->len > 0) {
        struct slice one = slice_cut(query, '&');

        if (one.len > 0) {
            *ret_name = slice_cut(&one, '=');
            *ret_value = one.ptr == NULL ? SLICE("") : one;
            return true;
        }
    }
    return false;
}
