/*
 * MIME structure of a message, line by line: each line is in the header of the message, in the
 * header of a part, in the header of a nested message, or in a body (RFC 2045, 2046).
 *
 * Body lines go in one by one, header fields when they are complete. As in Postfix, a line that
 * begins with `--` and a boundary ends the parts within that boundary, whatever follows on the
 * line. A nested message is parsed only if its part has no transfer encoding.
 */
#ifndef RULES_MIME_H
#define RULES_MIME_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

#define MIME_DEPTH_MAX    100  /* nested parts (Postfix: mime_nesting_limit) */
#define MIME_BOUNDARY_MAX 1000 /* bytes that are compared */

enum mime_place {
    MIME_HEADER,
    MIME_PART_HEADER,
    MIME_NESTED_HEADER,
    MIME_BODY,
};

struct mime_level {
    char *boundary; /* owned */
    size_t len;
    bool digest; /* multipart/digest: parts without a type are messages */
};

/* All members except `place` are private to mime.c. */
struct mime {
    enum mime_place place;
    struct mime_level levels[MIME_DEPTH_MAX];
    size_t depth;
    /* facts from the current header */
    bool is_message, is_encoded, is_digest, has_type;
    char *boundary; /* owned; NULL if it is no multipart */
};

void mime_init(struct mime *m);
void mime_fini(struct mime *m);

/* Reads a field of the current header: name, colon, value, perhaps folded. */
void mime_field(struct mime *m, struct slice field);

/* Ends the current header. Returns false if the parts are nested deeper than MIME_DEPTH_MAX. */
bool mime_header_ended(struct mime *m);

/* Reads a body line, without its line end. Returns true if the line is a boundary; `place` is then
 * the place of the next line. */
bool mime_boundary(struct mime *m, struct slice line);

/* Can any line be a boundary? */
bool mime_has_boundary(const struct mime *m);

#endif
