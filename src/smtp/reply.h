/*
 * A resumable parser for SMTP replies, with no opinion on what they mean.
 *
 * Feed it bytes as they come. It stops behind each reply, so pipelined replies come out one by one,
 * and behind each line of a multi-line reply, so that a list of extensions can be read on the way.
 * The whole text is kept as mail logs show it: the lines as sent, codes included, joined by
 * blanks; control characters and broken UTF-8 are replaced by '?', one for one byte.
 *
 * Bounds: of a line REPLY_LINE_MAX bytes and of a reply REPLY_TEXT_MAX bytes are kept, the rest is
 * read and dropped. A reply of more than REPLY_LINES_MAX lines or REPLY_BYTES_MAX bytes is BAD: a
 * peer that never ends its reply would never let us go. So is a line without a three-digit code of
 * 200..599. Where the lines' codes differ, the last one counts. A bare LF ends a line, too.
 */
#ifndef SMTP_REPLY_H
#define SMTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"
#include "status.h"

#define REPLY_LINE_MAX  1000
#define REPLY_TEXT_MAX  4000
#define REPLY_LINES_MAX 256
#define REPLY_BYTES_MAX (64 * 1024)

enum reply_event {
    REPLY_MORE, /* all was used, the reply goes on */
    REPLY_LINE, /* one line of several is there: reply_line */
    REPLY_DONE, /* the last line is there: reply_line, reply_text, code, status */
    REPLY_BAD,  /* this is no SMTP; reply_text shows it. Final until reply_reset */
};

enum reply_state {
    REPLY_AT_START, /* nothing of a reply yet */
    REPLY_IN_LINE,  /* reading a line */
    REPLY_BETWEEN,  /* a line that announced another one is complete */
    REPLY_COMPLETE, /* the next byte begins a new reply */
    REPLY_BROKEN,
};

struct reply {
    struct buf text;
    struct status status; /* as sent, with a class that fits the code; else derived from the code */
    uint32_t bytes;       /* of this reply so far, kept or not */
    uint32_t line_start;  /* offset in text of the line being read */
    uint32_t line_len;    /* its length so far as sent, kept or not */
    uint16_t lines;
    uint16_t code;
    char head[4];     /* the line's first bytes: code and separator */
    uint8_t state;    /* enum reply_state */
    bool line_end_cr; /* the line's last byte so far is a CR */
    bool status_sent; /* the peer sent an enhanced status of its own */
};

/* Nothing is allocated until bytes come. */
void reply_init(struct reply *r);

/* Forget the reply, keep the memory; reply_fini releases the memory as well. The parser is ready
 * for another reply after either. */
void reply_reset(struct reply *r);
void reply_fini(struct reply *r);

/* Read on; *ret_used says how far. Behind REPLY_DONE the next call begins a new reply. */
enum reply_event reply_feed(struct reply *r, struct slice in, size_t *ret_used);

/* No byte of an unfinished reply has been read. */
bool reply_is_idle(const struct reply *r);

/* The line just read without its code and separator; lasts until the next call. */
struct slice reply_line(const struct reply *r);

/* All of the reply so far; lasts until the next call. */
struct slice reply_text(const struct reply *r);

#endif
