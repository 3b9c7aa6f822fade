/*
 * Deliveries over private/TRANSPORT. Each is a call: a connection for one request. A call for a
 * message with VERP makes a connection per recipient, one after the other, since each has its own
 * sender.
 *
 *   calls_deliver --connect, request--> hello --> reply --(more recipients of VERP)--> connect
 *                      |                 |          |  \
 *                   refused           no hello   no reply  \--> the delivery has ended
 *                      |                 |          |
 *                      +-----------------+          +--> recipients that the agent has not marked
 *                                |                       done are deferred
 *              the transport is dead for transport_retry_time
 *
 * The request does not wait for the hello, so an agent has it as soon as it accepts, even if this
 * process ends then. An agent that accepts the connection of a manager that has ended does not read
 * the request, because it can't send its hello.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "address.h"
#include "attributes.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "manager.h"
#include "mem.h"
#include "outcomes.h"
#include "queue_decide.h"
#include "queue_result.h"
#include "service_link.h"

#define UNAVAILABLE  "4.3.0 mail transport unavailable"
#define NO_REPLY     "4.3.0 unknown mail transport error"
#define REASON_MAX   SCHED_REASON_MAX
#define SENDER_MAX   ((size_t)1 << 20)  /* limit in bytes of a sender with VERP */
#define REQUEST_KEPT ((size_t)64 << 10) /* limit in bytes of the buffer that is kept */

struct call {
    TAILQ_ENTRY(call) all;
    struct manager *mg;
    uint64_t entry;
    struct service_link *link;
    bool greeted;
    size_t asked, answered; /* number of recipients in requests that were sent, and of those that
                             * have replies */
    bool deferred;          /* some recipient must be tried again */
    char *reason;           /* owned; "4.4.1 why the site is bad", or NULL */
    char path[SERVICE_PATH_MAX];
};

/* ---- requests ---- */

unsigned manager_trace_flags(const struct manager *mg, const struct queue_file_envelope *e)
{
    bool was_warned = e->warn_s < 0 && settings_is(&mg->settings, "confirm_delay_cleared", false);

    return e->trace_flags | (was_warned ? QUEUE_FILE_TRACE_DELAY : 0);
}

static unsigned request_flags(const struct manager *mg, const struct queue_file_envelope *e)
{
    bool marks = queue_file_text(e, QUEUE_FILE_INSPECTOR).len == 0;

    return DELIVERY_BOUNCE | (marks ? DELIVERY_MARK_DONE : 0) | manager_trace_flags(mg, e);
}

struct delivery_request manager_request(const struct manager *mg, const struct postfix_message *m)
{
    const struct queue_file_envelope *e = m->envelope;

    return (struct delivery_request){
        .flags = request_flags(mg, e),
        .queue_id = m->queue_id,
        .data_offset = e->data_offset,
        .content_length = e->content_length,
        .encoding = queue_file_text(e, QUEUE_FILE_ENCODING),
        .sendopts = e->sendopts,
        .sender = queue_file_text(e, QUEUE_FILE_SENDER),
        .envelope_id = queue_file_text(e, QUEUE_FILE_ENVELOPE_ID),
        .ret_flags = e->ret_flags,
        .arrived = e->arrived,
        .activated = m->activated,
        .client_name = queue_file_text(e, QUEUE_FILE_CLIENT_NAME),
        .client_address = queue_file_text(e, QUEUE_FILE_CLIENT_ADDRESS),
        .client_port = queue_file_text(e, QUEUE_FILE_CLIENT_PORT),
        .protocol_name = queue_file_text(e, QUEUE_FILE_PROTOCOL_NAME),
        .helo_name = queue_file_text(e, QUEUE_FILE_HELO_NAME),
        .sasl_method = queue_file_text(e, QUEUE_FILE_SASL_METHOD),
        .sasl_username = queue_file_text(e, QUEUE_FILE_SASL_USERNAME),
        .sasl_sender = queue_file_text(e, QUEUE_FILE_SASL_SENDER),
        .log_ident = queue_file_text(e, QUEUE_FILE_LOG_IDENT),
        .rewrite_context = queue_file_text(e, QUEUE_FILE_REWRITE_CONTEXT)};
}

struct delivery_request_rcpt manager_request_rcpt(const struct postfix_rcpt *r)
{
    return (struct delivery_request_rcpt){.original = r->original,
                                          .recipient = r->recipient,
                                          .offset = r->offset,
                                          .dsn_original = r->dsn_original,
                                          .notify = r->notify};
}

/* Returns the message's two VERP delimiters if each recipient gets its own sender, else an empty
 * text. */
static struct slice verp_of(const struct manager *mg, const struct queue_file_envelope *e)
{
    struct slice delimiters = queue_file_text(e, QUEUE_FILE_VERP), allowed;

    if (delimiters.len != 2 || queue_file_text(e, QUEUE_FILE_SENDER).len == 0) {
        return SLICE("");
    }
    allowed = settings_has(&mg->settings, "verp_delimiter_filter")
                  ? settings_get(&mg->settings, "verp_delimiter_filter")
                  : SLICE("-=+");
    return slice_find(allowed, delimiters.ptr[0]) < allowed.len &&
                   slice_find(allowed, delimiters.ptr[1]) < allowed.len
               ? delimiters
               : SLICE("");
}

static bool needs_smtputf8(struct slice address)
{
    bool ascii = true;

    for (size_t i = 0; i < address.len; i++) {
        ascii = ascii && (unsigned char)address.ptr[i] < 0x80;
    }
    return !ascii && address_utf8_valid(address);
}

/* Appends the request for the `count` recipients from c->answered on. Returns false if the engine
 * no longer has them. */
static bool put_request(const struct call *c, const struct delivery *d, size_t count,
                        struct buf *out)
{
    struct manager *mg = c->mg;
    struct spool *sp = mg->q->spool;
    const struct postfix_message *m = postfix_message(sp, d->msg->id);
    struct postfix_rcpt first, r;
    struct delivery_request request;
    struct buf verp_sender;
    struct slice verp;
    bool has_utf8 = false;

    if (m == NULL || !postfix_rcpt(sp, d->msg->id, d->rcpts[c->answered], &first)) {
        return false;
    }
    buf_init(&verp_sender, SENDER_MAX);
    request = manager_request(mg, m);
    verp = verp_of(mg, m->envelope);
    request.nexthop = first.nexthop;
    request.rcpt_count = (uint32_t)count;
    request.flags |= (d->cache_load ? DELIVERY_CACHED : 0) | (d->cache_store ? DELIVERY_KEEP : 0);
    for (size_t i = 0; i < count; i++) {
        has_utf8 = has_utf8 || (postfix_rcpt(sp, d->msg->id, d->rcpts[c->answered + i], &r) &&
                                needs_smtputf8(r.recipient));
    }
    if (has_utf8 && settings_is(&mg->settings, "smtputf8_enable", true)) {
        request.sendopts |= verp.len > 0 ? 12 : 8;
    }
    if (verp.len > 0) {
        delivery_put_verp_sender(&verp_sender, request.sender, verp,
                                 first.original.len > 0 ? first.original : first.recipient);
        request.sender = buf_slice(&verp_sender);
    }
    delivery_request_put(out, &request, &mg->release);
    for (size_t i = 0; i < count; i++) {
        struct delivery_request_rcpt rcpt;

        if (!postfix_rcpt(sp, d->msg->id, d->rcpts[c->answered + i], &r)) {
            buf_fini(&verp_sender);
            return false;
        }
        rcpt = manager_request_rcpt(&r);
        delivery_request_put_rcpt(out, &rcpt);
    }
    buf_fini(&verp_sender);
    return !out->failed;
}

/* ---- the end ---- */

static void call_free(struct call *c)
{
    TAILQ_REMOVE(&c->mg->calls, c, all);
    service_link_free(c->link);
    mem_free(c->reason);
    mem_free(c);
}

/* Ends the delivery: recipients that the agent has marked are done. If no agent has tried the
 * others, `record` is the text to record for them; else it is NULL. */
static void finish(struct call *c, enum wire_outcome outcome, const char *record)
{
    struct queue *q = c->mg->q;
    struct delivery *d = delivery_find(&q->active, c->entry);
    struct wire_result result = {.entry = c->entry, .outcome = outcome};
    struct wire_verdict *verdicts;
    uint32_t *left;
    size_t left_count = 0;
    bool look = c->deferred || record != NULL;
    struct outcomes outcomes = {.logs = {{.was_read = false}}};

    CHECK(d != NULL);
    result.transmit_us = clock_mono().us - d->handed.us; /* only the agent could measure the
                                                          * set-up */
    verdicts = mem_array(d->rcpt_count, sizeof *verdicts);
    left = mem_array(d->rcpt_count, sizeof *left);
    result.reason = c->reason != NULL ? slice_string(c->reason) : slice_of("", 0);
    result.verdicts = verdicts;
    result.verdict_count = (uint32_t)d->rcpt_count;
    for (size_t i = 0; i < d->rcpt_count; i++) {
        bool done = !look || postfix_rcpt_state(q->spool, d->msg->id, d->rcpts[i]) == 'D';

        verdicts[i] =
            (struct wire_verdict){.n = d->rcpts[i],
                                  .kind = done ? VERDICT_SENT : VERDICT_DEFERRED,
                                  .text = done                    ? SLICE("done")
                                          : result.reason.len > 0 ? result.reason
                                                                  : SLICE("deferred by its agent")};
        if (!done) {
            left[left_count++] = d->rcpts[i];
        }
        if (done && q->journal.on) { /* without a journal the failed recipients need not be
                                      * identified */
            outcomes_done(&outcomes, c->mg, d->msg->id, &verdicts[i]);
        } else if (!done && record == NULL) {
            outcomes_deferred(&outcomes, c->mg, d->msg->id, &verdicts[i]);
        }
    }
    if (record == NULL && left_count > 0) {
        manager_message(c->mg, d->msg->id)->undone += left_count;
    } else if (left_count > 0) {
        records_add(c->mg, d->msg->id, left, left_count, slice_string(record));
    }
    queue_delivery_ended(q, d, &result);
    outcomes_fini(&outcomes);
    mem_free(left);
    mem_free(verdicts);
    call_free(c);
}

/* Ends the call when no agent can be reached. */
static void transport_failed(struct call *c)
{
    struct queue *q = c->mg->q;
    const struct delivery *d = delivery_find(&q->active, c->entry);

    sched_transport_failed(q->sched, clock_mono(), d->transport, SLICE(UNAVAILABLE));
    finish(c, OUTCOME_CRASH, UNAVAILABLE);
}

/* ---- the dialogue ---- */

static void begin(struct call *c, const struct delivery *d);

static void keep_reason(struct call *c, const struct delivery_reply *reply)
{
    struct buf text;

    buf_init(&text, ATTRIBUTES_LIST_MAX);
    (void)buf_addf(&text, "%.*s %.*s", SLICE_ARGS(reply->status), SLICE_ARGS(reply->reason));
    mem_free(c->reason);
    c->reason =
        mem_copy(buf_slice(&text).ptr, buf_len(&text) < REASON_MAX ? buf_len(&text) : REASON_MAX);
    buf_fini(&text);
}

/* Ends the delivery after the agent's last reply. The agent keeps the message's file open until its
 * connection is closed. So the file is removed before that, and its blocks are freed by the agent,
 * where the disk delays no other mail. The next delivery is handed out even before, and waits for
 * the agent's next accept. */
static void ended(struct call *c)
{
    struct queue *q = c->mg->q;
    struct service_link *link = c->link;

    c->link = NULL;
    finish(c,
           c->reason == NULL ? OUTCOME_OK
           : c->deferred     ? OUTCOME_SITE_FAIL
                             : OUTCOME_CRASH,
           NULL);
    queue_decide(q);
    if (!q->journal.on) { /* with a journal the events are stored once per turn */
        batch_commit(q);
    }
    service_link_free(link);
}

static void replied(struct call *c, const struct delivery *d, const struct delivery_reply *reply)
{
    c->deferred = c->deferred || reply->deferred;
    if (reply->status.len > 0) {
        keep_reason(c, reply);
    }
    c->answered = c->asked;
    if (c->answered == d->rcpt_count) {
        ended(c);
        return;
    }
    service_link_free(c->link);
    c->link = NULL;
    begin(c, d);
}

static void send_request(struct call *c, const struct delivery *d)
{
    const struct postfix_message *m = postfix_message(c->mg->q->spool, d->msg->id);
    size_t count = d->rcpt_count - c->answered;
    struct buf *request = &c->mg->request;

    if (m != NULL && verp_of(c->mg, m->envelope).len > 0) {
        count = 1;
    }
    buf_clear(request);
    if (!put_request(c, d, count, request)) {
        finish(c, OUTCOME_CRASH, NULL); /* the message is gone, so there is nothing to record */
        return;
    }
    c->asked = c->answered + count;
    service_link_patience(c->link, c->mg->q->conf->daemon_timeout_us);
    service_link_send(c->link, buf_slice(request));
    if (buf_len(request) > REQUEST_KEPT) {
        buf_fini(request);
    }
}

static void heard(void *arg, struct slice list)
{
    struct call *c = arg;
    const struct delivery *d = delivery_find(&c->mg->q->active, c->entry);
    struct delivery_reply reply;

    queue_clock_look(c->mg->q);
    CHECK(d != NULL);
    if (!c->greeted) {
        c->greeted = delivery_hello_is_right(list);
        if (!c->greeted) {
            log_warning("%s socket: malformed response", c->path);
            transport_failed(c);
        }
    } else if (!delivery_reply_parse(list, &reply)) {
        log_warning("%s socket: malformed response", c->path);
        finish(c, OUTCOME_CRASH, NO_REPLY);
    } else {
        replied(c, d, &reply);
    }
}

static void closed(void *arg, int error)
{
    struct call *c = arg;
    const struct delivery *d = delivery_find(&c->mg->q->active, c->entry);

    queue_clock_look(c->mg->q);
    CHECK(d != NULL);
    if (error == ETIMEDOUT) {
        log_warning("%s: daemon_timeout: timeout receiving delivery status from transport: %s",
                    d->msg->id_text, c->path);
    } else {
        log_warning("%s socket: %s", c->path,
                    error == 0 || error == ECONNRESET || error == EPIPE ? "premature disconnect"
                    : error == EPROTO                                   ? "malformed response"
                                                                        : strerror(error));
    }
    if (c->greeted) {
        finish(c, OUTCOME_CRASH, NO_REPLY);
    } else {
        transport_failed(c);
    }
}

static const struct service_link_owner owner = {.heard = heard, .closed = closed};

static void begin(struct call *c, const struct delivery *d)
{
    int error;

    c->greeted = false;
    c->link = service_link_open(c->mg->q->role->base, c->path, &owner, c, &error);
    if (c->link == NULL) {
        log_warning("connect to transport %s: %s", c->path, strerror(error));
        transport_failed(c);
        return;
    }
    send_request(c, d);
}

void calls_deliver(void *state, struct delivery *d)
{
    struct manager *mg = state;
    struct call *c = mem_new(sizeof *c);

    c->mg = mg;
    c->entry = d->entry;
    (void)snprintf(c->path, sizeof c->path, "private/%s",
                   transport_name(&mg->q->transports, d->transport)); /* a name that is cut has no
                                                                       * service */
    TAILQ_INSERT_TAIL(&mg->calls, c, all);
    begin(c, d);
}

void calls_end(struct manager *mg)
{
    struct call *c;

    while ((c = TAILQ_FIRST(&mg->calls)) != NULL) {
        call_free(c);
    }
}
