#include "agents.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "agents_role.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "ta_command.h"
#include "zmailer_dialect.h"

/* Descriptors reserved for other uses than agents. */
#define SPARE_FILES 30
/* Default of idlemax, for a clause without an interval. */
#define IDLE_US  (180 * US_PER_S)
#define SPEC_MAX WIRE_FILE_MAX /* a line can be as long as a whole configuration */

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Appends all that distinguishes agents, except the host. */
static void describe_start(const struct conf *conf, const struct policy *p, struct slice channel,
                           struct buf *out)
{
    const struct ta_command_names names = {.channel = channel,
                                           .host = SLICE(""),
                                           .look = agent_variable,
                                           .arg = (void *)(uintptr_t)conf};
    struct ta_command command;
    const char *why;

    (void)buf_addf(out, "%s\n%s\n%s\n%lld %lld\n", p->command, p->user, p->group,
                   (long long)p->priority, (long long)p->nice);
    if (ta_command_expand(slice_string(p->command), &names, NULL, &command, &why)) {
        (void)buf_add(out, buf_slice(&command.bytes)); /* includes values of the ZENV file */
    }
    ta_command_fini(&command);
}

/* Makes the pool's spec of a policy. `start` holds the text of ret_spec->start. */
static void make_spec(const struct agents *all, const struct policy *p, struct slice channel,
                      struct slice host, struct buf *start, struct agent_spec *ret_spec)
{
    buf_clear(start);
    describe_start(all->role->conf, p, channel, start);
    CHECK(!start->failed);
    *ret_spec = (struct agent_spec){
        .channel = channel,
        .host = host,
        .clause = p->ring,
        .start = buf_slice(start),
        .host_bound = ta_command_is_host_bound(slice_string(p->command)),
        .maxta = p->maxta > 0 && p->maxta < all->places ? p->maxta : all->places,
        .maxchannel = p->maxchannel,
        .maxring = p->maxring,
        .maxthr = p->maxthr,
        .wakeup_restart_only = p->wakeuprestartonly,
        .queue_only = p->queueonly,
        .idle_max_us = p->idlemax_us > 0    ? p->idlemax_us
                       : p->interval_us > 0 ? us_add(p->interval_us, 2 * p->interval_us)
                                            : IDLE_US,
    };
}

void agents_finish(struct agents *all, struct agent_job *job, uint32_t pid, struct slice reason)
{
    const struct assignment *e = job->assignment;

    if (job->thread_stops && assignment_is_awaited(e)) {
        agent_stops_add(&all->stops, e->ask.entry, e->ask.transport, e->ask.nexthop);
    }
    agent_job_finish(job, pid, reason);
}

void agents_return_waiting(struct agents *all, struct pool_thread *t, struct slice reason)
{
    for (size_t left = agent_pool_thread_waiting(t); left > 0; left--) {
        struct agent_job *job =
            agent_job_at(agent_pool_take(all->pool, t)); /* the last job may free t */

        if (reason.len == 0) {
            agent_job_give_back(job, true);
        } else {
            job->thread_stops = true;
            agents_finish(all, job, 0, reason);
        }
    }
}

static void add_waiting(struct agents *all, struct agent_job *job)
{
    const struct wire_deliver *ask = &job->assignment->ask;
    struct agent_spec spec;
    struct policy policy;
    struct buf start;

    policy_for(all->role->conf, ask->transport, ask->nexthop, &policy);
    job->overfeed = policy.overfeed > 0 ? (uint32_t)policy.overfeed : 0;
    buf_init(&start, SPEC_MAX);
    make_spec(all, &policy, ask->transport, ask->nexthop, &start, &spec);
    agent_pool_add(all->pool, &spec, &job->place);
    buf_fini(&start);
}

/* Performs all actions that the pool requests. */
static void work(struct agents *all)
{
    struct pool_action action;

    if (all->role->stopping) {
        return;
    }
    for (;;) {
        agent_pool_next(all->pool, clock_mono(), &action);
        switch (action.type) {
        case POOL_NOTHING:
            return;
        case POOL_GIVE:
            agent_give(CONTAINER_OF(action.agent, struct agent_process, place),
                       agent_job_at(action.job));
            break;
        case POOL_START:
            (void)agent_start(all, action.thread); /* on failure the pool requests no more */
            break;
        case POOL_END:
            agent_tell_end(CONTAINER_OF(action.agent, struct agent_process, place));
            break;
        case POOL_REFUSE: {
            struct slice why = agent_pool_trouble(agent_pool_thread_ring(action.thread));
            char *reason = mem_copy(why.ptr, why.len); /* the ring may be freed with its last
                                                        * thread */

            agents_return_waiting(all, action.thread, slice_string(reason));
            mem_free(reason);
            break;
        }
        }
    }
}

/* ---- the channel to queue -------------------------------------------------------------------- */

static bool on_deliver(struct agents *all, const struct frame *frame)
{
    const char *why;
    struct agent_job *job = agent_job_new(&all->assignments, frame, &why);
    const struct wire_deliver *ask;

    if (job == NULL) {
        return false;
    }
    ask = &job->assignment->ask;
    if (all->role->stopping) {
        agent_job_give_back(job, false);
    } else if (agent_stops_holds(&all->stops, ask->transport, ask->nexthop)) {
        agent_job_give_back(job, true);
    } else if (why != NULL) {
        agent_job_finish(job, 0, slice_string(why));
    } else {
        add_waiting(all, job);
    }
    return true;
}

static bool on_frame(void *arg, const struct frame *frame)
{
    struct agents *all = arg;
    struct wire_forget forget;
    uint64_t entry;

    switch (frame->type) {
    case WIRE_DELIVER:
        return on_deliver(all, frame);
    case WIRE_FORGET: /* agents manage their own connections */
        return wire_get_forget(frame->body, &forget);
    case WIRE_GO_ON:
        return wire_get_number(frame->body, &entry) && agent_stops_processed(&all->stops, entry);
    default:
        return false;
    }
}

/* Drops a waiting job, because the queue process has ended and reads the control files again. An
 * agent finishes its jobs and marks the results in the files. Returns true for a job that an agent
 * has. */
static bool goes_on(void *arg, void *owner)
{
    struct agents *all = arg;
    struct agent_job *job = owner;

    if (job->place.thread == NULL) {
        return true;
    }
    agent_pool_remove(all->pool, &job->place);
    agent_job_free(job);
    return false;
}

static void on_lost(void *arg)
{
    struct agents *all = arg;

    assignments_lost(&all->assignments, goes_on, all);
    agent_stops_fini(&all->stops); /* the next queue process has sent nothing before */
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

static void agents_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct agents *all = role->state;
    struct agent_process *a;

    worker_peer(&all->worker, peer, fd);
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        agent_report(a, false);
    }
}

/* ---- timers and children --------------------------------------------------------------------- */

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct agents *all = arg;
    struct agent_process *a;
    int wait_status;
    pid_t pid;

    (void)fd;
    (void)what;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        HASH_FIND(hh, all->by_pid, &pid, sizeof pid, a);
        if (a != NULL) {
            agent_ended(a, wait_status);
        }
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* agents_turn does the work */
}

static void look_around(struct agents *all, struct mono now)
{
    struct agent_place *idle;
    struct agent_process *a;

    while ((idle = agent_pool_sweep(all->pool, now)) != NULL) {
        agent_tell_end(CONTAINER_OF(idle, struct agent_process, place));
    }
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        agent_look(a, now);
    }
    all->sweep_at = mono_after(now, POOL_SWEEP_US);
}

static void arm(struct agents *all, struct mono now)
{
    struct mono at = mono_min(agent_pool_wake_at(all->pool, now), all->sweep_at);
    int64_t wait_us;
    struct timeval tv;

    wait_us = at.us > now.us + US_PER_MS ? at.us - now.us : US_PER_MS;
    tv = (struct timeval){.tv_sec = wait_us / US_PER_S, .tv_usec = wait_us % US_PER_S};
    CHECK(event_add(all->timer, &tv) == 0);
}

/* ---- the process ----------------------------------------------------------------------------- */

static void configure(struct agents *all)
{
    const struct conf *conf = all->role->conf;

    agent_pool_configure(all->pool, (uint32_t)conf->agent_start_rate, conf->agent_freeze);
}

/* Returns the number of agents for which the process has descriptors. */
static int64_t count_places(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur <= SPARE_FILES) {
        return 1;
    }
    return files.rlim_cur < INT32_MAX ? (int64_t)files.rlim_cur - SPARE_FILES : INT32_MAX;
}

static int agents_start(struct role *role)
{
    struct agents *all = mem_new(sizeof *all);

    role->state = all;
    all->role = role;
    worker_init(&all->worker, role, &queue_ops, all);
    all->assignments.queue = &all->worker.queue;
    all->pool = agent_pool_new();
    all->places = count_places();
    TAILQ_INIT(&all->all);
    TAILQ_INIT(&all->changed);
    configure(all);
    all->child_event = evsignal_new(role->base, SIGCHLD, on_child, all);
    all->timer = evtimer_new(role->base, on_timer, all);
    CHECK(all->child_event != NULL && all->timer != NULL);
    CHECK(event_add(all->child_event, NULL) == 0);
    all->sweep_at = mono_after(clock_mono(), POOL_SWEEP_US);
    if (geteuid() != 0) {
        log_info("not root: all agents run with user id %u, despite user= of clauses",
                 (unsigned)geteuid());
    }
    return EX_OK;
}

struct look {
    const struct agents *all;
    struct buf start;
};

static void look_spec(void *arg, struct slice channel, struct slice host,
                      struct agent_spec *ret_spec)
{
    struct look *look = arg;
    struct policy policy;

    policy_for(look->all->role->conf, channel, host, &policy);
    make_spec(look->all, &policy, channel, host, &look->start, ret_spec);
}

static void agents_reload(struct role *role, const struct conf *old)
{
    struct agents *all = role->state;
    struct look look = {.all = all};

    (void)old;
    configure(all);
    buf_init(&look.start, SPEC_MAX);
    agent_pool_reload(all->pool, look_spec, &look);
    buf_fini(&look.start);
    all->sweep_at = clock_mono(); /* ends agents that are no longer needed */
}

static void agents_clock_moved(struct role *role)
{
    struct agents *all = role->state;

    all->sweep_at = clock_mono();
}

static void end_early(void *arg, void *owner)
{
    struct agents *all = arg;
    struct agent_job *job = owner;

    if (job->place.thread != NULL) {
        agent_pool_remove(all->pool, &job->place);
        agent_job_give_back(job, false);
    }
}

/* Returns waiting jobs; running agents may end by themselves. */
static void agents_stop(struct role *role)
{
    struct agents *all = role->state;
    struct agent_process *a;

    worker_stop(&all->worker, role->stop_how == STOP_QUIT ? role->conf->daemon_timeout_us
                                                          : role->conf->shutdown_timeout_us);
    assignments_each(&all->assignments, end_early, all);
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        if (role->stop_how == STOP_QUIT) {
            agent_quit(a);
        } else {
            agent_tell_end(a);
        }
    }
}

/* Leaves the agents alone. Their deliveries may have taken effect already, and a killed agent could
 * not mark that. At the end of their input they mark the control files and end. Until then their
 * locks keep other agents away. */
static void leave_all(struct agents *all)
{
    struct agent_process *a;

    while ((a = TAILQ_FIRST(&all->all)) != NULL) {
        agent_leave(a);
    }
}

static void stop_if_done(struct agents *all, struct mono now)
{
    if (mono_reached(all->worker.stop_at, now)) {
        leave_all(all);
    } else if (!TAILQ_EMPTY(&all->all)) {
        return;
    }
    worker_exit(&all->worker);
}

static void agents_turn(struct role *role)
{
    struct agents *all = role->state;
    struct mono now = clock_mono();
    struct agent_process *a;

    if (mono_reached(all->sweep_at, now)) {
        look_around(all, now);
    }
    work(all);
    while ((a = TAILQ_FIRST(&all->changed)) != NULL) {
        agent_report(a, false);
    }
    if (role->stopping) {
        stop_if_done(all, now);
    }
    worker_tick(&all->worker, false);
    arm(all, now);
}

static void agents_end(struct role *role)
{
    struct agents *all = role->state;

    leave_all(all);
    worker_fini(&all->worker);
    agent_pool_free(all->pool);
    agent_stops_fini(&all->stops);
    event_free(all->child_event);
    event_free(all->timer);
    mem_free(all);
}

/* Returns the number of processes: transport agents need a postoffice. */
static unsigned agents_count(const struct conf *conf)
{
    return conf_postoffice(conf) != NULL ? 1 : 0;
}

const struct role_ops agents_role = {
    .role = ROLE_AGENTS,
    .program = "scheduler",
    .kind = ROLE_WORKS,
    .count = agents_count,
    .start = agents_start,
    .peer = agents_peer,
    .reload = agents_reload,
    .stop = agents_stop,
    .clock_moved = agents_clock_moved,
    .turn = agents_turn,
    .end = agents_end,
};
