#include "pass_end.h"

#include <errno.h>
#include <inttypes.h>

#include "check.h"
#include "clock.h"
#include "expiry.h"
#include "log.h"
#include "mem.h"
#include "observer.h"
#include "owner.h"
#include "park_key.h"
#include "queue.h"
#include "queue_park.h"
#include "queue_report.h"
#include "settlement.h"
#include "spool_conclusion.h"
#include "spool_division.h"
#include "spool_parts.h"

/* Wait of mail that was returned untried: short, but an agent that returns everything must not keep
 * the queue process busy. */
#define UNTRIED_WAIT_US US_PER_S

/* ---- times ---------------------------------------------------------------------------------- */

int64_t pass_lifetime_us(const struct conf *conf, const struct spool_message *m)
{
    return m->sender.len == 0 ? conf->bounce_queue_lifetime_us : conf->maximal_queue_lifetime_us;
}

struct wall pass_report_due(const struct conf *conf, const struct spool_message *m)
{
    struct wall now = clock_wall(), warning = wall_after(m->created, conf->delay_warning_time_us);
    bool warns = m->sender.len > 0 && m->warnings == 0 && conf->delay_warning_time_us > 0;

    /* Without a delay notice nothing is missed: parts give their results before they end. */
    return warns && warning.us > now.us ? warning : wall_after(now, pass_lifetime_us(conf, m));
}

struct wall pass_parked_until(struct queue *q, const struct spool_message *m)
{
    struct wall now = clock_wall();

    return wall_after(now,
                      owner_parked_us(q->conf, now.us - m->created.us, pass_lifetime_us(q->conf, m),
                                      m->sender.len > 0 && m->warnings == 0, &q->rng));
}

/* ---- the end in memory ---------------------------------------------------------------------- */

void pass_finish(struct queue *q, struct active_msg *m, char *park_key)
{
    struct pass_end end;
    struct msg_id id;

    if (m->unreadable && !damage_is_hidden(&q->damage, m->id)) {
        damage_hide(q, m->id, "its recipients can't be read", true);
    }
    if (damage_is_hidden(&q->damage, m->id)) {
        mem_free(park_key);
        active_remove(&q->active, m); /* the message stays claimed */
        return;
    }
    if (m->is_lost) {
        mem_free(park_key);
        active_remove(&q->active, m);
        return;
    }
    if (m->state == ACTIVE_ENDED || m->state == ACTIVE_LEFT) {
        if (m->state == ACTIVE_LEFT) {
            spool_unclaim(q->spool, m->id); /* its rows have not changed */
            import_now(&q->import);
        }
        mem_free(park_key);
        active_remove(&q->active, m);
        return;
    }
    end = (struct pass_end){
        .park_key = park_key, .waiting = waiting_take(&m->waiting), .moves = m->moves};
    if (end.waiting.pause_key != NULL) {
        mem_free(end.park_key);
        end.park_key = waiting_take_pause_key(&end.waiting);
    } else if (end.park_key == NULL) {
        end.park_key = waiting_take_key(&end.waiting);
    }
    end.how = m->state == ACTIVE_DROPPED   ? PASS_DROPPED
              : m->state == ACTIVE_UNTRIED ? PASS_UNTRIED
              : end.park_key != NULL       ? PASS_PARKED
                                           : PASS_TRIED;
    id = m->id;
    active_remove(&q->active, m);
    batch_add_pass_end(q, id, &end);
}

/* ---- the end in the spool ------------------------------------------------------------------- */

/* Expires all pending recipients; the reason of a recipient's last deferral becomes the reason
 * of the failure. Reads one recipient at a time, since spool_settle invalidates what was read
 * before. */
static int expire(struct queue *q, const struct spool_message *m)
{
    struct spool_rcpt r;
    struct buf words;
    size_t count;
    int rc;

    buf_init(&words, 1u << 20);
    for (;;) {
        struct spool_verdict v = {.state = SPOOL_RCPT_FAILED};

        rc = spool_read_rcpts(q->spool, m->id, 0, true, 1, &r, &count);
        if (rc != 0 || count == 0) {
            break;
        }
        if (r.diagnostic.len == 0) {
            r.diagnostic = m->force_expire ? SLICE("message is administratively expired")
                                           : SLICE("message could not be delivered in time");
            r.status = m->force_expire ? SLICE("4.7.0") : SLICE("4.4.7");
        }
        buf_clear(&words);
        (void)buf_add(&words, r.status); /* limited by the spool */
        (void)buf_add(&words, r.diagnostic);
        (void)buf_add(&words, r.reply);
        (void)buf_add(&words, r.remote);
        (void)buf_add(&words, r.tls);
        if (m->spoolid.len > 0) {
            expiry_put_details(&words, clock_wall().us - m->created.us, r.details);
        }
        const char *at = buf_cstr(&words);
        v.status = slice_of(at, r.status.len);
        v.diagnostic = slice_of(at + r.status.len, r.diagnostic.len);
        v.reply = slice_of(at + r.status.len + r.diagnostic.len, r.reply.len);
        v.remote = slice_of(v.reply.ptr + r.reply.len, r.remote.len);
        v.tls = slice_of(v.remote.ptr + r.remote.len, r.tls.len);
        at = v.tls.ptr + r.tls.len;
        v.details = slice_skip(buf_slice(&words), (size_t)(at - buf_cstr(&words)));
        v.when = r.last_attempt;
        v.done = r.notify != NOTIFY_DEFAULT && (r.notify & NOTIFY_FAILURE) == 0;
        struct recipient_end end = {.how = DISPOSITION_EXPIRED,
                                    .id = m->id,
                                    .spoolid = m->spoolid,
                                    .path = m->path,
                                    .transport = r.transport,
                                    .destination = r.nexthop,
                                    .created = m->created,
                                    .listed = m->listed};
        observer_ended(q, &end);
        journal_expired(q, m, &r);
        rc = spool_settle(q->spool, m->id, r.n, &v);
        if (rc != 0) {
            break;
        }
    }
    buf_fini(&words);
    return rc;
}

/* A message with its own copy of the strings, which further calls of the spool do not change. */
struct kept_message {
    struct spool_message m;
    struct buf strings;
};

static int keep_message(struct queue *q, struct msg_id id, struct kept_message *kept)
{
    struct spool_message *m = &kept->m;
    struct slice *parts[] = {&m->sender, &m->envid, &m->class_name, &m->path, &m->spoolid};
    size_t at = 1; /* after one byte, so that empty strings have a pointer, too */
    int rc;

    buf_init(&kept->strings, 1u << 20);
    CHECK(buf_add_byte(&kept->strings, '\0'));
    rc = spool_read(q->spool, id, m);
    if (rc != 0) {
        return rc;
    }
    m->created.us += queue_clock_pending(&q->clock, id);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        CHECK(parts[i]->len == 0 ||
              buf_add(&kept->strings, *parts[i])); /* within the spool's limits */
    }
    m->reason = m->parked = m->client = slice_of("", 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i] = slice_of(buf_slice(&kept->strings).ptr + at, parts[i]->len);
        at += parts[i]->len;
    }
    return 0;
}

/* Returns when a message is due for its next pass. */
static struct wall next_pass(struct queue *q, const struct waiting *w,
                             const struct spool_message *m)
{
    const struct conf *conf = q->conf;
    struct wall now = clock_wall(), due = WALL_NEVER;

    if (waiting_has_backoff(w)) {
        due = wall_after(now, owner_backoff_us(conf, now.us - m->created.us, &q->rng));
    }
    if (w->retry_at.us != 0) {
        due = wall_min(due, w->retry_at);
        due = waiting_has_own_expiry(w)
                  ? due
                  : wall_min(due, wall_after(m->created, pass_lifetime_us(conf, m)));
    }
    return due;
}

int pass_move(struct queue *q, struct msg_id id, struct wall due)
{
    struct spool_message m;
    char name[QUEUE_NAME_MAX];
    struct wall report_due;
    uint32_t moved;
    int rc = spool_read(q->spool, id, &m);

    if (rc != 0) {
        return rc;
    }
    (void)queue_message_name(&m, name);
    report_due = m.rcpt_to_report > 0 ? wall_after(clock_wall(), q->conf->report_gather_us)
                                      : pass_report_due(q->conf, &m);
    rc = spool_move(q->spool, id,
                    due.us == WALL_NEVER.us ? due : queue_clock_to_store(&q->clock, id, due),
                    queue_clock_to_store(&q->clock, id, report_due), &moved);
    if (rc == 0 && moved > 0) {
        log_info("%s: %" PRIu32 " recipients are routed again, to other partitions", name, moved);
        import_by(&q->import, due);
    }
    return rc;
}

/* Parks, defers or removes a message, depending on its pending recipients. */
static int settle_pass(struct queue *q, const struct spool_message *m, const struct pass_end *e,
                       bool expired)
{
    struct wall due;
    char name[QUEUE_NAME_MAX];
    bool gone = false;
    int rc;

    if (e->how == PASS_PARKED && m->rcpt_pending > 0 && !expired) {
        due = e->waiting.retry_at.us != 0 ? next_pass(q, &e->waiting, m) : pass_parked_until(q, m);
        due = park_key_kind(slice_string(e->park_key)) == PARK_PAUSE
                  ? wall_min(due, pass_parked_until(q, m))
                  : due;
        rc = spool_park(q->spool, m->id, slice_string(e->park_key),
                        queue_clock_to_store(&q->clock, m->id, due));
        if (rc == 0) {
            park_tell(q, slice_string(e->park_key));
        }
    } else {
        due = m->gathers               ? pass_report_due(q->conf, m)
              : e->how == PASS_UNTRIED ? wall_after(clock_wall(), UNTRIED_WAIT_US)
                                       : next_pass(q, &e->waiting, m);
        rc = spool_finish(q->spool, m->id, queue_clock_to_store(&q->clock, m->id, due), &gone);
    }
    if (rc == 0 && gone && !spool_divides(q->spool) && !spool_is_part(m)) {
        log_info("%s: removed", queue_message_name(m, name));
    }
    if (rc == 0 && (spool_divides(q->spool) || (gone && spool_is_part(m)))) {
        import_now(&q->import); /* the spool determines when bounces are due */
    } else if (rc == 0 && !gone) {
        import_by(&q->import, due);
    }
    return rc;
}

/* Gives a part's results to the report part of its message. */
static int give(struct queue *q, const struct spool_message *m)
{
    struct wall due = wall_after(clock_wall(), q->conf->report_gather_us);

    import_by(&q->import, due);
    return spool_give(q->spool, m->id, due);
}

/* Returns how long a message of a store without keys waits. Paused mail is woken at the end of its
 * pause; if that is lost by a crash, or another manager takes over, the mail is due after
 * maximal_backoff_time. */
static int64_t concluded_wait_us(struct queue *q, const struct pass_end *e, int64_t age_us)
{
    bool is_paused = e->how == PASS_PARKED && e->waiting.state == WAITS_NOT &&
                     park_key_kind(slice_string(e->park_key)) == PARK_PAUSE;

    return is_paused ? q->conf->maximal_backoff_time_us
                     : owner_backoff_us(q->conf, age_us, &q->rng);
}

static bool lives_too_long(const struct spool_message *m, const struct pass_end *e, int64_t age,
                           int64_t lifetime)
{
    return m->rcpt_pending > 0 &&
           (m->force_expire ||
            (e->how != PASS_UNTRIED && !waiting_has_own_expiry(&e->waiting) && age >= lifetime));
}

static int end_pass_of(struct queue *q, const struct spool_message *m, const struct pass_end *e)
{
    char name[QUEUE_NAME_MAX];
    int64_t age = clock_wall().us - m->created.us, lifetime = pass_lifetime_us(q->conf, m);
    bool expired = false;
    int rc = 0;

    if (m->state == SPOOL_CORRUPT ||
        (m->rcpt_pending > 0 && (e->how == PASS_DROPPED || m->state == SPOOL_HOLD))) {
        spool_unclaim(q->spool, m->id); /* perhaps released and claimed again meanwhile */
        import_now(&q->import);
        return 0; /* the operator's command determines the rest */
    }
    if (spool_concludes(q->spool)) {
        return spool_conclude(q->spool, m->id, m->rcpt_pending > 0,
                              wall_after(clock_wall(), concluded_wait_us(q, e, age)));
    }
    expired = lives_too_long(m, e, age, lifetime);
    /* Before any change: bounces and notices include the original message. */
    if (!spool_is_part(m) && (m->rcpt_to_report > 0 || expired || report_delay_is_due(q, m, age)) &&
        spool_want(q->spool, m->id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT) == -EAGAIN) {
        return -EAGAIN;
    }
    if (expired) {
        log_info("%s: from=<%.*s>, status=%s, returned to sender", queue_message_name(m, name),
                 SLICE_ARGS(m->sender), m->force_expire ? "force-expired" : "expired");
        q->counts.expired++;
        rc = expire(q, m);
    }
    /* Where messages are divided, the spool gathers the results of all parts and returns the
     * message again (PASS_REPORT) when its bounces and notices are due. */
    if (rc == 0 && (m->rcpt_to_report > 0 || expired) &&
        (e->how == PASS_REPORT || !spool_divides(q->spool))) {
        rc = spool_is_part(m) ? give(q, m) : report_results(q, m);
    }
    if (rc == 0 && !spool_is_part(m) && (m->gathers || (m->rcpt_pending > 0 && !expired))) {
        rc = report_delay(q, m, age, wall_after(m->created, lifetime));
    }
    rc = rc == 0 ? settle_pass(q, m, e, expired) : rc;
    return rc == 0 && e->moves && !expired ? pass_move(q, m->id, clock_wall()) : rc;
}

int pass_end_apply(struct queue *q, struct msg_id id, const struct pass_end *e)
{
    struct kept_message kept;
    int rc = keep_message(q, id, &kept);

    if (rc == 0) {
        rc = end_pass_of(q, &kept.m, e);
    }
    buf_fini(&kept.strings);
    return rc;
}

int pass_put_off_apply(struct queue *q, struct msg_id id, const struct put_off *p)
{
    struct kept_message kept;
    struct spool_message *m = &kept.m;
    int rc = keep_message(q, id, &kept);

    /* Before the recipients leave, since their message ends its pass without them. */
    if (rc == 0) {
        rc = report_delay(q, m, clock_wall().us - m->created.us,
                          wall_after(m->created, pass_lifetime_us(q->conf, m)));
    }
    if (rc == 0) {
        rc = spool_put_off(q->spool, id, p->ns, p->count, slice_string(p->park_key), p->until);
    }
    buf_fini(&kept.strings);
    return rc;
}
