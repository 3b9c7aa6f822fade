/*
 * The counters of the mailq protocol, version 2 (SHOW COUNTERS): a line for each counter that
 * ZMailer's programs share, in their order, its value ending in column 42.
 *
 * A scheduler knows those of its own, "SC." and some of "SYS.". The others belong to routers, SMTP
 * servers and agents of ZMailer's, which keep them in memory that they share with its scheduler;
 * here, as there without that memory, they are 0.
 */
#ifndef ZMAILER_MAILQ_COUNTERS_H
#define ZMAILER_MAILQ_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct mailq_counter {
    const char *name;
    uint64_t value;
};

/* All lines; those of `known` with their values, in any order. CHECKs that it has no other names
 * than there are. */
void mailq_put_counters(struct buf *out, const struct mailq_counter *known, size_t count);

/* What a mailq server counts itself. */
struct mailq_counts {
    uint64_t connects, parallel;
    uint64_t auth_rejects; /* logins, and clients refused by their address */
    uint64_t timeouts, read_ends;
    uint64_t commands, command_rejects, auths, quits, etrns, kill_threads, kill_messages;
    uint64_t reroutes, show_threads, show_threads2, show_short, show_totals, show_thread,
        show_counters;
};

/* Their rows for mailq_put_counters. */
#define MAILQ_COUNTS_ROWS 19
void mailq_counts_rows(const struct mailq_counts *counts,
                       struct mailq_counter ret_rows[MAILQ_COUNTS_ROWS]);

#endif
