/* sluice sim run: simulates a workload under one or two configurations. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "check.h"
#include "commands.h"
#include "sim_page.h"
#include "sim_picture.h"
#include "sim_report.h"
#include "sim_world.h"
#include "words.h"
#include "workload.h"

#define TEXT_MAX (64u << 20)

/* Loaded inputs of the command line. */
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

/* Loads the mail. Returns EX_OK, or an exit status after an error message. */
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
        errors.failed = false; /* print as much as fits */
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
    if (a->set != NULL && (in->other = command_conf_with(a, slice_string(a->set))) == NULL) {
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

/* Does default_class = auto divide the mail of the log into two classes? */
static bool auto_matters(const struct inputs *in)
{
    bool marked = false, other = false;

    for (size_t i = 0; in->trace != NULL && i < in->trace->message_count; i++) {
        marked = marked || in->trace->messages[i].marked;
        other = other || in->trace->messages[i].class == 0;
    }
    return in->conf->default_class == CONF_DEFAULT_CLASS_AUTO && marked && other;
}

/* Prints one result. `without` is the result under default_class = none, or NULL. */
static void print_one(const struct sim_result *r, const struct sim_result *without, bool json,
                      const struct sim_report_options *options)
{
    struct buf text;

    if (json) {
        json_t *object = sim_report_json(r, options);

        if (without != NULL) {
            CHECK(json_object_set_new(object, "without_classes",
                                      sim_report_json(without, options)) == 0);
        }
        put_json(stdout, object);
        json_decref(object);
        return;
    }
    buf_init(&text, TEXT_MAX);
    sim_report_print(&text, r, options);
    if (without != NULL) {
        sim_report_print_classes(&text, r, without, options);
    }
    text.failed = false; /* print as much as fits */
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
    text.failed = false; /* print as much as fits */
    put_lines(stdout, buf_cstr(&text));
    buf_fini(&text);
}

/* Writes the text to a file. Returns EX_OK, or an exit status after an error message. */
static int write_file(const char *path, struct buf *text)
{
    FILE *out = fopen(path, "we");
    bool ok = out != NULL && fwrite(buf_slice(text).ptr, 1, buf_len(text), out) == buf_len(text);
    int error = errno;

    if (out != NULL && fclose(out) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (text->failed) {
        fprintf(stderr, "sluice: %s: the picture is too large\n", path);
        return EX_SOFTWARE;
    }
    if (!ok) {
        fprintf(stderr, "sluice: %s: %s\n", path, strerror(error));
    }
    return ok ? EX_OK : EX_CANTCREAT;
}

static int draw(const struct sim_result *r, const struct args *a, const struct inputs *in,
                const struct sim_report_options *options)
{
    int status = EX_OK;
    struct buf text;

    buf_init(&text, SIM_PICTURE_MAX);
    if (a->svg_path != NULL) {
        sim_picture_svg(&text, r, in->workload, true);
        status = write_file(a->svg_path, &text);
    }
    if (a->html_path != NULL && status == EX_OK) {
        buf_clear(&text);
        sim_page_html(&text, r, in->workload, options);
        status = write_file(a->html_path, &text);
    }
    buf_fini(&text);
    return status;
}

static int run_and_print(const struct args *a, const struct inputs *in)
{
    int status = EX_OK;
    const struct sim_report_options options = {
        .seed = (uint64_t)a->seed, .rows = (size_t)a->rows, .trace = in->trace};
    struct sim_world *world = run_under(in->conf, a, in);

    if (in->other != NULL) {
        struct sim_world *other = run_under(in->other, a, in);

        print_two(sim_world_result(world), sim_world_result(other), a->json, &options);
        sim_world_free(other);
    } else {
        struct conf none = *in->conf; /* a shallow copy: in->conf owns its contents */
        struct sim_world *without = NULL;

        none.default_class = CONF_DEFAULT_CLASS_NONE;
        if (auto_matters(in)) {
            without = run_under(&none, a, in);
        }
        print_one(sim_world_result(world), without == NULL ? NULL : sim_world_result(without),
                  a->json, &options);
        sim_world_free(without);
        status = draw(sim_world_result(world), a, in, &options);
    }
    sim_world_free(world);
    return status;
}

int run_sim_run(const struct command *c, const struct args *a)
{
    struct inputs in;
    int status;

    if (a->workload_path == NULL && a->trace_path == NULL) {
        return command_misused(c, "--workload FILE or --trace FILE is expected");
    }
    if (a->diff_path != NULL && a->set != NULL) {
        return command_misused(c, "--diff or --set is expected, not both");
    }
    if ((a->diff_path != NULL || a->set != NULL) && (a->svg_path != NULL || a->html_path != NULL)) {
        return command_misused(c, "--svg and --html show one run, --diff and --set compare two");
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
