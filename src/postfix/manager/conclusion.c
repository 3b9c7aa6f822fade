/*
 * The end of a pass: which of Postfix's services are called, and in which order. bounce(8) reads
 * the message's file in active/, so the file stays there until all have answered.
 *
 *   BOUNCE   a bounce log exists: bounce(8) sends the bounce
 *   USABLE   deferred: has an agent marked the file as corrupt?
 *   UNREAD   recipients could not be read from the disk: deferred, whatever else is due
 *   TRACE    a report of deliveries was requested: bounce(8) as `trace` sends it
 *   LATE     deferred: expired, or a delay notice is due: bounce(8) as `defer`
 *   PLACE    removed, or deferred
 *
 * If a report fails, the message is deferred, and the report is tried again with it.
 */
#include <errno.h>
#include <string.h>

#include "address.h"
#include "attributes.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "manager.h"
#include "mem.h"
#include "notice_request.h"
#include "service_link.h"

#define REQUEST_MAX ((size_t)1 << 20)

enum conclusion_step { STEP_BOUNCE, STEP_USABLE, STEP_UNREAD, STEP_TRACE, STEP_LATE, STEP_PLACE };

struct conclusion {
    struct manager *mg;
    struct msg_id id;
    bool deferred;
    struct wall due;
    enum conclusion_step step;
    struct service_link *link; /* connection to the service of `step` */
    bool greeted;
    enum notice_command asked;
};

static void run(struct conclusion *c);

/* ---- requests ---- */

static void answered(struct conclusion *c, bool ok)
{
    static const char *const words[] = {[NOTICE_FLUSH] = "bounce",
                                        [NOTICE_WARN] = "delay warning",
                                        [NOTICE_VERP] = "verp",
                                        [NOTICE_TRACE] = "trace"};
    const struct postfix_message *m = postfix_message(c->mg->q->spool, c->id);
    struct spool *sp = c->mg->q->spool;

    service_link_free(c->link);
    c->link = NULL;
    if (!ok) {
        if (m != NULL) {
            log_info("%.*s: status=deferred (%s failed)", SLICE_ARGS(m->queue_id), words[c->asked]);
        }
        c->deferred = true;
    }
    switch (c->step) {
    case STEP_BOUNCE:
        c->step = STEP_USABLE;
        break;
    case STEP_TRACE:
        if (ok && m != NULL && m->envelope->trace_flags == QUEUE_FILE_TRACE_RECORD) {
            (void)postfix_pass_traced(sp, c->id); /* if this fails, the report is sent again */
        }
        c->step = STEP_LATE;
        break;
    case STEP_LATE:
        if (c->asked == NOTICE_WARN) {
            if (ok) {
                (void)postfix_pass_warned(sp, c->id); /* if this fails, the notice is sent again */
            }
        } else {
            c->deferred = !ok; /* the message has expired, and its recipients are marked */
        }
        c->step = STEP_PLACE;
        break;
    case STEP_USABLE:
    case STEP_UNREAD:
    case STEP_PLACE:
        UNREACHABLE("these steps ask no service");
    }
    run(c);
}

static void heard(void *arg, struct slice list)
{
    struct conclusion *c = arg;
    int32_t status;

    if (!c->greeted) {
        c->greeted = service_hello_is_right(list, NOTICE_HELLO);
        if (!c->greeted) {
            answered(c, false);
        }
        return;
    }
    answered(c, notice_answer_parse(list, &status) && status == 0);
}

static void closed(void *arg, int error)
{
    (void)error;
    answered(arg, false);
}

static const struct service_link_owner owner = {.heard = heard, .closed = closed};

/* Sets VERP if each recipient needs a bounce of its own. */
static void choose_verp(const struct conclusion *c, const struct queue_file_envelope *e,
                        struct notice *n)
{
    struct slice verp = queue_file_text(e, QUEUE_FILE_VERP);

    if (n->command == NOTICE_FLUSH && verp.len == 2 &&
        queue_file_text(e, QUEUE_FILE_SENDER).len > 0 &&
        !settings_is(&c->mg->settings, "disable_verp_bounces", false)) {
        n->command = NOTICE_VERP;
        n->verp_delimiters = verp;
    }
}

static void ask(struct conclusion *c, const struct postfix_message *m, const char *parameter,
                const char *preset, enum notice_command command, unsigned flags)
{
    const struct queue_file_envelope *e = m->envelope;
    struct manager *mg = c->mg;
    struct notice n = {.command = command,
                       .flags = flags,
                       .queue_id = m->queue_id,
                       .encoding = queue_file_text(e, QUEUE_FILE_ENCODING),
                       .sendopts = e->sendopts,
                       .sender = queue_file_text(e, QUEUE_FILE_SENDER),
                       .envelope_id = queue_file_text(e, QUEUE_FILE_ENVELOPE_ID),
                       .ret_flags = e->ret_flags};
    char path[SERVICE_PATH_MAX];
    struct buf request;
    int error;

    choose_verp(c, e, &n);
    c->asked = n.command;
    manager_service_path(mg, parameter, preset, path);
    c->link = service_link_open(mg->q->role->base, path, &owner, c, &error);
    if (c->link == NULL) {
        log_warning("connect to service %s: %s", path, strerror(error));
        answered(c, false);
        return;
    }
    c->greeted = !mg->release.servers_greet;
    service_link_patience(c->link, mg->q->conf->qmgr_daemon_timeout_us);
    buf_init(&request, REQUEST_MAX);
    notice_put(&request, &n, &mg->release);
    CHECK(!request.failed); /* a request has only a few records of a queue file */
    service_link_send(c->link, buf_slice(&request));
    buf_fini(&request);
}

/* ---- steps ---- */

static int64_t lifetime_us(const struct conf *conf, const struct queue_file_envelope *e)
{
    int64_t most = conf->maximal_queue_lifetime_us;

    return queue_file_text(e, QUEUE_FILE_SENDER).len > 0 || conf->bounce_queue_lifetime_us > most
               ? most
               : conf->bounce_queue_lifetime_us;
}

static void log_expiry(const struct postfix_message *m)
{
    struct slice sender = queue_file_text(m->envelope, QUEUE_FILE_SENDER);
    struct buf from;

    buf_init(&from, ATTRIBUTES_LIST_MAX);
    address_put_external(sender, &from);
    sender = from.failed ? sender : buf_slice(&from);
    log_info("%.*s: from=<%.*s>, status=%s, returned to sender", SLICE_ARGS(m->queue_id),
             SLICE_ARGS(sender), m->force_expire ? "force-expired" : "expired");
    buf_fini(&from);
}

/* Requests a bounce if the message has expired, or a delay notice if one is due. Returns false if
 * neither. */
static bool is_late(struct conclusion *c, const struct postfix_message *m)
{
    const struct queue_file_envelope *e = m->envelope;
    struct wall now = clock_wall();

    if (m->force_expire || now.us >= us_add(e->created.us, lifetime_us(c->mg->q->conf, e))) {
        log_expiry(m);
        c->mg->q->counts.expired++;
        ask(c, m, "defer_service_name", "defer", NOTICE_FLUSH, NOTICE_MARK_DONE);
        return true;
    }
    if (e->warn_s > 0 && us_seconds(now.us) >= e->warn_s - 1) {
        ask(c, m, "defer_service_name", "defer", NOTICE_WARN, 0);
        return true;
    }
    return false;
}

static bool is_traced(const struct manager *mg, const struct queue_file_envelope *e)
{
    return (manager_trace_flags(mg, e) & (QUEUE_FILE_TRACE_USER_PROBE | QUEUE_FILE_TRACE_RECORD |
                                          QUEUE_FILE_TRACE_DELAY)) != 0 ||
           (e->size_flags & QUEUE_FILE_SIZE_SUCCESS) != 0;
}

/* Ends the conclusion: the engine moves the file. */
static void place(struct conclusion *c, enum postfix_place where)
{
    struct manager *mg = c->mg;
    struct msg_id id = c->id;
    struct wall due = c->due;

    manager_forget(mg, id); /* frees the conclusion, too */
    postfix_concluded(mg->q->spool, id, where, due);
}

/* Runs the steps from `step` on, until a service is called, or to the end. The conclusion may be
 * freed on return. */
static void run(struct conclusion *c)
{
    struct spool *sp = c->mg->q->spool;
    const struct postfix_message *m = postfix_message(sp, c->id);

    for (;;) {
        if (m == NULL) {
            manager_forget(c->mg, c->id);
            return;
        }
        switch (c->step) {
        case STEP_BOUNCE:
            if (postfix_pass_bounce_log(sp, c->id) == 1) {
                ask(c, m, "bounce_service_name", "bounce", NOTICE_FLUSH, 0);
                return;
            }
            c->step = STEP_USABLE;
            break;
        case STEP_USABLE:
            if (c->deferred && postfix_pass_is_usable(sp, c->id) != 1) {
                place(c, POSTFIX_CORRUPT);
                return;
            }
            c->step = STEP_UNREAD;
            break;
        case STEP_UNREAD:
            if (postfix_pass_is_unread(sp, c->id)) {
                place(c, POSTFIX_DEFERRED);
                return;
            }
            c->step = STEP_TRACE;
            break;
        case STEP_TRACE:
            if (is_traced(c->mg, m->envelope)) {
                ask(c, m, "trace_service_name", "trace", NOTICE_TRACE,
                    manager_trace_flags(c->mg, m->envelope));
                return;
            }
            c->step = STEP_LATE;
            break;
        case STEP_LATE:
            if (c->deferred && is_late(c, m)) {
                return;
            }
            c->step = STEP_PLACE;
            break;
        case STEP_PLACE:
            place(c, c->deferred ? POSTFIX_DEFERRED : POSTFIX_REMOVED);
            return;
        }
    }
}

void conclusion_begin(void *context, struct msg_id id, bool deferred, struct wall due)
{
    struct manager *mg = context;
    struct manager_message *m = manager_message(mg, id);
    struct conclusion *c = mem_new(sizeof *c);

    CHECK(m->conclusion == NULL);
    c->mg = mg;
    c->id = id;
    c->deferred = deferred;
    c->due = due;
    m->conclusion = c;
    if (m->records == 0) {
        conclusion_go_on(c);
    }
}

void conclusion_go_on(struct conclusion *c)
{
    const struct postfix_message *told = postfix_message(c->mg->q->spool, c->id);
    struct manager_message *m = manager_message(c->mg, c->id);

    if (told != NULL && manager_is_probe(told->envelope) && m->undone == 0) {
        c->deferred = false; /* a probe's results were already reported */
    }
    m->undone = 0;
    run(c);
}

void conclusion_free(struct conclusion *c)
{
    if (c != NULL) {
        service_link_free(c->link);
        mem_free(c);
    }
}
