/*
 * Table of the running transport agents, from reports of the agents process (WIRE_AGENT). For
 * queries only; nothing depends on it.
 *
 * An agent is in its ring for life and works for one thread (transport and next hop) at a time; an
 * idle agent works for none.
 *
 * Limit: AGENT_TABLE_MAX agents; reports of more are ignored.
 */
#ifndef ZMAILER_AGENT_TABLE_H
#define ZMAILER_AGENT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "slice.h"
#include "ta.h"
#include "times.h"
#include "wire.h"

#define AGENT_TABLE_MAX 20000

/* State of an agent: the body of WIRE_AGENT. Sent after each change, the last time with `ended`. */
struct agent_report {
    uint32_t pid;
    struct slice transport;
    struct slice host;       /* next hop of its thread, or of its last one; empty: none yet */
    uint32_t ring;           /* clause of its ring, as policy->ring */
    uint32_t state;          /* enum ta_state */
    uint32_t owed;           /* unanswered lines */
    struct wall hungry, fed; /* times of its last request for work and of its last job; us 0: none
                              * yet */
    bool ended;
};
/* Appends the report to a frame's body. */
void agent_report_write(struct buf *b, const struct agent_report *m);
/* Reads a report as wire_get_x does. Returns false if it does not decode. */
bool agent_report_read(struct slice body, struct agent_report *ret);

struct agent_thread;

struct agent_row {
    UT_hash_handle hh; /* hashed by pid */
    uint32_t pid, ring, owed;
    enum ta_state state;
    struct wall hungry, fed; /* us 0: never */
    char *transport, *host;  /* owned; host of its thread, or of the last one; empty: none yet */
    struct agent_thread *thread; /* NULL: idle, or no thread yet */
    TAILQ_ENTRY(agent_row) of_thread;
};

/* The agents of one thread. */
struct agent_thread {
    UT_hash_handle hh;
    TAILQ_HEAD(, agent_row) agents;
    size_t key_len;
    char key[]; /* transport, NUL, host */
};

/* Table of agents; all zero: empty. */
struct agent_table {
    struct agent_row *rows; /* hashed, the oldest first */
    struct agent_thread *threads;
    uint32_t idle;
    uint64_t starts; /* number of agents that were reported */
};

/* Takes a report: adds, changes or removes an agent. */
void agent_table_take(struct agent_table *t, const struct agent_report *m);

/* Removes all agents, because the agents process is a new one. `starts` remains. */
void agent_table_clear(struct agent_table *t);

/* Returns the agents of a thread, linked by `of_thread`, or NULL. Both names as in WIRE_AGENT. */
const struct agent_thread *agent_table_of(const struct agent_table *t, struct slice transport,
                                          struct slice host);

static inline uint32_t agent_table_count(const struct agent_table *t)
{
    return HASH_COUNT(t->rows);
}

#endif
