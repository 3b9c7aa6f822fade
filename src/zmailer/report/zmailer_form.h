/*
 * ZMailer's layout of delivery reports, and their forms (MAILSHARE/forms/delivery).
 *
 *     HDR From: The Post Office <postmaster>      a line of the header
 *     SUB Returned mail: see the transcript       the subject, followed by the number of recipients
 *                                                 of each outcome; a leading "Subject:" is skipped
 *     ADR Bcc: <archive@x.example>                a line of the header, and another recipient
 *     anything else                               a line of the text for people
 *
 * People edit forms, so any input is made safe. A line that is no header line, or that the report
 * writes itself, is left out; bytes that are not text become '?'; input beyond the limits is cut.
 */
#ifndef ZMAILER_ZMAILER_FORM_H
#define ZMAILER_ZMAILER_FORM_H

#include "report_form.h"

extern const struct report_layout zmailer_layout;

/* Appends the header of a report; listing_put_text appends its text. Both are in
 * report_listing.c. */
void listing_put_header(struct writer *w);
void listing_put_text(struct writer *w);

#endif
