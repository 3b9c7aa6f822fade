#include "whatif.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "conf.h"
#include "json.h"
#include "log.h"
#include "mem.h"
#include "param.h"
#include "printable.h"
#include "rerun.h"
#include "role.h"
#include "trace.h"
#include "workload.h"

#define NICE          19
#define SLICE_US      (10 * US_PER_MS) /* of a run between two looks at the channels */
#define ERROR_MAX     4096
#define PARAMETER_MAX 128 /* bytes of a parameter */
#define VALUE_MAX     512
#define RUNS          2 /* as it is, and changed */

enum state { IDLE, READS, SIMULATES };

struct whatif {
    struct role *role;
    struct channel *control; /* NULL: it is being restarted */
    enum state state;
    uint64_t token;
    struct event *timer; /* the next slice */
    /* the current run */
    json_t *question;
    struct trace_reader *reader;
    struct trace *trace;
    struct workload *workload;
    struct conf *changed;
    struct rerun *run;
    unsigned which; /* index in `results` of the simulation that runs */
    json_t *results[RUNS];
    int64_t cpu_us; /* when it began */
};

/* ---- parameters ----------------------------------------------------------------------------- */

/* Parameters that tuning, sim and core read. */
static const char *const known[] = {
    "class_fairness",
    "class_fairness_merge",
    "concurrency_feedback_rule",
    "default_class",
    "default_delivery_slot_cost",
    "default_delivery_slot_discount",
    "default_delivery_slot_loan",
    "default_destination_concurrency_failed_cohort_limit",
    "default_destination_concurrency_feedback",
    "default_destination_concurrency_limit",
    "default_destination_concurrency_negative_feedback",
    "default_destination_concurrency_positive_feedback",
    "default_destination_rate_delay",
    "default_destination_recipient_limit",
    "default_extra_recipient_limit",
    "default_minimum_delivery_slots",
    "default_process_limit",
    "default_recipient_limit",
    "default_recipient_refill_delay",
    "default_recipient_refill_limit",
    "default_transport_rate_delay",
    "initial_destination_concurrency",
    "maximal_backoff_time",
    "maximal_queue_lifetime",
    "minimal_backoff_time",
    "qmgr_destination_share",
    "qmgr_failing_share",
    "qmgr_message_active_limit",
    "qmgr_message_recipient_limit",
    "qmgr_message_recipient_minimum",
    "retry_jitter",
    "smtp_connect_timeout",
    "smtp_connection_cache_on_demand",
    "smtp_connection_cache_time_limit",
    "smtp_connection_reuse_count_limit",
    "smtp_connection_reuse_time_limit",
    "smtp_helo_timeout",
    "smtp_mx_address_limit",
    "transport_retry_time",
};

bool whatif_knows(struct slice name)
{
    const struct param *p = param_find(name);
    struct slice transport;

    if (p == NULL) {
        p = param_find_override(name, &transport);
    }
    for (size_t i = 0; p != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(p->name, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* Frees the current run, in whichever state. */
static void run_end(struct whatif *w)
{
    static const struct itimerval none;

    rerun_free(w->run);
    w->run = NULL;
    trace_free(w->trace);
    w->trace = NULL;
    if (w->reader != NULL) {
        trace_free(trace_reader_finish(w->reader));
        w->reader = NULL;
    }
    workload_free(w->workload);
    w->workload = NULL;
    conf_free(w->changed);
    w->changed = NULL;
    for (size_t i = 0; i < RUNS; i++) {
        json_decref(w->results[i]);
        w->results[i] = NULL;
    }
    json_decref(w->question);
    w->question = NULL;
    CHECK(event_del(w->timer) == 0);
    CHECK(setitimer(ITIMER_PROF, &none, NULL) == 0);
    w->state = IDLE;
}

/* Sends an answer to control; takes `answer`. */
static void give(struct whatif *w, unsigned status, json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(9));

    CHECK(text != NULL);
    if (w->control != NULL) {
        wire_put_answer(
            w->control,
            &(struct wire_answer){.token = w->token, .status = status, .json = slice_string(text)},
            -1);
    }
    free(text);
    json_decref(answer);
    run_end(w);
}

static void refuse(struct whatif *w, unsigned status, const char *why)
{
    give(w, status, json_pack("{s:s}", "error", why));
}

/* ---- the runs ------------------------------------------------------------------------------- */

static int64_t cpu_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

static void again(struct whatif *w)
{
    static const struct timeval at_once;

    CHECK(event_add(w->timer, &at_once) == 0);
}

static void begin_run(struct whatif *w)
{
    w->run = rerun_new(w->which == 0 ? w->role->conf : w->changed, w->workload, w->trace);
}

static void answer(struct whatif *w)
{
    const struct trace *t = w->trace;
    json_t *object = json_copy(w->question);

    json_put(object, "messages", json_integer((json_int_t)t->message_count));
    json_put(object, "recipients", json_integer((json_int_t)t->rcpt_count));
    json_put(object, "left_out", json_integer((json_int_t)(t->incomplete + t->over_limit)));
    json_put(object, "begins", json_seconds(t->first_us));
    json_put(object, "step", json_seconds(w->workload->duration_us / RERUN_STEPS + 1));
    json_put(object, "recorded", rerun_recorded(t));
    json_put(object, "before", json_incref(w->results[0]));
    json_put(object, "after", json_incref(w->results[1]));
    give(w, 200, object);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct whatif *w = arg;
    int64_t begun_us = cpu_us();
    bool more = true;

    (void)fd;
    (void)what;
    CHECK(w->state == SIMULATES);
    while (more && cpu_us() - begun_us < SLICE_US) {
        more = rerun_step(w->run);
    }
    if (more && cpu_us() - w->cpu_us > WHATIF_CPU_S * US_PER_S) {
        refuse(w, 400, "hours: the run took more than 60 s of the processor; fewer are expected");
        return;
    }
    if (!more) {
        w->results[w->which] =
            rerun_json(w->run, w->role->conf->default_class == CONF_DEFAULT_CLASS_AUTO ? "personal"
                                                                                       : "without");
        rerun_free(w->run);
        w->run = NULL;
        if (++w->which == RUNS) {
            answer(w);
            return;
        }
        begin_run(w);
    }
    again(w);
}

/* Begins to simulate: the whole journal was read. */
static void simulate(struct whatif *w)
{
    int64_t until_us = (int64_t)(json_number_value(json_object_get(w->question, "until")) * 1e6);
    struct buf text;

    w->trace = trace_reader_finish(w->reader);
    w->reader = NULL;
    if (w->trace->message_count == 0 || w->trace->outcomes == NULL) {
        refuse(w, 409, "hours: the journal has no mail of this period; choose a longer one");
        return;
    }
    buf_init(&text, ERROR_MAX);
    (void)buf_addf(&text, "duration %llds\n",
                   (long long)((until_us - w->trace->first_us) / US_PER_S + 1)); /* fits */
    w->workload = workload_parse(buf_slice(&text), "duration", &text);
    buf_fini(&text);
    if (w->workload == NULL) {
        refuse(w, 400, "hours: no mail in this period");
        return;
    }
    w->state = SIMULATES;
    w->which = 0;
    begin_run(w);
    again(w);
}

/* ---- the question --------------------------------------------------------------------------- */

/* Is it one line? The configuration has one value in a line. */
static bool value_good(struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        if ((unsigned char)value.ptr[i] < ' ' || value.ptr[i] == 0x7f) {
            return false;
        }
    }
    return value.len <= VALUE_MAX;
}

/* Appends the changed parameters as lines of a configuration. Returns false with the expectation in
 * `error`. */
static bool add_lines(const json_t *set, struct buf *lines, struct buf *error)
{
    const char *name;
    json_t *value;

    if (!json_is_object(set) || json_object_size(set) == 0 ||
        json_object_size(set) > WHATIF_SET_MAX) {
        (void)buf_addf(error, "set: an object of 1 to %d parameters is expected", WHATIF_SET_MAX);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)set, name, value)
    {
        struct slice text = slice_of(json_string_value(value), json_string_length(value));

        if (strlen(name) > PARAMETER_MAX || !whatif_knows(slice_string(name))) {
            (void)buf_add_string(error, "set: ");
            (void)printable_add(error, slice_string(name), PARAMETER_MAX);
            (void)buf_add_string(error, " has no effect in the simulator; "
                                        "docs/dashboard.md lists those that have");
            return false;
        }
        if (!json_is_string(value) || !value_good(text)) {
            (void)buf_addf(error, "set: %s: a text of one line is expected", name);
            return false;
        }
        (void)buf_addf(lines, "%s = %.*s\n", name, SLICE_ARGS(text)); /* all fits */
    }
    return true;
}

/* Makes the changed configuration. Returns false if the request was refused. */
static bool change(struct whatif *w)
{
    struct conf_problems problems;
    struct buf lines, error;

    buf_init(&lines, WHATIF_SET_MAX * (PARAMETER_MAX + VALUE_MAX + 16));
    buf_init(&error, ERROR_MAX);
    if (add_lines(json_object_get(w->question, "set"), &lines, &error)) {
        w->changed = role_conf_with(w->role, buf_slice(&lines), "set", &problems);
        for (size_t i = 0; i < problems.count && w->changed == NULL; i++) {
            if (problems.at[i].severity == CONF_ERROR && buf_len(&error) == 0) {
                (void)buf_add_string(&error, "set: ");
                (void)printable_add(&error, slice_string(problems.at[i].text), ERROR_MAX / 8);
            }
        }
        conf_problems_fini(&problems);
    }
    if (w->changed == NULL) {
        refuse(w, 400, buf_len(&error) > 0 ? buf_cstr(&error) : "set: it has an error");
    }
    buf_fini(&lines);
    buf_fini(&error);
    return w->changed != NULL;
}

static void want_events(struct whatif *w)
{
    wire_put_number(w->control, WIRE_EVENTS_MORE, w->token);
}

/* Handles a new request. Returns false if it does not decode. */
static bool asked(struct whatif *w, struct slice body)
{
    static const struct itimerval most = {.it_value = {.tv_sec = 2 * WHATIF_CPU_S}};
    struct wire_ask m;

    if (w->state != IDLE || !wire_get_ask(body, &m)) {
        return false;
    }
    w->question = json_loadb(m.json.ptr, m.json.len, 0, NULL);
    if (!json_is_object(w->question)) {
        json_decref(w->question);
        w->question = NULL;
        return false;
    }
    w->token = m.token;
    w->cpu_us = cpu_us();
    w->state = READS;
    CHECK(setitimer(ITIMER_PROF, &most, NULL) == 0);
    if (change(w)) {
        w->reader = trace_reader_new();
        want_events(w);
    }
    return true;
}

/* Handles a page of the journal. Returns false if it does not decode. */
static bool page(struct whatif *w, struct slice body)
{
    struct wire_answer m;
    struct slice rest;

    if (!wire_get_answer(body, &m)) {
        return false;
    }
    if (w->state == IDLE || m.token != w->token) {
        return true; /* it crossed our answer */
    }
    if (m.status != 200) {
        run_end(w); /* its client is gone */
        return true;
    }
    if (w->state != READS) {
        return false;
    }
    rest = m.bytes;
    if (rest.len == 0) {
        simulate(w);
        return true;
    }
    while (rest.len > 0) {
        size_t len = slice_find(rest, '\n');

        trace_reader_line(w->reader, slice_of(rest.ptr, len));
        rest = slice_skip(rest, len < rest.len ? len + 1 : len);
    }
    want_events(w);
    return true;
}

static void control_lost(struct whatif *w)
{
    channel_free(w->control);
    w->control = NULL;
    run_end(w);
}

static void on_control(void *arg, struct channel *ch)
{
    struct whatif *w = arg;
    struct frame frame;

    while (w->control != NULL) {
        bool good = false;

        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_CLOSED:
            control_lost(w);
            return;
        case CHANNEL_FRAME:
            good = (frame.type == WIRE_ASK && asked(w, frame.body)) ||
                   (frame.type == WIRE_ANSWER && page(w, frame.body));
            if (frame.fd >= 0) {
                (void)close(frame.fd); /* none was requested */
            }
            if (!good) {
                log_error("channel of control closed: a frame does not decode");
                control_lost(w);
                return;
            }
        }
    }
}

/* ---- the role ------------------------------------------------------------------------------- */

/* Keeps the run from delaying mail, and ends it before its memory is a problem for the machine. */
static void lower_limits(void)
{
    const struct sched_param none = {.sched_priority = 0};

    if (setpriority(PRIO_PROCESS, 0, NICE) != 0 || sched_setscheduler(0, SCHED_IDLE, &none) != 0) {
        log_warning("whatif: could not lower the priority: %s", strerror(errno));
    }
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer maps more memory than there is */
    const struct rlimit memory = {WHATIF_MEMORY_MAX, WHATIF_MEMORY_MAX};

    CHECK(setrlimit(RLIMIT_DATA, &memory) == 0);
#endif
}

static int whatif_start(struct role *role)
{
    struct whatif *w = mem_new(sizeof *w);

    role->state = w;
    w->role = role;
    w->timer = evtimer_new(role->base, on_timer, w);
    CHECK(w->timer != NULL);
    lower_limits();
    return 0;
}

static void whatif_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct whatif *w = role->state;

    CHECK(peer->role == ROLE_CONTROL);
    if (w->control != NULL) {
        control_lost(w);
    }
    w->control = channel_new(role->base, fd, on_control, w);
}

static void whatif_reload(struct role *role, const struct conf *old)
{
    struct whatif *w = role->state;

    (void)old;
    if (w->state != IDLE) {
        refuse(w, 503, "the configuration was reloaded meanwhile; repeat the request");
    }
}

static void whatif_stop(struct role *role)
{
    role_exit(role, 0);
}

static void whatif_end(struct role *role)
{
    struct whatif *w = role->state;

    run_end(w);
    channel_free(w->control);
    event_free(w->timer);
    mem_free(w);
}

static unsigned whatif_count(const struct conf *conf)
{
    return conf->events ? 1 : 0;
}

const struct role_ops whatif_role = {
    .role = ROLE_WHATIF,
    .program = "whatif",
    .kind = ROLE_ANSWERS,
    .count = whatif_count,
    .start = whatif_start,
    .peer = whatif_peer,
    .reload = whatif_reload,
    .stop = whatif_stop,
    .end = whatif_end,
};
