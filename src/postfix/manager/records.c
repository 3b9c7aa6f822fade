/*
 * Recipients that are deferred without an agent's attempt, because their destination or transport
 * is dead, or because an agent has ended without a result. The service `retry` logs them and writes
 * the defer log, as for any delivery. If it can't be reached, this process writes the log lines and
 * calls the services (notifications.c).
 *
 *     records_add --> waits --> private/retry --reply--> done
 *                                    |
 *                          refused, no reply --> notifications, one recipient after the other
 *
 * Each recipient is deferred, except that of a probe, which only needs its result. A message's pass
 * is concluded when none of its records is active. Recipients stay in memory until their record has
 * ended.
 */
#include <string.h>

#include "check.h"
#include "log.h"
#include "manager.h"
#include "mem.h"
#include "service_link.h"
#include "status.h"

/* Limit of connections at once. */
#define RECORDS_MAX 20
/* Limit of recipients in a record, as in a request for any agent. */
#define RECORD_RCPTS_MAX 50
#define RECORD_TEXT_MAX  (ROUTING_NEXTHOP_MAX)
#define REQUEST_MAX      ((size_t)16 << 20)

enum record_stage { RECORD_WAITS, RECORD_RETRY, RECORD_NOTIFICATIONS };

struct record {
    TAILQ_ENTRY(record) all;
    struct manager *mg;
    struct msg_id id;
    enum record_stage stage;
    struct service_link *link;
    bool greeted;
    bool is_log_only; /* in RECORD_NOTIFICATIONS: a service has failed */
    char *text;       /* owned: "4.3.0 reason" */
    size_t count, at; /* in RECORD_NOTIFICATIONS: recipients before `at` are done */
    uint32_t ns[RECORD_RCPTS_MAX];
};

static void start_next(struct manager *mg);

/* ---- the end of a record ---- */

static void record_free(struct record *r)
{
    postfix_unpin(r->mg->q->spool, r->id, r->ns, r->count);
    TAILQ_REMOVE(&r->mg->records, r, all);
    service_link_free(r->link);
    mem_free(r->text);
    mem_free(r);
}

/* Subtracts `count` recipients of the record that need no other attempt. */
static void settled(const struct record *r, size_t count)
{
    struct manager_message *m = manager_message(r->mg, r->id);

    m->undone -= m->undone < count ? m->undone : count;
}

static void done(struct record *r)
{
    struct manager *mg = r->mg;
    struct msg_id id = r->id;

    record_free(r);
    mg->records_sent--;
    manager_record_ended(mg, id);
    start_next(mg);
}

/* ---- where `retry` can't be had ---- */

static void notify_next(struct record *r);

static void split_text(const struct record *r, struct slice *ret_status, struct slice *ret_reason)
{
    struct slice text = slice_string(r->text);
    struct status status;
    size_t len = 0;

    *ret_status = SLICE("4.0.0");
    *ret_reason = text;
    if (status_prefix(text, &status, &len)) {
        *ret_status = slice_of(text.ptr, len);
        *ret_reason = slice_trim(slice_skip(text, len));
    }
}

static void notified(struct manager *mg, struct msg_id id, void *arg, bool ok)
{
    struct record *r = arg;

    (void)mg; /* same as in the record */
    (void)id;
    r->at++;
    if (ok && !r->is_log_only) {
        settled(r, 1);
    }
    r->is_log_only |= !ok; /* do not wait for a hanging service at each recipient */
    notify_next(r);
}

static void notify_next(struct record *r)
{
    struct manager *mg = r->mg;
    const struct postfix_message *m = postfix_message(mg->q->spool, r->id);
    struct postfix_rcpt rcpt;
    struct notification_plan plan;

    while (m != NULL && r->at < r->count &&
           !postfix_rcpt(mg->q->spool, r->id, r->ns[r->at], &rcpt)) {
        r->at++;
    }
    if (m == NULL || r->at == r->count) {
        done(r);
        return;
    }
    plan = (struct notification_plan){.message = m,
                                      .rcpt = manager_request_rcpt(&rcpt),
                                      .is_deferred = true,
                                      .is_log_only = r->is_log_only,
                                      .done = notified,
                                      .arg = r};
    split_text(r, &plan.status, &plan.reason);
    notifications_add(mg, r->id, &plan);
}

/* ---- the service `retry` ---- */

static void retry_failed(struct record *r)
{
    r->stage = RECORD_NOTIFICATIONS;
    notify_next(r);
}

static void send_request(struct record *r)
{
    struct manager *mg = r->mg;
    struct spool *sp = mg->q->spool;
    const struct postfix_message *m = postfix_message(sp, r->id);
    struct delivery_request request;
    struct postfix_rcpt found;
    struct buf bytes;

    if (m == NULL) {
        done(r); /* the message was removed meanwhile */
        return;
    }
    request = manager_request(mg, m);
    request.nexthop = slice_string(r->text);
    for (size_t i = 0; i < r->count; i++) {
        request.rcpt_count += postfix_rcpt(sp, r->id, r->ns[i], &found);
    }
    if (request.rcpt_count == 0) {
        done(r);
        return;
    }
    buf_init(&bytes, REQUEST_MAX);
    delivery_request_put(&bytes, &request, &mg->release);
    for (size_t i = 0; i < r->count; i++) {
        if (postfix_rcpt(sp, r->id, r->ns[i], &found)) {
            struct delivery_request_rcpt rcpt = manager_request_rcpt(&found);

            delivery_request_put_rcpt(&bytes, &rcpt);
        }
    }
    CHECK(!bytes.failed); /* at most RECORD_RCPTS_MAX recipients, each with a few records of a queue
                           * file */
    service_link_send(r->link, buf_slice(&bytes));
    buf_fini(&bytes);
}

static void retry_heard(void *arg, struct slice list)
{
    struct record *r = arg;
    struct delivery_reply reply;

    if (!r->greeted) {
        r->greeted = delivery_hello_is_right(list);
        if (r->greeted) {
            send_request(r);
        } else {
            log_warning("private/retry socket: malformed response");
            retry_failed(r);
        }
        return;
    }
    if (!delivery_reply_parse(list, &reply)) {
        log_warning("private/retry socket: malformed response");
    } else if (!reply.deferred) {
        settled(r, r->count); /* a probe: its result is reported, and nothing is left to do */
    }
    done(r);
}

static void retry_closed(void *arg, int error)
{
    struct record *r = arg;

    log_warning("private/retry socket: %s", error == 0 ? "premature disconnect" : strerror(error));
    if (r->greeted) {
        done(r); /* `retry` may have written its log; another request would write it twice */
    } else {
        retry_failed(r);
    }
}

static const struct service_link_owner retry_owner = {.heard = retry_heard, .closed = retry_closed};

static void start(struct record *r)
{
    struct manager *mg = r->mg;
    int error;

    mg->records_sent++;
    r->stage = RECORD_RETRY;
    TAILQ_REMOVE(&mg->records, r, all);
    TAILQ_INSERT_HEAD(&mg->records, r, all);
    r->link = service_link_open(mg->q->role->base, "private/retry", &retry_owner, r, &error);
    if (r->link == NULL) {
        log_warning("connect to transport private/retry: %s", strerror(error));
        retry_failed(r);
        return;
    }
    service_link_patience(r->link, mg->q->conf->daemon_timeout_us);
}

static void start_next(struct manager *mg)
{
    struct record *r;

    while (mg->records_sent < RECORDS_MAX) {
        TAILQ_FOREACH(r, &mg->records, all)
        {
            if (r->stage == RECORD_WAITS) {
                break;
            }
        }
        if (r == NULL) {
            return;
        }
        start(r);
    }
}

/* Returns the last record if it still waits and has room, as recipients of a large message are
 * added a few at a time; else a new one. */
static struct record *record_with_room(struct manager *mg, struct msg_id id, struct slice text)
{
    struct record *r = TAILQ_LAST(&mg->records, records);

    if (r == NULL || r->stage != RECORD_WAITS || r->id.n != id.n || r->count == RECORD_RCPTS_MAX ||
        !slice_equal(slice_string(r->text), text)) {
        r = mem_new(sizeof *r);
        r->mg = mg;
        r->id = id;
        r->text = mem_copy(text.ptr, text.len);
        TAILQ_INSERT_TAIL(&mg->records, r, all);
        manager_message(mg, id)->records++;
    }
    return r;
}

void records_add(struct manager *mg, struct msg_id id, const uint32_t *ns, size_t count,
                 struct slice text)
{
    text.len = text.len < RECORD_TEXT_MAX ? text.len : RECORD_TEXT_MAX;
    postfix_pin(mg->q->spool, id, ns, count);
    while (count > 0) {
        struct record *r = record_with_room(mg, id, text);
        size_t room = RECORD_RCPTS_MAX - r->count, some = count < room ? count : room;

        memcpy(r->ns + r->count, ns, some * sizeof *ns);
        r->count += some;
        manager_message(mg, id)->undone += some;
        ns += some;
        count -= some;
    }
    start_next(mg);
}

void records_end(struct manager *mg)
{
    struct record *r;

    while ((r = TAILQ_FIRST(&mg->records)) != NULL) {
        record_free(r);
    }
}
