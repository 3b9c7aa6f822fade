#include "manager.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "address.h"
#include "attributes.h"
#include "check.h"
#include "classify.h"
#include "clock.h"
#include "conf.h"
#include "delay_text.h"
#include "log.h"
#include "mail_class.h"
#include "manager_kind.h"
#include "master_link.h"
#include "mem.h"
#include "postfix_dialect.h"
#include "status.h"

#define REQUEST_MAX ((size_t)64 << 20) /* room for all recipients of a request */

/* ---- messages ---- */

struct manager_message *manager_message(struct manager *mg, struct msg_id id)
{
    struct manager_message *m;

    HASH_FIND(hh, mg->messages, &id, sizeof id, m);
    if (m == NULL) {
        m = mem_new(sizeof *m);
        m->id = id;
        HASH_ADD(hh, mg->messages, id, sizeof m->id, m);
    }
    return m;
}

void manager_forget(struct manager *mg, struct msg_id id)
{
    struct manager_message *m;

    HASH_FIND(hh, mg->messages, &id, sizeof id, m);
    if (m == NULL) {
        return;
    }
    conclusion_free(m->conclusion);
    m->conclusion = NULL;
    if (m->is_probe) {
        m->is_probe = false;
        mg->probes--;
    }
    if (m->records == 0) {
        HASH_DEL(mg->messages, m);
        mem_free(m);
    }
}

void manager_record_ended(struct manager *mg, struct msg_id id)
{
    struct manager_message *m = manager_message(mg, id);

    CHECK(m->records > 0);
    m->records--;
    if (m->records == 0 && m->conclusion != NULL) {
        conclusion_go_on(m->conclusion);
    } else if (m->records == 0 && postfix_message(mg->q->spool, id) == NULL) {
        manager_forget(mg, id); /* the message was removed meanwhile */
    }
}

static void forget(void *context, struct msg_id id)
{
    struct manager *mg = context;

    rewrite_client_forget(mg->resolver, id);
    manager_forget(mg, id);
}

void manager_service_path(const struct manager *mg, const char *parameter, const char *preset,
                          char room[SERVICE_PATH_MAX])
{
    struct slice name = settings_get(&mg->settings, parameter);

    if (name.len == 0) {
        name = slice_string(preset);
    }
    (void)snprintf(room, SERVICE_PATH_MAX, "private/%.*s", SLICE_ARGS(name)); /* a path that is cut
                                                                               * does not exist */
}

bool manager_is_probe(const struct queue_file_envelope *e)
{
    return (e->trace_flags & (QUEUE_FILE_TRACE_MTA_PROBE | QUEUE_FILE_TRACE_USER_PROBE)) != 0;
}

void manager_log_rcpt(const struct manager *mg, const struct postfix_message *m,
                      struct slice recipient, struct slice dsn, const char *word, struct slice text)
{
    int64_t digits = mg->q->conf->delay_logging_resolution_limit, now = clock_wall().us;
    char texts[3][DELAY_TEXT_MAX];
    struct buf to;

    buf_init(&to, ATTRIBUTES_LIST_MAX);
    address_put_external(recipient, &to);
    recipient = to.failed ? recipient : buf_slice(&to);
    log_info("%.*s: to=<%.*s>, relay=none, delay=%s, delays=%s/%s/0/0, dsn=%.*s, status=%s (%.*s)",
             SLICE_ARGS(m->queue_id), SLICE_ARGS(recipient),
             delay_text(now - m->envelope->arrived.us, digits, texts[0]),
             delay_text(m->activated.us - m->envelope->arrived.us, digits, texts[1]),
             delay_text(now - m->activated.us, digits, texts[2]), SLICE_ARGS(dsn), word,
             SLICE_ARGS(text));
    buf_fini(&to);
}

/* ---- master ---- */

static void triggered(void *arg, unsigned scans)
{
    struct manager *mg = arg;

    if ((scans & POSTFIX_SCAN_FLUSH) != 0) {
        sched_revive_all(mg->q->sched, clock_mono());
    }
    postfix_trigger(mg->q->spool, scans);
    external_poll_soon(&mg->q->external);
}

static void begin_with_master(struct manager *mg)
{
    struct master_link_plan plan = {.base = mg->q->role->base,
                                    .pid = getppid(), /* the process that master knows */
                                    .generation = master_generation(getenv("GENERATION")),
                                    .triggered = triggered,
                                    .arg = mg};

    if (settings_time_us(&mg->settings, "in_flow_delay", US_PER_S, 's') > 0) {
        plan.tokens = (unsigned)settings_number(&mg->settings, "default_process_limit", 100, 10000);
    }
    /* If the process above is killed, this one must end, too: master may start another at once. */
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    mg->master = master_link_new(&plan);
}

/* ---- classes of mail ---- */

/* Finds the class of a message. Its header may name the class only if the sender is a local user:
 * the message was submitted here, or after a login. */
static void classify_mail(void *context, const struct queue_file_envelope *e, struct slice content,
                          char room[CLASS_NAME_MAX], struct slice *ret_name,
                          enum class_source *ret_source)
{
    const struct manager *mg = context;
    bool may_name = queue_file_text(e, QUEUE_FILE_CLIENT_ADDRESS).len == 0 ||
                    queue_file_text(e, QUEUE_FILE_SASL_USERNAME).len > 0;
    char given_room[CLASS_NAME_MAX];
    struct classify c = {0};
    struct classified class;

    classify_begin(&c, mg->q->conf);
    classify_feed(&c, content);
    class = classify_end(&c, mg->q->conf, may_name, SLICE(""), NULL, "queue", given_room);
    class = class_decide(mg->q->conf, class, queue_file_text(e, QUEUE_FILE_SENDER), room);
    if (class.name.len > 0 && class.name.ptr != room) {
        memmove(room, class.name.ptr, class.name.len);
    }
    *ret_name = slice_of(room, class.name.len);
    *ret_source = class.source;
    classify_drop(&c);
}

/* ---- the kind of agent ---- */

static void *begin(struct queue *q)
{
    struct manager *mg;
    const char *directory = conf_postfix_directory(q->conf);

    if (directory == NULL) {
        return NULL;
    }
    mg = mem_new(sizeof *mg);
    mg->q = q;
    buf_init(&mg->request, REQUEST_MAX);
    TAILQ_INIT(&mg->calls);
    TAILQ_INIT(&mg->records);
    TAILQ_INIT(&mg->notifications);
    settings_init(&mg->settings, role_file(q->role, slice_string(POSTFIX_PARAMETERS)));
    mg->release = postfix_release_of(settings_get(&mg->settings, "mail_version"));
    if (chdir(directory) != 0) {
        log_error("%s: the working directory can't be changed to it", directory);
    }
    recipients_begin(mg);
    mg->services = (struct postfix_services){
        .context = mg, .ask = recipients_ask, .forget = forget, .conclude = conclusion_begin};
    if (classes_are_used(q->conf)) {
        mg->services.classify = classify_mail;
    }
    if (postfix_use_services(q->spool, &mg->services) != 0) {
        log_error("%s: no spool of Postfix", q->conf->spool);
    }
    if (master_is_there()) {
        begin_with_master(mg);
    }
    return mg;
}

static void end(void *state)
{
    struct manager *mg = state;
    struct manager_message *m, *next;

    if (mg == NULL) {
        return;
    }
    master_link_free(mg->master);
    calls_end(mg);
    notifications_end(mg);
    records_end(mg);
    HASH_ITER(hh, mg->messages, m, next)
    {
        conclusion_free(m->conclusion);
        HASH_DEL(mg->messages, m);
        mem_free(m);
    }
    recipients_end(mg);
    buf_fini(&mg->request);
    settings_fini(&mg->settings);
    mem_free(mg);
}

/* Records mail for a destination or transport that is dead. */
static void deferred(void *state, const struct sched_action *action)
{
    struct manager *mg = state;
    struct slice reason = action->reason;
    struct status status;
    struct buf text;
    size_t len = 0;

    buf_init(&text, 2 * SCHED_REASON_MAX);
    if (!status_prefix(reason, &status, &len)) {
        (void)buf_add_string(&text, "4.0.0");
    }
    (void)buf_addf(&text, "%.*s %s%.*s", (int)len, reason.ptr,
                   action->dest.len > 0 ? "delivery temporarily suspended: " : "",
                   SLICE_ARGS(slice_trim(slice_skip(reason, len))));
    records_add(mg, (struct msg_id){action->msg.n}, action->rcpts, action->rcpt_count,
                buf_slice(&text));
    buf_fini(&text);
}

static void turn(void *state)
{
    struct manager *mg = state;

    if (mg->master != NULL) {
        master_link_flow(mg->master, postfix_taken_from_incoming(mg->q->spool),
                         postfix_scans_incoming(mg->q->spool));
    }
}

static void status(const void *state, json_t *answer)
{
    const struct manager *mg = state;
    struct rewrite_counts counts;

    if (mg != NULL) {
        counts = rewrite_counts(mg->resolver);
        CHECK(json_object_set_new(answer, "rewrite_waiting",
                                  json_integer((json_int_t)counts.waiting)) == 0);
        CHECK(json_object_set_new(answer, "rewrite_client_asked",
                                  json_integer((json_int_t)counts.asked)) == 0);
        CHECK(json_object_set_new(answer, "rewrite_cached",
                                  json_integer((json_int_t)counts.cached)) == 0);
    }
}

const struct agent_kind manager_kind = {
    .role = ROLE_COUNT,
    .by_path = true,
    .writes_log = true,
    .begin = begin,
    .end = end,
    .status = status,
    .deliver = calls_deliver,
    .deferred = deferred,
    .turn = turn,
};
