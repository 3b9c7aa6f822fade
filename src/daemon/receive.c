/*
 * Phases of a session, apart from those of its protocol engine:
 *
 *   TALK      the engine is asked what is next whenever there is input, room for output or a
 * deadline ASKED     the queue process has a question of ours (submission or ETRN, `token`) DELAYED
 * the client waits by our wish TLS_DUE   the reply to STARTTLS is going out HANDSHAKE then this
 *   CLOSING   the last words are going out
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
#include "receive.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "draft.h"
#include "hash.h"
#include "header.h"
#include "log.h"
#include "match.h"
#include "mem.h"
#include "receive_settings.h"
#include "route.h"
#include "server.h"
#include "stream.h"

/* Connections accepted in a row before others get their turn. */
#define ACCEPTS_PER_TURN 32
/* When descriptors or memory have run out, accept again after this. */
#define ACCEPT_AGAIN_S 1
/* Bytes on their way to the queue process beyond which no new mail is taken. */
#define QUEUE_WAITING_MAX (CHANNEL_OUTPUT_MAX / 4)
/* How long a client may take to read the last words. */
#define LAST_WORDS_US (10 * US_PER_S)
#define STATUS_MAX    12 /* of an enhanced status code, NUL included */

#define NO_MEMORY                                                                                  \
    ((struct server_reply){452, "4.3.1", SLICE("Insufficient memory, try again later")})

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

/* A listening socket; lives on without it while sessions name it. */
struct listener {
    struct receive *r;
    unsigned refs;
    char *url;
    bool lmtp;
    int fd; /* -1: closed */
    struct event *event;
    LIST_ENTRY(listener) next;
};

/* An address that clients come from; lives while it has sessions. */
struct client {
    unsigned char ip[16];
    uint64_t sessions;
    UT_hash_handle hh;
};

struct session {
    struct receive *r;
    struct receive_settings *settings;
    struct listener *listener;
    struct client *client; /* NULL: a Unix socket */
    struct stream *stream;
    struct server *server;
    LIST_ENTRY(session) next;
    uint64_t token;    /* of the question in ASKED, else 0 */
    UT_hash_handle hh; /* by token */
    enum phase phase;
    enum stage stage;
    bool asked_etrn; /* what the question in ASKED is */
    bool may_relay;
    bool ended;          /* nothing more comes from the client */
    const char *refused; /* why the engine refused content, until it is logged */
    struct draft draft;
    struct wall arrived;
    uint32_t message_rcpts; /* of the message in ASKED */
    uint64_t errors_paid;   /* errors that the client has waited for, or need not */
    unsigned greetings;
    char ip[INET6_ADDRSTRLEN];
    char text[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
};

struct receive {
    struct role *role;
    struct streams *streams;
    struct receive_settings *settings; /* for new sessions */
    struct channel *queue;             /* NULL: there is no queue process now */
    struct wire_flow flow;
    LIST_HEAD(, listener) listeners;
    LIST_HEAD(, session) sessions;
    uint64_t session_count;
    struct session *asked; /* hash by token */
    struct client *clients;
    uint64_t last_token;
    struct draft_budget budget;
    struct event *accept_again;
    struct event *stop_timer;
    struct buf text; /* scratch, like the next three */
    struct buf line;
    struct buf trace;
    struct buf trace_rest;
};

/* ---- names for the log ------------------------------------------------------------------------
 */

static bool is_unknown(const struct session *s)
{
    return slice_starts(slice_string(s->text), SLICE("unknown"));
}

/* Clients are not looked up in the DNS. Those on Unix sockets are shown like Postfix shows them. */
static void name_client(struct session *s, const struct sockaddr *addr)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const unsigned char loopback6[16] = {[15] = 1};
    unsigned char ip[16];
    const char *name = "localhost";

    if (ip_of_sockaddr(addr, ip)) {
        bool v4 = memcmp(ip, mapped, sizeof mapped) == 0;

        CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + sizeof mapped : ip, s->ip,
                        sizeof s->ip) != NULL);
        if (!(v4 && ip[12] == 127) && memcmp(ip, loopback6, sizeof ip) != 0) {
            name = "unknown";
        }
    } else {
        (void)snprintf(s->ip, sizeof s->ip, "127.0.0.1");
    }
    (void)snprintf(s->text, sizeof s->text, "%s[%s]", name, s->ip); /* fits by its size */
}

/* Postfix's word, which knows neither TLS nor UTF-8. */
static const char *log_protocol(const struct session *s)
{
    if (s->listener->lmtp) {
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
    struct buf *line = &s->r->line;

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
    struct buf *text = &s->r->text;
    uint64_t good = stats.errors > stats.commands ? 0 : stats.commands - stats.errors;

    buf_clear(text);
    add_count(text, s->listener->lmtp ? "lhlo" : "ehlo", s->greetings, s->greetings);
    add_count(text, "starttls", server_tls(s->server).len > 0, server_tls(s->server).len > 0);
    add_count(text, "mail", stats.mails, stats.mails);
    add_count(text, "rcpt", stats.rcpts, stats.rcpts + stats.rcpts_refused);
    add_count(text, "data", stats.messages, stats.messages);
    add_count(text, "quit", stats.quit, stats.quit);
    add_count(text, "commands", good, stats.commands);
    log_info("disconnect from %s%s", s->text, buf_cstr(text));
}

/* ---- the life of a session --------------------------------------------------------------------
 */

static void listener_close(struct listener *l)
{
    if (l->fd >= 0) {
        LIST_REMOVE(l, next);
        event_free(l->event);
        (void)close(l->fd); /* a socket: nothing to lose */
        l->fd = -1;
    }
}

static void listener_unref(struct listener *l)
{
    if (--l->refs == 0) {
        listener_close(l);
        mem_free(l->url);
        mem_free(l);
    }
}

static struct client *client_get(struct receive *r, const unsigned char ip[16])
{
    struct client *client;

    HASH_FIND(hh, r->clients, ip, sizeof client->ip, client);
    if (client == NULL) {
        client = mem_new(sizeof *client);
        memcpy(client->ip, ip, sizeof client->ip);
        HASH_ADD(hh, r->clients, ip, sizeof client->ip, client);
    }
    return client;
}

static void client_leave(struct receive *r, struct client *client)
{
    if (client != NULL && --client->sessions == 0) {
        HASH_DEL(r->clients, client);
        mem_free(client);
    }
}

static void forget_question(struct session *s)
{
    if (s->token != 0) {
        HASH_DEL(s->r->asked, s);
        s->token = 0;
    }
}

/* The stream has been freed or given away. */
static void session_free(struct session *s)
{
    struct receive *r = s->r;

    log_disconnect(s);
    forget_question(s);
    LIST_REMOVE(s, next);
    r->session_count--;
    client_leave(r, s->client);
    server_free(s->server);
    draft_drop(&s->draft);
    receive_settings_unref(s->settings);
    listener_unref(s->listener);
    mem_free(s);
    if (r->role->stopping && r->session_count == 0) {
        role_exit(r->role, 0);
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

/* ---- questions to the queue process -----------------------------------------------------------
 */

/* May mail of `size` bytes come? Code 0: yes. */
static struct server_reply room_for(const struct receive *r, uint64_t size)
{
    if (r->queue == NULL) {
        return (struct server_reply){451, "4.3.0",
                                     SLICE("Queue is not available, try again later")};
    }
    if (!r->flow.storage_ok) {
        return (struct server_reply){451, "4.3.0", SLICE("Mail storage failed, try again later")};
    }
    if (!r->flow.space_ok || size > r->flow.free_bytes) {
        return (struct server_reply){452, "4.3.1", SLICE("Insufficient system storage")};
    }
    if (size >= r->budget.max - r->budget.used || channel_waiting(r->queue) > QUEUE_WAITING_MAX) {
        return NO_MEMORY;
    }
    return SERVER_ACCEPT;
}

/* Wait for the answer; until then nothing is read from the client. */
static void ask(struct session *s, bool etrn)
{
    s->token = ++s->r->last_token;
    HASH_ADD(hh, s->r->asked, token, sizeof s->token, s);
    s->asked_etrn = etrn;
    s->phase = PHASE_ASKED;
}

static void ask_etrn(struct session *s, struct slice domain)
{
    s->stage = STAGE_ETRN;
    if (s->r->queue == NULL) {
        server_answer(s->server,
                      (struct server_reply){458, NULL, SLICE("Unable to queue messages")});
        return;
    }
    ask(s, true);
    wire_put_etrn(s->r->queue, &(struct wire_etrn){.token = s->token, .domain = domain});
}

/* The Received: header, with a hole for the queue id. */
static struct slice make_trace(struct session *s)
{
    struct receive *r = s->r;
    struct wall now = clock_wall();
    struct header_trace trace = {
        .helo = server_helo(s->server),
        .client_name = is_unknown(s) ? SLICE("") : SLICE("localhost"),
        .client_ip = slice_string(s->ip),
        .protocol = server_protocol(s->server),
        .tls = server_tls(s->server),
        .hostname = slice_string(s->settings->hostname),
        .recipient = draft_rcpts(&s->draft) == 1 ? draft_first_rcpt(&s->draft) : SLICE(""),
        .time = now,
        .utc_offset_minutes = clock_zone(now) / 60,
    };

    buf_clear(&r->trace);
    buf_clear(&r->trace_rest);
    CHECK(header_received(&trace, &r->trace, &r->trace_rest)); /* all parts have limits */
    buf_add(&r->trace, SLICE("\1"));
    CHECK(buf_add(&r->trace, buf_slice(&r->trace_rest)));
    return buf_slice(&r->trace);
}

/* Give the engine the verdict on a message; LMTP wants it once for each recipient. */
static void answer_message(struct session *s, const struct server_reply *reply)
{
    struct server_reply *replies;

    if (!s->listener->lmtp) {
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
    struct receive *r = s->r;
    struct server_reply reply = room_for(r, 0);
    struct wire_submit m = {
        .flags = message->flags,
        .arrived = s->arrived,
        .client = slice_string(s->text),
        .origin = slice_string(s->listener->url),
    };

    s->stage = STAGE_END;
    s->message_rcpts = message->recipients;
    if (r->queue != NULL && !draft_finish(&s->draft)) {
        reply = NO_MEMORY;
    } else if (r->queue != NULL && r->flow.storage_ok) {
        /* Other shortages may have come up meanwhile, but the message is here and is charged. */
        reply = SERVER_ACCEPT;
    }
    if (reply.code != 0) {
        refuse_message(s, &reply);
        return;
    }
    ask(s, false);
    m.token = s->token;
    m.trace = make_trace(s);
    draft_submit(&s->draft, r->queue, &m);
}

/* ---- what the engine asks and reports ---------------------------------------------------------
 */

static void on_mail(struct session *s, const struct server_mail *mail)
{
    struct server_reply reply = room_for(s->r, mail->size);

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

/* "5.1.1 text" -> code and text; "text" counts as 5.1.1. */
static struct slice split_error(struct slice text, char status[STATUS_MAX])
{
    size_t blank = slice_find(text, ' ');
    struct slice first = slice_of(text.ptr, blank), rest = first, part;
    unsigned long long number;
    int parts = 0;

    (void)snprintf(status, STATUS_MAX, "5.1.1");
    while (rest.ptr != NULL && parts < 4) {
        part = slice_cut(&rest, '.');
        if (part.len > 3 || !slice_number(part, 999, &number) ||
            (parts == 0 && number != 4 && number != 5)) {
            return text;
        }
        parts++;
    }
    if (parts != 3) {
        return text;
    }
    (void)snprintf(status, STATUS_MAX, "%.*s", SLICE_ARGS(first)); /* 9 characters at most */
    return slice_trim(slice_skip(text, blank));
}

/* May this client send to this recipient? Code 0: yes. The text is in r->text, the status in
 * `status`. */
static struct server_reply judge(struct session *s, struct slice rcpt, char status[STATUS_MAX])
{
    const struct conf *conf = s->r->role->conf;
    const struct conf_transport *transport;
    struct slice domain = route_domain(rcpt);
    struct buf *text = &s->r->text;
    struct server_reply reply = {554, "5.7.1", {NULL, 0}};
    struct route route;

    buf_clear(text);
    buf_addf(text, "<%.*s>: ", SLICE_ARGS(rcpt));
    if (!s->may_relay && domain.len > 0 && !route_accepts_domain(conf, domain)) {
        buf_add_string(text, "Relay access denied");
        reply.text = buf_slice(text);
        return reply;
    }
    route_address(conf, rcpt, &route);
    transport = conf_transport_find(conf, slice_string(route.transport));
    if (transport == NULL) {
        log_warning("transport %s of recipient <%.*s> is not declared", route.transport,
                    SLICE_ARGS(rcpt));
        buf_add_string(text, "Server configuration error");
        reply = (struct server_reply){451, "4.3.5", buf_slice(text)};
        return reply;
    }
    if (transport->policy.agent == CONF_AGENT_ERROR) {
        struct slice why = split_error(slice_string(route.nexthop), status);

        buf_addf(text, "Recipient address rejected: %.*s", SLICE_ARGS(why));
        reply = (struct server_reply){status[0] == '4' ? 450 : 550, status, buf_slice(text)};
        return reply;
    }
    return SERVER_ACCEPT;
}

static void on_rcpt(struct session *s, const struct server_rcpt *rcpt)
{
    char status[STATUS_MAX];
    struct server_reply reply = judge(s, rcpt->recipient, status);

    s->stage = STAGE_RCPT;
    if (reply.code == 0 && !draft_add_rcpt(&s->draft, rcpt->recipient, rcpt->orcpt, rcpt->notify)) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        log_reply(s, &reply, draft_sender(&s->draft), rcpt->recipient);
    }
    server_answer(s->server, reply);
}

static void on_data(struct session *s)
{
    struct server_reply reply = room_for(s->r, 0);

    s->stage = STAGE_DATA;
    if (reply.code == 0 && s->draft.failed) {
        reply = NO_MEMORY;
    }
    if (reply.code != 0) {
        log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    server_answer(s->server, reply);
}

static void on_helo(struct session *s)
{
    s->greetings++;
    if (s->listener->lmtp) {
        s->stage = STAGE_LHLO;
    } else {
        s->stage = strcmp(server_protocol(s->server), "SMTP") == 0 ? STAGE_HELO : STAGE_EHLO;
    }
}

/* The transaction is off. If the engine refused the content by itself this is the only news of it;
 * if the session ends, SERVER_CLOSE follows with the same reason. */
static void on_abort(struct session *s, const char *reason)
{
    s->refused = s->stage == STAGE_DATA ? reason : NULL;
}

static void log_abort(struct session *s, const struct server_event *event)
{
    if (s->refused == NULL) {
        return;
    }
    if (event->type != SERVER_CLOSE || event->reason != s->refused) {
        s->stage = STAGE_END;
        log_refusal(s, draft_sender(&s->draft), slice_of(NULL, 0), s->refused);
    }
    s->refused = NULL;
}

static void on_close(struct session *s, const char *reason)
{
    s->phase = PHASE_CLOSING;
    if (!server_stats(s->server).quit) {
        log_info("%s after %s from %s",
                 slice_starts(slice_string(reason), SLICE("timeout")) ? "timeout" : reason,
                 stage_names[s->stage], s->text);
    }
}

/* Act on an event. True: ask the engine for the next one. Does not free the session. */
static bool act(struct session *s, const struct server_event *event)
{
    if (event->type != SERVER_ABORT) {
        log_abort(s, event);
    }
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
        (void)draft_add_content(&s->draft, event->content); /* submit looks at what came of it */
        return true;
    case SERVER_MESSAGE:
        submit(s, &event->message);
        return true;
    case SERVER_ABORT:
        on_abort(s, event->reason);
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

/* ---- driving the engine -----------------------------------------------------------------------
 */

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
    case PHASE_ASKED:
        stream_pause(s->stream, true);
        stream_set_deadline(s->stream, mono_after(clock_mono(), s->settings->answer_us));
        return;
    case PHASE_TLS_DUE:
        stream_set_deadline(s->stream, mono_after(clock_mono(), LAST_WORDS_US));
        if (sent) {
            s->phase = PHASE_HANDSHAKE;
            stream_set_deadline(s->stream,
                                mono_after(clock_mono(), s->settings->smtp.limits.command_us));
            stream_start_tls(s->stream, s->settings->tls, NULL);
        }
        return;
    case PHASE_CLOSING:
        stream_set_deadline(s->stream, mono_after(clock_mono(), LAST_WORDS_US));
        if (sent) {
            session_close(s);
        }
        return;
    case PHASE_DELAYED:
    case PHASE_HANDSHAKE:
        return;
    }
}

static void talk(struct session *s)
{
    struct slice input = stream_input(s->stream), in = input;
    struct server_event event;

    do {
        server_next(s->server, clock_mono(), &in, &event);
    } while (act(s, &event));
    stream_consume(s->stream, input.len - in.len);
    wait_for_more(s);
}

/* Out of ASKED or DELAYED. */
static void go_on(struct session *s)
{
    s->phase = PHASE_TALK;
    stream_pause(s->stream, false);
    talk(s);
}

/* End the session, whatever it is doing. */
static void hang_up(struct session *s)
{
    server_hangup(s->server, lost_connection);
    go_on(s);
}

/* ---- answers of the queue process -------------------------------------------------------------
 */

/* The fate of the message in ASKED is known, or will never be. */
static void message_decided(struct session *s, const struct server_reply *reply)
{
    forget_question(s);
    draft_drop(&s->draft);
    answer_message(s, reply);
    if (s->r->flow.behind && s->settings->flow_delay_us > 0) {
        stream_flush(s->stream, server_output(s->server));
        delay(s, s->settings->flow_delay_us);
        return;
    }
    go_on(s);
}

static void no_answer(struct session *s)
{
    const struct server_reply reply = {451, "4.3.0",
                                       SLICE("Queue is not available, try again later")};

    if (s->asked_etrn) {
        forget_question(s);
        server_answer(s->server,
                      (struct server_reply){458, NULL, SLICE("Unable to queue messages")});
        go_on(s);
        return;
    }
    log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    message_decided(s, &reply);
}

static struct session *find_asked(struct receive *r, uint64_t token, bool etrn)
{
    struct session *s;

    HASH_FIND(hh, r->asked, &token, sizeof token, s);
    return s == NULL || s->asked_etrn != etrn ? NULL : s;
}

static bool submit_done(struct receive *r, struct slice body)
{
    struct wire_submit_done done;
    struct server_reply reply;
    struct session *s;
    char status[STATUS_MAX];

    if (!wire_get_submit_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = find_asked(r, done.token, false);
    if (s == NULL) {
        if (done.code / 100 == 2) {
            log_warning("%.*s: the queue's answer came too late, the client may send again",
                        SLICE_ARGS(done.id));
        }
        return true;
    }
    (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(done.status)); /* cut at most */
    reply = (struct server_reply){done.code, status, done.text};
    if (done.code / 100 == 2) {
        log_info("%.*s: client=%s", SLICE_ARGS(done.id), s->text);
    } else {
        log_reply(s, &reply, draft_sender(&s->draft), slice_of(NULL, 0));
    }
    message_decided(s, &reply);
    return true;
}

static bool etrn_done(struct receive *r, struct slice body)
{
    struct wire_etrn_done done;
    struct session *s;

    if (!wire_get_etrn_done(body, &done) ||
        (done.code / 100 != 2 && done.code / 100 != 4 && done.code / 100 != 5)) {
        return false;
    }
    s = find_asked(r, done.token, true);
    if (s != NULL) {
        forget_question(s);
        server_answer(s->server, (struct server_reply){done.code, NULL, done.text});
        go_on(s);
    }
    return true;
}

static bool queue_frame(struct receive *r, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_SUBMIT_DONE:
        return submit_done(r, frame->body);
    case WIRE_ETRN_DONE:
        return etrn_done(r, frame->body);
    case WIRE_FLOW:
        return wire_get_flow(frame->body, &r->flow);
    default:
        return false;
    }
}

static void queue_lost(struct receive *r)
{
    struct session *s, *next;

    channel_free(r->queue);
    r->queue = NULL;
    HASH_ITER(hh, r->asked, s, next)
    {
        no_answer(s);
    }
}

static void on_queue(void *arg, struct channel *ch)
{
    struct receive *r = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* no frame to us has one */
        }
        if (!queue_frame(r, &frame)) {
            log_error("the queue process sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        queue_lost(r);
    }
}

/* ---- events of the connection -----------------------------------------------------------------
 */

static void secured(struct session *s)
{
    struct buf *text = &s->r->text;

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
        server_hangup(s->server, "timeout");
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

/* ---- accepting --------------------------------------------------------------------------------
 */

/* Say no without a session. */
static void turn_away(int fd, const struct buf *words)
{
    struct slice text = buf_slice(words);

    /* The client may have gone, or not read; it has been told as well as can be. */
    (void)send(fd, text.ptr, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd); /* a socket: nothing to lose */
}

/* Is there room for another session? If not the client is told so, and fd is closed. */
static bool admit(struct session *s, int fd)
{
    struct receive *r = s->r;
    struct buf *text = &r->text;
    const char *service = s->listener->lmtp ? "lmtp" : "smtp";

    buf_clear(text);
    if (r->session_count >= s->settings->sessions_max) {
        log_warning("too many sessions: %llu; %s is turned away",
                    (unsigned long long)r->session_count, s->text);
        buf_addf(text, "421 4.3.2 %s Error: too many connections\r\n", s->settings->hostname);
    } else if (s->client != NULL && s->client->sessions > s->settings->client_sessions_max) {
        log_warning("Connection concurrency limit exceeded: %llu from %s for service %s",
                    (unsigned long long)s->client->sessions, s->text, service);
        buf_addf(text, "421 4.7.0 %s Error: too many connections from %s\r\n",
                 s->settings->hostname, s->ip);
    } else {
        return true;
    }
    turn_away(fd, text);
    return false;
}

static void session_begin(struct receive *r, struct listener *listener, int fd,
                          const struct sockaddr *addr)
{
    struct session *s = mem_new(sizeof *s);
    unsigned char ip[16];
    bool lmtp = listener->lmtp;

    s->r = r;
    s->listener = listener;
    s->settings = r->settings;
    name_client(s, addr);
    s->may_relay = true;
    if (ip_of_sockaddr(addr, ip)) {
        s->client = client_get(r, ip);
        s->client->sessions++;
        s->may_relay = network_list_match(&r->role->conf->relay_networks, addr);
    }
    if (!admit(s, fd)) {
        client_leave(r, s->client);
        mem_free(s);
        return;
    }
    listener->refs++;
    (void)receive_settings_ref(s->settings); /* the same pointer */
    draft_init(&s->draft, &r->budget, s->settings->inline_max);
    s->server = server_new(lmtp ? &s->settings->lmtp : &s->settings->smtp, clock_mono());
    s->stream = stream_new(r->streams, fd, on_stream, s);
    LIST_INSERT_HEAD(&r->sessions, s, next);
    r->session_count++;
    log_info("connect from %s", s->text);
    talk(s);
}

static void set_accepting(struct receive *r, bool on)
{
    struct listener *l;

    LIST_FOREACH(l, &r->listeners, next)
    {
        CHECK((on ? event_add(l->event, NULL) : event_del(l->event)) == 0);
    }
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    set_accepting(arg, true);
}

/* Connections wait in the kernel meanwhile; without this pause the loop would spin. */
static void pause_accepting(struct receive *r, int error)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_AGAIN_S};

    log_warning("accept: %s; the next try is in %d s", strerror(error), ACCEPT_AGAIN_S);
    set_accepting(r, false);
    CHECK(event_add(r->accept_again, &pause) == 0);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct listener *l = arg;

    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        int client = accept4(fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (client >= 0) {
            session_begin(l->r, l, client, (struct sockaddr *)&addr);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(l->r, errno);
            return;
        } /* else this one client has trouble */
    }
}

/* ---- the role ---------------------------------------------------------------------------------
 */

static void use_settings(struct receive *r)
{
    receive_settings_unref(r->settings);
    r->settings = receive_settings_new(r->role);
    r->budget.max = r->settings->memory_max;
    if (r->budget.max < r->budget.used) {
        r->budget.max = r->budget.used; /* until the next reload; what is here is here */
    }
}

static void close_all(struct receive *r)
{
    struct session *s;

    while ((s = LIST_FIRST(&r->sessions)) != NULL) {
        stream_free(s->stream);
        session_free(s);
    }
}

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct receive *r = arg;

    (void)fd;
    (void)what;
    close_all(r);
    role_exit(r->role, 0);
}

static int receive_start(struct role *role)
{
    struct receive *r = mem_new(sizeof *r);

    role->state = r;
    r->role = role;
    r->streams = streams_new(role->base);
    r->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    LIST_INIT(&r->listeners);
    LIST_INIT(&r->sessions);
    r->accept_again = evtimer_new(role->base, on_accept_again, r);
    r->stop_timer = evtimer_new(role->base, on_stop_timer, r);
    CHECK(r->accept_again != NULL);
    CHECK(r->stop_timer != NULL);
    buf_init(&r->text, LOG_LINE_MAX);
    buf_init(&r->line, LOG_LINE_MAX);
    buf_init(&r->trace, WIRE_TRACE_MAX);
    buf_init(&r->trace_rest, WIRE_TRACE_MAX);
    use_settings(r);
    return 0;
}

static void receive_listener(struct role *role, struct slice url, int fd)
{
    struct receive *r = role->state;
    struct listener *l = mem_new(sizeof *l);

    CHECK(evutil_make_socket_nonblocking(fd) == 0);
    l->r = r;
    l->refs = 1;
    l->url = mem_copy(url.ptr, url.len);
    l->lmtp = slice_starts(url, SLICE("lmtp:"));
    l->fd = fd;
    l->event = event_new(role->base, fd, EV_READ | EV_PERSIST, on_accept, l);
    CHECK(l->event != NULL);
    CHECK(event_add(l->event, NULL) == 0);
    LIST_INSERT_HEAD(&r->listeners, l, next);
}

static void receive_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct receive *r = role->state;

    if (peer->role != ROLE_QUEUE) {
        (void)close(fd); /* not a neighbour of ours */
        return;
    }
    if (r->queue != NULL) {
        queue_lost(r);
    }
    r->flow = (struct wire_flow){.storage_ok = true, .space_ok = true, .free_bytes = UINT64_MAX};
    r->queue = channel_new(role->base, fd, on_queue, r);
}

static bool is_listed(const struct conf_list *urls, const char *url)
{
    for (size_t i = 0; i < urls->count; i++) {
        if (strcmp(urls->items[i], url) == 0) {
            return true;
        }
    }
    return false;
}

/* Listeners that are no longer wanted (all of them: NULL) close; their sessions go on. */
static void close_listeners(struct receive *r, const struct conf_list *wanted)
{
    struct listener *l = LIST_FIRST(&r->listeners), *next;

    for (; l != NULL; l = next) {
        next = LIST_NEXT(l, next);
        if (wanted == NULL || !is_listed(wanted, l->url)) {
            listener_close(l);
            listener_unref(l);
        }
    }
}

static void receive_reload(struct role *role, const struct conf *old)
{
    struct receive *r = role->state;

    (void)old;
    use_settings(r);
    close_listeners(r, &role->conf->listen);
}

static void receive_stop(struct role *role)
{
    struct receive *r = role->state;
    struct session *s = LIST_FIRST(&r->sessions), *next;
    int64_t wait_us = RECEIVE_STOP_US < role->conf->shutdown_timeout_us
                          ? RECEIVE_STOP_US
                          : role->conf->shutdown_timeout_us;
    struct timeval wait = {.tv_sec = wait_us / US_PER_S, .tv_usec = wait_us % US_PER_S};

    close_listeners(r, NULL);
    CHECK(event_del(r->accept_again) == 0);
    if (r->session_count == 0) {
        role_exit(role, 0);
        return;
    }
    CHECK(event_add(r->stop_timer, &wait) == 0);
    for (; s != NULL; s = next) {
        next = LIST_NEXT(s, next);
        server_shutdown(s->server);
        if (s->phase == PHASE_TALK) {
            talk(s);
        }
    }
}

static void receive_clock_moved(struct role *role)
{
    struct receive *r = role->state;

    streams_clock_moved(r->streams);
}

static void receive_end(struct role *role)
{
    struct receive *r = role->state;

    close_all(r);
    close_listeners(r, NULL);
    channel_free(r->queue);
    streams_free(r->streams);
    receive_settings_unref(r->settings);
    event_free(r->accept_again);
    event_free(r->stop_timer);
    buf_fini(&r->text);
    buf_fini(&r->line);
    buf_fini(&r->trace);
    buf_fini(&r->trace_rest);
    mem_free(r);
}

const struct role_ops receive_role = {
    .role = ROLE_RECEIVE,
    .program = "smtpd",
    .start = receive_start,
    .listener = receive_listener,
    .peer = receive_peer,
    .reload = receive_reload,
    .stop = receive_stop,
    .clock_moved = receive_clock_moved,
    .end = receive_end,
};
