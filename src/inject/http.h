/*
 * HTTP server engine: HTTP/1.1 (RFC 9112) and HTTP/1.0, as far as requests with a body need it. No
 * I/O: bytes in, events out, for any split of the input.
 *
 *   HTTP_HEAD    Request line and fields are complete; the owner may refuse before the body.
 *   HTTP_BODY    A piece of the body, counted or chunked, in order, never empty.
 *   HTTP_END     The request is complete. Further input is the next request: the owner must
 *                answer first, and then call http_again.
 *   HTTP_BAD     The request is invalid; the owner must answer with `status` and close.
 *
 * libevent's evhttp, which serves the control interface, returns a request only after its body: a
 * client without a token could make it store message_size_limit bytes before any answer. Therefore
 * this is a protocol engine like those of SMTP, on the same streams. It refuses input that two
 * readers could interpret as different requests:
 *
 * - Lines must end with CRLF. A bare CR, a bare LF, a NUL, blanks before a colon, and values that
 *    continue on the next line (RFC 9112, 2.2, 5.1, 5.2) get 400.
 * - Content-Length together with Transfer-Encoding, or more than one of either, gets 400 (6.3);
 *    another coding than `chunked` gets 501.
 * - Fields after the last chunk are ignored.
 *
 * Limits: HTTP_HEAD_MAX bytes before the body (431, or 414 in the first line), HTTP_FIELDS_MAX
 * fields (431), HTTP_TRAILER_MAX bytes after the body.
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
/* Number of bytes in empty lines before a request that are skipped (2.2). */
#define HTTP_BLANK_MAX 16u

enum http_event_type { HTTP_NEED_INPUT, HTTP_HEAD, HTTP_BODY, HTTP_END, HTTP_BAD };

struct http_event {
    enum http_event_type type;
    struct slice body;  /* for HTTP_BODY; valid as long as the input */
    unsigned status;    /* for HTTP_BAD */
    const char *reason; /* for HTTP_BAD: description of the expected input; static */
};

struct http_field {
    struct slice name, value; /* the value without blanks at both ends */
};

enum http_state {
    HTTP_AT_START,
    HTTP_IN_HEAD,
    HTTP_IN_BODY, /* `left` bytes follow */
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_IN_CHUNK, /* `left` bytes follow */
    HTTP_CHUNK_CR,
    HTTP_CHUNK_LF,
    HTTP_TRAILER_START, /* at the first byte of a line after the last chunk */
    HTTP_TRAILER,
    HTTP_TRAILER_LF,
    HTTP_LAST_LF,
    HTTP_COMPLETE,
    HTTP_BROKEN,
};

/* State of a connection. Members are private to http.c unless their comment allows reading. */
struct http {
    enum http_state state;
    struct buf head;
    unsigned matched; /* number of bytes of CRLFCRLF at the end of `head` */
    bool in_line;     /* whether the request line has ended */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t field_count;
    uint64_t left;
    unsigned digits;  /* number of digits in a chunk's size */
    uint32_t ignored; /* number of bytes in blank lines, extensions and trailers */
    struct http_event bad;

    /* The owner may read the members below from HTTP_HEAD until http_again; the slices are valid
     * for the same time. */
    struct slice method, target; /* the target without scheme and host */
    bool chunked;
    bool has_length;
    uint64_t length; /* length of a body that is not chunked */
    bool keep_alive; /* whether the client wants to send further requests on this connection */
    bool expects_continue;
};

void http_init(struct http *h);
void http_fini(struct http *h);

/* Continues: takes used bytes off the front of *in and returns one event. */
void http_next(struct http *h, struct slice *in, struct http_event *ret_event);

/* Prepares for the next request; must be called after HTTP_END. */
void http_again(struct http *h);

/* Has a request begun? */
bool http_in_request(const struct http *h);

/* Returns the value of the n-th field of this name, in any case; ptr is NULL if there is none. */
struct slice http_field(const struct http *h, struct slice name, size_t n);

/* Returns a text such as "Not Found", or "Unknown" for a status that is never sent. */
const char *http_reason(unsigned status);

/* Appends the head of an answer. `type`: media type; `more`: further fields, each with CRLF, or
 * empty. Returns false if the buffer is full. */
bool http_put_answer(struct buf *out, unsigned status, const char *type, uint64_t length,
                     bool keep_alive, struct slice more);

/* Appends the decoded form of a percent-encoded text (RFC 3986, 2.1); `+` stays unchanged. Returns
 * false if the text is invalid or the buffer is full. */
bool http_decode(struct slice text, struct buf *out);

/* Takes the next "name=value" off a query. Returns false at its end. */
bool http_parameter(struct slice *query, struct slice *ret_name, struct slice *ret_value);

#endif
