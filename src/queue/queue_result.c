/*
 * Ends of deliveries: decodes an agent's result and checks it against the delivery. If there is no
 * result, the queue process makes the verdicts itself. Then the delivery is settled (settlement.h).
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

    if (d->kind != CONF_AGENT_DISCARD) { /* the verdict is the next hop */
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

void queue_delivery_replaced(struct queue *q, uint64_t entry)
{
    struct delivery *d = delivery_find(&q->active, entry);

    if (d == NULL) {
        return;
    }
    for (size_t i = 0; i < d->rcpt_count; i++) {
        active_touch(d->msg);
        d->msg->undone -= d->msg->undone > 0 ? 1 : 0;
        active_settle_rcpt(d->msg, active_find_rcpt(d->msg, d->rcpts[i]));
    }
    CHECK(sched_finished(q->sched, clock_mono(), (struct sched_entry){entry}, SCHED_OK,
                         slice_of("", 0)));
    delivery_remove(&q->active, d);
}

void queue_delivery_not_replaced(struct queue *q, uint64_t entry, bool is_agent_lost)
{
    struct delivery *d = delivery_find(&q->active, entry);

    if (d != NULL) {
        d->is_replaced = false;
        d->sent = d->sent && !is_agent_lost; /* the next process gets it again */
    }
}

bool queue_is_replaced(struct queue *q, struct msg_id id)
{
    const struct active_msg *m = active_find(&q->active, id);
    const struct delivery *d;

    for (d = m != NULL ? q->active.deliveries : NULL; d != NULL; d = d->hh.next) {
        if (d->is_replaced && d->msg == m) {
            return true;
        }
    }
    return false;
}

/* Settles a delivery whose destination was stopped meanwhile: its recipients wait for the
 * destination's time. */
static void delivery_stopped(struct queue *q, struct delivery *d)
{
    struct sched_dest_info info;
    struct buf words;

    buf_init(&words, SCHED_REASON_MAX);
    if (sched_dest_get(q->sched, d->transport, slice_string(d->dest), &info) && info.postponed) {
        (void)buf_add(&words, info.reason); /* the reason has the same limit */
    }
    if (buf_len(&words) == 0) {
        (void)buf_add_string(&words, "another message stopped the deliveries to this host");
    }
    end_delivery(q, d, SETTLE_STOPPED, SCHED_CRASH, buf_slice(&words),
                 &(struct wire_verdict){.kind = VERDICT_DEFERRED, .text = buf_slice(&words)});
    buf_fini(&words);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Is there exactly one verdict for each recipient of the delivery, and no other? */
static bool verdicts_fit(const struct delivery *d, const struct wire_verdict *v, uint32_t count)
{
    if (count != d->rcpt_count) {
        return false;
    }
    for (size_t i = 0; i < d->rcpt_count; i++) {
        bool found = false;
        /* Agents report in the order of the delivery, so the first comparison finds the recipient;
         * another order is only slower. */
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

/* Adds one recipient's verdict to a settlement. */
static void add_verdict(struct settlement *s, const struct wire_result *m,
                        const struct wire_verdict *from)
{
    struct wire_verdict v = *from;
    bool quiet = false;

    v.text = wire_verdict_text(from);
    if (v.kind == VERDICT_NONE && v.text.len == 0) {
        /* Often another program has settled it; the control file, read again, shows that. */
        quiet = m->resync && m->outcome == OUTCOME_OK;
        v.text = quiet               ? SLICE("the agent found nothing to do in the control file")
                 : m->reason.len > 0 ? m->reason
                                     : SLICE("the agent reported nothing about it");
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

    setting_fault_warn(q, d, m);
    settlement_begin(&s, SETTLE_RESULT, d->msg, d->destination, d, m->verdict_count);
    s.result = m;
    s.outcome = outcome_of(m->outcome);
    s.reason = m->reason;
    for (uint32_t i = 0; i < m->verdict_count; i++) {
        add_verdict(&s, m, &m->verdicts[i]);
    }
    queue_settle(q, &s);
}

/* Settles the recipients with verdicts; the others were not tried. */
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

/* Ends a delivery that its process broke off because the lease was over there. If the lease is
 * valid here, the mail waits for a moment like untried mail: otherwise two processes that read
 * different times would pass the mail back and forth. */
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
    if (ok && m.thread_stops && m.outcome != OUTCOME_GIVEN_BACK && agent->channel != NULL) {
        wire_put_go_on(agent->channel, m.entry);
    }
    mem_free(verdicts);
    return ok;
}
