/*
 * Delivery reports: a multipart/report message (RFC 3462) with a text for people, a delivery-status
 * part for programs (RFC 3464), and the original message or its header.
 *
 * Every string from outside (addresses, replies of other sites, identifiers) is treated as hostile.
 * Control characters and broken UTF-8 become '?', and lengths are limited, so that no string can
 * start a header or a part of its own. If an address is not ASCII, the parts are the global ones of
 * RFC 6533, and the report itself needs SMTPUTF8. Otherwise all non-ASCII text of other sites
 * becomes '?', too, because the sender's mail system possibly does not support UTF-8.
 *
 * With a form (report_form.h) the text has the form's layout, and one report may list several
 * outcomes; without one, it has our own layout.
 *
 * A pure function: the same input gives the same bytes. The boundary is derived from `seed` and
 * changed until it occurs nowhere in the report except where it separates parts.
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

/* Maximum of recipients in one report; more need several reports. */
#define REPORT_RCPTS_MAX 1000
/* Maximum length of a report, without the original that is returned. */
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
    REPORT_RELAYED,  /* passed on to a site that sends no reports */
    REPORT_EXPANDED, /* passed on to the members of an alias or list */
};

struct report_rcpt {
    struct slice address;
    struct slice orcpt; /* "rfc822;xtext" as given in the envelope; empty: none */
    enum report_action action;
    struct status status;
    struct slice remote_mta;  /* host name; empty: no host was contacted */
    struct slice diagnostic;  /* the remote site's own words; empty: no reply */
    struct slice text;        /* our account of the attempt, as logged; with a form, lines end with
                               * CR */
    struct wall last_attempt; /* 0: none */
    struct wall retry_until;  /* DELAYED: time when the message expires; 0: not shown */
    /* Further data from agents of other systems, for their layout; empty: none. */
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
    struct slice envid;         /* ENVID of the original, xtext as given; empty: none */
    struct wall arrival;        /* of the original */
    struct slice sender;        /* sender of the original, who gets the report; not empty */
    bool double_fault; /* the original was a report: this one goes only to the form's copies */
    const struct report_form *form; /* borrowed; NULL: our own layout */
    bool postmaster_copy;    /* a copy for the site's postmaster; the sender gets another one */
    struct slice message_id; /* left part of the report's own Message-ID; unique here */
    struct wall now;         /* Date of the report */
    int utc_offset_minutes;  /* of all dates; minutes east */
    uint64_t seed;           /* for the boundary; must not be guessable */
    struct slice original;   /* content in wire form; empty: nothing is returned */
    bool headers_only;       /* return only its header (RET=HDRS, or too large) */
    const struct report_rcpt *rcpts;
    size_t rcpt_count; /* 1..REPORT_RCPTS_MAX */
};

/* Appends the report to *out in wire form. Returns false if that would exceed the limit of *out,
 * which has then failed. *ret_flags gets the report's own envelope flags: ENVELOPE_REPORT, and
 * ENVELOPE_8BIT and ENVELOPE_SMTPUTF8 if needed. */
bool report_build(const struct report *r, struct buf *out, unsigned *ret_flags);

#endif
