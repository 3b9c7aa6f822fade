/*
 * Makes a message of a document (inject_mail.h), piece by piece, so that a large one takes as many
 * turns of the event loop as it needs. First its values are filled into its texts, then the message
 * is composed.
 */
#ifndef INJECT_INJECT_MESSAGE_H
#define INJECT_INJECT_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "inject_mail.h"
#include "slice.h"

enum inject_message_result {
    INJECT_MESSAGE_MORE,
    INJECT_MESSAGE_END,
    INJECT_MESSAGE_TOO_LARGE, /* the message, its header, or a field with its values; final */
};

struct inject_message;

/* Begins message `number`; `m` is borrowed until inject_message_free. */
struct inject_message *inject_message_new(const struct inject_mail *m, size_t number);
void inject_message_free(struct inject_message *im); /* NULL is allowed */

/* Continues for about `bytes` bytes of texts and attachments, at least two. *ret_piece is the next
 * piece of the message, possibly empty, valid until the next call. Lines end with CRLF, or as
 * written in `message`. Date and Message-ID are missing unless the document has them. */
enum inject_message_result inject_message_next(struct inject_message *im, size_t bytes,
                                               struct slice *ret_piece);

/* Returns the allocated memory in bytes, without the document and the piece. */
uint64_t inject_message_memory(const struct inject_message *im);

#endif
