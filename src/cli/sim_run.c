/* sluice sim run: a workload under one configuration, or under two. */
#include <stdio.h>
#include <sysexits.h>

#include "commands.h"
#include "sim_report.h"
#include "sim_world.h"
#include "words.h"
#include "workload.h"

#define TEXT_MAX (64u << 20)

/* What the command line names, read. */
struct inputs {
    struct conf *conf, *other; /* `other`: NULL without --diff */
    struct workload *workload;
    struct trace *trace; /* NULL without --trace */
};

static void inputs_free(struct inputs *in)
{
    trace_free(in->trace);
    workload_free(in->workload);
    conf_free(in->other);
    conf_free(in->conf);
}

/* The mail: EX_OK, or what is wrong has been told. */
static int load_mail(const struct args *a, struct inputs *in)
{
    struct buf errors;
    bool ok;

    buf_init(&errors, TEXT_MAX);
    in->workload = a->workload_path != NULL ? workload_load(a->workload_path, &errors)
                                            : workload_parse(SLICE(""), "empty", &errors);
    ok = in->workload != NULL;
    if (ok && a->trace_path != NULL) {
        in->trace = trace_load(a->trace_path, &errors);
        ok = in->trace != NULL;
    }
    if (!ok) {
        errors.failed = false; /* as much as fits */
        put_error(buf_cstr(&errors));
    }
    buf_fini(&errors);
    return ok ? EX_OK : EX_DATAERR;
}

static int load_inputs(const struct args *a, struct inputs *in)
{
    struct args other = *a;

    *in = (struct inputs){.conf = command_conf(a)};
    if (in->conf == NULL) {
        return EX_CONFIG;
    }
    other.conf_path = a->diff_path;
    if (a->diff_path != NULL && (in->other = command_conf(&other)) == NULL) {
        return EX_CONFIG;
    }
    return load_mail(a, in);
}

static struct sim_world *run_under(const struct conf *conf, const struct args *a,
                                   const struct inputs *in)
{
    struct sim_world *world = sim_world_new(&(struct sim_options){.conf = conf,
                                                                  .workload = in->workload,
                                                                  .trace = in->trace,
                                                                  .seed = (uint64_t)a->seed,
                                                                  .audit = a->audit});

    sim_world_run(world);
    return world;
}

static void print_one(const struct sim_result *r, bool json,
                      const struct sim_report_options *options)
{
    struct buf text;

    if (json) {
        json_t *object = sim_report_json(r, options);

        put_json(stdout, object);
        json_decref(object);
        return;
    }
    buf_init(&text, TEXT_MAX);
    sim_report_print(&text, r, options);
    text.failed = false; /* as much as fits */
    put_lines(stdout, buf_cstr(&text));
    buf_fini(&text);
}

static void print_two(const struct sim_result *before, const struct sim_result *after, bool json,
                      const struct sim_report_options *options)
{
    struct buf text;

    if (json) {
        json_t *object = json_pack("{s:o, s:o}", "before", sim_report_json(before, options),
                                   "after", sim_report_json(after, options));

        put_json(stdout, object);
        json_decref(object);
        return;
    }
    buf_init(&text, TEXT_MAX);
    sim_report_print_diff(&text, before, after, options);
    text.failed = false; /* as much as fits */
    put_lines(stdout, buf_cstr(&text));
    buf_fini(&text);
}

static int run_and_print(const struct args *a, const struct inputs *in)
{
    const struct sim_report_options options = {
        .seed = (uint64_t)a->seed, .rows = (size_t)a->rows, .trace = in->trace};
    struct sim_world *world = run_under(in->conf, a, in);

    if (in->other != NULL) {
        struct sim_world *other = run_under(in->other, a, in);

        print_two(sim_world_result(world), sim_world_result(other), a->json, &options);
        sim_world_free(other);
    } else {
        print_one(sim_world_result(world), a->json, &options);
    }
    sim_world_free(world);
    return EX_OK;
}

int run_sim_run(const struct command *c, const struct args *a)
{
    struct inputs in;
    int status;

    if (a->workload_path == NULL && a->trace_path == NULL) {
        return command_misused(c, "--workload FILE or --trace FILE is expected");
    }
    if (a->rows > SIM_REPORT_ROWS_MAX) {
        return command_misused(c, "--rows is at most 100000");
    }
    status = load_inputs(a, &in);
    if (status == EX_OK) {
        status = run_and_print(a, &in);
    }
    inputs_free(&in);
    return status;
}
