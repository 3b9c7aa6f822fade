/*
 * Scanner of incoming message content, for DATA (dot-stuffed, ends at CRLF.CRLF) and for BDAT
 * (counted by the caller).
 *
 * Content is kept in wire form: CRLF line ends, dots unstuffed. Only CRLF.CRLF (or .CRLF at the
 * very start) ends dotted content; a bare CR or a bare LF never ends a line, let alone the data,
 * which is what SMTP smuggling lives on. The scanner takes any split of the input, copies nothing
 * and allocates nothing: it hands out slices of the input, or of a constant where a byte held back
 * at the end of the previous input turns out to be content. What it reports does not depend on the
 * split.
 *
 * While reading it counts what a mail system needs to know. Header fields are examined byte by
 * byte; the body is not: lines are found with memchr(), 8-bit bytes by words.
 *
 * The header section ends before the empty line, or before the first line that is neither a field
 * nor a continuation (such content has its body start there).
 */
#ifndef SMTP_CONTENT_H
#define SMTP_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* Longest line without CRLF that RFC 5322 allows; longer ones are flagged, not refused, here. */
#define CONTENT_LINE_ADVISED 998

/* Longest field name that is looked at; longer names are just names. */
#define CONTENT_NAME_MAX 16

/* What has been seen so far; a bit set. */
enum content_flag {
    CONTENT_8BIT = 1 << 0,        /* a byte above 127 anywhere */
    CONTENT_HEADER_8BIT = 1 << 1, /* a byte above 127 in the header section */
    CONTENT_NUL = 1 << 2,
    CONTENT_BARE_CR = 1 << 3,  /* a CR that no LF follows */
    CONTENT_BARE_LF = 1 << 4,  /* an LF that no CR precedes */
    CONTENT_LONG_LINE = 1 << 5 /* a line over CONTENT_LINE_ADVISED */
};

/* What was learnt of the content; fields are for all to read, for content.c to write. */
struct content_facts {
    uint64_t bytes;        /* of content, unstuffed */
    uint64_t header_bytes; /* of the header section so far: its lines, without the empty line */
    uint64_t lines;        /* CRLFs */
    uint64_t longest_line; /* bytes, CRLF not counted */
    uint32_t received;     /* Received: fields */
    uint32_t delivered_to; /* Delivered-To: fields */
    unsigned flags;        /* of enum content_flag */
    bool header_ended;     /* the body has begun */
};

enum content_framing {
    CONTENT_DOTTED,  /* DATA */
    CONTENT_COUNTED, /* BDAT; the caller feeds the octets of the chunks and no others */
};

/* Where in a line the next byte stands. Private to content.c. */
enum content_place {
    CONTENT_AT_START,  /* of a line */
    CONTENT_AFTER_DOT, /* behind a dot that begins a line; held back */
    CONTENT_DOT_CR,    /* behind CR behind such a dot; both held back */
    CONTENT_IN_LINE,
    CONTENT_AFTER_CR, /* behind a CR that has been handed out */
    CONTENT_ENDED,
};

enum content_part {
    CONTENT_FIELD_START,  /* at the first byte of a line of the header section */
    CONTENT_FIELD_NAME,   /* before the colon */
    CONTENT_FIELD_BLANK,  /* blanks between name and colon */
    CONTENT_FIELD_VALUE,  /* behind the colon, or in a continuation */
    CONTENT_HEADER_BREAK, /* behind the CR of what may be the empty line */
    CONTENT_BODY,
};

/* A plain value; fields but `facts` are private to content.c. */
struct content {
    struct content_facts facts;
    enum content_framing framing;
    enum content_place place;
    enum content_part part;
    uint64_t line_bytes; /* of the current line so far */
    uint64_t field_at;   /* offset of the current header line */
    size_t name_len;     /* may exceed CONTENT_NAME_MAX; then it matches nothing */
    char name[CONTENT_NAME_MAX];
};

void content_init(struct content *c, enum content_framing framing);

/* Read from `in`. *ret_used says how much was used and *ret_content what came out of it, perhaps
 * nothing; it lasts as long as `in` (and never points into *c). True when the end of dotted content
 * has been read: what follows in `in` is not content. Until then call again while in is not used
 * up; every call uses or hands out at least one byte. */
bool content_feed(struct content *c, struct slice in, size_t *ret_used, struct slice *ret_content);

/* So many bytes of counted content that are not looked at: of the body, in wire form and in ASCII,
 * as the caller knows. The facts of lines are without them. */
void content_pass(struct content *c, size_t bytes);

/* The content is complete (the last chunk of counted content has been fed, or content_feed said
 * so): settle what depends on a byte that will never come. No content_feed afterwards. */
void content_finish(struct content *c);

#endif
