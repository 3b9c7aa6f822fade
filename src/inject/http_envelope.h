/*
 * Whose message it is and to whom, as a request says that has the message itself as its body:
 *
 *     POST /v1/inject?from=news@shop.example&to=ann@example.org&to=bob@example.net
 *     X-Sluice-From: news@shop.example
 *     X-Sluice-To: ann@example.org, bob@example.net
 *
 * Either way, or both for different recipients. An empty `from` is the null sender. What the
 * request does not say, the message's header does: From (or Sender), and To, Cc and Bcc.
 */
#ifndef INJECT_HTTP_ENVELOPE_H
#define INJECT_HTTP_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "http.h"
#include "slice.h"

/* All addresses of a message; as much as a draft takes. */
#define HTTP_ENVELOPE_BYTES_MAX (16u << 20)

struct http_envelope {
    bool has_sender;
    struct buf sender; /* stored form */
    struct buf rcpts;  /* stored form, LF behind each */
    uint32_t rcpt_count;
    uint32_t rcpts_max; /* the owner's */
};

void http_envelope_init(struct http_envelope *e, uint32_t rcpts_max);
void http_envelope_fini(struct http_envelope *e);

/* Read it from the request. False with what was found and expected in *ret_error. */
bool http_envelope_read(struct http_envelope *e, const struct http *h, struct buf *ret_error);

/* Take from the header section what the request does not say. False likewise; a message without
 * recipients is an error. */
bool http_envelope_complete(struct http_envelope *e, struct slice header, struct buf *ret_error);

/* The next recipient of *rest, which begins as rcpts. False at the end. */
bool http_envelope_next(struct slice *rest, struct slice *ret_address);

#endif
