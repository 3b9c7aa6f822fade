/*
 * The transport agents that run, as the agents process tells of them (WIRE_AGENT): for those who
 * ask. Nothing is decided by it.
 *
 * An agent is in its ring for life and works for one thread (transport and next hop) at a time; one
 * that is idle works for none.
 *
 * Limit: AGENT_TABLE_MAX; what is told of more is passed over.
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

/* How an agent is: the body of WIRE_AGENT. Sent when it has changed, the last time with `ended`. */
struct agent_report {
    uint32_t pid;
    struct slice transport;
    struct slice host; /* next hop of the thread it works for, or has worked for; empty: none yet */
    uint32_t ring;     /* clause, as policy->ring */
    uint32_t state;    /* enum ta_state */
    uint32_t owed;     /* lines it has not answered */
    struct wall hungry, fed; /* when it asked last, when it was given a job; us 0: never */
    bool ended;
};
/* Append it to a frame's body. */
void agent_report_write(struct buf *b, const struct agent_report *m);
/* As wire_get_x. */
bool agent_report_read(struct slice body, struct agent_report *ret);

struct agent_thread;

struct agent_row {
    UT_hash_handle hh; /* by pid */
    uint32_t pid, ring, owed;
    enum ta_state state;
    struct wall hungry, fed; /* us 0: never */
    char *transport, *host;  /* owned; host: of its thread, or of the last one; empty: none yet */
    struct agent_thread *thread; /* NULL: idle, or none yet */
    TAILQ_ENTRY(agent_row) of_thread;
};

/* Those that work for one thread. */
struct agent_thread {
    UT_hash_handle hh;
    TAILQ_HEAD(, agent_row) agents;
    size_t key_len;
    char key[]; /* transport, NUL, host */
};

/* Zeroed = empty. */
struct agent_table {
    struct agent_row *rows; /* the oldest first */
    struct agent_thread *threads;
    uint32_t idle;
    uint64_t starts; /* agents that were told of */
};

/* An agent is new, has changed or has ended. */
void agent_table_take(struct agent_table *t, const struct agent_report *m);

/* The agents process is another one: its agents are gone. `starts` stays. */
void agent_table_clear(struct agent_table *t);

/* Those of a thread, linked by `of_thread`; NULL: none. Both names as in WIRE_AGENT. */
const struct agent_thread *agent_table_of(const struct agent_table *t, struct slice transport,
                                          struct slice host);

static inline uint32_t agent_table_count(const struct agent_table *t)
{
    return HASH_COUNT(t->rows);
}

#endif
