/*
 * Functions that write the parts of a report. For report.c and for layouts.
 *
 * Strings from outside pass through `scratch`, where they are made printable, and then through
 * writer_folded, which is the only place where lines are folded.
 */
#ifndef SMTP_REPORT_WRITER_H
#define SMTP_REPORT_WRITER_H

#include <stdbool.h>

#include "buf.h"
#include "report.h"
#include "slice.h"

/* Maximum of bytes kept of one string from outside. */
#define HOST_MAX    255
#define ID_MAX      100
#define EXPLAIN_MAX 2000

#define BOUNDARY_SIZE sizeof("=_0123456789abcdef")

struct writer {
    const struct report *r;
    struct buf *out;
    struct buf scratch;
    struct slice returned; /* part of the original that is returned */
    char boundary[BOUNDARY_SIZE];
    bool utf8;            /* whether the global forms of RFC 6533 are used */
    bool text_8bit;       /* whether the form's text has bytes above 127 */
    bool returned_8bit;   /* whether `returned` has bytes above 127 */
    bool returned_global; /* whether the header of `returned` has such bytes; with utf8 it is then a
                           * global message */
};

/* Appends `text`, whose blanks may become line breaks followed by `indent`. `column` is the present
 * length of the line. Blanks at both ends are dropped. */
void writer_folded(struct writer *w, struct slice text, size_t column, struct slice indent);

/* Returns at most `max` bytes of `s` made harmless, in w->scratch; lasts until the next call.
 * Without SMTPUTF8 the result is ASCII. */
struct slice writer_harmless(struct writer *w, struct slice s, size_t max);

/* Writes "name: type; value", folded. A `type` that is empty or not an atom is left out. */
void writer_field(struct writer *w, const char *name, struct slice type, struct slice value,
                  size_t max);

void writer_date(struct writer *w, const char *name, struct wall time);

/* Returns "rfc822", "utf-8", or "X-LOCAL" for the name of a mailbox that is not an address. */
struct slice writer_address_type(struct slice address);

/* Is this valid before a semicolon as the type of an address, a host or a diagnostic? */
bool writer_is_atom(struct slice type);

/* Returns the status, with a class that fits the action. */
const char *writer_status(const struct report_rcpt *rcpt, char out[STATUS_SIZE]);

/* Returns the word for the action in the fields for programs. */
const char *writer_action(enum report_action action);

/* Returns the address that the message was originally sent to, decoded; *ret_type is the type of
 * the address. Empty if unknown or not readable. The result is in w->scratch. */
struct slice writer_original(struct writer *w, const struct report_rcpt *rcpt,
                             struct slice *ret_type);

/* Writes the fields of the message and of all recipients, as part 2 has them. */
void writer_status_fields(struct writer *w);

#endif
