#include "queue_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "queue.h"
#include "queue_report.h"
#include "queue_result.h"

#define NO_PROCESS "the delivering process can't be started"

/* Returns the process for a destination: always the same one, so that it has the open
 * connections. */
static struct worker_process *agent_for(struct queue *q, enum wire_role role, const char *dest)
{
    unsigned wanted = role != ROLE_DELIVER || q->agents.deliver_count == 0
                          ? 0
                          : (unsigned)(hash_bytes(dest, strlen(dest)) % q->agents.deliver_count);

    for (unsigned i = 0; i < q->agents.count; i++) {
        struct worker_process *a = &q->agents.at[i];
        if (a->role == role && a->index == wanted) {
            return a;
        }
    }
    return NULL;
}

/* Returns true if a copy of the content is in memory and can be sent. */
static bool content_at_hand(struct active_msg *m, struct slice *ret_content, int *ret_fd)
{
    if (m->content == NULL) {
        return false;
    }
    if (m->content_fd >= 0) {
        *ret_fd = fcntl(m->content_fd, F_DUPFD_CLOEXEC, 0);
        if (*ret_fd < 0) {
            return false; /* no descriptor is left: the caller reads the content from the spool */
        }
    }
    *ret_content = slice_of(m->content, m->content_len);
    return true;
}

/* Puts the content of a delivery into the frame or a descriptor, or decides that the agent requests
 * it later (CONTENT_ON_DEMAND). Returns false if the content can't be read, or is not loaded yet
 * (*ret_place is CONTENT_ON_DEMAND). A message whose content differs from what was stored is
 * quarantined, and never delivered. */
static bool content_for(struct queue *q, struct delivery *f, bool on_demand_allowed,
                        struct buf *bytes, struct slice *ret_content, int *ret_fd,
                        enum wire_content_place *ret_place)
{
    struct active_msg *m = f->msg;
    /* A descriptor is shared: a further delivery needs no more memory. */
    bool is_shared = m->content_fd >= 0;
    uint64_t size;
    int rc;

    *ret_fd = -1;
    *ret_content = slice_of("", 0);
    if (on_demand_allowed && !is_shared && q->active.inline_bytes + m->size > QUEUE_INLINE_MAX &&
        q->active.inline_bytes > 0) {
        *ret_place = CONTENT_ON_DEMAND;
        return true;
    }
    if (!content_at_hand(m, ret_content, ret_fd)) {
        rc = spool_read_content(q->spool, m->id, bytes, ret_fd, &size);
        if (rc == -EAGAIN) {
            *ret_place = CONTENT_ON_DEMAND; /* loaded by then, perhaps */
            return on_demand_allowed;
        }
        if (rc != 0) {
            if (rc == -EBADMSG) {
                queue_quarantine(q, m->id, spool_error(q->spool));
            } else if (rc == -EUCLEAN || rc == -EIO) {
                damage_hide(q, m->id, spool_error(q->spool), true);
                queue_drop(q, m->id);
            } else {
                log_warning("%s: content can't be read: %s", m->id_text, spool_error(q->spool));
            }
            return false;
        }
        *ret_content = buf_slice(bytes);
        if (*ret_fd < 0) {
            active_keep_content(&q->active, m, *ret_content);
        } else if (wire_fd_is_sealed(*ret_fd,
                                     m->size)) { /* in memory: shared with other deliveries */
            active_keep_fd(&q->active, m, *ret_content, *ret_fd);
        }
    }
    *ret_place = *ret_fd >= 0 ? CONTENT_FD : CONTENT_INSIDE;
    f->inline_bytes = m->content_fd >= 0 ? ret_content->len : m->size;
    q->active.inline_bytes += f->inline_bytes;
    return true;
}

/* Sends content that the process has requested; if it is not loaded, agents_at_hand sends it
 * later. */
static void give_content(struct queue *q, struct worker_process *agent, struct delivery *f)
{
    struct wire_content content = {.entry = f->entry};
    enum wire_content_place place = CONTENT_NONE;
    struct buf bytes;
    int fd;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    content.ok = content_for(q, f, false, &bytes, &content.content, &fd, &place);
    f->awaits_content = !content.ok && place == CONTENT_ON_DEMAND;
    if (!f->awaits_content) {
        wire_put_content(agent->channel, &content, fd);
    }
    buf_fini(&bytes);
}

void agents_at_hand(struct queue *q)
{
    struct delivery *f, *next;

    HASH_ITER(hh, q->active.deliveries, f, next)
    {
        if (f->awaits_content && q->agents.at[f->agent].channel != NULL) {
            give_content(q, &q->agents.at[f->agent], f);
        }
    }
}

static void delivery_send(struct queue *q, struct delivery *f, struct worker_process *agent)
{
    struct active_msg *m = f->msg;
    struct wire_deliver_rcpt one, *rcpts = &one;
    struct wire_deliver frame;
    struct buf bytes;
    int fd;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    if (f->rcpt_count > 1) {
        rcpts = mem_array(f->rcpt_count, sizeof *rcpts);
    }
    for (size_t i = 0; i < f->rcpt_count; i++) {
        struct active_rcpt *r = active_find_rcpt(m, f->rcpts[i]);
        CHECK(r != NULL);
        rcpts[i] = (struct wire_deliver_rcpt){.n = r->n,
                                              .address = slice_string(r->address),
                                              .orcpt = slice_string(active_rcpt_orcpt(r)),
                                              .notify = r->notify};
    }
    frame = (struct wire_deliver){
        .entry = f->entry,
        .transport = slice_string(transport_name(&q->transports, f->transport)),
        .nexthop = slice_string(f->destination != NULL ? f->destination->nexthop : f->dest),
        .id = slice_string(m->id_text),
        .path = slice_string(m->path),
        .sender = slice_string(m->sender),
        .envid = slice_string(m->envid),
        .flags = m->flags,
        .arrived = queue_clock_for_others(q, m->arrived),
        .cache_load = f->cache_load,
        .cache_store = f->cache_store,
        .rcpts = rcpts,
        .rcpt_count = (uint32_t)f->rcpt_count,
        .size = m->size};
    f->sent = true;
    f->agent = (unsigned)(agent - q->agents.at);
    if (agent_kind(f->kind)->by_path) {
        frame.place = CONTENT_NONE;
        f->has_content = true; /* found by its path */
        report_verbose(q, m->id, "Feeding to child; chan = '%s' cmd: %s\t%s",
                       transport_name(&q->transports, f->transport), m->path, f->dest);
        wire_put_deliver(agent->channel, &frame, -1);
    } else if (content_for(q, f, true, &bytes, &frame.content, &fd, &frame.place)) {
        f->has_content = frame.place != CONTENT_ON_DEMAND;
        wire_put_deliver(agent->channel, &frame, fd);
    } else if (active_is_dropped(m)) {
        queue_delivery_untried(q, f); /* quarantined or damaged: its recipients are unknown */
    } else {
        queue_delivery_crashed(q, f, "message content can't be read");
    }
    if (rcpts != &one) {
        mem_free(rcpts);
    }
    buf_fini(&bytes);
}

void queue_deliver(struct queue *q, const struct sched_action *action)
{
    struct active_msg *m = active_find(&q->active, (struct msg_id){action->msg.n});
    const struct agent_kind *kind;
    struct delivery *f;
    struct worker_process *agent;

    CHECK(m != NULL);
    f = delivery_add(&q->active, action->entry.n, m, action->transport, action->dest, action->rcpts,
                     action->rcpt_count, clock_mono());
    f->destination = destination_find(&q->destinations, f->transport, slice_string(f->dest));
    f->kind = f->destination != NULL ? f->destination->agent
                                     : transport_agent(&q->transports, f->transport);
    kind = agent_kind(f->kind);
    f->cache_load = action->cache_load;
    f->cache_store = action->cache_store;
    if (kind->deliver != NULL) {
        f->sent = true;
        kind->deliver(q->agents.states[f->kind], f);
        return;
    }
    if (kind->role == ROLE_COUNT) {
        queue_delivery_here(q, f);
        return;
    }
    agent = agent_for(q, kind->role, f->dest);
    if (agent == NULL) {
        queue_delivery_crashed(q, f, "no process delivers for this transport");
    } else if (agent->channel != NULL) {
        delivery_send(q, f, agent);
    } else {
        f->agent = (unsigned)(agent - q->agents.at); /* sent when the process is back */
    }
}

static void agent_lost(struct queue *q, struct worker_process *agent)
{
    unsigned index = (unsigned)(agent - q->agents.at);
    struct delivery *f, *next;

    batch_forget_client(&q->batch, agent->channel);
    channel_free(agent->channel);
    agent->channel = NULL;
    agent->lost = clock_mono();
    policies_asker_lost(q, index);
    tls_questions_lost(q, index);
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (agent_kind((enum conf_agent)i)->lost != NULL &&
            agent_kind((enum conf_agent)i)->role == agent->role) {
            agent_kind((enum conf_agent)i)->lost(q->agents.states[i]);
        }
    }
    HASH_ITER(hh, q->active.deliveries, f, next)
    {
        if (f->sent && f->agent == index && !f->is_replaced) {
            queue_delivery_crashed(q, f, "the delivering process ended unexpectedly");
        }
    }
}

void agents_forget(struct queue *q, struct slice transport, struct slice nexthop)
{
    for (unsigned i = 0; i < q->agents.count; i++) {
        if (q->agents.at[i].role == ROLE_DELIVER && q->agents.at[i].channel != NULL) {
            wire_put_forget(q->agents.at[i].channel, &(struct wire_forget){transport, nexthop});
        }
    }
}

static bool role_is_served(const struct queue *q, enum wire_role role)
{
    for (unsigned i = 0; i < q->agents.count; i++) {
        if (q->agents.at[i].role == role && q->agents.at[i].channel != NULL) {
            return true;
        }
    }
    return false;
}

/* Makes the scheduler defer a transport's mail at once while no process delivers for it, without
 * waiting for the mail's turn. */
static void tell_transports(struct queue *q, enum wire_role role)
{
    bool served = role_is_served(q, role);

    for (uint32_t i = 0; i < q->transports.count; i++) {
        const struct agent_kind *kind = agent_kind(transport_agent(&q->transports, i));
        struct sched_transport_info info;

        if (kind->role != role || kind->is_patient) {
            continue;
        }
        sched_transport_get(q->sched, i, &info);
        if (served && info.dead) {
            sched_transport_works(q->sched, clock_mono(), i);
        } else if (!served && !info.dead && info.busy > 0) {
            sched_transport_failed(q->sched, clock_mono(), i, SLICE("4.3.0 " NO_PROCESS));
        }
    }
}

static void serve_waiting(struct queue *q, struct worker_process *agent)
{
    unsigned index = (unsigned)(agent - q->agents.at);
    struct delivery *f, *next;

    tell_transports(q, agent->role);
    HASH_ITER(hh, q->active.deliveries, f, next)
    {
        if (f->sent || f->agent != index) {
            continue;
        }
        if (!node_lease_holds(&q->lease)) {
            queue_delivery_returned(q, f);
        } else if (agent->channel != NULL) {
            delivery_send(q, f, agent);
        } else {
            queue_delivery_crashed(q, f, NO_PROCESS);
        }
    }
}

void agents_break_off(struct queue *q, struct msg_id id)
{
    struct delivery *f, *next;

    HASH_ITER(hh, q->active.deliveries, f, next)
    {
        const struct worker_process *agent = &q->agents.at[f->agent];

        if (f->msg->id.n != id.n) {
            continue;
        }
        f->is_awaited = true;
        if (!f->sent) {
            queue_delivery_untried(q, f); /* its process has not come back yet */
        } else if ((agent->role == ROLE_DELIVER || agent->role == ROLE_LOCAL) &&
                   agent->channel != NULL) {
            wire_put_break_off(agent->channel, f->entry);
        }
    }
}

/* Passes a process's report on its agents on to the kind of agent. */
static bool agent_told(struct queue *q, enum wire_role role, struct slice body)
{
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (agent_kind((enum conf_agent)i)->told != NULL &&
            agent_kind((enum conf_agent)i)->role == role) {
            return agent_kind((enum conf_agent)i)->told(q->agents.states[i], body);
        }
    }
    return false;
}

static bool agent_frame(struct queue *q, struct worker_process *agent, const struct frame *frame)
{
    struct delivery *f;
    uint64_t entry;

    switch (frame->type) {
    case WIRE_RESULT:
        return queue_take_result(q, agent, frame->body);
    case WIRE_SUBMIT:
        return agent->role == ROLE_FILTER &&
               clients_take_replacement(q, agent->channel, (unsigned)(agent - q->agents.at), frame);
    case WIRE_NEED_CONTENT:
        if (!wire_get_need_content(frame->body, &entry)) {
            return false;
        }
        f = delivery_find(&q->active, entry);
        if (f == NULL || !f->sent || f->agent != (unsigned)(agent - q->agents.at) ||
            f->has_content) {
            return false;
        }
        f->has_content = true; /* a descriptor per request would use up all of them */
        give_content(q, agent, f);
        return true;
    case WIRE_POLICY_ASK:
        return agent->role == ROLE_DELIVER &&
               policies_ask(q, (uint32_t)(agent - q->agents.at), frame->body);
    case WIRE_TLS_SEEN:
        return agent->role == ROLE_DELIVER &&
               tls_question_seen(q, (uint32_t)(agent - q->agents.at), frame->body);
    case WIRE_DIALOGUE:
        return agent->role == ROLE_DELIVER &&
               watches_heard(q, agent->role, agent->index, frame->body);
    case WIRE_AGENT:
        return agent_told(q, agent->role, frame->body);
    default:
        return false;
    }
}

static void on_agent(void *arg, struct channel *ch)
{
    struct worker_process *agent = arg;
    struct queue *q = agent->queue;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        bool ok = agent_frame(q, agent, &frame);

        if (frame.fd >= 0) {
            (void)close(frame.fd); /* of a submission, whose content was copied */
        }
        if (!ok) {
            log_error("%s %u: sent what it must not: connection closed",
                      wire_role_name(agent->role), agent->index);
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        agent_lost(q, agent);
    }
}

/* ---- the processes -------------------------------------------------------------------------- */

void agents_begin(struct queue *q)
{
    struct worker_processes *all = &q->agents;

    *all = (struct worker_processes){.count = 0};
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (agent_kind((enum conf_agent)i)->begin != NULL) {
            all->states[i] = agent_kind((enum conf_agent)i)->begin(q);
        }
    }
}

void agents_turn(struct worker_processes *all)
{
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (agent_kind((enum conf_agent)i)->turn != NULL && all->states[i] != NULL) {
            agent_kind((enum conf_agent)i)->turn(all->states[i]);
        }
    }
}

bool agents_deferred(struct queue *q, const struct sched_action *action)
{
    enum conf_agent agent = transport_agent(&q->transports, action->transport);
    const struct agent_kind *kind = agent_kind(agent);

    if (kind->deferred != NULL) {
        kind->deferred(q->agents.states[agent], action);
    }
    return kind->deferred != NULL;
}

void agents_fini(struct worker_processes *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        channel_free(all->at[i].channel);
    }
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (all->states[i] != NULL) {
            agent_kind((enum conf_agent)i)->end(all->states[i]);
        }
    }
}

bool agents_adopt(struct queue *q, const struct wire_peer *peer, int fd)
{
    struct worker_processes *all = &q->agents;
    struct worker_process *agent = NULL;

    for (unsigned i = 0; i < all->count; i++) {
        if (all->at[i].role == peer->role && all->at[i].index == peer->index) {
            agent = &all->at[i];
        }
    }
    if (agent == NULL) {
        if (all->count == QUEUE_AGENTS_MAX) {
            return false;
        }
        agent = &all->at[all->count++];
        *agent = (struct worker_process){.role = peer->role, .index = peer->index, .queue = q};
    }
    if (agent->channel != NULL) {
        agent_lost(q, agent);
    }
    if (peer->role == ROLE_DELIVER) {
        all->deliver_count = peer->count;
    }
    agent->channel = channel_new(q->role->base, fd, on_agent, agent);
    node_lease_give(&q->lease, agent->channel);
    if (agent->role == ROLE_DELIVER && q->watches.count > 0) {
        watches_tell(&q->watches, agent->channel);
    }
    serve_waiting(q, agent);
    return true;
}

void agents_check(struct queue *q)
{
    for (unsigned i = 0; i < q->agents.count; i++) {
        struct worker_process *agent = &q->agents.at[i];

        if (agent->channel == NULL &&
            mono_reached(mono_after(agent->lost, QUEUE_AGENT_WAIT_US), clock_mono())) {
            serve_waiting(q, agent);
        }
    }
}

bool agents_overlooked(const struct worker_processes *all, const struct delivery *d)
{
    const struct worker_process *agent = agent_of(all, d);

    return !d->sent &&
           (agent->channel != NULL ||
            mono_reached(mono_after(agent->lost, 2 * QUEUE_AGENT_WAIT_US), clock_mono()));
}

void agents_serve(struct queue *q, const struct delivery *d)
{
    serve_waiting(q, &q->agents.at[d->agent]);
}

bool agents_number(struct queue *q, const char *dest, uint32_t *ret_number)
{
    const struct worker_process *agent = agent_for(q, ROLE_DELIVER, dest);

    if (agent == NULL || agent->channel == NULL) {
        return false;
    }
    *ret_number = (uint32_t)(agent - q->agents.at);
    return true;
}

struct channel *agents_channel(const struct worker_processes *all, uint32_t number)
{
    CHECK(number < all->count);
    return all->at[number].channel;
}

void agents_status(const struct worker_processes *all, json_t *answer)
{
    for (unsigned i = 0; i < AGENT_KINDS; i++) {
        if (agent_kind((enum conf_agent)i)->status != NULL) {
            agent_kind((enum conf_agent)i)->status(all->states[i], answer);
        }
    }
}
