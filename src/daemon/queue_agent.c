/*
 * The processes that deliver: entries go out to them, with their content, and results come back.
 */
#include "queue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "status.h"

#define NO_PROCESS "the delivering process can't be started"

static enum wire_role role_for(enum conf_agent kind)
{
    return kind == CONF_AGENT_TA                                   ? ROLE_AGENTS
           : kind == CONF_AGENT_MAILDIR || kind == CONF_AGENT_PIPE ? ROLE_LOCAL
                                                                   : ROLE_DELIVER;
}

/* Which process delivers for a destination: always the same, so that its connections are there. */
static struct agent *agent_for(struct queue *q, enum conf_agent kind, const char *dest)
{
    enum wire_role role = role_for(kind);
    unsigned wanted = role != ROLE_DELIVER || q->deliver_count == 0
                          ? 0
                          : (unsigned)(hash_bytes(dest, strlen(dest)) % q->deliver_count);

    for (unsigned i = 0; i < q->agent_count; i++) {
        struct agent *a = &q->agents[i];
        if (a->role == role && a->index == wanted) {
            return a;
        }
    }
    return NULL;
}

/* What is in memory of this message, if it can be given on. */
static bool content_at_hand(struct active_msg *m, struct slice *ret_content, int *ret_fd)
{
    if (m->content == NULL) {
        return false;
    }
    if (m->content_fd >= 0) {
        *ret_fd = fcntl(m->content_fd, F_DUPFD_CLOEXEC, 0);
        if (*ret_fd < 0) {
            return false; /* no descriptor is left; reading it again says what can be done */
        }
    }
    *ret_content = slice_of(m->content, m->content_len);
    return true;
}

/* Give the flight's content in the frame, in a descriptor, or later. False: it can't be read. A
 * message whose content is not what was stored has been set aside then: it is never delivered. */
static bool content_for(struct queue *q, struct flight *f, bool on_demand_allowed,
                        struct buf *bytes, struct slice *ret_content, int *ret_fd,
                        enum wire_content_place *ret_place)
{
    struct active_msg *m = f->msg;
    /* What is kept in a descriptor takes no more memory with each flight. */
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
        if (rc != 0) {
            if (rc == -EBADMSG) {
                queue_set_aside(q, m->id, spool_error(q->spool));
            } else {
                log_warning("%s: content can't be read: %s", m->id_text, spool_error(q->spool));
            }
            return false;
        }
        *ret_content = buf_slice(bytes);
        if (*ret_fd < 0) {
            active_keep_content(&q->active, m, *ret_content);
        } else if (wire_fd_is_sealed(*ret_fd,
                                     m->size)) { /* memory: others of its flights share it */
            active_keep_fd(&q->active, m, *ret_content, *ret_fd);
        }
    }
    *ret_place = *ret_fd >= 0 ? CONTENT_FD : CONTENT_INSIDE;
    f->inline_bytes = m->content_fd >= 0 ? ret_content->len : m->size;
    q->active.inline_bytes += f->inline_bytes;
    return true;
}

static void flight_send(struct queue *q, struct flight *f, struct agent *agent)
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
    frame =
        (struct wire_deliver){.entry = f->entry,
                              .transport = slice_string(q->transports[f->transport]),
                              .nexthop = slice_string(f->site != NULL ? f->site->nexthop : f->dest),
                              .id = slice_string(m->id_text),
                              .path = slice_string(m->path),
                              .sender = slice_string(m->sender),
                              .envid = slice_string(m->envid),
                              .flags = m->flags,
                              .arrived = m->arrived,
                              .cache_load = f->cache_load,
                              .cache_store = f->cache_store,
                              .rcpts = rcpts,
                              .rcpt_count = (uint32_t)f->rcpt_count,
                              .size = m->size};
    f->sent = true;
    f->agent = (unsigned)(agent - q->agents);
    if (agent->role == ROLE_AGENTS) {
        frame.place = CONTENT_NONE;
        f->has_content = true; /* it is found by its path */
        report_verbose(q, m->id, "Feeding to child; chan = '%s' cmd: %s\t%s",
                       q->transports[f->transport], m->path, f->dest);
        wire_put_deliver(agent->channel, &frame, -1);
    } else if (content_for(q, f, true, &bytes, &frame.content, &fd, &frame.place)) {
        f->has_content = frame.place != CONTENT_ON_DEMAND;
        wire_put_deliver(agent->channel, &frame, fd);
    } else if (m->dropped) {
        queue_flight_untried(q, f); /* it was set aside: nothing is said of its recipients */
    } else {
        queue_flight_crashed(q, f, "message content can't be read");
    }
    if (rcpts != &one) {
        mem_free(rcpts);
    }
    buf_fini(&bytes);
}

/* Transports that need no agent: the verdict is in the next hop or in the transport's nature. */
static void flight_here(struct queue *q, struct flight *f, enum conf_agent kind)
{
    struct slice text = slice_string(f->site != NULL ? f->site->nexthop : f->dest);
    struct queue_verdict v = {.relay = SLICE("none"),
                              .attempted = kind != CONF_AGENT_RETRY,
                              .final_site = true,
                              .program = queue_agent_program(kind),
                              .handed = f->handed};
    struct status status;
    size_t len = 0;

    if (kind == CONF_AGENT_DISCARD) {
        v.kind = VERDICT_SENT;
        v.status = SLICE("2.0.0");
        v.relay = SLICE("discard");
        v.text = SLICE("discarded");
    } else {
        v.kind = kind == CONF_AGENT_RETRY ? VERDICT_DEFERRED : VERDICT_BOUNCED;
        v.status = kind == CONF_AGENT_RETRY ? SLICE("4.0.0") : SLICE("5.0.0");
        if (status_prefix(text, &status, &len)) {
            v.status = slice_of(text.ptr, len);
            text = slice_trim(slice_skip(text, len));
        }
        v.text = text;
    }
    for (size_t i = 0; i < f->rcpt_count; i++) {
        queue_settle(q, f->msg, f->rcpts[i], &v);
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_OK,
                         slice_of("", 0)));
    flight_remove(&q->active, f);
}

void queue_deliver(struct queue *q, const struct sched_action *action)
{
    struct active_msg *m = active_find(&q->active, (struct msg_id){action->msg.n});
    enum conf_agent kind;
    struct flight *f;
    struct agent *agent;

    CHECK(m != NULL);
    f = flight_add(&q->active, action->entry.n, m, action->transport, action->dest, action->rcpts,
                   action->rcpt_count, clock_mono());
    f->site = pass_site_find(q, f->transport, slice_string(f->dest));
    kind = queue_flight_agent(q, f);
    f->cache_load = action->cache_load;
    f->cache_store = action->cache_store;
    if (kind == CONF_AGENT_ERROR || kind == CONF_AGENT_RETRY || kind == CONF_AGENT_DISCARD) {
        flight_here(q, f, kind);
        return;
    }
    agent = agent_for(q, kind, f->dest);
    if (agent == NULL) {
        queue_flight_crashed(q, f, "no process delivers for this transport");
    } else if (agent->channel != NULL) {
        flight_send(q, f, agent);
    } else {
        f->agent = (unsigned)(agent - q->agents); /* sent when it is back */
    }
}

void queue_agent_lost(struct queue *q, struct agent *agent)
{
    unsigned index = (unsigned)(agent - q->agents);
    struct flight *f, *next;

    channel_free(agent->channel);
    agent->channel = NULL;
    agent->lost = clock_mono();
    if (agent->role == ROLE_AGENTS) {
        agent_table_clear(&q->agent_table);
    }
    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (f->sent && f->agent == index) {
            queue_flight_crashed(q, f, "the delivering process ended unexpectedly");
        }
    }
}

static bool role_is_served(const struct queue *q, enum wire_role role)
{
    for (unsigned i = 0; i < q->agent_count; i++) {
        if (q->agents[i].role == role && q->agents[i].channel != NULL) {
            return true;
        }
    }
    return false;
}

/* While nobody delivers for a transport its mail is deferred at once, not when its turn has come.
 * That of transport agents is left to its threads, which have times of their own. */
static void tell_transports(struct queue *q, enum wire_role role)
{
    bool served = role_is_served(q, role);

    for (uint32_t i = 0; i < q->transport_count && role != ROLE_AGENTS; i++) {
        struct sched_transport_info info;

        if (role_for(q->transport_agents[i]) != role) {
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

void queue_serve_waiting(struct queue *q, struct agent *agent)
{
    unsigned index = (unsigned)(agent - q->agents);
    struct flight *f, *next;

    tell_transports(q, agent->role);
    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (f->sent || f->agent != index) {
            continue;
        }
        if (agent->channel != NULL) {
            flight_send(q, f, agent);
        } else {
            queue_flight_crashed(q, f, NO_PROCESS);
        }
    }
}

static bool agent_frame(struct queue *q, struct agent *agent, const struct frame *frame)
{
    struct wire_result result;
    struct wire_verdict *verdicts;
    struct wire_content content;
    struct wire_agent told;
    enum wire_content_place place;
    struct flight *f;
    struct buf bytes;
    uint64_t entry;
    bool ok;
    int fd;

    switch (frame->type) {
    case WIRE_RESULT:
        if (!wire_get_result(frame->body, &result, &verdicts)) {
            return false;
        }
        ok = queue_take_result(q, agent, &result);
        mem_free(verdicts);
        return ok;
    case WIRE_NEED_CONTENT:
        if (!wire_get_need_content(frame->body, &entry)) {
            return false;
        }
        f = flight_find(&q->active, entry);
        if (f == NULL || !f->sent || f->agent != (unsigned)(agent - q->agents) || f->has_content) {
            return false;
        }
        f->has_content = true; /* a descriptor for each asking would leave us without any */
        buf_init(&bytes, WIRE_CONTENT_MAX);
        content = (struct wire_content){.entry = entry};
        content.ok = content_for(q, f, false, &bytes, &content.content, &fd, &place);
        wire_put_content(agent->channel, &content, fd);
        buf_fini(&bytes);
        return true;
    case WIRE_AGENT:
        if (agent->role != ROLE_AGENTS || !wire_get_agent(frame->body, &told)) {
            return false;
        }
        agent_table_take(&q->agent_table, &told);
        return true;
    default:
        return false;
    }
}

void queue_on_agent(void *arg, struct channel *ch)
{
    struct agent *agent = arg;
    struct queue *q = agent->queue;
    struct frame frame;
    enum channel_event event;

    queue_clock_look(q);
    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* agents send none */
        }
        if (!agent_frame(q, agent, &frame)) {
            log_error("%s %u: sent what it must not: connection closed",
                      wire_role_name(agent->role), agent->index);
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        queue_agent_lost(q, agent);
    }
}
