/*
 * Which transport agent works for whom. Without I/O: the owner starts and ends processes and moves
 * lines, this module says which.
 *
 *   ring     the agents that may stand in for each other: one clause, one channel, and one host
 * when the command names it thread   the jobs for one host, first come first served, and the agents
 * that work on them agent    in one ring for life; works for one thread at a time, or is idle
 *
 *   job comes --> thread --idle agent of the ring, best one that knows the host--> fed
 *                   |   --fewer agents than maxthr, and than waiting jobs--> another one is started
 *                   +-----agents that are there------------------------------> fed when they ask
 *
 * Limits count processes, idle ones and those that are about to end as well: maxta all, maxchannel
 * those of the channel, maxring those of the ring, each ring comparing with its own numbers. An
 * idle agent is ended, least recently used first, when its place is needed elsewhere; a busy one
 * leaves its thread after CREW_RUN_MAX jobs when somebody else waits for the place. So neither a
 * busy ring nor a busy thread keeps others waiting forever.
 *
 * Jobs, agents and their memory are the owner's; they embed the structs of this module.
 */
#ifndef DAEMON_CREW_H
#define DAEMON_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "slice.h"
#include "times.h"

/* Jobs that an agent does for one thread while others wait for an agent. */
#define CREW_RUN_MAX 100
/* After failed starts of a ring the next is tried so much later, doubled each time. */
#define CREW_HOLD_US     US_PER_S
#define CREW_HOLD_MAX_US (300 * US_PER_S)
/* How often the owner calls crew_sweep. */
#define CREW_SWEEP_US (10 * US_PER_S)

/* What a clause says about its agents, for one host. Numbers: 0 and less is no limit, but maxthr,
 * which is 1 then. Slices are copied. */
struct crew_recipe {
    struct slice channel, host;
    uint32_t clause;    /* number of the clause */
    struct slice start; /* all that makes one agent different from another: command, user, ... */
    bool host_bound;    /* an agent serves the host that it was started for, and no other */
    int64_t maxta, maxchannel, maxring, maxthr;
    bool wakeup_restart_only; /* new jobs do not add agents to a running thread */
    bool queue_only;          /* an agent that is free looks for no other thread */
    int64_t idle_max_us;
};

struct crew_thread;
struct crew_ring;

struct crew_job {
    struct crew_thread *thread; /* while it waits; else NULL */
    TAILQ_ENTRY(crew_job) next;
};

enum crew_agent_state { CREW_BUSY, CREW_IDLE, CREW_ENDING };

struct crew_agent {
    struct crew_ring *ring;
    struct crew_thread *thread; /* NULL: for none now */
    enum crew_agent_state state;
    char *host;        /* owned: of the thread that it served last */
    bool proven;       /* it has come to life */
    bool stops;        /* crew_stop */
    uint32_t run;      /* jobs for this thread */
    struct mono since; /* CREW_IDLE: when that began */
    TAILQ_ENTRY(crew_agent) in_ring, in_idle;
};

struct crew;

struct crew *crew_new(void);
/* Nothing may be in it any more. NULL is fine. */
void crew_free(struct crew *c);

/* At most so many starts in a second. Frozen: none at all. */
void crew_configure(struct crew *c, uint32_t starts_per_second, bool frozen);

/* A job waits. Its thread and ring are found or made; the recipe's numbers hold from now on. */
void crew_add(struct crew *c, const struct crew_recipe *r, struct crew_job *job);
/* It does not wait any more. */
void crew_remove(struct crew *c, struct crew_job *job);

/* The next waiting job of a thread, taken out, or NULL. */
struct crew_job *crew_take(struct crew *c, struct crew_thread *t);

enum crew_action_type {
    CREW_NOTHING, /* all that can be done has been done */
    CREW_GIVE,    /* `agent` is taken out of its rest: give it `job` */
    CREW_START,   /* start an agent for `thread`: crew_started or crew_not_started follows */
    CREW_END,     /* tell `agent`, which is idle, to end */
    CREW_REFUSE,  /* starts fail: take the waiting jobs of `thread` and say so */
};
struct crew_action {
    enum crew_action_type type;
    struct crew_agent *agent;
    struct crew_job *job;
    struct crew_thread *thread;
};
void crew_next(struct crew *c, struct mono now, struct crew_action *ret_action);

/* After crew_next had nothing: when it may have though nothing has happened; MONO_NEVER. */
struct mono crew_wake_at(const struct crew *c, struct mono now);

/* After CREW_START: it runs. `agent` is a zeroed struct of the owner's. */
void crew_started(struct crew *c, struct crew_thread *t, struct crew_agent *agent);
/* The system has no process to spare: nothing is started for a while. */
void crew_not_started(struct crew *c, struct mono now);
/* What the clause says can't be started: its ring is held for a while. True when it was not failing
 * before. */
bool crew_start_failed(struct crew_thread *t, struct mono now);
/* Why the starts of a ring fail, for its jobs' reason; copied. */
void crew_explain(struct crew_ring *r, struct slice why);

/* The agent has come to life: starts of this ring work. True when they did not before. */
bool crew_proven(struct crew_agent *a);

/* The agent can take a job. NULL: none now. `asked` is the number of its jobs without an answer: a
 * thread with several agents gives them one at a time, so that none has nothing to do. */
struct crew_job *crew_feed(struct crew *c, struct crew_agent *a, uint32_t asked);

/* The agent has said that nothing more of its thread goes now: no agent of the thread is given
 * another job, and none is started for it, until crew_go_on or until this agent has left the
 * thread. To be called once or more. */
void crew_stop(struct crew *c, struct crew_agent *a);
void crew_go_on(struct crew *c, struct crew_agent *a);

/* The agent is done with its thread and leaves it. CREW_GIVE: the first job of another, its thread
 * from now on. CREW_END: others wait for its place. CREW_NOTHING: it may rest. */
void crew_leave(struct crew *c, struct crew_agent *a, struct crew_action *ret_action);

/* It rests: the next job of its ring may be its. */
void crew_rest(struct crew *c, struct crew_agent *a, struct mono now);

/* It was told to end, and gets no more jobs. */
void crew_ending(struct crew *c, struct crew_agent *a);

/* Its process is gone. Its thread, when it had one, is *ret_thread as long as that has waiting
 * jobs; else NULL. True when the ring's starts begin to fail with this one. */
bool crew_ended(struct crew *c, struct crew_agent *a, struct mono now,
                struct crew_thread **ret_thread);

/* An idle agent that has rested for too long, or of a ring that the configuration has no more; call
 * until NULL, and crew_ending for each. */
struct crew_agent *crew_sweep(struct crew *c, struct mono now);

/* The configuration has changed: `look` gives the recipe of a host's thread as it is now. Waiting
 * jobs go to the rings they now belong to; agents whose recipe is the same stay in use. */
typedef void crew_look(void *arg, struct slice channel, struct slice host,
                       struct crew_recipe *ret_recipe);
void crew_reload(struct crew *c, crew_look *look, void *arg);

struct crew_ring *crew_thread_ring(struct crew_thread *t);
struct slice crew_trouble(const struct crew_ring *r);
struct slice crew_thread_channel(const struct crew_thread *t);
struct slice crew_thread_host(const struct crew_thread *t);
struct slice crew_ring_channel(const struct crew_ring *r);
uint32_t crew_ring_clause(const struct crew_ring *r);
size_t crew_thread_waiting(const struct crew_thread *t);
size_t crew_count(const struct crew *c);

/* Abort unless all counts and lists agree. For tests. */
void crew_audit(const struct crew *c);

#endif
