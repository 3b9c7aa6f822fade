/*
 * Kinds of agents: what the queue process has to know of who delivers for a transport (parameter
 * `agent`). The kinds of Sluice itself are in agent_kind.c. A program that has another one
 * registers it before its roles begin; mail for one that is not registered is deferred.
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
    const char *program; /* the tag of its log lines; NULL: its transport's name is */
    enum wire_role
        role;        /* of the process that delivers; ROLE_COUNT: the queue process needs none */
    bool is_final;   /* the last stop: it is for us to report success */
    bool by_path;    /* it gets the path of the message's file in place of the content, and marks
                            its results there */
    bool is_patient; /* without its process the mail waits for its destinations' own times */
    bool writes_log; /* its agents log what becomes of recipients: the queue process does not */

    /* The state of the functions that follow: made when the spool is open, before confinement, and
     * freed before the spool is closed. With `begin` goes `end`; each other may be NULL. */
    void *(*begin)(struct queue *q);
    void (*end)(void *state);
    void (*status)(const void *state, json_t *answer); /* add members to the answer of "status" */

    /* What its process tells of its agents (WIRE_AGENT), for those who ask. */
    bool (*told)(void *state, struct slice body); /* false: it does not decode */
    void (*lost)(void *state);                    /* the process has ended, with all its agents */

    /* Of a kind without a process whose agents the queue process talks to by itself. */
    /* The delivery is to begin; it ends with a function of queue_result.h, now or later. */
    void (*deliver)(void *state, struct delivery *d);
    /* These recipients are deferred without an attempt (SCHED_DEFER): record why. */
    void (*deferred)(void *state, const struct sched_action *action);
    /* In each turn, before decisions. */
    void (*turn)(void *state);
};

/* Make a kind known, which is borrowed for good. */
void agent_kind_register(enum conf_agent agent, const struct agent_kind *kind);

const struct agent_kind *agent_kind(enum conf_agent agent);

#endif
