/*
 * The server's side of HTTP/1.1 (RFC 9112) and HTTP/1.0, as much as taking requests with a body
 * needs, without I/O: bytes in, events out, any split of the input.
 *
 *   HTTP_HEAD    request line and fields are complete; the owner may refuse before the body comes
 *   HTTP_BODY    a piece of the body, of a counted or a chunked one, in order, never empty
 *   HTTP_END     the request is complete. What follows in the input is the next one: the owner
 *                answers first, and calls http_again
 *   HTTP_BAD     it is no request that may be read on: answer with `status` and close
 *
 * libevent's evhttp, which serves the control interface, hands out a request when its body is
 * complete: a client without a token could make it hold message_size_limit, and nothing could be
 * said before. So this is a protocol engine like those of SMTP, on the same streams, and refuses
 * what two readers could take for two different requests:
 *
 * - lines end with CRLF alone; a bare CR, a bare LF, a NUL, blanks before a colon, and values that
 *   go on in the next line (RFC 9112, 2.2, 5.1, 5.2) are 400
 * - Content-Length beside Transfer-Encoding, or more than one of either, is 400 (6.3); a coding
 *   other than `chunked` is 501
 * - fields after the last chunk are read and forgotten
 *
 * Limits: HTTP_HEAD_MAX bytes before the body (431, or 414 within the first line),
 * HTTP_FIELDS_MAX fields (431), HTTP_TRAILER_MAX bytes after it.
 */
#ifndef INJECT_HTTP_H
#define INJECT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define HTTP_HEAD_MAX    32768u
#define HTTP_FIELDS_MAX  100u
#define HTTP_TRAILER_MAX 8192u
/* Empty lines in front of a request that are passed over (2.2), in bytes. */
#define HTTP_BLANK_MAX 16u

enum http_event_type { HTTP_NEED_INPUT, HTTP_HEAD, HTTP_BODY, HTTP_END, HTTP_BAD };

struct http_event {
    enum http_event_type type;
    struct slice body;  /* HTTP_BODY; lasts as long as the input */
    unsigned status;    /* HTTP_BAD */
    const char *reason; /* HTTP_BAD: what was expected; static */
};

struct http_field {
    struct slice name, value; /* the value without blanks at both ends */
};

enum http_state {
    HTTP_AT_START,
    HTTP_IN_HEAD,
    HTTP_IN_BODY, /* of `left` bytes */
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_IN_CHUNK, /* of `left` bytes */
    HTTP_CHUNK_CR,
    HTTP_CHUNK_LF,
    HTTP_TRAILER_START, /* at the first byte of a line behind the last chunk */
    HTTP_TRAILER,
    HTTP_TRAILER_LF,
    HTTP_LAST_LF,
    HTTP_COMPLETE,
    HTTP_BROKEN,
};

/* Fields are private to http.c but for those that say so. */
struct http {
    enum http_state state;
    struct buf head;
    unsigned matched; /* bytes of CRLFCRLF at the end of `head` */
    bool in_line;     /* the request line has ended */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t field_count;
    uint64_t left;
    unsigned digits;  /* of a chunk's size */
    uint32_t ignored; /* bytes of blank lines, extensions, trailers */
    struct http_event bad;

    /* To read from HTTP_HEAD on, until http_again. Slices last as long. */
    struct slice method, target; /* the target without scheme and host */
    bool chunked;
    bool has_length;
    uint64_t length; /* of a body that is not chunked */
    bool keep_alive; /* the client wants another answer on this connection */
    bool expects_continue;
};

void http_init(struct http *h);
void http_fini(struct http *h);

/* Go on: take used bytes off the front of *in and report one thing. */
void http_next(struct http *h, struct slice *in, struct http_event *ret_event);

/* After HTTP_END: be ready for the next request. */
void http_again(struct http *h);

/* Has a request begun? */
bool http_in_request(const struct http *h);

/* The value of a field, in any case; the n-th of this name. ptr NULL: there is none. */
struct slice http_field(const struct http *h, struct slice name, size_t n);

/* "Not Found"; "Unknown" for a status that is never sent. */
const char *http_reason(unsigned status);

/* Append the head of an answer: `type` is its media type, `more` further fields with CRLF behind
 * each, or empty. False when the buffer is full. */
bool http_put_answer(struct buf *out, unsigned status, const char *type, uint64_t length,
                     bool keep_alive, struct slice more);

/* Append what a percent-encoded text stands for (RFC 3986, 2.1); `+` is itself. False: it is none.
 */
bool http_decode(struct slice text, struct buf *out);

/* Take the next "name=value" out of a query. False at its end. */
bool http_parameter(struct slice *query, struct slice *ret_name, struct slice *ret_value);

#endif
