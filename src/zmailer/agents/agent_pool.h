/*
 * Which transport agent works for whom. Without I/O: the owner starts and ends processes and moves
 * lines, this module says which.
 *
 *   ring     the agents that may stand in for each other: one clause, one channel, and one host
 *            when the command names it
 *   thread   the jobs for one host, first come first served, and the agents that work on them
 *   agent    in one ring for life; works for one thread at a time, or is idle
 *
 *   job comes --> thread --idle agent of the ring, best one that knows the host--> fed
 *                   |   --fewer agents than maxthr, and than waiting jobs--> another one is started
 *                   +-----agents that are there------------------------------> fed when they ask
 *
 * Limits count processes, idle ones and those that are about to end as well: maxta all, maxchannel
 * those of the channel, maxring those of the ring, each ring comparing with its own numbers. An
 * idle agent is ended, least recently used first, when its place is needed elsewhere; a busy one
 * leaves its thread after POOL_RUN_MAX jobs when another thread waits for the place. So neither a
 * busy ring nor a busy thread keeps others waiting forever.
 *
 * Jobs, agents and their memory are the owner's; they embed the structs of this module.
 */
#ifndef ZMAILER_AGENT_POOL_H
#define ZMAILER_AGENT_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "slice.h"
#include "times.h"

/* Jobs that an agent does for one thread while others wait for an agent. */
#define POOL_RUN_MAX 100
/* After failed starts of a ring the next is tried so much later, doubled each time. */
#define POOL_HOLD_US     US_PER_S
#define POOL_HOLD_MAX_US (300 * US_PER_S)
/* How often the owner calls agent_pool_sweep. */
#define POOL_SWEEP_US (10 * US_PER_S)

/* What a clause says about its agents, for one host. Numbers: 0 and less is no limit, but maxthr,
 * which is 1 then. Slices are copied. */
struct agent_spec {
    struct slice channel, host;
    uint32_t clause;    /* number of the clause */
    struct slice start; /* all that makes one agent different from another: command, user, ... */
    bool host_bound;    /* an agent serves the host that it was started for, and no other */
    int64_t maxta, maxchannel, maxring, maxthr;
    bool wakeup_restart_only; /* new jobs do not add agents to a running thread */
    bool queue_only;          /* an agent that is free looks for no other thread */
    int64_t idle_max_us;
};

struct pool_thread;
struct pool_ring;

struct job_place {
    struct pool_thread *thread; /* while it waits; else NULL */
    TAILQ_ENTRY(job_place) next;
};

enum agent_place_state { AGENT_BUSY, AGENT_IDLE, AGENT_ENDING };

struct agent_place {
    struct pool_ring *ring;
    struct pool_thread *thread; /* NULL: for none now */
    enum agent_place_state state;
    char *host;        /* owned: of the thread that it served last */
    bool proven;       /* it has come to life */
    bool stops;        /* agent_pool_stop */
    uint32_t run;      /* jobs for this thread */
    struct mono since; /* AGENT_IDLE: when that began */
    TAILQ_ENTRY(agent_place) in_ring, in_idle;
};

struct agent_pool;

struct agent_pool *agent_pool_new(void);
/* Nothing may be in it any more. NULL is fine. */
void agent_pool_free(struct agent_pool *p);

/* At most so many starts in a second. Frozen: none at all. */
void agent_pool_configure(struct agent_pool *p, uint32_t starts_per_second, bool frozen);

/* A job waits. Its thread and ring are found or made; the spec's numbers hold from now on. */
void agent_pool_add(struct agent_pool *p, const struct agent_spec *r, struct job_place *job);
/* It does not wait any more. */
void agent_pool_remove(struct agent_pool *p, struct job_place *job);

/* The next waiting job of a thread, taken out, or NULL. */
struct job_place *agent_pool_take(struct agent_pool *p, struct pool_thread *t);

enum pool_action_type {
    POOL_NOTHING, /* all that can be done has been done */
    POOL_GIVE,    /* `agent` is taken out of its rest: give it `job` */
    POOL_START,   /* an agent for `thread`: agent_pool_started or agent_pool_not_started follows */
    POOL_END,     /* tell `agent`, which is idle, to end */
    POOL_REFUSE,  /* starts fail: take the waiting jobs of `thread` and say so */
};
struct pool_action {
    enum pool_action_type type;
    struct agent_place *agent;
    struct job_place *job;
    struct pool_thread *thread;
};
void agent_pool_next(struct agent_pool *p, struct mono now, struct pool_action *ret_action);

/* After agent_pool_next had nothing: when it may have though nothing has happened; MONO_NEVER. */
struct mono agent_pool_wake_at(const struct agent_pool *p, struct mono now);

/* After POOL_START: it runs. `agent` is a zeroed struct of the owner's. */
void agent_pool_started(struct agent_pool *p, struct pool_thread *t, struct agent_place *agent);
/* The system has no process to spare: nothing is started for a while. */
void agent_pool_not_started(struct agent_pool *p, struct mono now);
/* What the clause says can't be started: its ring is held for a while. True when it was not failing
 * before. */
bool agent_pool_start_failed(struct pool_thread *t, struct mono now);
/* Why the starts of a ring fail, for its jobs' reason; copied. */
void agent_pool_explain(struct pool_ring *r, struct slice why);

/* The agent has come to life: starts of this ring work. True when they did not before. */
bool agent_pool_proven(struct agent_place *a);

/* The agent can take a job. NULL: none now. `asked` is the number of its jobs without an answer: a
 * thread with several agents gives them one at a time, so that none has nothing to do. */
struct job_place *agent_pool_feed(struct agent_pool *p, struct agent_place *a, uint32_t asked);

/* The agent has said that nothing more of its thread goes now: no agent of the thread is given
 * another job, and none is started for it, until agent_pool_go_on or until this agent has left the
 * thread. To be called once or more. */
void agent_pool_stop(struct agent_pool *p, struct agent_place *a);
void agent_pool_go_on(struct agent_pool *p, struct agent_place *a);

/* The agent is done with its thread and leaves it. POOL_GIVE: the first job of another, its thread
 * from now on. POOL_END: others wait for its place. POOL_NOTHING: it may rest. */
void agent_pool_leave(struct agent_pool *p, struct agent_place *a, struct pool_action *ret_action);

/* It rests: the next job of its ring may be its. */
void agent_pool_rest(struct agent_pool *p, struct agent_place *a, struct mono now);

/* It was told to end, and gets no more jobs. */
void agent_pool_ending(struct agent_pool *p, struct agent_place *a);

/* Its process is gone. Its thread, when it had one, is *ret_thread as long as that has waiting
 * jobs; else NULL. True when the ring's starts begin to fail with this one. */
bool agent_pool_ended(struct agent_pool *p, struct agent_place *a, struct mono now,
                      struct pool_thread **ret_thread);

/* An idle agent that has rested for too long, or of a ring that the configuration has no more; call
 * until NULL, and agent_pool_ending for each. */
struct agent_place *agent_pool_sweep(struct agent_pool *p, struct mono now);

/* The configuration has changed: `look` gives the spec of a host's thread as it is now. Waiting
 * jobs go to the rings they now belong to; agents whose spec is the same stay in use. */
typedef void agent_pool_look(void *arg, struct slice channel, struct slice host,
                             struct agent_spec *ret_spec);
void agent_pool_reload(struct agent_pool *p, agent_pool_look *look, void *arg);

struct pool_ring *agent_pool_thread_ring(struct pool_thread *t);
struct slice agent_pool_trouble(const struct pool_ring *r);
struct slice agent_pool_thread_channel(const struct pool_thread *t);
struct slice agent_pool_thread_host(const struct pool_thread *t);
struct slice agent_pool_ring_channel(const struct pool_ring *r);
uint32_t agent_pool_ring_clause(const struct pool_ring *r);
size_t agent_pool_thread_waiting(const struct pool_thread *t);
size_t agent_pool_count(const struct agent_pool *p);

/* Abort unless all counts and lists agree. For tests. */
void agent_pool_audit(const struct agent_pool *p);

#endif
