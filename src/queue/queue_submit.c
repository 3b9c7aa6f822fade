#include "queue_submit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mail_class.h"
#include "mem.h"
#include "owner.h"
#include "park_key.h"
#include "pass_end.h"
#include "queue.h"
#include "queue_pass.h"
#include "queue_route.h"
#include "spool_division.h"
#include "spool_others.h"

/* Most recipients of a submission that are kept in memory; the others are read later. Otherwise
 * long lists would exceed the limits of recipients in memory. */
#define KEEP_RCPTS_MAX 100

/* Adds the trace header, with the id in its place. */
static void print_trace(struct buf *out, struct slice trace, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];
    size_t at = slice_find(trace, '\1');

    spool_id_print(id, text);
    (void)buf_add(out, slice_of(trace.ptr, at)); /* far below the buffer's limit */
    if (at < trace.len) {
        (void)buf_add_string(out, text);
        (void)buf_add(out, slice_skip(trace, at + 1));
    }
}

/* Keeps a submission in memory that is opened at once, so that it need not be read again. */
static struct active_msg *keep_submitted(struct queue *q, const struct wire_submit *m,
                                         const struct spool_rcpt *rcpts, int sealed_fd,
                                         struct spool_message *message)
{
    char sched_class_room[SCHED_CLASS_NAME_MAX];
    struct active_msg *active;
    struct buf content;

    buf_init(&content, WIRE_CONTENT_MAX + 2 * WIRE_TRACE_MAX);
    print_trace(&content, m->trace, message->id);
    (void)buf_add(&content, m->content); /* a frame's content fits */
    message->state = SPOOL_INCOMING;
    message->rcpt_pending = message->rcpt_total = m->rcpt_count;
    message->size = buf_len(&content) + m->fd_size;
    active = active_add(&q->active, message, pass_sched_class(q, message, sched_class_room),
                        clock_mono(), clock_wall());
    if (sealed_fd >= 0) {
        active_keep_fd(&q->active, active, buf_slice(&content), sealed_fd);
    } else {
        active_keep_content(&q->active, active, buf_slice(&content)); /* unless there is more */
    }
    buf_fini(&content);
    for (uint32_t i = 0; i < m->rcpt_count && i < KEEP_RCPTS_MAX; i++) {
        struct spool_rcpt rcpt = rcpts[i];

        rcpt.n = i + 1;
        active_add_rcpt(active, &rcpt, STORED_ROUTE_OURS);
    }
    active->all_read = m->rcpt_count <= KEEP_RCPTS_MAX;
    return active;
}

/* Logs the origin of a message in the name of the process that received it. Log analysers need this
 * as the first line that names the message; only the queue process can ensure that. */
static void log_arrival(const struct wire_submit *m, struct slice client, struct msg_id id)
{
    const struct slice userid = SLICE("userid ");
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    if (slice_equal(m->origin, SLICE("pickup")) && slice_starts(m->client, userid)) {
        struct slice uid = slice_skip(m->client, userid.len);

        log_as("pickup", (int)m->pid, "%s: uid=%.*s from=<%.*s>%s%.*s", text, SLICE_ARGS(uid),
               SLICE_ARGS(m->sender), m->login.len > 0 ? ", " : "", SLICE_ARGS(m->login));
    } else {
        log_as(slice_equal(m->origin, SLICE("milter")) ? "milter" : "smtpd", (int)m->pid,
               "%s: client=%.*s%s%.*s", text, SLICE_ARGS(client), m->login.len > 0 ? ", " : "",
               SLICE_ARGS(m->login));
    }
}

static void log_replacement(const struct delivery *replaced, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (replaced != NULL) {
        spool_id_print(id, text);
        log_info("%s: requeued as %s", replaced->msg->id_text, text);
    }
}

/* Logs the class of a message for replays of the log. A message without such a line has the class
 * that needs none. */
static void log_class(struct classified class, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    switch (class.source) {
    case CLASS_SOURCE_HEADER:
    case CLASS_SOURCE_LISTENER:
    case CLASS_SOURCE_LOGIN:
    case CLASS_SOURCE_LIST_UNSUBSCRIBE:
    case CLASS_SOURCE_LIST_ID:
    case CLASS_SOURCE_PRECEDENCE:
        spool_id_print(id, text);
        log_info("%s: class=%.*s (%s)", text, SLICE_ARGS(class.name),
                 class_source_word(class.source));
        break;
    case CLASS_SOURCE_NONE:
    case CLASS_SOURCE_SENDER:
    case CLASS_SOURCE_DEFAULT:
    case CLASS_SOURCE_REPORT:
        break;
    }
}

static void log_put_on_hold(const struct wire_submit *m, struct msg_id id)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (m->hold.len > 0) {
        spool_id_print(id, text);
        log_info("%s: from=<%.*s>, nrcpt=%" PRIu32 " (put on hold: %.*s)", text,
                 SLICE_ARGS(m->sender), m->rcpt_count, SLICE_ARGS(m->hold));
    }
}

/* Notifies and logs that a submission was stored parked. */
static void submitted_parked(struct queue *q, const struct spool_message *m, struct msg_id id,
                             uint32_t rcpts)
{
    char text[SPOOL_ID_TEXT_MAX];

    park_tell(q, m->parked);
    import_by(&q->import, m->due);
    spool_id_print(id, text);
    log_hold(); /* until its commit, as in submit_message */
    log_info("%s: from=<%.*s>, nrcpt=%" PRIu32 " (waits on disk: %.*s holds its share of the "
             "active queue)",
             text, SLICE_ARGS(m->sender), rcpts, SLICE_ARGS(park_key_place(m->parked)));
    log_hold_end();
}

/* Properties that a message takes from the one whose recipients it replaces. */
struct origin {
    struct delivery *replaced; /* NULL: it replaces none */
    bool is_report;
    char client[SPOOL_REMOTE_MAX + 1];
    struct classified class; /* class by its listener or login, or none */
    char class_room[CLASS_NAME_MAX];
};

/* Returns 0 or a negative errno, like submit_message. */
static int origin_read(struct queue *q, struct delivery *replaced, struct origin *o)
{
    struct spool_message m;
    struct spool_rcpt r;
    size_t count;
    int rc = 0;

    *o = (struct origin){.replaced = replaced};
    for (size_t i = 0; replaced != NULL && i < replaced->rcpt_count && rc == 0; i++) {
        uint32_t n = replaced->rcpts[i];

        rc = spool_read_rcpts(q->spool, replaced->msg->id, n - 1, true, 1, &r, &count);
        if (rc == 0 && (count == 0 || r.n != n)) {
            return -ESTALE;
        }
    }
    if (replaced == NULL || rc != 0) {
        return rc;
    }
    rc = spool_read(q->spool, replaced->msg->id, &m);
    if (rc != 0 || !spool_is_own(q->spool, replaced->msg->id)) {
        return rc == 0 || rc == -ENOENT ? -ESTALE : rc;
    }
    o->is_report = m.class_source == CLASS_SOURCE_REPORT;
    (void)snprintf(o->client, sizeof o->client, "%.*s", SLICE_ARGS(m.client)); /* fits */
    if ((m.class_source == CLASS_SOURCE_LISTENER || m.class_source == CLASS_SOURCE_LOGIN) &&
        m.class_name.len <= sizeof o->class_room) {
        memcpy(o->class_room, m.class_name.ptr, m.class_name.len);
        o->class = (struct classified){slice_of(o->class_room, m.class_name.len), m.class_source};
    }
    return 0;
}

/* Returns the class of a submission. A message that is submitted again has lost its listener and
 * login, so their class is taken from the original unless its header names one. */
static struct classified class_of_submission(const struct queue *q, const struct wire_submit *m,
                                             const struct origin *o, char room[CLASS_NAME_MAX])
{
    struct classified said = {m->class_name, m->class_source};

    if (o->is_report) {
        return class_of_report(q->conf, m->sender, room);
    }
    return class_decide(q->conf, said.name.len == 0 && o->class.name.len > 0 ? o->class : said,
                        m->sender, room);
}

/* Settles the replaced recipients. They were pending a moment ago, so none is refused. */
static int settle_replaced(struct queue *q, struct delivery *d)
{
    const struct spool_verdict gone = {
        .state = SPOOL_RCPT_DELIVERED, .done = true, .when = clock_wall()};
    int rc = 0;

    for (size_t i = 0; i < d->rcpt_count && rc == 0; i++) {
        rc = spool_settle(q->spool, d->msg->id, d->rcpts[i], &gone);
    }
    d->is_replaced = rc == 0;
    return rc;
}

int submit_message(struct queue *q, const struct wire_submit *m, int fd, struct delivery *replaced,
                   struct msg_id *ret_id, struct active_msg **ret_msg)
{
    struct spool_message message = {.sender = m->sender,
                                    .envid = m->envid,
                                    .created = clock_wall(),
                                    .due = clock_wall(),
                                    .reason = m->rules};
    struct spool_content content = {.bytes = m->content, .fd = fd, .fd_size = m->fd_size};
    /* Messages that wait for their commit are not in the scheduler yet, but count here. */
    bool claim;
    /* Deliveries send what is stored, so the content must not change from here on. */
    int sealed_fd = fd >= 0 && wire_fd_is_sealed(fd, m->fd_size) ? fd : -1;
    struct owner_target target = {.several = false};
    struct spool_rcpt *rcpts;
    struct route route;
    char **nexthops, *parked;
    char class_room[CLASS_NAME_MAX], sched_class_room[SCHED_CLASS_NAME_MAX];
    struct classified class;
    uint64_t generation = queue_route_generation(q);
    struct origin origin;
    int rc = origin_read(q, replaced, &origin);

    if (rc != 0) {
        return rc;
    }
    message.flags = m->flags & ~(origin.is_report ? 0u : (unsigned)ENVELOPE_REPORT);
    message.arrived =
        replaced != NULL ? replaced->msg->arrived : queue_clock_of_others(q, m->arrived);
    message.client = replaced != NULL ? slice_string(origin.client) : m->client;
    class = class_of_submission(q, m, &origin, class_room);
    message.class_name = class.name;
    message.class_source = class.source;
    claim = m->hold.len == 0 && !batch_is_blocked(&q->batch) && !spool_divides(q->spool) &&
            import_lets_in(q, message.class_name);
    if ((fd < 0) != (m->fd_size == 0) ||
        (q->conf->message_size_limit > 0 && replaced == NULL && /* a replacement was accepted */
         m->content.len + m->fd_size > (uint64_t)q->conf->message_size_limit + WIRE_TRACE_MAX)) {
        return -EMSGSIZE;
    }
    rcpts = mem_array(m->rcpt_count, sizeof *rcpts);
    nexthops = mem_array(m->rcpt_count, sizeof *nexthops);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        bool forced = m->rcpts[i].target.len > 0 && !conf_spool_routes(q->conf);

        if (forced && !route_forced(q->conf, m->rcpts[i].target, m->rcpts[i].address, &route)) {
            rc = -EAGAIN; /* the rule is from another configuration; it will be loaded soon */
            forced = false;
        }
        if (!forced) {
            route_address(q->conf, m->sender, m->rcpts[i].address, &route);
        }
        if (!conf_spool_routes(q->conf)) { /* pauses are handled in its pass */
            (void)interventions_route(q, m->sender, message.class_name, m->rcpts[i].address, &route,
                                      forced ? INTERVENE_FIXED : 0);
        }
        nexthops[i] = mem_string(route.nexthop);
        rcpts[i] = (struct spool_rcpt){.address = m->rcpts[i].address,
                                       .orcpt = m->rcpts[i].orcpt,
                                       .notify = m->rcpts[i].notify,
                                       .transport = slice_string(route.transport),
                                       .nexthop = slice_string(nexthops[i]),
                                       .route_generation = forced ? SPOOL_ROUTE_FIXED : generation};
        queue_route_hold_back(q->conf, &route);
        park_target_add(q, &target, &route);
    }
    parked =
        m->hold.len > 0
            ? NULL
            : park_target_full(q, &target, pass_sched_class(q, &message, sched_class_room), true);
    owner_target_fini(&target);
    if (parked != NULL) {
        claim = false;
        message.parked = slice_string(parked);
        message.due = pass_parked_until(q, &message);
    }
    if (rc == 0) {
        message.report_due = pass_report_due(q->conf, &message);
        rc = spool_submit(q->spool, &message, rcpts, m->rcpt_count, m->trace, &content, claim,
                          m->hold, ret_id);
        claim = claim && rc == 0 && spool_is_claimed(q->spool, *ret_id);
    }
    if (rc == 0 && replaced != NULL) {
        rc = settle_replaced(q, replaced);
    }
    if (rc == 0) {
        log_hold(); /* until its commit */
        log_arrival(m, message.client, *ret_id);
        log_replacement(replaced, *ret_id);
        log_class(class, *ret_id);
        log_put_on_hold(m, *ret_id);
        log_hold_end();
        class_count(&q->class_counts, class.name)->submitted += replaced == NULL;
        journal_received(q, *ret_id, &message, m->rcpts[0].address, m->rcpt_count,
                         m->content.len + m->fd_size, m->send_login,
                         replaced != NULL ? replaced->msg->id_text : "");
        if (m->hold.len > 0) {
            char text[SPOOL_ID_TEXT_MAX];

            spool_id_print(*ret_id, text);
            journal_changed(q, "held", text, &message, m->hold);
        }
    }
    if (rc == 0 && claim) {
        import_let_in(&q->import);
        message.id = *ret_id;
        *ret_msg = keep_submitted(q, m, rcpts, sealed_fd, &message);
    } else if (rc == 0 && parked != NULL) {
        submitted_parked(q, &message, *ret_id, m->rcpt_count);
    } else if (rc == 0 && m->hold.len == 0 &&
               (m->rcpt_count > 1 || spool_is_own(q->spool, *ret_id))) {
        import_new_mail(&q->import); /* some recipients are ours */
    }
    mem_free(parked);
    for (uint32_t i = 0; i < m->rcpt_count; i++) {
        mem_free(nexthops[i]);
    }
    mem_free(nexthops);
    mem_free(rcpts);
    return rc;
}
