/*
 * The role agents: runs ZMailer's transport agents, feeds them jobs of the queue process and
 * returns their results.
 *
 *   queue --WIRE_DELIVER--> job --waits in its thread (agent_pool.h)--> agent --answers--> result
 *
 * Private to agents.c, which has the channel to the queue and the jobs, and agent.c, which has the
 * agents: a process, its socket and its end of the protocol (ta.h).
 *
 * An agent that hangs, floods, sends false results or dies affects only its own jobs. Its output is
 * read in bounded pieces, checked against its jobs (agent_job.h), and logged at a bounded rate.
 * Jobs that are unanswered at its death are returned as crashed.
 */
#ifndef ZMAILER_AGENTS_H
#define ZMAILER_AGENTS_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent_job.h"
#include "agent_pool.h"
#include "agent_stops.h"
#include "channel.h"
#include "conf.h"
#include "policy.h"
#include "role.h"
#include "ta.h"
#include "worker.h"

/* Longest silence of an agent that owes no more than a #hungry (its first, or after #idle); after
 * that it is stuck. */
#define AGENT_STUCK_US (600 * US_PER_S)
/* Time for an agent to end after the request; then it gets SIGTERM, and after the same time
 * SIGKILL. */
#define AGENT_END_US (30 * US_PER_S)

struct agents;

/* Steps of an agent's end. */
enum agent_end { AGENT_LIVES, AGENT_TOLD, AGENT_TERMINATED, AGENT_KILLED };

struct agent_process {
    struct agent_place place;
    struct agents *all;
    pid_t pid;
    int fd; /* descriptor of its socket; -1: closed */
    struct event *readable, *writable;
    char *program;     /* owned: path */
    struct slice name; /* last component of `program` */
    struct ta ta;
    struct buf in;
    struct agent_job_list unanswered; /* in the order in which they were given */
    struct mono heard;                /* time of its last output or last job */
    struct wall hungry, fed;
    enum agent_end end;
    struct mono end_at;   /* time of the next step of its end */
    bool input_shut;      /* our side of the socket is shut down for writing */
    bool changed;         /* its state was not reported to the queue; in all->changed */
    struct mono log_from; /* begin of the minute in which `log_lines` were written */
    uint64_t log_lines;
    char *last_words; /* owned: its last comment before it asked for work, or NULL */
    TAILQ_ENTRY(agent_process) in_all, in_changed;
    UT_hash_handle hh;
};

struct agents {
    struct role *role;
    struct worker worker;
    struct agent_pool *pool;
    int64_t places;                 /* largest possible number of agents */
    struct assignments assignments; /* assignments of the jobs */
    struct agent_stops stops;       /* those that the queue process has not processed */
    TAILQ_HEAD(, agent_process) all, changed;
    struct agent_process *by_pid;
    struct event *child_event, *timer;
    struct mono sweep_at;
    bool short_of_processes; /* the lack of processes was logged */
};

/* Returns a variable of the ZENV file, for commands; `arg` is the configuration. */
const char *agent_variable(void *arg, struct slice name);

/* Starts an agent for the thread. Returns false if that is not possible, now or at all; the pool
 * has noted it. */
bool agent_start(struct agents *all, struct pool_thread *t);

/* Gives a job to an agent that can take one. */
void agent_give(struct agent_process *a, struct agent_job *job);

/* Requests that the agent ends after its unanswered jobs. */
void agent_tell_end(struct agent_process *a);
/* Requests that the agent ends, with another empty line and SIGQUIT. */
void agent_quit(struct agent_process *a);

/* Frees the agent and its jobs; its process ends by itself. */
void agent_leave(struct agent_process *a);

/* Handles the end of the agent's process: reads the rest of its output, returns its jobs, frees
 * it. */
void agent_ended(struct agent_process *a, int wait_status);

/* Ends the agent if it is stuck, or takes the next step of its end. */
void agent_look(struct agent_process *a, struct mono now);

void agent_kill(const struct agent_process *a);

/* Reports the agent's state to the queue. */
void agent_report(struct agent_process *a, bool ended);

/* Returns a job with its results to the queue, as agent_job_finish does. If the job stops its
 * thread, deliveries that were sent before the queue has processed that are returned untried. */
void agents_finish(struct agents *all, struct agent_job *job, uint32_t pid, struct slice reason);

/* Returns all waiting jobs of a thread to the queue. `reason` is the reason for which no agent can
 * be started, and the jobs have failed. If it is empty, the thread was stopped, and the jobs are
 * untried. */
void agents_return_waiting(struct agents *all, struct pool_thread *t, struct slice reason);

#endif
