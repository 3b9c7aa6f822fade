/*
 * Texts of ZMailer's mailq protocols: format threads, rings, recipients and totals.
 *
 * Both versions of the protocol share these texts. Other programs parse them by column and prefix,
 * so every blank is part of the format. In the protocol's terms a transport is a channel, a
 * destination a host, both together a thread, and one message's recipients for one thread a vertex.
 *
 * Functions append to a buffer; its owner sets the limit. Text from outside (names, diagnostics)
 * can't break a line: line feeds and NULs in it become blanks, and tabs, too, where a tab separates
 * fields.
 */
#ifndef ZMAILER_MAILQ_TEXT_H
#define ZMAILER_MAILQ_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Appends a duration: "1d2h", "1h5m", "5m20s", "0s". Days and hours are always written if not 0,
 * smaller parts only up to two parts in all. A negative duration begins with "-". */
void mailq_duration(struct buf *out, int64_t seconds);

/* State of an agent's work. */
enum mailq_agent_state {
    MAILQ_LARVA,  /* started, has not asked for a job yet */
    MAILQ_STUFF,  /* is given jobs */
    MAILQ_FINISH, /* must finish its jobs */
    MAILQ_IDLE,   /* waits for work from any thread of its ring */
    MAILQ_ERROR,  /* must end */
};

struct mailq_agent {
    int64_t pid;
    int64_t hungry_age_s; /* age of its last request for work */
    int64_t fed_age_s;    /* age of its last job; negative: none yet */
    uint32_t overfeed;    /* unanswered jobs */
    enum mailq_agent_state state;
};

/* The limit that a thread waits for. */
enum mailq_pending {
    MAILQ_PENDING_NONE,
    MAILQ_PENDING_GLOBAL,
    MAILQ_PENDING_CHANNEL,
    MAILQ_PENDING_THREAD,
};

struct mailq_thread {
    struct slice channel, host;
    bool host_bound; /* agents are started for this host only */
    uint32_t vertices, recipients, attempts;
    const struct mailq_agent *agents; /* borrowed */
    size_t agent_count;
    uint32_t unfed;       /* vertices that no agent was given in this run */
    int64_t wait_s;       /* until the next try; 0: due */
    struct slice reason;  /* reason why the thread could not be started; may be empty */
    int64_t oldest_age_s; /* age of its oldest message */
    enum mailq_pending pending;
};

struct mailq_ring {
    struct slice channel, host; /* patterns of the clause */
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

/* Appends a thread's line of a report; mailq_put_thread_head appends the first line of its
 * listing. */
void mailq_put_thread(struct buf *out, const struct mailq_thread *t);
void mailq_put_thread_head(struct buf *out, const struct mailq_thread *t);

/* Appends a thread for machines: fields separated by tabs. */
void mailq_put_thread_fields(struct buf *out, const struct mailq_thread *t);

/* Appends the line before, or after, a ring's threads. */
void mailq_put_ring_head(struct buf *out, const struct mailq_ring *r);
void mailq_put_ring_totals(struct buf *out, const struct mailq_ring *r);

/* Appends the last two lines. SHOW SNMP has the uptime in plain seconds. */
void mailq_put_totals(struct buf *out, const struct mailq_totals *t, bool uptime_in_seconds);

/* One recipient in the listing of a thread. */
struct mailq_rcpt {
    struct slice path;          /* path of the control file, or the queue id */
    uint32_t n;                 /* index within the vertex, from 0 */
    struct slice error_to;      /* address for failure reports; may be empty */
    uint64_t offset;            /* identifies the recipient within the message */
    int64_t expires_s;          /* time since 1970; 0: never */
    int64_t wake_s, last_fed_s; /* times since 1970; 0: due (wake_s), never (last_fed_s) */
    uint32_t attempts;
    int64_t retry_in_s; /* > 0: not due yet */
    enum mailq_pending pending;
    struct slice diagnostic; /* lines separated by CR */
};
void mailq_put_rcpt(struct buf *out, const struct mailq_rcpt *r);

/* One vertex in the dump of version 1. */
struct mailq_vertex {
    uint32_t key; /* 1, 2, 3 ... in the order of the dump */
    struct slice path;
    const uint64_t *offsets; /* offsets of its recipients; borrowed */
    size_t rcpt_count;
    struct slice diagnostic;
    int64_t retry_in_s; /* > 0: not due yet */
    enum mailq_pending pending;
    int64_t pid; /* process of the agent that has it; 0: none */
    bool next_feed;
    bool expires;
    int64_t expires_in_s; /* may be negative */
    uint32_t attempts;
};
void mailq_put_vertex(struct buf *out, const struct mailq_vertex *v);

#endif
