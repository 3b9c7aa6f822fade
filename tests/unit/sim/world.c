#include "world.h"

#include <stdio.h>

#include "unit.h"

#define ERRORS_MAX 65536

static struct conf *load_conf(const char *text)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf =
        conf_load_text(slice_string(text), "conf", "/nonexistent", &world, &problems);

    for (size_t i = 0; i < problems.count; i++) {
        fprintf(stderr, "conf:%u: %s\n", problems.at[i].line, problems.at[i].text);
    }
    conf_problems_fini(&problems);
    assert_non_null(conf);
    return conf;
}

static struct workload *load_workload(const char *text)
{
    struct workload *w;
    struct buf errors;

    buf_init(&errors, ERRORS_MAX);
    w = workload_parse(slice_string(text), "workload", &errors);
    fputs(buf_cstr(&errors), stderr);
    buf_fini(&errors);
    assert_non_null(w);
    return w;
}

void test_world_open(struct test_world *t, const char *conf_text, const char *workload_text,
                     uint64_t seed, const struct sim_hooks *hooks, const struct trace *trace)
{
    *t =
        (struct test_world){.conf = load_conf(conf_text), .workload = load_workload(workload_text)};
    t->world = sim_world_new(&(struct sim_options){
        .conf = t->conf,
        .workload = t->workload,
        .trace = trace,
        .seed = seed,
        .audit = true,
        .hooks = hooks != NULL ? *hooks : (struct sim_hooks){.arg = NULL},
    });
}

void test_world_run(struct test_world *t)
{
    sim_world_run(t->world);
    t->result = sim_world_result(t->world);
}

void test_world_close(struct test_world *t)
{
    sim_world_free(t->world);
    workload_free(t->workload);
    conf_free(t->conf);
}

void test_world(struct test_world *t, const char *conf_text, const char *workload_text,
                uint64_t seed)
{
    test_world_open(t, conf_text, workload_text, seed, NULL, NULL);
    test_world_run(t);
}
