/*
 * Routes of recipients: the engine requests each; the resolver and routing.h find them.
 */
#include "check.h"
#include "log.h"
#include "manager.h"

static struct routing_message routing_message_of(const struct manager *mg, struct msg_id id,
                                                 const struct queue_file_envelope *envelope)
{
    const struct postfix_message *m = postfix_message(mg->q->spool, id);
    const struct manager_message *known;

    HASH_FIND(hh, mg->messages, &id, sizeof id, known);
    return (struct routing_message){.envelope = envelope,
                                    .force_expire = m != NULL && m->force_expire,
                                    .flushed = m != NULL && m->flushed,
                                    .was_redirected = known != NULL && known->was_redirected,
                                    .probes = mg->probes};
}

void recipients_ask(void *context, struct msg_id id, const struct queue_file_envelope *envelope,
                    const struct queue_file_rcpt *rcpt)
{
    struct manager *mg = context;
    struct rewrite_question question = {.id = id, .n = rcpt->n};
    struct routing_message m = routing_message_of(mg, id, envelope);
    struct postfix_route route;

    if ((envelope->trace_flags & QUEUE_FILE_TRACE_MTA_PROBE) != 0 &&
        !manager_message(mg, id)->is_probe) {
        manager_message(mg, id)->is_probe = true;
        m.probes = ++mg->probes;
    }
    if (routing_begin(&mg->routing, &m, rcpt->address, &question, &route) == ROUTING_DECIDED) {
        postfix_routed(mg->q->spool, id, rcpt->n, &route);
        return;
    }
    if (question.completed_first) {
        manager_message(mg, id)->was_redirected = true;
    }
    rewrite_client_ask(mg->resolver, &question);
}

static void discard_told(struct manager *mg, struct msg_id id, void *arg, bool ok)
{
    (void)arg;
    (void)ok; /* a service that failed was already logged */
    manager_record_ended(mg, id);
}

/* Reports an undeliverable double bounce that is discarded; the engine marks it done. */
static void tell_discarded(struct manager *mg, const struct postfix_message *m, struct msg_id id,
                           uint32_t n, struct slice recipient)
{
    struct postfix_rcpt rcpt;
    struct notification_plan plan = {.message = m,
                                     .status = SLICE("2.0.0"),
                                     .reason =
                                         SLICE("undeliverable postmaster notification discarded"),
                                     .done = discard_told};

    if (postfix_rcpt(mg->q->spool, id, n, &rcpt)) {
        plan.rcpt = manager_request_rcpt(&rcpt);
    }
    plan.rcpt.recipient = recipient;
    manager_message(mg, id)->records++;
    notifications_add(mg, id, &plan);
}

static void answered(void *arg, struct msg_id id, uint32_t n, const struct rewrite_answer *answer)
{
    struct manager *mg = arg;
    const struct postfix_message *known = postfix_message(mg->q->spool, id);
    struct routing_message m;
    struct postfix_route route;

    if (known == NULL) {
        return; /* its file is gone */
    }
    m = routing_message_of(mg, id, known->envelope);
    routing_end(&mg->routing, &m, answer, &route);
    if (route.disposal == POSTFIX_DISCARD) {
        tell_discarded(mg, known, id, n, route.recipient);
    }
    postfix_routed(mg->q->spool, id, n, &route);
}

/* Do all mailboxes of a domain have the same route under these settings? */
static bool mailboxes_are_alike(const struct settings *s)
{
    return settings_get(s, "transport_maps").len == 0 &&
           settings_get(s, "relocated_maps").len == 0 && !settings_is(s, "allow_min_user", false) &&
           settings_has(s, "transport_maps");
}

static bool senders_are_alike(const struct settings *s)
{
    return settings_get(s, "sender_dependent_relayhost_maps").len == 0 &&
           settings_get(s, "sender_dependent_default_transport_maps").len == 0 &&
           settings_has(s, "sender_dependent_relayhost_maps");
}

void recipients_begin(struct manager *mg)
{
    const struct settings *s = &mg->settings;
    static char path[SERVICE_PATH_MAX];
    struct rewrite_plan plan = {.base = mg->q->role->base,
                                .path = path,
                                .greets = mg->release.servers_greet,
                                .by_domain = mailboxes_are_alike(s) && senders_are_alike(s),
                                .by_sender = !senders_are_alike(s),
                                .idle_us = settings_time_us(s, "ipc_idle", 5 * US_PER_S, 's'),
                                .life_us = settings_time_us(s, "ipc_ttl", 1000 * US_PER_S, 's'),
                                .patience_us =
                                    settings_time_us(s, "qmgr_ipc_timeout", 60 * US_PER_S, 's'),
                                .answered = answered,
                                .arg = mg};

    manager_service_path(mg, "rewrite_service_name", "rewrite", path);
    mg->routing = routing_params_of(s);
    mg->resolver = rewrite_client_new(&plan);
}

void recipients_end(struct manager *mg)
{
    rewrite_client_free(mg->resolver);
}
