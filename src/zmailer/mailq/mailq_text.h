/*
 * The words of ZMailer's mailq protocols: how threads, rings, recipients and totals are written.
 *
 * Both versions share these texts. Programs of others read them by column and by prefix, so every
 * blank is part of the format. In this protocol's terms a transport is a channel, a destination a
 * host, the two together a thread, and a message's recipients for one thread a vertex.
 *
 * Functions append to a buffer and leave its limit to its owner. Text that comes from outside
 * (names, diagnostics) can't break a line: line feeds and NULs in it become blanks, tabs too where
 * a tab separates fields.
 */
#ifndef ZMAILER_MAILQ_TEXT_H
#define ZMAILER_MAILQ_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* "1d2h", "1h5m", "5m20s", "0s"; the two largest parts, days and hours counting as parts, and a
 * leading "-" when negative. */
void mailq_duration(struct buf *out, int64_t seconds);

/* How an agent is fed. */
enum mailq_agent_state {
    MAILQ_LARVA,  /* started, has not asked for work yet */
    MAILQ_STUFF,  /* is given jobs */
    MAILQ_FINISH, /* is to finish what it has */
    MAILQ_IDLE,   /* waits for work of any thread of its ring */
    MAILQ_ERROR,  /* is to go */
};

struct mailq_agent {
    int64_t pid;
    int64_t hungry_age_s; /* since it last asked for work */
    int64_t fed_age_s;    /* since it was last given some; negative: never */
    uint32_t overfeed;    /* jobs it has and did not answer yet */
    enum mailq_agent_state state;
};

/* What limit a thread waits for. */
enum mailq_pending {
    MAILQ_PENDING_NONE,
    MAILQ_PENDING_GLOBAL,
    MAILQ_PENDING_CHANNEL,
    MAILQ_PENDING_THREAD,
};

struct mailq_thread {
    struct slice channel, host;
    bool host_bound; /* its agents are started for this host alone */
    uint32_t vertices, recipients, attempts;
    const struct mailq_agent *agents; /* borrowed */
    size_t agent_count;
    uint32_t unfed;       /* vertices given to no agent in this run */
    int64_t wait_s;       /* until it is tried again; 0: it is due */
    struct slice reason;  /* why it could not be started, or empty */
    int64_t oldest_age_s; /* of its oldest message */
    enum mailq_pending pending;
};

struct mailq_ring {
    struct slice channel, host; /* the clause's patterns */
    bool host_bound;
    uint32_t threads, vertices, agents, idle;
    uint32_t ring_limit, feed_limit, thread_limit; /* maxring, overfeed, maxthr */
};

struct mailq_totals {
    uint32_t agents, idle, messages, threads, vertices;
    int64_t uptime_s;
    uint64_t messages_in, messages_out, rcpts_in, rcpts_out; /* since the start */
    int64_t messages_stored, rcpts_stored;
};

/* A thread's line in a report, and the line that heads its listing. */
void mailq_put_thread(struct buf *out, const struct mailq_thread *t);
void mailq_put_thread_head(struct buf *out, const struct mailq_thread *t);

/* The same for machines: fields separated by tabs. */
void mailq_put_thread_fields(struct buf *out, const struct mailq_thread *t);

/* The lines around a ring's threads. */
void mailq_put_ring_head(struct buf *out, const struct mailq_ring *r);
void mailq_put_ring_totals(struct buf *out, const struct mailq_ring *r);

/* The two last lines. SHOW SNMP wants the uptime in plain seconds. */
void mailq_put_totals(struct buf *out, const struct mailq_totals *t, bool uptime_in_seconds);

/* One recipient in the listing of a thread. */
struct mailq_rcpt {
    struct slice path;          /* of the control file, or the queue id */
    uint32_t n;                 /* within the vertex, from 0 */
    struct slice error_to;      /* where failure is reported to; may be empty */
    uint64_t offset;            /* names the recipient within the message */
    int64_t expires_s;          /* since 1970; 0: never */
    int64_t wake_s, last_fed_s; /* since 1970; 0: due, never */
    uint32_t attempts;
    int64_t retry_in_s; /* > 0: not due yet */
    enum mailq_pending pending;
    struct slice diagnostic; /* lines separated by CR */
};
void mailq_put_rcpt(struct buf *out, const struct mailq_rcpt *r);

/* One vertex in the dump of version 1. */
struct mailq_vertex {
    uint32_t key; /* 1, 2, 3 ... in order of the dump */
    struct slice path;
    const uint64_t *offsets; /* of its recipients; borrowed */
    size_t rcpt_count;
    struct slice diagnostic;
    int64_t retry_in_s; /* > 0: not due yet */
    enum mailq_pending pending;
    int64_t pid; /* of the agent that has it; 0: none */
    bool next_feed;
    bool expires;
    int64_t expires_in_s; /* may be negative */
    uint32_t attempts;
};
void mailq_put_vertex(struct buf *out, const struct mailq_vertex *v);

#endif
