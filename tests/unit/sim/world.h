/*
 * For tests that run a world: from two texts to its figures.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "conf.h"
#include "sim_world.h"
#include "workload.h"

struct test_world {
    struct conf *conf;
    struct workload *workload;
    struct sim_world *world;
    const struct sim_result *result; /* after test_world_run */
};

/* Fails the test when a text has an error. `hooks` and `trace` may be NULL. */
void test_world_open(struct test_world *t, const char *conf_text, const char *workload_text,
                     uint64_t seed, const struct sim_hooks *hooks, const struct trace *trace);

/* Run it to its end, with the scheduler's audit at each moment. */
void test_world_run(struct test_world *t);

void test_world_close(struct test_world *t);

/* All three but for the last. */
void test_world(struct test_world *t, const char *conf_text, const char *workload_text,
                uint64_t seed);

#endif
