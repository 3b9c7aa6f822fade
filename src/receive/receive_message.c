#include "receive_session_private.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "header.h"
#include "log.h"
#include "mem.h"
#include "receive_policy.h"

/* Returns the Received: field with a placeholder for the queue id. */
static struct slice make_trace(struct receive_session *s)
{
    struct receive_sessions *all = s->all;
    struct wall now = clock_wall();
    struct header_trace trace = {
        .helo = server_helo(s->server),
        .client_name = slice_string(s->name),
        .client_ip = slice_string(s->ip),
        .protocol = server_protocol(s->server),
        .tls = server_tls(s->server),
        .hostname = slice_string(s->settings->hostname),
        .recipient = draft_rcpts(&s->draft) == 1 ? draft_first_rcpt(&s->draft) : SLICE(""),
        .time = now,
        .utc_offset_minutes = clock_zone(now) / 60,
    };

    buf_clear(&all->trace);
    buf_clear(&all->trace_rest);
    (void)buf_add(&all->trace, buf_slice(&s->arrival.ruling.prepend)); /* fits, or fails below */
    CHECK(header_received(&trace, &all->trace, &all->trace_rest));     /* all parts have limits */
    buf_add(&all->trace, SLICE("\1"));
    CHECK(buf_add(&all->trace, buf_slice(&all->trace_rest)));
    return buf_slice(&all->trace);
}

/* Passes the verdict on a message to the engine; in LMTP once for each recipient. */
static void answer_message(struct receive_session *s, const struct server_reply *reply)
{
    struct server_reply *replies;

    if (!s->origin->lmtp) {
        server_message_done(s->server, reply, 1);
        return;
    }
    replies = mem_array(s->message_rcpts, sizeof *replies);
    for (uint32_t i = 0; i < s->message_rcpts; i++) {
        replies[i] = *reply;
    }
    server_message_done(s->server, replies, s->message_rcpts);
    mem_free(replies);
}

static void refuse_message(struct receive_session *s, const struct server_reply *reply)
{
    receive_log_reply(s, reply, draft_sender(&s->draft), slice_of(NULL, 0));
    receive_log_rules(s, "NOQUEUE");
    draft_drop(&s->draft);
    answer_message(s, reply); /* the reply may point into the arrival */
    arrival_drop(&s->arrival);
}

/* Drops a message for a rule; the client gets a positive reply. */
static void discard_message(struct receive_session *s)
{
    const struct server_reply reply = SERVER_ACCEPT;

    receive_log_rules(s, "NOQUEUE");
    draft_drop(&s->draft);
    arrival_drop(&s->arrival);
    answer_message(s, &reply);
}

/* A failure shows in draft_finish. */
void receive_put_content(void *arg, struct slice bytes)
{
    struct receive_session *s = arg;

    (void)draft_add_content(&s->draft, bytes);
}

/* Refuses the message for a rule or a limit. A rule has its own log line. */
static void refuse_by_rule(struct receive_session *s, const struct server_reply *reply)
{
    if (s->arrival.ruling.code == 0 || s->arrival.ruling.limit != NULL) {
        refuse_message(s, reply);
        return;
    }
    receive_log_rules(s, "NOQUEUE");
    draft_drop(&s->draft);
    answer_message(s, reply);
    arrival_drop(&s->arrival);
}

/* Returns the text about a message after its client in log lines: the login, and its name for
 * filters. */
static struct slice describe(struct receive_session *s)
{
    struct buf *text = &s->all->text;

    buf_clear(text);
    if (s->login != NULL) {
        (void)buf_add_string(text, s->login->text); /* fits */
    }
    if (s->filters != NULL) {
        (void)buf_addf(text, "%smilter_id=%s", buf_len(text) > 0 ? ", " : "",
                       filters_id(s->filters)); /* fits */
    }
    return buf_slice(text);
}

/* Submits a message that has passed the filters. */
static void submit(struct receive_session *s)
{
    char class_room[CLASS_NAME_MAX], send_room[RECEIVE_SEND_CLIENT_MAX];
    struct classified class;
    struct receive_sessions *all = s->all;
    struct wire_rcpt *rcpts;
    struct server_reply reply = receive_queue_works(all);
    struct wire_submit m = {
        .flags = s->message_flags | (s->filters != NULL ? filters_flags(s->filters) : 0),
        .sender = draft_sender(&s->draft),
        .rcpt_count = draft_rcpts(&s->draft),
        .arrived = s->arrived,
        .client = slice_string(s->text),
        .pid = (uint32_t)getpid(),
        .origin = slice_string(s->origin->url),
    };

    rcpts = draft_envelope(&s->draft);
    if (reply.code == 0) {
        reply = arrival_envelope(&s->arrival, all->role->conf, &m.sender, &rcpts, &m.rcpt_count,
                                 WIRE_RCPTS_MAX);
    }
    if (reply.code != 0) {
        mem_free(rcpts);
        refuse_message(s, &reply);
        return;
    }
    m.rcpts = rcpts;
    m.hold = arrival_hold(&s->arrival);
    m.rules = arrival_rules(&s->arrival);
    receive_ask(s, QUESTION_MESSAGE, ++s->all->last_token);
    m.token = s->token;
    m.trace = make_trace(s);
    class = classify_end(&s->classify, all->role->conf, s->may_relay,
                         s->login != NULL ? slice_string(s->login->class_name) : SLICE(""),
                         s->origin->url, s->text, class_room);
    m.class_name = class.name;
    m.class_source = class.source;
    m.login = describe(s);
    if (m.hold.len == 0 && s->filters != NULL) {
        m.hold = filters_hold(s->filters);
    }
    m.send_client = receive_session_client(s, send_room);
    m.send_login = receive_session_login(s);
    m.send_rcpts = draft_rcpts(&s->draft);
    draft_submit(&s->draft, all->queue, &m);
    mem_free(rcpts);
}

/* Returns the reply of the filters to the last command or message; code 0: passed. The text is
 * borrowed. */
static struct server_reply filters_reply(struct receive_session *s)
{
    const struct filters_answer *a = filters_answer(s->filters);

    if (a->result != FILTERS_REFUSE) {
        return SERVER_ACCEPT;
    }
    return (struct server_reply){a->code, a->status, slice_string(a->text)};
}

static void log_filtered(struct receive_session *s, const char *what, const struct server_reply *r)
{
    struct buf *line = &s->all->line;
    struct slice rcpt = slice_of(NULL, 0);
    size_t at = 0;

    while (s->stage == STAGE_RCPT && draft_next_rcpt(&s->draft, &at, &rcpt)) {
        continue; /* the question was about the last one */
    }
    buf_clear(line);
    buf_addf(line, "%u %s %.*s", r->code, r->status, SLICE_ARGS(r->text));
    receive_log_event(s, what, draft_sender(&s->draft), rcpt, buf_cstr(line), "");
}

/* Handles the filters' answer to a message; `refusal` has code 0 if it passes. */
static void end_filtered(struct receive_session *s, const struct server_reply *refusal)
{
    const struct server_reply discarded = {250, "2.0.0", SLICE("Ok: discarded")};
    bool discards = filters_answer(s->filters)->result == FILTERS_DISCARD;

    if (refusal->code == 0 && !discards) {
        submit(s);
        return;
    }
    if (discards) {
        log_filtered(s, "milter-discard", &discarded);
        s->delivered = true;
    }
    receive_log_rules(s, "NOQUEUE");
    draft_drop(&s->draft);
    arrival_drop(&s->arrival);
    answer_message(s, discards ? &discarded : refusal);
}

/* Applies the filters' answer to the command or message of the client. */
static void filters_decided(struct receive_session *s)
{
    struct server_reply reply = filters_reply(s);

    if (reply.code != 0) {
        log_filtered(s, "milter-reject", &reply);
    }
    if (s->stage == STAGE_END) {
        end_filtered(s, &reply);
        return;
    }
    if (reply.code != 0 && s->stage == STAGE_RCPT) {
        draft_undo_rcpt(&s->draft);
    } else if (reply.code != 0 && s->stage == STAGE_MAIL) {
        draft_drop(&s->draft);
    }
    s->in_content = s->stage == STAGE_DATA && reply.code == 0;
    server_answer(s->server, reply);
}

static void on_filters(void *arg, struct filters *f)
{
    struct receive_session *s = arg;

    (void)f;
    CHECK(s->phase == PHASE_FILTERING);
    s->phase = PHASE_TALK;
    filters_decided(s);
    if (s->phase == PHASE_TALK) { /* else the queue process has it */
        receive_go_on(s);
    }
}

void receive_after_filters(struct receive_session *s, bool answered)
{
    if (answered) {
        filters_decided(s);
        return;
    }
    s->phase = PHASE_FILTERING;
    client_pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, MONO_NEVER); /* the filters have their own */
}

void receive_filter_mail(struct receive_session *s, const struct server_mail *mail)
{
    char name[INET6_ADDRSTRLEN + 2], parameters[64] = "";
    struct filters_client client = {
        .ip = slice_string(s->ip),
        .family = strchr(s->ip, ':') == NULL ? 4 : 6,
        .port = s->port,
        .helo = server_helo(s->server),
        .tls = server_tls(s->server),
        .user = s->login != NULL ? slice_string(s->login->user) : SLICE(""),
        .mechanism = s->login != NULL ? slice_string(sasl_mechanism_name(s->mechanism)) : SLICE(""),
    };
    int len = 0;

    if (s->filters == NULL) {
        s->filters = filters_new(&s->all->hub, s->settings->filters, on_filters, s);
    }
    (void)snprintf(name, sizeof name, "[%s]", s->ip); /* fits */
    client.name = slice_string(strcmp(s->name, "localhost") == 0 ? s->name : name);
    if (mail->size > 0) {
        len = snprintf(parameters, sizeof parameters, "SIZE=%llu ",
                       (unsigned long long)mail->size); /* fits, as does the rest */
    }
    (void)snprintf(parameters + len, sizeof parameters - (size_t)len, "%s%s",
                   (mail->flags & ENVELOPE_8BIT) != 0 ? "BODY=8BITMIME " : "",
                   (mail->flags & ENVELOPE_SMTPUTF8) != 0 ? "SMTPUTF8" : "");
    receive_after_filters(
        s, filters_mail(s->filters, &client, mail->sender, slice_string(parameters)));
}

void receive_message_end(struct receive_session *s, const struct server_message *message)
{
    struct server_reply reply = receive_queue_works(s->all), ruled;

    receive_log_connect(s);
    s->stage = STAGE_END;
    s->in_content = false;
    s->message_rcpts = message->recipients;
    s->message_flags = message->flags;
    ruled = arrival_end(&s->arrival, s->text, receive_put_content, s);
    (void)draft_hold(&s->draft, 0); /* draft_finish reports a failure */
    if (reply.code == 0 && !draft_finish(&s->draft)) {
        reply = RECEIVE_NO_MEMORY;
    }
    if (reply.code != 0) {
        refuse_message(s, &reply);
    } else if (ruled.code != 0) {
        refuse_by_rule(s, &ruled);
    } else if (s->arrival.ruling.discard) {
        discard_message(s);
    } else if (s->filters != NULL) {
        receive_after_filters(s, filters_message(s->filters, &s->draft));
    } else {
        submit(s);
    }
}

void receive_message_decided(struct receive_session *s, const struct server_reply *reply)
{
    receive_forget_question(s);
    draft_drop(&s->draft);
    arrival_drop(&s->arrival);
    answer_message(s, reply);
    if (reply->code / 100 == 2) {
        s->delivered = true;
        admission_delivered(&s->place, clock_mono());
    }
    if (s->all->flow.behind && s->settings->flow_delay_us > 0) {
        stream_flush(s->stream, server_output(s->server));
        receive_delay(s, s->settings->flow_delay_us);
        return;
    }
    receive_go_on(s);
}

bool receive_submit_done(struct receive_sessions *all, struct slice body)
{
    struct wire_submit_done done;
    struct server_reply reply;
    struct receive_session *s;
    char status[RECEIVE_STATUS_MAX], id[WIRE_ID_MAX + 1];

    if (!wire_get_submit_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = receive_find_asked(all, done.token, QUESTION_MESSAGE);
    if (s == NULL) {
        if (done.code / 100 == 2) {
            log_warning("%.*s: the queue's answer came too late, the client may send again",
                        SLICE_ARGS(done.id));
        }
        return true;
    }
    (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(done.status)); /* or is cut */
    reply = (struct server_reply){done.code, status, done.text};
    if (done.code / 100 != 2) { /* else the queue process has logged the client */
        receive_log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(done.id)); /* fits */
    receive_log_rules(s, done.id.len > 0 ? id : "NOQUEUE");
    receive_message_decided(s, &reply);
    return true;
}
