/*
 * Reports a recipient that no agent has tried: logs a line, and then calls Postfix's services, one
 * after the other:
 *
 *                           deferred             discarded (an undeliverable double bounce)
 *     address verification  verify: deferred     verify: fine
 *     sendmail -bv          trace: undeliverable trace: deliverable
 *     sendmail -v           defer, trace         trace: delivered
 *     other mail            defer                -
 *
 * A deferred recipient is also reported to flush(8) if mail for its site may be requested by ETRN.
 * A service that can't be reached or refuses is logged; the others are called nevertheless.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "log.h"
#include "manager.h"
#include "mem.h"
#include "notice_request.h"
#include "service_link.h"
#include "spool.h"

#define REQUESTS_MAX 4
#define REQUEST_MAX  ((size_t)16 << 20)

struct notification_request {
    char path[SERVICE_PATH_MAX];
    const char *hello, *word;
    bool is_needed; /* if this request fails, the notification has failed */
    struct buf bytes;
};

struct notification {
    TAILQ_ENTRY(notification) all;
    struct manager *mg;
    struct msg_id id;
    char *queue_id; /* owned */
    struct notification_request requests[REQUESTS_MAX];
    size_t count, at;
    struct service_link *link;
    bool greeted, failed;
    void (*done)(struct manager *mg, struct msg_id id, void *arg, bool ok);
    void *arg;
};

static void go_on(struct notification *n);

static void notification_free(struct notification *n)
{
    TAILQ_REMOVE(&n->mg->notifications, n, all);
    service_link_free(n->link);
    for (size_t i = 0; i < n->count; i++) {
        buf_fini(&n->requests[i].bytes);
    }
    mem_free(n->queue_id);
    mem_free(n);
}

/* ---- one request after the other ---- */

static void told(struct notification *n, bool ok)
{
    const struct notification_request *r = &n->requests[n->at];

    service_link_free(n->link);
    n->link = NULL;
    if (!ok && r->is_needed) {
        log_warning("%s: %s service failure", n->queue_id, r->word);
        n->failed = true;
    }
    n->at++;
    go_on(n);
}

static void heard(void *arg, struct slice list)
{
    struct notification *n = arg;
    int32_t status;

    if (!n->greeted) {
        n->greeted = true;
        if (!service_hello_is_right(list, n->requests[n->at].hello)) {
            told(n, false);
        }
        return;
    }
    told(n, notice_answer_parse(list, &status) && status == 0);
}

static void closed(void *arg, int error)
{
    (void)error;
    told(arg, false);
}

static const struct service_link_owner owner = {.heard = heard, .closed = closed};

static void go_on(struct notification *n)
{
    struct manager *mg = n->mg;
    struct notification_request *r = &n->requests[n->at];
    int error;

    if (n->at == n->count) {
        struct notification ended = *n;

        notification_free(n);
        ended.done(mg, ended.id, ended.arg, !ended.failed);
        return;
    }
    n->link = service_link_open(mg->q->role->base, r->path, &owner, n, &error);
    if (n->link == NULL) {
        told(n, false);
        return;
    }
    n->greeted = !mg->release.servers_greet;
    service_link_patience(n->link,
                          settings_time_us(&mg->settings, "ipc_timeout", 3600 * US_PER_S, 's'));
    service_link_send(n->link, buf_slice(&r->bytes));
}

/* ---- requests ---- */

/* Adds a request to private/`preset`, or to the service that the parameter names. */
static struct notification_request *add(struct notification *n, const char *parameter,
                                        const char *preset, const char *hello)
{
    struct notification_request *r = &n->requests[n->count++];

    CHECK(n->count <= REQUESTS_MAX);
    manager_service_path(n->mg, parameter, preset, r->path);
    r->hello = hello;
    r->word = preset;
    r->is_needed = true;
    buf_init(&r->bytes, REQUEST_MAX);
    return r;
}

static void add_result(struct notification *n, const char *parameter, const char *preset,
                       const struct notice_result *result)
{
    notice_put_result(&add(n, parameter, preset, NOTICE_HELLO)->bytes, result);
}

static void add_verified(struct notification *n, struct slice address,
                         const struct notification_plan *plan)
{
    notice_put_verified(
        &add(n, "address_verify_service_name", "verify", NOTICE_HELLO_VERIFY)->bytes, address,
        plan->is_deferred ? NOTICE_ADDRESS_DEFERRED : NOTICE_ADDRESS_OK, plan->reason);
}

static void add_flush(struct notification *n, const struct notification_plan *plan)
{
    struct slice name = settings_get(&n->mg->settings, "flush_service_name");
    struct notification_request *r = add(n, "flush_service_name", "flush", NOTICE_HELLO_FLUSH);
    struct slice recipient = plan->rcpt.recipient;
    size_t at = slice_find_last(recipient, '@');

    (void)snprintf(r->path, sizeof r->path, "public/%.*s", (int)(name.len > 0 ? name.len : 5),
                   name.len > 0 ? name.ptr : "flush"); /* a path that is cut does not exist */
    r->is_needed = false; /* flush(8) refuses sites that are not in fast_flush_domains */
    notice_put_flush_add(&r->bytes, slice_skip(recipient, at < recipient.len ? at + 1 : at),
                         plan->message->queue_id);
}

static void add_requests(struct notification *n, const struct notification_plan *plan)
{
    unsigned flags = plan->message->envelope->trace_flags;
    struct notice_result result = {.trace_flags = flags,
                                   .queue_id = plan->message->queue_id,
                                   .rcpt = plan->rcpt,
                                   .status = plan->status,
                                   .action = SLICE("delayed"),
                                   .reason = plan->reason};

    if ((flags & QUEUE_FILE_TRACE_MTA_PROBE) != 0) {
        struct slice original = plan->rcpt.original;

        add_verified(n, original.len > 0 ? original : plan->rcpt.recipient, plan);
        if (original.len > 0 && !slice_equal(original, plan->rcpt.recipient)) {
            add_verified(n, plan->rcpt.recipient, plan);
        }
        return;
    }
    if ((flags & QUEUE_FILE_TRACE_USER_PROBE) != 0) {
        result.action = plan->is_deferred ? SLICE("undeliverable") : SLICE("deliverable");
        add_result(n, "trace_service_name", "trace", &result);
        return;
    }
    if (plan->is_deferred) {
        add_result(n, "defer_service_name", "defer", &result);
    }
    if ((flags & QUEUE_FILE_TRACE_RECORD) != 0) {
        result.action = plan->is_deferred ? SLICE("delayed") : SLICE("delivered");
        add_result(n, "trace_service_name", "trace", &result);
    }
    if (plan->is_deferred && settings_get(&n->mg->settings, "fast_flush_domains").len > 0) {
        add_flush(n, plan);
    }
}

void notifications_add(struct manager *mg, struct msg_id id, const struct notification_plan *plan)
{
    struct notification *n = mem_new(sizeof *n);
    bool is_probe = manager_is_probe(plan->message->envelope);

    manager_log_rcpt(mg, plan->message, plan->rcpt.recipient, plan->status,
                     plan->is_deferred ? is_probe ? "undeliverable" : "deferred"
                     : is_probe        ? "deliverable"
                                       : "sent",
                     plan->reason);
    n->mg = mg;
    n->id = id;
    n->queue_id = mem_copy(plan->message->queue_id.ptr, plan->message->queue_id.len);
    n->done = plan->done;
    n->arg = plan->arg;
    TAILQ_INSERT_TAIL(&mg->notifications, n, all);
    if (!plan->is_log_only) {
        add_requests(n, plan);
    }
    for (size_t i = 0; i < n->count; i++) {
        CHECK(!n->requests[i].bytes.failed); /* a request has only a few records of a queue file */
    }
    go_on(n);
}

void notifications_end(struct manager *mg)
{
    struct notification *n;

    while ((n = TAILQ_FIRST(&mg->notifications)) != NULL) {
        notification_free(n);
    }
}
