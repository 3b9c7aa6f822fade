/*
 * Settlement, first step: decides the disposition of each recipient, and its verdict for the spool.
 */
#include "settlement.h"

#include "check.h"
#include "clock.h"
#include "mem.h"
#include "queue.h"
#include "queue_result.h"
#include "queue_retry.h"

#define EXPIRY_WORDS_MAX (2 * WIRE_DETAILS_MAX + 4 * WIRE_TEXT_MAX)

static bool is_left(enum wire_verdict_kind kind)
{
    return kind == VERDICT_DEFERRED || kind == VERDICT_NONE;
}

/* ---- next try of deferred recipients --------------------------------------------------------- */

/* Does the destination determine when the recipients are tried again? */
static bool asks_destination(enum settle_cause cause)
{
    return cause == SETTLE_RESULT || cause == SETTLE_CRASHED || cause == SETTLE_STOPPED ||
           cause == SETTLE_WAITING;
}

/* Computes the next time of a destination after a delivery that left mail. */
static void destination_ran(struct queue *q, struct settlement *s, bool stops,
                            struct wall not_before)
{
    struct dest_retries *all = &q->destinations.retries;
    struct dest_retry *retry;

    if (settlement_has_retry_rules(s)) {
        retry = dest_retry_need(all, s->destination, clock_wall());
        s->again_at = dest_retry_ran(all, retry, &s->destination->rules, stops, not_before,
                                     clock_wall(), (unsigned)q->conf->retry_jitter, &q->rng);
    }
}

/* Reads the next time of a destination without a delivery. */
static void destination_waits(struct queue *q, struct settlement *s)
{
    const struct dest_retry *retry;

    if (settlement_has_retry_rules(s)) {
        retry = s->destination->retry;
        s->again_at = !queue_retry_is_served(q, s->destination) ? WALL_NEVER
                      : retry != NULL && dest_retry_waits(retry, clock_wall())
                          ? retry->retry.due
                          : wall_after(clock_wall(), RETRY_ALWAYS_US);
        s->stopped = retry != NULL && retry->stopped;
    }
}

static void ask_destination(struct queue *q, struct settlement *s)
{
    bool left = false;

    switch (s->cause) {
    case SETTLE_RESULT:
        for (size_t i = 0; i < s->count; i++) {
            left = left || is_left(s->rcpts[i].said.kind);
        }
        if (s->result->thread_stops) {
            destination_ran(q, s, true, s->result->thread_until);
        } else if (left) {
            destination_ran(q, s, false, (struct wall){0});
        }
        break;
    case SETTLE_CRASHED:
        destination_ran(q, s, false, (struct wall){0});
        break;
    case SETTLE_STOPPED:
        destination_ran(q, s, true, (struct wall){0});
        s->stopped = true;
        break;
    case SETTLE_WAITING:
        destination_waits(q, s);
        break;
    case SETTLE_DEAD:
    case SETTLE_HERE:
    case SETTLE_STUCK:
    case SETTLE_PAUSED:
        break;
    }
}

/* ---- age ------------------------------------------------------------------------------------- */

bool settle_is_expired(const struct destination *destination, const struct active_msg *m,
                       const struct active_rcpt *r)
{
    return destination->expiry.expiry_us != 0 &&
           expiry_of(&destination->expiry, m->created, r->tried).us <= clock_wall().us;
}

/* Does the recipient expire, because its next try would be after its limit, or because of its age
 * now? *ret_tried: its destination was tried, or is stopped, which counts as tried. */
static bool is_too_old(struct settlement *s, const struct settled *r, bool *ret_tried)
{
    bool has_time = s->again_at.us != 0 && s->again_at.us != US_FOREVER;
    struct wall next = has_time ? s->again_at : clock_wall(), limit;

    if (s->destination == NULL || s->destination->expiry.expiry_us == 0) {
        return false;
    }
    *ret_tried = r->rcpt->tried || r->verdict.attempted || s->stopped;
    limit = expiry_of(&s->destination->expiry, s->msg->created, *ret_tried);
    if (limit.us <= (*ret_tried ? next : clock_wall()).us) {
        return true;
    }
    s->limit = wall_min(s->limit, limit);
    return false;
}

/* Reads the last stored text of a recipient that has none now. Valid until the next call of the
 * spool. */
static void last_words(struct queue *q, struct msg_id id, struct wire_verdict *said)
{
    struct spool_rcpt r;
    size_t count = 0;

    if (spool_read_rcpts(q->spool, id, said->n - 1, true, 1, &r, &count) == 0 && count == 1 &&
        r.n == said->n) {
        said->text = r.diagnostic;
        said->details = r.details;
    }
}

static void give_up(struct queue *q, const struct settlement *s, struct settled *r, bool tried)
{
    int64_t age = expiry_age(&s->destination->expiry, tried);
    struct buf words;
    size_t text_len;

    if (r->said.text.len == 0) {
        last_words(q, s->msg->id, &r->said);
    }
    buf_init(&words, EXPIRY_WORDS_MAX);
    expiry_put_text(&words, age, r->said.text);
    text_len = buf_len(&words);
    expiry_put_details(&words, age, r->said.details);
    CHECK(!words.failed); /* text and details are limited */
    r->said.details.len = buf_len(&words) - text_len;
    r->words = buf_take(&words);
    r->said.text = slice_of(r->words, text_len);
    r->said.details.ptr = r->words + text_len;
    r->said.status = EXPIRY_STATUS;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Must a failure be reported? A failed report of another mail system is always reported, to others
 * than its sender. */
static bool wants_failure(const struct active_msg *m, const struct active_rcpt *r)
{
    return r->notify == NOTIFY_DEFAULT || (r->notify & NOTIFY_FAILURE) != 0 ||
           (m->spoolid[0] != '\0' && (m->flags & ENVELOPE_REPORT) != 0);
}

/* Must the delivery of this recipient be reported to its sender? */
static bool wants_success(const struct queue *q, const struct active_msg *m,
                          const struct active_rcpt *r, enum wire_verdict_kind kind, bool is_final)
{
    if (q->conf->confirm_delay_cleared && m->warned && m->sender[0] != '\0' &&
        (r->notify == NOTIFY_DEFAULT || (r->notify & NOTIFY_DELAY) != 0)) {
        return true; /* a delay notice was sent; now its end is reported */
    }
    return (r->notify & NOTIFY_SUCCESS) != 0 && m->sender[0] != '\0' &&
           (kind == VERDICT_RELAYED || is_final);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* Applies the agent's own report of a recipient to the verdict. */
static void take_report(const struct wire_verdict *said, struct spool_verdict *verdict)
{
    switch (said->report) {
    case WIRE_REPORT_DUE:
        break; /* the disposition suffices */
    case WIRE_REPORT_WRITTEN:
        verdict->state = said->kind == VERDICT_BOUNCED ? SPOOL_RCPT_FAILED : SPOOL_RCPT_DELIVERED;
        verdict->noted = true;
        verdict->done = false;
        break;
    case WIRE_REPORT_NONE:
        verdict->unreported = verdict->done = true;
        break;
    case WIRE_REPORT_COUNT:
        UNREACHABLE("the frame was checked");
    }
}

/* Returns the status to store and log. It has the class of the disposition, since another class
 * would mean the opposite to the sender. */
static struct slice status_of(struct settled *r)
{
    struct status status = {0};
    enum status_class wanted =
        r->disposition == DISPOSITION_SENT ? STATUS_SUCCESS
        : r->disposition == DISPOSITION_BOUNCED || r->disposition == DISPOSITION_EXPIRED
            ? STATUS_PERMANENT
            : STATUS_TRANSIENT;

    if (status_parse(r->said.status, &status) && status.class == wanted) {
        return r->said.status; /* already in the printed form */
    }
    /* An invalid status becomes class.0.0. */
    if (r->disposition == DISPOSITION_SOFT_BOUNCED && status.class == STATUS_PERMANENT) {
        status.class = STATUS_TRANSIENT;
    }
    return slice_string(status_print(status_repair(status, wanted), r->status_text));
}

static bool was_attempted(const struct settlement *s, enum wire_verdict_kind kind)
{
    return s->cause == SETTLE_CRASHED || (s->cause == SETTLE_RESULT && kind != VERDICT_NONE) ||
           (s->cause == SETTLE_HERE && kind != VERDICT_DEFERRED);
}

static void decide(struct queue *q, struct settlement *s, struct settled *r)
{
    enum wire_verdict_kind kind = r->said.kind;
    struct active_msg *m = s->msg;
    bool tried = false, final;

    r->rcpt = active_find_rcpt(m, r->said.n);
    CHECK(r->rcpt != NULL);
    r->verdict = (struct spool_verdict){.attempted = was_attempted(s, kind), .when = clock_wall()};
    if (is_left(kind) && asks_destination(s->cause) && is_too_old(s, r, &tried)) {
        r->disposition = DISPOSITION_EXPIRED;
        r->verdict.attempted = false; /* no agent has marked it: the spool must */
        give_up(q, s, r, tried);
    } else if (is_left(kind)) {
        r->disposition = DISPOSITION_DEFERRED;
    } else if (kind == VERDICT_BOUNCED) {
        r->disposition = q->conf->soft_bounce ? DISPOSITION_SOFT_BOUNCED : DISPOSITION_BOUNCED;
    }
    switch (r->disposition) {
    case DISPOSITION_SENT:
        final = agent_kind(s->delivery->kind)->is_final;
        r->verdict.done = !wants_success(q, m, r->rcpt, kind, final);
        r->verdict.state = final ? SPOOL_RCPT_DELIVERED : SPOOL_RCPT_RELAYED;
        break;
    case DISPOSITION_DEFERRED:
    case DISPOSITION_SOFT_BOUNCED:
        r->verdict.state = SPOOL_RCPT_PENDING;
        break;
    case DISPOSITION_BOUNCED:
    case DISPOSITION_EXPIRED:
        r->verdict.state = SPOOL_RCPT_FAILED;
        r->verdict.done = !wants_failure(m, r->rcpt);
        break;
    }
    if (r->disposition != DISPOSITION_EXPIRED) {
        take_report(&r->said, &r->verdict);
    }
    r->verdict.status = status_of(r);
    r->verdict.diagnostic = r->said.text;
    r->verdict.reply = r->said.reply;
    r->verdict.remote = r->said.relay;
    r->verdict.tls = slice_string(s->tls);
    r->verdict.details = r->said.details;
}

/* Is this the usual end of a message: all pending recipients are here, delivered, and none is
 * reported? Then no recipient's row is written; the message is deleted as a whole. */
static bool ends_message(const struct settlement *s)
{
    const struct active_msg *m = s->msg;

    if (s->delivery == NULL || agent_kind(s->delivery->kind)->by_path || !active_is_clean(m) ||
        !m->all_read || m->undone != s->count) {
        return false;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->rcpts[i].disposition != DISPOSITION_SENT || !s->rcpts[i].verdict.done) {
            return false;
        }
    }
    return true;
}

/* Formats the proof of the connection as in log and spool. */
static void describe_tls(struct settlement *s)
{
    const struct wire_result *m = s->result;

    if (m != NULL && m->proof != WIRE_PROOF_NONE) {
        bool tls = m->tls_version.len > 0;

        (void)snprintf(s->tls, sizeof s->tls, "%s%s%.*s%s%.*s", wire_proof_name(m->proof),
                       tls ? "/" : "", SLICE_ARGS(m->tls_version), tls ? "/" : "",
                       SLICE_ARGS(m->tls_cipher)); /* fits */
    }
}

void settle_decide(struct queue *q, struct settlement *s)
{
    describe_tls(s);
    ask_destination(q, s);
    for (size_t i = 0; i < s->count; i++) {
        decide(q, s, &s->rcpts[i]);
    }
    s->ends_message = ends_message(s);
}
