/*
 * MIME messages (RFC 2045 to 2047, 2183, 2231), written piece by piece: a large one takes as many
 * turns of the event loop as it needs. GMime makes what has to be encoded or folded.
 *
 * Texts are UTF-8 and have been checked by the caller: what goes into a field has no control
 * characters, names of fields and media types are tokens. Texts leave as quoted-printable or base64
 * where they need it, attachments as base64, so the message is 7-bit but for addresses that are
 * not ASCII.
 *
 *     mixed( related( alternative(text, html), inline attachments ), other attachments )
 *
 * as much of it as there are parts for.
 */
#ifndef INJECT_COMPOSE_H
#define INJECT_COMPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct compose_mailbox {
    struct slice address; /* stored form */
    struct slice name;    /* empty: none */
};

struct compose_field {
    struct slice name, value;
};

struct compose_attachment {
    struct slice name;   /* of the file; empty: none */
    struct slice type;   /* "image/png" */
    struct slice id;     /* Content-ID without angle brackets; empty: none */
    struct slice base64; /* its bytes, strict base64 in one line */
    bool is_inline;      /* else it is an attachment */
};

/* All borrowed. */
struct compose_message {
    struct compose_mailbox from;
    const struct compose_mailbox *reply_to, *to, *cc;
    size_t reply_to_count, to_count, cc_count;
    struct slice subject;
    const struct compose_field *fields;
    size_t field_count;
    struct slice text, html; /* ptr NULL: there is none; one is there, or an attachment */
    const struct compose_attachment *attachments;
    size_t attachment_count;
};

struct compose;

/* Once in a process, before it is confined: the library opens files. */
void compose_start(void);

/* Begin to write it. All that it borrows lasts until compose_free. */
struct compose *compose_new(const struct compose_message *m);
void compose_free(struct compose *c); /* NULL is fine */

/* Bytes that it takes, besides what it borrows. */
size_t compose_memory(const struct compose *c);

/* Append the next of it, lines end with CRLF. The call looks at some three times `bytes` of texts
 * and attachments at most, besides the header, and perhaps appends nothing yet. True: that was all.
 * When the buffer is full it has failed, and nothing is left to do but to free. */
bool compose_next(struct compose *c, size_t bytes, struct buf *out);

#endif
