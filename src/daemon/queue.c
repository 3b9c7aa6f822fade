#include "queue.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "status.h"

#define CHECK_PERIOD_US (1 * US_PER_S)
/* Destinations looked at then for metrics. */
#define BUSIEST_PER_CHECK 1000
/* How often a full active queue is worth a line of log. */
#define FULL_WARNING_US (300 * US_PER_S)

_Static_assert(ACTIVE_KEEP_MAX <= WIRE_CONTENT_MAX, "content that is kept travels in frames");
_Static_assert(ACTIVE_KEEP_MAX <= SPOOL_INLINE_MAX, "the spool has its own limit");

static void on_client(void *arg, struct channel *ch);
static void on_agent(void *arg, struct channel *ch);
static void on_control(void *arg, struct channel *ch);
static void pull_decisions(struct queue *q);
static void flow_update(struct queue *q);

/* ---- steps ---------------------------------------------------------------------------------- */

static void step_free(struct step *step)
{
    mem_free(step->strings);
    mem_free(step->parked);
    mem_free(step);
}

/* Do to the spool what the step says. */
static int step_apply(struct queue *q, struct step *step)
{
    struct spool_message m;
    int rc = 0;

    switch (step->type) {
    case STEP_SUBMIT:
        break; /* pass_submit did it, with the content at hand */
    case STEP_SETTLE:
        rc = spool_read(q->spool, step->id, &m);
        if (rc == 0) {
            rc = spool_settle(q->spool, step->id, step->n, &step->verdict);
        }
        break;
    case STEP_ALL_DONE:
        rc = spool_finish_all_done(q->spool, step->id);
        break;
    case STEP_END_PASS:
        rc = pass_end(q, step);
        break;
    case STEP_SET_ASIDE:
        rc = spool_set_aside(q->spool, step->id, slice_string(step->strings));
        break;
    }
    return rc == -ENOENT ? 0 : rc; /* an operator removed it meanwhile: nothing is left to record */
}

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

bool queue_refused(int rc)
{
    return rc == -EINVAL || rc == -EBADMSG || rc == -ENOENT || rc == -EROFS;
}

/* The spool refused a step. A message whose rows make no sense must not be tried for ever, and
 * never be deleted. */
static void step_refused(struct queue *q, struct step *step)
{
    char text[SPOOL_ID_TEXT_MAX];

    if (step->type == STEP_SET_ASIDE) {
        spool_id_print(step->id, text);
        log_error("%s: can't be set aside: %s", text, spool_error(q->spool));
    } else {
        queue_set_aside(q, step->id, spool_error(q->spool));
    }
    step_free(step);
}

void queue_step(struct queue *q, struct step *step)
{
    int rc = step_apply(q, step);

    if (queue_refused(rc)) {
        step_refused(q, step);
        return;
    }
    /* Any other error has failed the batch; the commit finds out and sorts it out. */
    STAILQ_INSERT_TAIL(&q->batch, step, next);
}

void queue_set_aside(struct queue *q, struct msg_id id, const char *reason)
{
    struct step *step = mem_new(sizeof *step);
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    log_error("%s: set aside as corrupt: %s", text, reason);
    step->type = STEP_SET_ASIDE;
    step->id = id;
    step->strings = mem_string(reason);
    queue_drop(q, id);
    queue_step(q, step);
}

static void answer_submit(struct queue *q, struct step *step, int rc)
{
    char id[SPOOL_ID_TEXT_MAX], text[64];
    struct wire_submit_done done = {.token = step->token};

    if (step->from == NULL) {
        return;
    }
    if (rc == 0) {
        spool_id_print(step->id, id);
        (void)snprintf(text, sizeof text, "Ok: queued as %s", id); /* fits by the sizes above */
        done.code = 250;
        done.status = SLICE("2.0.0");
        done.text = slice_string(text);
        done.id = slice_string(id);
        q->submitted++;
    } else if (rc == -ENOSPC) {
        done.code = 452;
        done.status = SLICE("4.3.1");
        done.text = SLICE("Insufficient system storage");
    } else if (rc == -EMSGSIZE || rc == -EINVAL) {
        done.code = 554;
        done.status = SLICE("5.6.0");
        done.text = SLICE("Message can't be stored as it is");
    } else {
        done.code = 451;
        done.status = SLICE("4.3.0");
        done.text = SLICE("Mail storage failed, try again later");
    }
    wire_put_submit_done(step->from, &done);
}

/* The step's part of the batch is durable. */
static void step_committed(struct queue *q, struct step *step)
{
    if (step->type == STEP_SUBMIT) {
        answer_submit(q, step, 0);
        if (step->msg != NULL) {
            (void)pass_open(q, step->msg, false); /* else it goes back to disk */
        }
    }
    step_free(step);
}

/* It is not: refuse a submission, keep a result for another time. */
static void step_undone(struct queue *q, struct step *step, int rc)
{
    if (step->type == STEP_SUBMIT) {
        answer_submit(q, step, rc);
        if (step->msg != NULL) {
            active_remove(&q->active, step->msg);
        }
        step_free(step);
    } else {
        STAILQ_INSERT_TAIL(&q->redo, step, next);
    }
}

/* Results whose batch failed, each in a batch of its own, so that one that can't be stored does not
 * hold up the others. */
static void redo_each(struct queue *q)
{
    STAILQ_HEAD(, step) kept = STAILQ_HEAD_INITIALIZER(kept);
    struct step *step;
    bool storage_ok = true, stored = false;

    while ((step = STAILQ_FIRST(&q->redo)) != NULL) {
        int rc;

        STAILQ_REMOVE_HEAD(&q->redo, next);
        if (!storage_ok) {
            STAILQ_INSERT_TAIL(&kept, step, next); /* later ones may build on the one that failed */
            continue;
        }
        rc = step_apply(q, step);
        if (!queue_refused(rc)) {
            int end = spool_commit(q->spool); /* also ends a batch that failed */
            rc = rc != 0 ? rc : end;
        }
        if (rc == 0) {
            stored = true;
            step_free(step);
        } else if (queue_refused(rc)) {
            step_refused(q, step); /* what sets it aside joins the next batch */
        } else {
            storage_ok = false;
            STAILQ_INSERT_TAIL(&kept, step, next);
        }
    }
    STAILQ_CONCAT(&q->redo, &kept);
    if (storage_ok && stored && !q->flow.storage_ok) {
        log_info("storage works again");
        q->flow.storage_ok = true;
        q->flow_sent = false;
    }
}

int commit_now(struct queue *q)
{
    STAILQ_HEAD(, step) batch = STAILQ_HEAD_INITIALIZER(batch);
    struct step *step;
    int rc = spool_commit(q->spool);

    STAILQ_CONCAT(&batch, &q->batch);
    q->commit_by.us = 0;
    if (rc == 0) {
        q->commits += STAILQ_EMPTY(&batch) ? 0 : 1;
        while ((step = STAILQ_FIRST(&batch)) != NULL) {
            STAILQ_REMOVE_HEAD(&batch, next);
            step_committed(q, step);
        }
        return 0;
    }
    log_error("commit failed, nothing of it is acknowledged: %s", spool_error(q->spool));
    while ((step = STAILQ_FIRST(&batch)) != NULL) {
        STAILQ_REMOVE_HEAD(&batch, next);
        step_undone(q, step, rc);
    }
    q->flow.storage_ok = false;
    q->flow_sent = false;
    redo_each(q);
    flow_update(q); /* a full disk has cost the spool its reserve: no new mail before it is back */
    q->next_check = mono_after(clock_mono(), CHECK_PERIOD_US);
    return rc;
}

/* ---- transports ----------------------------------------------------------------------------- */

static void transports_load(struct queue *q)
{
    size_t count = conf_transport_count(q->conf);

    for (size_t i = 0; i < count; i++) {
        const struct conf_transport *t = conf_transport_at(q->conf, i);
        const struct policy *p = &t->policy;
        struct sched_transport_policy policy = tuning_transport(q->conf, p);
        uint32_t index = sched_transport(q->sched, clock_mono(), t->name, &policy);

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
            q->transports[index] = mem_string(t->name);
        }
        q->transport_agents[index] = (enum conf_agent)p->agent;
    }
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

/* ---- results -------------------------------------------------------------------------------- */

/* A delay as Postfix writes it: two significant digits, at most `digits` behind the point, no
 * trailing zeros. */
static const char *delay_text(int64_t us, int64_t digits, char out[32])
{
    double s = us <= 0 ? 0 : (double)us / (double)US_PER_S;
    int places = s >= 10 ? 0 : s >= 1 ? 1 : 2;
    size_t len;

    if (s < 1) {
        for (double x = s * 100; x < 10 && places < digits && x > 0; x *= 10) {
            places++;
        }
    }
    (void)snprintf(out, 32, "%.*f", places > digits ? (int)digits : places, s); /* 32 is enough */
    len = strlen(out);
    if (strchr(out, '.') != NULL) {
        while (out[len - 1] == '0') {
            out[--len] = '\0';
        }
        if (out[len - 1] == '.') {
            out[--len] = '\0';
        }
    }
    return out;
}

static void log_verdict(struct queue *q, const struct active_msg *m, const struct active_rcpt *r,
                        const struct queue_verdict *v, const char *outcome)
{
    char texts[5][32], conn_use[32] = "";
    int64_t digits = q->conf->delay_logging_resolution_limit;
    struct mono handed = v->handed.us != 0 ? v->handed : clock_mono();
    int64_t before = m->activated_wall.us - m->arrived.us;
    int64_t active = handed.us - m->activated.us;

    if (v->conn_use > 1) {
        (void)snprintf(conn_use, sizeof conn_use, ", conn_use=%" PRIu32, v->conn_use); /* fits */
    }
    log_as(v->program, (int)getpid(),
           "%s: to=<%s>, relay=%.*s%s, delay=%s, delays=%s/%s/%s/%s, dsn=%.*s, status=%s (%.*s)",
           m->id_text, r->address, SLICE_ARGS(v->relay), conn_use,
           delay_text(clock_wall().us - m->arrived.us, digits, texts[0]),
           delay_text(before, digits, texts[1]), delay_text(active, digits, texts[2]),
           delay_text(v->setup_us, digits, texts[3]), delay_text(v->transmit_us, digits, texts[4]),
           SLICE_ARGS(v->status), outcome, SLICE_ARGS(v->text));
}

static bool wants_failure(const struct active_rcpt *r)
{
    return r->notify == NOTIFY_DEFAULT || (r->notify & NOTIFY_FAILURE) != 0;
}

/* Does a good end of this recipient leave something to tell its sender? */
static bool success_to_report(const struct queue *q, const struct active_msg *m,
                              const struct active_rcpt *r, enum wire_verdict_kind kind,
                              bool final_site)
{
    if (q->conf->confirm_delay_cleared && m->warned && m->sender[0] != '\0' &&
        (r->notify == NOTIFY_DEFAULT || (r->notify & NOTIFY_DELAY) != 0)) {
        return true; /* it was told of the delay, now of its end */
    }
    return (r->notify & NOTIFY_SUCCESS) != 0 && m->sender[0] != '\0' &&
           (kind == VERDICT_RELAYED || final_site);
}

void queue_settle(struct queue *q, struct active_msg *m, uint32_t n, const struct queue_verdict *v)
{
    struct active_rcpt *r = active_find_rcpt(m, n);
    enum wire_verdict_kind kind = v->kind;
    struct queue_verdict changed = *v;
    struct spool_verdict verdict = {.attempted = v->attempted, .when = clock_wall()};
    bool soft = false;
    struct step *step;
    struct buf strings;

    CHECK(r != NULL);
    if (kind == VERDICT_BOUNCED && q->conf->soft_bounce) {
        kind = VERDICT_DEFERRED;
        soft = true;
    }
    /* A status of the wrong class would tell the sender the opposite of what happened. */
    char status[STATUS_SIZE];
    struct status parsed = {0};
    (void)status_parse(v->status, &parsed); /* none: repaired to class.0.0 */
    if (soft && parsed.class == STATUS_PERMANENT) {
        parsed.class = STATUS_TRANSIENT;
    }
    parsed =
        status_repair(parsed, kind == VERDICT_BOUNCED                           ? STATUS_PERMANENT
                              : kind == VERDICT_SENT || kind == VERDICT_RELAYED ? STATUS_SUCCESS
                                                                                : STATUS_TRANSIENT);
    changed.status = slice_string(status_print(parsed, status));

    switch (kind) {
    case VERDICT_SENT:
    case VERDICT_RELAYED:
        log_verdict(q, m, r, &changed, "sent");
        q->delivered++;
        m->undone -= m->undone > 0 ? 1 : 0;
        if (success_to_report(q, m, r, kind, v->final_site)) {
            verdict.state = v->final_site ? SPOOL_RCPT_DELIVERED : SPOOL_RCPT_RELAYED;
            m->touched = true;
        } else {
            verdict.done = true;
        }
        break;
    case VERDICT_DEFERRED:
    case VERDICT_NONE:
        log_verdict(q, m, r, &changed, soft ? "SOFTBOUNCE" : "deferred");
        q->deferred++;
        verdict.state = SPOOL_RCPT_PENDING;
        m->touched = true;
        m->deferred_else = m->deferred_else || !v->suspended;
        break;
    case VERDICT_BOUNCED:
        log_verdict(q, m, r, &changed, "bounced");
        q->bounced++;
        m->undone -= m->undone > 0 ? 1 : 0;
        if (wants_failure(r)) {
            verdict.state = SPOOL_RCPT_FAILED;
            m->touched = true;
        } else {
            verdict.done = true;
        }
        break;
    }

    active_settle_rcpt(m, r);
    if (v->sweep) {
        CHECK(verdict.done);
        return; /* STEP_ALL_DONE follows */
    }
    buf_init(&strings, SPOOL_DIAGNOSTIC_MAX * 2 + WIRE_HOST_MAX + 64);
    (void)buf_add(&strings, changed.status); /* within the limits the frame had */
    (void)buf_add(&strings, v->text);
    (void)buf_add(&strings, v->relay);
    step = mem_new(sizeof *step);
    step->type = STEP_SETTLE;
    step->id = m->id;
    step->n = n;
    step->verdict = verdict;
    if (!strings.failed) {
        step->strings = buf_take(&strings);
        step->verdict.status = slice_of(step->strings, changed.status.len);
        step->verdict.diagnostic = slice_of(step->strings + changed.status.len, v->text.len);
        step->verdict.remote =
            slice_of(step->strings + changed.status.len + v->text.len, v->relay.len);
    }
    buf_fini(&strings);
    queue_step(q, step);
}

/* Each recipient of the flight exactly once, and nothing else? */
static bool verdicts_fit(const struct flight *f, const struct wire_verdict *v, uint32_t count)
{
    if (count != f->rcpt_count) {
        return false;
    }
    for (size_t i = 0; i < f->rcpt_count; i++) {
        bool found = false;
        /* Agents report in the order they were given, so the first look finds it; an agent that
         * does not is only slower. */
        for (size_t j = 0; j < count && !found; j++) {
            found = v[(i + j) % count].n == f->rcpts[i];
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

static const char *agent_program(enum conf_agent agent)
{
    static const char *const names[] = {
        [CONF_AGENT_SMTP] = "smtp",       [CONF_AGENT_LMTP] = "lmtp",
        [CONF_AGENT_MAILDIR] = "local",   [CONF_AGENT_PIPE] = "pipe",
        [CONF_AGENT_ERROR] = "error",     [CONF_AGENT_RETRY] = "error",
        [CONF_AGENT_DISCARD] = "discard", [CONF_AGENT_TA] = "ta",
    };

    return names[agent];
}

/* A flight ended without a word from its agent. The recipients are deferred, not tried at once: a
 * message that makes an agent crash must not do so again and again. */
static void flight_crashed(struct queue *q, struct flight *f, const char *why)
{
    struct active_msg *m = f->msg;
    enum conf_agent agent = q->transport_agents[f->transport];

    for (size_t i = 0; i < f->rcpt_count; i++) {
        queue_settle(q, m, f->rcpts[i],
                     &(struct queue_verdict){.kind = VERDICT_DEFERRED,
                                             .status = SLICE("4.3.0"),
                                             .text = slice_string(why),
                                             .relay = SLICE("none"),
                                             .attempted = true,
                                             .program = agent_program(agent),
                                             .handed = f->handed});
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_CRASH,
                         slice_string(why)));
    flight_remove(&q->active, f);
}

/* The most frequent end of a message: all that is left of it is in this entry, goes through, and
 * nobody is to be told. Then no recipient needs a row written; the message is deleted whole. */
static bool ends_message(const struct queue *q, const struct flight *f,
                         const struct wire_verdict *verdicts, bool final_site)
{
    struct active_msg *m = f->msg;

    if (m->touched || m->dropped || !m->all_read || m->undone != f->rcpt_count) {
        return false;
    }
    for (size_t i = 0; i < f->rcpt_count; i++) {
        const struct wire_verdict *v = &verdicts[i];

        if ((v->kind != VERDICT_SENT && v->kind != VERDICT_RELAYED) ||
            success_to_report(q, m, active_find_rcpt(m, v->n), v->kind, final_site)) {
            return false;
        }
    }
    return true;
}

static void all_done(struct queue *q, struct active_msg *m)
{
    struct step *step = mem_new(sizeof *step);

    step->type = STEP_ALL_DONE;
    step->id = m->id;
    m->ended = true;
    log_info("%s: removed", m->id_text);
    queue_step(q, step);
}

/* What was handed out comes back as it was: it is not settled, so the next pass finds it. */
static void flight_untried(struct queue *q, struct flight *f)
{
    f->msg->untried = f->msg->touched = true;
    for (size_t i = 0; i < f->rcpt_count; i++) {
        active_settle_rcpt(f->msg, active_find_rcpt(f->msg, f->rcpts[i]));
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_CRASH,
                         slice_of("", 0)));
    flight_remove(&q->active, f);
}

/* For those who ask why a window is as it is. */
static void remember(struct queue *q, const struct flight *f, const struct wire_result *m)
{
    struct sched_window_step step = sched_window_step(q->sched);
    const struct wire_verdict *last = NULL;

    for (uint32_t i = 0; i < m->verdict_count; i++) {
        const struct wire_verdict *v = &m->verdicts[i];

        /* Most often all recipients of an entry get the same reply. */
        if ((v->kind == VERDICT_DEFERRED || v->kind == VERDICT_BOUNCED) &&
            (last == NULL || !slice_equal(v->text, last->text))) {
            history_add_reply(&q->history, f->transport, slice_string(f->dest), clock_wall(),
                              v->status, v->relay, v->text);
            last = v;
        }
    }
    if (step.before != step.after) {
        history_add_step(&q->history, f->transport, slice_string(f->dest),
                         (struct history_step){.at = clock_wall(),
                                               .before = step.before,
                                               .after = step.after,
                                               .why = step.after > step.before ? HISTORY_SUCCESS
                                                                               : HISTORY_FAILURE});
    }
}

/* destination_concurrency_feedback_debug: the numbers of a window after a result has changed them.
 * A destination that has drained has none any more. */
static void log_feedback(const struct queue *q, const struct flight *f, enum sched_outcome outcome)
{
    struct sched_dest_info d;

    if (!q->conf->destination_concurrency_feedback_debug ||
        !sched_dest_get(q->sched, f->transport, slice_string(f->dest), &d)) {
        return;
    }
    log_info("%s: queue %s: limit %" PRIu32 " window %" PRIu32
             " success %g failure %g fail_cohorts %g",
             outcome == SCHED_OK ? "qmgr_queue_unthrottle" : "qmgr_queue_throttle", f->dest,
             d.window_max, d.state == SCHED_DEST_DEAD_UNTIL ? 0 : d.window, d.success, d.failure,
             d.failed_cohorts);
}

/* False: the agent broke the rules. */
static bool take_result(struct queue *q, struct agent *agent, const struct wire_result *m)
{
    struct flight *f = flight_find(&q->active, m->entry);
    enum sched_outcome outcome = SCHED_OK;
    enum conf_agent kind;

    if (f == NULL || !f->sent || f->agent != (unsigned)(agent - q->agents)) {
        return false;
    }
    kind = q->transport_agents[f->transport];
    if (m->outcome == OUTCOME_GIVEN_BACK) {
        if (m->verdict_count != 0) {
            return false;
        }
        flight_untried(q, f);
        return true;
    } else {
        if (!verdicts_fit(f, m->verdicts, m->verdict_count)) {
            return false;
        }
        outcome = m->outcome == OUTCOME_SITE_FAIL ? SCHED_SITE_FAIL
                  : m->outcome == OUTCOME_CRASH   ? SCHED_CRASH
                                                  : SCHED_OK;
        if (m->maybe_duplicate) {
            log_as(agent_program(kind), (int)getpid(),
                   "%s: connection lost between end of data and its reply: the recipients may get "
                   "this message twice",
                   f->msg->id_text);
        }
        bool final_site = kind != CONF_AGENT_SMTP && kind != CONF_AGENT_LMTP;
        bool sweep = ends_message(q, f, m->verdicts, final_site);
        for (uint32_t i = 0; i < m->verdict_count; i++) {
            const struct wire_verdict *v = &m->verdicts[i];
            queue_settle(q, f->msg, v->n,
                         &(struct queue_verdict){.kind = v->kind,
                                                 .status = v->status,
                                                 .text = v->text,
                                                 .relay = v->relay,
                                                 .attempted = true,
                                                 .sweep = sweep,
                                                 .final_site = final_site,
                                                 .program = agent_program(kind),
                                                 .setup_us = m->setup_us,
                                                 .transmit_us = m->transmit_us,
                                                 .conn_use = m->conn_use,
                                                 .handed = f->handed});
        }
        if (sweep) {
            all_done(q, f->msg);
        }
    }
    CHECK(
        sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, outcome, m->reason));
    log_feedback(q, f, outcome);
    remember(q, f, m);
    flight_remove(&q->active, f);
    return true;
}

/* ---- agents --------------------------------------------------------------------------------- */

/* Which process delivers for a destination: always the same, so that its connections are there. */
static struct agent *agent_for(struct queue *q, enum conf_agent kind, const char *dest)
{
    enum wire_role role = kind == CONF_AGENT_TA                                   ? ROLE_AGENTS
                          : kind == CONF_AGENT_MAILDIR || kind == CONF_AGENT_PIPE ? ROLE_LOCAL
                                                                                  : ROLE_DELIVER;
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

/* Give the flight's content in the frame, in a descriptor, or later. False: it can't be read. */
static bool content_for(struct queue *q, struct flight *f, bool on_demand_allowed,
                        struct buf *bytes, struct slice *ret_content, int *ret_fd,
                        enum wire_content_place *ret_place)
{
    struct active_msg *m = f->msg;
    uint64_t size;
    int rc;

    *ret_fd = -1;
    *ret_content = slice_of("", 0);
    if (on_demand_allowed && q->active.inline_bytes + m->size > QUEUE_INLINE_MAX &&
        q->active.inline_bytes > 0) {
        *ret_place = CONTENT_ON_DEMAND;
        return true;
    }
    *ret_place = CONTENT_INSIDE;
    if (m->content != NULL) {
        *ret_content = slice_of(m->content, m->size);
    } else {
        rc = spool_read_content(q->spool, m->id, bytes, ret_fd, &size);
        if (rc != 0) {
            log_warning("%s: content can't be read: %s", m->id_text, spool_error(q->spool));
            return false;
        }
        if (*ret_fd >= 0) {
            *ret_place = CONTENT_FD;
            return true;
        }
        *ret_content = buf_slice(bytes);
        active_keep_content(&q->active, m, *ret_content);
    }
    f->inline_bytes = ret_content->len;
    q->active.inline_bytes += ret_content->len;
    return true;
}

static void flight_send(struct queue *q, struct flight *f, struct agent *agent)
{
    struct active_msg *m = f->msg;
    struct site *site = pass_site_find(q, f->transport, slice_string(f->dest));
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
    frame = (struct wire_deliver){.entry = f->entry,
                                  .transport = slice_string(q->transports[f->transport]),
                                  .nexthop = slice_string(site != NULL ? site->nexthop : f->dest),
                                  .id = slice_string(m->id_text),
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
    if (content_for(q, f, true, &bytes, &frame.content, &fd, &frame.place)) {
        f->has_content = frame.place != CONTENT_ON_DEMAND;
        wire_put_deliver(agent->channel, &frame, fd);
    } else {
        flight_crashed(q, f, "message content can't be read");
    }
    if (rcpts != &one) {
        mem_free(rcpts);
    }
    buf_fini(&bytes);
}

/* Transports that need no agent: the verdict is in the next hop or in the transport's nature. */
static void flight_here(struct queue *q, struct flight *f, enum conf_agent kind)
{
    struct site *site = pass_site_find(q, f->transport, slice_string(f->dest));
    struct slice text = slice_string(site != NULL ? site->nexthop : f->dest);
    struct queue_verdict v = {.relay = SLICE("none"),
                              .attempted = kind != CONF_AGENT_RETRY,
                              .final_site = true,
                              .program = agent_program(kind),
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

static void deliver(struct queue *q, const struct sched_action *action)
{
    struct active_msg *m = active_find(&q->active, (struct msg_id){action->msg.n});
    enum conf_agent kind = q->transport_agents[action->transport];
    struct flight *f;
    struct agent *agent;

    CHECK(m != NULL);
    f = flight_add(&q->active, action->entry.n, m, action->transport, action->dest, action->rcpts,
                   action->rcpt_count, clock_mono());
    f->cache_load = action->cache_load;
    f->cache_store = action->cache_store;
    if (kind == CONF_AGENT_ERROR || kind == CONF_AGENT_RETRY || kind == CONF_AGENT_DISCARD) {
        flight_here(q, f, kind);
        return;
    }
    agent = agent_for(q, kind, f->dest);
    if (agent == NULL) {
        flight_crashed(q, f, "no process delivers for this transport");
    } else if (agent->channel != NULL) {
        flight_send(q, f, agent);
    } else {
        f->agent = (unsigned)(agent - q->agents); /* sent when it is back */
    }
}

/* An agent's process is gone. What it had is deferred; what waits for it goes on waiting. */
static void agent_lost(struct queue *q, struct agent *agent)
{
    unsigned index = (unsigned)(agent - q->agents);
    struct flight *f, *next;

    channel_free(agent->channel);
    agent->channel = NULL;
    agent->lost = clock_mono();
    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (f->sent && f->agent == index) {
            flight_crashed(q, f, "the delivering process ended unexpectedly");
        }
    }
}

void queue_serve_waiting(struct queue *q, struct agent *agent)
{
    unsigned index = (unsigned)(agent - q->agents);
    struct flight *f, *next;

    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (f->sent || f->agent != index) {
            continue;
        }
        if (agent->channel != NULL) {
            flight_send(q, f, agent);
        } else {
            flight_crashed(q, f, "the delivering process can't be started");
        }
    }
}

static bool agent_frame(struct queue *q, struct agent *agent, const struct frame *frame)
{
    struct wire_result result;
    struct wire_verdict *verdicts;
    struct wire_content content;
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
        ok = take_result(q, agent, &result);
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
    default:
        return false;
    }
}

static void on_agent(void *arg, struct channel *ch)
{
    struct agent *agent = arg;
    struct queue *q = agent->queue;
    struct frame frame;
    enum channel_event event;

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
        agent_lost(q, agent);
    }
}

/* ---- those who bring mail ------------------------------------------------------------------- */

static void submit(struct queue *q, struct channel *ch, const struct frame *frame, bool *ret_ok)
{
    struct wire_submit m;
    struct wire_rcpt *rcpts;
    struct step *step;
    int rc;

    *ret_ok = wire_get_submit(frame->body, &m, &rcpts);
    if (!*ret_ok) {
        return;
    }
    step = mem_new(sizeof *step);
    step->type = STEP_SUBMIT;
    step->from = ch;
    step->token = m.token;
    if (!q->flow.space_ok) {
        rc = -ENOSPC; /* the sender of the frame did not know yet */
    } else if (q->flow.storage_ok && !q->role->stopping) {
        rc = pass_submit(q, &m, frame->fd, &step->id, &step->msg);
    } else {
        rc = -EIO;
    }
    mem_free(rcpts);
    if (rc != 0) {
        step_undone(q, step,
                    rc); /* nothing of it is in the batch, or the batch will fail as well */
    } else {
        queue_step(q, step);
    }
}

static bool client_frame(struct queue *q, struct channel *ch, const struct frame *frame)
{
    struct wire_etrn etrn;
    bool ok = false;

    switch (frame->type) {
    case WIRE_SUBMIT:
        submit(q, ch, frame, &ok);
        return ok;
    case WIRE_ETRN:
        if (!wire_get_etrn(frame->body, &etrn)) {
            return false;
        }
        if (domain_list_match(&q->conf->fast_flush_domains, etrn.domain)) {
            ask_flush_domain(q, etrn.domain);
            wire_put_etrn_done(ch, &(struct wire_etrn_done){.token = etrn.token,
                                                            .code = 250,
                                                            .text = SLICE("Queuing started")});
        } else {
            wire_put_etrn_done(
                ch, &(struct wire_etrn_done){.token = etrn.token,
                                             .code = 459,
                                             .text = SLICE("ETRN is not for this domain")});
        }
        return true;
    default:
        return false;
    }
}

static void client_lost(struct queue *q, struct channel *ch)
{
    struct step *step;

    STAILQ_FOREACH(step, &q->batch, next)
    {
        if (step->from == ch) {
            step->from = NULL; /* committed all the same; nobody is left to be told */
        }
    }
    for (size_t i = 0; i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients[i] == ch) {
            q->clients[i] = NULL;
        }
    }
    channel_free(ch);
}

static void on_client(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        bool ok = client_frame(q, ch, &frame);

        if (frame.fd >= 0) {
            (void)close(frame.fd); /* a submission's content has been copied */
        }
        if (!ok) {
            log_error("a receiving process sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        client_lost(q, ch);
    }
}

static void flow_update(struct queue *q)
{
    struct spool_totals totals;
    uint64_t free_bytes;
    uint64_t minimum = q->conf->queue_minfree > 0 ? (uint64_t)q->conf->queue_minfree
                                                  : (uint64_t)q->conf->message_size_limit * 3 / 2;
    struct wire_flow flow = q->flow;

    if (spool_free_bytes(q->spool, &free_bytes) == 0) {
        flow.free_bytes = free_bytes;
        flow.space_ok = free_bytes >= minimum;
        if (!flow.space_ok && q->flow.space_ok) {
            log_warning("queue_minfree: %" PRIu64 " bytes free, %" PRIu64
                        " wanted: mail is refused for now",
                        free_bytes, minimum);
        }
    }
    if (spool_totals(q->spool, &totals) == 0) {
        uint64_t claimed = HASH_COUNT(q->active.msgs);
        flow.behind = totals.incoming > claimed + QUEUE_BEHIND;
    }
    if (flow.space_ok != q->flow.space_ok || flow.behind != q->flow.behind) {
        q->flow_sent = false;
    }
    q->flow = flow;
}

static void flow_send(struct queue *q)
{
    for (size_t i = 0; !q->flow_sent && i < QUEUE_CLIENTS_MAX; i++) {
        if (q->clients[i] != NULL) {
            wire_put_flow(q->clients[i], &q->flow);
        }
    }
    q->flow_sent = true;
}

/* ---- control -------------------------------------------------------------------------------- */

static void on_control(void *arg, struct channel *ch)
{
    struct queue *q = arg;
    struct wire_ask ask;
    struct frame frame;
    enum channel_event event;

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

/* Nothing of the message is in the scheduler any more. `parked`: the key it is to wait under, which
 * is taken, or NULL. */
static void end_pass(struct queue *q, struct active_msg *m, char *parked)
{
    struct step *step;

    if (m->ended || (m->untried && !m->touched)) {
        if (!m->ended) {
            spool_unclaim(q->spool, m->id); /* it is as it was */
            q->next_due.us = 0;
        }
        mem_free(parked);
        active_remove(&q->active, m);
        return;
    }
    step = mem_new(sizeof *step);
    step->type = STEP_END_PASS;
    step->id = m->id;
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
    key = park_key(q, action->transport, action->dest, slice_string(m->its_class->name));
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
            deliver(q, &action);
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

    if (!STAILQ_EMPTY(&q->redo) || q->role->stopping || clock_wall().us < q->next_due.us) {
        return false;
    }
    while (imports < QUEUE_IMPORTS_PER_TURN && idle < 2 && has_place(q)) {
        unsigned which = q->import_deferred ? 1 : 0;
        struct msg_id id;
        size_t count = 0;
        int rc = spool_claim(q->spool, from[which], clock_wall(), 1, &id, &count);

        if (rc != 0) {
            log_warning("spool: %s", spool_error(q->spool));
            q->next_due = wall_after(clock_wall(), CHECK_PERIOD_US);
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
        q->next_due = wall_after(clock_wall(), CHECK_PERIOD_US);
    }
    return false;
}

static void check_now_and_then(struct queue *q)
{
    if (!mono_reached(q->next_check, clock_mono())) {
        return;
    }
    q->next_check = mono_after(clock_mono(), CHECK_PERIOD_US);
    if (!q->flow.storage_ok) {
        redo_each(q);
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
    busiest_step(&q->busiest, q->sched, BUSIEST_PER_CHECK);
    flow_update(q);
}

static void set_timer(struct queue *q, bool at_once)
{
    bool blocked = !STAILQ_EMPTY(&q->redo); /* nothing starts: what is due must not wake us */
    struct mono at = blocked ? q->next_check : mono_min(sched_wake_at(q->sched), q->next_check);
    int64_t due_in = us_add(q->next_due.us, -clock_wall().us);
    int64_t wait;
    struct timeval tv;

    if (!blocked && !q->role->stopping && sched_has_room(q->sched)) {
        at = mono_min(at, mono_after(clock_mono(), due_in > 0 ? due_in : 0));
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

static void queue_turn(struct role *role)
{
    struct queue *q = role->state;
    bool more, idle;

    check_now_and_then(q);
    pull_decisions(q);
    idle = !spool_dirty(q->spool);
    if (!commit_may_wait(q)) {
        (void)commit_now(q); /* the steps know what to do when it fails */
    }
    if (idle) {
        spool_tidy(q->spool);
    }
    more = import(q);
    if (STAILQ_EMPTY(&q->redo) && !role->stopping) {
        more |= park_admit_some(q);
        more |= park_tell_some(q);
    }
    more |= ask_flush_some(q);
    pull_decisions(q); /* what was committed or imported just now */
    auditor_step(q);
    flow_send(q);
    for (unsigned i = 0; i < OUTLET_COUNT; i++) {
        outlet_flush(&q->outlets[i]);
    }
    if (role->stopping && stop_turn(q)) {
        return;
    }
    set_timer(q, more || (STAILQ_EMPTY(&q->redo) && !STAILQ_EMPTY(&q->admissions)));
}

/* ---- the role ------------------------------------------------------------------------------- */

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
    rng_init(&q->rng, (uint64_t)clock_wall().us ^ ((uint64_t)getpid() << 40));
    buf_init(&error, WIRE_TEXT_MAX);
    rc = spool_open(role->conf->spool, SPOOL_OPEN_WRITE, &options, &error, &q->spool);
    if (rc != 0) {
        log_error("%s", error.failed ? role->conf->spool : buf_cstr(&error));
        buf_fini(&error);
        return 1;
    }
    buf_fini(&error);
    q->sites_trim_at = QUEUE_SITES_MAX;
    q->sched = sched_new(&limits);
    transports_load(q);
    q->flow = (struct wire_flow){.storage_ok = true, .space_ok = true};
    flow_update(q);
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
                q->clients[i] = channel_new(role->base, fd, on_client, q);
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
            agent_lost(q, agent);
        }
        if (peer->role == ROLE_DELIVER) {
            q->deliver_count = peer->count;
        }
        agent->channel = channel_new(role->base, fd, on_agent, agent);
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

    if (frame->type == WIRE_OUTLET) {
        if (!wire_get_number(frame->body, &outlet) || outlet >= OUTLET_COUNT || frame->fd < 0) {
            return false;
        }
        outlet_adopt(&q->outlets[outlet], frame->fd);
        return true;
    }
    ok = client_frame(q, role->parent, frame); /* pickup submits over the parent's channel */

    if (frame->fd >= 0) {
        (void)close(frame->fd); /* as in on_client */
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
    q->next_due.us = 0;
}

static void queue_stop(struct role *role)
{
    struct queue *q = role->state;

    struct flight *f, *next;

    q->stop_at = mono_after(clock_mono(), q->conf->shutdown_timeout_us);
    leave_all(q);
    HASH_ITER(hh, q->active.flights, f, next)
    {
        if (!f->sent) {
            flight_untried(q, f); /* its agent will not come back */
        }
    }
    log_info("stopping: %u deliveries in flight", HASH_COUNT(q->active.flights));
    set_timer(q, true);
}

static void queue_clock_moved(struct role *role)
{
    struct queue *q = role->state;

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
        step_free(step);
    }
    ask_end(q);
    park_end(q);
    pass_wanted_free(q);
    pass_sites_free(q);
    active_fini(&q->active);
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
