/*
 * A few fields of a header section, found while the content streams by. No I/O, any split of the
 * input, a bounded amount of memory.
 *
 * Fields are what header_next (header.h) takes for fields: names of any case, perhaps with blanks
 * before the colon, lines that end with CRLF or LF, values continued on lines that begin with a
 * blank. The header section ends with the first line that is neither a field nor a continuation.
 * Of each wanted field the first occurrence counts; its value is unfolded as header_unfold does
 * and kept up to the limit that its owner gives. Only the first HEADER_SCAN_BYTES_MAX bytes of a
 * header section are looked at; a field that this cuts off is not found.
 *
 * Embed it; fields are private to header_scan.c.
 */
#ifndef SMTP_HEADER_SCAN_H
#define SMTP_HEADER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define HEADER_SCAN_BYTES_MAX  (1u << 20)
#define HEADER_SCAN_FIELDS_MAX 8

struct header_scan_field {
    struct slice name; /* borrowed from the owner */
    struct buf value;
    size_t value_max;
    bool found;
};

enum header_scan_place {
    HEADER_SCAN_LINE_START,
    HEADER_SCAN_NAME,
    HEADER_SCAN_COLON, /* behind a name, at the blanks before its colon */
    HEADER_SCAN_VALUE, /* of a wanted field */
    HEADER_SCAN_SKIP,  /* the value of another field */
    HEADER_SCAN_ENDED,
};

struct header_scan {
    struct header_scan_field fields[HEADER_SCAN_FIELDS_MAX];
    size_t count;
    enum header_scan_place place;
    size_t field;      /* whose value is read or was read last; `count`: of none */
    bool in_field;     /* a continuation line may come */
    bool after_cr;     /* in a value: a CR is held back that may belong to a line end */
    unsigned matching; /* of the fields, a bit each: the name has begun like theirs */
    size_t name_len;
    uint32_t bytes;
    bool cut; /* the header section is longer than is looked at */
};

void header_scan_init(struct header_scan *s);
void header_scan_fini(struct header_scan *s);

/* Look for this field, too, and keep at most so many bytes of its value, unfolded; of a longer one
 * the beginning. The name is not empty and lasts as long as the scanner; at most
 * HEADER_SCAN_FIELDS_MAX fields, before the first header_scan_feed. Returns its number, 0, 1, ...
 */
size_t header_scan_want(struct header_scan *s, struct slice name, size_t value_max);

/* More content, from its first byte on. Costs nothing once the header section has ended. */
void header_scan_feed(struct header_scan *s, struct slice in);

/* Has a field of this number begun? Its value so far, without blanks at both ends; lasts until the
 * next call that changes the scanner. */
bool header_scan_found(const struct header_scan *s, size_t number);
struct slice header_scan_value(const struct header_scan *s, size_t number);

/* Was the header section longer than HEADER_SCAN_BYTES_MAX? */
bool header_scan_was_cut(const struct header_scan *s);

#endif
