#include "queue.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "log.h"
#include "mem.h"
#include "operation.h"
#include "policy.h"
#include "queue_decide.h"
#include "queue_handover.h"
#include "queue_result.h"
#include "queue_retry.h"
#include "send_limit.h"
#include "spool_commits.h"
#include "spool_external.h"

/* Number of destinations that a check examines for metrics. */
#define BUSIEST_PER_CHECK 1000

/* File in the state directory, for a spool that has no place for notes and events. */
#define SIDE_STORE "side.db"

/* Wait for commits in flight when the process ends. The turns before have already waited up to
 * shutdown_timeout. */
#define END_WAIT_US (2 * US_PER_S)

_Static_assert(ACTIVE_KEEP_MAX <= WIRE_CONTENT_MAX, "content that is kept travels in frames");
_Static_assert(ACTIVE_KEEP_MAX <= SPOOL_INLINE_MAX, "the spool has its own limit");

/* ---- messages in the scheduler -------------------------------------------------------------- */

void queue_drop(struct queue *q, struct msg_id id)
{
    struct active_msg *m = active_find(&q->active, id);

    if (m != NULL && !active_is_dropped(m)) {
        active_drop(m);
        (void)sched_drop(q->sched, clock_mono(), (struct sched_msg){id.n}); /* pass_open checks */
        pass_read_drop(q, m);
    }
}

void queue_at_hand(struct queue *q)
{
    import_now(&q->import);
    pass_reads_at_hand(q);
    park_at_hand(q);
    q->interventions.awaits = false;
    batch_at_hand(q);
    agents_at_hand(q);
    operations_at_hand(q);
    queue_clock_at_hand(&q->clock);
}

void queue_leave(struct queue *q, struct msg_id id)
{
    struct active_msg *m = active_find(&q->active, id);

    if (m != NULL) {
        active_leave(m);
        /* Returns false if the message waits for its commit or has ended; pass_open and pass_finish
         * check. */
        (void)sched_drop(q->sched, clock_mono(), (struct sched_msg){id.n});
        pass_read_drop(q, m);
    }
}

void queue_lose(struct queue *q, struct msg_id id)
{
    struct active_msg *m = active_find(&q->active, id);

    if (m != NULL) {
        m->is_lost = true;
    }
    queue_drop(q, id);
    batch_drop(q, id);
}

void queue_lose_unclaimed(struct queue *q)
{
    struct active_msg *m, *next;

    HASH_ITER(hh, q->active.msgs, m, next)
    {
        if (!m->is_lost && !spool_is_claimed(q->spool, m->id)) {
            queue_lose(q, m->id);
        }
    }
}

/* ---- control -------------------------------------------------------------------------------- */

static void on_control(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct wire_ask ask;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* control sends none */
        }
        if (frame.type != WIRE_ASK || !wire_get_ask(frame.body, &ask)) {
            log_error("control sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
        operations_answer(q, &ask);
    }
    if (event == CHANNEL_CLOSED) {
        tls_questions_drop(&q->tls_questions);
        channel_free(ch);
        q->control = NULL;
        watches_drop(q);
        inquiries_drop(q);
    }
}

/* ---- a turn --------------------------------------------------------------------------------- */

static void check_now_and_then(struct queue *q)
{
    if (!mono_reached(q->next_check, clock_mono())) {
        return;
    }
    q->next_check = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
    if (!q->clients.commits_work) {
        batch_redo(q);
        if (!batch_is_blocked(&q->batch) && !batch_is_late(&q->batch) && !q->clients.commits_work) {
            clients_storage(&q->clients, true); /* the next submission finds out */
        }
    }
    agents_check(q);
    damage_try_again(q);
    (void)unstored_sync(q, true); /* failures are logged */
    busiest_step(&q->busiest, q->sched, BUSIEST_PER_CHECK);
    queue_flow_update(q);
    if (q->clients.flow.storage_ok && q->clients.flow.space_ok) {
        journal_storage_works(q);
    }
}

/* Returns the time until `t`; 0 if `t` has passed. */
static int64_t until(struct wall t)
{
    int64_t wait = t.us == US_FOREVER ? US_FOREVER : t.us - clock_wall().us;

    return wait > 0 ? wait : 0;
}

static void set_timer(struct queue *q, bool at_once)
{
    bool blocked = batch_is_blocked(&q->batch); /* nothing can start: do not wake for it */
    struct mono held = pass_held_until(q);
    struct mono at = blocked || !node_lease_holds(&q->lease)
                         ? q->next_check
                         : mono_min(held.us != 0 ? held : sched_wake_at(q->sched), q->next_check);
    int64_t wait;
    struct timeval tv;

    if (!blocked && !q->role->stopping && import_has_place(q)) {
        at = mono_min(at, mono_after(clock_mono(), until(import_at(&q->import))));
    }
    if (!blocked && !q->role->stopping) {
        at = mono_min(at, park_ageing_at(&q->parking));
    }
    if (!q->role->stopping) {
        at = mono_min(at, mono_after(clock_mono(), until(interventions_at(&q->interventions))));
        at = mono_min(
            at, mono_after(clock_mono(), until(dest_retries_check_at(&q->destinations.retries))));
        if (!spool_dirty(q->spool)) {
            at = mono_min(at, mono_after(clock_mono(), until(external_at(&q->external))));
        }
    }
    at = mono_min(at, batch_wake_at(q));
    if (q->commit_ended != NULL) {
        CHECK(event_add(q->commit_ended, NULL) == 0); /* once: the turn then reads the result */
    }
    at = mono_min(at, policies_wake_at(&q->policies));
    at = mono_min(at, inquiries_wake_at(q));
    at = mono_min(at, operations_wake_at(q));
    at = mono_min(at, journal_wake_at(q));
    wait = at.us - clock_mono().us;
    if (at_once || wait < 0) {
        wait = 0;
    }
    tv.tv_sec = (time_t)(wait / US_PER_S);
    tv.tv_usec = (suseconds_t)(wait % US_PER_S);
    CHECK(event_add(q->timer, &tv) == 0);
}

static void on_commit_ended(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the next turn reads the result */
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the next turn does what is due */
}

static bool stop_turn(struct queue *q)
{
    bool done =
        HASH_COUNT(q->active.deliveries) == 0 && !batch_is_blocked(&q->batch) && batch_is_idle(q);

    if (!done && !mono_reached(q->stop_at, clock_mono())) {
        return false;
    }
    if (HASH_COUNT(q->active.deliveries) > 0) {
        log_warning("shutdown_timeout: %u deliveries have not ended; their mail is tried again "
                    "after the start",
                    HASH_COUNT(q->active.deliveries));
    }
    role_exit(q->role, 0);
    return true;
}

/* Stops the daemon on a spool that serves a selection of messages, when no more can be done for
 * them now. */
static void end_single_pass(struct queue *q)
{
    if (!spool_single_pass(q->spool) || !external_has_looked(&q->external) || q->pass_ended ||
        HASH_COUNT(q->active.msgs) > 0 || !batch_is_idle(q) || batch_is_blocked(&q->batch) ||
        import_is_due(&q->import)) {
        return;
    }
    q->pass_ended = true;
    wire_put_empty(q->role->parent, WIRE_STOP_ALL);
}

/* Commits what was applied, then calls what needs a spool without an open batch. */
static void commit(struct queue *q)
{
    bool is_idle = !spool_dirty(q->spool);

    if (q->commit_ended != NULL) {
        spool_commits_turn(q->spool);
        external_tell(q);
        queue_take_over(q);
        node_lease_turn(q); /* the lease may have been renewed or lost */
    }
    batch_turn(q);
    operations_turn(q);
    inquiries_turn(q);
    external_turn(q);
    if (is_idle && !spool_dirty(q->spool)) {
        spool_tidy(q->spool);
    }
}

/* Brings mail into memory. Returns true if more can be brought in at once. */
static bool bring_in(struct queue *q)
{
    bool more = queue_clock_walk(q);

    more |= import_some(q);
    if (!batch_is_blocked(&q->batch) && !q->role->stopping) {
        more |= park_admit_some(q);
        more |= park_tell_some(q);
        park_age_some(q);
    }
    more |= flush_some(q);
    more |= interventions_turn(q);
    return more;
}

static void flush_logs(struct queue *q)
{
    for (unsigned i = 0; i < LOG_SINK_COUNT; i++) {
        log_sink_flush(&q->log_sinks[i]);
    }
}

/* Runs once after the events of the loop, which have applied what other processes sent. */
static void queue_turn(struct role *role)
{
    struct queue *q = role->state;
    bool more;

    q->deferred = 0;
    queue_clock_look(q);
    check_now_and_then(q);
    node_lease_turn(q);
    agents_turn(&q->agents);
    queue_decide(q); /* after events */
    journal_turn(q);
    commit(q);
    queue_retry_turn(q);
    more = bring_in(q);
    queue_decide(q); /* after the commit and new mail */
    auditor_step(q);
    policies_turn(q);
    clients_tell(&q->clients);
    flush_logs(q);
    if (role->stopping && stop_turn(q)) {
        return;
    }
    end_single_pass(q);
    set_timer(q, more || (!batch_is_blocked(&q->batch) && park_has_admissions(&q->parking)));
}

/* ---- the role ------------------------------------------------------------------------------- */

/* Opens the spool. After a daemon was killed, its queue process has the spool open until it has
 * stored its results; the wait is long enough for that. A running daemon keeps the spool open for
 * longer. */
static int open_spool(struct queue *q, const struct spool_options *options, struct buf *error)
{
    const struct timespec pause = {.tv_nsec = PREDECESSOR_LOOK_US * 1000};
    struct mono until = mono_after(clock_mono(), PREDECESSOR_WAIT_US);
    pid_t parent = getppid();
    bool told = false;
    int rc;

    for (;;) {
        rc = spool_open(q->conf->spool, SPOOL_OPEN_WRITE, options, error, &q->spool);
        clock_update();
        if (rc != -EBUSY || mono_reached(until, clock_mono()) || getppid() != parent) {
            return rc;
        }
        if (!told) {
            log_warning("%s: waiting for that process to end", buf_cstr(error));
            log_flush();
            told = true;
        }
        buf_clear(error);
        (void)nanosleep(&pause, NULL); /* interrupted: look earlier */
    }
}

static const char *ring_of(void *arg, struct slice transport, struct slice nexthop)
{
    const struct queue *q = arg;

    return policy_shared_ring(q->conf, transport, nexthop);
}

/* Has the parent ended? A start then stops early. */
static bool is_over(void *arg)
{
    const struct role *role = arg;

    return channel_is_deserted(role->parent);
}

static int queue_start(struct role *role)
{
    char side[PATH_MAX];
    struct queue *q = mem_new(sizeof *q);
    uint64_t inline_limit = (uint64_t)role->conf->spool_inline_limit;
    struct spool_options options = {
        .inline_limit = inline_limit < ACTIVE_KEEP_MAX ? inline_limit : ACTIVE_KEEP_MAX,
        .id_floor = (uint64_t)clock_wall().us,
        .conf = role->conf,
        .side = side,
        .is_over = is_over,
        .arg = role,
        .ring_of = ring_of,
        .ring_arg = q,
        .secret = role_file(role, slice_string(role->conf->spool_password_file))};
    struct sched_limits limits = tuning_limits(role->conf);
    struct buf error;
    int rc;

    (void)snprintf(side, sizeof side, "%s/" SIDE_STORE,
                   role->conf->state_directory); /* cut: it can't be opened and is not needed */
    role->state = q;
    q->role = role;
    q->conf = role->conf;
    batch_init(&q->batch);
    STAILQ_INIT(&q->questions);
    inquiries_init(&q->inquiries);
    flushes_init(&q->flushes);
    park_init(&q->parking);
    pass_reads_init(&q->reads);
    active_init(&q->active);
    auditor_init(&q->auditor);
    busiest_init(&q->busiest);
    for (unsigned i = 0; i < LOG_SINK_COUNT; i++) {
        log_sink_init(&q->log_sinks[i], (enum log_sink_id)i);
    }
    rng_init(&q->rng, entropy_u64());
    buf_init(&error, WIRE_TEXT_MAX);
    rc = open_spool(q, &options, &error);
    if (rc == -ECANCELED) {
        log_info("%s", buf_cstr(&error));
    } else if (rc != 0) {
        log_error("%s", error.failed ? role->conf->spool : buf_cstr(&error));
    }
    if (rc != 0) {
        buf_fini(&error);
        park_fini(&q->parking);
        mem_free(q);
        role->state = NULL;
        return rc == -EUCLEAN ? EX_DATAERR : 1; /* a restart would not help */
    }
    buf_fini(&error);
    if (!node_lease_begin(q)) {
        spool_close(q->spool);
        park_fini(&q->parking);
        mem_free(q);
        role->state = NULL;
        return 1;
    }
    queue_clock_begin(q);
    external_begin(q);
    q->started = clock_wall();
    destinations_init(&q->destinations);
    q->sched = sched_new(&limits);
    unstored_begin(q);
    journal_begin(q);
    hooks_begin(q);
    interventions_begin(q);
    transports_load(q);
    queue_hand_over(q);
    agents_begin(q);
    clients_init(&q->clients);
    q->send_counts = send_counts_new();
    policies_begin(q);
    tls_questions_init(&q->tls_questions);
    queue_flow_update(q);
    q->timer = event_new(role->base, -1, 0, on_timer, q);
    CHECK(q->timer != NULL);
    if (spool_commits_fd(q->spool) >= 0) {
        q->commit_ended =
            event_new(role->base, spool_commits_fd(q->spool), EV_READ, on_commit_ended, q);
        CHECK(q->commit_ended != NULL);
    }
    return 0;
}

static void queue_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct queue *q = role->state;

    switch (peer->role) {
    case ROLE_RECEIVE:
    case ROLE_PICKUP:
        if (clients_adopt(q, peer, fd)) {
            return;
        }
        break;
    case ROLE_DELIVER:
    case ROLE_LOCAL:
    case ROLE_AGENTS:
    case ROLE_FILTER:
        if (agents_adopt(q, peer, fd)) {
            return;
        }
        break;
    case ROLE_CONTROL:
        tls_questions_drop(&q->tls_questions);
        watches_drop(q);
        channel_free(q->control);
        operations_drop(q, false);
        inquiries_drop(q);
        q->control = channel_new(role->base, fd, on_control, q);
        return;
    case ROLE_FETCH:
        policies_adopt(q, fd);
        return;
    case ROLE_HOOK:
        hooks_adopt(q, fd);
        return;
    case ROLE_AUTH:
    case ROLE_WHATIF:
    case ROLE_RESOLVE:
    case ROLE_PARENT:
    case ROLE_QUEUE:
    case ROLE_COUNT:
        break;
    }
    log_error("too many processes, or one of an unknown kind");
    (void)close(fd); /* refused */
}

static bool queue_parent_frame(struct role *role, const struct frame *frame)
{
    struct queue *q = role->state;
    uint64_t log_sink;

    queue_clock_look(q);
    if (frame->type == WIRE_LOG_SINK) {
        if (!wire_get_number(frame->body, &log_sink) || log_sink >= LOG_SINK_COUNT ||
            frame->fd < 0) {
            return false;
        }
        log_sink_adopt(&q->log_sinks[log_sink], frame->fd);
        return true;
    }
    if (frame->type == WIRE_LOOK) {
        external_look(q);
        return wire_get_empty(frame->body) && frame->fd < 0;
    }
    return false;
}

static void queue_begin(struct role *role)
{
    struct queue *q = role->state;
    struct spool_totals totals;

    if (spool_totals(q->spool, &totals) == 0) {
        log_info("queue: %" PRIu64 " new, %" PRIu64 " deferred, %" PRIu64 " on hold, %" PRIu64
                 " corrupt",
                 totals.incoming, totals.deferred, totals.hold, totals.corrupt);
        if (totals.incoming > 0) {
            import_new_mail(&q->import);
        }
    }
    set_timer(q, true);
}

/* Takes all messages out of the scheduler. Deliveries in flight end as usual. */
static void leave_all(struct queue *q)
{
    struct active_msg *m, *next;

    HASH_ITER(hh, q->active.msgs, m, next)
    {
        queue_leave(q, m->id);
    }
}

void queue_reroute(struct queue *q)
{
    leave_all(q); /* to be claimed and routed again */
    if (!conf_spool_routes(q->conf)) {
        interventions_reroute(q);
    }
}

static void queue_reload(struct role *role, const struct conf *old)
{
    struct queue *q = role->state;
    struct sched_limits limits = tuning_limits(role->conf);

    if (strcmp(old->spool, role->conf->spool) != 0) {
        log_warning("spool: a change takes effect at the next start");
    }
    q->conf = role->conf;
    spool_set_secret(q->spool, role_file(role, slice_string(q->conf->spool_password_file)));
    batch_commit(q); /* messages in the batch were admitted under the old limits */
    sched_set_limits(q->sched, &limits);
    journal_reload(q);
    transports_load(q);
    destinations_reload(q);
    pass_classes_reload(q);
    spool_route_by(q->spool, q->conf->route_tables);
    if (old->route_generation != q->conf->route_generation) {
        queue_reroute(q);
    }
    queue_try_stuck(q);
    import_now(&q->import);
}

static void queue_stop(struct role *role)
{
    struct queue *q = role->state;

    struct delivery *d, *next;

    q->stop_at =
        mono_after(clock_mono(), role->stop_how == STOP_QUIT ? q->conf->daemon_timeout_us
                                                             : q->conf->shutdown_timeout_us);
    leave_all(q);
    HASH_ITER(hh, q->active.deliveries, d, next)
    {
        if (!d->sent) {
            queue_delivery_untried(q, d); /* its agent will not return */
        }
    }
    log_info("stopping: %u deliveries in flight", HASH_COUNT(q->active.deliveries));
    set_timer(q, true);
}

static void queue_clock_moved(struct role *role)
{
    struct queue *q = role->state;

    external_poll_soon(&q->external);
    import_now(&q->import);
    q->next_check.us = 0;
    set_timer(q, true);
}

static void queue_end(struct role *role)
{
    struct queue *q = role->state;

    /* The last turn may have added steps. batch_end logs those that are left. */
    (void)batch_drain(q, END_WAIT_US);
    batch_end(q);
    operations_drop(q, true);
    inquiries_fini(q);
    watches_drop(q);
    clients_fini(&q->clients);
    send_counts_free(q->send_counts);
    policies_end(q);
    interventions_end(q);
    hooks_end(q);
    journal_end(q);
    tls_questions_drop(&q->tls_questions);
    channel_free(q->control);
    flushes_fini(&q->flushes);
    park_fini(&q->parking);
    requested_fini(&q->requested);
    damage_fini(&q->damage);
    unstored_fini(&q->unstored);
    external_end(&q->external);
    active_fini(&q->active);
    agents_fini(&q->agents);
    auditor_fini(&q->auditor);
    busiest_fini(&q->busiest);
    for (unsigned i = 0; i < LOG_SINK_COUNT; i++) {
        log_sink_fini(&q->log_sinks[i]);
    }
    node_lease_fini(&q->lease);
    spool_close(q->spool); /* reads the facts to hand over */
    destinations_fini(&q->destinations);
    transports_fini(&q->transports);
    sched_free(q->sched);
    event_free(q->timer);
    if (q->commit_ended != NULL) {
        event_free(q->commit_ended);
    }
    mem_free(q);
}

const struct role_ops queue_role = {
    .role = ROLE_QUEUE,
    .program = "qmgr",
    .kind = ROLE_WORKS,
    .start = queue_start,
    .peer = queue_peer,
    .parent_frame = queue_parent_frame,
    .begin = queue_begin,
    .reload = queue_reload,
    .stop = queue_stop,
    .clock_moved = queue_clock_moved,
    .turn = queue_turn,
    .end = queue_end,
};
