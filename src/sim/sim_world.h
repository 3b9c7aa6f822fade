/*
 * A simulated mail system: the production scheduler, between an owner that replaces the queue
 * process and sites that replace the world, in virtual time.
 *
 *     workload --> incoming --+                +--> scheduler --> attempt --> simulated site
 *                             |-- in turn ---->|                                  |
 *                  deferred --+                +<------- result, verdicts <-------+
 *                     ^                                     |
 *                     +---- not before the back-off <-------+--> sent, bounced, expired
 *
 * The functions that the queue process calls translate the configuration into limits, policies and
 * routes (tuning, policy_for, route_address), and core/retry computes the back-off. The same
 * options give the same run, bit for bit, on every machine. Time is virtual, each line of arrivals
 * and each destination has its own stream of random numbers, and nothing depends on hash order. So
 * two configurations under one seed get the same mail.
 *
 * Not simulated are the time that the machine itself takes (disk, CPU), reports to senders, and
 * actions of operators.
 *
 * Property tests set `hooks` and `audit`, then step or run. A test that fails prints its seed,
 * which repeats the run.
 *
 *     struct sim_options options = {.conf = conf, .workload = workload, .seed = seed,
 *                                   .audit = true, .hooks = {.arg = &mine, .settled = on_settled}};
 *     struct sim_world *w = sim_world_new(&options);
 *     while (sim_world_step(w)) {
 *         ... look at sim_world_sched(w) ...
 *     }
 *     ... sim_world_result(w) ...
 *     sim_world_free(w);
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "scheduler.h"
#include "sim_series.h"
#include "sim_tally.h"
#include "trace.h"
#include "workload.h"

struct sim_world;

/* Result of a pass for one recipient. */
enum sim_disposition {
    SIM_DISPOSITION_SENT,
    SIM_DISPOSITION_DEFERRED,
    SIM_DISPOSITION_BOUNCED,
    SIM_DISPOSITION_EXPIRED
};

/* Functions called while the world runs; each may be NULL. They must not change anything. */
struct sim_hooks {
    void *arg; /* first argument of each function */

    /* Called when a message arrived: its number (from 1, never reused) and recipients (n is
     * 1..count). */
    void (*arrived)(void *arg, struct mono now, uint64_t message, uint32_t rcpt_count);

    /* Called for each decision of the scheduler. */
    void (*decided)(void *arg, struct mono now, uint64_t message,
                    const struct sched_action *action);

    /* Called when a recipient was settled: for good, or (deferred) until the message is due
     * again. */
    void (*settled)(void *arg, struct mono now, uint64_t message, uint32_t rcpt_n,
                    const char *destination, enum sim_disposition disposition);
};

struct sim_options {
    const struct conf *conf;         /* borrowed by the world, like the others */
    const struct workload *workload; /* describes the sites and their mail */
    const struct trace *trace;       /* NULL, or recorded mail */
    uint64_t seed;
    bool audit; /* whether to call sched_audit after each moment: slow */
    struct sim_hooks hooks;
};

/* Figures of a run. Borrowed from the world. */
struct sim_result {
    struct mono ended;
    bool drained; /* whether no mail was left */
    struct sim_tally total;
    const struct sim_tally *classes; /* in the workload's order, then the trace's */
    size_t class_count;
    const struct sim_tally *const *dests; /* most recipients first, then by name */
    size_t dest_count;
    uint64_t decisions;   /* of the scheduler */
    uint32_t queue_peak;  /* maximum of waiting messages, in all states together */
    uint32_t active_peak; /* maximum of messages in the scheduler's memory */
    const struct sim_series *series;
};

struct sim_world *sim_world_new(const struct sim_options *options);
void sim_world_free(struct sim_world *w);

/* Executes everything that happens at the present moment, then advances time to the next one.
 * Returns false if the run is over: its duration has passed, or nothing is left to happen. */
bool sim_world_step(struct sim_world *w);

/* Steps until the run is over. */
void sim_world_run(struct sim_world *w);

const struct sched *sim_world_sched(const struct sim_world *w);

/* Returns the figures up to now; allowed at any time. Lasts until the next call on `w`. */
const struct sim_result *sim_world_result(struct sim_world *w);

#endif
