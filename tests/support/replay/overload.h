/*
 * One client, one server, more concurrency than the server takes: the experiment of Postfix's
 * SCHEDULER_README, "Results for delivery to concurrency-limited servers".
 *
 * One message with many recipients for one destination is delivered by the scheduler that runs in
 * production to a simulated server (sim_server.h), in virtual time. Only first attempts count: a
 * recipient whose delivery fails is deferred and not tried again.
 */
#ifndef REPLAY_OVERLOAD_H
#define REPLAY_OVERLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler.h"
#include "sim_server.h"

struct overload {
    struct sched_limits limits;
    struct sched_transport_policy policy;
    struct sim_server_model server;
    uint32_t recipients;
    bool cached; /* connections are kept as the scheduler's hints say */
    int64_t connect_timeout_us, greeting_timeout_us;
};

struct overload_result {
    uint32_t sent, deferred;              /* recipients; together all of them */
    uint32_t failed[SIM_SERVER_ENDS];     /* of those deferred, by the reason */
    double window_mean, window_deviation; /* over the feedback events, after each */
};

/* Run it. Same seed, same result. */
struct overload_result overload_run(const struct overload *overload, uint64_t seed);

#endif
