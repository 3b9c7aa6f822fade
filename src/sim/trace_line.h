/*
 * One line of a mail log in Postfix's form. The line comes from outside, and parts of it from
 * remote sites (addresses, replies). Any content is either parsed or ignored.
 */
#ifndef SIM_TRACE_LINE_H
#define SIM_TRACE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

#define TRACE_ID_MAX     64  /* bytes of a queue id */
#define TRACE_DOMAIN_MAX 200 /* bytes of a domain that mail is simulated for */

enum trace_line_kind {
    TRACE_LINE_OTHER,   /* irrelevant, or not parsed */
    TRACE_LINE_ACTIVE,  /* id, sender, size: the message became active */
    TRACE_LINE_ATTEMPT, /* id, address, domain, status, time: a recipient was tried */
    TRACE_LINE_CLASS,   /* id, class_name, marked: its class is not that of unmarked mail */
    TRACE_LINE_GONE,    /* id: removed, or bounced because of its age */
};

enum trace_status { TRACE_SENT, TRACE_DEFERRED, TRACE_BOUNCED, TRACE_EXPIRED };

struct trace_line {
    enum trace_line_kind kind;
    struct slice id, address, domain; /* borrowed from the line; the domain as written */
    struct slice sender, class_name;  /* borrowed from the line */
    bool marked;                      /* whether a field that marks bulk mail set the class */
    int64_t at_us;                    /* see trace_clock */
    int64_t size_bytes;
    enum trace_status status;
    int64_t took_us; /* connection and transmission, from delays=; negative: not in the line */
    /* Only of events (trace_event.h): */
    bool event;
    bool unreached;   /* TRACE_LINE_ATTEMPT: the site did not answer, so this is not its verdict */
    bool unattempted; /* TRACE_LINE_ATTEMPT: not tried, because the site was known to be dead */
};

/* State kept from line to line, as dates of syslog have no year. Zeroed at first. */
struct trace_clock {
    int years;      /* since the first line */
    int last_month; /* 1..12; 0: no line yet */
    bool leap;      /* whether the present year has a 29th of February */
};

/* Reads a line. Times are microseconds since 1970 for dates of RFC 3339, and since the beginning of
 * the first year for those of syslog. */
void trace_line_read(struct slice line, struct trace_clock *clock, struct trace_line *ret_line);

#endif
