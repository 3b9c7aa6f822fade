/*
 * A simulated mail system: the scheduler that runs in production, between an owner that does what
 * the queue process does and sites that do what the world does, in virtual time.
 *
 *     workload --> incoming --+                +--> scheduler --> attempt --> simulated site
 *                             |-- in turn ---->|                                  |
 *                  deferred --+                +<------- result, verdicts <-------+
 *                     ^                                     |
 *                     +---- not before the back-off <-------+--> sent, bounced, expired
 *
 * Configuration becomes limits, policies and routes by the very functions that the queue process
 * calls (tuning, policy_for, route_address), and back-off by core/retry. Same options, same run,
 * bit for bit, on every machine: time is virtual, random numbers come in streams of their own for
 * each line of arrivals and each destination, and nothing depends on hash order. So two
 * configurations under one seed meet the same mail.
 *
 * What it leaves out: the time that the machine itself takes (disk, CPU), reports to senders, and
 * whatever an operator does.
 *
 * For property tests: give `hooks` and `audit`, then step or run; a test that fails prints its
 * seed, which replays the run.
 *
 *     struct sim_options options = {.conf = conf, .workload = workload, .seed = seed,
 *                                   .audit = true, .hooks = {.arg = &mine, .settled = on_settled}};
 *     struct sim_world *w = sim_world_new(&options);
 *     while (sim_world_step(w)) {
 *         ... look at sim_world_sched(w), sim_world_now(w) ...
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

/* What becomes of one recipient. */
enum sim_disposition {
    SIM_DISPOSITION_SENT,
    SIM_DISPOSITION_DEFERRED,
    SIM_DISPOSITION_BOUNCED,
    SIM_DISPOSITION_EXPIRED
};

/* Called while the world runs; each may be NULL. They look and do not touch. */
struct sim_hooks {
    void *arg; /* passed back */

    /* A message arrived: its number (from 1, never reused) and recipients (n is 1..count). */
    void (*arrived)(void *arg, struct mono now, uint64_t message, uint32_t rcpt_count);

    /* The scheduler decided this. */
    void (*decided)(void *arg, struct mono now, uint64_t message,
                    const struct sched_action *action);

    /* A recipient was settled: for good, or (deferred) until the message is due again. */
    void (*settled)(void *arg, struct mono now, uint64_t message, uint32_t rcpt_n,
                    const char *destination, enum sim_disposition disposition);
};

struct sim_options {
    const struct conf *conf;         /* borrowed by the world, like the others */
    const struct workload *workload; /* describes sites, brings mail */
    const struct trace *trace;       /* NULL, or mail that came once */
    uint64_t seed;
    bool audit; /* sched_audit after each moment: slow */
    struct sim_hooks hooks;
};

/* Figures of a run. Borrowed from the world. */
struct sim_result {
    struct mono ended;
    bool drained; /* nothing was left */
    struct sim_tally total;
    const struct sim_tally *classes; /* in the workload's order, then the trace's */
    size_t class_count;
    const struct sim_tally *const *dests; /* most recipients first, then by name */
    size_t dest_count;
    uint64_t decisions;   /* of the scheduler */
    uint32_t queue_peak;  /* messages that waited, in all states together */
    uint32_t active_peak; /* of them, in the scheduler's memory */
    const struct sim_series *series;
};

struct sim_world *sim_world_new(const struct sim_options *options);
void sim_world_free(struct sim_world *w);

/* Everything that happens at the present moment; then time moves on to the next one. False when
 * the run is over: its duration has passed, or nothing is left to happen. */
bool sim_world_step(struct sim_world *w);

/* Step until it is over. */
void sim_world_run(struct sim_world *w);

struct mono sim_world_now(const struct sim_world *w);
const struct sched *sim_world_sched(const struct sim_world *w);

/* May be asked at any time; figures are those up to now. Lasts until the next call on `w`. */
const struct sim_result *sim_world_result(struct sim_world *w);

#endif
