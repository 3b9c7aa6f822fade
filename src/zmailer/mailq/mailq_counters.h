/*
 * Counters of the mailq protocol, version 2 (SHOW COUNTERS): one line for each counter that
 * ZMailer's programs share, in ZMailer's order, with the value ending in column 42.
 *
 * A scheduler has values for its own counters ("SC.") and for the machine (some of "SYS."). The
 * others belong to ZMailer's routers, SMTP servers and agents, which share them with its scheduler
 * through memory. Here they are 0, as in a ZMailer without that memory.
 */
#ifndef ZMAILER_MAILQ_COUNTERS_H
#define ZMAILER_MAILQ_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct mailq_counter {
    const char *name;
    uint64_t value; /* of loads in hundredths */
};

/* Appends all lines, with the values in `known`, which may have any order. CHECKs that each name in
 * `known` is a counter. */
void mailq_put_counters(struct buf *out, const struct mailq_counter *known, size_t count);

/* Counts of a mailq server's own work. */
struct mailq_counts {
    uint64_t connects, parallel;
    uint64_t auth_rejects; /* failed logins, and clients refused by their address */
    uint64_t timeouts, read_ends;
    uint64_t commands, command_rejects, auths, quits, etrns, kill_threads, kill_messages;
    uint64_t reroutes, show_threads, show_threads2, show_short, show_totals, show_thread,
        show_counters;
};

/* Converts the counts to rows for mailq_put_counters. */
#define MAILQ_COUNTS_ROWS 19
void mailq_counts_rows(const struct mailq_counts *counts,
                       struct mailq_counter ret_rows[MAILQ_COUNTS_ROWS]);

#endif
