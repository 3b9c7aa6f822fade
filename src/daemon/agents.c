#include "agents.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "ta_command.h"

/* Descriptors for all that is not an agent. */
#define SPARE_FILES 30
/* idlemax of a clause without an interval. */
#define IDLE_US    (180 * US_PER_S)
#define RECIPE_MAX WIRE_FILE_MAX /* a line of a configuration can be all of it */

/* ---- jobs ------------------------------------------------------------------------------------ */

/* All that makes one agent different from another, but for its host. */
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
        (void)buf_add(out, buf_slice(&command.bytes)); /* variables of the ZENV file */
    }
    ta_command_fini(&command);
}

/* The policy's recipe for the crew; `start` becomes what ret_recipe->start points to. */
static void make_recipe(const struct agents *all, const struct policy *p, struct slice channel,
                        struct slice host, struct buf *start, struct crew_recipe *ret_recipe)
{
    buf_clear(start);
    describe_start(all->role->conf, p, channel, start);
    CHECK(!start->failed);
    *ret_recipe = (struct crew_recipe){
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

static struct channel *result_channel(const struct agents *all, const struct agent_job *job)
{
    return job->orphan ? NULL : all->worker.queue;
}

static void forget_job(struct agents *all, struct agent_job *job)
{
    if (!job->orphan) {
        HASH_DEL(all->jobs, job);
    }
}

void agents_finish_job(struct agents *all, struct agent_job *job, uint32_t pid, struct slice reason)
{
    if (job->orphan) {
        log_warning("%.*s: the queue was restarted during this delivery: it reads the control "
                    "file for what came of it",
                    SLICE_ARGS(job->entry->ask.id));
    }
    forget_job(all, job);
    agent_job_finish(job, result_channel(all, job), pid, reason);
}

/* Untried: because its thread was `stopped`, or because this process ends. */
static void give_back(struct agents *all, struct agent_job *job, bool stopped)
{
    forget_job(all, job);
    agent_job_give_back(job, result_channel(all, job), stopped);
}

void agents_return_waiting(struct agents *all, struct crew_thread *t, struct slice reason)
{
    for (size_t left = crew_thread_waiting(t); left > 0; left--) {
        struct agent_job *job = agent_job_at(crew_take(all->crew, t)); /* the last one may free t */

        if (reason.len == 0) {
            give_back(all, job, true);
        } else {
            job->thread_stops = true;
            agents_finish_job(all, job, 0, reason);
        }
    }
}

static void add_waiting(struct agents *all, struct agent_job *job)
{
    const struct wire_deliver *ask = &job->entry->ask;
    struct crew_recipe recipe;
    struct policy policy;
    struct buf start;

    policy_for(all->role->conf, ask->transport, ask->nexthop, &policy);
    job->overfeed = policy.overfeed > 0 ? (uint32_t)policy.overfeed : 0;
    buf_init(&start, RECIPE_MAX);
    make_recipe(all, &policy, ask->transport, ask->nexthop, &start, &recipe);
    crew_add(all->crew, &recipe, &job->place);
    buf_fini(&start);
}

/* Do what can be done for those that wait. */
static void work(struct agents *all)
{
    struct crew_action action;

    if (all->role->stopping) {
        return;
    }
    for (;;) {
        crew_next(all->crew, clock_mono(), &action);
        switch (action.type) {
        case CREW_NOTHING:
            return;
        case CREW_GIVE:
            agent_give(CONTAINER_OF(action.agent, struct agent, place), agent_job_at(action.job));
            break;
        case CREW_START:
            (void)agent_start(all, action.thread); /* the crew asks for no more when it fails */
            break;
        case CREW_END:
            agent_tell_end(CONTAINER_OF(action.agent, struct agent, place));
            break;
        case CREW_REFUSE: {
            struct slice why = crew_trouble(crew_thread_ring(action.thread));
            char *reason = mem_copy(why.ptr, why.len); /* the ring may go with its last thread */

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
    struct agent_job *job = agent_job_new(frame, &why);

    if (job == NULL) {
        return false;
    }
    HASH_ADD(hh, all->jobs, id, sizeof job->id, job);
    if (all->role->stopping) {
        give_back(all, job, false);
    } else if (why != NULL) {
        agents_finish_job(all, job, 0, slice_string(why));
    } else {
        add_waiting(all, job);
    }
    return true;
}

static bool on_frame(void *arg, const struct frame *frame)
{
    struct agents *all = arg;
    struct wire_forget forget;

    switch (frame->type) {
    case WIRE_DELIVER:
        return on_deliver(all, frame);
    case WIRE_FORGET: /* agents keep their connections as they like */
        return wire_get_forget(frame->body, &forget);
    default:
        return false;
    }
}

/* Queue is gone and reads the control files anew. What waits is forgotten; an agent finishes what
 * it has, and its marks in the files say what came of it. */
static void on_lost(void *arg)
{
    struct agents *all = arg;
    struct agent_job *job, *next;

    HASH_ITER(hh, all->jobs, job, next)
    {
        HASH_DEL(all->jobs, job);
        job->orphan = true;
        if (job->place.thread != NULL) {
            crew_remove(all->crew, &job->place);
            agent_job_free(job);
        }
    }
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

static void agents_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct agents *all = role->state;
    struct agent *a;

    worker_peer(&all->worker, peer, fd);
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        agent_report(a, false);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct agents *all = arg;
    struct agent *a;
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
    (void)arg; /* the turn that follows does the work */
}

static void look_around(struct agents *all, struct mono now)
{
    struct crew_agent *idle;
    struct agent *a;

    while ((idle = crew_sweep(all->crew, now)) != NULL) {
        agent_tell_end(CONTAINER_OF(idle, struct agent, place));
    }
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        agent_look(a, now);
    }
    all->sweep_at = mono_after(now, CREW_SWEEP_US);
}

static void arm(struct agents *all, struct mono now)
{
    struct mono at = mono_min(crew_wake_at(all->crew, now), all->sweep_at);
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

    crew_configure(all->crew, (uint32_t)conf->agent_start_rate, conf->agent_freeze);
}

/* How many agents the descriptors of this process are enough for. */
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
    all->crew = crew_new();
    all->places = count_places();
    TAILQ_INIT(&all->all);
    TAILQ_INIT(&all->changed);
    configure(all);
    all->child_event = evsignal_new(role->base, SIGCHLD, on_child, all);
    all->timer = evtimer_new(role->base, on_timer, all);
    CHECK(all->child_event != NULL && all->timer != NULL);
    CHECK(event_add(all->child_event, NULL) == 0);
    all->sweep_at = mono_after(clock_mono(), CREW_SWEEP_US);
    if (geteuid() != 0) {
        log_info("not root: all agents run with user id %u, whatever clauses say",
                 (unsigned)geteuid());
    }
    return EX_OK;
}

struct look {
    const struct agents *all;
    struct buf start;
};

static void look_recipe(void *arg, struct slice channel, struct slice host,
                        struct crew_recipe *ret_recipe)
{
    struct look *look = arg;
    struct policy policy;

    policy_for(look->all->role->conf, channel, host, &policy);
    make_recipe(look->all, &policy, channel, host, &look->start, ret_recipe);
}

static void agents_reload(struct role *role, const struct conf *old)
{
    struct agents *all = role->state;
    struct look look = {.all = all};

    (void)old;
    configure(all);
    buf_init(&look.start, RECIPE_MAX);
    crew_reload(all->crew, look_recipe, &look);
    buf_fini(&look.start);
    all->sweep_at = clock_mono(); /* agents that nobody needs any more end now */
}

static void agents_clock_moved(struct role *role)
{
    struct agents *all = role->state;

    all->sweep_at = clock_mono();
}

/* What waits goes back; what runs may end. */
static void agents_stop(struct role *role)
{
    struct agents *all = role->state;
    struct agent_job *job, *next;
    struct agent *a;

    worker_stop(&all->worker, role->stop_how == STOP_QUIT ? role->conf->daemon_timeout_us
                                                          : role->conf->shutdown_timeout_us);
    HASH_ITER(hh, all->jobs, job, next)
    {
        if (job->place.thread != NULL) {
            crew_remove(all->crew, &job->place);
            give_back(all, job, false);
        }
    }
    TAILQ_FOREACH(a, &all->all, in_all)
    {
        if (role->stop_how == STOP_QUIT) {
            agent_quit(a);
        } else {
            agent_tell_end(a);
        }
    }
}

/* What they are doing may be done in the world already: killed, they could not say so. They see the
 * end of their input, mark the control files when they are done, and end. Until then their marks
 * keep others away. */
static void leave_all(struct agents *all)
{
    struct agent *a;

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
    struct agent *a;

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
    crew_free(all->crew);
    event_free(all->child_event);
    event_free(all->timer);
    mem_free(all);
}

const struct role_ops agents_role = {
    .role = ROLE_AGENTS,
    .program = "scheduler",
    .start = agents_start,
    .peer = agents_peer,
    .reload = agents_reload,
    .stop = agents_stop,
    .clock_moved = agents_clock_moved,
    .turn = agents_turn,
    .end = agents_end,
};
