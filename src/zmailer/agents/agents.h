/*
 * The role agents: runs the transport agents of ZMailer's, feeds them jobs of the queue process and
 * returns what they say.
 *
 *   queue --WIRE_DELIVER--> job --waits in its thread (agent_pool.h)--> agent --answers--> result
 *
 * Private to agents.c, which has the channel to the queue and the jobs, and agent.c, which has the
 * agents: a process, its socket and its end of the protocol (ta.h).
 *
 * An agent that hangs, floods, lies or dies harms its own jobs only: what it sends is read in
 * bounded pieces, checked against the jobs it has (agent_job.h), and logged at a bounded rate; what
 * it has not answered when it dies goes back as a crash.
 */
#ifndef ZMAILER_AGENTS_H
#define ZMAILER_AGENTS_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent_job.h"
#include "agent_pool.h"
#include "channel.h"
#include "conf.h"
#include "policy.h"
#include "role.h"
#include "ta.h"
#include "worker.h"

/* An agent that owes nothing but its first or its idle #hungry, and is silent for so long, is
 * stuck. */
#define AGENT_STUCK_US (600 * US_PER_S)
/* One that was told to end has so long; then SIGTERM, and after as long again SIGKILL. */
#define AGENT_END_US (30 * US_PER_S)

struct agents;

/* How its end goes on. */
enum agent_end { AGENT_LIVES, AGENT_TOLD, AGENT_TERMINATED, AGENT_KILLED };

struct agent_process {
    struct agent_place place;
    struct agents *all;
    pid_t pid;
    int fd; /* -1: closed */
    struct event *readable, *writable;
    char *program;     /* owned: path */
    struct slice name; /* its last part */
    struct ta ta;
    struct buf in;
    struct agent_job_list unanswered; /* in the order in which it was given them */
    struct mono heard; /* when it last said something, or was given something to do */
    struct wall hungry, fed;
    enum agent_end end;
    struct mono end_at;   /* when the next step of its end is due */
    bool input_shut;      /* our writing end is shut down */
    bool changed;         /* the queue has not heard of its state; in all->changed */
    struct mono log_from; /* the minute in which `log_lines` were written */
    uint64_t log_lines;
    char *last_words; /* owned: its last comment before it came to life, or NULL */
    TAILQ_ENTRY(agent_process) in_all, in_changed;
    UT_hash_handle hh;
};

struct agents {
    struct role *role;
    struct worker worker;
    struct agent_pool *pool;
    int64_t places;                 /* more agents than these there can't be */
    struct assignments assignments; /* of the jobs */
    TAILQ_HEAD(, agent_process) all, changed;
    struct agent_process *by_pid;
    struct event *child_event, *timer;
    struct mono sweep_at;
    bool short_of_processes; /* logged */
};

/* A variable of the ZENV file, for commands; `arg` is the configuration. */
const char *agent_variable(void *arg, struct slice name);

/* Start one for the thread. False: not now, or not at all; the pool knows. */
bool agent_start(struct agents *all, struct pool_thread *t);

/* Give it a job: it can take one. */
void agent_give(struct agent_process *a, struct agent_job *job);

/* Tell it to end, when it has answered what it has. */
void agent_tell_end(struct agent_process *a);
/* The same by an empty line more, and SIGQUIT. */
void agent_quit(struct agent_process *a);

/* Nothing more is had to do with it: it ends by itself. Frees it, and its jobs. */
void agent_leave(struct agent_process *a);

/* Its process has ended: read its last words, return its jobs, free it. */
void agent_ended(struct agent_process *a, int wait_status);

/* Is it to be ended, or its end to be hastened? */
void agent_look(struct agent_process *a, struct mono now);

void agent_kill(const struct agent_process *a);

/* Tell the queue how it is. */
void agent_report(struct agent_process *a, bool ended);

/* All waiting jobs of a thread go back: as no agent can be started for them, for this reason; or,
 * when that is empty, untried, as the thread was stopped. */
void agents_return_waiting(struct agents *all, struct pool_thread *t, struct slice reason);

#endif
