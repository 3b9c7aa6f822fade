/*
 * A message of a document (inject_mail.h), made piece by piece, so that a large one takes as many
 * turns of the event loop as it needs: first its values are put into its texts, then it is
 * composed.
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
    INJECT_MESSAGE_TOO_LARGE, /* it, its header, or a field with its values: that is final */
};

struct inject_message;

/* The message of this number; `m` is borrowed until inject_message_free. */
struct inject_message *inject_message_new(const struct inject_mail *m, size_t number);
void inject_message_free(struct inject_message *im); /* NULL is fine */

/* Go on with it for about `bytes` bytes of texts and attachments, at least two. *ret_piece is the
 * next of the message, perhaps nothing, until the next call: its lines end with CRLF or, in
 * `message`, as written. Date and Message-ID are missing unless the document has them. */
enum inject_message_result inject_message_next(struct inject_message *im, size_t bytes,
                                               struct slice *ret_piece);

/* Bytes that it takes, besides the document and a piece. */
uint64_t inject_message_memory(const struct inject_message *im);

#endif
