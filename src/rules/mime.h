/*
 * Where a line of a message stands: in its header, in the header of one of its parts, in that of a
 * message within it, or in a body (RFC 2045, 2046).
 *
 * Lines go in one by one, header fields when they are complete. As Postfix has it, a line that
 * begins with `--` and a boundary ends the parts within that boundary, whatever stands behind it; a
 * message in a part is looked into where its transfer encoding is none.
 */
#ifndef RULES_MIME_H
#define RULES_MIME_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

#define MIME_DEPTH_MAX    100  /* parts within parts (Postfix: mime_nesting_limit) */
#define MIME_BOUNDARY_MAX 1000 /* bytes; the rest is not compared */

enum mime_place {
    MIME_HEADER,      /* of the message */
    MIME_PART_HEADER, /* of a part */
    MIME_NESTED_HEADER,
    MIME_BODY,
};

struct mime_level {
    char *boundary; /* owned */
    size_t len;
    bool digest; /* its parts are messages unless they say otherwise */
};

/* Fields are private to mime.c, but for `place`. */
struct mime {
    enum mime_place place;
    struct mime_level levels[MIME_DEPTH_MAX];
    size_t depth;
    /* what the header that is read says */
    bool is_message, is_encoded, is_digest, has_type;
    char *boundary; /* owned; NULL: it is no multipart */
};

void mime_init(struct mime *m);
void mime_fini(struct mime *m);

/* A field of the header that `place` is: name, colon, value, perhaps folded. */
void mime_field(struct mime *m, struct slice field);

/* The header has ended. False: MIME_DEPTH_MAX is passed. */
bool mime_header_ended(struct mime *m);

/* A line, without its end, at a place where it may be a boundary. True: it is one, and `place` is
 * what follows it. */
bool mime_boundary(struct mime *m, struct slice line);

/* Can any line be a boundary? */
bool mime_has_boundary(const struct mime *m);

#endif
