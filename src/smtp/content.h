/*
 * Scanner of incoming message content, for DATA (dot-stuffed, ends at CRLF.CRLF) and for BDAT
 * (counted by the caller).
 *
 * Content is kept in wire form: CRLF line ends, dots unstuffed. Only CRLF.CRLF (or .CRLF at the
 * very start) ends dotted content. A bare CR never ends a line, let alone the data, nor does a bare
 * LF without content_accept_bare_lf; SMTP smuggling depends on servers where it does. The scanner
 * accepts any split of the input, copies nothing and allocates nothing. It returns slices of the
 * input, or of a constant if a byte held back at the end of the previous input is content after
 * all. Its results do not depend on the split.
 *
 * While reading it collects the facts that a mail system needs. Header fields are examined byte by
 * byte; the body is not: lines are found with memchr(), 8-bit bytes by words.
 *
 * The header section ends before the empty line, or before the first line that is neither a field
 * nor a continuation (the body of such content starts there).
 */
#ifndef SMTP_CONTENT_H
#define SMTP_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* Longest line without CRLF that RFC 5322 allows; longer ones are flagged here, not refused. */
#define CONTENT_LINE_ADVISED 998

/* Longest field name that is compared; longer names match nothing. */
#define CONTENT_NAME_MAX 16

/* Properties of the content so far; a bit set. */
enum content_flag {
    CONTENT_8BIT = 1 << 0,        /* a byte above 127 anywhere */
    CONTENT_HEADER_8BIT = 1 << 1, /* a byte above 127 in the header section */
    CONTENT_NUL = 1 << 2,
    CONTENT_BARE_CR = 1 << 3,   /* a CR that no LF follows */
    CONTENT_BARE_LF = 1 << 4,   /* an LF that no CR precedes */
    CONTENT_LONG_LINE = 1 << 5, /* a line longer than CONTENT_LINE_ADVISED */
    CONTENT_FALSE_END = 1 << 6  /* dotted content with a line of one dot that has LF without CR
                                 * before or after it: some systems take it for the end */
};

/* Facts about the content; all may read the fields, content.c writes them. */
struct content_facts {
    uint64_t bytes;        /* of content, unstuffed */
    uint64_t header_bytes; /* bytes of the header section so far: its lines, without the empty
                            * line */
    uint64_t lines;        /* number of CRLFs */
    uint64_t longest_line; /* in bytes, CRLF not counted */
    uint32_t received;     /* number of Received: fields */
    uint32_t delivered_to; /* number of Delivered-To: fields */
    unsigned flags;        /* of enum content_flag */
    bool header_ended;     /* whether the body has begun */
};

enum content_framing {
    CONTENT_DOTTED,  /* DATA */
    CONTENT_COUNTED, /* BDAT; the caller passes the octets of the chunks and no others */
};

/* Place of the next byte in its line. Private to content.c. */
enum content_place {
    CONTENT_AT_START,  /* at the start of a line */
    CONTENT_AFTER_DOT, /* after a dot at the start of a line; the dot is held back */
    CONTENT_DOT_CR,    /* after a CR that follows such a dot; both are held back */
    CONTENT_IN_LINE,
    CONTENT_AFTER_CR, /* after a CR that was returned */
    CONTENT_ENDED,
};

enum content_part {
    CONTENT_FIELD_START,  /* at the first byte of a line of the header section */
    CONTENT_FIELD_NAME,   /* before the colon */
    CONTENT_FIELD_BLANK,  /* in blanks between name and colon */
    CONTENT_FIELD_VALUE,  /* after the colon, or in a continuation */
    CONTENT_HEADER_BREAK, /* after the CR of a possible empty line */
    CONTENT_BODY,
};

/* Progress of a line of one dot after a bare LF. */
enum content_dot {
    CONTENT_DOT_NONE,
    CONTENT_DOT_AWAITED, /* after the LF */
    CONTENT_DOT_SEEN,
    CONTENT_DOT_SEEN_CR, /* after the dot and a CR */
};

/* A scanner: a plain value; fields other than `facts` are private to content.c. */
struct content {
    struct content_facts facts;
    enum content_framing framing;
    enum content_place place;
    enum content_part part;
    bool bare_lf; /* see content_accept_bare_lf */
    bool held_cr; /* whether CRs are held back because LF may follow; with bare_lf only */
    enum content_dot dot;
    uint64_t line_bytes; /* length of the current line so far */
    uint64_t field_at;   /* offset of the current header line */
    size_t name_len;     /* may exceed CONTENT_NAME_MAX; then the name matches nothing */
    char name[CONTENT_NAME_MAX];
};

void content_init(struct content *c, enum content_framing framing);

/* Takes LF without CR for a line end, too, and returns CRLF for it. Drops further CRs before a
 * CRLF and at the very end, and returns a blank for any other CRs without LF. To be called before
 * any input. */
void content_accept_bare_lf(struct content *c);

/* Reads from `in`. *ret_used is the number of bytes used, and *ret_content the content in them,
 * perhaps empty; it lasts as long as `in` (and never points into *c). Returns true at the end of
 * dotted content: the rest of `in` is not content. Until then the caller repeats the call while
 * `in` has unused bytes; every call uses or returns at least one byte. */
bool content_feed(struct content *c, struct slice in, size_t *ret_used, struct slice *ret_content);

/* Counts `bytes` of counted content that are not scanned. The caller knows that they are part of
 * the body, in wire form and in ASCII. The facts about lines do not include them. */
void content_pass(struct content *c, size_t bytes);

/* Ends the content (after the last chunk of counted content, or after content_feed returned true)
 * and settles the facts that depended on the next byte. content_feed must not be called after. */
void content_finish(struct content *c);

#endif
