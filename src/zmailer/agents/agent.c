#include "agents.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent_table.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "ta_command.h"
#include "ta_process.h"
#include "zmailer_dialect.h"

/* Bytes read in one turn; the rest is read in the next turn, after other agents. */
#define TURN_MAX 65536
/* Largest delay by a `retryat`: the longest possible lifetime of mail. */
#define RETRY_MAX_US (7 * 24 * 3600 * US_PER_S)
#define REASON_MAX   512
#define MINUTE_US    (60 * US_PER_S)

static struct slice host_of(const struct agent_process *a)
{
    return slice_string(a->place.host);
}

static void changed(struct agent_process *a)
{
    if (!a->changed) {
        a->changed = true;
        TAILQ_INSERT_TAIL(&a->all->changed, a, in_changed);
    }
}

void agent_report(struct agent_process *a, bool ended)
{
    struct agents *all = a->all;

    if (a->changed) {
        a->changed = false;
        TAILQ_REMOVE(&all->changed, a, in_changed);
    }
    if (all->worker.queue != NULL) {
        agent_report_write(channel_begin(all->worker.queue, WIRE_AGENT),
                           &(struct agent_report){
                               .pid = (uint32_t)a->pid,
                               .transport = agent_pool_ring_channel(a->place.ring),
                               .host = host_of(a),
                               .ring = agent_pool_ring_clause(a->place.ring),
                               .state = a->ta.state,
                               .owed = a->ta.owed,
                               .hungry = a->hungry,
                               .fed = a->fed,
                               .ended = ended,
                           });
        channel_end(all->worker.queue, -1);
    }
}

/* ---- lines from the agent -------------------------------------------------------------------- */

/* May this agent add a line to the log? Logs the limit once when it is reached. */
static bool may_log(struct agent_process *a)
{
    const uint64_t limit = (uint64_t)a->all->role->conf->agent_log_limit;
    struct mono now = clock_mono();

    if (now.us - a->log_from.us >= MINUTE_US) {
        a->log_from = now;
        a->log_lines = 0;
    }
    if (a->log_lines++ == limit) {
        log_warning("%.*s[%d] writes more than agent_log_limit = %" PRIu64
                    " lines in a minute: the rest of them is not logged",
                    SLICE_ARGS(a->name), (int)a->pid, limit);
    }
    return a->log_lines <= limit;
}

/* Returns the part of an agent's line that is logged. */
static struct slice shown(struct slice line)
{
    return slice_of(line.ptr, line.len < REASON_MAX ? line.len : REASON_MAX);
}

static void take_comment(struct agent_process *a, struct slice line)
{
    if (!a->place.proven && line.len > 1) {
        struct slice words = shown(slice_trim(slice_skip(line, 1)));

        mem_free(a->last_words);
        a->last_words = mem_copy(words.ptr, words.len);
    }
    if (may_log(a)) {
        struct slice rest = slice_skip(shown(line), line.len > 0);

        log_info("DBGdiag: #%.*s", SLICE_ARGS(rest));
    }
}

/* Returns the digit K of the log line "Misformed diagnosticK". */
static int misformed(struct slice line)
{
    struct slice rest = line, first = slice_cut(&rest, '\t');

    if (slice_find(first, '/') == first.len) {
        return 1;
    }
    if (rest.ptr == NULL) {
        return 2;
    }
    (void)slice_cut(&rest, '\t'); /* skips the notary */
    return rest.ptr == NULL ? 3 : 1;
}

static void take_malformed(struct agent_process *a, const struct ta_event *event)
{
    if (may_log(a)) {
        struct slice line = shown(event->line);

        log_warning("Misformed diagnostic%d: %.*s (from %.*s[%d], expected %s)",
                    misformed(event->line), SLICE_ARGS(line), SLICE_ARGS(a->name), (int)a->pid,
                    event->what);
    }
}

/* Logs a result that belongs to no job of the agent. */
static void log_stray(struct agent_process *a, const struct ta_event *event,
                      const struct agent_job *job)
{
    struct buf offsets;

    if (!may_log(a)) {
        return;
    }
    buf_init(&offsets, REASON_MAX);
    if (job == NULL) {
        log_warning("cannot find control file for %" PRIu64 "! (%.*s[%d] has no such job)",
                    event->number, SLICE_ARGS(a->name), (int)a->pid);
    } else {
        agent_job_offsets(job, &offsets);
        log_warning("unknown address offset %" PRIu64 " in control file %" PRIu64
                    "! (%.*s[%d], expected %.*s)",
                    event->offset, event->number, SLICE_ARGS(a->name), (int)a->pid,
                    SLICE_ARGS(buf_slice(&offsets)));
    }
    buf_fini(&offsets);
}

static void log_twice(struct agent_process *a, const struct ta_event *event,
                      const struct agent_job *job)
{
    if (may_log(a)) {
        struct slice channel = agent_pool_ring_channel(a->place.ring);

        log_warning("multiple processing of address at %" PRIu64
                    " in control file %.*s of thread %.*s/%s ? (%.*s[%d], the first result holds)",
                    event->offset, SLICE_ARGS(job->assignment->ask.path), SLICE_ARGS(channel),
                    a->place.host, SLICE_ARGS(a->name), (int)a->pid);
    }
}

static void take_result(struct agent_process *a, const struct ta_event *event)
{
    struct agent_job *job, *nearest = NULL;

    TAILQ_FOREACH(job, &a->unanswered, in_agent)
    {
        switch (agent_job_take(job, event, a->name, clock_wall(), RETRY_MAX_US)) {
        case AGENT_JOB_OTHER:
            continue;
        case AGENT_JOB_NO_RCPT:
            nearest = job; /* a message can have two jobs, for two hosts */
            continue;
        case AGENT_JOB_TWICE:
            log_twice(a, event, job);
            return;
        case AGENT_JOB_WORD:
            if (may_log(a)) {
                struct slice word = shown(event->status_word);

                log_warning("Unknown diagnostic type ignored: %.*s (from %.*s[%d])",
                            SLICE_ARGS(word), SLICE_ARGS(a->name), (int)a->pid);
            }
            return;
        case AGENT_JOB_TAKEN:
            if (job->thread_stops) {
                ta_stop_feeding(&a->ta);
                agent_pool_stop(a->all->pool, &a->place);
            }
            return;
        }
    }
    log_stray(a, event, nearest);
}

static void take_resync(struct agent_process *a, const struct ta_event *event)
{
    struct agent_job *job;

    TAILQ_FOREACH(job, &a->unanswered, in_agent)
    {
        if (slice_equal(job->assignment->ask.path, event->path)) {
            job->resync = true;
            return;
        }
    }
    if (may_log(a)) {
        struct slice path = shown(event->path);

        log_warning("#resync %.*s ignored: %.*s[%d] has no such job", SLICE_ARGS(path),
                    SLICE_ARGS(a->name), (int)a->pid);
    }
}

/* Handles #hungry: the agent has answered its oldest job, asks for work the first time, or is
 * idle. */
static void take_hungry(struct agent_process *a)
{
    struct agent_job *job = TAILQ_FIRST(&a->unanswered);
    struct pool_thread *t = a->place.thread;
    bool stops;

    a->hungry = clock_wall();
    if (!a->place.proven && agent_pool_proven(&a->place)) {
        log_info("transport agent %s works again", a->program);
    }
    if (job != NULL) {
        stops = job->thread_stops;
        TAILQ_REMOVE(&a->unanswered, job, in_agent);
        agents_finish(a->all, job, (uint32_t)a->pid, slice_of("", 0));
        if (stops && t != NULL) { /* the result has already reported that to the queue */
            agent_pool_go_on(a->all->pool, &a->place);
            agents_return_waiting(a->all, t, slice_of("", 0));
        }
    }
}

/* ---- giving jobs ----------------------------------------------------------------------------- */

static void hand_over(struct agent_process *a, struct agent_job *job)
{
    TAILQ_INSERT_TAIL(&a->unanswered, job, in_agent);
    a->fed = clock_wall();
    a->heard = job->fed = clock_mono();
    a->ta.overfeed = job->overfeed;
    ta_job(&a->ta, job->assignment->ask.path, job->assignment->ask.nexthop);
    changed(a);
}

static void feed(struct agent_process *a)
{
    struct agent_job *job = agent_job_at(agent_pool_feed(a->all->pool, &a->place, a->ta.owed));

    if (job != NULL) {
        hand_over(a, job);
    } else {
        ta_no_job(&a->ta);
    }
}

static void leave(struct agent_process *a)
{
    struct pool_action action;

    agent_pool_leave(a->all->pool, &a->place, &action);
    if (action.type == POOL_GIVE) {
        hand_over(a, agent_job_at(action.job));
    } else if (action.type == POOL_END) {
        agent_tell_end(a);
    } else {
        ta_idle(&a->ta);
    }
}

/* ---- its socket ------------------------------------------------------------------------------ */

static void shut_input(struct agent_process *a)
{
    if (!a->input_shut) {
        a->input_shut = true;
        (void)shutdown(a->fd, SHUT_WR); /* the agent may have closed it */
    }
}

static void flush(struct agent_process *a)
{
    while (a->fd >= 0 && !a->input_shut && buf_len(&a->ta.output) > 0) {
        struct slice out = buf_slice(&a->ta.output);
        ssize_t n = send(a->fd, out.ptr, out.len, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            CHECK(event_add(a->writable, NULL) == 0);
            return;
        }
        if (n < 0) {
            agent_tell_end(a); /* the agent does not read and will end soon */
            shut_input(a);
            return;
        }
        buf_consume(&a->ta.output, (size_t)n);
    }
    if (a->fd >= 0 && a->ta.state == TA_ENDING) {
        shut_input(a);
    }
}

/* Reads a piece of input. Returns false if there is none now. */
static bool read_some(struct agent_process *a)
{
    char *room = buf_room(&a->in, TURN_MAX);
    ssize_t n;

    CHECK(room != NULL);
    do {
        n = recv(a->fd, room, TURN_MAX, 0);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        buf_grew(&a->in, (size_t)n);
        a->heard = clock_mono();
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
        CHECK(event_del(a->readable) == 0);
        agent_tell_end(a); /* the jobs get no more results; wait for the agent's end */
    }
    return false;
}

static void break_off(struct agent_process *a)
{
    log_error("%.*s[%d] has sent a line of more than %d bytes without its end: killed",
              SLICE_ARGS(a->name), (int)a->pid, TA_LINE_MAX);
    buf_clear(&a->in);
    CHECK(event_del(a->readable) == 0);
    agent_tell_end(a);
    agent_kill(a);
}

static void advance(struct agent_process *a)
{
    struct ta_event event;

    do {
        ta_next(&a->ta, &a->in, &event);
        switch (event.type) {
        case TA_NEED_INPUT:
            break;
        case TA_FEED:
            feed(a);
            break;
        case TA_DETACH:
            leave(a);
            break;
        case TA_REST:
            agent_pool_rest(a->all->pool, &a->place, clock_mono());
            break;
        case TA_HUNGRY:
            take_hungry(a);
            break;
        case TA_RESULT:
            take_result(a, &event);
            break;
        case TA_RESYNC:
            take_resync(a, &event);
            break;
        case TA_COMMENT:
            take_comment(a, event.line);
            break;
        case TA_MALFORMED:
            take_malformed(a, &event);
            break;
        case TA_BROKEN:
            break_off(a);
            break;
        }
    } while (event.type != TA_NEED_INPUT);
    changed(a);
    flush(a);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct agent_process *a = arg;

    (void)fd;
    (void)what;
    if (read_some(a)) {
        advance(a);
    }
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    flush(arg);
}

void agent_give(struct agent_process *a, struct agent_job *job)
{
    hand_over(a, job);
    flush(a);
}

/* ---- start ----------------------------------------------------------------------------------- */

const char *agent_variable(void *arg, struct slice name)
{
    return conf_zenv(arg, name);
}

/* Refuses a thread for which the configuration makes no agent. */
static void refuse_start(struct pool_thread *t, const char *command, const char *why)
{
    struct slice channel = agent_pool_thread_channel(t);
    struct buf text;

    buf_init(&text, WIRE_TEXT_MAX);
    (void)buf_addf(&text, "transport agent \"%.200s\" cannot be started: %s", command, why);
    agent_pool_explain(agent_pool_thread_ring(t), buf_slice(&text));
    if (agent_pool_start_failed(t, clock_mono())) {
        log_error("transport %.*s: %s", SLICE_ARGS(channel), buf_cstr(&text));
    }
    buf_fini(&text);
}

static struct agent_process *agent_new(struct agents *all, const struct ta_launch *launch,
                                       pid_t pid, int fd)
{
    struct agent_process *a = mem_new(sizeof *a);
    struct slice path = slice_string(launch->words[0]);
    struct event_base *base = all->role->base;
    size_t slash = slice_find_last(path, '/');

    a->all = all;
    a->pid = pid;
    a->fd = fd;
    a->program = mem_copy(path.ptr, path.len);
    a->name = slice_skip(slice_string(a->program), slash < path.len ? slash + 1 : 0);
    a->heard = clock_mono();
    a->end_at = MONO_NEVER;
    TAILQ_INIT(&a->unanswered);
    buf_init(&a->in, TURN_MAX + TA_LINE_MAX + 1);
    a->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, a);
    a->writable = event_new(base, fd, EV_WRITE, on_writable, a);
    CHECK(a->readable != NULL && a->writable != NULL);
    CHECK(event_add(a->readable, NULL) == 0);
    TAILQ_INSERT_TAIL(&all->all, a, in_all);
    HASH_ADD(hh, all->by_pid, pid, sizeof a->pid, a);
    return a;
}

static bool launch(struct agents *all, struct pool_thread *t, const struct policy *policy,
                   const struct ta_launch *what)
{
    struct agent_process *a;
    int fd = -1;
    pid_t pid = ta_process_start(what, &fd);

    if (pid < 0) {
        agent_pool_not_started(all->pool, clock_mono());
        if (!all->short_of_processes) {
            all->short_of_processes = true;
            log_error("cannot start %s: System:ForkFailure! (%s)", what->words[0],
                      strerror((int)-pid));
        }
        return false;
    }
    all->short_of_processes = false;
    a = agent_new(all, what, pid, fd);
    agent_pool_started(all->pool, t, &a->place);
    ta_init(&a->ta, ta_command_is_host_bound(slice_string(policy->command)),
            policy->overfeed > 0 ? (uint32_t)policy->overfeed : 0);
    changed(a);
    return true;
}

/* Appends the DIR of spool = postoffice:DIR and /transport. */
static void work_directory(const struct conf *conf, struct buf *out)
{
    struct slice spool = slice_string(conf->spool);

    (void)buf_addf(out, "%.*s/transport",
                   SLICE_ARGS(slice_skip(spool, slice_find(spool, ':') + 1)));
}

bool agent_start(struct agents *all, struct pool_thread *t)
{
    const struct conf *conf = all->role->conf;
    struct slice channel = agent_pool_thread_channel(t), host = agent_pool_thread_host(t);
    struct ta_command_names names = {
        .channel = channel, .host = host, .look = agent_variable, .arg = (void *)(uintptr_t)conf};
    struct ta_command command;
    struct policy policy;
    struct ta_launch what = {.fd_limit = (uint64_t)conf->agent_fd_limit};
    struct buf why, directory;
    const char *wrong;
    bool ok = false;

    policy_for(conf, channel, host, &policy);
    buf_init(&why, REASON_MAX);
    buf_init(&directory, WIRE_TEXT_MAX * 4);
    if (policy.agent != CONF_AGENT_TA || policy.command[0] == '\0') {
        refuse_start(t, policy.command, "ConfBUG:NoCmdDefined!");
        goto out;
    }
    if (!ta_command_expand(slice_string(policy.command), &names, getenv("TZ"), &command, &wrong)) {
        refuse_start(t, policy.command, wrong);
    } else if (!ta_identity_find(policy.user, policy.group, &what.identity, &why)) {
        refuse_start(t, policy.command, buf_cstr(&why));
    } else {
        work_directory(conf, &directory);
        what.words = command.words;
        what.environment = command.environment;
        what.directory = buf_cstr(&directory);
        what.priority = policy.priority;
        what.nice = policy.nice;
        ok = launch(all, t, &policy, &what);
    }
    ta_command_fini(&command);
out:
    buf_fini(&why);
    buf_fini(&directory);
    return ok;
}

/* ---- end ------------------------------------------------------------------------------------- */

void agent_kill(const struct agent_process *a)
{
    (void)kill(a->pid, SIGKILL); /* our own child, which was not waited for */
}

static void begin_end(struct agent_process *a)
{
    a->end = AGENT_TOLD;
    a->end_at = mono_after(clock_mono(), AGENT_END_US);
    agent_pool_ending(a->all->pool, &a->place);
    ta_end(&a->ta);
    changed(a);
}

void agent_tell_end(struct agent_process *a)
{
    if (a->end == AGENT_LIVES) {
        begin_end(a);
        flush(a);
    }
}

void agent_quit(struct agent_process *a)
{
    if (a->end == AGENT_LIVES) {
        begin_end(a);
        (void)buf_add_byte(&a->ta.output, '\n'); /* fits */
        flush(a);
        (void)kill(a->pid, SIGQUIT); /* our own child, which was not waited for */
    }
}

/* Takes the next step of an end that takes too long. An agent with jobs may finish them. */
static void hasten(struct agent_process *a, struct mono now)
{
    const int64_t longest_us = a->all->role->conf->daemon_timeout_us;

    if (!mono_reached(a->end_at, now) || (a->end == AGENT_TOLD && !TAILQ_EMPTY(&a->unanswered) &&
                                          !mono_reached(mono_after(a->heard, longest_us), now) &&
                                          event_pending(a->readable, EV_READ, NULL))) {
        return;
    }
    log_warning("%.*s[%d] was asked to end and does not: %s", SLICE_ARGS(a->name), (int)a->pid,
                a->end == AGENT_TOLD ? "terminated" : "killed");
    (void)kill(a->pid, a->end == AGENT_TOLD ? SIGTERM : SIGKILL); /* as in agent_kill */
    a->end = a->end == AGENT_TOLD ? AGENT_TERMINATED : AGENT_KILLED;
    a->end_at = mono_after(now, AGENT_END_US);
}

void agent_look(struct agent_process *a, struct mono now)
{
    const int64_t longest_us = a->all->role->conf->daemon_timeout_us;
    bool at_work = !TAILQ_EMPTY(&a->unanswered);
    int64_t silent_us = now.us - a->heard.us;

    if (a->end != AGENT_LIVES) {
        hasten(a, now);
    } else if (a->place.state != AGENT_IDLE && !at_work && silent_us >= AGENT_STUCK_US) {
        log_error("%.*s[%d] owes its #hungry for %lld s: it is stuck, and is ended",
                  SLICE_ARGS(a->name), (int)a->pid, (long long)(silent_us / US_PER_S));
        agent_tell_end(a);
    } else if (at_work && silent_us >= longest_us) {
        log_error("%.*s[%d] is silent for %lld s with a job, longer than daemon_timeout: it is "
                  "ended",
                  SLICE_ARGS(a->name), (int)a->pid, (long long)(silent_us / US_PER_S));
        agent_tell_end(a);
        a->end_at = now;
    }
}

/* Appends "ended with exit status 75" or "was killed by signal 9 (Killed)". */
static void describe_end(int wait_status, struct buf *out)
{
    if (WIFSIGNALED(wait_status)) {
        (void)buf_addf(out, "was killed by signal %d (%s)", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)));
    } else {
        (void)buf_addf(out, "ended with exit status %d", WEXITSTATUS(wait_status));
    }
}

static void log_end(const struct agent_process *a, int wait_status)
{
    struct slice channel = agent_pool_ring_channel(a->place.ring);
    bool killed = WIFSIGNALED(wait_status);
    int number = killed ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

    if (number != 0) {
        log_warning("reclaim(%d,-1) pid=%d, reaped=1, chan=%.*s, host=%s %s=%d", a->fd, (int)a->pid,
                    SLICE_ARGS(channel), a->place.host, killed ? "SIGNAL" : "EXIT", number);
    }
    if (!killed && number == EX_SOFTWARE) {
        log_emergency("transport agent %s[%d] has found an error of its own (exit status 70): "
                      "channel %.*s, host %s",
                      a->program, (int)a->pid, SLICE_ARGS(channel), a->place.host);
    }
    if (buf_len(&a->in) > 0) {
        struct slice rest = shown(buf_slice(&a->in));

        log_warning("%.*s[%d] ended within a line, which is lost: %.*s", SLICE_ARGS(a->name),
                    (int)a->pid, SLICE_ARGS(rest));
    }
}

static void agent_free(struct agent_process *a)
{
    struct agents *all = a->all;

    if (a->changed) {
        TAILQ_REMOVE(&all->changed, a, in_changed);
    }
    TAILQ_REMOVE(&all->all, a, in_all);
    HASH_DEL(all->by_pid, a);
    event_free(a->readable);
    event_free(a->writable);
    (void)close(a->fd); /* all its output was read */
    ta_fini(&a->ta);
    buf_fini(&a->in);
    mem_free(a->program);
    mem_free(a->last_words);
    mem_free(a);
}

void agent_leave(struct agent_process *a)
{
    struct agents *all = a->all;
    struct pool_thread *t;
    struct agent_job *job;

    log_info("%.*s[%d] finishes what it has by itself", SLICE_ARGS(a->name), (int)a->pid);
    while ((job = TAILQ_FIRST(&a->unanswered)) != NULL) {
        TAILQ_REMOVE(&a->unanswered, job, in_agent);
        agent_job_free(job);
    }
    (void)agent_pool_ended(all->pool, &a->place, clock_mono(),
                           &t); /* no other agent takes its place */
    agent_free(a);
}

/* Sets the reason for which the start of an agent failed: it ended before it asked for work. */
static void explain_start(struct agent_process *a, const char *how)
{
    struct buf text;

    buf_init(&text, WIRE_TEXT_MAX);
    (void)buf_addf(&text, "transport agent %.*s does not start: it %s%s%s", SLICE_ARGS(a->name),
                   how, a->last_words != NULL ? ": " : "",
                   a->last_words != NULL ? a->last_words : "");
    agent_pool_explain(a->place.ring, buf_slice(&text));
    buf_fini(&text);
}

void agent_ended(struct agent_process *a, int wait_status)
{
    struct agents *all = a->all;
    struct pool_thread *t;
    struct agent_job *job;
    struct buf how, reason;
    bool crashed = false;

    while (event_pending(a->readable, EV_READ, NULL) && read_some(a)) {
        advance(a);
    }
    buf_init(&how, REASON_MAX);
    buf_init(&reason, WIRE_TEXT_MAX);
    describe_end(wait_status, &how);
    (void)buf_addf(&reason, "transport agent %.*s[%d] %s", SLICE_ARGS(a->name), (int)a->pid,
                   buf_cstr(&how));
    log_end(a, wait_status);
    while ((job = TAILQ_FIRST(&a->unanswered)) != NULL) {
        TAILQ_REMOVE(&a->unanswered, job, in_agent);
        job->resync = job->thread_stops = crashed = true;
        agents_finish(all, job, (uint32_t)a->pid, buf_slice(&reason));
    }
    if (!a->place.proven) {
        explain_start(a, buf_cstr(&how));
    }
    agent_report(a, true);
    if (agent_pool_ended(all->pool, &a->place, clock_mono(), &t)) {
        log_error("transport agent %s does not start: it %s%s%s; tried again later, and less and "
                  "less often",
                  a->program, buf_cstr(&how), a->last_words != NULL ? ": " : "",
                  a->last_words != NULL ? a->last_words : "");
    }
    /* the rest of the thread waits until its time, as after any failed run */
    if (t != NULL && crashed) {
        agents_return_waiting(all, t, slice_of("", 0));
    }
    buf_fini(&how);
    buf_fini(&reason);
    agent_free(a);
}
