/*
 * Recorded mail, read from a log in Postfix's form (this daemon's, too), or from the journal of
 * events (docs/events.md), a line of JSON each, which has more details (trace_event.h).
 *
 *     ... postfix/qmgr[1]: 4Xz1: from=<a@b.example>, size=4301, nrcpt=2 (queue active)
 *     ... postfix/smtp[2]: 4Xz1: to=<c@d.example>, relay=..., delay=3, delays=1/0/1/1, dsn=2.0.0,
 *         status=sent (250 ok)
 *     ... postfix/qmgr[1]: 4Xz1: removed
 *     ... postfix/qmgr[1]: 4Xz1: class=bulk (List-Id)
 *
 * A message arrived when it first became active. Its recipients are those of the delivery lines.
 * Its class is that of an earlier class line (this daemon logs them), else that of unmarked mail.
 * The duration of a delivery is the connection's and the transmission's part of delays=; a sample
 * of these times is kept for each domain. Dates are those of syslog ("Nov 21 08:00:01", the year
 * guessed from the order) or of RFC 3339 ("2026-11-21T08:00:01.5+01:00").
 *
 * Events also contain the reactions of the sites, so their trace has outcomes: when a deferred
 * recipient was accepted, which recipients were refused, and when a site could not be reached.
 *
 * The log comes from outside: any line that can't be parsed is skipped and counted. Limits:
 * TRACE_*; lines beyond them are counted as skipped, too.
 */
#ifndef SIM_TRACE_H
#define SIM_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "distribution.h"
#include "sim_site.h"
#include "slice.h"

#define TRACE_LINE_MAX     8192     /* bytes */
#define TRACE_MESSAGES_MAX 10000000 /* and as many recipients */
#define TRACE_DOMAINS_MAX  100000
#define TRACE_SAMPLES_MAX  64              /* delivery times kept per domain */
#define TRACE_CLASSES_MAX  32              /* mail of further classes counts as unmarked */
#define TRACE_OUTAGES_MAX  SIM_OUTAGES_MAX /* per domain; only the first ones are kept */

/* A period in which no delivery reached a domain's site. */
struct trace_outage {
    int64_t from_us, until_us; /* since the first message; until_us may be US_FOREVER */
    bool hangs;                /* true: connections timed out; false: they were refused */
};

/* Outcome of a recipient at its site. */
struct trace_outcome {
    int64_t not_before_us; /* time before which it was deferred; US_FOREVER: always */
    int64_t sent_us;       /* time of delivery; US_FOREVER: not delivered */
    bool bounced;          /* whether it finally bounced */
};

struct trace_domain {
    char *name;                         /* owned, lower case */
    int64_t samples[TRACE_SAMPLES_MAX]; /* microseconds */
    uint32_t sample_count;
    uint64_t deliveries;          /* number of deliveries, of which the samples are a random
                                   * choice */
    struct trace_outage *outages; /* owned; only from events */
    uint32_t outage_count;
};

struct trace_message {
    int64_t at_us; /* since the first message */
    int64_t size_bytes;
    size_t first_rcpt;   /* index in rcpts */
    uint32_t rcpt_count; /* >= 1 */
    uint8_t class;       /* number of the class in classes, from 1; 0: not in the log */
    uint8_t group;       /* group of its sender, see sender_group.h */
    bool marked;         /* whether a field that marks bulk mail set the class */
};

struct trace {
    struct trace_message *messages; /* owned, in the order of arrival */
    size_t message_count;
    uint32_t *rcpts; /* owned; index of the domain of each recipient */
    size_t rcpt_count;
    struct trace_outcome *outcomes; /* owned; parallel to rcpts; NULL for a log, which has no
                                     * outcomes */
    struct trace_domain **domains;  /* owned */
    size_t domain_count;
    char *classes[TRACE_CLASSES_MAX]; /* owned */
    size_t class_count;
    int64_t first_us;    /* arrival of the first message, in the log's time */
    uint64_t lines;      /* number of lines read */
    uint64_t understood; /* lines about a message */
    uint64_t incomplete; /* messages left out because they have no recipient in the log */
    uint64_t over_limit; /* lines with a message, recipient or domain beyond a limit */
};

struct trace_reader;

/* Reads a trace. The caller passes the lines in the order of the log, without their ends, then
 * calls trace_reader_finish, and frees the trace. */
struct trace_reader *trace_reader_new(void);
void trace_reader_line(struct trace_reader *r, struct slice line);
struct trace *trace_reader_finish(struct trace_reader *r); /* frees the reader */

/* Reads a whole file. Returns NULL with the reason in *error if it can't be read. */
struct trace *trace_load(const char *path, struct buf *error);

/* Frees the trace; NULL is allowed. */
void trace_free(struct trace *t);

#endif
