/*
 * How deliveries end: the result of an agent is decoded and checked against what was handed out;
 * where there is none, the queue process says what came of it. Then it is settled (settlement.h).
 */
#include "queue_result.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "mem.h"
#include "queue.h"
#include "settlement.h"

/* ---- ends without a result ------------------------------------------------------------------- */

static void end_delivery(struct queue *q, struct delivery *d, enum settle_cause cause,
                         enum sched_outcome outcome, struct slice reason,
                         const struct wire_verdict *said)
{
    struct settlement s;

    settlement_begin(&s, cause, d->msg, d->destination, d, d->rcpt_count);
    s.outcome = outcome;
    s.reason = reason;
    settlement_add_all(&s, said);
    queue_settle(q, &s);
}

void queue_delivery_crashed(struct queue *q, struct delivery *d, const char *why)
{
    const struct wire_verdict said = {
        .kind = VERDICT_DEFERRED, .status = SLICE("4.3.0"), .text = slice_string(why)};

    end_delivery(q, d, SETTLE_CRASHED, SCHED_CRASH, said.text, &said);
}

void queue_delivery_here(struct queue *q, struct delivery *d)
{
    struct slice text = slice_string(d->destination != NULL ? d->destination->nexthop : d->dest);
    struct wire_verdict said = {.kind = VERDICT_SENT,
                                .status = SLICE("2.0.0"),
                                .text = SLICE("discarded"),
                                .relay = SLICE("discard")};
    struct status status;
    size_t len = 0;

    if (d->kind != CONF_AGENT_DISCARD) { /* the verdict is in the next hop */
        said = (struct wire_verdict){
            .kind = d->kind == CONF_AGENT_RETRY ? VERDICT_DEFERRED : VERDICT_BOUNCED,
            .status = d->kind == CONF_AGENT_RETRY ? SLICE("4.0.0") : SLICE("5.0.0"),
            .text = text};
        if (status_prefix(text, &status, &len)) {
            said.status = slice_of(text.ptr, len);
            said.text = slice_trim(slice_skip(text, len));
        }
    }
    end_delivery(q, d, SETTLE_HERE, SCHED_OK, slice_of("", 0), &said);
}

static void rcpt_untried(struct delivery *d, uint32_t n)
{
    active_touch(d->msg);
    active_leave(d->msg);
    active_settle_rcpt(d->msg, active_find_rcpt(d->msg, n));
}

void queue_delivery_untried(struct queue *q, struct delivery *d)
{
    for (size_t i = 0; i < d->rcpt_count; i++) {
        rcpt_untried(d, d->rcpts[i]);
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){d->entry}, SCHED_CRASH,
                         slice_of("", 0)));
    delivery_remove(&q->active, d);
}

void queue_delivery_returned(struct queue *q, struct delivery *d)
{
    CHECK(sched_unselect(q->sched, clock_mono(), (struct sched_entry){d->entry}));
    delivery_remove(&q->active, d);
}

/* Its destination was stopped meanwhile: it waits for the destination's time. */
static void delivery_stopped(struct queue *q, struct delivery *d)
{
    struct sched_dest_info info;
    struct buf words;

    buf_init(&words, SCHED_REASON_MAX);
    if (sched_dest_get(q->sched, d->transport, slice_string(d->dest), &info) && info.postponed) {
        (void)buf_add(&words, info.reason); /* it has the same limit */
    }
    if (buf_len(&words) == 0) {
        (void)buf_add_string(&words, "another message stopped the deliveries to this host");
    }
    end_delivery(q, d, SETTLE_STOPPED, SCHED_CRASH, buf_slice(&words),
                 &(struct wire_verdict){.kind = VERDICT_DEFERRED, .text = buf_slice(&words)});
    buf_fini(&words);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Each recipient of the delivery exactly once, and nothing else? */
static bool verdicts_fit(const struct delivery *d, const struct wire_verdict *v, uint32_t count)
{
    if (count != d->rcpt_count) {
        return false;
    }
    for (size_t i = 0; i < d->rcpt_count; i++) {
        bool found = false;
        /* Agents report in the order they were given, so the first look finds it; an agent that
         * does not is only slower. */
        for (size_t j = 0; j < count && !found; j++) {
            found = v[(i + j) % count].n == d->rcpts[i];
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* Does the result fit a delivery that this agent has? */
static bool result_fits(const struct queue *q, const struct worker_process *agent,
                        const struct delivery *d, const struct wire_result *m)
{
    return d != NULL && d->sent && d->agent == (unsigned)(agent - q->agents.at) &&
           (m->outcome == OUTCOME_GIVEN_BACK ||
                    (m->outcome == OUTCOME_BROKEN_OFF && m->verdict_count == 0)
                ? m->verdict_count == 0
                : verdicts_fit(d, m->verdicts, m->verdict_count));
}

/* One recipient's part of a result. */
static void add_verdict(struct settlement *s, const struct wire_result *m,
                        const struct wire_verdict *from)
{
    struct wire_verdict v = *from;
    bool quiet = false;

    v.text = wire_verdict_text(from);
    if (v.kind == VERDICT_NONE && v.text.len == 0) {
        /* Often another program has settled it: the file, read again, will tell. */
        quiet = m->resync && m->outcome == OUTCOME_OK;
        v.text = quiet               ? SLICE("the agent found nothing to do in the control file")
                 : m->reason.len > 0 ? m->reason
                                     : SLICE("the agent said nothing of it");
    }
    settlement_add(s, &v)->quiet = quiet;
}

static enum sched_outcome outcome_of(enum wire_outcome outcome)
{
    return outcome == OUTCOME_SITE_FAIL                                ? SCHED_DEST_FAIL
           : outcome == OUTCOME_CRASH || outcome == OUTCOME_BROKEN_OFF ? SCHED_CRASH
                                                                       : SCHED_OK;
}

static void settle_result(struct queue *q, struct delivery *d, const struct wire_result *m)
{
    struct settlement s;

    settlement_begin(&s, SETTLE_RESULT, d->msg, d->destination, d, m->verdict_count);
    s.result = m;
    s.outcome = outcome_of(m->outcome);
    s.reason = m->reason;
    for (uint32_t i = 0; i < m->verdict_count; i++) {
        add_verdict(&s, m, &m->verdicts[i]);
    }
    queue_settle(q, &s);
}

/* Some have a verdict, which is settled; the others were not tried. */
static void settle_some(struct queue *q, struct delivery *d, struct wire_result *m,
                        struct wire_verdict *verdicts)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < m->verdict_count; i++) {
        if (verdicts[i].kind == VERDICT_NONE) {
            rcpt_untried(d, verdicts[i].n);
        } else {
            verdicts[count++] = verdicts[i];
        }
    }
    m->verdict_count = count;
    settle_result(q, d, m);
}

/* The worker saw the lease over. Where it holds again what comes back waits a moment, as what is
 * given back does: two processes that see two times must not play ball. */
static void delivery_broken_off(struct queue *q, struct delivery *d, struct wire_result *m,
                                struct wire_verdict *verdicts)
{
    bool some = false;

    for (uint32_t i = 0; i < m->verdict_count; i++) {
        some = some || verdicts[i].kind != VERDICT_NONE;
    }
    if (some) {
        settle_some(q, d, m, verdicts);
    } else if (!node_lease_holds(&q->lease)) {
        queue_delivery_returned(q, d);
    } else {
        queue_delivery_untried(q, d);
    }
}

void queue_delivery_ended(struct queue *q, struct delivery *d, const struct wire_result *m)
{
    CHECK(verdicts_fit(d, m->verdicts, m->verdict_count));
    settle_result(q, d, m);
}

bool queue_take_result(struct queue *q, const struct worker_process *agent, struct slice body)
{
    struct wire_result m;
    struct wire_verdict *verdicts;
    struct delivery *d;
    bool ok;

    if (!wire_get_result(body, &m, &verdicts)) {
        return false;
    }
    d = delivery_find(&q->active, m.entry);
    ok = result_fits(q, agent, d, &m);
    if (ok && m.outcome == OUTCOME_GIVEN_BACK) {
        if (m.thread_stops) {
            delivery_stopped(q, d);
        } else {
            queue_delivery_untried(q, d);
        }
    } else if (ok && m.outcome == OUTCOME_BROKEN_OFF) {
        delivery_broken_off(q, d, &m, verdicts);
    } else if (ok) {
        settle_result(q, d, &m);
    }
    mem_free(verdicts);
    return ok;
}
