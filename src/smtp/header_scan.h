/*
 * Finds a few fields of a header section in streaming content: without I/O, for any split of the
 * input, in a bounded amount of memory.
 *
 * Fields are those of header_next (header.h): names of any case, perhaps with blanks before the
 * colon, lines that end with CRLF or LF, values continued on lines that begin with a blank. The
 * header section ends with the first line that is neither a field nor a continuation. Only the
 * first occurrence of each wanted field is used; its value is unfolded as header_unfold does and
 * kept up to the limit that its owner gives. Only the first HEADER_SCAN_BYTES_MAX bytes of a header
 * section are scanned; a field after that is not found.
 *
 * The scanner is embedded; fields are private to header_scan.c.
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
    HEADER_SCAN_COLON, /* after a name, in blanks before its colon */
    HEADER_SCAN_VALUE, /* in the value of a wanted field */
    HEADER_SCAN_SKIP,  /* in the value of another field */
    HEADER_SCAN_ENDED,
};

struct header_scan {
    struct header_scan_field fields[HEADER_SCAN_FIELDS_MAX];
    size_t count;
    enum header_scan_place place;
    size_t field;      /* index of the field whose value was read last; `count`: none */
    bool in_field;     /* whether a continuation line may follow */
    bool after_cr;     /* whether a CR of a value is held back because it may belong to a line
                        * end */
    unsigned matching; /* one bit for each field: whether the name so far matches */
    size_t name_len;
    uint32_t bytes;
    bool cut; /* whether the header section is longer than the limit */
};

void header_scan_init(struct header_scan *s);
void header_scan_fini(struct header_scan *s);

/* Adds a wanted field, and returns its number, 0, 1, ... At most value_max bytes of its unfolded
 * value are kept, from the beginning. The name is not empty and lasts as long as the scanner; at
 * most HEADER_SCAN_FIELDS_MAX fields, before the first header_scan_feed. */
size_t header_scan_want(struct header_scan *s, struct slice name, size_t value_max);

/* Scans more content, from its first byte on. Costs nothing once the header section has ended. */
void header_scan_feed(struct header_scan *s, struct slice in);

/* Has a field of this number begun? header_scan_value returns its value so far, without blanks at
 * both ends; the value lasts until the next call that changes the scanner. */
bool header_scan_found(const struct header_scan *s, size_t number);
struct slice header_scan_value(const struct header_scan *s, size_t number);

/* Was the header section longer than HEADER_SCAN_BYTES_MAX? */
bool header_scan_was_cut(const struct header_scan *s);

#endif
