/*
 * A form of ZMailer's for delivery reports (MAILSHARE/forms/delivery): what a site wants them to
 * say.
 *
 *     HDR From: The Post Office <postmaster>      a line of the header
 *     SUB Returned mail: see the transcript       the subject, to which the numbers of each outcome
 *                                                 are added; "Subject:" in front of it is passed
 *                                                 over
 *     ADR Bcc: <archive@x.example>                a line of the header, and one who gets the report
 *     anything else                               a line of the text for people
 *
 * A form is a file that people edit, so whatever it says is made harmless: what is no header line,
 * or one of those that a report writes itself (To, Subject, MIME-Version, Content-*), is left out;
 * bytes that are not text become '?'; what is beyond the limits is cut.
 */
#ifndef SMTP_REPORT_FORM_H
#define SMTP_REPORT_FORM_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

#define REPORT_FORM_MAX        (32u << 10) /* bytes of a form that are looked at */
#define REPORT_FORM_LINE_MAX   800         /* of one line */
#define REPORT_FORM_COPIES_MAX 20

struct report_form {
    struct buf headers;                   /* of HDR and ADR, in wire form */
    struct buf text;                      /* in wire form */
    char *subject;                        /* owned; empty: none */
    char *copies[REPORT_FORM_COPIES_MAX]; /* owned: addresses of ADR */
    size_t copy_count;
};

/* Read a form; `bytes` need not last. Free with report_form_fini in any case. */
void report_form_read(struct slice bytes, struct report_form *ret_form);

/* The one that holds when a site has none. */
void report_form_builtin(struct report_form *ret_form);

/* The one that holds when a site's own, this file, is not there: it names the file, and the
 * postmaster gets a copy. */
void report_form_missing(struct slice file, struct report_form *ret_form);

void report_form_fini(struct report_form *form);

/* Does it write this line of the header ("From")? */
bool report_form_has_header(const struct report_form *form, struct slice name);

#endif
