/*
 * Phases of a session, apart from those of its protocol engine:
 *
 *   TALK       the engine is asked what is next, whenever there is input, room for output, or a
 *              deadline has come
 *   ASKED      the queue process has a question of ours: a submission or ETRN (`token`)
 *   DELAYED    the client waits by our wish
 *   TLS_DUE    the reply to STARTTLS is going out
 *   HANDSHAKE  then this
 *   CLOSING    the last words are going out
 *
 *          +--> ASKED ---+--> DELAYED --+
 *          |             |      ^       |
 *        TALK <----------+      |       |
 *        | | \------------------+       |
 *        | |  \<------------------------+
 *        | +--> TLS_DUE --> HANDSHAKE --> TALK
 *        +----> CLOSING --> freed
 *
 * Only in TALK is input taken; in ASKED and DELAYED reading is paused, so the client feels it.
 * Functions that take a session may free it unless they say otherwise.
 */
#include "receive_session.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "classify.h"
#include "clock.h"
#include "hash.h"
#include "header.h"
#include "heap.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "receive_policy.h"
#include "server.h"
#include "stream.h"

/* Bytes on their way to the queue process beyond which no new mail is taken. */
#define QUEUE_WAITING_MAX (CHANNEL_OUTPUT_MAX / 4)
/* How long a client may take to read the last words. */
#define LAST_WORDS_US (10 * US_PER_S)

#define NO_MEMORY                                                                                  \
    ((struct server_reply){452, "4.3.1", SLICE("Insufficient memory, try again later")})
#define NO_QUEUE                                                                                   \
    ((struct server_reply){451, "4.3.0", SLICE("Queue is not available, try again later")})
#define NO_ETRN ((struct server_reply){458, NULL, SLICE("Unable to queue messages")})

static const char lost_connection[] = "lost connection";

/* How far a client has come, for the log. */
enum stage {
    STAGE_CONNECT,
    STAGE_HELO,
    STAGE_EHLO,
    STAGE_LHLO,
    STAGE_STARTTLS,
    STAGE_ETRN,
    STAGE_MAIL,
    STAGE_RCPT,
    STAGE_DATA,
    STAGE_END,
};
static const char *const stage_names[] = {"CONNECT", "HELO", "EHLO", "LHLO", "STARTTLS",
                                          "ETRN",    "MAIL", "RCPT", "DATA", "END-OF-MESSAGE"};

enum phase {
    PHASE_TALK,
    PHASE_ASKED,
    PHASE_DELAYED,
    PHASE_TLS_DUE,
    PHASE_HANDSHAKE,
    PHASE_CLOSING,
};

struct session {
    struct receive_sessions *all;
    struct receive_settings *settings;
    struct receive_origin *origin;
    struct place place;
    struct stream *stream;
    struct server *server;
    LIST_ENTRY(session) next;
    uint64_t token;    /* of the question in ASKED, else 0 */
    UT_hash_handle hh; /* by token */
    enum phase phase;
    enum stage stage;
    bool asked_etrn; /* what the question in ASKED is */
    bool may_relay;
    bool connect_logged;      /* during an attack it is logged only when it has brought mail */
    bool delivered;           /* a message */
    bool dropped;             /* it has lost its place */
    bool ended;               /* nothing more comes from the client */
    bool in_content;          /* DATA or BDAT was accepted */
    const char *abort_reason; /* of a SERVER_ABORT, until the next event: see finish_abort */
    struct draft draft;
    struct classify classify; /* of the content of `draft` */
    struct wall arrived;
    uint32_t message_rcpts; /* of the message in ASKED */
    uint64_t errors_paid;   /* errors that the client has waited for, or need not */
    unsigned greetings;
    const char *name; /* "localhost", or "unknown": the DNS is not asked */
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
};

/* ---- names for the log ---------------------------------------------------------------------- */

/* Clients are not looked up in the DNS. Those on Unix sockets are shown like Postfix shows them. */
static void name_client(struct session *s, const struct sockaddr *addr)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const unsigned char loopback6[16] = {[15] = 1};
    unsigned char ip[16];

    s->name = "localhost";
    if (ip_of_sockaddr(addr, ip)) {
        bool v4 = memcmp(ip, mapped, sizeof mapped) == 0;

        CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + sizeof mapped : ip, s->ip,
                        sizeof s->ip) != NULL);
        if (!(v4 && ip[12] == 127) && memcmp(ip, loopback6, sizeof ip) != 0) {
            s->name = "unknown";
        }
    } else {
        (void)snprintf(s->ip, sizeof s->ip, "127.0.0.1");
    }
    (void)snprintf(s->text, sizeof s->text, "%s[%s]", s->name, s->ip); /* fits by its size */
}

/* Postfix's word, which knows neither TLS nor UTF-8. */
static const char *log_protocol(const struct session *s)
{
    if (s->origin->lmtp) {
        return "LMTP";
    }
    return strcmp(server_protocol(s->server), "SMTP") == 0 ? "SMTP" : "ESMTP";
}

/* `rcpt` with ptr NULL: none to name. */
static void log_refusal(const struct session *s, struct slice sender, struct slice rcpt,
                        const char *text)
{
    struct slice helo = server_helo(s->server);
    bool to = rcpt.ptr != NULL;

    log_info("NOQUEUE: reject: %s from %s: %s; from=<%.*s>%s%.*s%s proto=%s helo=<%.*s>",
             stage_names[s->stage], s->text, text, SLICE_ARGS(sender), to ? " to=<" : "",
             to ? (int)rcpt.len : 0, to ? rcpt.ptr : "", to ? ">" : "", log_protocol(s),
             SLICE_ARGS(helo));
}

static void log_reply(const struct session *s, const struct server_reply *reply,
                      struct slice sender, struct slice rcpt)
{
    struct buf *line = &s->all->line;

    buf_clear(line);
    buf_addf(line, "%u %s %.*s", reply->code, reply->status, SLICE_ARGS(reply->text));
    log_refusal(s, sender, rcpt, buf_cstr(line));
}

/* "name=1", or "name=1/3" where not all were good; nothing when there were none. */
static void add_count(struct buf *out, const char *name, uint64_t good, uint64_t all)
{
    if (all == 0) {
        return;
    }
    buf_addf(out, " %s=%llu", name, (unsigned long long)good);
    if (good != all) {
        buf_addf(out, "/%llu", (unsigned long long)all);
    }
}

static void log_disconnect(struct session *s)
{
    struct server_stats stats = server_stats(s->server);
    struct buf *text = &s->all->text;
    uint64_t good = stats.errors > stats.commands ? 0 : stats.commands - stats.errors;

    buf_clear(text);
    add_count(text, s->origin->lmtp ? "lhlo" : "ehlo", s->greetings, s->greetings);
    add_count(text, "starttls", server_tls(s->server).len > 0, server_tls(s->server).len > 0);
    add_count(text, "mail", stats.mails, stats.mails);
    add_count(text, "rcpt", stats.rcpts, stats.rcpts + stats.rcpts_refused);
    add_count(text, "data", stats.messages, stats.messages);
    add_count(text, "quit", stats.quit, stats.quit);
    add_count(text, "commands", good, stats.commands);
    log_info("disconnect from %s%s", s->text, buf_cstr(text));
}

/* ---- the life of a session ------------------------------------------------------------------ */

static void forget_question(struct session *s)
{
    if (s->token != 0) {
        HASH_DEL(s->all->asked, s);
        s->token = 0;
    }
}

/* Its place is for others, now or when it ends. An address is remembered for those that kept us
 * waiting and brought nothing. */
static void leave_place(struct session *s)
{
    struct mono now = clock_mono();
    bool in_vain =
        !s->delivered && pace_waited_us(&s->place.pace, now) >= s->settings->admission.patience_us;

    admission_leave(&s->all->admission, &s->place, in_vain, now);
}

static void session_drop(struct session *s, enum admission_limit limit);
static void arm_quota_timer(struct receive_sessions *all);
static bool may_log(struct receive_sessions *all, unsigned quota);

static void log_connect(struct session *s)
{
    if (!s->connect_logged) {
        s->connect_logged = true;
        log_info("connect from %s", s->text);
    }
}

/* The stream has been freed or given away. */
static void session_free(struct session *s)
{
    struct receive_sessions *all = s->all;

    if (!s->delivered && !s->dropped) {
        (void)may_log(all, RECEIVE_QUOTA_SESSIONS); /* the next ones may not */
    }
    if (s->connect_logged) {
        log_disconnect(s);
    }
    if (!s->dropped) {
        leave_place(s);
    }
    forget_question(s);
    LIST_REMOVE(s, next);
    all->count--;
    server_free(s->server);
    draft_drop(&s->draft);
    classify_drop(&s->classify);
    receive_settings_unref(s->settings);
    receive_origin_unref(s->origin);
    mem_free(s);
    if (all->role->stopping && all->count == 0) {
        role_exit(all->role, 0);
    }
}

static void session_close(struct session *s)
{
    /* After QUIT nothing is unread, so a plain close delivers what was sent. */
    if (server_stats(s->server).quit) {
        stream_free(s->stream);
    } else {
        stream_finish(s->stream);
    }
    session_free(s);
}

/* ---- limits that are hit -------------------------------------------------------------------- */

/* May a line be logged? If not it is counted, and told of later. */
static bool may_log(struct receive_sessions *all, unsigned quota)
{
    if (log_quota_take(&all->quotas[quota], clock_mono())) {
        return true;
    }
    arm_quota_timer(all);
    return false;
}

/* Are there so many clients that bring nothing that only those that do are worth a line? */
static bool under_attack(const struct receive_sessions *all)
{
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        if (log_quota_is_spent(&all->quotas[i], clock_mono())) {
            return true;
        }
    }
    return false;
}

static void arm_quota_timer(struct receive_sessions *all)
{
    struct mono due = MONO_NEVER;
    struct timeval delay;
    int64_t us;

    if (evtimer_pending(all->quota_timer, NULL)) {
        return;
    }
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        due = mono_min(due, log_quota_due(&all->quotas[i]));
    }
    if (due.us == US_FOREVER) {
        return;
    }
    us = due.us > clock_mono().us ? due.us - clock_mono().us : 0;
    delay = (struct timeval){.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};
    CHECK(event_add(all->quota_timer, &delay) == 0);
}

static void tell_quotas(struct receive_sessions *all)
{
    for (unsigned i = 0; i < RECEIVE_QUOTAS; i++) {
        unsigned long long count = log_quota_tell(&all->quotas[i], clock_mono());

        if (count == 0) {
            continue;
        }
        if (i == RECEIVE_QUOTA_SESSIONS) {
            log_warning("%llu more sessions brought no mail", count);
        } else {
            log_warning("%s: %llu more clients were %s",
                        admission_limit_name((enum admission_limit)(i % ADMISSION_LIMITS)), count,
                        i < RECEIVE_QUOTA_DROPPED ? "turned away" : "dropped");
        }
    }
}

static void on_quota_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    tell_quotas(arg);
    arm_quota_timer(arg);
}

void receive_sessions_clock_moved(struct receive_sessions *all)
{
    streams_clock_moved(all->streams);
    (void)event_del(all->quota_timer); /* armed anew */
    on_quota_timer(-1, 0, all);
}

/* ---- questions to the queue process --------------------------------------------------------- */

/* Can the queue take a message at all? Code 0: yes. */
static struct server_reply queue_works(const struct receive_sessions *all)
{
    if (all->queue == NULL) {
        return NO_QUEUE;
    }
    if (!all->flow.storage_ok) {
        return (struct server_reply){451, "4.3.0", SLICE("Mail storage failed, try again later")};
    }
    return SERVER_ACCEPT;
}

/* Memory for more than `bytes` is free, or has been taken from slower clients. */
static bool has_memory(struct session *s, uint64_t bytes)
{
    struct draft_budget *budget = &s->all->budget;

    while (bytes >= budget->max - budget->used) {
        struct place *victim = admission_memory_victim(&s->all->admission, &s->settings->admission,
                                                       &s->place, clock_mono());

        if (victim == NULL) {
            return false;
        }
        session_drop(CONTAINER_OF(victim, struct session, place), ADMISSION_MEMORY);
    }
    return true;
}

/* May a message of `size` bytes begin? Code 0: yes. */
static struct server_reply room_for(struct session *s, uint64_t size)
{
    const struct receive_sessions *all = s->all;
    struct server_reply reply = queue_works(all);

    if (reply.code != 0) {
        return reply;
    }
    if (!all->flow.space_ok || size > all->flow.free_bytes) {
        return (struct server_reply){452, "4.3.1", SLICE("Insufficient system storage")};
    }
    if (channel_waiting(all->queue) > QUEUE_WAITING_MAX || !has_memory(s, size)) {
        return NO_MEMORY;
    }
    return SERVER_ACCEPT;
}

/* Wait for the answer; until then nothing is read from the client. */
static void ask(struct session *s, bool etrn)
{
    s->token = ++s->all->last_token;
    HASH_ADD(hh, s->all->asked, token, sizeof s->token, s);
    s->asked_etrn = etrn;
    s->phase = PHASE_ASKED;
    pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
}

static void ask_etrn(struct session *s, struct slice domain)
{
    s->stage = STAGE_ETRN;
    if (s->all->queue == NULL) {
        server_answer(s->server, NO_ETRN);
        return;
    }
    ask(s, true);
    wire_put_etrn(s->all->queue, &(struct wire_etrn){.token = s->token, .domain = domain});
}

/* The Received: header, with a hole for the queue id. */
static struct slice make_trace(struct session *s)
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
    CHECK(header_received(&trace, &all->trace, &all->trace_rest)); /* all parts have limits */
    buf_add(&all->trace, SLICE("\1"));
    CHECK(buf_add(&all->trace, buf_slice(&all->trace_rest)));
    return buf_slice(&all->trace);
}

/* Give the engine the verdict on a message; LMTP wants it once for each recipient. */
static void answer_message(struct session *s, const struct server_reply *reply)
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

static void refuse_message(struct session *s, const struct server_reply *reply)
{
    log_reply(s, reply, draft_sender(&s->draft), slice_of(NULL, 0));
    draft_drop(&s->draft);
    answer_message(s, reply);
}

static void submit(struct session *s, const struct server_message *message)
{
    char class_room[CLASS_NAME_MAX];
    struct classified class;
    struct receive_sessions *all = s->all;
    struct server_reply reply = queue_works(all);
    struct wire_submit m = {
        .flags = message->flags,
        .arrived = s->arrived,
        .client = slice_string(s->text),
        .pid = (uint32_t)getpid(),
        .origin = slice_string(s->origin->url),
    };

    log_connect(s);
    s->stage = STAGE_END;
    s->in_content = false;
    s->message_rcpts = message->recipients;
    if (reply.code == 0 && !draft_finish(&s->draft)) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        refuse_message(s, &reply);
        return;
    }
    ask(s, false);
    m.token = s->token;
    m.trace = make_trace(s);
    class = classify_end(&s->classify, all->role->conf, s->may_relay, s->origin->url, s->text,
                         class_room);
    m.class_name = class.name;
    m.class_source = class.source;
    draft_submit(&s->draft, all->queue, &m);
}

/* ---- what the engine asks and reports ------------------------------------------------------- */

static void on_mail(struct session *s, const struct server_mail *mail)
{
    struct server_reply reply = room_for(s, mail->size);

    s->stage = STAGE_MAIL;
    if (reply.code == 0 && !draft_begin(&s->draft, mail->sender, mail->envid)) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        log_reply(s, &reply, mail->sender, slice_of(NULL, 0));
    }
    s->arrived = clock_wall();
    server_answer(s->server, reply);
}

static void on_rcpt(struct session *s, const struct server_rcpt *rcpt)
{
    struct receive_verdict verdict = {.text = &s->all->text};
    struct server_reply reply;

    s->stage = STAGE_RCPT;
    reply = receive_judge(s->all->role->conf, s->may_relay, rcpt->recipient, &verdict);
    if (reply.code == 0 &&
        (!has_memory(s, SERVER_LINE_MAX) ||
         !draft_add_rcpt(&s->draft, rcpt->recipient, rcpt->orcpt, rcpt->notify))) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        log_reply(s, &reply, draft_sender(&s->draft), rcpt->recipient);
    }
    server_answer(s->server, reply);
}

static void on_data(struct session *s)
{
    struct server_reply reply = room_for(s, 0);

    s->stage = STAGE_DATA;
    if (reply.code == 0 && s->draft.failed) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    s->in_content = reply.code == 0;
    classify_begin(&s->classify, s->all->role->conf);
    server_answer(s->server, reply);
}

static void on_helo(struct session *s)
{
    s->greetings++;
    if (s->origin->lmtp) {
        s->stage = STAGE_LHLO;
    } else {
        s->stage = strcmp(server_protocol(s->server), "SMTP") == 0 ? STAGE_HELO : STAGE_EHLO;
    }
}

/* The transaction is off. If the engine refused the content by itself, this was the only news of
 * it; if the session ends, SERVER_CLOSE comes next with the same reason. */
static void finish_abort(struct session *s, const struct server_event *event)
{
    if (s->abort_reason == NULL) {
        return;
    }
    if (s->in_content && (event->type != SERVER_CLOSE || event->reason != s->abort_reason)) {
        s->stage = STAGE_END;
        log_refusal(s, draft_sender(&s->draft), slice_of(NULL, 0), s->abort_reason);
    }
    s->in_content = false;
    s->abort_reason = NULL;
    draft_drop(&s->draft);
}

static void on_close(struct session *s, const char *reason)
{
    s->phase = PHASE_CLOSING;
    if (!server_stats(s->server).quit && !s->dropped && s->connect_logged) {
        /* "timeout: NAME" of the engine: Postfix's line has no place for the name but the end. */
        bool timeout = slice_starts(slice_string(reason), SLICE("timeout: "));

        log_info("%s after %s from %s%s", timeout ? "timeout" : reason, stage_names[s->stage],
                 s->text, timeout ? reason + strlen("timeout") : "");
    }
}

/* Act on an event. True: ask the engine for the next one. Does not free the session. */
static bool act(struct session *s, const struct server_event *event)
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
    case SERVER_ETRN:
        ask_etrn(s, event->etrn);
        return true;
    case SERVER_CONTENT:
        (void)has_memory(s, event->content.len);
        (void)draft_add_content(&s->draft, event->content); /* submit looks at what came of it */
        classify_feed(&s->classify, event->content);
        return true;
    case SERVER_MESSAGE:
        submit(s, &event->message);
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

/* Has the client made so many errors that it has to wait for its answers? */
static bool must_pay(struct session *s)
{
    uint64_t errors = server_stats(s->server).errors;
    bool due = s->phase == PHASE_TALK && errors > s->errors_paid &&
               errors > s->settings->soft_errors && s->settings->error_delay_us > 0;

    s->errors_paid = errors;
    return due;
}

static void delay(struct session *s, int64_t delay_us)
{
    s->phase = PHASE_DELAYED;
    pace_rest(&s->place.pace, clock_mono());
    stream_pause(s->stream, true);
    stream_set_deadline(s->stream, mono_after(clock_mono(), delay_us));
}

/* The engine has nothing more to say for now: send what there is and wait for what comes. */
static void wait_for_more(struct session *s)
{
    struct buf *out = server_output(s->server);
    bool sent;

    if (must_pay(s)) {
        delay(s, s->settings->error_delay_us);
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
    case PHASE_DELAYED:
    case PHASE_HANDSHAKE:
        return;
    }
}

static void talk(struct session *s)
{
    struct slice input = stream_input(s->stream), in = input;
    struct server_event event;

    if (stream_state(s->stream) == STREAM_STATE_BROKEN) {
        server_hangup(s->server, lost_connection); /* whatever else came in can't be answered */
    }
    do {
        server_next(s->server, clock_mono(), &in, &event);
    } while (act(s, &event));
    stream_consume(s->stream, input.len - in.len);
    pace_add(&s->place.pace, clock_mono(), input.len - in.len);
    wait_for_more(s);
}

/* Out of ASKED or DELAYED. */
static void go_on(struct session *s)
{
    s->phase = PHASE_TALK;
    pace_wait(&s->place.pace, clock_mono());
    stream_pause(s->stream, false);
    talk(s);
}

/* End the session, whatever it is doing. */
static void hang_up(struct session *s)
{
    server_hangup(s->server, lost_connection);
    go_on(s);
}

/* Its place, or its memory, goes to a faster client. It is the session's turn, not ours: TALK,
 * TLS_DUE, HANDSHAKE or CLOSING. Frees the session. */
static void session_drop(struct session *s, enum admission_limit limit)
{
    const char *name = admission_limit_name(limit);
    struct slice none = slice_of(NULL, 0);
    struct server_event event;
    struct mono now = clock_mono();
    char text[300];

    CHECK(s->phase != PHASE_ASKED && s->phase != PHASE_DELAYED);
    (void)snprintf(text, sizeof text,
                   "%s: dropped %s after %s: waited %lld s, %.0f bytes/s, %llu connections of its "
                   "network",
                   name, s->text, stage_names[s->stage],
                   (long long)(pace_waited_us(&s->place.pace, now) / US_PER_S),
                   pace_rate(&s->place.pace, now),
                   (unsigned long long)admission_network_places(&s->place)); /* fits */
    if (may_log(s->all, RECEIVE_QUOTA_DROPPED + limit)) {
        log_warning("%s", text);
    }
    leave_place(s);
    s->dropped = true;
    if (s->phase == PHASE_TALK) {
        (void)snprintf(text, sizeof text, "Too busy, and others are faster (%s)", name);
        server_expel(s->server, text, "dropped");
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
    } else { /* it does not read either */
        stream_free(s->stream);
        session_free(s);
    }
}

/* ---- answers of the queue process ----------------------------------------------------------- */

/* The fate of the message in ASKED is known, or will never be. */
static void message_decided(struct session *s, const struct server_reply *reply)
{
    forget_question(s);
    draft_drop(&s->draft);
    answer_message(s, reply);
    if (reply->code / 100 == 2) {
        s->delivered = true;
        admission_delivered(&s->place, clock_mono());
    }
    if (s->all->flow.behind && s->settings->flow_delay_us > 0) {
        stream_flush(s->stream, server_output(s->server));
        delay(s, s->settings->flow_delay_us);
        return;
    }
    go_on(s);
}

static void no_answer(struct session *s)
{
    const struct server_reply reply = NO_QUEUE;

    if (s->asked_etrn) {
        forget_question(s);
        server_answer(s->server, NO_ETRN);
        go_on(s);
        return;
    }
    log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    message_decided(s, &reply);
}

static struct session *find_asked(struct receive_sessions *all, uint64_t token, bool etrn)
{
    struct session *s;

    HASH_FIND(hh, all->asked, &token, sizeof token, s);
    return s == NULL || s->asked_etrn != etrn ? NULL : s;
}

static bool submit_done(struct receive_sessions *all, struct slice body)
{
    struct wire_submit_done done;
    struct server_reply reply;
    struct session *s;
    char status[RECEIVE_STATUS_MAX];

    if (!wire_get_submit_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = find_asked(all, done.token, false);
    if (s == NULL) {
        if (done.code / 100 == 2) {
            log_warning("%.*s: the queue's answer came too late, the client may send again",
                        SLICE_ARGS(done.id));
        }
        return true;
    }
    (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(done.status)); /* cut at most */
    reply = (struct server_reply){done.code, status, done.text};
    if (done.code / 100 != 2) { /* else the queue has logged where it came from */
        log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    message_decided(s, &reply);
    return true;
}

static bool etrn_done(struct receive_sessions *all, struct slice body)
{
    struct wire_etrn_done done;
    struct session *s;

    if (!wire_get_etrn_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = find_asked(all, done.token, true);
    if (s != NULL) {
        forget_question(s);
        server_answer(s->server, (struct server_reply){done.code, NULL, done.text});
        go_on(s);
    }
    return true;
}

bool receive_sessions_frame(struct receive_sessions *all, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_SUBMIT_DONE:
        return submit_done(all, frame->body);
    case WIRE_ETRN_DONE:
        return etrn_done(all, frame->body);
    case WIRE_FLOW:
        return wire_get_flow(frame->body, &all->flow);
    default:
        return false;
    }
}

void receive_sessions_set_queue(struct receive_sessions *all, struct channel *queue)
{
    struct session *s, *next;

    all->queue = queue;
    all->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    HASH_ITER(hh, all->asked, s, next)
    {
        no_answer(s); /* the process that was asked is gone */
    }
}

/* ---- events of the connection --------------------------------------------------------------- */

static void secured(struct session *s)
{
    struct buf *text = &s->all->text;

    buf_clear(text);
    tls_describe(stream_tls(s->stream), text);
    log_info("Anonymous TLS connection established from %s: %s", s->text, buf_cstr(text));
    server_tls_started(s->server, buf_cstr(text));
    go_on(s);
}

static void failed(struct session *s)
{
    s->ended = true;
    switch (s->phase) {
    case PHASE_ASKED:
        return; /* the message is the queue's; its answer ends the session */
    case PHASE_HANDSHAKE:
        log_info("SSL_accept error from %s: %s", s->text, stream_error(s->stream));
        hang_up(s);
        return;
    case PHASE_CLOSING:
        session_close(s);
        return;
    case PHASE_TALK:
    case PHASE_DELAYED:
    case PHASE_TLS_DUE:
        hang_up(s);
        return;
    }
}

static void deadline(struct session *s)
{
    switch (s->phase) {
    case PHASE_TALK:
        server_expire(s->server);
        talk(s);
        return;
    case PHASE_ASKED:
        no_answer(s);
        return;
    case PHASE_DELAYED:
        go_on(s);
        return;
    case PHASE_TLS_DUE:
    case PHASE_HANDSHAKE:
        server_hangup(s->server, s->phase == PHASE_HANDSHAKE ? "timeout: smtpd_starttls_timeout"
                                                             : "timeout: last words");
        go_on(s);
        return;
    case PHASE_CLOSING:
        stream_free(s->stream);
        session_free(s);
        return;
    }
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct session *s = arg;

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

/* Say no without a session. */
static void turn_away(int fd, const struct buf *words)
{
    struct slice text = buf_slice(words);

    /* The client may have gone, or not read; it has been told as well as can be. */
    (void)send(fd, text.ptr, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd); /* a socket: nothing to lose */
}

/* Why, for the client and the log. */
static void refuse(struct session *s, int fd, enum admission_limit limit)
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
    case ADMISSION_ADDRESS: /* in Postfix's words, with our names behind them */
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
    if (may_log(all, RECEIVE_QUOTA_REFUSED + limit)) {
        log_warning("%s", buf_cstr(line));
    }
    turn_away(fd, words);
}

/* May it have a session, perhaps in the place of another? If not the client is told so, and fd is
 * closed. */
static bool admit(struct session *s, const struct admission_client *client, int fd)
{
    struct receive_sessions *all = s->all;
    struct admission_answer answer =
        admission_ask(&all->admission, &s->settings->admission, client, clock_mono());

    if (!answer.admitted) {
        refuse(s, fd, answer.limit);
        return false;
    }
    if (answer.victim != NULL) {
        session_drop(CONTAINER_OF(answer.victim, struct session, place), answer.limit);
    }
    return true;
}

void receive_session_begin(struct receive_sessions *all, struct receive_settings *settings,
                           struct receive_origin *origin, int fd, const struct sockaddr *addr)
{
    struct session *s = mem_new(sizeof *s);
    struct admission_client client = {.trusted = true, .exempt = true};
    unsigned char ip[16];

    s->all = all;
    s->origin = origin;
    s->settings = settings;
    name_client(s, addr);
    s->may_relay = true;
    if (ip_of_sockaddr(addr, ip)) {
        s->may_relay = network_list_match(&all->role->conf->relay_networks, addr);
        client.ip = ip;
        client.trusted = s->may_relay;
        client.exempt =
            network_list_match(&all->role->conf->smtpd_client_event_limit_exceptions, addr);
    }
    if (!admit(s, &client, fd)) {
        mem_free(s);
        return;
    }
    origin->refs++;
    (void)receive_settings_ref(settings); /* the same pointer */
    draft_init(&s->draft, &all->budget, settings->inline_max);
    s->server = server_new(origin->lmtp ? &settings->lmtp : &settings->smtp, clock_mono());
    s->stream = stream_new(all->streams, fd, on_stream, s);
    LIST_INSERT_HEAD(&all->list, s, next);
    all->count++;
    admission_enter(&all->admission, &settings->admission, &s->place, &client, &s->draft.charged,
                    clock_mono());
    if (!under_attack(all)) {
        log_connect(s);
    }
    talk(s);
}

/* ---- all of them ---------------------------------------------------------------------------- */

void receive_sessions_init(struct receive_sessions *all, struct role *role)
{
    *all = (struct receive_sessions){.role = role};
    all->streams = streams_new(role->base);
    all->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    LIST_INIT(&all->list);
    admission_init(&all->admission);
    for (size_t i = 0; i < RECEIVE_QUOTAS; i++) {
        all->quotas[i].lines_max =
            i == RECEIVE_QUOTA_SESSIONS ? RECEIVE_SESSION_LINES : RECEIVE_LIMIT_LINES;
    }
    all->quota_timer = evtimer_new(role->base, on_quota_timer, all);
    CHECK(all->quota_timer != NULL);
    buf_init(&all->text, LOG_LINE_MAX);
    buf_init(&all->line, LOG_LINE_MAX);
    buf_init(&all->trace, WIRE_TRACE_MAX);
    buf_init(&all->trace_rest, WIRE_TRACE_MAX);
}

void receive_sessions_shutdown(struct receive_sessions *all)
{
    struct session *s = LIST_FIRST(&all->list), *next;

    for (; s != NULL; s = next) {
        next = LIST_NEXT(s, next);
        server_shutdown(s->server);
        if (s->phase == PHASE_TALK) {
            talk(s);
        }
    }
}

void receive_sessions_cut(struct receive_sessions *all)
{
    struct session *s;

    while ((s = LIST_FIRST(&all->list)) != NULL) {
        stream_free(s->stream);
        session_free(s);
    }
}

void receive_sessions_fini(struct receive_sessions *all)
{
    receive_sessions_cut(all);
    admission_fini(&all->admission);
    event_free(all->quota_timer);
    streams_free(all->streams);
    buf_fini(&all->text);
    buf_fini(&all->line);
    buf_fini(&all->trace);
    buf_fini(&all->trace_rest);
}

struct receive_origin *receive_origin_new(struct slice url)
{
    struct receive_origin *origin = mem_new(sizeof *origin);

    origin->refs = 1;
    origin->url = mem_copy(url.ptr, url.len);
    origin->lmtp = slice_starts(url, SLICE("lmtp:"));
    return origin;
}

void receive_origin_unref(struct receive_origin *origin)
{
    if (--origin->refs == 0) {
        mem_free(origin->url);
        mem_free(origin);
    }
}
