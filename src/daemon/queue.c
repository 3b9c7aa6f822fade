#include "queue.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "log.h"
#include "mem.h"
#include "statedir.h"
#include "status.h"

/* Destinations looked at then for metrics. */
#define BUSIEST_PER_CHECK 1000
/* How often a full active queue is worth a line of log. */
#define FULL_WARNING_US (300 * US_PER_S)

_Static_assert(ACTIVE_KEEP_MAX <= WIRE_CONTENT_MAX, "content that is kept travels in frames");
_Static_assert(ACTIVE_KEEP_MAX <= SPOOL_INLINE_MAX, "the spool has its own limit");

/* ---- messages in the scheduler -------------------------------------------------------------- */

void queue_drop(struct queue *q, struct msg_id id)
{
    struct active_msg *m = active_find(&q->active, id);

    if (m != NULL && !m->dropped) {
        m->dropped = m->touched = true;
        (void)sched_drop(q->sched, clock_mono(), (struct sched_msg){id.n}); /* pass_open looks */
    }
}

void queue_leave(struct queue *q, struct msg_id id)
{
    struct active_msg *m = active_find(&q->active, id);

    if (m != NULL) {
        m->untried = true;
        /* False: it waits for its commit, or has ended; pass_open and end_pass know. */
        (void)sched_drop(q->sched, clock_mono(), (struct sched_msg){id.n});
    }
}

/* ---- transports ----------------------------------------------------------------------------- */

static uint32_t transport_set(struct queue *q, const char *name, const struct policy *p)
{
    struct sched_transport_policy policy = tuning_transport(q->conf, p);
    uint32_t index = sched_transport(q->sched, clock_mono(), name, &policy);

    if (index >= q->transport_count) {
        q->transports = mem_resize(q->transports, index + 1, sizeof *q->transports);
        q->transport_agents =
            mem_resize(q->transport_agents, index + 1, sizeof *q->transport_agents);
        for (uint32_t j = q->transport_count; j <= index; j++) {
            q->transports[j] = NULL;
        }
        q->transport_count = index + 1;
    }
    if (q->transports[index] == NULL) {
        q->transports[index] = mem_string(name);
    }
    q->transport_agents[index] = (enum conf_agent)p->agent;
    return index;
}

static void transports_load(struct queue *q)
{
    size_t count = conf_transport_count(q->conf);
    struct policy policy;

    for (size_t i = 0; i < count; i++) {
        const struct conf_transport *t = conf_transport_at(q->conf, i);

        (void)transport_set(q, t->name, &t->policy);
    }
    for (uint32_t i = 0; conf_postoffice(q->conf) != NULL && i < q->transport_count; i++) {
        struct slice name = slice_string(q->transports[i]);

        if (conf_transport_find(q->conf, name) == NULL) {
            policy_for(q->conf, name, slice_of("", 0), &policy);
            (void)transport_set(q, q->transports[i], &policy);
        }
    }
}

bool queue_transport_need(struct queue *q, const char *name, uint32_t *ret_index)
{
    struct policy policy;

    for (uint32_t i = 0; i < q->transport_count; i++) {
        if (q->transports[i] != NULL && strcmp(q->transports[i], name) == 0) {
            *ret_index = i;
            return true;
        }
    }
    if (q->transport_count >= SCHED_TRANSPORTS_MAX) {
        return false;
    }
    policy_for(q->conf, slice_string(name), slice_of("", 0), &policy);
    *ret_index = transport_set(q, name, &policy);
    return true;
}

uint32_t queue_transport(struct queue *q, const char *name)
{
    uint32_t error = 0;

    for (uint32_t i = 0; i < q->transport_count; i++) {
        if (q->transports[i] != NULL && strcmp(q->transports[i], name) == 0) {
            return i;
        }
        if (q->transports[i] != NULL && strcmp(q->transports[i], "error") == 0) {
            error = i;
        }
    }
    return error;
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
        ask_answer(q, ch, &ask);
    }
    if (event == CHANNEL_CLOSED) {
        channel_free(ch);
        q->control = NULL;
    }
}

/* ---- decisions ------------------------------------------------------------------------------ */

/* The key to park a message under all of which waits for one thread, or NULL. Taken by the caller.
 */
static char *take_again(struct active_msg *m)
{
    char *key = m->again_several || m->again_else ? NULL : m->again_key;

    if (key != NULL) {
        m->again_key = NULL;
    }
    return key;
}

/* Nothing of the message is in the scheduler any more. `parked`: the key it is to wait under, which
 * is taken, or NULL. */
static void end_pass(struct queue *q, struct active_msg *m, char *parked)
{
    struct step *step;

    if (m->unreadable && !damage_is_hidden(q, m->id)) {
        damage_hide(q, m->id, "its recipients can't be read", true);
    }
    if (damage_is_hidden(q, m->id)) {
        mem_free(parked);
        active_remove(&q->active, m); /* it stays claimed */
        return;
    }
    if (m->ended || (m->untried && !m->touched)) {
        if (!m->ended) {
            spool_unclaim(q->spool, m->id); /* it is as it was */
            q->next_due.us = 0;
        }
        mem_free(parked);
        active_remove(&q->active, m);
        return;
    }
    if (parked == NULL) {
        parked = take_again(m);
    }
    step = mem_new(sizeof *step);
    step->type = STEP_END_PASS;
    step->id = m->id;
    step->again_at = m->again_at;
    step->again_else = m->again_else;
    step->own_expiry = m->again_at.us != 0 && !m->lifetime_of_all;
    step->how = m->dropped       ? PASS_DROPPED
                : m->untried     ? PASS_UNTRIED
                : parked != NULL ? PASS_PARKED
                                 : PASS_TRIED;
    step->parked = parked;
    active_remove(&q->active, m);
    queue_step(q, step);
}

/* The message has recipients that wait for a dead destination: when nothing of it waits for
 * anything else it is parked, to go on as soon as the destination is well. */
static void note_suspended(struct queue *q, struct active_msg *m, const struct sched_action *action)
{
    char *key;

    if (action->dest.len == 0) { /* the transport is dead */
        m->deferred_else = true;
        return;
    }
    key = park_key(q, action->transport, action->dest, slice_string(m->lane));
    if (m->suspended_for == NULL) {
        m->suspended_for = key;
        return;
    }
    m->deferred_else = m->deferred_else || strcmp(key, m->suspended_for) != 0;
    mem_free(key);
}

/* The key to park a message under whose pass is over, or NULL. Taken by the caller. */
static char *take_suspended(struct active_msg *m)
{
    char *key = m->deferred_else ? NULL : m->suspended_for;

    if (key != NULL) {
        m->suspended_for = NULL;
    }
    return key;
}

static void defer_unattempted(struct queue *q, const struct sched_action *action)
{
    struct active_msg *m = active_find(&q->active, (struct msg_id){action->msg.n});
    struct queue_verdict v = {.kind = VERDICT_DEFERRED,
                              .status = SLICE("4.0.0"),
                              .relay = SLICE("none"),
                              .suspended = true,
                              .program = "error"};
    struct slice reason = action->reason;
    struct status status;
    struct buf text;
    size_t len;

    CHECK(m != NULL);
    if (queue_thread_defers(q, m, action)) {
        return;
    }
    if (status_prefix(reason, &status, &len)) {
        v.status = slice_of(reason.ptr, len);
        reason = slice_trim(slice_skip(reason, len));
    }
    note_suspended(q, m, action);
    buf_init(&text, WIRE_TEXT_MAX + 64);
    (void)buf_addf(&text, "delivery temporarily suspended: %.*s", SLICE_ARGS(reason)); /* fits */
    v.text = buf_slice(&text);
    for (size_t i = 0; i < action->rcpt_count; i++) {
        queue_settle(q, m, action->rcpts[i], &v);
    }
    buf_fini(&text);
}

static void remember_step(struct queue *q, const struct sched_action *a, uint32_t before,
                          uint32_t after, enum history_why why)
{
    history_add_step(
        &q->history, a->transport, a->dest,
        (struct history_step){.at = clock_wall(), .before = before, .after = after, .why = why});
}

static void destination_died(struct queue *q, const struct sched_action *a)
{
    remember_step(q, a, a->window, 0, HISTORY_DEAD);
    log_warning("%s/%.*s: destination is dead, no delivery for %" PRId64
                " s, its window was %" PRIu32 ": %.*s",
                q->transports[a->transport], SLICE_ARGS(a->dest),
                us_seconds(a->until.us - clock_mono().us), a->window, SLICE_ARGS(a->reason));
}

static void destination_probed(struct queue *q, const struct sched_action *a)
{
    remember_step(q, a, 0, 1, HISTORY_PROBED);
    log_info("%s/%.*s: destination is tried again with one delivery", q->transports[a->transport],
             SLICE_ARGS(a->dest));
}

static void destination_revived(struct queue *q, const struct sched_action *a)
{
    remember_step(q, a, 0, a->window, HISTORY_REVIVED);
    log_info("%s/%.*s: destination is alive, window %" PRIu32, q->transports[a->transport],
             SLICE_ARGS(a->dest), a->window);
}

static void pull_decisions(struct queue *q)
{
    struct sched_action action;

    /* While results wait to be stored nothing new starts. While stopping nothing is left to start,
     * see queue_stop. */
    while (STAILQ_EMPTY(&q->redo) && sched_next(q->sched, clock_mono(), &action) != SCHED_NONE) {
        struct active_msg *m = active_find(&q->active, (struct msg_id){action.msg.n});

        q->decided++;
        switch (action.type) {
        case SCHED_NONE:
            UNREACHABLE("the loop has ended");
        case SCHED_DELIVER:
            queue_deliver(q, &action);
            break;
        case SCHED_READ:
            CHECK(m != NULL);
            pass_read(q, m, action.max);
            break;
        case SCHED_DEFER:
            defer_unattempted(q, &action);
            break;
        case SCHED_DONE:
            CHECK(m != NULL);
            end_pass(q, m, take_suspended(m));
            break;
        case SCHED_PARK:
            CHECK(m != NULL);
            end_pass(q, m, park_key(q, action.transport, action.dest, action.class_name));
            break;
        case SCHED_ADMIT:
            park_admit(q, &action);
            break;
        case SCHED_DEST_DEAD:
            destination_died(q, &action);
            break;
        case SCHED_DEST_PROBED:
            destination_probed(q, &action);
            break;
        case SCHED_DEST_REVIVED:
            destination_revived(q, &action);
            break;
        }
    }
}

static bool has_place(const struct queue *q)
{
    return sched_has_room(q->sched) && pass_has_place(q);
}

/* Bring messages from the spool into memory, new and deferred mail in turn. True when there may be
 * more right now. */
static bool import(struct queue *q)
{
    static const enum spool_state from[2] = {SPOOL_INCOMING, SPOOL_DEFERRED};
    size_t imports = 0, idle = 0;

    if (!STAILQ_EMPTY(&q->redo) || q->role->stopping || queue_clock_is_walking(q) ||
        clock_wall().us < q->next_due.us || (q->conf->read_queue_first && !q->looked)) {
        return false;
    }
    while (imports < QUEUE_IMPORTS_PER_TURN && idle < 2 && has_place(q)) {
        unsigned which = q->import_deferred ? 1 : 0;
        struct msg_id id;
        size_t count = 0;
        int rc = spool_claim(q->spool, from[which], clock_wall(), 1, &id, &count);

        if (rc != 0) {
            log_warning("spool: %s", spool_error(q->spool));
            q->next_due = wall_after(clock_wall(), QUEUE_CHECK_PERIOD_US);
            return false;
        }
        q->import_deferred = !q->import_deferred;
        if (count == 0) {
            idle++;
            if (which == 0) {
                q->incoming_waits = false;
            }
        } else {
            idle = 0;
            imports++;
            q->imported++;
            if (pass_load(q, id, false)) {
                pull_decisions(q); /* to read it: the next one must find its share counted */
            }
        }
    }
    if (idle < 2) {
        if (!has_place(q)) {
            q->import_deferred = false; /* the next free place goes to new mail */
            if (mono_reached(q->next_full_warning, clock_mono())) {
                log_warning("qmgr_message_active_limit: %" PRId64
                            " messages are active, more mail waits on disk",
                            q->conf->qmgr_message_active_limit);
                q->next_full_warning = mono_after(clock_mono(), FULL_WARNING_US);
            }
            return false;
        }
        return true;
    }
    if (spool_next_due(q->spool, &q->next_due) != 0) {
        q->next_due = wall_after(clock_wall(), QUEUE_CHECK_PERIOD_US);
    }
    return false;
}

static void check_now_and_then(struct queue *q)
{
    if (!mono_reached(q->next_check, clock_mono())) {
        return;
    }
    q->next_check = mono_after(clock_mono(), QUEUE_CHECK_PERIOD_US);
    if (!q->flow.storage_ok) {
        queue_redo(q);
        if (STAILQ_EMPTY(&q->redo) && !q->flow.storage_ok) {
            q->flow.storage_ok = true; /* nothing waits: the next submission will tell */
            q->flow_sent = false;
        }
    }
    for (unsigned i = 0; i < q->agent_count; i++) {
        struct agent *agent = &q->agents[i];
        if (agent->channel == NULL &&
            mono_reached(mono_after(agent->lost, QUEUE_AGENT_WAIT_US), clock_mono())) {
            queue_serve_waiting(q, agent);
        }
    }
    damage_try_again(q);
    busiest_step(&q->busiest, q->sched, BUSIEST_PER_CHECK);
    queue_flow_update(q);
}

/* How long until then; 0 when it is past. */
static int64_t until(struct wall t)
{
    int64_t wait = t.us == US_FOREVER ? US_FOREVER : t.us - clock_wall().us;

    return wait > 0 ? wait : 0;
}

static void set_timer(struct queue *q, bool at_once)
{
    bool blocked = !STAILQ_EMPTY(&q->redo); /* nothing starts: what is due must not wake us */
    struct mono at = blocked ? q->next_check : mono_min(sched_wake_at(q->sched), q->next_check);
    int64_t wait;
    struct timeval tv;

    if (!blocked && !q->role->stopping && sched_has_room(q->sched)) {
        at = mono_min(at, mono_after(clock_mono(), until(q->next_due)));
    }
    if (!q->role->stopping) {
        at = mono_min(at, mono_after(clock_mono(), until(threads_check_at(&q->threads))));
        if (!spool_dirty(q->spool)) {
            at = mono_min(at, mono_after(clock_mono(), until(q->poll_at)));
        }
    }
    if (spool_dirty(q->spool)) {
        at = mono_min(at, q->commit_by.us != 0 ? q->commit_by : clock_mono());
    }
    wait = at.us - clock_mono().us;
    if (at_once || wait < 0) {
        wait = 0;
    }
    tv.tv_sec = (time_t)(wait / US_PER_S);
    tv.tv_usec = (suseconds_t)(wait % US_PER_S);
    CHECK(event_add(q->timer, &tv) == 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the turn that follows does what is due */
}

static bool stop_turn(struct queue *q)
{
    bool done = HASH_COUNT(q->active.flights) == 0 && STAILQ_EMPTY(&q->redo);

    if (!done && !mono_reached(q->stop_at, clock_mono())) {
        return false;
    }
    if (HASH_COUNT(q->active.flights) > 0) {
        log_warning("shutdown_timeout: %u deliveries have not ended; their mail is tried again "
                    "after the start",
                    HASH_COUNT(q->active.flights));
    }
    role_exit(q->role, 0);
    return true;
}

/* Nobody waits for the commit of results; the mail is where it was to go. So they wait, for a
 * moment, for a submission whose sync they can share. In between a crash would only repeat them. */
static bool commit_may_wait(struct queue *q)
{
    struct step *step;

    if (q->role->stopping || !spool_dirty(q->spool) || q->next_due.us <= clock_wall().us) {
        return false;
    }
    STAILQ_FOREACH(step, &q->batch, next)
    {
        if (step->type == STEP_SUBMIT) {
            return false;
        }
    }
    if (q->commit_by.us == 0) {
        q->commit_by = mono_after(clock_mono(), QUEUE_COMMIT_WAIT_US);
    }
    return !mono_reached(q->commit_by, clock_mono());
}

/* Where only some control files are to be seen to, that is all when nothing can be done for them
 * now. */
static void end_single_pass(struct queue *q)
{
    if (q->conf->postoffice_files.count == 0 || !q->looked || q->pass_ended ||
        HASH_COUNT(q->active.msgs) > 0 || spool_dirty(q->spool) || !STAILQ_EMPTY(&q->redo) ||
        q->next_due.us <= clock_wall().us) {
        return;
    }
    q->pass_ended = true;
    wire_put_empty(q->role->parent, WIRE_STOP_ALL);
}

static void queue_turn(struct role *role)
{
    struct queue *q = role->state;
    bool more, idle;

    queue_clock_look(q);
    check_now_and_then(q);
    pull_decisions(q);
    idle = !spool_dirty(q->spool);
    if (!commit_may_wait(q)) {
        (void)commit_now(q); /* the steps know what to do when it fails */
    }
    queue_news_turn(q);
    if (idle) {
        spool_tidy(q->spool);
    }
    queue_thread_turn(q);
    more = mono_reached(q->next_walk, clock_mono()) && queue_clock_walk(q);
    more |= import(q);
    if (STAILQ_EMPTY(&q->redo) && !role->stopping) {
        more |= park_admit_some(q);
        more |= park_tell_some(q);
    }
    more |= ask_flush_some(q);
    pull_decisions(q); /* what was committed or imported just now */
    auditor_step(q);
    queue_flow_send(q);
    for (unsigned i = 0; i < OUTLET_COUNT; i++) {
        outlet_flush(&q->outlets[i]);
    }
    if (role->stopping && stop_turn(q)) {
        return;
    }
    end_single_pass(q);
    set_timer(q, more || (STAILQ_EMPTY(&q->redo) && !STAILQ_EMPTY(&q->admissions)));
}

/* ---- the role ------------------------------------------------------------------------------- */

/* Open the spool. The queue process of a daemon that was killed holds it until it has stored what
 * it knows and has ended; a daemon that lives holds it for longer than we wait. */
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
        (void)nanosleep(&pause, NULL); /* when it ends early we look earlier */
    }
}

static int queue_start(struct role *role)
{
    struct queue *q = mem_new(sizeof *q);
    uint64_t inline_limit = (uint64_t)role->conf->spool_inline_limit;
    struct spool_options options = {
        .inline_limit = inline_limit < ACTIVE_KEEP_MAX ? inline_limit : ACTIVE_KEEP_MAX,
        .id_floor = (uint64_t)clock_wall().us};
    struct sched_limits limits = tuning_limits(role->conf);
    struct buf error;
    int rc;

    role->state = q;
    q->role = role;
    q->conf = role->conf;
    STAILQ_INIT(&q->batch);
    STAILQ_INIT(&q->redo);
    STAILQ_INIT(&q->flushes);
    park_begin(q);
    active_init(&q->active);
    history_init(&q->history);
    auditor_init(&q->auditor);
    busiest_init(&q->busiest);
    for (unsigned i = 0; i < OUTLET_COUNT; i++) {
        outlet_init(&q->outlets[i], (enum outlet_id)i);
    }
    rng_init(&q->rng, entropy_u64());
    buf_init(&error, WIRE_TEXT_MAX);
    queue_news_options(q, &options.postoffice);
    rc = open_spool(q, &options, &error);
    if (rc != 0) {
        log_error("%s", error.failed ? role->conf->spool : buf_cstr(&error));
        buf_fini(&error);
        park_end(q);
        queue_news_options_free(q);
        mem_free(q);
        role->state = NULL;
        return 1;
    }
    buf_fini(&error);
    queue_clock_begin(q);
    queue_news_begin(q);
    threads_init(&q->threads);
    q->started = clock_wall();
    q->sites_trim_at = QUEUE_SITES_MAX;
    q->sched = sched_new(&limits);
    transports_load(q);
    q->flow = (struct wire_flow){.storage_ok = true, .space_ok = true};
    queue_flow_update(q);
    q->timer = event_new(role->base, -1, 0, on_timer, q);
    CHECK(q->timer != NULL);
    return 0;
}

static void queue_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct queue *q = role->state;
    struct agent *agent = NULL;

    switch (peer->role) {
    case ROLE_RECEIVE:
    case ROLE_PARENT:
        for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
            if (q->clients[i] == NULL) {
                q->clients[i] = channel_new(role->base, fd, queue_on_client, q);
                q->flow_sent = false;
                return;
            }
        }
        break;
    case ROLE_DELIVER:
    case ROLE_LOCAL:
    case ROLE_AGENTS:
        for (unsigned i = 0; i < q->agent_count; i++) {
            if (q->agents[i].role == peer->role && q->agents[i].index == peer->index) {
                agent = &q->agents[i];
            }
        }
        if (agent == NULL && q->agent_count < QUEUE_AGENTS_MAX) {
            agent = &q->agents[q->agent_count++];
            *agent = (struct agent){.role = peer->role, .index = peer->index, .queue = q};
        }
        if (agent == NULL) {
            break;
        }
        if (agent->channel != NULL) {
            queue_agent_lost(q, agent);
        }
        if (peer->role == ROLE_DELIVER) {
            q->deliver_count = peer->count;
        }
        agent->channel = channel_new(role->base, fd, queue_on_agent, agent);
        queue_serve_waiting(q, agent);
        return;
    case ROLE_CONTROL:
        channel_free(q->control);
        q->control = channel_new(role->base, fd, on_control, q);
        return;
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
    uint64_t outlet;
    bool ok;

    queue_clock_look(q);
    if (frame->type == WIRE_OUTLET) {
        if (!wire_get_number(frame->body, &outlet) || outlet >= OUTLET_COUNT || frame->fd < 0) {
            return false;
        }
        outlet_adopt(&q->outlets[outlet], frame->fd);
        return true;
    }
    if (frame->type == WIRE_LOOK) {
        queue_news_look(q);
        return wire_get_empty(frame->body) && frame->fd < 0;
    }
    ok = queue_client_frame(q, role->parent, frame); /* pickup submits over the parent's channel */

    if (frame->fd >= 0) {
        (void)close(frame->fd); /* as in queue_on_client */
    }
    return ok;
}

static void queue_begin(struct role *role)
{
    struct queue *q = role->state;
    struct spool_totals totals;

    if (spool_totals(q->spool, &totals) == 0) {
        log_info("queue: %" PRIu64 " new, %" PRIu64 " deferred, %" PRIu64 " on hold, %" PRIu64
                 " corrupt",
                 totals.incoming, totals.deferred, totals.hold, totals.corrupt);
        q->incoming_waits = totals.incoming > 0;
    }
    set_timer(q, true);
}

/* Take everything out of the scheduler: what is being delivered ends as usual. */
static void leave_all(struct queue *q)
{
    struct active_msg *m, *next;

    HASH_ITER(hh, q->active.msgs, m, next)
    {
        queue_leave(q, m->id);
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
    (void)commit_now(q); /* what waits for its commit was admitted under the old limits */
    sched_set_limits(q->sched, &limits);
    transports_load(q);
    pass_sites_reload(q);
    pass_classes_reload(q);
    if (old->route_generation != q->conf->route_generation) {
        leave_all(q); /* to be claimed again and routed anew */
    }
    queue_try_stuck(q);
    q->next_due.us = 0;
}

static void queue_stop(struct role *role)
{
    struct queue *q = role->state;

    struct flight *f, *next;

    q->stop_at =
        mono_after(clock_mono(), role->stop_how == STOP_QUIT ? q->conf->daemon_timeout_us
                                                             : q->conf->shutdown_timeout_us);
    leave_all(q);
    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (!f->sent) {
            queue_flight_untried(q, f); /* its agent will not come back */
        }
    }
    log_info("stopping: %u deliveries in flight", HASH_COUNT(q->active.flights));
    set_timer(q, true);
}

static void queue_clock_moved(struct role *role)
{
    struct queue *q = role->state;

    q->poll_at.us = 0;
    q->next_due.us = 0;
    q->next_check.us = 0;
    set_timer(q, true);
}

static void queue_end(struct role *role)
{
    struct queue *q = role->state;
    struct step *step;

    (void)commit_now(
        q); /* it says itself what fails; the last turn's decisions may have made steps */
    for (unsigned i = 0; i < q->agent_count; i++) {
        channel_free(q->agents[i].channel);
    }
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        channel_free(q->clients[i]);
    }
    channel_free(q->control);
    if (!STAILQ_EMPTY(&q->redo)) {
        log_error("results could not be stored: some mail will be delivered again");
    }
    while ((step = STAILQ_FIRST(&q->redo)) != NULL) {
        STAILQ_REMOVE_HEAD(&q->redo, next);
        queue_step_free(step);
    }
    ask_end(q);
    park_end(q);
    pass_wanted_free(q);
    damage_end(q);
    pass_sites_free(q);
    threads_fini(&q->threads);
    queue_news_end(q);
    active_fini(&q->active);
    agent_table_clear(&q->agent_table);
    history_fini(&q->history);
    auditor_fini(&q->auditor);
    busiest_fini(&q->busiest);
    for (unsigned i = 0; i < OUTLET_COUNT; i++) {
        outlet_fini(&q->outlets[i]);
    }
    for (uint32_t i = 0; i < q->transport_count; i++) {
        mem_free(q->transports[i]);
    }
    mem_free(q->transports);
    mem_free(q->transport_agents);
    sched_free(q->sched);
    spool_close(q->spool);
    queue_news_options_free(q);
    event_free(q->timer);
    mem_free(q);
}

const struct role_ops queue_role = {
    .role = ROLE_QUEUE,
    .program = "qmgr",
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
