/*
 * Converts 8-bit content for a peer without 8BITMIME (RFC 6152, 3), as it streams through.
 *
 * Bodies that are not encoded become quoted-printable (RFC 2045, 6.7). Multiparts and messages in
 * messages are followed, so that each part keeps its type. A message that is not MIME becomes MIME,
 * with the charset unknown-8bit (RFC 1428). The parts of multipart/signed, header fields, messages
 * other than message/rfc822, and parts nested in more than 32 multiparts stay as they are. An octet
 * above 127 in a signed part makes the content unfit: to convert it would break the signature.
 *
 * Content may be hostile. Memory is bounded, whatever boundaries and fields it has.
 */
#ifndef SMTP_DOWNGRADE_H
#define SMTP_DOWNGRADE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct downgrade;

/* Maximum of octets that converting `len` of them appends. The most is added to a multipart/digest
 * of messages without fields. */
#define DOWNGRADE_SIZE(len) (20 * (len) + 3072)

/* Returns a converter at the start of a message. */
struct downgrade *downgrade_new(void);
/* Frees the converter; NULL is allowed. */
void downgrade_free(struct downgrade *d);

/* Converts the next piece. The buffer must have room for DOWNGRADE_SIZE(in.len). */
void downgrade_add(struct downgrade *d, struct slice in, struct buf *out);

/* Converts what is held back at the end of the content. */
void downgrade_finish(struct downgrade *d, struct buf *out);

/* Returns whether a signed part has an octet above 127. */
bool downgrade_unfit(const struct downgrade *d);

#endif
