#include "inject_session_private.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "arrival.h"
#include "check.h"
#include "clock.h"
#include "header.h"
#include "log.h"
#include "mem.h"
#include "receive_policy.h"
#include "receive_shared.h"
#include "name_lines.h"

/* Logs the actions of rules, each after the queue id or NOQUEUE. */
static void log_rules(const struct inject_part *part, const char *id)
{
    const struct inject_session *s = part->s;
    struct slice sender = draft_sender(&part->intake.draft);
    struct slice rcpt = draft_first_rcpt(&part->intake.draft);
    struct buf *envelope = &s->all->line;

    if (!arrival_has_notes(&part->intake.arrival)) {
        return;
    }
    buf_clear(envelope);
    (void)buf_addf(envelope, "from=<%.*s> to=<%.*s> proto=%s token=<%s>", SLICE_ARGS(sender),
                   SLICE_ARGS(rcpt), inject_protocol(s), s->grant->name); /* fits */
    arrival_log(&part->intake.arrival, id, s->text, buf_cstr(envelope));
}

/* Frees the slot of a message, after its filters have answered or because the message is
 * dropped. */
static void free_slot(struct inject_part *part)
{
    struct inject_slot *slot = part->slot;

    if (part->token == 0 && part->filtering) { /* no further question */
        filters_free(slot->filters);
        slot->filters = NULL;
    }
    slot->part = NULL;
    part->slot = NULL;
}

void inject_part_made(struct inject_part *part)
{
    if (part->s->making == part) {
        part->s->making = NULL;
        draft_drop(&part->s->making_account);
        inject_message_free(part->text);
        part->text = NULL;
    }
}

void inject_part_free(struct inject_part *part)
{
    if (part->token != 0) {
        HASH_DEL(part->s->inject->parts, part);
    }
    if (part->slot != NULL) {
        free_slot(part);
    }
    inject_part_made(part);
    LIST_REMOVE(part, next);
    part->s->part_count--;
    intake_drop(&part->intake);
    mem_free(part);
}

static bool may_send(const struct inject_session *s, struct slice sender)
{
    return name_lines_may_send(slice_string(s->grant->senders), sender);
}

/* Adds a refused recipient to the answer and the log. Leaves out its text if memory is short. */
static void refuse_rcpt(struct inject_session *s, struct slice rcpt,
                        const struct server_reply *reply, const char *rule)
{
    struct slice text = reply->text;
    struct buf line;

    if (!inject_charge(s, ANSWER_ELEMENT + rcpt.len + text.len)) {
        text = SLICE("");
    }
    inject_answer_refused(&s->answer, rcpt, reply->code, slice_string(reply->status), text);
    if (s->refusals_logged == INJECT_REFUSALS_LOGGED) {
        s->refusals_unlogged++;
        return;
    }
    s->refusals_logged++;
    buf_init(&line, LOG_LINE_MAX);
    (void)buf_addf(&line, "%s %.*s", reply->status, SLICE_ARGS(reply->text)); /* or is cut */
    if (!line.failed) {
        inject_log_refusal(s, reply->code, buf_cstr(&line), rcpt, rule);
    }
    buf_fini(&line);
}

/* Checks a recipient, and adds it to the message or to the refused ones. */
static struct server_reply take_rcpt(struct inject_part *part, struct slice rcpt)
{
    struct inject_session *s = part->s;
    const struct arrival_client client = {.ip = s->address, .text = s->text};
    struct receive_verdict verdict = {.text = &s->all->text};
    struct arrival_words words = {.text = &s->all->text, .rule = &s->all->rule};
    const struct conf *conf = s->all->role->conf;
    struct server_reply reply;

    buf_clear(words.rule);
    reply = receive_judge(conf, true, rcpt, &verdict); /* a token may relay */
    if (reply.code == 0) {
        reply = arrival_rcpt(&part->intake.arrival, conf, &client,
                             draft_sender(&part->intake.draft), rcpt, &words);
    }
    if (reply.code != 0) {
        refuse_rcpt(s, rcpt, &reply, buf_cstr(words.rule));
        return SERVER_ACCEPT;
    }
    if (!receive_has_memory(s->all, s->settings, &s->place, ADDRESS_MAX) ||
        !draft_add_rcpt(&part->intake.draft, &(struct wire_rcpt){.address = rcpt},
                        verdict.ignores_case)) {
        return NO_MEMORY;
    }
    part->rcpts = draft_rcpts(&part->intake.draft);
    part->utf8 |= !address_is_ascii(rcpt);
    return SERVER_ACCEPT;
}

struct server_reply inject_judge_sender(struct inject_session *s, struct slice sender)
{
    if (may_send(s, sender)) {
        return SERVER_ACCEPT;
    }
    buf_clear(&s->error);
    (void)buf_addf(&s->error, "<%.*s>: Sender address rejected: not owned by token %s",
                   SLICE_ARGS(sender), s->grant->name); /* fits */
    return (struct server_reply){553, "5.7.1", buf_slice(&s->error)};
}

struct server_reply inject_envelope_of_body(void *arg, struct slice header)
{
    struct inject_part *part = arg;
    struct inject_session *s = part->s;
    struct server_reply reply;
    struct slice rest, rcpt;

    buf_clear(&s->error);
    if (!http_envelope_complete(&s->envelope, header, &s->error)) {
        return (struct server_reply){501, "5.1.0", buf_slice(&s->error)};
    }
    reply = inject_judge_sender(s, buf_slice(&s->envelope.sender));
    if (reply.code == 0 &&
        !draft_begin(&part->intake.draft, buf_slice(&s->envelope.sender), slice_of(NULL, 0))) {
        reply = NO_MEMORY;
    }
    part->utf8 = !address_is_ascii(buf_slice(&s->envelope.sender));
    rest = buf_slice(&s->envelope.rcpts);
    while (reply.code == 0 && http_envelope_next(&rest, &rcpt)) {
        reply = take_rcpt(part, rcpt);
    }
    return reply;
}

struct server_reply inject_part_set_envelope(struct inject_part *part)
{
    struct inject_session *s = part->s;
    struct server_reply reply = SERVER_ACCEPT;
    struct slice rcpt;
    size_t at = 0;

    if (!draft_begin(&part->intake.draft, inject_mail_sender(s->mail), slice_of(NULL, 0))) {
        return NO_MEMORY;
    }
    part->utf8 = !address_is_ascii(inject_mail_sender(s->mail));
    while (reply.code == 0 && inject_mail_next_rcpt(s->mail, part->message, &at, &rcpt)) {
        reply = take_rcpt(part, rcpt);
    }
    return reply;
}

/* Accepts: the envelope was set before. */
struct server_reply inject_envelope_of_mail(void *arg, struct slice header)
{
    (void)arg;
    (void)header;
    return SERVER_ACCEPT;
}

struct inject_part *inject_part_new(struct inject_session *s, size_t message,
                                    intake_envelope *envelope)
{
    struct inject_part *part = mem_new(sizeof *part);

    part->s = s;
    part->message = message;
    LIST_INSERT_HEAD(&s->parts, part, next);
    s->part_count++;
    intake_begin(&part->intake, s->settings, s->all->role->conf, s->all->rules, &s->all->budget,
                 envelope, part);
    return part;
}

/* Returns the Received: field with a placeholder for the queue id. */
static struct slice make_trace(struct inject_part *part)
{
    struct inject_session *s = part->s;
    struct receive_sessions *all = s->all;
    int zone = clock_zone(s->arrived) / 60;
    struct buf tls;
    struct header_trace trace = {
        .helo = slice_string(s->ip),
        .client_name = slice_string(s->name),
        .client_ip = slice_string(s->ip),
        .protocol = inject_protocol(s),
        .hostname = slice_string(s->settings->hostname),
        .recipient = draft_rcpts(&part->intake.draft) == 1 ? draft_first_rcpt(&part->intake.draft)
                                                           : SLICE(""),
        .time = s->arrived,
        .utc_offset_minutes = zone,
    };
    buf_init(&tls, 1000);
    if (stream_tls(s->stream) != NULL) {
        tls_describe(stream_tls(s->stream), &tls);
        trace.tls = buf_slice(&tls);
    }
    buf_clear(&all->trace);
    buf_clear(&all->trace_rest);
    (void)buf_add(&all->trace,
                  buf_slice(&part->intake.arrival.ruling.prepend)); /* fits, or fails below */
    CHECK(header_received(&trace, &all->trace, &all->trace_rest));  /* all parts have limits */
    (void)buf_add(&all->trace, SLICE("\1"));
    (void)buf_add(&all->trace, buf_slice(&all->trace_rest));
    CHECK(!all->trace.failed);
    buf_fini(&tls);
    return buf_slice(&all->trace);
}

/* Has each recipient of the call its own message? */
static bool is_divided(const struct inject_session *s)
{
    return s->mail != NULL && inject_mail_is_divided(s->mail);
}

/* Submits a complete message with at least one recipient. All mail by HTTP passes here. */
static void submit_injected(struct inject_part *part)
{
    struct inject_session *s = part->s;
    const struct conf *conf = s->all->role->conf;
    char class_room[CLASS_NAME_MAX], login[TOKEN_NAME_MAX + 200],
        send_room[RECEIVE_SEND_CLIENT_MAX], key[WIRE_KEY_MAX];
    struct draft *draft = &part->intake.draft;
    struct classified class =
        classify_end(&part->intake.classify, conf, s->grant->class_name[0] == '\0',
                     slice_string(s->grant->class_name), s->origin->url, s->text, class_room);
    struct wire_rcpt *rcpts = draft_envelope(draft);
    struct wire_submit m = {
        .token = ++s->all->last_token,
        .flags = intake_flags(&part->intake) | (part->utf8 != 0 ? (unsigned)ENVELOPE_SMTPUTF8 : 0),
        .arrived = s->arrived,
        .client = slice_string(s->text),
        .pid = (uint32_t)getpid(),
        .origin = slice_string(s->origin->url),
        .class_name = class.name,
        .class_source = class.source,
        .trace = make_trace(part),
        .sender = draft_sender(draft),
        .hold = arrival_hold(&part->intake.arrival),
        .rcpt_count = draft_rcpts(draft),
        .send_rcpts = part->rcpts,
    };
    struct server_reply reply = arrival_envelope(&part->intake.arrival, conf, &m.sender, &rcpts,
                                                 &m.rcpt_count, WIRE_RCPTS_MAX);

    if (reply.code != 0) {
        mem_free(rcpts);
        inject_part_refuse(part, &reply);
        return;
    }
    m.rcpts = rcpts;
    m.rules = arrival_rules(&part->intake.arrival);
    (void)snprintf(login, sizeof login, "sasl_method=TOKEN, sasl_username=%s%s%s", s->grant->name,
                   part->slot != NULL ? ", milter_id=" : "",
                   part->slot != NULL ? filters_id(part->slot->filters) : ""); /* fits */
    m.login = slice_string(login);
    if (s->key[0] != '\0') {
        (void)snprintf(key, sizeof key, "%s %s", s->grant->name, s->key);
        m.key = slice_string(key); /* fits */
        m.key_sum = slice_of(&s->sum_bytes, sizeof s->sum_bytes);
        m.key_part = is_divided(s) ? (uint32_t)part->message + 1 : 0;
    }
    m.send_client = receive_send_client(conf, s->address, s->exempt, send_room);
    m.send_login = receive_send_login(conf, s->grant->name);
    if (part->slot != NULL) {
        m.flags |= filters_flags(part->slot->filters);
        m.hold = m.hold.len > 0 ? m.hold : filters_hold(part->slot->filters);
    }
    part->token = m.token;
    HASH_ADD(hh, s->inject->parts, token, sizeof part->token, part);
    draft_submit(draft, s->all->queue, &m);
    mem_free(rcpts);
    if (part->slot != NULL) {
        free_slot(part);
    }
}

/* Returns the recipient of a message with its own text; ptr NULL: the message is for all
 * recipients. */
static struct slice only_rcpt(const struct inject_part *part)
{
    struct slice rcpt = slice_of(NULL, 0);
    size_t at = 0;

    if (is_divided(part->s)) {
        (void)inject_mail_next_rcpt(part->s->mail, part->message, &at, &rcpt);
    }
    return rcpt;
}

void inject_part_refuse(struct inject_part *part, const struct server_reply *reply)
{
    struct inject_session *s = part->s;
    struct slice rcpt = only_rcpt(part);

    log_rules(part, "NOQUEUE");
    refuse_rcpt(s, rcpt, reply, "");
    inject_part_free(part);
}

void inject_part_accept(struct inject_part *part, struct slice id, bool repeated)
{
    struct inject_session *s = part->s;
    char id_text[WIRE_ID_MAX + 1];

    (void)snprintf(id_text, sizeof id_text, "%.*s", SLICE_ARGS(id)); /* fits */
    log_rules(part, id.len > 0 ? id_text : "NOQUEUE");
    inject_answer_queued(&s->answer, id, only_rcpt(part), part->rcpts, repeated);
    inject_part_free(part);
}

/* Submits a message that the filters have passed, if there is room. */
static void hand_over(struct inject_part *part)
{
    struct inject_session *s = part->s;
    struct server_reply reply = receive_room_for(s->all, s->settings, &s->place, 0);

    if (reply.code != 0) {
        inject_part_refuse(part, &reply);
    } else {
        submit_injected(part);
    }
}

static void filtered(struct inject_part *part)
{
    const struct filters_answer *answer = filters_answer(part->slot->filters);
    struct server_reply reply = {answer->code, answer->status, slice_string(answer->text)};

    part->filtering = false;
    switch (answer->result) {
    case FILTERS_PASS:
        hand_over(part);
        return;
    case FILTERS_REFUSE:
        inject_part_refuse(part, &reply);
        return;
    case FILTERS_DISCARD:
        log_info("NOQUEUE: milter-discard: INJECT from %s: milter_id=%s", part->s->text,
                 filters_id(part->slot->filters));
        inject_part_accept(part, SLICE(""), false);
        return;
    }
}

static void on_filters(void *arg, struct filters *f)
{
    struct inject_slot *slot = arg;
    struct inject_session *s = slot->s;

    (void)f;
    filtered(slot->part);
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    inject_call_go_on(s);
    inject_drive(s);
}

struct inject_slot *inject_find_slot(struct inject_session *s)
{
    for (size_t i = 0; i < INJECT_FILTERED; i++) {
        if (s->slots[i].part == NULL) {
            return &s->slots[i];
        }
    }
    return NULL;
}

/* Passes the message to the filters, like mail of `sendmail`. */
static void ask_filters(struct inject_part *part)
{
    static const struct filters_client local = {
        .name = {"localhost", 9}, .ip = {"127.0.0.1", 9}, .family = 4};
    struct inject_session *s = part->s;
    struct inject_slot *slot = inject_find_slot(s);

    CHECK(slot != NULL); /* checked before the message was made */
    part->slot = slot;
    slot->s = s;
    slot->part = part;
    if (slot->filters == NULL) {
        slot->filters = filters_new(&s->all->hub, s->settings->filters_apart, on_filters, slot);
    }
    part->filtering = true;
    if (filters_whole(slot->filters, &local, &part->intake.draft)) {
        filtered(part);
    }
}

void inject_part_end(struct inject_part *part, struct server_reply reply)
{
    struct inject_session *s = part->s;

    if (reply.code == 0 && (part->rcpts > 0 || s->mail == NULL)) {
        reply = intake_finish(&part->intake, s->text);
    }
    if (reply.code != 0) {
        inject_part_refuse(part, &reply);
    } else if (part->rcpts == 0) {
        inject_part_free(part); /* all its recipients were refused */
    } else if (part->intake.arrival.ruling.discard) {
        inject_part_accept(part, SLICE(""), false);
    } else if (s->settings->filters_apart != NULL) {
        ask_filters(part);
    } else {
        hand_over(part);
    }
}
