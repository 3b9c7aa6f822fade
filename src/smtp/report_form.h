/*
 * Forms of reports: what a site wants them to say, in a layout that users know from another system.
 *
 * Our own reports need neither. A layout knows how the site writes its form, and what a report says
 * to people that follows it; report.c does the rest. Whatever a form says its layout has made
 * harmless: lines of the header are in wire form, in ASCII, and none of those that a report writes
 * itself (To, Subject, MIME-Version, Content-*); copies are addresses.
 */
#ifndef SMTP_REPORT_FORM_H
#define SMTP_REPORT_FORM_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

#define REPORT_FORM_MAX        (32u << 10) /* bytes of a form that are looked at */
#define REPORT_FORM_LINE_MAX   800         /* of one line */
#define REPORT_FORM_COPIES_MAX 20
/* Wire form has a byte more per line than a file. */
#define REPORT_FORM_WIRE_MAX ((size_t)2 * REPORT_FORM_MAX + 1024)

struct report_layout;
struct writer;

struct report_form {
    const struct report_layout *layout;   /* which has made it */
    struct buf headers;                   /* in wire form */
    struct buf text;                      /* in wire form */
    char *subject;                        /* owned; empty: none */
    char *copies[REPORT_FORM_COPIES_MAX]; /* owned: addresses that get the report, too */
    size_t copy_count;
};

struct report_layout {
    /* Read a site's form; `bytes` need not last. Free with report_form_fini in any case. */
    void (*read)(struct slice bytes, struct report_form *ret_form);
    /* The one that holds when a site has none. */
    void (*builtin)(struct report_form *ret_form);
    /* The one that holds when a site's own, this file, can't be read. */
    void (*missing)(struct slice file, struct report_form *ret_form);

    /* Append (report_writer.h) the lines To and Subject, and those of the form. */
    void (*put_header)(struct writer *w);
    /* Append part 1, behind its Content-Type. */
    void (*put_text)(struct writer *w);
    const char *id_field; /* of part 2: what names the message */
};

/* Empty, for a layout to fill. */
void report_form_init(struct report_form *form, const struct report_layout *layout);
void report_form_fini(struct report_form *form);

/* Does it write this line of the header ("From")? */
bool report_form_has_header(const struct report_form *form, struct slice name);

#endif
