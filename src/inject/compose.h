/*
 * Composes MIME messages (RFC 2045 to 2047, 2183, 2231), piece by piece: a large one takes as many
 * turns of the event loop as it needs. GMime writes parts that must be encoded or folded.
 *
 * Texts are UTF-8 and were checked by the caller: texts for fields have no control characters,
 * names of fields and media types are tokens. Texts are encoded as quoted-printable or base64 if
 * necessary, attachments as base64. So the message is 7-bit, except for addresses that are not
 * ASCII. Its structure, of which parts that are not needed are omitted:
 *
 * mixed( related( alternative(text, html), inline attachments ), other attachments )
 */
#ifndef INJECT_COMPOSE_H
#define INJECT_COMPOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct compose_mailbox {
    struct slice address; /* stored form */
    struct slice name;    /* empty if none */
};

struct compose_field {
    struct slice name, value;
};

struct compose_attachment {
    struct slice name;   /* name of the file; empty if none */
    struct slice type;   /* such as "image/png" */
    struct slice id;     /* Content-ID without angle brackets; empty if none */
    struct slice base64; /* content as strict base64 in one line */
    bool is_inline;      /* whether the disposition is inline instead of attachment */
};

/* Message to compose. All members are borrowed. */
struct compose_message {
    struct compose_mailbox from;
    const struct compose_mailbox *reply_to, *to, *cc;
    size_t reply_to_count, to_count, cc_count;
    struct slice subject;
    const struct compose_field *fields;
    size_t field_count;
    struct slice text, html; /* ptr NULL: missing; one of them or an attachment is required */
    const struct compose_attachment *attachments;
    size_t attachment_count;
};

struct compose;

/* Initializes GMime. Must be called once in the process, before it is confined, as the library
 * opens files. */
void compose_start(void);

/* Begins a message. All that `m` borrows must be valid until compose_free. */
struct compose *compose_new(const struct compose_message *m);
void compose_free(struct compose *c); /* NULL is allowed */

/* Returns the memory that it has allocated, in bytes. */
size_t compose_memory(const struct compose *c);

/* Appends the next piece, with CRLF at line ends. The call reads at most about three times `bytes`
 * of texts and attachments, and the header, and may append nothing yet. Returns true at the end of
 * the message. After a failure of the buffer, which was full, the object must be freed. */
bool compose_next(struct compose *c, size_t bytes, struct buf *out);

#endif
