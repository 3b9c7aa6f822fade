/*
 * Delivery reports: a multipart/report message (RFC 3462) with a text for people, a delivery-status
 * part for programs (RFC 3464), and the original message or its header.
 *
 * Every string from outside (addresses, replies of other sites, identifiers) is treated as hostile:
 * control characters become '?', broken UTF-8 too, lengths are cut, so nothing can start a header
 * or a part of its own. When an address is not ASCII, the parts are the global ones of RFC 6533,
 * and the report itself needs SMTPUTF8. Otherwise all that is not ASCII in other sites' words
 * becomes '?', too: the sender's mail system may know nothing of UTF-8.
 *
 * With a form (report_form.h) the text has the layout of that, and one report may tell of several
 * outcomes; without one, our own.
 *
 * A pure function: same input, same bytes. The boundary is derived from `seed` and changed until it
 * occurs nowhere in the report but where it parts it.
 */
#ifndef SMTP_REPORT_H
#define SMTP_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "report_form.h"
#include "slice.h"
#include "status.h"
#include "times.h"

/* Most recipients in one report; for more, make several. */
#define REPORT_RCPTS_MAX 1000
/* A report is never longer than this plus the original that is returned. */
#define REPORT_FRAME_MAX    (80 * 1024)
#define REPORT_PER_RCPT_MAX (24 * 1024)

enum report_kind {
    REPORT_FAILURE,
    REPORT_DELAY,
    REPORT_SUCCESS, /* delivered or relayed */
};

enum report_action {
    REPORT_FAILED,
    REPORT_DELAYED,
    REPORT_DELIVERED,
    REPORT_RELAYED,  /* handed to a site that makes no reports */
    REPORT_EXPANDED, /* to an alias or list */
};

struct report_rcpt {
    struct slice address;
    struct slice orcpt; /* "rfc822;xtext" as given in the envelope; empty: none */
    enum report_action action;
    struct status status;
    struct slice remote_mta;  /* host name; empty: none was asked */
    struct slice diagnostic;  /* the remote site's own words; empty: it said nothing */
    struct slice text;        /* our account of it, as logged; with a form, lines end with CR */
    struct wall last_attempt; /* 0: none */
    struct wall retry_until;  /* DELAYED: when we give up; 0: not told */
    /* What agents of other systems say beside that, for their layout; empty: nothing. */
    struct slice status_words;    /* the status as the agent gave it, with a comment */
    struct slice remote_type;     /* empty: dns */
    struct slice diagnostic_type; /* empty: smtp */
    struct slice agent;           /* "smtp[4711]" */
    struct slice control;         /* the router's line */
};

struct report {
    enum report_kind kind;
    struct slice reporting_mta; /* our host name */
    struct slice queue_id;      /* of the original */
    struct slice envid;         /* its ENVID, xtext as given; empty: none */
    struct wall arrival;        /* of the original */
    struct slice sender;        /* of the original, not empty: to whom the report goes */
    bool double_fault; /* the original was a report: this goes to the form's copies alone */
    const struct report_form *form; /* borrowed; NULL: our own words */
    bool postmaster_copy;    /* the sender has one, this one is for those who keep the site */
    struct slice message_id; /* left part of the report's own Message-ID; unique here */
    struct wall now;         /* the report's Date */
    int utc_offset_minutes;  /* of all dates; minutes east */
    uint64_t seed;           /* for the boundary; not to be guessed by others */
    struct slice original;   /* content in wire form; empty: nothing is returned */
    bool headers_only;       /* return its header alone (RET=HDRS, or too large) */
    const struct report_rcpt *rcpts;
    size_t rcpt_count; /* 1..REPORT_RCPTS_MAX */
};

/* Append the report to *out in wire form. False when that would pass the limit of *out, which is
 * then failed. *ret_flags gets the report's own envelope flags (ENVELOPE_REPORT, and ENVELOPE_8BIT,
 * ENVELOPE_SMTPUTF8 where it needs them). */
bool report_build(const struct report *r, struct buf *out, unsigned *ret_flags);

#endif
