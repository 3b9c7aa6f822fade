/*
 * Forms of reports: a site's own texts for reports, in a layout that users know from another
 * system.
 *
 * Our own reports use no form. A layout reads the site's form and writes the parts of a report for
 * people; report.c does the rest. The layout makes every form harmless: lines of the header are in
 * wire form, in ASCII, and none of those that a report writes itself (To, Subject, MIME-Version,
 * Content-*); copies are addresses.
 */
#ifndef SMTP_REPORT_FORM_H
#define SMTP_REPORT_FORM_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

#define REPORT_FORM_MAX        (32u << 10) /* bytes of a form that are read */
#define REPORT_FORM_LINE_MAX   800         /* bytes of one line */
#define REPORT_FORM_COPIES_MAX 20
/* Maximum of a form in wire form, which has a byte more per line than a file. */
#define REPORT_FORM_WIRE_MAX ((size_t)2 * REPORT_FORM_MAX + 1024)

struct report_layout;
struct writer;

struct report_form {
    const struct report_layout *layout;   /* layout that made the form */
    struct buf headers;                   /* in wire form */
    struct buf text;                      /* in wire form */
    char *subject;                        /* owned; empty: none */
    char *copies[REPORT_FORM_COPIES_MAX]; /* owned: further addresses that get the report */
    size_t copy_count;
};

struct report_layout {
    /* Reads a site's form; `bytes` need not last. The form must be freed with report_form_fini in
     * any case. */
    void (*read)(struct slice bytes, struct report_form *ret_form);
    /* Makes the form for a site without its own. */
    void (*builtin)(struct report_form *ret_form);
    /* Makes the form for a site whose own form, this file, can't be read. */
    void (*missing)(struct slice file, struct report_form *ret_form);

    /* Appends (report_writer.h) the lines To and Subject, and those of the form. */
    void (*put_header)(struct writer *w);
    /* Appends part 1, after its Content-Type. */
    void (*put_text)(struct writer *w);
    const char *id_field; /* field of part 2 for the id of the message */
};

/* Initializes an empty form, for a layout to fill. */
void report_form_init(struct report_form *form, const struct report_layout *layout);
void report_form_fini(struct report_form *form);

/* Does the form have this line of the header ("From")? */
bool report_form_has_header(const struct report_form *form, struct slice name);

#endif
