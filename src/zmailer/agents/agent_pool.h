/*
 * Assigns transport agents to jobs. Without I/O: the owner starts and ends processes and moves
 * lines; this module decides.
 *
 *   ring     agents that can replace each other: one clause, one channel, and one host if the
 *            command names the host
 *   thread   jobs for one host, first come first served, and the agents that work on them
 *   agent    in one ring for life; works for one thread at a time, or is idle
 *
 *   job comes --> thread --idle agent of the ring, best one that knows the host--> fed
 *                   |   --fewer agents than maxthr, and than waiting jobs--> another one is started
 *                   +-----agents that are there------------------------------> fed when they ask
 *
 * Limits count processes, including idle and ending ones: maxta those of all rings, maxchannel
 * those of the channel, maxring those of the ring. Each ring compares with its own limits. If a
 * place is needed elsewhere, the idle agent that was unused longest is ended. A busy agent leaves
 * its thread after POOL_RUN_MAX jobs if another thread waits for the place. So neither a busy ring
 * nor a busy thread blocks others for ever.
 *
 * The owner has the jobs, the agents and their memory; its structs embed those of this module.
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

/* Largest number of jobs that an agent does for one thread while others wait for an agent. */
#define POOL_RUN_MAX 100
/* Delay of the next start after a failed one of a ring, and its limit; each failure doubles the
 * delay. */
#define POOL_HOLD_US     US_PER_S
#define POOL_HOLD_MAX_US (300 * US_PER_S)
/* Period in which the owner calls agent_pool_sweep. */
#define POOL_SWEEP_US (10 * US_PER_S)

/* Values of a clause for its agents, for one host. A number of 0 or less is no limit, except for
 * maxthr, which is then 1. Slices are copied. */
struct agent_spec {
    struct slice channel, host;
    uint32_t clause;    /* number of the clause */
    struct slice start; /* all that distinguishes agents: command, user, ... */
    bool host_bound;    /* an agent serves only the host for which it was started */
    int64_t maxta, maxchannel, maxring, maxthr;
    bool wakeup_restart_only; /* new jobs do not add agents to a running thread */
    bool queue_only;          /* a free agent does not look for another thread */
    int64_t idle_max_us;
};

struct pool_thread;
struct pool_ring;

struct job_place {
    struct pool_thread *thread; /* thread while the job waits; otherwise NULL */
    TAILQ_ENTRY(job_place) next;
};

enum agent_place_state { AGENT_BUSY, AGENT_IDLE, AGENT_ENDING };

struct agent_place {
    struct pool_ring *ring;
    struct pool_thread *thread; /* NULL: none */
    enum agent_place_state state;
    char *host;        /* owned: host of its last thread */
    bool proven;       /* the agent has asked for work once */
    bool stops;        /* agent_pool_stop was called */
    uint32_t run;      /* number of jobs for this thread */
    struct mono since; /* AGENT_IDLE: begin of the idle time */
    TAILQ_ENTRY(agent_place) in_ring, in_idle;
};

struct agent_pool;

struct agent_pool *agent_pool_new(void);
/* Frees the pool, which must be empty. `p` may be NULL. */
void agent_pool_free(struct agent_pool *p);

/* Sets the largest number of starts per second. Frozen: no starts. */
void agent_pool_configure(struct agent_pool *p, uint32_t starts_per_second, bool frozen);

/* Adds a waiting job. Its thread and ring are found or made, and the spec's numbers apply from now
 * on. */
void agent_pool_add(struct agent_pool *p, const struct agent_spec *r, struct job_place *job);
/* Removes a waiting job. */
void agent_pool_remove(struct agent_pool *p, struct job_place *job);

/* Takes the next waiting job out of a thread. Returns it, or NULL. */
struct job_place *agent_pool_take(struct agent_pool *p, struct pool_thread *t);

enum pool_action_type {
    POOL_NOTHING, /* nothing is left to do */
    POOL_GIVE,    /* `agent` is idle no longer: give it `job` */
    POOL_START,   /* start an agent for `thread`, then call agent_pool_started or
                   * agent_pool_not_started */
    POOL_END,     /* request the end of the idle `agent` */
    POOL_REFUSE,  /* starts fail: take the waiting jobs of `thread` and report the failure */
};
struct pool_action {
    enum pool_action_type type;
    struct agent_place *agent;
    struct job_place *job;
    struct pool_thread *thread;
};
void agent_pool_next(struct agent_pool *p, struct mono now, struct pool_action *ret_action);

/* Returns the time of the next action without any event, after agent_pool_next returned nothing;
 * MONO_NEVER: none. */
struct mono agent_pool_wake_at(const struct agent_pool *p, struct mono now);

/* Adds the agent that POOL_START has started. `agent` is a zeroed struct of the owner. */
void agent_pool_started(struct agent_pool *p, struct pool_thread *t, struct agent_place *agent);
/* Stops all starts for a while, because the system has no process left. */
void agent_pool_not_started(struct agent_pool *p, struct mono now);
/* Holds the ring of an agent that can't be started for a while, because its clause is wrong.
 * Returns whether the ring was not failing before. */
bool agent_pool_start_failed(struct pool_thread *t, struct mono now);
/* Sets the reason for which the starts of a ring fail, to be reported for its jobs; copied. */
void agent_pool_explain(struct pool_ring *r, struct slice why);

/* Notes that the agent has asked for work, so starts of its ring succeed. Returns whether they
 * failed before. */
bool agent_pool_proven(struct agent_place *a);

/* Returns a job for an agent that can take one, or NULL. `asked` is the number of its unanswered
 * jobs: a thread with several agents hands out its jobs one at a time, so that each agent has
 * work. */
struct job_place *agent_pool_feed(struct agent_pool *p, struct agent_place *a, uint32_t asked);

/* Stops the thread of the agent, because the agent has reported that no more of its mail can be
 * sent now. No agent of the thread gets a job, and none is started, until agent_pool_go_on or until
 * this agent leaves the thread. May be called repeatedly. */
void agent_pool_stop(struct agent_pool *p, struct agent_place *a);
void agent_pool_go_on(struct agent_pool *p, struct agent_place *a);

/* Takes the agent out of its finished thread. POOL_GIVE: the first job of its next thread.
 * POOL_END: others wait for its place. POOL_NOTHING: it may become idle. */
void agent_pool_leave(struct agent_pool *p, struct agent_place *a, struct pool_action *ret_action);

/* Makes the agent idle: it may get the next job of its ring. */
void agent_pool_rest(struct agent_pool *p, struct agent_place *a, struct mono now);

/* Notes that the agent's end was requested; it gets no more jobs. */
void agent_pool_ending(struct agent_pool *p, struct agent_place *a);

/* Removes an agent whose process has ended. *ret_thread is its thread if that has waiting jobs,
 * otherwise NULL. Returns whether the starts of its ring begin to fail with this one. */
bool agent_pool_ended(struct agent_pool *p, struct agent_place *a, struct mono now,
                      struct pool_thread **ret_thread);

/* Returns an agent that was idle for too long, or whose ring is no longer configured. The owner
 * calls agent_pool_ending for each and repeats until NULL. */
struct agent_place *agent_pool_sweep(struct agent_pool *p, struct mono now);

/* Applies a new configuration. `look` returns the current spec for a host's thread. Waiting jobs
 * move to their new rings; agents with an unchanged spec remain. */
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

/* Aborts unless all counts and lists agree. For tests. */
void agent_pool_audit(const struct agent_pool *p);

#endif
