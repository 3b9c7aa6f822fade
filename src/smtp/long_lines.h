/*
 * Folds lines that are too long for SMTP (RFC 5321, 4.5.3.1.6), as content streams through.
 *
 * Only a line of more than LONG_LINES_MAX octets changes. It is broken before the first white space
 * after LONG_LINES_WISHED octets, which in a header is folding and changes no meaning. Without
 * white space there it is broken as Postfix does it, with a blank at the start of the next line,
 * though never within a character of UTF-8. The result is the same in whatever pieces the content
 * comes.
 *
 *     long_lines_pass: what needs no copy --> long_lines_add: the rest --> long_lines_finish
 */
#ifndef SMTP_LONG_LINES_H
#define SMTP_LONG_LINES_H

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

/* Returns how many bytes at the start of `in` can be used as they are. The caller passes the next
 * ones to long_lines_add. */
size_t long_lines_pass(struct long_lines *l, struct slice in);

/* Appends bytes of `in` up to the end of the current line, folded if necessary, and returns their
 * number, more than 0. Appends at most LONG_LINES_HELD_MAX bytes more than that, and
 * LONG_LINES_BREAK_MAX for each LONG_LINES_WISHED of them. The buffer must have that room. */
size_t long_lines_add(struct long_lines *l, struct slice in, struct buf *out);

/* Appends what is held back at the end of the content. */
void long_lines_finish(struct long_lines *l, struct buf *out);

#endif
