/*
 * Phases of a session, apart from those of its protocol engine:
 *
 *   TALK       the engine runs after input, room for output, or a deadline
 *   ASKED      a question is open: a submission, ETRN or a limit on sending at the queue process,
 *              or a login at the auth process, which delays answers after guessed passwords
 *   FILTERING  a filter has a command or message of the client (filters.h)
 *   CALLOUT    the next hop is asked whether a recipient exists (callout.h)
 *   DELAYED    the client is made to wait
 *   TLS_DUE    the reply to STARTTLS is being sent
 *   HANDSHAKE  the TLS handshake follows it
 *   CLOSING    the last reply is being sent
 *
 *          +--> ASKED ---+--> DELAYED --+
 *          |      ^      |      ^       |
 *          +--> FILTERING+      |       |
 *          +--> CALLOUT -+      |       |
 *        TALK <----------+      |       |
 *        | | \------------------+       |
 *        | |  \<------------------------+
 *        | +--> TLS_DUE --> HANDSHAKE --> TALK
 *        +----> CLOSING --> freed
 *
 * Input is read only in TALK. In ASKED, FILTERING, CALLOUT and DELAYED reading is paused, so the
 * client is slowed down. It waits there without its own fault and keeps its place, except during a
 * login: otherwise thousands of clients that guess passwords would hold places while their answers
 * are delayed. During a login the client is waited for as for a command. It may lose its place, and
 * leaves it when it closes the connection, even only its sending side: no command may follow AUTH
 * before the answer, so such a client has nothing more to send.
 *
 * Functions that take a session may free it, unless their comment excludes that.
 */
#include "receive_session.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arrival.h"
#include "callout.h"
#include "check.h"
#include "classify.h"
#include "clock.h"
#include "filters.h"
#include "hash.h"
#include "header.h"
#include "heap.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "nexthop.h"
#include "receive_policy.h"
#include "receive_session_private.h"
#include "receive_shared.h"
#include "route.h"
#include "server.h"
#include "stream.h"

/* Maximum time for a client to read the last reply. */
#define LAST_WORDS_US (10 * US_PER_S)

#define NO_ETRN ((struct server_reply){458, NULL, SLICE("Unable to queue messages")})

static const char lost_connection[] = "lost connection";

/* ---- names for the log ---------------------------------------------------------------------- */

/* Sets the client's names for the log; on a Unix socket as Postfix does. */
static void name_client(struct receive_session *s, const struct sockaddr *addr)
{
    if (!receive_name_client(addr, s->ip, &s->name)) {
        s->name = "localhost";
        (void)snprintf(s->ip, sizeof s->ip, "127.0.0.1");
    }
    (void)snprintf(s->text, sizeof s->text, "%s[%s]", s->name, s->ip); /* fits by its size */
}

static uint16_t port_of(const struct sockaddr *addr)
{
    return addr->sa_family == AF_INET    ? ntohs(((const struct sockaddr_in *)addr)->sin_port)
           : addr->sa_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)addr)->sin6_port)
                                         : 0;
}

/* ---- dialogues for watches ------------------------------------------------------------------ */

static bool is_watched(const struct receive_session *s)
{
    return dialogue_is_on(&s->all->dialogue);
}

static void tell(struct receive_session *s, enum wire_said said, bool ours, struct slice text,
                 uint64_t bytes)
{
    char local[INET6_ADDRSTRLEN], peer[sizeof s->text + 8];
    struct dialogue_facts facts = {.host = slice_string(s->name),
                                   .tls = server_tls(s->server),
                                   .client = s->has_address ? s->address : NULL,
                                   .is_client = true};

    local[0] = '\0';
    if (said != SAID_CLOSED) { /* the stream may be gone then */
        receive_local_address(s, local);
    }
    facts.source = slice_string(local);
    (void)snprintf(peer, sizeof peer, "%s:%u", s->text, s->port); /* fits by its size */
    facts.peer = slice_string(peer);
    if (said == SAID_LINE) {
        dialogue_tell_lines(&s->all->dialogue, &s->end, &facts, ours, text);
    } else {
        dialogue_tell(&s->all->dialogue, &s->end, &facts, said, ours, text, bytes);
    }
}

static void on_said(void *arg, enum server_said said, struct slice text, size_t bytes)
{
    static const enum wire_said kinds[] = {
        [SERVER_SAID_COMMAND] = SAID_LINE,    [SERVER_SAID_LOGIN] = SAID_LOGIN,
        [SERVER_SAID_UNKNOWN] = SAID_UNKNOWN, [SERVER_SAID_CONTENT] = SAID_CONTENT,
        [SERVER_SAID_REPLY] = SAID_LINE,      [SERVER_SAID_CHALLENGE] = SAID_LOGIN,
    };
    bool ours = said == SERVER_SAID_REPLY || said == SERVER_SAID_CHALLENGE;

    tell(arg, kinds[said], ours, text, bytes);
}

/* ---- the life of a session ------------------------------------------------------------------ */

void receive_forget_question(struct receive_session *s)
{
    if (s->token != 0) {
        if (s->all->walked_asked == s) {
            s->all->walked_asked = s->hh.next;
        }
        HASH_DEL(s->all->asked, s);
        s->token = 0;
    }
}

/* Frees the place, now or at the end of the session. The address of a client is remembered if the
 * client kept the server waiting and sent nothing. A client that waits for the answer to a login is
 * no such client: it may be a user among many that guess, and may return at once. */
static void leave_place(struct receive_session *s)
{
    struct mono now = clock_mono();
    bool in_vain = !s->delivered && s->phase != PHASE_ASKED &&
                   client_pace_waited_us(&s->place.pace, now) >= s->settings->admission.patience_us;

    admission_leave(&s->all->admission, &s->place, in_vain, now);
}

static void session_drop(struct place *place, enum admission_limit limit);

/* Frees the session, whose stream has been freed or passed on. */
static void session_free(struct receive_session *s)
{
    struct receive_sessions *all = s->all;

    if (is_watched(s) && s->end.number != 0) {
        tell(s, SAID_CLOSED, !s->ended, SLICE(""), 0);
    }
    if (!s->delivered && !s->dropped) {
        (void)receive_may_log(all, RECEIVE_QUOTA_SESSIONS); /* counts towards an attack */
    }
    if (s->connect_logged) {
        receive_log_disconnect(s);
    }
    if (!s->dropped) {
        leave_place(s);
    }
    receive_forget_question(s);
    receive_login_end(s);
    receive_login_forget(s);
    mem_free(s->send_text);
    if (all->walked_list == s) {
        all->walked_list = LIST_NEXT(s, next);
    }
    LIST_REMOVE(s, next);
    all->count--;
    server_free(s->server);
    callouts_forget(s->callout);
    filters_free(s->filters);
    draft_drop(&s->draft);
    classify_drop(&s->classify);
    arrival_drop(&s->arrival);
    receive_settings_unref(s->settings);
    receive_origin_unref(s->origin);
    mem_free(s);
    if (all->role->stopping && all->count == 0) {
        role_exit(all->role, 0);
    }
}

static void session_close(struct receive_session *s)
{
    /* After QUIT no input is unread, so a plain close does not lose output. */
    if (server_stats(s->server).quit) {
        stream_free(s->stream);
    } else {
        stream_finish(s->stream);
    }
    session_free(s);
}

/* ---- questions to the queue process --------------------------------------------------------- */

static bool has_memory(struct receive_session *s, uint64_t bytes)
{
    return receive_has_memory(s->all, s->settings, &s->place, bytes);
}

static struct server_reply room_for(struct receive_session *s, uint64_t size)
{
    return receive_room_for(s->all, s->settings, &s->place, size);
}

void receive_ask(struct receive_session *s, enum receive_question question, uint64_t token)
{
    s->token = token;
    HASH_ADD(hh, s->all->asked, token, sizeof s->token, s);
    s->question = question;
    s->phase = PHASE_ASKED;
    if (question == QUESTION_LOGIN) {
        stream_pause_watching(s->stream); /* and its time counts */
    } else {
        client_pace_rest(&s->place.pace, clock_mono());
        stream_pause(s->stream, true);
    }
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
}

static void ask_etrn(struct receive_session *s, struct slice domain)
{
    s->stage = STAGE_ETRN;
    if (s->all->queue == NULL) {
        server_answer(s->server, NO_ETRN);
        return;
    }
    receive_ask(s, QUESTION_ETRN, ++s->all->last_token);
    wire_put_etrn(s->all->queue, &(struct wire_etrn){.token = s->token, .domain = domain});
}

/* ---- limits on sending ---------------------------------------------------------------------- */

struct slice receive_session_client(const struct receive_session *s,
                                    char room[RECEIVE_SEND_CLIENT_MAX])
{
    return receive_send_client(s->all->role->conf, s->address, s->exempt, room);
}

struct slice receive_session_login(const struct receive_session *s)
{
    return receive_send_login(s->all->role->conf, s->login != NULL ? s->login->user : NULL);
}

/* Requests the limits on sending from the queue process, which counts. Returns false if none
 * applies. */
static bool ask_send_room(struct receive_session *s)
{
    char room[RECEIVE_SEND_CLIENT_MAX];
    struct wire_send_room m = {.client = receive_session_client(s, room),
                               .login = receive_session_login(s)};

    mem_free(s->send_text);
    s->send_text = NULL;
    s->send_refused = false;
    if (m.client.len == 0 && m.login.len == 0) {
        return false;
    }
    receive_ask(s, QUESTION_SEND_ROOM, ++s->all->last_token);
    m.token = s->token;
    wire_put_send_room(s->all->queue, &m);
    return true;
}

/* Checks whether the message may have one more recipient. Returns code 0 if so. */
static struct server_reply judge_send_room(struct receive_session *s)
{
    char room[RECEIVE_SEND_CLIENT_MAX];

    if (s->send_text == NULL || draft_rcpts(&s->draft) < s->send_room) {
        return SERVER_ACCEPT;
    }
    if (!s->send_refused && s->all->queue != NULL) {
        s->send_refused = true;
        wire_put_send_refused(s->all->queue,
                              &(struct wire_send_refused){.client = receive_session_client(s, room),
                                                          .login = receive_session_login(s),
                                                          .limit = s->send_limit});
    }
    return (struct server_reply){450, "4.7.1", slice_string(s->send_text)};
}

/* ---- events of the engine ------------------------------------------------------------------- */

/* Passes a MAIL within all limits to the filters, or accepts it. */
static void accept_mail(struct receive_session *s, const struct server_mail *mail)
{
    if (s->settings->filters != NULL && !s->filtered) {
        receive_filter_mail(s, mail);
    } else {
        server_answer(s->server, SERVER_ACCEPT);
    }
}

static void on_mail(struct receive_session *s, const struct server_mail *given)
{
    char room[ADDRESS_MAX];
    struct server_mail completed = *given;
    const struct server_mail *mail = &completed;
    struct server_reply reply;

    completed.sender = route_complete(s->all->role->conf, given->sender, room);
    reply = receive_judge_sender(s, mail->sender);
    s->stage = STAGE_MAIL;
    if (reply.code == 0) {
        reply = room_for(s, mail->size);
    }
    if (reply.code == 0 && !draft_begin(&s->draft, mail->sender, mail->envid)) {
        reply = RECEIVE_NO_MEMORY;
    }
    s->arrived = clock_wall();
    arrival_begin(&s->arrival, s->all->rules, s->filtered);
    s->mail_size = mail->size;
    s->mail_flags = mail->flags;
    if (reply.code != 0) {
        receive_log_reply(s, &reply, mail->sender, slice_of(NULL, 0));
        server_answer(s->server, reply);
    } else if (!ask_send_room(s)) {
        accept_mail(s, mail);
    }
}

/* Returns the last recipient of the draft. */
static struct slice last_rcpt(const struct receive_session *s)
{
    struct slice rcpt = slice_of(NULL, 0);
    size_t at = 0;

    while (draft_next_rcpt(&s->draft, &at, &rcpt)) {
        continue;
    }
    return rcpt;
}

/* Passes the accepted last recipient of the draft to the filters, or accepts it. */
static void accept_rcpt(struct receive_session *s)
{
    if (s->filters != NULL) {
        receive_after_filters(s, filters_rcpt(s->filters, last_rcpt(s)));
        return;
    }
    server_answer(s->server, SERVER_ACCEPT);
}

static void rcpt_known(struct receive_session *s, enum callout_result result)
{
    struct arrival_words words = {.text = &s->all->text, .rule = &s->all->rule};
    struct server_reply reply;

    if (result == CALLOUT_KNOWN) {
        accept_rcpt(s);
        return;
    }
    buf_clear(words.rule);
    reply = arrival_unknown(result == CALLOUT_UNSURE, s->callout_local, last_rcpt(s), &words);
    receive_log_reply(s, &reply, draft_sender(&s->draft), last_rcpt(s));
    draft_undo_rcpt(&s->draft);
    server_answer(s->server, reply);
}

static void on_callout(void *arg, enum callout_result result)
{
    struct receive_session *s = arg;

    CHECK(s->phase == PHASE_CALLOUT);
    s->callout = NULL;
    s->phase = PHASE_TALK;
    rcpt_known(s, result);
    if (s->phase == PHASE_TALK) { /* else a filter has the question */
        receive_go_on(s);
    }
}

/* Starts a callout about a recipient. */
static void ask_peer(struct receive_session *s, const struct callout_target *target,
                     struct slice rcpt)
{
    enum callout_result result =
        callouts_ask(s->all->callouts, target, rcpt, on_callout, s, &s->callout);

    s->callout_local = domain_list_match(&s->all->role->conf->local_domains, route_domain(rcpt));
    if (result != CALLOUT_PENDING) {
        rcpt_known(s, result);
        return;
    }
    s->phase = PHASE_CALLOUT;
    client_pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, MONO_NEVER); /* the callout has its own */
}

static void on_rcpt(struct receive_session *s, const struct server_rcpt *rcpt)
{
    const struct arrival_client client = {.ip = s->has_address ? s->address : NULL,
                                          .text = s->text};
    struct receive_verdict verdict = {.text = &s->all->text};
    struct arrival_words words = {.text = &s->all->text, .rule = &s->all->rule};
    const struct conf *conf = s->all->role->conf;
    char room[ADDRESS_MAX];
    const struct wire_rcpt added = {.address = route_complete(conf, rcpt->recipient, room),
                                    .orcpt = rcpt->orcpt,
                                    .notify = rcpt->notify};
    const uint32_t before = draft_rcpts(&s->draft);
    /* Mail to that name must be accepted from all (RFC 5321, 4.5.1). */
    const bool is_postmaster = slice_equal_nocase(rcpt->recipient, SLICE("postmaster"));
    struct server_reply reply;

    s->stage = STAGE_RCPT;
    buf_clear(words.rule);
    reply = receive_judge(conf, s->may_relay || is_postmaster, added.address, &verdict);
    if (reply.code == 0) {
        reply = judge_send_room(s);
    }
    if (reply.code == 0) {
        reply = arrival_rcpt(&s->arrival, conf, &client, draft_sender(&s->draft), added.address,
                             &words);
    }
    if (reply.code == 0 && (!has_memory(s, s->settings->smtp.limits.command_bytes) ||
                            !draft_add_rcpt(&s->draft, &added, verdict.ignores_case))) {
        reply = RECEIVE_NO_MEMORY;
    }
    if (reply.code == 0 && draft_rcpts(&s->draft) == before) {
        server_answer(s->server, SERVER_ACCEPT); /* the envelope has this recipient already */
    } else if (reply.code == 0 && words.ask.text[0] != '\0') {
        ask_peer(s, &words.ask, added.address);
    } else if (reply.code == 0) {
        accept_rcpt(s);
    } else {
        receive_log_rule_reply(s, &reply, draft_sender(&s->draft), added.address,
                               buf_cstr(words.rule));
        server_answer(s->server, reply);
    }
}

static void on_data(struct receive_session *s)
{
    const struct arrival_author author = {.is_own = s->may_relay,
                                          .sender = draft_sender(&s->draft)};
    struct server_reply reply = room_for(s, 0);

    s->stage = STAGE_DATA;
    if (reply.code == 0 && s->draft.failed) {
        reply = RECEIVE_NO_MEMORY;
    }
    if (reply.code != 0) {
        receive_log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    s->in_content = reply.code == 0;
    arrival_data(&s->arrival, &author);
    classify_begin(&s->classify, s->all->role->conf);
    if (reply.code == 0 && s->filters != NULL) {
        draft_keep_header(&s->draft);
        receive_after_filters(s, filters_data(s->filters));
        return;
    }
    server_answer(s->server, reply);
}

void receive_local_address(const struct receive_session *s, char ret_ip[INET6_ADDRSTRLEN])
{
    struct sockaddr_storage storage;
    struct sockaddr *addr = (struct sockaddr *)&storage;
    socklen_t len = sizeof storage;
    unsigned char ip[16];

    ret_ip[0] = '\0';
    if (getsockname(stream_fd(s->stream), addr, &len) == 0 && ip_of_sockaddr(addr, ip)) {
        receive_print_ip(ip, ret_ip);
    }
}

static void on_helo(struct receive_session *s)
{
    s->greetings++;
    if (s->origin->lmtp) {
        s->stage = STAGE_LHLO;
    } else {
        s->stage = strcmp(server_protocol(s->server), "SMTP") == 0 ? STAGE_HELO : STAGE_EHLO;
    }
}

/* Ends an aborted transaction. If the engine refused the content by itself, the refusal is logged
 * here. If the session ends, SERVER_CLOSE follows with the same reason and logs it. */
static void finish_abort(struct receive_session *s, const struct server_event *event)
{
    if (s->abort_reason == NULL) {
        return;
    }
    if (s->in_content && (event->type != SERVER_CLOSE || event->reason != s->abort_reason)) {
        s->stage = STAGE_END;
        receive_log_refusal(s, draft_sender(&s->draft), slice_of(NULL, 0), s->abort_reason, "");
    }
    s->in_content = false;
    s->abort_reason = NULL;
    if (s->filters != NULL) {
        filters_abort(s->filters);
    }
    draft_drop(&s->draft);
    arrival_drop(&s->arrival);
}

static void on_close(struct receive_session *s, const char *reason)
{
    s->phase = PHASE_CLOSING;
    if (!server_stats(s->server).quit && !s->dropped && s->connect_logged) {
        /* The engine's "timeout: NAME" becomes Postfix's line with the name at its end. */
        bool timeout = slice_starts(slice_string(reason), SLICE("timeout: "));

        log_info("%s after %s from %s%s", timeout ? "timeout" : reason, receive_stage_name(s),
                 s->text, timeout ? reason + strlen("timeout") : "");
    }
}

/* Handles an event. Returns true if the engine should continue. Does not free the session. */
static bool act(struct receive_session *s, const struct server_event *event)
{
    finish_abort(s, event);
    switch (event->type) {
    case SERVER_NEED_INPUT:
        if (s->ended) {
            server_hangup(s->server, lost_connection);
            return true;
        }
        return false;
    case SERVER_NEED_ANSWER:
        CHECK(s->phase != PHASE_TALK);
        return false;
    case SERVER_NEED_OUTPUT:
        stream_flush(s->stream, server_output(s->server));
        if (stream_state(s->stream) == STREAM_STATE_BROKEN) {
            server_hangup(s->server, lost_connection);
            return true;
        }
        return buf_len(server_output(s->server)) == 0;
    case SERVER_HELO:
        on_helo(s);
        return true;
    case SERVER_MAIL:
        on_mail(s, &event->mail);
        return true;
    case SERVER_RCPT:
        on_rcpt(s, &event->rcpt);
        return true;
    case SERVER_DATA:
        on_data(s);
        return true;
    case SERVER_AUTH:
        receive_login_ask(s, &event->auth);
        return true;
    case SERVER_ETRN:
        ask_etrn(s, event->etrn);
        return true;
    case SERVER_CONTENT:
        (void)has_memory(s, event->content.len);
        arrival_content(&s->arrival, event->content, receive_put_content, s);
        (void)draft_hold(&s->draft, arrival_held(&s->arrival)); /* a failure shows in
                                                                 * draft_finish */
        classify_feed(&s->classify, event->content);
        return true;
    case SERVER_MESSAGE:
        receive_message_end(s, &event->message);
        return true;
    case SERVER_ABORT:
        s->abort_reason = event->reason;
        return true;
    case SERVER_STARTTLS:
        s->stage = STAGE_STARTTLS;
        s->phase = PHASE_TLS_DUE;
        return false;
    case SERVER_CLOSE:
        on_close(s, event->reason);
        return false;
    }
    UNREACHABLE("an event that is none");
}

/* ---- driving the engine --------------------------------------------------------------------- */

/* Has the client made so many errors that its answers are delayed? */
static bool must_pay(struct receive_session *s)
{
    uint64_t errors = server_stats(s->server).errors;
    bool due = s->phase == PHASE_TALK && errors > s->errors_paid &&
               errors > s->settings->soft_errors && s->settings->error_delay_us > 0;

    s->errors_paid = errors;
    return due;
}

void receive_delay(struct receive_session *s, int64_t delay_us)
{
    s->phase = PHASE_DELAYED;
    client_pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), delay_us));
}

/* Sends the output and waits for the next event, after the engine has stopped. May free the
 * session. */
static void wait_for_more(struct receive_session *s)
{
    struct buf *out = server_output(s->server);
    bool sent;

    if (must_pay(s)) {
        receive_delay(s, s->settings->error_delay_us);
        return;
    }
    stream_flush(s->stream, out);
    sent = buf_len(out) == 0 || stream_state(s->stream) == STREAM_STATE_BROKEN;
    switch (s->phase) {
    case PHASE_TALK:
        stream_set_deadline(s->stream, server_deadline(s->server));
        return;
    case PHASE_TLS_DUE:
        stream_set_deadline(s->stream, mono_after(clock_mono(), LAST_WORDS_US));
        if (sent) {
            s->phase = PHASE_HANDSHAKE;
            stream_set_deadline(s->stream,
                                mono_after(clock_mono(), s->settings->smtp.limits.handshake_us));
            stream_start_tls(s->stream, s->settings->tls, NULL);
        }
        return;
    case PHASE_CLOSING:
        stream_set_deadline(s->stream, mono_after(clock_mono(), LAST_WORDS_US));
        if (sent) {
            session_close(s);
        }
        return;
    case PHASE_ASKED:
    case PHASE_FILTERING:
    case PHASE_CALLOUT:
    case PHASE_DELAYED:
    case PHASE_HANDSHAKE:
        return;
    }
}

static void talk(struct receive_session *s)
{
    struct slice input = stream_input(s->stream), in = input;
    struct server_event event;

    if (stream_state(s->stream) == STREAM_STATE_BROKEN) {
        server_hangup(s->server, lost_connection); /* input that can't be answered */
    } else if (s->login != NULL && s->login->is_over) {
        server_expel(s->server, "4.7.0", "The login is no longer valid", "login ended");
    }
    do {
        server_next(s->server, clock_mono(), &in, &event);
    } while (act(s, &event));
    stream_consume(s->stream, input.len - in.len);
    client_pace_add(&s->place.pace, clock_mono(), input.len - in.len);
    wait_for_more(s);
}

void receive_go_on(struct receive_session *s)
{
    s->phase = PHASE_TALK;
    client_pace_wait(&s->place.pace, clock_mono());
    stream_pause(s->stream, false);
    talk(s);
}

void receive_end_login(struct receive_session *s)
{
    if (!s->login->is_over && receive_may_log(s->all, RECEIVE_QUOTA_LOGINS)) {
        log_info("%s: the login of sasl_username=%s is no longer valid", s->text, s->login->user);
    }
    s->login->is_over = true;
    if (s->phase == PHASE_TALK) {
        talk(s);
    }
}

/* Ends the session in any phase. */
static void hang_up(struct receive_session *s)
{
    server_hangup(s->server, lost_connection);
    receive_go_on(s);
}

/* Closes the session, because a faster client gets its place or memory. The session is in TALK,
 * TLS_DUE, HANDSHAKE or CLOSING, or waits for a login. Frees the session. */
static void session_drop(struct place *place, enum admission_limit limit)
{
    struct receive_session *s = CONTAINER_OF(place, struct receive_session, place);
    const char *name = admission_limit_name(limit);
    struct slice none = slice_of(NULL, 0);
    struct server_event event;
    struct mono now = clock_mono();
    char text[300];

    CHECK(s->phase != PHASE_FILTERING && s->phase != PHASE_DELAYED && s->phase != PHASE_CALLOUT);
    CHECK(s->phase != PHASE_ASKED || s->question == QUESTION_LOGIN);
    (void)snprintf(text, sizeof text,
                   "%s: dropped %s after %s: waited %lld s, %.0f bytes/s, %llu connections of its "
                   "network",
                   name, s->text, receive_stage_name(s),
                   (long long)(client_pace_waited_us(&s->place.pace, now) / US_PER_S),
                   client_pace_rate(&s->place.pace, now),
                   (unsigned long long)admission_network_places(&s->place)); /* fits */
    if (receive_may_log(s->all, RECEIVE_QUOTA_DROPPED + limit)) {
        log_warning("%s", text);
    }
    leave_place(s);
    s->dropped = true;
    if (s->phase == PHASE_ASKED) {
        receive_login_give_up(s);
    }
    if (s->phase == PHASE_TALK) {
        (void)snprintf(text, sizeof text, "Too busy, and others are faster (%s)", name);
        server_expel(s->server, "4.3.2", text, "dropped");
    } else {
        server_hangup(s->server, "dropped");
    }
    do {
        server_next(s->server, now, &none, &event);
    } while (act(s, &event));
    CHECK(event.type == SERVER_CLOSE);
    if (stream_state(s->stream) == STREAM_STATE_OPEN) {
        stream_flush(s->stream, server_output(s->server));
    }
    if (buf_len(server_output(s->server)) == 0) {
        session_close(s);
    } else { /* the client does not read */
        stream_free(s->stream);
        session_free(s);
    }
}

/* ---- answers of the queue process ----------------------------------------------------------- */

/* Refuses a sender after the answer of the queue process. */
static void refuse_mail(struct receive_session *s, const struct server_reply *reply)
{
    receive_log_reply(s, reply, draft_sender(&s->draft), slice_of(NULL, 0));
    receive_forget_question(s);
    draft_drop(&s->draft);
    arrival_drop(&s->arrival);
    server_answer(s->server, *reply);
    receive_go_on(s);
}

static void no_answer(struct receive_session *s)
{
    const struct server_reply reply = RECEIVE_NO_QUEUE;

    if (s->question == QUESTION_ETRN) {
        receive_forget_question(s);
        server_answer(s->server, NO_ETRN);
        receive_go_on(s);
        return;
    }
    if (s->question == QUESTION_LOGIN) {
        receive_login_refuse(s, NO_AUTH, "no answer");
        return;
    }
    if (s->question == QUESTION_SEND_ROOM) {
        refuse_mail(s, &reply);
        return;
    }
    receive_log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    receive_message_decided(s, &reply);
}

struct receive_session *receive_find_asked(struct receive_sessions *all, uint64_t token,
                                           enum receive_question question)
{
    struct receive_session *s;

    HASH_FIND(hh, all->asked, &token, sizeof token, s);
    return s == NULL || s->question != question ? NULL : s;
}

static bool etrn_done(struct receive_sessions *all, struct slice body)
{
    struct wire_etrn_done done;
    struct receive_session *s;

    if (!wire_get_etrn_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = receive_find_asked(all, done.token, QUESTION_ETRN);
    if (s != NULL) {
        receive_forget_question(s);
        server_answer(s->server, (struct server_reply){done.code, NULL, done.text});
        receive_go_on(s);
    }
    return true;
}

static bool send_room_done(struct receive_sessions *all, struct slice body)
{
    struct wire_send_room_done done;
    struct receive_session *s;

    if (!wire_get_send_room_done(body, &done)) {
        return false;
    }
    s = receive_find_asked(all, done.token, QUESTION_SEND_ROOM);
    if (s == NULL) {
        return true; /* the session is gone */
    }
    if (done.rcpts == 0) {
        refuse_mail(s, &(struct server_reply){450, "4.7.1", done.text});
        return true;
    }
    s->send_room = done.rcpts;
    s->send_limit = done.limit;
    s->send_text = done.text.len > 0 ? mem_copy(done.text.ptr, done.text.len) : NULL;
    receive_forget_question(s);
    s->phase = PHASE_TALK;
    accept_mail(s, &(struct server_mail){.sender = draft_sender(&s->draft),
                                         .size = s->mail_size,
                                         .flags = s->mail_flags});
    if (s->phase == PHASE_TALK) { /* else the filters have it */
        receive_go_on(s);
    }
    return true;
}

bool receive_sessions_frame(struct receive_sessions *all, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_SUBMIT_DONE:
        return receive_submit_done(all, frame->body);
    case WIRE_ETRN_DONE:
        return etrn_done(all, frame->body);
    case WIRE_SEND_ROOM_DONE:
        return send_room_done(all, frame->body);
    case WIRE_FLOW:
        return wire_get_flow(frame->body, &all->flow);
    case WIRE_WATCHES:
        return dialogue_watches(&all->dialogue, frame->body);
    default:
        return false;
    }
}

/* Ends all questions to a process that is gone. */
static void no_answers(struct receive_sessions *all, bool from_auth)
{
    all->walked_asked = all->asked;
    while (all->walked_asked != NULL) {
        struct receive_session *s = all->walked_asked;

        all->walked_asked = s->hh.next;
        if ((s->question == QUESTION_LOGIN) == from_auth) {
            no_answer(s); /* may free other sessions, too, because it needs memory */
        }
    }
}

void receive_sessions_set_auth(struct receive_sessions *all, struct channel *auth)
{
    struct receive_session *s;

    all->auth = NULL;
    no_answers(all, true);
    all->auth = auth;
    LIST_FOREACH(s, &all->list, next)
    {
        s->login_token = 0; /* unknown to the new process */
    }
}

void receive_sessions_set_queue(struct receive_sessions *all, struct channel *queue)
{
    all->queue = queue;
    dialogue_drop(&all->dialogue);
    all->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    no_answers(all, false);
}

/* ---- events of the connection --------------------------------------------------------------- */

static void secured(struct receive_session *s)
{
    struct buf *text = &s->all->text;

    buf_clear(text);
    tls_describe(stream_tls(s->stream), text);
    log_info("Anonymous TLS connection established from %s: %s", s->text, buf_cstr(text));
    if (is_watched(s)) {
        tell(s, SAID_SECURED, true, buf_slice(text), 0);
    }
    if (s->tls_first) {
        s->tls_first = false;
        server_tls_implicit(s->server, buf_cstr(text));
    } else {
        server_tls_started(s->server, buf_cstr(text));
    }
    receive_go_on(s);
}

static void failed(struct receive_session *s)
{
    s->ended = true;
    switch (s->phase) {
    case PHASE_ASKED: /* the answer to a submission will end the session */
        if (s->question == QUESTION_LOGIN || s->question == QUESTION_SEND_ROOM) {
            receive_forget_question(s);
            receive_login_end(s);
            hang_up(s);
        }
        return;
    case PHASE_HANDSHAKE:
        log_info("SSL_accept error from %s: %s", s->text, stream_error(s->stream));
        if (is_watched(s)) {
            tell(s, SAID_CLOSED, false, slice_string(stream_error(s->stream)), 0);
            s->end.number = 0; /* the end is reported already */
        }
        hang_up(s);
        return;
    case PHASE_CLOSING:
        session_close(s);
        return;
    case PHASE_FILTERING: /* the client has no positive reply yet */
        filters_abort(s->filters);
        draft_drop(&s->draft);
        hang_up(s);
        return;
    case PHASE_CALLOUT:
        callouts_forget(s->callout);
        s->callout = NULL;
        hang_up(s);
        return;
    case PHASE_TALK:
    case PHASE_DELAYED:
    case PHASE_TLS_DUE:
        hang_up(s);
        return;
    }
}

static void deadline(struct receive_session *s)
{
    switch (s->phase) {
    case PHASE_TALK:
        server_expire(s->server);
        talk(s);
        return;
    case PHASE_ASKED:
        no_answer(s);
        return;
    case PHASE_FILTERING:
    case PHASE_CALLOUT:
        return; /* no deadline is set */
    case PHASE_DELAYED:
        receive_go_on(s);
        return;
    case PHASE_TLS_DUE:
    case PHASE_HANDSHAKE:
        server_hangup(s->server, s->phase == PHASE_HANDSHAKE ? "timeout: smtpd_starttls_timeout"
                                                             : "timeout: last words");
        receive_go_on(s);
        return;
    case PHASE_CLOSING:
        stream_free(s->stream);
        session_free(s);
        return;
    }
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct receive_session *s = arg;

    (void)stream;
    switch (event) {
    case STREAM_READABLE:
        if (s->phase == PHASE_TALK) {
            talk(s);
        }
        return;
    case STREAM_WRITABLE:
        if (s->phase == PHASE_TALK) {
            talk(s);
        } else if (s->phase != PHASE_DELAYED) {
            wait_for_more(s);
        }
        return;
    case STREAM_END:
        s->ended = true;
        if (s->phase == PHASE_TALK) {
            talk(s);
        } else if (s->phase == PHASE_ASKED && s->question == QUESTION_LOGIN) {
            failed(s);
        }
        return;
    case STREAM_SECURED:
        secured(s);
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

/* Sends a refusal without a session and closes the connection. */
static void turn_away(int fd, const struct buf *words)
{
    struct slice text = buf_slice(words);

    /* Best effort: the client may have gone, or not read. */
    (void)send(fd, text.ptr, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd); /* a socket: no data to lose */
}

/* Refuses a client: composes the reply and the log line. */
static void refuse(struct receive_session *s, int fd, enum admission_limit limit)
{
    struct receive_sessions *all = s->all;
    const struct admission_limits *limits = &s->settings->admission;
    const char *service = s->origin->lmtp ? "lmtp" : "smtp", *name = admission_limit_name(limit);
    struct buf *words = &all->text, *line = &all->line;

    buf_clear(words);
    buf_clear(line);
    buf_addf(words, "421 %s %s Error: ", limit == ADMISSION_PLACES ? "4.3.2" : "4.7.0",
             s->settings->hostname);
    switch (limit) {
    case ADMISSION_ADDRESS: /* Postfix's text, with our names after it */
        buf_addf(words, "too many connections from %s", s->ip);
        buf_addf(line, "Connection concurrency limit exceeded: %llu from %s for service %s (%s)",
                 (unsigned long long)limits->address_max + 1, s->text, service, name);
        break;
    case ADMISSION_NETWORK:
        buf_addf(words, "too many connections from the network of %s for now", s->ip);
        buf_addf(line, "too many sessions from the network of %s for service %s (%s)", s->text,
                 service, name);
        break;
    case ADMISSION_PLACES:
    case ADMISSION_MEMORY:
    case ADMISSION_LIMITS:
        buf_addf(words, "too many connections");
        buf_addf(line, "too many sessions: %zu; %s is turned away (%s)", all->admission.count,
                 s->text, name);
        break;
    }
    buf_addf(words, " (%s)\r\n", name);
    if (receive_may_log(all, RECEIVE_QUOTA_REFUSED + limit)) {
        log_warning("%s", buf_cstr(line));
    }
    turn_away(fd, words);
}

/* Admits the client, perhaps in the place of another. If not, refuses it, closes fd and returns
 * false. */
static bool admit(struct receive_session *s, const struct admission_client *client, int fd)
{
    struct receive_sessions *all = s->all;
    struct admission_answer answer =
        admission_ask(&all->admission, &s->settings->admission, client, clock_mono());

    if (!answer.admitted) {
        refuse(s, fd, answer.limit);
        return false;
    }
    if (answer.victim != NULL) {
        answer.victim->drop(answer.victim, answer.limit);
    }
    return true;
}

static const struct server_config *config_of(const struct receive_session *s)
{
    const struct receive_settings *settings = s->settings;

    if (s->origin->lmtp) {
        return &settings->lmtp;
    }
    if (s->origin->submission) {
        return &settings->submission;
    }
    return listen_options_of(&s->all->role->conf->listen, s->origin->url).login ? &settings->login
                                                                                : &settings->smtp;
}

/* Begins with the handshake; the greeting follows. */
static void begin_with_tls(struct receive_session *s)
{
    s->tls_first = true;
    s->phase = PHASE_HANDSHAKE;
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->smtp.limits.handshake_us));
    stream_start_tls(s->stream, s->settings->tls, NULL);
}

void receive_session_begin(struct receive_sessions *all, struct receive_settings *settings,
                           struct receive_origin *origin, int fd, const struct sockaddr *addr,
                           bool known)
{
    struct receive_session *s = mem_new(sizeof *s);
    struct admission_client client = {.drop = session_drop, .exempt = true};
    unsigned char ip[16];

    s->all = all;
    s->origin = origin;
    s->settings = settings;
    name_client(s, addr);
    s->port = port_of(addr);
    s->may_relay = known;
    s->exempt = true;
    s->filtered = listen_options_of(&all->role->conf->listen, origin->url).filtered;
    if (ip_of_sockaddr(addr, ip)) {
        s->has_address = true;
        memcpy(s->address, ip, sizeof s->address);
        s->may_relay = known && network_list_match(&all->role->conf->relay_networks, addr);
        client.ip = ip;
        client.exempt =
            network_list_match(&all->role->conf->smtpd_client_event_limit_exceptions, addr);
        s->exempt = client.exempt;
    }
    client.trusted = s->may_relay;
    if (origin->tls_first && settings->tls == NULL) { /* the reason is logged already */
        (void)close(fd);                              /* no reply is possible without TLS */
        mem_free(s);
        return;
    }
    if (!admit(s, &client, fd)) {
        mem_free(s);
        return;
    }
    origin->refs++;
    (void)receive_settings_ref(settings); /* the same pointer */
    draft_init(&s->draft, &all->budget, settings->inline_max);
    s->server = server_new(config_of(s), clock_mono());
    server_offer_logins(s->server, all->mechanisms);
    if (s->may_relay) {
        server_trust(s->server);
    }
    if (!s->has_address ||
        network_list_match(&all->role->conf->smtpd_forbid_bare_newline_exclusions, addr)) {
        server_accept_bare_lf(s->server);
    }
    s->stream = stream_new(all->streams, fd, on_stream, s);
    stream_keep_secret(s->stream, config_of(s)->login != 0);
    LIST_INSERT_HEAD(&all->list, s, next);
    all->count++;
    admission_enter(&all->admission, &settings->admission, &s->place, &client, &s->draft.charged,
                    clock_mono());
    server_listen(s->server, &all->dialogue.on, on_said, s);
    if (is_watched(s)) {
        tell(s, SAID_OPENED, false, slice_string(origin->url), 0);
    }
    if (!receive_under_attack(all)) {
        receive_log_connect(s);
    }
    if (origin->tls_first) {
        begin_with_tls(s);
    } else {
        talk(s);
    }
}

/* ---- all sessions --------------------------------------------------------------------------- */

void receive_sessions_init(struct receive_sessions *all, struct role *role)
{
    *all = (struct receive_sessions){.role = role};
    dialogue_init(&all->dialogue, &all->queue);
    all->streams = streams_new(role->base);
    filter_hub_init(&all->hub, role, all->streams);
    all->callouts = callouts_new(&all->hub);
    all->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    LIST_INIT(&all->list);
    admission_init(&all->admission);
    receive_quotas_init(all);
    buf_init(&all->text, LOG_LINE_MAX);
    buf_init(&all->rule, LOG_LINE_MAX);
    buf_init(&all->line, LOG_LINE_MAX);
    buf_init(&all->trace, WIRE_TRACE_MAX);
    buf_init(&all->trace_rest, WIRE_TRACE_MAX);
}

void receive_sessions_shutdown(struct receive_sessions *all)
{
    all->walked_list = LIST_FIRST(&all->list);
    while (all->walked_list != NULL) {
        struct receive_session *s = all->walked_list;

        all->walked_list = LIST_NEXT(s, next);
        server_shutdown(s->server);
        if (s->phase == PHASE_TALK) {
            talk(s); /* may free other sessions, too */
        }
    }
}

void receive_sessions_cut(struct receive_sessions *all)
{
    struct receive_session *s;

    while ((s = LIST_FIRST(&all->list)) != NULL) {
        stream_free(s->stream);
        session_free(s);
    }
}

void receive_sessions_fini(struct receive_sessions *all)
{
    dialogue_drop(&all->dialogue);
    receive_sessions_cut(all);
    admission_fini(&all->admission);
    event_free(all->quota_timer);
    callouts_free(all->callouts);
    filter_hub_fini(&all->hub);
    streams_free(all->streams);
    buf_fini(&all->text);
    buf_fini(&all->rule);
    buf_fini(&all->line);
    buf_fini(&all->trace);
    buf_fini(&all->trace_rest);
}

struct receive_origin *receive_origin_new(struct slice url)
{
    struct receive_origin *origin = mem_new(sizeof *origin);
    struct listen_address address;

    origin->refs = 1;
    origin->url = mem_copy(url.ptr, url.len);
    if (listen_parse(url, &address)) { /* conf_load checked it */
        origin->lmtp = address.lmtp;
        origin->submission = address.submission;
        origin->http = address.http;
        origin->tls_first = address.tls_first;
    }
    return origin;
}

void receive_origin_unref(struct receive_origin *origin)
{
    if (--origin->refs == 0) {
        mem_free(origin->url);
        mem_free(origin);
    }
}
