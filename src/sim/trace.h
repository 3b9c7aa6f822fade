/*
 * Mail that came once, read from a log in Postfix's form (this daemon's, too), or from the journal
 * of events (docs/events.md), a line of JSON each, which says more (trace_event.h).
 *
 *     ... postfix/qmgr[1]: 4Xz1: from=<a@b.example>, size=4301, nrcpt=2 (queue active)
 *     ... postfix/smtp[2]: 4Xz1: to=<c@d.example>, relay=..., delay=3, delays=1/0/1/1, dsn=2.0.0,
 *         status=sent (250 ok)
 *     ... postfix/qmgr[1]: 4Xz1: removed
 *     ... postfix/qmgr[1]: 4Xz1: class=bulk (List-Id)
 *
 * A message arrived when it first became active; its recipients are those that delivery lines name;
 * its class is the one that a line tells before that (this daemon logs it), else that of unmarked
 * mail; a delivery took the connection's and the transmission's part of delays=. Of each domain a
 * sample of these times is kept. Dates are those of syslog ("Nov 21 08:00:01", the year guessed
 * from the order) or of RFC 3339 ("2026-11-21T08:00:01.5+01:00").
 *
 * Events tell what the sites did, too, so their trace has outcomes: when a recipient was accepted
 * that had been deferred, who was refused, and when a site could not be reached.
 *
 * The log is from outside: a line that is not understood is skipped and counted, whatever it is.
 * Limits: TRACE_*; what passes them is counted as skipped, too.
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
#define TRACE_SAMPLES_MAX  64              /* delivery times kept of a domain */
#define TRACE_CLASSES_MAX  32              /* mail of others counts as unmarked */
#define TRACE_OUTAGES_MAX  SIM_OUTAGES_MAX /* of a domain; of more, the first */

/* Time in which nothing reached a domain's site. */
struct trace_outage {
    int64_t from_us, until_us; /* since the first message; the latter may be US_FOREVER */
    bool hangs;                /* else connections were refused */
};

/* What a site said of a recipient. */
struct trace_outcome {
    int64_t not_before_us; /* it was deferred before; US_FOREVER: always */
    int64_t sent_us;       /* when it was delivered; US_FOREVER: it was not */
    bool bounced;          /* in the end */
};

struct trace_domain {
    char *name;                         /* owned, lower case */
    int64_t samples[TRACE_SAMPLES_MAX]; /* microseconds */
    uint32_t sample_count;
    uint64_t deliveries;          /* of which the samples are a random choice */
    struct trace_outage *outages; /* owned; of events */
    uint32_t outage_count;
};

struct trace_message {
    int64_t at_us; /* since the first one */
    int64_t size_bytes;
    size_t first_rcpt;   /* index in rcpts */
    uint32_t rcpt_count; /* >= 1 */
    uint8_t class;       /* in classes, from 1; 0: the log tells of none */
    uint8_t group;       /* of its sender, see sender_group.h */
    bool marked;         /* it has its class from a field that marks bulk mail */
};

struct trace {
    struct trace_message *messages; /* owned, in the order of arrival */
    size_t message_count;
    uint32_t *rcpts; /* owned; the index of its domain for each recipient */
    size_t rcpt_count;
    struct trace_outcome *outcomes; /* owned; beside rcpts; NULL: of a log, which tells none */
    struct trace_domain **domains;  /* owned */
    size_t domain_count;
    char *classes[TRACE_CLASSES_MAX]; /* owned */
    size_t class_count;
    int64_t first_us;    /* when the first message came, as the log has its times */
    uint64_t lines;      /* read */
    uint64_t understood; /* of them, told of a message */
    uint64_t incomplete; /* messages left out, as no recipient of theirs was seen */
    uint64_t over_limit; /* lines whose message, recipient or domain was one too many */
};

struct trace_reader;

/* Lines in the order of the log, without their ends; then the trace, which the caller frees. */
struct trace_reader *trace_reader_new(void);
void trace_reader_line(struct trace_reader *r, struct slice line);
struct trace *trace_reader_finish(struct trace_reader *r); /* frees the reader */

/* All of a file. NULL when it can't be read; *error then says why. */
struct trace *trace_load(const char *path, struct buf *error);

/* NULL is fine. */
void trace_free(struct trace *t);

#endif
