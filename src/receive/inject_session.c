/*
 * Phases of a session:
 *
 *   HANDSHAKE  TLS, on a listener that begins with it
 *   HEAD       a request is awaited, or its head is coming in
 *   TOKEN      the auth process looks at the token of the request
 *   BODY       the body is coming in
 *   WORK       messages are made, and the queue process has some of them
 *   DELAYED    mail comes faster than it enters the queue: the answer waits
 *   ANSWER     the answer is going out
 *   CLOSING    likewise, and it is the last
 *
 *   HANDSHAKE --> HEAD --> TOKEN --> BODY --> WORK --> DELAYED --> ANSWER --> HEAD
 *                   \         \        \        \----------------^   \
 *                    +---------+--------+------------------------> CLOSING --> freed
 *
 * A client is waited for in HEAD, BODY, ANSWER, CLOSING and HANDSHAKE, where it may lose its place
 * to another. So it may in TOKEN: who guesses tokens holds no place while the answers are held
 * back. Functions change the phase and what belongs to it; drive() alone goes on from there,
 * and it and those functions that say so may free the session.
 */
#include "inject_session.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "arrival.h"
#include "check.h"
#include "clock.h"
#include "filters.h"
#include "hash.h"
#include "heap.h"
#include "header.h"
#include "http.h"
#include "http_envelope.h"
#include "inject_answer.h"
#include "inject_mail.h"
#include "inject_message.h"
#include "intake.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "receive_policy.h"
#include "receive_shared.h"
#include "stream.h"
#include "token_list.h"
#include "verifier_list.h"

#define SUM_BYTES 32 /* SHA-256 */
/* When a client may come again, where nothing says it better (a limit of what may be sent does):
 * others' mail has to go first, which takes seconds; a process has to start, or an operator to act.
 */
#define BUSY_RETRY_S 5
#define GONE_RETRY_S 10
/* An answer besides the lists of recipients, and an element of these without address and text. */
#define ANSWER_EXTRA   65536u
#define ANSWER_ELEMENT 64u
/* Memory of a document that has been read, as a multiple of its size. */
#define DOCUMENT_FACTOR 16u

/* Messages of a call are made for so long in one turn of the loop, and recipients read, of which so
 * many between two looks at the clock. */
#define TURN_US       (5 * US_PER_MS)
#define RCPTS_AT_ONCE 20u
/* Of a message so many bytes are made between two looks at the clock. */
#define BYTES_AT_ONCE 65536u

#define NO_MEMORY                                                                                  \
    ((struct server_reply){452, "4.3.1", SLICE("Insufficient memory, try again later")})
#define NO_DOCUMENT_MEMORY "4.3.1 Insufficient memory, try again later (smtpd_memory_limit)"
#define NO_QUEUE                                                                                   \
    ((struct server_reply){451, "4.3.0", SLICE("Queue is not available, try again later")})

_Static_assert(SUM_BYTES == TOKEN_HASH && SUM_BYTES == WIRE_KEY_SUM, "all are SHA-256");
_Static_assert(TOKEN_NAME_MAX + INJECT_KEY_MAX + 2 <= WIRE_KEY_MAX, "a key fits");

enum inject_phase {
    INJECT_HANDSHAKE,
    INJECT_HEAD,
    INJECT_TOKEN,
    INJECT_BODY,
    INJECT_WORK,
    INJECT_DELAYED,
    INJECT_ANSWER,
    INJECT_CLOSING,
};

enum body_kind { BODY_MESSAGE, BODY_JSON };

/* The token that the client has proven. */
struct inject_grant {
    uint8_t hash[SUM_BYTES]; /* of the token, to know it again */
    uint64_t generation;     /* of the configuration: a reload may have taken it away */
    char name[TOKEN_NAME_MAX + 1];
    unsigned rights;
    char *class_name; /* owned, as the next */
    char *senders;
};

/* The filters of a message at a time; their connections last as long as the session. */
struct inject_slot {
    struct inject_session *s;
    struct inject_part *part; /* NULL: it is free */
    struct filters *filters;  /* owned; NULL: not needed yet */
};

/* One message of a call. */
struct inject_part {
    struct inject_session *s;
    uint64_t token;    /* of the submission */
    UT_hash_handle hh; /* in inject_sessions, by token */
    LIST_ENTRY(inject_part) next;
    struct inject_slot *slot;    /* filters look at it, or have; NULL: they do not */
    size_t message;              /* its number in the call */
    struct inject_message *text; /* owned; while it is made */
    uint32_t rcpts;
    bool filtering; /* filters have a question */
    unsigned utf8;  /* an address is not ASCII */
    struct intake intake;
};

struct inject_session {
    struct inject_sessions *inject;
    struct receive_sessions *all; /* of `inject` */
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    LIST_ENTRY(inject_session) next;
    uint64_t token;    /* of the question in TOKEN, else 0 */
    UT_hash_handle hh; /* by token */
    enum inject_phase phase;
    struct http http;
    struct buf out;
    struct mono head_until, session_until, request_until;
    struct mono body_paid; /* the body so far is worth the time until then */
    bool ended;            /* nothing more comes from the client */
    bool broken;           /* and nothing reaches it */
    bool logged;           /* it has sent mail, or tried to: its end is logged */
    bool dropped;          /* it has lost its place */
    bool delivered;
    uint64_t calls, good_calls;
    struct inject_grant *grant; /* owned; NULL: no token was proven yet */

    /* the request */
    enum body_kind kind;
    struct http_envelope envelope;
    uint8_t sum_bytes[WIRE_KEY_SUM]; /* of `sum`, when all has come */
    EVP_MD_CTX *sum;            /* over all that makes the call what it is; NULL: it has no key */
    struct json_document json;  /* as it comes in; `mail` and `unread` refer to it */
    struct inject_mail *unread; /* the mail of it while it is read */
    bool short_of_memory;       /* there is less for reading it than it may take */
    struct draft account;       /* memory of the document */
    uint64_t held;              /* of the request, in all */
    struct inject_mail *mail;
    size_t next_message;         /* of mail, that is made next */
    struct inject_part *making;  /* that is being made; NULL: none */
    struct draft making_account; /* its memory */
    struct event *again; /* goes on making messages in the next turn; NULL: not needed yet */
    LIST_HEAD(, inject_part) parts;
    size_t part_count;
    struct inject_slot slots[INJECT_FILTERED];
    struct inject_part *reading; /* whose body comes in: of BODY_MESSAGE */
    struct inject_answer answer;
    char key[INJECT_KEY_MAX + 1]; /* empty: none */
    bool key_refused;             /* it was the key of another call */
    uint32_t retry_s;             /* seconds until what was refused may be accepted; 0: not known */
    unsigned refusals_logged, refusals_unlogged;
    struct buf error;
    struct wall arrived;

    unsigned char address[16];
    bool exempt;      /* from limits on sending */
    const char *name; /* "localhost" or "unknown" */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
};

static void drive(struct inject_session *s);

/* ---- the log -------------------------------------------------------------------------------- */

static void log_connect(struct inject_session *s)
{
    if (!s->logged) {
        s->logged = true;
        log_info("connect from %s", s->text);
    }
}

static const char *protocol(const struct inject_session *s)
{
    return s->origin->tls_first ? "HTTPS" : "HTTP";
}

/* `status` of HTTP, or a code of SMTP with its status in front of the text. `rcpt` with ptr NULL:
 * none to name; `rule` empty: none. */
static void log_refusal(struct inject_session *s, unsigned status, const char *text,
                        struct slice rcpt, const char *rule)
{
    bool to = rcpt.ptr != NULL;
    struct slice sender =
        s->mail != NULL ? inject_mail_sender(s->mail) : buf_slice(&s->envelope.sender);

    if (!receive_may_log(s->all, RECEIVE_QUOTA_SESSIONS)) {
        return;
    }
    log_info(
        "NOQUEUE: reject: INJECT from %s: %u %s; from=<%.*s>%s%.*s%s proto=%s token=<%s>%s%s%s",
        s->text, status, text, SLICE_ARGS(sender), to ? " to=<" : "", to ? (int)rcpt.len : 0,
        to ? rcpt.ptr : "", to ? ">" : "", protocol(s), s->grant != NULL ? s->grant->name : "",
        rule[0] != '\0' ? " (" : "", rule, rule[0] != '\0' ? ")" : "");
}

/* What rules did to a message, behind its queue id or NOQUEUE. */
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
                   SLICE_ARGS(rcpt), protocol(s), s->grant->name); /* fits */
    arrival_log(&part->intake.arrival, id, s->text, buf_cstr(envelope));
}

/* ---- the life of a session ------------------------------------------------------------------ */

/* The filters are done with a message, or it is given up while they look at it. */
static void free_slot(struct inject_part *part)
{
    struct inject_slot *slot = part->slot;

    if (part->token == 0 && part->filtering) { /* they are not asked anything any more */
        filters_free(slot->filters);
        slot->filters = NULL;
    }
    slot->part = NULL;
    part->slot = NULL;
}

/* It is made, or given up. */
static void stop_making(struct inject_part *part)
{
    if (part->s->making == part) {
        part->s->making = NULL;
        draft_drop(&part->s->making_account);
        inject_message_free(part->text);
        part->text = NULL;
    }
}

static void part_free(struct inject_part *part)
{
    if (part->token != 0) {
        HASH_DEL(part->s->inject->parts, part);
    }
    if (part->slot != NULL) {
        free_slot(part);
    }
    stop_making(part);
    LIST_REMOVE(part, next);
    part->s->part_count--;
    intake_drop(&part->intake);
    mem_free(part);
}

static void forget_request(struct inject_session *s)
{
    while (!LIST_EMPTY(&s->parts)) {
        part_free(LIST_FIRST(&s->parts));
    }
    s->reading = NULL;
    inject_mail_free(s->mail);
    inject_mail_free(s->unread);
    s->mail = s->unread = NULL;
    EVP_MD_CTX_free(s->sum);
    s->sum = NULL;
    json_document_fini(&s->json);
    draft_drop(&s->account);
    s->held = 0;
    http_envelope_fini(&s->envelope);
    inject_answer_fini(&s->answer);
    s->key[0] = '\0';
    s->key_refused = false;
    s->retry_s = 0;
}

static void forget_question(struct inject_session *s)
{
    if (s->token != 0) {
        HASH_DEL(s->inject->asked, s);
        s->token = 0;
    }
}

static void grant_free(struct inject_grant *grant)
{
    if (grant != NULL) {
        mem_free(grant->class_name);
        mem_free(grant->senders);
        mem_free(grant);
    }
}

static void leave_place(struct inject_session *s)
{
    struct mono now = clock_mono();
    bool in_vain = !s->delivered &&
                   client_pace_waited_us(&s->place.pace, now) >= s->settings->admission.patience_us;

    admission_leave(&s->all->admission, &s->place, in_vain, now);
}

/* The stream has been freed or given away. Frees the session, like the next. */
static void session_free(struct inject_session *s)
{
    struct receive_sessions *all = s->all;

    if (s->logged) {
        log_info("disconnect from %s inject=%llu/%llu", s->text, (unsigned long long)s->good_calls,
                 (unsigned long long)s->calls);
    }
    if (!s->dropped) {
        leave_place(s);
    }
    if (s->token != 0 && all->auth != NULL) {
        wire_put_number(all->auth, WIRE_AUTH_END, s->token);
    }
    forget_question(s);
    forget_request(s);
    grant_free(s->grant);
    http_fini(&s->http);
    buf_fini(&s->out);
    buf_fini(&s->error);
    if (s->again != NULL) {
        event_free(s->again);
    }
    for (size_t i = 0; i < INJECT_FILTERED; i++) {
        filters_free(s->slots[i].filters);
    }
    if (s->inject->walked == s) {
        s->inject->walked = LIST_NEXT(s, next);
    }
    LIST_REMOVE(s, next);
    all->count--;
    receive_settings_unref(s->settings);
    receive_origin_unref(s->origin);
    mem_free(s);
    if (all->role->stopping && all->count == 0) {
        role_exit(all->role, 0);
    }
}

static void session_close(struct inject_session *s)
{
    if (s->broken) {
        stream_free(s->stream);
    } else {
        stream_finish(s->stream); /* the client may still be sending, and is to read the answer */
    }
    session_free(s);
}

/* ---- waiting for the client, and not ------------------------------------------------------- */

static void wait_for_client(struct inject_session *s, enum inject_phase phase)
{
    s->phase = phase;
    client_pace_wait(&s->place.pace, clock_mono());
    stream_pause(s->stream, phase == INJECT_ANSWER || phase == INJECT_CLOSING);
}

static void wait_for_us(struct inject_session *s, enum inject_phase phase, int64_t longest_us)
{
    s->phase = phase;
    client_pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), longest_us));
}

static void await_head(struct inject_session *s)
{
    wait_for_client(s, INJECT_HEAD);
    s->head_until = mono_after(clock_mono(), s->settings->smtp.limits.command_us);
    stream_set_deadline(s->stream, mono_min(s->head_until, s->session_until));
}

/* The body is worth a time by its bytes; the client may be in debt for content_us. */
static void pay_for_body(struct inject_session *s, size_t bytes)
{
    const struct server_limits *limits = &s->settings->smtp.limits;
    struct mono now = clock_mono();

    if (limits->content_rate_min == 0) {
        s->body_paid = bytes > 0 ? now : s->body_paid;
    } else {
        int64_t worth = (int64_t)bytes * US_PER_S / (int64_t)limits->content_rate_min;

        s->body_paid = mono_min(now, mono_after(s->body_paid, worth));
    }
    stream_set_deadline(s->stream,
                        mono_min(mono_after(s->body_paid, limits->content_us), s->request_until));
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Charge memory of the answer. False: there is none. */
static bool charge_answer(struct inject_session *s, uint64_t bytes)
{
    bool good = receive_has_memory(s->all, s->settings, &s->place, bytes) &&
                draft_reserve(&s->account, bytes);

    s->held = s->account.charged;
    return good;
}

/* Answer the call with this document. What of the request has not been read makes the answer the
 * last one. */
static void answer_with(struct inject_session *s, unsigned status, struct slice error,
                        struct slice fields)
{
    bool keep = s->http.state == HTTP_COMPLETE && s->http.keep_alive && !s->ended &&
                !s->all->role->stopping;
    struct buf body;

    buf_init(&body, 2 * (size_t)INJECT_ANSWER_MAX + ANSWER_EXTRA);
    inject_answer_put(&s->answer, error, &body);
    forget_request(s);
    CHECK(http_put_answer(&s->out, status, "application/json", buf_len(&body), keep, fields));
    CHECK(buf_add(&s->out, buf_slice(&body)));
    buf_fini(&body);
    if (buf_len(&s->out) > ANSWER_EXTRA) {
        (void)charge_answer(s, buf_len(&s->out)); /* what its parts had has just been given back */
    }
    wait_for_client(s, keep ? INJECT_ANSWER : INJECT_CLOSING);
}

/* Refuse the request: a line in the log, and `error` for the client. */
static void refuse(struct inject_session *s, unsigned status, const char *error)
{
    char fields[64] = "";

    log_refusal(s, status, error, slice_of(NULL, 0), "");
    if (status == 401) {
        (void)snprintf(fields, sizeof fields, "WWW-Authenticate: Bearer\r\n");
    } else if (status == 405) {
        (void)snprintf(fields, sizeof fields, "Allow: POST\r\n");
    } else if (status == 429 || status == 503 || status == 507) {
        (void)snprintf(fields, sizeof fields, "Retry-After: %d\r\n",
                       status == 429 ? BUSY_RETRY_S : GONE_RETRY_S);
    }
    answer_with(s, status, slice_string(error), slice_string(fields));
}

/* The status that says in HTTP what a reply says in SMTP. */
static unsigned status_of(const struct server_reply *reply)
{
    switch (reply->code) {
    case 452: /* memory is the clients' doing, space is not */
        return slice_starts(reply->text, SLICE("Insufficient memory")) ? 429 : 507;
    case 552:
        return 413;
    default:
        return reply->code / 100 == 4 ? 503 : 422;
    }
}

static void refuse_as(struct inject_session *s, const struct server_reply *reply)
{
    buf_clear(&s->error);
    (void)buf_addf(&s->error, "%s %.*s", reply->status, SLICE_ARGS(reply->text)); /* fits */
    refuse(s, status_of(reply), buf_cstr(&s->error));
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool may_send(const struct inject_session *s, struct slice sender)
{
    struct verifier user = {.senders = slice_string(s->grant->senders)};

    return verifier_may_send(&user, sender);
}

/* A recipient of the call is refused. Its text is left out when there is no memory for it. */
static void refuse_rcpt(struct inject_session *s, struct slice rcpt,
                        const struct server_reply *reply, const char *rule)
{
    struct slice text = reply->text;
    struct buf line;

    if (!charge_answer(s, ANSWER_ELEMENT + rcpt.len + text.len)) {
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
        log_refusal(s, reply->code, buf_cstr(&line), rcpt, rule);
    }
    buf_fini(&line);
}

/* May the call send to this recipient, and if so put it into the message. */
static struct server_reply take_rcpt(struct inject_part *part, struct slice rcpt)
{
    struct inject_session *s = part->s;
    const struct arrival_client client = {.ip = s->address, .text = s->text};
    struct receive_verdict verdict = {.text = &s->all->text};
    struct arrival_words words = {.text = &s->all->text, .rule = &s->all->rule};
    const struct conf *conf = s->all->role->conf;
    struct server_reply reply;

    buf_clear(words.rule);
    reply = receive_judge(conf, true, rcpt, &verdict); /* the token lets it relay */
    if (reply.code == 0) {
        reply = arrival_rcpt(&part->intake.arrival, conf, &client,
                             draft_sender(&part->intake.draft), rcpt, &words);
    }
    if (reply.code != 0) {
        refuse_rcpt(s, rcpt, &reply, buf_cstr(words.rule));
        return SERVER_ACCEPT;
    }
    if (!receive_has_memory(s->all, s->settings, &s->place, ADDRESS_MAX) ||
        !draft_add_rcpt(&part->intake.draft, rcpt, slice_of(NULL, 0), NOTIFY_DEFAULT)) {
        return NO_MEMORY;
    }
    part->rcpts++;
    part->utf8 |= !address_is_ascii(rcpt);
    return SERVER_ACCEPT;
}

static struct server_reply judge_sender(struct inject_session *s, struct slice sender)
{
    if (may_send(s, sender)) {
        return SERVER_ACCEPT;
    }
    buf_clear(&s->error);
    (void)buf_addf(&s->error, "<%.*s>: Sender address rejected: not owned by token %s",
                   SLICE_ARGS(sender), s->grant->name); /* fits */
    return (struct server_reply){553, "5.7.1", buf_slice(&s->error)};
}

/* The envelope of the message in the body: the header section has come. */
static struct server_reply envelope_of_body(void *arg, struct slice header)
{
    struct inject_part *part = arg;
    struct inject_session *s = part->s;
    struct server_reply reply;
    struct slice rest, rcpt;

    buf_clear(&s->error);
    if (!http_envelope_complete(&s->envelope, header, &s->error)) {
        return (struct server_reply){501, "5.1.0", buf_slice(&s->error)};
    }
    reply = judge_sender(s, buf_slice(&s->envelope.sender));
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

/* The same of a message that a document asks for. */
static struct server_reply set_envelope(struct inject_part *part)
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

/* It has been set. */
static struct server_reply envelope_of_mail(void *arg, struct slice header)
{
    (void)arg;
    (void)header;
    return SERVER_ACCEPT;
}

static struct inject_part *part_new(struct inject_session *s, size_t message,
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

/* The Received: field with a hole for the queue id. */
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
        .protocol = protocol(s),
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
                  buf_slice(&part->intake.arrival.ruling.prepend)); /* fits, or is seen below */
    CHECK(header_received(&trace, &all->trace, &all->trace_rest));  /* all parts have limits */
    (void)buf_add(&all->trace, SLICE("\1"));
    (void)buf_add(&all->trace, buf_slice(&all->trace_rest));
    CHECK(!all->trace.failed);
    buf_fini(&tls);
    return buf_slice(&all->trace);
}

/* Has each recipient of the call a message of its own? */
static bool is_divided(const struct inject_session *s)
{
    return s->mail != NULL && inject_mail_is_divided(s->mail);
}

/* Hand a message, complete and with at least one recipient, to the queue process. All mail that
 * comes by HTTP goes through here. */
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
        .hold = arrival_hold(&part->intake.arrival),
        .rules = arrival_rules(&part->intake.arrival),
        .rcpt_count = draft_rcpts(draft),
        .send_rcpts = part->rcpts,
    };

    arrival_envelope(&part->intake.arrival, conf, draft_sender(draft), &rcpts, &m.rcpt_count,
                     WIRE_RCPTS_MAX);
    m.rcpts = rcpts;
    (void)snprintf(login, sizeof login, "sasl_method=TOKEN, sasl_username=%s%s%s", s->grant->name,
                   part->slot != NULL ? ", milter_id=" : "",
                   part->slot != NULL ? filters_id(part->slot->filters) : ""); /* fits */
    m.login = slice_string(login);
    if (s->key[0] != '\0') {
        (void)snprintf(key, sizeof key, "%s %s", s->grant->name, s->key);
        m.key = slice_string(key); /* fits */
        m.key_sum = slice_of(s->sum_bytes, sizeof s->sum_bytes);
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

/* The recipient of a message of its own; ptr NULL: the message is for all of the call. */
static struct slice only_rcpt(const struct inject_part *part)
{
    struct slice rcpt = slice_of(NULL, 0);
    size_t at = 0;

    if (is_divided(part->s)) {
        (void)inject_mail_next_rcpt(part->s->mail, part->message, &at, &rcpt);
    }
    return rcpt;
}

/* A message can't be sent, or the queue process has refused it. Frees the part. */
static void refuse_part(struct inject_part *part, const struct server_reply *reply)
{
    struct inject_session *s = part->s;
    struct slice rcpt = only_rcpt(part);

    log_rules(part, "NOQUEUE");
    refuse_rcpt(s, rcpt, reply, "");
    part_free(part);
}

/* A message is stored, or a rule wants it gone and the client is not to know (no id). Frees the
 * part. */
static void accept_part(struct inject_part *part, struct slice id, bool repeated)
{
    struct inject_session *s = part->s;
    char id_text[WIRE_ID_MAX + 1];

    (void)snprintf(id_text, sizeof id_text, "%.*s", SLICE_ARGS(id)); /* fits */
    log_rules(part, id.len > 0 ? id_text : "NOQUEUE");
    inject_answer_queued(&s->answer, id, only_rcpt(part), part->rcpts, repeated);
    part_free(part);
}

/* Filters have had their say, or there are none. */
static void hand_over(struct inject_part *part)
{
    struct inject_session *s = part->s;
    struct server_reply reply = receive_room_for(s->all, s->settings, &s->place, 0);

    if (reply.code != 0) {
        refuse_part(part, &reply);
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
        refuse_part(part, &reply);
        return;
    case FILTERS_DISCARD:
        log_info("NOQUEUE: milter-discard: INJECT from %s: milter_id=%s", part->s->text,
                 filters_id(part->slot->filters));
        accept_part(part, SLICE(""), false);
        return;
    }
}

static void go_on_with_call(struct inject_session *s);

static void on_filters(void *arg, struct filters *f)
{
    struct inject_slot *slot = arg;
    struct inject_session *s = slot->s;

    (void)f;
    filtered(slot->part);
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    go_on_with_call(s);
    drive(s);
}

/* A place for one more message that filters look at; NULL: there is none. */
static struct inject_slot *find_slot(struct inject_session *s)
{
    for (size_t i = 0; i < INJECT_FILTERED; i++) {
        if (s->slots[i].part == NULL) {
            return &s->slots[i];
        }
    }
    return NULL;
}

/* Ask the filters, as they are asked about mail of `sendmail'. */
static void ask_filters(struct inject_part *part)
{
    static const struct filters_client local = {
        .name = {"localhost", 9}, .ip = {"127.0.0.1", 9}, .family = 4};
    struct inject_session *s = part->s;
    struct inject_slot *slot = find_slot(s);

    CHECK(slot != NULL); /* else it was not made yet */
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

/* All of a message is in the draft, or that failed with `reply`. Takes the part. */
static void message_read(struct inject_part *part, struct server_reply reply)
{
    struct inject_session *s = part->s;

    if (reply.code == 0 && (part->rcpts > 0 || s->mail == NULL)) {
        reply = intake_finish(&part->intake, s->all->role->conf, s->text);
    }
    if (reply.code != 0) {
        refuse_part(part, &reply);
    } else if (part->rcpts == 0) {
        part_free(part); /* each of its recipients was refused */
    } else if (part->intake.arrival.ruling.discard) {
        accept_part(part, SLICE(""), false);
    } else if (s->settings->filters_apart != NULL) {
        ask_filters(part);
    } else {
        hand_over(part);
    }
}

/* ---- a call --------------------------------------------------------------------------------- */

/* All messages are decided. */
static void finish_call(struct inject_session *s)
{
    struct slice error = slice_of(NULL, 0), fields = error;
    unsigned status = 200;
    char retry[64];

    if (s->refusals_unlogged > 0 && receive_may_log(s->all, RECEIVE_QUOTA_SESSIONS)) {
        log_info("%u more recipients of %s were refused", s->refusals_unlogged, s->text);
    }
    if (s->answer.queued_count > 0) {
        s->good_calls++;
        s->delivered = true;
        admission_delivered(&s->place, clock_mono());
    } else if (s->answer.least_code / 100 == 4) {
        status = s->answer.busy ? 429 : 503;
        error = SLICE("nothing was queued; try again later");
        (void)snprintf(retry, sizeof retry, "Retry-After: %u\r\n",
                       s->retry_s > 0  ? s->retry_s
                       : status == 429 ? BUSY_RETRY_S
                                       : GONE_RETRY_S); /* fits */
        fields = slice_string(retry);
    } else {
        status = s->answer.least_code == 552 ? 413 : 422;
        error = s->key_refused ? SLICE("nothing was queued: Idempotency-Key was the key of another "
                                       "call, of another body, target or envelope")
                               : SLICE("nothing was queued: all was refused");
    }
    answer_with(s, status, error, fields);
}

/* Begin to make the next message of a document. */
static void begin_message(struct inject_session *s)
{
    struct inject_part *part = part_new(s, s->next_message++, envelope_of_mail);
    struct server_reply reply = set_envelope(part);

    if (reply.code != 0 || part->rcpts == 0) {
        message_read(part, reply);
        return;
    }
    part->text = inject_message_new(s->mail, part->message);
    s->making = part;
}

/* Make some more of it. */
static void go_on_with_message(struct inject_session *s)
{
    struct inject_part *part = s->making;
    struct server_reply reply = SERVER_ACCEPT;
    enum inject_message_result result;
    struct slice piece;
    uint64_t memory;

    result = inject_message_next(part->text, BYTES_AT_ONCE, &piece);
    memory = inject_message_memory(part->text);
    (void)receive_has_memory(s->all, s->settings, &s->place, memory + 2 * piece.len);
    if (result == INJECT_MESSAGE_TOO_LARGE) {
        reply = (struct server_reply){
            552, "5.3.4",
            SLICE("Message, or a field of 8192 bytes, exceeds fixed limit (message_size_limit)")};
    } else if (!draft_hold(&s->making_account, memory)) {
        reply = NO_MEMORY;
    } else {
        reply = intake_add(&part->intake, piece);
    }
    if (reply.code != 0 || result == INJECT_MESSAGE_END) {
        stop_making(part);
        message_read(part, reply);
    }
}

static void read_document(struct inject_session *s);

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct inject_session *s = arg;

    (void)fd;
    (void)what;
    if (s->phase != INJECT_WORK) {
        return;
    }
    if (s->unread != NULL) {
        read_document(s);
    } else {
        go_on_with_call(s);
    }
    drive(s);
}

/* Let other clients have a turn before more of the document is read, or more messages are made. */
static void go_on_later(struct inject_session *s)
{
    static const struct timeval now = {0};

    if (s->again == NULL) {
        s->again = evtimer_new(s->all->role->base, on_again, s);
        CHECK(s->again != NULL);
    }
    CHECK(event_add(s->again, &now) == 0);
}

/* Are there messages of the call that have not been made? */
static bool has_more(const struct inject_session *s)
{
    return s->mail != NULL && !s->key_refused && s->next_message < inject_mail_count(s->mail);
}

/* Has this turn lasted until then? A turn has one time, unless the clocks are read in it. */
static bool turn_is_over(struct mono until)
{
    clock_update();
    return mono_reached(until, clock_mono());
}

/* May one more be on its way? If not, an answer is awaited. */
static bool may_begin_message(struct inject_session *s)
{
    return s->part_count < INJECT_AHEAD &&
           (s->part_count == 0 || s->all->queue == NULL ||
            channel_waiting(s->all->queue) <= RECEIVE_WAITING_MAX / 4) &&
           (s->settings->filters_apart == NULL || find_slot(s) != NULL);
}

/* Make messages, as many as may be on their way; when all are decided the call is. */
static void go_on_with_call(struct inject_session *s)
{
    struct mono until = mono_after(clock_mono(), TURN_US);

    if (s->unread != NULL) {
        return; /* the next turn goes on */
    }
    while (s->making != NULL || has_more(s)) {
        if (s->making != NULL) {
            go_on_with_message(s);
        } else if (!may_begin_message(s)) {
            return; /* an answer goes on with it */
        } else {
            begin_message(s);
        }
        if ((s->making != NULL || has_more(s)) && turn_is_over(until)) {
            go_on_later(s);
            return;
        }
    }
    if (s->part_count > 0) {
        return;
    }
    if (s->all->flow.behind && s->settings->flow_delay_us > 0) {
        wait_for_us(s, INJECT_DELAYED, s->settings->flow_delay_us);
        return;
    }
    finish_call(s);
}

/* Charge the document that has been read, and an answer that accepts all of its recipients. */
static bool hold_document(struct inject_session *s)
{
    uint64_t answer = 0, messages = inject_mail_count(s->mail);

    if (inject_mail_is_divided(s->mail)) {
        answer = messages * ANSWER_ELEMENT + inject_mail_address_bytes(s->mail);
    }
    return charge_answer(s, inject_mail_memory(s->mail) + answer);
}

/* The document could not be read. */
static void refuse_document(struct inject_session *s, enum inject_mail_result result)
{
    if (result == INJECT_MAIL_TOO_LARGE && s->short_of_memory) {
        refuse(s, 429, NO_DOCUMENT_MEMORY);
    } else {
        refuse(s,
               result == INJECT_MAIL_NO_JSON ? 400
               : result == INJECT_MAIL_WRONG ? 422
                                             : 413,
               buf_cstr(&s->error));
    }
}

/* Read the document, or go on with that; when it is read, make its messages. */
static void read_document(struct inject_session *s)
{
    struct mono until = mono_after(clock_mono(), TURN_US);
    enum inject_mail_result result;
    struct server_reply reply;

    do {
        buf_clear(&s->error);
        result = inject_mail_read(s->unread, RCPTS_AT_ONCE, &s->error);
    } while (result == INJECT_MAIL_MORE && !turn_is_over(until));
    if (result == INJECT_MAIL_MORE) {
        go_on_later(s);
        return;
    }
    if (result != INJECT_MAIL_OK) {
        refuse_document(s, result);
        return;
    }
    s->mail = s->unread;
    s->unread = NULL;
    if (!hold_document(s)) {
        refuse(s, 429, NO_DOCUMENT_MEMORY);
        return;
    }
    reply = judge_sender(s, inject_mail_sender(s->mail));
    if (reply.code != 0) {
        refuse_as(s, &reply);
        return;
    }
    go_on_with_call(s);
}

static void begin_document(struct inject_session *s)
{
    struct inject_mail_limits limits = {.rcpts = s->settings->inject_rcpts,
                                        .message_bytes = s->settings->smtp.limits.message_bytes};
    uint64_t most = DOCUMENT_FACTOR * s->json.bytes + ANSWER_EXTRA, free_bytes;

    json_document_end(&s->json);
    (void)receive_has_memory(s->all, s->settings, &s->place, most);
    free_bytes = s->all->budget.max - s->all->budget.used;
    limits.memory = most < free_bytes ? most : free_bytes;
    s->short_of_memory = free_bytes < most;
    s->unread = inject_mail_new(&s->json, &limits);
    read_document(s);
}

/* The whole request has come. */
static void begin_work(struct inject_session *s)
{
    CHECK(s->sum == NULL || EVP_DigestFinal_ex(s->sum, s->sum_bytes, NULL) == 1);
    s->calls++;
    s->arrived = clock_wall();
    log_connect(s);
    wait_for_us(s, INJECT_WORK, s->settings->answer_us);
    s->next_message = 0;
    if (s->kind == BODY_MESSAGE) {
        struct inject_part *part = s->reading;

        s->reading = NULL;
        message_read(part, SERVER_ACCEPT);
        go_on_with_call(s);
    } else {
        begin_document(s);
    }
}

/* ---- a request ------------------------------------------------------------------------------ */

static bool sum_add(struct inject_session *s, struct slice bytes)
{
    return s->sum == NULL || bytes.len == 0 || EVP_DigestUpdate(s->sum, bytes.ptr, bytes.len) == 1;
}

/* Begin the sum over what makes the call what it is, with all that is not in the body. */
static void begin_sum(struct inject_session *s)
{
    static const struct slice names[] = {
        {"Content-Type", 12}, {"X-Sluice-From", 13}, {"X-Sluice-To", 11}};
    struct slice value;

    s->sum = EVP_MD_CTX_new();
    CHECK(s->sum != NULL && EVP_DigestInit_ex(s->sum, EVP_sha256(), NULL) == 1);
    CHECK(sum_add(s, s->http.target));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t n = 0; (value = http_field(&s->http, names[i], n)).ptr != NULL; n++) {
            CHECK(sum_add(s, SLICE("\n")));
            CHECK(sum_add(s, value));
        }
        CHECK(sum_add(s, SLICE("\n\n")));
    }
}

/* The body may come. */
static void begin_body(struct inject_session *s)
{
    struct server_reply reply = receive_room_for(s->all, s->settings, &s->place, s->http.length);

    if (reply.code != 0) {
        refuse_as(s, &reply);
        return;
    }
    http_envelope_init(&s->envelope, s->settings->inject_rcpts);
    inject_answer_init(&s->answer);
    inject_mail_document(&s->json, (size_t)s->settings->inject_json);
    s->refusals_logged = s->refusals_unlogged = 0;
    if (s->key[0] != '\0') {
        begin_sum(s);
    }
    buf_clear(&s->error);
    if (s->kind == BODY_MESSAGE && !http_envelope_read(&s->envelope, &s->http, &s->error)) {
        refuse(s, 400, buf_cstr(&s->error));
        return;
    }
    if (s->kind == BODY_MESSAGE) {
        s->reading = part_new(s, 0, envelope_of_body);
    }
    if (s->http.expects_continue) {
        (void)buf_add_string(&s->out, "HTTP/1.1 100 Continue\r\n\r\n");
        stream_flush(s->stream, &s->out);
    }
    wait_for_client(s, INJECT_BODY);
    s->body_paid = clock_mono();
    pay_for_body(s, 0);
}

/* Is this media type the one, whatever its parameters? */
static bool is_type(struct slice value, struct slice type)
{
    return slice_equal_nocase(slice_trim(slice_of(value.ptr, slice_find(value, ';'))), type);
}

/* The key of the call, if it has one. False: it is none. */
static bool read_key(struct inject_session *s)
{
    struct slice key = http_field(&s->http, SLICE("Idempotency-Key"), 0);

    s->key[0] = '\0';
    if (key.ptr == NULL) {
        return true;
    }
    if (http_field(&s->http, SLICE("Idempotency-Key"), 1).ptr != NULL || key.len == 0 ||
        key.len > INJECT_KEY_MAX) {
        return false;
    }
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] <= ' ' || key.ptr[i] > '~') {
            return false;
        }
    }
    memcpy(s->key, key.ptr, key.len);
    s->key[key.len] = '\0';
    return true;
}

/* What the head says, apart from the token. False: the request is refused. */
static bool judge_head(struct inject_session *s)
{
    const struct http *h = &s->http;
    struct slice type = http_field(h, SLICE("Content-Type"), 0);
    uint64_t limit;

    if (!slice_equal(slice_of(h->target.ptr, slice_find(h->target, '?')), SLICE("/v1/inject"))) {
        refuse(s, 404, "expected /v1/inject");
        return false;
    }
    if (!slice_equal(h->method, SLICE("POST"))) {
        refuse(s, 405, "expected POST");
        return false;
    }
    if (is_type(type, SLICE("message/rfc822"))) {
        s->kind = BODY_MESSAGE;
        limit = s->settings->smtp.limits.message_bytes;
    } else if (is_type(type, SLICE("application/json"))) {
        s->kind = BODY_JSON;
        limit = s->settings->inject_json;
    } else {
        refuse(s, 415, "expected Content-Type: message/rfc822 or application/json");
        return false;
    }
    if (!h->chunked && !h->has_length) {
        refuse(s, 411, "expected Content-Length or Transfer-Encoding: chunked");
        return false;
    }
    if (limit > 0 && h->length > limit) {
        refuse(s, 413,
               s->kind == BODY_JSON ? "the document is larger than inject_json_limit"
                                    : "the message is larger than message_size_limit");
        return false;
    }
    if (!read_key(s)) {
        refuse(s, 400, "Idempotency-Key: expected 1 to 128 printable ASCII characters, once");
        return false;
    }
    return true;
}

/* The client has a token; may it send? */
static void token_known(struct inject_session *s)
{
    if ((s->grant->rights & TOKEN_INJECT) == 0) {
        refuse(s, 403, "the token lacks the right inject");
        return;
    }
    begin_body(s);
}

static void hash_token(struct slice token, uint8_t ret_hash[SUM_BYTES])
{
    unsigned len = 0;

    CHECK(EVP_Digest(token.ptr, token.len, ret_hash, &len, EVP_sha256(), NULL) == 1);
    CHECK(len == SUM_BYTES);
}

/* The head of a request has come: ask for its token, unless it is the one of the request before. */
static void on_head(struct inject_session *s)
{
    static const struct slice bearer = {"Bearer ", 7};
    struct slice token = http_field(&s->http, SLICE("Authorization"), 0);
    uint8_t hash[SUM_BYTES];

    s->request_until = mono_after(clock_mono(), s->settings->smtp.limits.transaction_us);
    if (!judge_head(s)) {
        return;
    }
    if (!slice_starts_nocase(token, bearer)) {
        refuse(s, 401, "expected Authorization: Bearer TOKEN");
        return;
    }
    token = slice_trim(slice_skip(token, bearer.len));
    hash_token(token, hash);
    if (s->grant != NULL && s->grant->generation == s->all->role->conf_generation &&
        CRYPTO_memcmp(hash, s->grant->hash, sizeof hash) == 0) {
        token_known(s);
        return;
    }
    if (token.len > TOKEN_MAX) {
        refuse(s, 401, "this token is not known");
        return;
    }
    if (s->all->auth == NULL || channel_waiting(s->all->auth) > RECEIVE_WAITING_MAX) {
        refuse(s, 503, "tokens can't be checked at present, try again later");
        return;
    }
    s->token = ++s->all->last_token;
    HASH_ADD(hh, s->inject->asked, token, sizeof s->token, s);
    s->phase = INJECT_TOKEN; /* its time goes on */
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    wire_put_auth(s->all->auth, &(struct wire_auth){.login = s->token,
                                                    .mechanism = WIRE_AUTH_TOKEN,
                                                    .first = true,
                                                    .has_message = true,
                                                    .message = token,
                                                    .client = slice_string(s->ip)});
}

static void add_to_document(struct inject_session *s, struct slice bytes)
{
    uint64_t before = json_document_memory(&s->json), more;

    if (!json_document_add(&s->json, bytes)) {
        refuse(s, 413, "the document is larger than inject_json_limit");
        return;
    }
    more = json_document_memory(&s->json) - before;
    if (!receive_has_memory(s->all, s->settings, &s->place, more) ||
        !draft_reserve(&s->account, more)) {
        refuse(s, 429, NO_DOCUMENT_MEMORY);
        return;
    }
    s->held = s->account.charged;
}

/* A piece of the body. */
static void on_body(struct inject_session *s, struct slice bytes)
{
    struct server_reply reply;

    pay_for_body(s, bytes.len);
    CHECK(sum_add(s, bytes));
    if (s->kind == BODY_JSON) {
        add_to_document(s, bytes);
        return;
    }
    (void)receive_has_memory(s->all, s->settings, &s->place, 2 * bytes.len);
    reply = intake_add(&s->reading->intake, bytes);
    s->held = s->reading->intake.draft.charged;
    if (reply.code == 501) {
        refuse(s, 422, buf_cstr(&s->error)); /* not in SMTP's words */
    } else if (reply.code != 0) {
        struct buf text;

        buf_init(&text, ANSWER_EXTRA);
        (void)buf_add(&text, reply.text); /* `error` may hold it */
        reply.text = buf_slice(&text);
        refuse_as(s, &reply);
        buf_fini(&text);
    }
}

/* Take a piece of what has come. False: more is needed. */
static bool read_some(struct inject_session *s)
{
    struct slice input = stream_input(s->stream), in = input;
    bool in_request = http_in_request(&s->http);
    struct http_event event;

    http_next(&s->http, &in, &event);
    switch (event.type) {
    case HTTP_NEED_INPUT:
        if (!in_request && http_in_request(&s->http)) { /* the time for a head begins */
            s->head_until = mono_after(clock_mono(), s->settings->smtp.limits.command_us);
            stream_set_deadline(s->stream, mono_min(s->head_until, s->session_until));
        }
        break;
    case HTTP_HEAD:
        on_head(s);
        break;
    case HTTP_BODY:
        on_body(s, event.body);
        break;
    case HTTP_END:
        begin_work(s);
        break;
    case HTTP_BAD:
        refuse(s, event.status, event.reason);
        break;
    }
    stream_consume(s->stream, input.len - in.len);
    client_pace_add(&s->place.pace, clock_mono(), input.len - in.len);
    return event.type != HTTP_NEED_INPUT;
}

/* Send some of the answer. False: the client has to take it first. */
static bool send_some(struct inject_session *s)
{
    if (!s->broken) {
        stream_flush(s->stream, &s->out);
        s->broken = stream_state(s->stream) == STREAM_STATE_BROKEN;
    }
    if (s->broken || buf_len(&s->out) == 0) {
        buf_fini(&s->out);
        draft_drop(&s->account);
        s->held = 0;
        return true;
    }
    stream_set_deadline(
        s->stream,
        mono_min(mono_after(clock_mono(), s->settings->smtp.limits.command_us), s->request_until));
    return false;
}

/* Go on until something is awaited. May free the session. */
static void drive(struct inject_session *s)
{
    for (;;) {
        switch (s->phase) {
        case INJECT_HEAD:
        case INJECT_BODY:
            if (read_some(s)) {
                break;
            }
            if (s->ended || s->broken || (s->all->role->stopping && !http_in_request(&s->http))) {
                s->broken = s->broken || s->ended;
                session_close(s);
            }
            return;
        case INJECT_ANSWER:
            if (!send_some(s)) {
                return;
            }
            http_again(&s->http);
            await_head(s);
            break;
        case INJECT_CLOSING:
            if (send_some(s)) {
                session_close(s);
            }
            return;
        case INJECT_HANDSHAKE:
        case INJECT_TOKEN:
        case INJECT_WORK:
        case INJECT_DELAYED:
            return;
        }
    }
}

/* ---- answers of other processes ------------------------------------------------------------- */

static bool submit_done(struct inject_sessions *all, struct slice body)
{
    struct wire_submit_done done;
    struct inject_part *part;
    struct inject_session *s;
    struct server_reply reply;
    char status[RECEIVE_STATUS_MAX];

    if (!wire_get_submit_done(body, &done)) {
        return false;
    }
    HASH_FIND(hh, all->parts, &done.token, sizeof done.token, part);
    if (part == NULL) {
        return false;
    }
    s = part->s;
    if (done.code / 100 == 2) {
        accept_part(part, done.id, done.repeated);
    } else {
        (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(done.status)); /* cut at most */
        reply = (struct server_reply){done.code, status, done.text};
        s->key_refused = s->key_refused || slice_equal(done.status, WIRE_KEY_REFUSED);
        s->retry_s = s->retry_s > done.retry_s ? s->retry_s : done.retry_s;
        refuse_part(part, &reply);
    }
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    if (has_more(s)) {
        go_on_later(s); /* once for all answers of this turn */
    } else {
        go_on_with_call(s);
        drive(s);
    }
    return true;
}

static void take_grant(struct inject_session *s, const struct wire_auth_answer *answer)
{
    struct inject_grant *grant = mem_new(sizeof *grant);
    struct slice token = http_field(&s->http, SLICE("Authorization"), 0);

    hash_token(slice_trim(slice_skip(token, slice_find(token, ' '))), grant->hash);
    grant->generation = s->all->role->conf_generation;
    (void)snprintf(grant->name, sizeof grant->name, "%.*s", SLICE_ARGS(answer->user)); /* fits */
    grant->rights = answer->rights;
    grant->class_name = mem_copy(answer->class_name.ptr, answer->class_name.len);
    grant->senders = mem_copy(answer->senders.ptr, answer->senders.len);
    grant_free(s->grant);
    s->grant = grant;
    admission_trust(&s->all->admission, &s->place);
}

static bool auth_done(struct inject_sessions *all, struct slice body)
{
    struct wire_auth_answer answer;
    struct inject_session *s;

    if (!wire_get_auth_answer(body, &answer)) {
        return false;
    }
    HASH_FIND(hh, all->asked, &answer.login, sizeof answer.login, s);
    if (s == NULL) {
        return false;
    }
    forget_question(s);
    if (answer.result == WIRE_AUTH_ACCEPTED) {
        take_grant(s, &answer);
        token_known(s);
    } else if (answer.result == WIRE_AUTH_REFUSED) {
        grant_free(s->grant);
        s->grant = NULL;
        refuse(s, 401, "this token is not known");
    } else {
        refuse(s, 503, "tokens can't be checked at present, try again later");
    }
    drive(s);
    return true;
}

bool inject_sessions_frame(struct inject_sessions *all, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_SUBMIT_DONE:
        return submit_done(all, frame->body);
    case WIRE_AUTH_ANSWER:
        return auth_done(all, frame->body);
    default:
        return false;
    }
}

/* What the queue process has may be queued or not. */
static void give_up_parts(struct inject_session *s)
{
    const struct server_reply reply = NO_QUEUE;
    struct inject_part *part, *next;

    for (part = LIST_FIRST(&s->parts); part != NULL; part = next) {
        next = LIST_NEXT(part, next);
        if (part->token != 0) {
            refuse_part(part, &reply);
        }
    }
    if (s->phase == INJECT_WORK) { /* with what filters have, and their own time limits */
        stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
        go_on_with_call(s);
        drive(s);
    }
}

void inject_sessions_no_queue(struct inject_sessions *all)
{
    /* Each may end other sessions, as it needs memory. */
    while (all->parts != NULL) {
        give_up_parts(all->parts->s);
    }
}

void inject_sessions_no_auth(struct inject_sessions *all)
{
    struct inject_session *s, *next;

    HASH_ITER(hh, all->asked, s, next)
    {
        forget_question(s);
        refuse(s, 503, "tokens can't be checked at present, try again later");
        drive(s);
    }
}

/* ---- events of the connection --------------------------------------------------------------- */

/* The client took too long. */
static void time_out(struct inject_session *s)
{
    bool body = s->phase == INJECT_BODY;

    if (s->phase == INJECT_HEAD && !http_in_request(&s->http)) {
        session_close(s); /* it had nothing more to say */
        return;
    }
    refuse(s, 408,
           !body ? "the head of the request took longer than smtpd_timeout"
           : mono_reached(s->request_until, clock_mono())
               ? "the request took longer than smtpd_transaction_timeout"
               : "the body came slower than smtpd_min_data_rate, or stopped for smtpd_timeout");
    s->phase = INJECT_CLOSING;
    drive(s);
}

static void deadline(struct inject_session *s)
{
    switch (s->phase) {
    case INJECT_HEAD:
    case INJECT_BODY:
        time_out(s);
        return;
    case INJECT_TOKEN:
        forget_question(s);
        refuse(s, 503, "tokens can't be checked at present, try again later");
        drive(s);
        return;
    case INJECT_WORK:
        give_up_parts(s);
        return;
    case INJECT_DELAYED:
        finish_call(s);
        drive(s);
        return;
    case INJECT_HANDSHAKE:
    case INJECT_ANSWER:
    case INJECT_CLOSING:
        s->broken = true; /* it takes nothing any more */
        session_close(s);
        return;
    }
}

static void failed(struct inject_session *s)
{
    s->ended = s->broken = true;
    switch (s->phase) {
    case INJECT_HANDSHAKE:
        log_info("SSL_accept error from %s: %s", s->text, stream_error(s->stream));
        session_close(s);
        return;
    case INJECT_HEAD:
    case INJECT_BODY:
    case INJECT_TOKEN:
    case INJECT_ANSWER:
    case INJECT_CLOSING:
        session_close(s);
        return;
    case INJECT_WORK: /* all of the call had come: it is carried out */
    case INJECT_DELAYED:
        return;
    }
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct inject_session *s = arg;

    (void)stream;
    switch (event) {
    case STREAM_READABLE:
    case STREAM_WRITABLE:
        drive(s);
        return;
    case STREAM_END:
        s->ended = true;
        drive(s);
        return;
    case STREAM_SECURED:
        await_head(s);
        drive(s);
        return;
    case STREAM_DEADLINE:
        deadline(s);
        return;
    case STREAM_FAILED:
        failed(s);
        return;
    case STREAM_CONNECTED:
        UNREACHABLE("we accept, we do not connect");
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

/* Clients of HTTP come by IP. */
static void name_client(struct inject_session *s, const struct sockaddr *addr)
{
    CHECK(receive_name_client(addr, s->ip, &s->name));
    (void)snprintf(s->text, sizeof s->text, "%s[%s]", s->name, s->ip); /* fits by its size */
}

/* Its place, or its memory, goes to a faster client. */
static void drop(struct place *place, enum admission_limit limit)
{
    struct inject_session *s = CONTAINER_OF(place, struct inject_session, place);
    const char *name = admission_limit_name(limit);

    if (receive_may_log(s->all, RECEIVE_QUOTA_DROPPED + limit)) {
        log_warning("%s: dropped %s: waited %lld s, %.0f bytes/s", name, s->text,
                    (long long)(client_pace_waited_us(&s->place.pace, clock_mono()) / US_PER_S),
                    client_pace_rate(&s->place.pace, clock_mono()));
    }
    leave_place(s);
    s->dropped = true;
    if (s->phase == INJECT_HEAD || s->phase == INJECT_TOKEN || s->phase == INJECT_BODY) {
        (void)http_put_answer(&s->out, 503, "application/json", 0, false,
                              SLICE("Retry-After: 10\r\n"));
        stream_flush(s->stream, &s->out);
    }
    s->broken = s->phase == INJECT_HANDSHAKE || buf_len(&s->out) > 0;
    session_close(s);
}

/* Say no without a session. */
static void turn_away(struct inject_session *s, int fd, enum admission_limit limit)
{
    const char *name = admission_limit_name(limit);
    struct buf words;

    if (receive_may_log(s->all, RECEIVE_QUOTA_REFUSED + limit)) {
        log_warning("too many sessions: %s is turned away from service http (%s)", s->text, name);
    }
    buf_init(&words, 1000);
    if (!s->origin->tls_first) {
        (void)http_put_answer(&words, limit == ADMISSION_PLACES ? 503 : 429, "application/json", 0,
                              false, SLICE("Retry-After: 10\r\n"));
        /* The client may have gone, or not read; it has been told as well as can be. */
        (void)send(fd, buf_slice(&words).ptr, buf_len(&words), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    buf_fini(&words);
    (void)close(fd); /* a socket: nothing to lose */
}

void inject_session_begin(struct inject_sessions *inject, struct receive_settings *settings,
                          struct receive_origin *origin, int fd, const struct sockaddr *addr)
{
    struct receive_sessions *all = inject->all;
    struct inject_session *s = mem_new(sizeof *s);
    struct admission_client client = {.drop = drop};
    struct admission_answer answer;

    s->inject = inject;
    s->all = all;
    s->origin = origin;
    s->settings = settings;
    name_client(s, addr);
    CHECK(ip_of_sockaddr(addr, s->address));
    client.ip = s->address;
    client.trusted = network_list_match(&all->role->conf->relay_networks, addr);
    client.exempt = network_list_match(&all->role->conf->smtpd_client_event_limit_exceptions, addr);
    s->exempt = client.exempt;
    answer = admission_ask(&all->admission, &settings->admission, &client, clock_mono());
    if (!answer.admitted || (origin->tls_first && settings->tls == NULL)) {
        if (!answer.admitted) {
            turn_away(s, fd, answer.limit);
        } else {
            (void)close(fd); /* the log has said that there is no certificate */
        }
        mem_free(s);
        return;
    }
    if (answer.victim != NULL) {
        answer.victim->drop(answer.victim, answer.limit);
    }
    origin->refs++;
    (void)receive_settings_ref(settings); /* the same pointer */
    http_init(&s->http);
    buf_init(&s->out, 2 * (size_t)INJECT_ANSWER_MAX + 2 * ANSWER_EXTRA);
    buf_init(&s->error, 2 * ANSWER_EXTRA);
    inject_mail_document(&s->json, 0);
    draft_init(&s->account, &all->budget, 0);
    draft_init(&s->making_account, &all->budget, 0);
    http_envelope_init(&s->envelope, 0);
    inject_answer_init(&s->answer);
    LIST_INIT(&s->parts);
    s->stream = stream_new(all->streams, fd, on_stream, s);
    stream_keep_secret(s->stream, true); /* each request has a token */
    LIST_INSERT_HEAD(&inject->list, s, next);
    all->count++;
    admission_enter(&all->admission, &settings->admission, &s->place, &client, &s->held,
                    clock_mono());
    s->session_until = mono_after(clock_mono(), settings->smtp.limits.session_us);
    s->request_until = MONO_NEVER;
    if (origin->tls_first) {
        s->phase = INJECT_HANDSHAKE;
        stream_set_deadline(s->stream,
                            mono_after(clock_mono(), settings->smtp.limits.handshake_us));
        stream_start_tls(s->stream, settings->tls, NULL);
    } else {
        await_head(s);
        drive(s);
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

void inject_sessions_init(struct inject_sessions *all, struct receive_sessions *shared)
{
    *all = (struct inject_sessions){.all = shared};
    LIST_INIT(&all->list);
    inject_mail_start();
}

void inject_sessions_shutdown(struct inject_sessions *all)
{
    all->walked = LIST_FIRST(&all->list);
    while (all->walked != NULL) {
        struct inject_session *s = all->walked;

        all->walked = LIST_NEXT(s, next);
        drive(s); /* may end others, too, as it needs memory */
    }
}

void inject_sessions_cut(struct inject_sessions *all)
{
    struct inject_session *s;

    while ((s = LIST_FIRST(&all->list)) != NULL) {
        s->broken = true;
        session_close(s);
    }
}

void inject_sessions_fini(struct inject_sessions *all)
{
    inject_sessions_cut(all);
}
