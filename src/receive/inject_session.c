/*
 * Phases of a session:
 *
 *   HANDSHAKE  TLS, on a listener that begins with it
 *   HEAD       waits for a request, or receives its head
 *   TOKEN      the auth process checks the token of the request
 *   BODY       receives the body
 *   WORK       messages are made, and the queue process has some of them
 *   DELAYED    the answer waits, because mail arrives faster than it enters the queue
 *   ANSWER     sends the answer
 *   CLOSING    sends the last answer
 *
 *   HANDSHAKE --> HEAD --> TOKEN --> BODY --> WORK --> DELAYED --> ANSWER --> HEAD
 *                   \         \        \        \----------------^   \
 *                    +---------+--------+------------------------> CLOSING --> freed
 *
 * In HEAD, BODY, ANSWER, CLOSING and HANDSHAKE the client is waited for, and may lose its place to
 * another. This is also true in TOKEN, so that a client that guesses tokens holds no place while
 * the answers are delayed. Functions change the phase and its data; only inject_drive continues
 * from there. A session is freed only by inject_drive and by functions with a comment about
 * that.
 */
#include "inject_session.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
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
#include "inject_session_private.h"
#include "intake.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "receive_policy.h"
#include "receive_shared.h"
#include "stream.h"
#include "token_list.h"

#define NO_QUEUE                                                                                   \
    ((struct server_reply){451, "4.3.0", SLICE("Queue is not available, try again later")})

/* ---- the log -------------------------------------------------------------------------------- */

void inject_log_connect(struct inject_session *s)
{
    if (!s->logged) {
        s->logged = true;
        log_info("connect from %s", s->text);
    }
}

const char *inject_protocol(const struct inject_session *s)
{
    return s->origin->tls_first ? "HTTPS" : "HTTP";
}

void inject_log_refusal(struct inject_session *s, unsigned status, const char *text,
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
        to ? rcpt.ptr : "", to ? ">" : "", inject_protocol(s),
        s->grant != NULL ? s->grant->name : "", rule[0] != '\0' ? " (" : "", rule,
        rule[0] != '\0' ? ")" : "");
}

/* ---- the life of a session ------------------------------------------------------------------ */

static void forget_request(struct inject_session *s)
{
    while (!LIST_EMPTY(&s->parts)) {
        inject_part_free(LIST_FIRST(&s->parts));
    }
    s->reading = NULL;
    inject_mail_free(s->mail);
    inject_mail_free(s->unread);
    s->mail = s->unread = NULL;
    (void)XXH3_freeState(s->sum); /* returns XXH_OK */
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

/* Frees the session, whose stream has been freed or passed on. */
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
        stream_finish(s->stream); /* the client may still send, and should read the answer */
    }
    session_free(s);
}

/* ---- waiting -------------------------------------------------------------------------------- */

void inject_wait_for_client(struct inject_session *s, enum inject_phase phase)
{
    s->phase = phase;
    client_pace_wait(&s->place.pace, clock_mono());
    stream_pause(s->stream, phase == INJECT_ANSWER || phase == INJECT_CLOSING);
}

void inject_wait_for_us(struct inject_session *s, enum inject_phase phase, int64_t longest_us)
{
    s->phase = phase;
    client_pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), longest_us));
}

static void await_head(struct inject_session *s)
{
    inject_wait_for_client(s, INJECT_HEAD);
    s->head_until = mono_after(clock_mono(), s->settings->smtp.limits.command_us);
    stream_set_deadline(s->stream, mono_min(s->head_until, s->session_until));
}

/* Moves the deadline: each byte of the body is worth some time, and the client may be content_us
 * late. */
void inject_pay_for_body(struct inject_session *s, size_t bytes)
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

bool inject_charge(struct inject_session *s, uint64_t bytes)
{
    bool good = receive_has_memory(s->all, s->settings, &s->place, bytes) &&
                draft_reserve(&s->account, bytes);

    s->held = s->account.charged;
    return good;
}

void inject_answer_with(struct inject_session *s, unsigned status, struct slice error,
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
        (void)inject_charge(s, buf_len(&s->out)); /* replaces the charge of the parts */
    }
    inject_wait_for_client(s, keep ? INJECT_ANSWER : INJECT_CLOSING);
}

void inject_refuse(struct inject_session *s, unsigned status, const char *error)
{
    char fields[64] = "";

    inject_log_refusal(s, status, error, slice_of(NULL, 0), "");
    if (status == 401) {
        (void)snprintf(fields, sizeof fields, "WWW-Authenticate: Bearer\r\n");
    } else if (status == 405) {
        (void)snprintf(fields, sizeof fields, "Allow: POST\r\n");
    } else if (status == 429 || status == 503 || status == 507) {
        (void)snprintf(fields, sizeof fields, "Retry-After: %d\r\n",
                       status == 429 ? BUSY_RETRY_S : GONE_RETRY_S);
    }
    inject_answer_with(s, status, slice_string(error), slice_string(fields));
}

/* Returns the status of HTTP for a reply of SMTP. */
static unsigned status_of(const struct server_reply *reply)
{
    switch (reply->code) {
    case 452: /* clients cause a lack of memory, but not of space */
        return slice_starts(reply->text, SLICE("Insufficient memory")) ? 429 : 507;
    case 552:
        return 413;
    default:
        return reply->code / 100 == 4 ? 503 : 422;
    }
}

void inject_refuse_as(struct inject_session *s, const struct server_reply *reply)
{
    struct buf text; /* reply->text may point into s->error */

    buf_init(&text, 2 * ANSWER_EXTRA);
    (void)buf_addf(&text, "%s %.*s", reply->status, SLICE_ARGS(reply->text)); /* fits */
    inject_refuse(s, status_of(reply), buf_cstr(&text));
    buf_fini(&text);
}

/* Handles a piece of the input. Returns false if more is needed. */
static bool read_some(struct inject_session *s)
{
    struct slice input = stream_input(s->stream), in = input;
    bool in_request = http_in_request(&s->http);
    struct http_event event;

    http_next(&s->http, &in, &event);
    switch (event.type) {
    case HTTP_NEED_INPUT:
        if (!in_request && http_in_request(&s->http)) { /* the deadline of a head begins */
            s->head_until = mono_after(clock_mono(), s->settings->smtp.limits.command_us);
            stream_set_deadline(s->stream, mono_min(s->head_until, s->session_until));
        }
        break;
    case HTTP_HEAD:
        inject_on_head(s);
        break;
    case HTTP_BODY:
        inject_on_body(s, event.body);
        break;
    case HTTP_END:
        inject_call_begin(s);
        break;
    case HTTP_BAD:
        inject_refuse(s, event.status, event.reason);
        break;
    }
    stream_consume(s->stream, input.len - in.len);
    client_pace_add(&s->place.pace, clock_mono(), input.len - in.len);
    return event.type != HTTP_NEED_INPUT;
}

/* Sends a piece of the answer. Returns false if the client must read first. */
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

void inject_drive(struct inject_session *s)
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
        inject_part_accept(part, done.id, done.repeated);
    } else {
        (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(done.status)); /* or is cut */
        reply = (struct server_reply){done.code, status, done.text};
        s->key_refused = s->key_refused || slice_equal(done.status, WIRE_KEY_REFUSED);
        s->retry_s = s->retry_s > done.retry_s ? s->retry_s : done.retry_s;
        inject_part_refuse(part, &reply);
    }
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
    if (inject_call_has_more(s)) {
        inject_call_go_on_later(s); /* once for all answers of this turn */
    } else {
        inject_call_go_on(s);
        inject_drive(s);
    }
    return true;
}

static void take_grant(struct inject_session *s, const struct wire_auth_answer *answer)
{
    struct inject_grant *grant = mem_new(sizeof *grant);
    struct slice token = http_field(&s->http, SLICE("Authorization"), 0);

    inject_hash_token(slice_trim(slice_skip(token, slice_find(token, ' '))), grant->hash);
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
        inject_token_known(s);
    } else if (answer.result == WIRE_AUTH_REFUSED) {
        grant_free(s->grant);
        s->grant = NULL;
        inject_refuse(s, 401, "this token is not known");
    } else {
        inject_refuse(s, 503, "tokens can't be checked at present, try again later");
    }
    inject_drive(s);
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

/* Refuses the messages that the queue process has. Whether they are queued is unknown. */
static void give_up_parts(struct inject_session *s)
{
    const struct server_reply reply = NO_QUEUE;
    struct inject_part *part, *next;

    for (part = LIST_FIRST(&s->parts); part != NULL; part = next) {
        next = LIST_NEXT(part, next);
        if (part->token != 0) {
            inject_part_refuse(part, &reply);
        }
    }
    if (s->phase == INJECT_WORK) { /* messages at filters continue, with their own deadlines */
        stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
        inject_call_go_on(s);
        inject_drive(s);
    }
}

void inject_sessions_no_queue(struct inject_sessions *all)
{
    /* A call may free other sessions, because it needs memory. */
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
        inject_refuse(s, 503, "tokens can't be checked at present, try again later");
        inject_drive(s);
    }
}

/* ---- events of the connection --------------------------------------------------------------- */

/* Handles a late client. */
static void time_out(struct inject_session *s)
{
    bool body = s->phase == INJECT_BODY;

    if (s->phase == INJECT_HEAD && !http_in_request(&s->http)) {
        session_close(s); /* no further request */
        return;
    }
    inject_refuse(
        s, 408,
        !body ? "the head of the request took longer than smtpd_timeout"
        : mono_reached(s->request_until, clock_mono())
            ? "the request took longer than smtpd_transaction_timeout"
            : "the body came slower than smtpd_min_data_rate, or stopped for smtpd_timeout");
    s->phase = INJECT_CLOSING;
    inject_drive(s);
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
        inject_refuse(s, 503, "tokens can't be checked at present, try again later");
        inject_drive(s);
        return;
    case INJECT_WORK:
        give_up_parts(s);
        return;
    case INJECT_DELAYED:
        inject_call_finish(s);
        inject_drive(s);
        return;
    case INJECT_HANDSHAKE:
    case INJECT_ANSWER:
    case INJECT_CLOSING:
        s->broken = true; /* the client reads no more */
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
    case INJECT_WORK: /* the call is complete and is carried out */
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
        inject_drive(s);
        return;
    case STREAM_END:
        s->ended = true;
        inject_drive(s);
        return;
    case STREAM_SECURED:
        await_head(s);
        inject_drive(s);
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

/* Sets the texts about the client, which always has an IP address. */
static void name_client(struct inject_session *s, const struct sockaddr *addr)
{
    CHECK(receive_name_client(addr, s->ip, &s->name));
    (void)snprintf(s->text, sizeof s->text, "%s[%s]", s->name, s->ip); /* fits by its size */
}

/* Closes the session, because a faster client gets its place or memory. */
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

/* Refuses the connection without a session. */
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
        /* Best effort: the client may have gone, or not read. */
        (void)send(fd, buf_slice(&words).ptr, buf_len(&words), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    buf_fini(&words);
    (void)close(fd); /* a socket: no data to lose */
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
            (void)close(fd); /* the missing certificate is logged already */
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
        inject_drive(s);
    }
}

/* ---- all sessions --------------------------------------------------------------------------- */

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
        inject_drive(s); /* may free others, too, because it needs memory */
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
