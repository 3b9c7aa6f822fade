/*
 * Kinds of agents: for each value of the parameter `agent`, data and functions that the queue
 * process needs. Sluice's own kinds are in agent_kind.c. A program with another kind registers it
 * before its roles begin. Mail for a kind that is not registered is deferred.
 */
#ifndef QUEUE_AGENT_KIND_H
#define QUEUE_AGENT_KIND_H

#include <stdbool.h>

#include <jansson.h>

#include "params.h"
#include "scheduler.h"
#include "slice.h"
#include "wire.h"

struct delivery;
struct queue;

#define AGENT_KINDS (CONF_AGENT_MILTER + 1)

struct agent_kind {
    const char *program; /* tag of its log lines; NULL: the transport's name */
    enum wire_role
        role;        /* role of the delivering process; ROLE_COUNT: the queue process delivers */
    bool is_final;   /* final destination: the queue process reports success to senders who asked
                        for it */
    bool by_path;    /* gets the path of the message's file instead of the content, and marks its
                        results in that file */
    bool is_patient; /* while its process is down, mail waits for the retry times of its
                        destinations */
    bool writes_log; /* its agents log the results of recipients, so the queue process does not */

    /* Returns the state for the functions below. Called after the spool was opened, before
     * confinement; `end` frees the state before the spool is closed. With `begin` there must be an
     * `end`; each other function may be NULL. */
    void *(*begin)(struct queue *q);
    void (*end)(void *state);
    void (*status)(const void *state, json_t *answer); /* adds members to the answer of "status" */

    /* Takes what the process reports about its agents (WIRE_AGENT). Returns false if the frame
     * can't be decoded. */
    bool (*told)(void *state, struct slice body);
    void (*lost)(void *state); /* called when the process has ended, with all
                                                     its agents */

    /* For a kind without a process, whose agents the queue process calls itself. */
    /* Begins a delivery, which ends with a function of queue_result.h, now or later. */
    void (*deliver)(void *state, struct delivery *d);
    /* Records why recipients are deferred without an attempt (SCHED_DEFER). */
    void (*deferred)(void *state, const struct sched_action *action);
    /* Called in each turn, before decisions. */
    void (*turn)(void *state);
};

/* Registers a kind, which must stay valid until the process ends. */
void agent_kind_register(enum conf_agent agent, const struct agent_kind *kind);

const struct agent_kind *agent_kind(enum conf_agent agent);

#endif
