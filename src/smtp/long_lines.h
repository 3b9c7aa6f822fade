/*
 * Folds lines that are too long for SMTP (RFC 5321, 4.5.3.1.6), as content streams through.
 *
 * Only a line of more than LONG_LINES_MAX octets changes. It is broken before the first white space
 * after LONG_LINES_WISHED octets, which in a header is folding and changes no meaning. Without
 * white space there it is broken as Postfix does it, with a blank at the start of the next line,
 * though never within a character of UTF-8. The result is the same in whatever pieces the content
 * comes.
 *
 *     while (long_lines_next(&l, &in, &room, &part)) send(part);    for each piece
 *     long_lines_finish(&l, &room); send(room)                      at the end
 */
#ifndef SMTP_LONG_LINES_H
#define SMTP_LONG_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define LONG_LINES_MAX    998 /* octets of a line without its end */
#define LONG_LINES_WISHED 900
/* Maximum of octets that are held back, because the line may still end in time. */
#define LONG_LINES_HELD_MAX (LONG_LINES_MAX - LONG_LINES_WISHED + 1)
/* Maximum of octets that a break adds. */
#define LONG_LINES_BREAK_MAX 3

/* State of the current line: a plain value, zeroed at first. */
struct long_lines {
    size_t column; /* octets of the line that were returned */
    size_t held_len;
    char held[LONG_LINES_HELD_MAX];
};

/* Cuts bytes off *in and returns true with their folded form in *ret_part, or false if *in is
 * empty. The part is the bytes of *in themselves, or in `room`, whose former content is dropped.
 * A part in `room` has at most LONG_LINES_HELD_MAX bytes more than were cut, and
 * LONG_LINES_BREAK_MAX for each LONG_LINES_WISHED of them; `room` must be able to hold that. */
bool long_lines_next(struct long_lines *l, struct slice *in, struct buf *room,
                     struct slice *ret_part);

/* Appends the bytes that are held back at the end of the content. */
void long_lines_finish(struct long_lines *l, struct buf *out);

#endif
