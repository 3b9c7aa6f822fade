/*
 * One line of a mail log in Postfix's form.
 *
 * The line is from outside, and parts of it from far outside (addresses, replies): whatever it
 * holds, it is understood or it is not.
 */
#ifndef SIM_TRACE_LINE_H
#define SIM_TRACE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

#define TRACE_ID_MAX     64  /* bytes of a queue id */
#define TRACE_DOMAIN_MAX 200 /* bytes of a domain that mail is simulated for */

enum trace_line_kind {
    TRACE_LINE_OTHER,   /* of no interest, or not understood */
    TRACE_LINE_ACTIVE,  /* id, sender, size: the message came into the active queue */
    TRACE_LINE_ATTEMPT, /* id, address, domain, status, time: a recipient was tried */
    TRACE_LINE_CLASS,   /* id, class_name, marked: its class is not the one of unmarked mail */
    TRACE_LINE_GONE,    /* id: removed, or returned for its age */
};

enum trace_status { TRACE_SENT, TRACE_DEFERRED, TRACE_BOUNCED, TRACE_EXPIRED };

struct trace_line {
    enum trace_line_kind kind;
    struct slice id, address, domain; /* borrowed from the line; the domain as it is written */
    struct slice sender, class_name;  /* likewise */
    bool marked;                      /* the class is said by a field that marks bulk mail */
    int64_t at_us;                    /* see trace_clock */
    int64_t size_bytes;
    enum trace_status status;
    int64_t took_us; /* connection and transmission, from delays=; negative: it does not say */
    /* Of events alone (trace_event.h): */
    bool event;
    bool unreached;   /* TRACE_LINE_ATTEMPT: the site did not answer, so it is no verdict of its */
    bool unattempted; /* likewise: its site was known to be dead */
};

/* What must be remembered from line to line as dates of syslog have no year. Zero at first. */
struct trace_clock {
    int years;      /* since the first line */
    int last_month; /* 1..12; 0: no line yet */
    bool leap;      /* the present year has a 29th of February */
};

/* Times are microseconds since 1970 for dates of RFC 3339, and since the beginning of the first
 * year for those of syslog. */
void trace_line_read(struct slice line, struct trace_clock *clock, struct trace_line *ret_line);

#endif
