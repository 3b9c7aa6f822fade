/*
 * What came of deliveries: logged, stored, and told to the scheduler.
 */
#include "queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "notary.h"
#include "status.h"
#include "ta.h"

/* A delay as Postfix writes it: two significant digits, at most `digits` behind the point, no
 * trailing zeros. */
static const char *delay_text(int64_t us, int64_t digits, char out[32])
{
    int64_t unit = us >= 10 * US_PER_S ? US_PER_S : us >= US_PER_S ? US_PER_S / 10 : US_PER_S / 100;
    int64_t places = us >= 10 * US_PER_S ? 0 : us >= US_PER_S ? 1 : 2, n;
    char *at = out + 31;

    us = us > 0 ? us : 0;
    for (int64_t x = us; x > 0 && x < US_PER_S / 10 && places < digits; x *= 10) {
        places++;
        unit /= 10;
    }
    for (; places > digits; places--) {
        unit *= 10;
    }
    n = us / unit + (us % unit >= (unit + 1) / 2 ? 1 : 0);
    *at = '\0';
    for (; places > 0; places--, n /= 10) {
        if (*at != '\0' || n % 10 != 0) { /* no zeros at the end */
            *--at = (char)('0' + n % 10);
        }
    }
    if (*at != '\0') {
        *--at = '.';
    }
    do {
        *--at = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    return at;
}

static void log_verdict(struct queue *q, const struct active_msg *m, const struct active_rcpt *r,
                        const struct queue_verdict *v, const char *outcome)
{
    char texts[5][32], conn_use[32] = "";
    int64_t digits = q->conf->delay_logging_resolution_limit;
    struct mono handed = v->handed.us != 0 ? v->handed : clock_mono();
    int64_t before = m->activated_wall.us - m->arrived.us;
    int64_t active = handed.us - m->activated.us;
    struct slice text = slice_trim(v->text); /* its first line may be empty */

    if (v->conn_use > 1) {
        (void)snprintf(conn_use, sizeof conn_use, ", conn_use=%" PRIu32, v->conn_use); /* fits */
    }
    log_as(v->program, v->pid != 0 ? (int)v->pid : log_pid(),
           "%s: to=<%s>, relay=%.*s%s, delay=%s, delays=%s/%s/%s/%s, dsn=%.*s, status=%s (%.*s)",
           m->id_text, r->address, SLICE_ARGS(v->relay), conn_use,
           delay_text(clock_wall().us - m->arrived.us, digits, texts[0]),
           delay_text(before, digits, texts[1]), delay_text(active, digits, texts[2]),
           delay_text(v->setup_us, digits, texts[3]), delay_text(v->transmit_us, digits, texts[4]),
           SLICE_ARGS(v->status), outcome, SLICE_ARGS(text));
}

void queue_statistics(struct queue *q, struct msg_id id, const char *word, struct slice path,
                      struct statistics_line *line)
{
    size_t slash = slice_find_last(path, '/');
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    line->word = word;
    line->name = slash < path.len ? slice_skip(path, slash + 1) : path;
    if (line->spoolid.len == 0) {
        line->spoolid = line->name = slice_string(text);
    }
    statistics_add(&q->outlets[OUTLET_STATISTICS],
                   (enum conf_statistics_format)q->conf->statistics_format, clock_wall(), line);
}

/* The words of the statistics log; an agent's own where it spoke. */
static const char *statistics_word(const struct queue_verdict *v, enum wire_verdict_kind kind)
{
    static const char *const words[] = {[TA_OK] = "ok",
                                        [TA_OK2] = "ok2",
                                        [TA_OK3] = "ok3",
                                        [TA_ERROR] = "error",
                                        [TA_ERROR2] = "error2"};

    if (v->expired) {
        return "expire";
    }
    if (v->word > 0 && v->word <= sizeof words / sizeof words[0]) {
        return words[v->word - 1];
    }
    return kind == VERDICT_BOUNCED ? "error" : "ok";
}

/* A recipient has come to its end. */
static void count_end(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                      const struct queue_verdict *v, enum wire_verdict_kind kind)
{
    struct statistics_line line = {
        .spoolid = slice_string(m->spoolid), .created = m->created, .listed = m->listed};
    struct route route;
    const char *nowhere;

    if (outlet_is_open(&q->outlets[OUTLET_STATISTICS])) {
        (void)queue_route(q, m, r, &route, &nowhere); /* if it has none by now, the one it had */
        line.channel = slice_string(route.transport);
        line.host = slice_string(route.destination);
        queue_statistics(q, m->id, statistics_word(v, kind), slice_string(m->path), &line);
    }
}

/* What fails of ZMailer's own reports is told to others than their sender, whatever he wished. */
static bool wants_failure(const struct active_msg *m, const struct active_rcpt *r)
{
    return r->notify == NOTIFY_DEFAULT || (r->notify & NOTIFY_FAILURE) != 0 ||
           (m->spoolid[0] != '\0' && (m->flags & ENVELOPE_REPORT) != 0);
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

/* What a transport agent's word means to the spool. */
static void take_word(uint32_t word, struct spool_verdict *verdict)
{
    if (word == 0) {
        return;
    }
    switch ((enum ta_status)(word - 1)) {
    case TA_OK2:
        verdict->state = SPOOL_RCPT_DELIVERED;
        verdict->noted = true;
        verdict->done = false;
        break;
    case TA_OK3:
        verdict->unreported = verdict->done = true;
        break;
    case TA_ERROR2:
        verdict->state = SPOOL_RCPT_FAILED;
        verdict->noted = true;
        verdict->done = false;
        break;
    case TA_OK:
    case TA_ERROR:
    case TA_DEFERRED:
    case TA_DEFERBACK:
    case TA_DEFERALL:
    case TA_RETRYAT:
    case TA_UNKNOWN:
        break; /* the kind of verdict says it all */
    }
}

void queue_settle(struct queue *q, struct active_msg *m, uint32_t n, const struct queue_verdict *v)
{
    struct active_rcpt *r = active_find_rcpt(m, n);
    enum wire_verdict_kind kind = v->kind;
    struct queue_verdict changed = *v;
    /* Who is given up for age is marked by the spool: no agent has said so. */
    struct spool_verdict verdict = {.attempted = v->attempted && !v->expired, .when = clock_wall()};
    bool soft = false;
    struct step *step;
    struct buf strings;

    CHECK(r != NULL);
    if (kind == VERDICT_BOUNCED && q->conf->soft_bounce && !v->expired) {
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
        class_count(&q->class_counts, slice_string(m->its_class->name))->delivered++;
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
        if (!v->quiet) {
            log_verdict(q, m, r, &changed, soft ? "SOFTBOUNCE" : "deferred");
            q->deferred++;
            class_count(&q->class_counts, slice_string(m->its_class->name))->deferred++;
        }
        verdict.state = SPOOL_RCPT_PENDING;
        m->touched = true;
        m->deferred_else = m->deferred_else || !v->suspended;
        m->again_else = m->again_else || !v->again;
        m->lifetime_of_all = m->lifetime_of_all || !v->own_expiry;
        break;
    case VERDICT_BOUNCED:
        log_verdict(q, m, r, &changed, "bounced");
        q->bounced++;
        m->undone -= m->undone > 0 ? 1 : 0;
        verdict.state = SPOOL_RCPT_FAILED;
        verdict.done = !wants_failure(m, r);
        m->touched = m->touched || !verdict.done;
        break;
    }

    if (kind != VERDICT_DEFERRED && kind != VERDICT_NONE) {
        count_end(q, m, r, v, kind);
    }
    take_word(v->expired ? 0 : v->word, &verdict);
    active_settle_rcpt(m, r);
    if (v->sweep) {
        CHECK(verdict.done);
        return; /* STEP_ALL_DONE follows */
    }
    buf_init(&strings, 2 * WIRE_TEXT_MAX + WIRE_NOTARY_MAX + WIRE_HOST_MAX + 64);
    (void)buf_add(&strings, changed.status); /* within the limits the frame had */
    (void)buf_add(&strings, v->text);
    (void)buf_add(&strings, v->relay);
    (void)buf_add(&strings, v->notary);
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
        step->verdict.notary = slice_of(
            step->strings + changed.status.len + v->text.len + v->relay.len, v->notary.len);
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

const char *queue_agent_program(enum conf_agent agent)
{
    static const char *const names[] = {
        [CONF_AGENT_SMTP] = "smtp",       [CONF_AGENT_LMTP] = "lmtp",
        [CONF_AGENT_MAILDIR] = "local",   [CONF_AGENT_PIPE] = "pipe",
        [CONF_AGENT_ERROR] = "error",     [CONF_AGENT_RETRY] = "error",
        [CONF_AGENT_DISCARD] = "discard", [CONF_AGENT_TA] = "ta",
    };

    return names[agent];
}

enum conf_agent queue_flight_agent(const struct queue *q, const struct flight *f)
{
    return f->site != NULL ? f->site->agent : q->transport_agents[f->transport];
}

/* Is success its own to report? */
static bool is_final(enum conf_agent agent)
{
    return agent != CONF_AGENT_SMTP && agent != CONF_AGENT_LMTP;
}

/* The tag of its log lines: a transport agent is known by its channel. */
static const char *flight_program(struct queue *q, const struct flight *f)
{
    enum conf_agent agent = queue_flight_agent(q, f);

    return agent == CONF_AGENT_TA ? q->transports[f->transport] : queue_agent_program(agent);
}

void queue_flight_crashed(struct queue *q, struct flight *f, const char *why)
{
    struct active_msg *m = f->msg;
    struct again again;

    if (m->path[0] != '\0') {
        queue_news_resync(q, slice_string(m->path)); /* an agent may have left locks, or marks */
    }
    again_begin(&again, m, f->site);
    again_ran(q, &again, THREAD_SILENT, (struct wall){0});
    for (size_t i = 0; i < f->rcpt_count; i++) {
        struct queue_verdict v = {.kind = VERDICT_DEFERRED,
                                  .status = SLICE("4.3.0"),
                                  .text = slice_string(why),
                                  .relay = SLICE("none"),
                                  .attempted = true,
                                  .program = flight_program(q, f),
                                  .handed = f->handed};

        (void)again_judge(q, &again, f->rcpts[i], &v); /* a failure is settled like the others */
        queue_settle(q, m, f->rcpts[i], &v);
    }
    again_end(q, &again);
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_CRASH,
                         slice_string(why)));
    queue_thread_note(q, f->site, f->rcpt_count);
    flight_remove(&q->active, f);
}

/* The most frequent end of a message: all that is left of it is in this entry, goes through, and
 * nobody is to be told. Then no recipient needs a row written; the message is deleted whole. */
static bool ends_message(struct queue *q, const struct flight *f,
                         const struct wire_verdict *verdicts)
{
    enum conf_agent kind = queue_flight_agent(q, f);
    bool final_site = is_final(kind);
    struct active_msg *m = f->msg;

    if (kind == CONF_AGENT_TA || m->touched || m->dropped || !m->all_read ||
        m->undone != f->rcpt_count) {
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
    step->strings = mem_string(m->id_text);
    m->ended = true;
    queue_step(q, step);
}

void queue_flight_untried(struct queue *q, struct flight *f)
{
    f->msg->untried = f->msg->touched = true;
    for (size_t i = 0; i < f->rcpt_count; i++) {
        active_settle_rcpt(f->msg, active_find_rcpt(f->msg, f->rcpts[i]));
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_CRASH,
                         slice_of("", 0)));
    flight_remove(&q->active, f);
}

void queue_flight_put_off(struct queue *q, struct flight *f)
{
    struct sched_dest_info info;
    struct again again;
    struct buf words;

    buf_init(&words, SCHED_REASON_MAX);
    if (sched_dest_get(q->sched, f->transport, slice_string(f->dest), &info) && info.put_off) {
        (void)buf_add(&words, info.reason); /* it has the same limit */
    }
    if (buf_len(&words) == 0) {
        (void)buf_add_string(&words, "another message stopped the deliveries to this host");
    }
    again_begin(&again, f->msg, f->site);
    again_ran(q, &again, THREAD_STOPPED, (struct wall){0});
    again.stopped = true;
    for (size_t i = 0; i < f->rcpt_count; i++) {
        struct queue_verdict v = {.kind = VERDICT_DEFERRED,
                                  .text = buf_slice(&words),
                                  .relay = SLICE("none"),
                                  .program = flight_program(q, f)};

        (void)again_judge(q, &again, f->rcpts[i], &v); /* a failure is settled like the others */
        queue_settle(q, f->msg, f->rcpts[i], &v);
    }
    again_end(q, &again);
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, SCHED_CRASH,
                         buf_slice(&words)));
    queue_thread_note(q, f->site, 0);
    flight_remove(&q->active, f);
    buf_fini(&words);
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

/* When do those go again of whom the result leaves some, if it does? */
static void plan_again(struct queue *q, struct again *again, const struct wire_result *m)
{
    bool deferred = false, silent = false;

    for (uint32_t i = 0; i < m->verdict_count; i++) {
        deferred = deferred || m->verdicts[i].kind == VERDICT_DEFERRED;
        silent = silent || m->verdicts[i].kind == VERDICT_NONE;
    }
    if (m->thread_stops) {
        again_ran(q, again, THREAD_STOPPED, m->thread_until);
    } else if (deferred || silent) {
        again_ran(q, again, deferred ? THREAD_DEFERRED : THREAD_SILENT, (struct wall){0});
    }
}

/* One recipient's part of a result. */
static void take_verdict(struct queue *q, const struct flight *f, const struct wire_result *m,
                         const struct wire_verdict *from, struct again *again, bool sweep)
{
    struct queue_verdict v = {.kind = from->kind,
                              .status = from->status,
                              .text = from->text,
                              .relay = from->relay,
                              .attempted = from->kind != VERDICT_NONE,
                              .sweep = sweep,
                              .final_site = is_final(queue_flight_agent(q, f)),
                              .word = from->word,
                              .notary = from->notary,
                              .program = flight_program(q, f),
                              .pid = m->pid,
                              .setup_us = m->setup_us,
                              .transmit_us = m->transmit_us,
                              .conn_use = m->conn_use,
                              .handed = f->handed};
    struct notary notary;

    if (from->notary.len > 0) {
        notary_parse(from->notary, &notary);
        v.status = from->status.len > 0 ? from->status : notary_status(&notary);
        v.relay = from->relay.len > 0 ? from->relay : notary_host(&notary);
    }
    if (v.relay.len == 0) {
        v.relay = SLICE("none");
    }
    if (v.kind == VERDICT_NONE && v.text.len == 0) {
        /* Often another program has settled it: the file, read again, will tell. */
        v.quiet = m->resync && m->outcome == OUTCOME_OK;
        v.text = v.quiet             ? SLICE("the agent found nothing to do in the control file")
                 : m->reason.len > 0 ? m->reason
                                     : SLICE("the agent said nothing of it");
    }
    if (v.kind == VERDICT_DEFERRED || v.kind == VERDICT_NONE) {
        (void)again_judge(q, again, from->n, &v); /* a failure is settled like the others */
    }
    queue_settle(q, f->msg, from->n, &v);
}

/* An agent has said that nothing more of its thread goes now: so what waits is put off, with its
 * words. */
static void stop_thread(struct queue *q, const struct site *site, const struct wire_result *m,
                        struct wall until)
{
    struct buf reason;

    if (site == NULL || until.us == 0) {
        return; /* it is no thread */
    }
    buf_init(&reason, WIRE_TEXT_MAX + STATUS_SIZE + 2);
    for (uint32_t i = 0; i < m->verdict_count && buf_len(&reason) == 0; i++) {
        if (m->verdicts[i].word == 1 + TA_DEFERALL || m->verdicts[i].word == 1 + TA_RETRYAT) {
            (void)buf_add(&reason, m->verdicts[i].text); /* it has its limit */
        }
    }
    queue_thread_suspend(q, site, until, buf_len(&reason) > 0 ? buf_slice(&reason) : m->reason);
    buf_fini(&reason);
}

bool queue_take_result(struct queue *q, struct agent *agent, const struct wire_result *m)
{
    struct flight *f = flight_find(&q->active, m->entry);
    enum sched_outcome outcome;
    struct again again;
    bool sweep;

    if (f == NULL || !f->sent || f->agent != (unsigned)(agent - q->agents)) {
        return false;
    }
    if (m->outcome == OUTCOME_GIVEN_BACK) {
        if (m->verdict_count != 0) {
            return false;
        }
        if (m->thread_stops) {
            queue_flight_put_off(q, f);
        } else {
            queue_flight_untried(q, f);
        }
        return true;
    }
    if (!verdicts_fit(f, m->verdicts, m->verdict_count)) {
        return false;
    }
    outcome = m->outcome == OUTCOME_SITE_FAIL ? SCHED_SITE_FAIL
              : m->outcome == OUTCOME_CRASH   ? SCHED_CRASH
                                              : SCHED_OK;
    if (m->maybe_duplicate) {
        log_as(flight_program(q, f), log_pid(),
               "%s: connection lost between end of data and its reply: the recipients may get "
               "this message twice",
               f->msg->id_text);
    }
    if (m->resync) {
        log_info("Resyncing file \"%s\" (pid=%" PRIu32 " ho='%s')", f->msg->path, m->pid, f->dest);
        queue_news_resync(q, slice_string(f->msg->path));
    }
    again_begin(&again, f->msg, f->site);
    plan_again(q, &again, m);
    sweep = ends_message(q, f, m->verdicts);
    for (uint32_t i = 0; i < m->verdict_count; i++) {
        take_verdict(q, f, m, &m->verdicts[i], &again, sweep);
    }
    again_end(q, &again);
    if (sweep) {
        all_done(q, f->msg);
    }
    CHECK(
        sched_finished(q->sched, clock_mono(), (struct sched_entry){f->entry}, outcome, m->reason));
    if (m->thread_stops) {
        stop_thread(q, f->site, m, again.at);
    }
    queue_thread_note(q, f->site, f->rcpt_count);
    log_feedback(q, f, outcome);
    remember(q, f, m);
    flight_remove(&q->active, f);
    return true;
}
