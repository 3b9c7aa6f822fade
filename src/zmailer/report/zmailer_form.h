/*
 * ZMailer's layout of delivery reports, and the forms that they follow (MAILSHARE/forms/delivery).
 *
 *     HDR From: The Post Office <postmaster>      a line of the header
 *     SUB Returned mail: see the transcript       the subject, to which the numbers of each outcome
 *                                                 are added; "Subject:" in front of it is passed
 *                                                 over
 *     ADR Bcc: <archive@x.example>                a line of the header, and one who gets the report
 *     anything else                               a line of the text for people
 *
 * A form is a file that people edit, so whatever it says is made harmless: what is no header line,
 * or one of those that a report writes itself, is left out; bytes that are not text become '?';
 * what is beyond the limits is cut.
 */
#ifndef ZMAILER_ZMAILER_FORM_H
#define ZMAILER_ZMAILER_FORM_H

#include "report_form.h"

extern const struct report_layout zmailer_layout;

/* Its parts in report_listing.c. */
void listing_put_header(struct writer *w);
void listing_put_text(struct writer *w);

#endif
