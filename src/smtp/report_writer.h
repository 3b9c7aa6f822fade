/*
 * What the parts of a report are written with. For report.c and for layouts.
 *
 * Strings from outside pass through `scratch`, where they are made printable, and then through
 * writer_folded, which is the only place where lines are broken.
 */
#ifndef SMTP_REPORT_WRITER_H
#define SMTP_REPORT_WRITER_H

#include <stdbool.h>

#include "buf.h"
#include "report.h"
#include "slice.h"

/* What is kept of one string from outside. */
#define HOST_MAX    255
#define ID_MAX      100
#define EXPLAIN_MAX 2000

#define BOUNDARY_SIZE sizeof("=_0123456789abcdef")

struct writer {
    const struct report *r;
    struct buf *out;
    struct buf scratch;
    struct slice returned; /* the part of the original that goes back */
    char boundary[BOUNDARY_SIZE];
    bool utf8;            /* the global forms of RFC 6533 are in use */
    bool text_8bit;       /* the form's text has bytes above 127 */
    bool returned_8bit;   /* `returned` has bytes above 127 .. */
    bool returned_global; /* .. in its header, which makes it a global message, if utf8 */
};

/* Append `text`, whose blanks may become line breaks followed by `indent`. `column` is where the
 * line stands by now. Blanks at both ends are left out. */
void writer_folded(struct writer *w, struct slice text, size_t column, struct slice indent);

/* At most `max` bytes of `s` made harmless, in w->scratch; lasts until the next call. Without
 * SMTPUTF8, ASCII. */
struct slice writer_harmless(struct writer *w, struct slice s, size_t max);

/* "name: type; value", folded; `type` may be empty. It stands in the text, so what is no atom is
 * left out. */
void writer_field(struct writer *w, const char *name, struct slice type, struct slice value,
                  size_t max);

void writer_date(struct writer *w, const char *name, struct wall time);

/* "rfc822", "utf-8", or "X-LOCAL" for what is no address but the name of a mailbox. */
struct slice writer_address_type(struct slice address);

/* Can it stand before a semicolon as the type of an address, a host or a diagnostic? */
bool writer_is_atom(struct slice type);

/* The status, with a class that fits the action. */
const char *writer_status(const struct report_rcpt *rcpt, char out[STATUS_SIZE]);

/* The words of enum report_action in the fields for programs. */
const char *writer_action(enum report_action action);

/* The address the message was first sent to, decoded; *ret_type is what it is an address of. Empty
 * when unknown or not readable. In w->scratch. */
struct slice writer_original(struct writer *w, const struct report_rcpt *rcpt,
                             struct slice *ret_type);

/* The fields of the message and of all recipients, as part 2 has them. */
void writer_status_fields(struct writer *w);

#endif
