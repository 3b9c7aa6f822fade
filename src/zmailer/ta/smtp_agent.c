#include "smtp_agent.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "attempt.h"
#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "hash.h"
#include "log.h"
#include "mem.h"
#include "resolver.h"
#include "role.h"
#include "smtp_mail.h"
#include "stream.h"
#include "ta_agent.h"
#include "ta_job.h"

/* Connections: the active one, and those that are kept or closing. */
#define SESSIONS_MAX 16
/* Period of checks while the system has no free descriptor, and at the end. */
#define TICK_MS 200
/* Time for servers to answer QUIT at the end. */
#define GOODBYE_US (2 * US_PER_S)

struct client_agent {
    const struct smtp_options *options;
    struct ta_agent agent;
    struct event_base *base;
    struct role role; /* role for smtp_destinations_new: the configuration and its files */
    struct streams *streams;
    struct resolver *resolver, *validator; /* `validator` is for DANE; NULL: DANE is not used */
    struct attempts attempts;
    struct event *input, *quit, *term, *tick;

    struct ta_job job;
    size_t next;           /* first recipient that is in no mail yet */
    struct smtp_mail mail; /* the mail in flight */
    bool has_job, has_mail;
    bool site_failed; /* no more deliveries of the job's thread now */

    /* The host whose site has failed, and the failure. Jobs for this host that the scheduler sent
     * before it got the failure have the same result without an attempt. */
    struct buf failed_host, failed_status, failed_reply, failed_text, failed_relay;
    bool knows_failed;
};

/* ---- results -------------------------------------------------------------------------------- */

/* Appends the site's reply, or our account of the attempt. */
static void put_diagnostic(struct buf *out, const struct wire_verdict *v)
{
    const char *code = v->kind == VERDICT_BOUNCED ? "550" : "450";

    if (v->reply.len > 0) {
        (void)buf_addf(out, "smtp; %.*s", SLICE_ARGS(v->reply));
    } else {
        (void)buf_addf(out, "smtp; %s (%.*s)", code, SLICE_ARGS(v->text));
    }
}

/* Appends "dns; mx.example (192.0.2.1)" for the relay "mx.example[192.0.2.1]:25". */
static void put_remote(struct buf *out, struct slice relay)
{
    struct slice rest = relay, host = slice_cut(&rest, '['), address;

    if (rest.ptr != NULL) {
        address = slice_of(rest.ptr, slice_find_last(rest, ']'));
        (void)buf_addf(out, "dns; %.*s (%.*s)", SLICE_ARGS(host), SLICE_ARGS(address));
    }
}

static enum ta_job_outcome outcome_of(enum wire_verdict_kind kind, bool site_failed)
{
    switch (kind) {
    case VERDICT_SENT:
        return TA_JOB_PASSED;
    case VERDICT_RELAYED:
        return TA_JOB_RELAYED;
    case VERDICT_BOUNCED:
        return TA_JOB_FAILED;
    case VERDICT_DEFERRED:
        return site_failed ? TA_JOB_DEFERRED_ALL : TA_JOB_DEFERRED;
    case VERDICT_NONE:
        break;
    }
    UNREACHABLE("a verdict that no attempt gives");
}

static void settle(struct client_agent *c, size_t i, const struct wire_verdict *v)
{
    struct buf diagnostic, remote;

    buf_init(&diagnostic, WIRE_TEXT_MAX + 64);
    buf_init(&remote, WIRE_HOST_MAX + 64);
    put_diagnostic(&diagnostic, v);
    put_remote(&remote, v->relay);
    ta_job_settle(&c->job, i,
                  &(struct ta_job_result){.outcome = outcome_of(v->kind, c->site_failed),
                                          .status = v->status,
                                          .diagnostic = buf_slice(&diagnostic),
                                          .remote = buf_slice(&remote),
                                          .text = wire_verdict_text(v)});
    buf_fini(&diagnostic);
    buf_fini(&remote);
}

/* Copies the texts of the site's failure. */
static void remember_failure(struct client_agent *c, const struct assignment *assignment)
{
    for (uint32_t i = 0; i < assignment->ask.rcpt_count; i++) {
        const struct wire_verdict *v = assignment_verdict(assignment, i);

        if (v->kind == VERDICT_DEFERRED) {
            buf_clear(&c->failed_status);
            buf_clear(&c->failed_reply);
            buf_clear(&c->failed_text);
            buf_clear(&c->failed_relay);
            (void)buf_add(&c->failed_status, v->status); /* fits: assignment.h cuts these */
            (void)buf_add(&c->failed_reply, v->reply);
            (void)buf_add(&c->failed_text, wire_verdict_text(v));
            (void)buf_add(&c->failed_relay, v->relay);
            c->knows_failed = true;
            return;
        }
    }
}

/* Settles the recipients of the mail in flight. Without an `end` the mail was returned undelivered:
 * it has no results, and its recipients are unlocked when the job is closed. */
static void on_told(void *arg, const struct assignment *assignment,
                    const struct assignment_end *end)
{
    struct client_agent *c = arg;

    CHECK(c->has_mail);
    c->site_failed = end == NULL || end->outcome == OUTCOME_SITE_FAIL;
    if (end != NULL && c->site_failed) {
        remember_failure(c, assignment);
    }
    for (uint32_t i = 0; end != NULL && i < assignment->ask.rcpt_count; i++) {
        settle(c, assignment->ask.rcpts[i].n, assignment_verdict(assignment, i));
    }
    ta_job_tell(&c->job);
    c->has_mail = false;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Hands the next mail of the job to the client. Returns false if the job is done. */
static bool begin_mail(struct client_agent *c)
{
    struct assignment *assignment;

    smtp_mail_fini(&c->mail);
    if (c->site_failed || c->agent.gone ||
        !smtp_mail_next(&c->mail, c->options, &c->job, &c->next)) {
        return false;
    }
    assignment = assignment_make(&c->mail.ask, c->mail.content);
    c->mail.content = -1;
    CHECK(assignment != NULL); /* content is a file that we made */
    c->has_mail = true;
    attempts_add(&c->attempts, assignment);
    return true;
}

/* Settles a job for a site that has failed since the job was sent. */
static void answer_failed(struct client_agent *c)
{
    const struct wire_verdict v = {.kind = VERDICT_DEFERRED,
                                   .status = buf_slice(&c->failed_status),
                                   .reply = buf_slice(&c->failed_reply),
                                   .text = buf_slice(&c->failed_text),
                                   .relay = buf_slice(&c->failed_relay)};

    c->site_failed = true;
    for (size_t i = 0; i < c->job.rcpt_count; i++) {
        settle(c, i, &v);
    }
}

/* Takes orders until there is a job or no further order. */
static void take_orders(struct client_agent *c)
{
    struct ta_order order;

    while (!c->has_job && ta_agent_next(&c->agent, &order)) {
        bool failed = c->knows_failed && order.type == TA_ORDER_JOB &&
                      slice_equal(order.host, buf_slice(&c->failed_host));

        if (!failed) {
            c->knows_failed = false; /* another host, or no more jobs sent in advance */
            buf_clear(&c->failed_host);
            (void)buf_add(&c->failed_host, order.host); /* fits: part of an order */
        }
        if (order.type == TA_ORDER_JOB && ta_job_open(&c->job, &c->agent, &order)) {
            c->has_job = true;
            c->next = 0;
            c->site_failed = false;
            if (failed) {
                answer_failed(c);
            }
        } else {
            ta_agent_hungry(&c->agent);
        }
    }
}

/* Takes the next step while no mail is in flight. Returns false if there is none. */
static bool advance(struct client_agent *c)
{
    if (!c->has_job) {
        take_orders(c);
        return c->has_job;
    }
    if (!begin_mail(c)) {
        ta_job_close(&c->job);
        c->has_job = false;
        ta_agent_hungry(&c->agent);
    }
    return true;
}

/* Does all work that needs no waiting. */
static void turn(struct client_agent *c)
{
    do {
        attempts_run(&c->attempts);
    } while (!c->has_mail && advance(c));
    log_flush();
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void on_input(evutil_socket_t fd, short what, void *arg)
{
    struct client_agent *c = arg;

    (void)fd;
    (void)what;
    ta_agent_read(&c->agent);
}

static void on_quit(evutil_socket_t fd, short what, void *arg)
{
    struct client_agent *c = arg;

    (void)fd;
    (void)what;
    c->agent.stop = true;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* one_turn does the work */
}

static void one_turn(struct client_agent *c)
{
    static const struct timeval period = {.tv_usec = TICK_MS * 1000};
    bool ticking = !TAILQ_EMPTY(&c->attempts.waiting) || c->agent.stop;
    /* Stops reading during a job, which limits the orders that wait. */
    bool reading = !c->has_job && !c->agent.stop;

    CHECK((ticking ? event_add(c->tick, &period) : event_del(c->tick)) == 0);
    CHECK((reading ? event_add(c->input, NULL) : event_del(c->input)) == 0);
    clock_forget();
    CHECK(event_base_loop(c->base, EVLOOP_ONCE) >= 0);
    turn(c);
}

static void say_goodbye(struct client_agent *c)
{
    struct mono until = mono_after(clock_mono(), GOODBYE_US);

    attempts_stop(&c->attempts);
    while (sessions_count(c->attempts.sessions) > 0 && !mono_reached(until, clock_mono())) {
        one_turn(c);
    }
}

/* ---- beginning and end ---------------------------------------------------------------------- */

/* Opens an event loop without epoll, which does not support regular files: standard input may be a
 * file when a user tries the program by hand. */
static struct event_base *open_loop(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base;

    CHECK(config != NULL && event_config_avoid_method(config, "epoll") == 0);
    base = event_base_new_with_config(config);
    CHECK(base != NULL);
    event_config_free(config);
    return base;
}

static bool open_log(const struct smtp_options *options)
{
    struct buf where, error;
    bool ok;

    buf_init(&where, 4096);
    buf_init(&error, LOG_LINE_MAX);
    /* standard error belongs to the scheduler */
    (void)buf_addf(&where, "file:%s", options->log == NULL ? "/dev/null" : options->log);
    ok = !where.failed && log_open(buf_cstr(&where), ".", "sluice", "smtp", &error);
    if (!ok) {
        fprintf(stderr, "# smtp: -l: %s\n", buf_cstr(&error));
    }
    buf_fini(&where);
    buf_fini(&error);
    return ok;
}

static bool open_resolver(struct client_agent *c)
{
    const struct conf *conf = c->role.conf;
    struct dns_sources sources = resolver_sources_of(&c->role, SLICE(""));
    struct slice anchors = role_file(&c->role, slice_string(conf->dnssec_trust_anchor_file));
    struct policy_origin where;
    struct buf error;
    bool ok;

    buf_init(&error, LOG_LINE_MAX);
    c->resolver = resolver_new(c->base, &sources, &error);
    ok = c->resolver != NULL;
    if (ok && anchors.len > 0 && policy_wants_dane(conf, &where)) { /* without them mail waits */
        sources.anchors = anchors;
        c->validator = resolver_new(c->base, &sources, &error);
        ok = c->validator != NULL;
    }
    if (!ok) {
        fprintf(stderr, "# smtp: %s\n", buf_cstr(&error));
        resolver_free(c->resolver);
    }
    buf_fini(&error);
    return ok;
}

static void open_client(struct client_agent *c, uint64_t seed)
{
    attempts_init(&c->attempts);
    c->attempts.assignments.told = on_told;
    c->attempts.assignments.told_arg = c;
    c->attempts.socket_limit = SESSIONS_MAX;
    c->streams = streams_new(c->base);
    c->attempts.destinations = smtp_destinations_new(&c->role);
    hops_world_init(&c->attempts.world, c->role.conf, c->resolver, seed);
    c->attempts.world.validator = c->validator;
    c->attempts.sessions = sessions_new(c->streams, attempts_session_closed, &c->attempts);
    c->input = event_new(c->base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, c);
    c->quit = evsignal_new(c->base, SIGQUIT, on_quit, c);
    c->term = evsignal_new(c->base, SIGTERM, on_quit, c);
    c->tick = event_new(c->base, -1, EV_PERSIST, on_tick, c);
    CHECK(c->input != NULL && c->quit != NULL && c->term != NULL && c->tick != NULL);
    CHECK(event_add(c->quit, NULL) == 0 && event_add(c->term, NULL) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &c->agent.wait_mask, NULL) == 0); /* the event loop has them */
}

static void close_client(struct client_agent *c)
{
    attempts_cut(&c->attempts);
    attempts_fini(&c->attempts);
    resolver_free(c->resolver);
    resolver_free(c->validator);
    streams_free(c->streams);
    event_free(c->input);
    event_free(c->quit);
    event_free(c->term);
    event_free(c->tick);
    event_base_free(c->base);
}

int smtp_agent_run(const struct smtp_options *options)
{
    struct client_agent *c = mem_new(sizeof *c);
    int status;

    hash_seed(entropy_u64(), entropy_u64());
    c->options = options;
    c->mail.content = -1;
    c->role.conf = options->bundle.conf;
    c->role.files = options->bundle.files;
    c->role.file_count = options->bundle.file_count;
    c->base = open_loop();
    if (!open_log(options) || !open_resolver(c)) {
        event_base_free(c->base);
        mem_free(c);
        return EX_CONFIG;
    }
    buf_init(&c->failed_host, TA_AGENT_ORDER_MAX);
    buf_init(&c->failed_status, STATUS_SIZE);
    buf_init(&c->failed_reply, WIRE_TEXT_MAX);
    buf_init(&c->failed_text, WIRE_TEXT_MAX);
    buf_init(&c->failed_relay, WIRE_HOST_MAX);
    ta_agent_init(&c->agent, "smtp", options->channel, STDIN_FILENO, STDOUT_FILENO);
    c->agent.host = options->host;
    open_client(c, entropy_u64());
    ta_agent_hungry(&c->agent);
    while (!c->agent.stop || c->has_job) {
        one_turn(c);
    }
    say_goodbye(c);
    status = c->agent.exit_status;
    close_client(c);
    ta_agent_fini(&c->agent);
    buf_fini(&c->failed_host);
    buf_fini(&c->failed_status);
    buf_fini(&c->failed_reply);
    buf_fini(&c->failed_text);
    buf_fini(&c->failed_relay);
    mem_free(c);
    return status;
}
