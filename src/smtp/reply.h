/*
 * A resumable parser for SMTP replies, which does not interpret them.
 *
 * It accepts bytes in any pieces. It stops after each reply, so pipelined replies are returned one
 * by one, and after each line of a multi-line reply, so that a list of extensions can be read on
 * the way. The whole text is kept as in mail logs: the lines as sent, codes included, joined by
 * blanks; control characters and broken UTF-8 are replaced by '?', one for one byte.
 *
 * Bounds: REPLY_LINE_MAX bytes of a line and REPLY_TEXT_MAX bytes of a reply are kept, the rest is
 * read and dropped. A reply of more than REPLY_BYTES_MAX bytes is BAD, because a peer that never
 * ends its reply would keep the session forever. A line without a three-digit code of 200..599 is
 * BAD, too, unless the owner tolerates it: then the line is skipped, also between replies. If the
 * lines' codes differ, the last one counts. A bare LF also ends a line.
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
#define REPLY_BYTES_MAX (256 * 1024)

enum reply_event {
    REPLY_MORE, /* all bytes were used, the reply is incomplete */
    REPLY_LINE, /* one line of several is complete: reply_line */
    REPLY_DONE, /* the last line is complete: reply_line, reply_text, code, status */
    REPLY_BAD,  /* the input is not SMTP; reply_text has it. Final until reply_reset */
};

enum reply_state {
    REPLY_AT_START, /* no byte of a reply was read */
    REPLY_IN_LINE,  /* reading a line */
    REPLY_BETWEEN,  /* a line that announces another one is complete */
    REPLY_COMPLETE, /* the next byte begins a new reply */
    REPLY_BROKEN,
};

struct reply {
    struct buf text;
    struct status status; /* as sent, if its class fits the code; else derived from the code */
    uint32_t bytes;       /* length of this reply so far, kept or not */
    uint32_t line_start;  /* offset in text of the line being read */
    uint32_t line_len;    /* length of the line so far as sent, kept or not */
    uint16_t lines;       /* number of lines, at most UINT16_MAX */
    uint16_t code;
    char head[4];     /* first bytes of the line: code and separator */
    uint8_t state;    /* of enum reply_state */
    bool line_end_cr; /* whether the line's last byte so far is a CR */
    bool status_sent; /* whether the peer sent its own enhanced status */
    /* Set by the owner: skip lines without a code. Not while more than one reply is due, because a
     * line that is skipped could be one of them. */
    bool tolerant;
    /* Set by the owner: a greeting is due. Its first line with text must have a code even for a
     * tolerant owner, because a peer without one speaks another protocol. */
    bool greets;
};

/* Initializes the parser; nothing is allocated until the first byte. */
void reply_init(struct reply *r);

/* Prepares the parser for another reply. reply_reset keeps the memory; reply_fini releases it. */
void reply_reset(struct reply *r);
void reply_fini(struct reply *r);

/* Parses further input; *ret_used is the number of bytes used. After REPLY_DONE the next call
 * begins a new reply. */
enum reply_event reply_feed(struct reply *r, struct slice in, size_t *ret_used);

/* Is no reply partly read? */
bool reply_is_idle(const struct reply *r);

/* Returns the last line read without its code and separator; lasts until the next call. */
struct slice reply_line(const struct reply *r);

/* Returns all of the reply so far; lasts until the next call. */
struct slice reply_text(const struct reply *r);

#endif
