/*
 * Envelope of an HTTP request whose body is the message itself:
 *
 * POST /v1/inject?from=news@shop.example&to=ann@example.org&to=bob@example.net X-Sluice-From:
 * news@shop.example X-Sluice-To: ann@example.org, bob@example.net
 *
 * A request may use either form, or both for different recipients. An empty `from` is the null
 * sender. If the request has no sender, the message's header has it (Sender, or From); if it has no
 * recipients, the header has them (To, Cc and Bcc).
 */
#ifndef INJECT_HTTP_ENVELOPE_H
#define INJECT_HTTP_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "http.h"
#include "slice.h"

/* Limit for all addresses of a message, in bytes, as in a draft. */
#define HTTP_ENVELOPE_BYTES_MAX (16u << 20)

struct http_envelope {
    bool has_sender;
    struct buf sender; /* stored form */
    struct buf rcpts;  /* stored form, each followed by LF */
    uint32_t rcpt_count;
    uint32_t rcpts_max; /* limit, set by the owner */
};

void http_envelope_init(struct http_envelope *e, uint32_t rcpts_max);
void http_envelope_fini(struct http_envelope *e);

/* Reads the envelope from the request. Returns false with the found and the expected text in
 * *ret_error. */
bool http_envelope_read(struct http_envelope *e, const struct http *h, struct buf *ret_error);

/* Completes the envelope from the message's header section. Returns false with *ret_error after an
 * error, or if there is no recipient. */
bool http_envelope_complete(struct http_envelope *e, struct slice header, struct buf *ret_error);

/* Takes the next recipient off *rest, which is `rcpts` at first. Returns false at the end. */
bool http_envelope_next(struct slice *rest, struct slice *ret_address);

#endif
