/*
 * Settlement, third step: log lines, counters, events and observers for each recipient; then, for a
 * delivery, the scheduler, the destination and its history.
 */
#include "settlement.h"

#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "clock.h"
#include "delay_text.h"
#include "log.h"
#include "observer.h"
#include "queue.h"
#include "queue_report.h"
#include "queue_result.h"
#include "queue_retry.h"

/* ---- the log line ---------------------------------------------------------------------------- */

/* Returns the tag of log lines: the program that delivers, or "error" without a delivery. */
static const char *program_of(const struct queue *q, const struct settlement *s)
{
    const char *program;

    if (s->delivery == NULL) {
        return "error";
    }
    program = agent_kind(s->delivery->kind)->program;
    return program != NULL ? program : transport_name(&q->transports, s->delivery->transport);
}

static void log_recipient(struct queue *q, const struct settlement *s, const struct settled *r)
{
    static const char *const outcomes[] = {
        [DISPOSITION_SENT] = "sent",
        [DISPOSITION_DEFERRED] = "deferred",
        [DISPOSITION_SOFT_BOUNCED] = "SOFTBOUNCE",
        [DISPOSITION_BOUNCED] = "bounced",
        [DISPOSITION_EXPIRED] = "bounced",
    };
    static const struct wire_result none;
    const struct wire_result *result = s->result != NULL ? s->result : &none;
    const struct active_msg *m = s->msg;
    char texts[5][DELAY_TEXT_MAX], conn_use[32] = "";
    int64_t digits = q->conf->delay_logging_resolution_limit;
    bool was_handed = s->delivery != NULL && s->cause != SETTLE_STOPPED;
    struct mono handed = was_handed ? s->delivery->handed : clock_mono();
    int64_t before = m->activated_wall.us - m->arrived.us;
    int64_t active = handed.us - m->activated.us;
    const char *tls = q->conf->smtp_log_tls_feature_status ? s->tls : "";
    struct slice text = slice_trim(r->said.text); /* the first line may be empty */

    log_hold_deliveries(); /* until its commit */
    if (result->conn_use > 1) {
        (void)snprintf(conn_use, sizeof conn_use, ", conn_use=%" PRIu32,
                       result->conn_use); /* fits */
    }
    log_as(
        program_of(q, s), result->pid != 0 ? (int)result->pid : log_pid(),
        "%s: to=<%s>, relay=%.*s%s, delay=%s, delays=%s/%s/%s/%s%s%s, dsn=%.*s, status=%s (%.*s)",
        m->id_text, r->rcpt->address, SLICE_ARGS(r->said.relay), conn_use,
        delay_text(clock_wall().us - m->arrived.us, digits, texts[0]),
        delay_text(before, digits, texts[1]), delay_text(active, digits, texts[2]),
        delay_text(result->setup_us, digits, texts[3]),
        delay_text(result->transmit_us, digits, texts[4]), tls[0] == '\0' ? "" : ", tls=", tls,
        SLICE_ARGS(r->verdict.status), outcomes[r->disposition], SLICE_ARGS(text));
    log_hold_deliveries_end();
}

/* ---- observers ------------------------------------------------------------------------------- */

static void tell_end(struct queue *q, const struct settlement *s, const struct settled *r)
{
    const struct active_msg *m = s->msg;
    struct recipient_end end = {.how = r->disposition,
                                .report = r->said.report,
                                .id = m->id,
                                .spoolid = slice_string(m->spoolid),
                                .path = slice_string(m->path),
                                .created = m->created,
                                .listed = m->listed};

    if (s->delivery != NULL) {
        end.transport = slice_string(transport_name(&q->transports, s->delivery->transport));
        end.destination = slice_string(s->delivery->dest);
    } else {
        CHECK(s->destination != NULL);
        end.transport = slice_string(transport_name(&q->transports, s->destination->transport));
        end.destination = slice_string(s->destination->name);
    }
    observer_ended(q, &end);
}

/* ---- recipients ------------------------------------------------------------------------------ */

/* Has the recipient a log line of its own? When mail is deferred untried because its destination
 * waits, only the attempt that stopped the destination has one, as thousands may wait at each
 * retry. */
static bool has_line(const struct settlement *s, const struct settled *r)
{
    bool untried = s->cause == SETTLE_WAITING || s->cause == SETTLE_STOPPED;

    return r->disposition == DISPOSITION_EXPIRED ||
           (!r->quiet && !(untried && r->disposition == DISPOSITION_DEFERRED));
}

static bool others_log(const struct settlement *s)
{
    return s->is_logged || (s->delivery != NULL && agent_kind(s->delivery->kind)->writes_log);
}

/* Counts the times of an attempt. */
static void measure_attempt(struct class_count *class, const struct settlement *s,
                            const struct settled *r)
{
    const struct active_msg *m = s->msg;
    const int64_t phases[MEASURE_TOTAL] = {[MEASURE_QUEUED] = m->activated_wall.us - m->arrived.us,
                                           [MEASURE_ACTIVE] =
                                               s->delivery->handed.us - m->activated.us,
                                           [MEASURE_SETUP] = s->result->setup_us,
                                           [MEASURE_TRANSMIT] = s->result->transmit_us};

    for (int i = 0; i < MEASURE_TOTAL; i++) {
        measure_add(&class->delays[i], &measure_delays, phases[i]);
    }
    if (r->disposition == DISPOSITION_SENT) {
        measure_add(&class->delays[MEASURE_TOTAL], &measure_delays,
                    clock_wall().us - m->arrived.us);
    }
}

static void measure_recipient(struct queue *q, struct class_count *class,
                              const struct settlement *s, const struct settled *r)
{
    static const unsigned outcomes[] = {
        [DISPOSITION_SENT] = 0,    [DISPOSITION_DEFERRED] = 1, [DISPOSITION_SOFT_BOUNCED] = 1,
        [DISPOSITION_BOUNCED] = 2, [DISPOSITION_EXPIRED] = 3,
    };

    if (r->quiet && r->disposition != DISPOSITION_EXPIRED) {
        return; /* another program has counted it */
    }
    q->measures.outcomes[outcomes[r->disposition]][measure_category(r->verdict.status)]++;
    if (s->result != NULL && s->delivery != NULL) {
        measure_attempt(class, s, r);
    }
}

static void account_recipient(struct queue *q, const struct settlement *s, const struct settled *r)
{
    struct class_count *class =
        class_count(&q->class_counts, slice_string(s->msg->its_class->name));

    measure_recipient(q, class, s, r);
    journal_settled(q, s, r);
    if (has_line(s, r) && !others_log(s)) {
        log_recipient(q, s, r);
    }
    switch (r->disposition) {
    case DISPOSITION_SENT:
        q->counts.delivered++;
        class->delivered++;
        tell_end(q, s, r);
        break;
    case DISPOSITION_DEFERRED:
    case DISPOSITION_SOFT_BOUNCED:
        q->counts.deferred += r->quiet ? 0 : 1;
        class->deferred += r->quiet ? 0 : 1;
        break;
    case DISPOSITION_EXPIRED:
        q->counts.expired++;
        q->counts.bounced++;
        tell_end(q, s, r);
        break;
    case DISPOSITION_BOUNCED:
        q->counts.bounced++;
        tell_end(q, s, r);
        break;
    }
}

/* Logs facts of a whole result, before its recipients. */
static void log_result(const struct queue *q, const struct settlement *s)
{
    if (s->result->maybe_duplicate) {
        log_hold_deliveries();
        log_as(program_of(q, s), log_pid(),
               "%s: connection lost between end of data and its reply: the recipients may get "
               "this message twice",
               s->msg->id_text);
        log_hold_deliveries_end();
    }
    if (s->result->resync) {
        log_info("Resyncing file \"%s\" (pid=%" PRIu32 " ho='%s')", s->msg->path, s->result->pid,
                 s->delivery->dest);
    }
}

/* ---- the destination ------------------------------------------------------------------------- */

/* Returns the remote server's reply, or our text without one. */
static struct slice words_of(const struct wire_verdict *v)
{
    return v->reply.len > 0 ? v->reply : v->text;
}

/* Does the site refuse our login, or require one? */
static bool is_about_login(const struct wire_verdict *v)
{
    return v->kind == VERDICT_DEFERRED &&
           (slice_equal(v->status, SLICE("4.7.8")) || slice_starts(v->reply, SLICE("530")));
}

/* Stores replies and window changes for operators who examine a window. */
static void remember(struct queue *q, const struct settlement *s)
{
    struct sched_window_step step = sched_window_step(q->sched);
    struct dest_histories *all = &q->destinations.histories;
    const struct wire_verdict *last = NULL;

    if (s->destination == NULL) {
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct wire_verdict *v = &s->result->verdicts[i];

        if (is_about_login(v)) {
            report_login_refused(q, s->destination, words_of(v));
        }
        /* Most often all recipients of an entry get the same reply. */
        if ((v->kind == VERDICT_DEFERRED || v->kind == VERDICT_BOUNCED) &&
            (last == NULL || !slice_equal(words_of(v), words_of(last)))) {
            dest_history_add_reply(all, s->destination, clock_wall(), v->status, v->relay,
                                   words_of(v));
            last = v;
        }
    }
    if (step.before != step.after) {
        journal_window(q, transport_name(&q->transports, s->destination->transport),
                       s->destination->name, step.before, step.after);
        dest_history_add_step(all, s->destination,
                              (struct history_step){.at = clock_wall(),
                                                    .before = step.before,
                                                    .after = step.after,
                                                    .why = step.after > step.before
                                                               ? HISTORY_SUCCESS
                                                               : HISTORY_FAILURE});
    }
}

/* Logs a window after a result has changed it (destination_concurrency_feedback_debug). A
 * destination without mail has no window. */
static void log_feedback(const struct queue *q, const struct delivery *d,
                         enum sched_outcome outcome)
{
    struct sched_dest_info info;

    if (!q->conf->destination_concurrency_feedback_debug ||
        !sched_dest_get(q->sched, d->transport, slice_string(d->dest), &info)) {
        return;
    }
    log_info("%s: queue %s: limit %" PRIu32 " window %" PRIu32
             " success %g failure %g fail_cohorts %g",
             outcome == SCHED_OK ? "qmgr_queue_unthrottle" : "qmgr_queue_throttle", d->dest,
             info.window_max, info.state == SCHED_DEST_DEAD_UNTIL ? 0 : info.window, info.success,
             info.failure, info.failed_cohorts);
}

/* Postpones the waiting mail of a destination, with the agent's reason, after an agent has stopped
 * the destination. */
static void stop_destination(struct queue *q, const struct settlement *s)
{
    struct slice reason = s->result->reason;

    if (s->destination == NULL || s->again_at.us == 0) {
        return; /* no retry rules */
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct wire_verdict *v = &s->result->verdicts[i];

        if (v->stops_thread && v->text.len > 0) {
            reason = v->text;
            break;
        }
    }
    queue_retry_suspend(q, s->destination, s->again_at, reason);
}

static void account_delivery(struct queue *q, const struct settlement *s)
{
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){s->delivery->entry},
                         s->outcome, s->reason));
    if (s->result != NULL && s->result->thread_stops) {
        stop_destination(q, s);
    }
    if (s->cause != SETTLE_HERE) {
        queue_retry_note(q, s->destination, s->cause == SETTLE_STOPPED ? 0 : s->count);
    }
    if (s->result != NULL) {
        log_feedback(q, s->delivery, s->outcome);
        remember(q, s);
    }
}

void settle_account(struct queue *q, const struct settlement *s)
{
    if (s->result != NULL) {
        log_result(q, s);
    }
    for (size_t i = 0; i < s->count; i++) {
        account_recipient(q, s, &s->rcpts[i]);
    }
    if (s->delivery != NULL) {
        account_delivery(q, s);
    }
}
