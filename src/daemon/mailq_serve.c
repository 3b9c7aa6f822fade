#include "mailq_serve.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mailq_server.h"
#include "mailq_text.h"
#include "mem.h"
#include "stream.h"

/* Messages, and recipients of each, in one page of a listing. */
#define PAGE_MESSAGES 50
#define PAGE_RCPTS    200
/* Version 1 lists every vertex, then for each channel and host the numbers of its vertices. With
 * more messages than this it lists none, as ZMailer's does with -Q. */
#define DUMP_MESSAGES_MAX 5000
#define DUMP_VERTICES_MAX 50000      /* listed; of more, the oldest messages' */
#define AGENTS_MAX        1000       /* of one thread that are shown */
#define NOBODY            UINT64_MAX /* in place of a question's name: the queue process is away */

struct mailq_listener {
    TAILQ_ENTRY(mailq_listener) next;
    struct mailq_service *service;
    struct event *event;
    char *url;
    int fd;
};

/* Of the dump of version 1: whose vertex has which number. */
struct dumped {
    char *channel, *host; /* owned */
    uint32_t key;
};

/* A client. */
struct mailq_session {
    TAILQ_ENTRY(mailq_session) next;
    struct mailq_service *service;
    struct stream *stream;
    struct mailq_server *server;
    struct buf in;
    uint64_t asked;               /* the question under way, or 0 */
    enum mailq_question question; /* what is being answered */
    bool answering;
    enum { PART_COUNT, PART_VERTICES, PART_THREADS, PART_TOTALS } part;
    char *channel, *host; /* owned; of the question */
    char *after;          /* owned; the last message of the page before */
    json_int_t cursor;
    struct mailq_ring ring; /* the one whose threads are being listed; its channel: */
    char *ring_channel;     /* owned; NULL: none yet */
    struct mailq_totals totals;
    struct dumped *dumped; /* owned */
    size_t dumped_count;
    size_t changed; /* messages, by a change */
};

struct mailq_service {
    struct role *role;
    struct control *control;
    struct streams *streams;
    struct mailq_auth *auth; /* NULL: version 1 */
    TAILQ_HEAD(, mailq_listener) listeners;
    TAILQ_HEAD(, mailq_session) sessions;
    unsigned session_count, challenge_count;
    struct wall started;
};

static void session_go(struct mailq_session *s);
static void session_free(struct mailq_session *s);
static void end_answer(struct mailq_session *s);

/* ---- JSON ----------------------------------------------------------------------------------- */

static struct slice text_of(const json_t *object, const char *name)
{
    return slice_string(json_string_value(json_object_get(object, name)));
}

/* A count or a time; 0 when it is not there. What does not fit is the most that does. */
static uint32_t count_of(const json_t *object, const char *name)
{
    double value = json_number_value(json_object_get(object, name));

    return value <= 0 ? 0 : value >= UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static int64_t seconds_of(const json_t *object, const char *name)
{
    double value = json_number_value(json_object_get(object, name));

    return value < -1e15  ? INT64_C(-1000000000000000)
           : value > 1e15 ? INT64_C(1000000000000000)
                          : (int64_t)value;
}

/* ---- threads -------------------------------------------------------------------------------- */

static void put(struct mailq_session *s, struct buf *lines)
{
    mailq_server_lines(s->server, buf_slice(lines));
    buf_clear(lines);
}

static bool shows_threads(const struct mailq_session *s)
{
    return s->question == MAILQ_ASK_THREADS || s->question == MAILQ_ASK_DUMP;
}

static bool shows_rings(const struct mailq_session *s)
{
    return s->question == MAILQ_ASK_RINGS || shows_threads(s);
}

/* The line that ends the threads of a ring. */
static void end_ring(struct mailq_session *s, struct buf *out)
{
    if (s->ring_channel != NULL && shows_rings(s)) {
        mailq_put_ring_totals(out, &s->ring);
    }
    mem_free(s->ring_channel);
    s->ring_channel = NULL;
}

static void begin_ring(struct mailq_session *s, struct slice channel, struct buf *out)
{
    const struct conf_transport *t = conf_transport_find(s->service->role->conf, channel);

    s->ring_channel = mem_copy(channel.ptr, channel.len);
    s->ring = (struct mailq_ring){
        .channel = slice_string(s->ring_channel),
        .host = SLICE("*"),
        .ring_limit = t != NULL ? (uint32_t)t->policy.process_limit : 0,
        .feed_limit = t != NULL ? (uint32_t)t->policy.destination_recipient_limit : 0,
        .thread_limit = t != NULL ? (uint32_t)t->policy.destination_concurrency_limit : 0,
    };
    if (shows_rings(s)) {
        mailq_put_ring_head(out, &s->ring);
    }
}

/* A thread as the queue process tells of it. `agents` has AGENTS_MAX places. */
static void read_thread(const json_t *object, struct mailq_agent *agents, struct mailq_thread *t)
{
    const json_t *flights = json_object_get(object, "flights"), *flight;
    int64_t due_in = seconds_of(object, "due_in"), closed_for = seconds_of(object, "closed_for");
    size_t i;

    *t = (struct mailq_thread){
        .channel = text_of(object, "transport"),
        .host = text_of(object, "nexthop"),
        .vertices = count_of(object, "messages"),
        .recipients = count_of(object, "recipients"),
        .attempts = count_of(object, "attempts"),
        .agents = agents,
        .unfed = count_of(object, "waiting"),
        .wait_s = due_in > closed_for ? due_in : closed_for,
        .oldest_age_s = seconds_of(object, "oldest_age"),
    };
    json_array_foreach(flights, i, flight)
    {
        if (t->agent_count < AGENTS_MAX) {
            agents[t->agent_count++] = (struct mailq_agent){
                .pid = seconds_of(flight, "agent"),
                .hungry_age_s = seconds_of(flight, "age"),
                .fed_age_s = seconds_of(flight, "age"),
                .overfeed = 1,
                .state = MAILQ_STUFF,
            };
        }
    }
    if (t->agent_count == 0 && t->unfed > 0) {
        t->pending = MAILQ_PENDING_CHANNEL;
        t->reason = SLICE(">MaxChannel");
    }
}

static void put_thread(struct mailq_session *s, const json_t *object, struct mailq_agent *agents,
                       struct buf *out)
{
    struct mailq_thread t;

    read_thread(object, agents, &t);
    if (s->ring_channel == NULL || !slice_equal(s->ring.channel, t.channel)) {
        end_ring(s, out);
        begin_ring(s, t.channel, out);
    }
    s->ring.threads++;
    s->ring.vertices += t.vertices;
    s->ring.agents += (uint32_t)t.agent_count;
    s->totals.threads++;
    s->totals.vertices += t.vertices;
    s->totals.rcpts_stored += (int64_t)t.recipients;
    if (shows_threads(s)) {
        mailq_put_thread(out, &t);
    } else if (s->question == MAILQ_ASK_THREAD_FIELDS) {
        mailq_put_thread_fields(out, &t);
    } else if (s->question == MAILQ_ASK_THREAD) {
        mailq_put_thread_head(out, &t);
    }
}

/* One page of them; true when it was the last. */
static bool put_threads(struct mailq_session *s, const json_t *answer, struct buf *out)
{
    struct mailq_agent *agents = mem_array(AGENTS_MAX, sizeof *agents);
    const json_t *thread, *cursor = json_object_get(answer, "cursor");
    size_t i;

    json_array_foreach(json_object_get(answer, "threads"), i, thread)
    {
        put_thread(s, thread, agents, out);
    }
    s->cursor = json_integer_value(cursor);
    if (cursor == NULL) {
        end_ring(s, out);
    }
    mem_free(agents);
    return cursor == NULL;
}

static void put_summary(struct mailq_session *s, const json_t *status, struct buf *out)
{
    struct mailq_totals *t = &s->totals;
    uint64_t stored = (uint64_t)count_of(status, "incoming") + count_of(status, "deferred") +
                      count_of(status, "hold");
    uint64_t submitted = count_of(status, "submitted");

    t->agents = count_of(status, "in_flight");
    t->messages = stored > UINT32_MAX ? UINT32_MAX : (uint32_t)stored;
    t->uptime_s = (clock_wall().us - s->service->started.us) / US_PER_S;
    /* What was there at the start came in, too, as in ZMailer. */
    t->messages_stored = (int64_t)stored;
    t->messages_out = submitted > stored ? submitted - stored : 0;
    t->messages_in = stored + t->messages_out;
    t->rcpts_out = (uint64_t)count_of(status, "delivered") + count_of(status, "bounced");
    t->rcpts_in = t->rcpts_out + (uint64_t)t->rcpts_stored;
    mailq_put_totals(out, t, s->question == MAILQ_ASK_TOTALS);
}

/* ---- recipients ----------------------------------------------------------------------------- */

/* The last reply, lines of it separated by CR as in this protocol. */
static struct slice reply_of(const json_t *rcpt)
{
    struct slice reply = text_of(rcpt, "delay_reason");

    return reply.len > 0 ? reply : text_of(rcpt, "bounce_reason");
}

static bool of_thread(const json_t *rcpt, struct slice channel, struct slice host)
{
    return slice_equal(text_of(rcpt, "state"), SLICE("pending")) &&
           slice_equal(text_of(rcpt, "transport"), channel) &&
           slice_equal_nocase(text_of(rcpt, "nexthop"), host);
}

static void put_rcpts(struct mailq_session *s, const json_t *message, struct buf *out)
{
    int64_t now = clock_wall().us / US_PER_S, next = seconds_of(message, "next_attempt");
    int64_t lifetime = s->service->role->conf->maximal_queue_lifetime_us / US_PER_S;
    const json_t *rcpt;
    uint32_t n = 0;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        if (of_thread(rcpt, slice_string(s->channel), slice_string(s->host))) {
            const struct mailq_rcpt r = {
                .path = text_of(message, "queue_id"),
                .n = n++,
                .error_to = text_of(message, "sender"),
                .offset = (uint64_t)seconds_of(rcpt, "n"),
                .expires_s = seconds_of(message, "created") + lifetime,
                .wake_s = next,
                .last_fed_s = seconds_of(rcpt, "last_attempt"),
                .attempts = count_of(rcpt, "attempts"),
                .retry_in_s = next - now,
                .diagnostic = reply_of(rcpt),
            };

            mailq_put_rcpt(out, &r);
        }
    }
}

static void remember_vertex(struct mailq_session *s, uint32_t key, struct slice channel,
                            struct slice host)
{
    if (s->dumped_count % 64 == 0) {
        s->dumped = mem_resize(s->dumped, s->dumped_count + 64, sizeof *s->dumped);
    }
    s->dumped[s->dumped_count++] = (struct dumped){
        .channel = mem_copy(channel.ptr, channel.len),
        .host = mem_copy(host.ptr, host.len),
        .key = key,
    };
}

/* The vertex that begins with the recipient at `first`; those of it are marked in `seen`. */
static void put_vertex(struct mailq_session *s, const json_t *message, size_t first, bool *seen,
                       struct buf *out)
{
    const json_t *rcpts = json_object_get(message, "recipients");
    const json_t *head = json_array_get(rcpts, first), *rcpt;
    struct slice channel = text_of(head, "transport"), host = text_of(head, "nexthop");
    int64_t now = clock_wall().us / US_PER_S;
    int64_t lifetime = s->service->role->conf->maximal_queue_lifetime_us / US_PER_S;
    uint64_t offsets[PAGE_RCPTS];
    struct mailq_vertex v = {
        .key = (uint32_t)s->dumped_count + 1,
        .path = text_of(message, "queue_id"),
        .offsets = offsets,
        .diagnostic = reply_of(head),
        .retry_in_s = seconds_of(message, "next_attempt") - now,
        .expires = true,
        .expires_in_s = seconds_of(message, "created") + lifetime - now,
        .attempts = count_of(head, "attempts"),
    };
    size_t i;

    json_array_foreach(rcpts, i, rcpt)
    {
        if (i >= first && !seen[i] && v.rcpt_count < PAGE_RCPTS && of_thread(rcpt, channel, host)) {
            seen[i] = true;
            offsets[v.rcpt_count++] = (uint64_t)seconds_of(rcpt, "n");
        }
    }
    mailq_put_vertex(out, &v);
    remember_vertex(s, v.key, channel, host);
}

static void put_vertices(struct mailq_session *s, const json_t *message, struct buf *out)
{
    const json_t *rcpts = json_object_get(message, "recipients"), *rcpt;
    bool *seen = mem_array(json_array_size(rcpts) + 1, sizeof *seen);
    size_t i;

    json_array_foreach(rcpts, i, rcpt)
    {
        if (!seen[i] && s->dumped_count < DUMP_VERTICES_MAX &&
            slice_equal(text_of(rcpt, "state"), SLICE("pending")) &&
            text_of(rcpt, "transport").len > 0) {
            put_vertex(s, message, i, seen, out);
        }
    }
    mem_free(seen);
}

/* One page of messages; true when it was the last. */
static bool put_messages(struct mailq_session *s, const json_t *answer, struct buf *out)
{
    const char *next = json_string_value(json_object_get(answer, "next"));
    const json_t *message;
    size_t i;

    json_array_foreach(json_object_get(answer, "messages"), i, message)
    {
        if (s->question == MAILQ_ASK_THREAD) {
            put_rcpts(s, message, out);
        } else {
            put_vertices(s, message, out);
        }
    }
    mem_free(s->after);
    s->after = next == NULL ? NULL : mem_string(next);
    return next == NULL;
}

static int by_channel(const void *a, const void *b)
{
    const struct dumped *x = a, *y = b;
    int order = strcmp(x->channel, y->channel);

    return order != 0 ? order : x->key < y->key ? -1 : 1;
}

static int by_host(const void *a, const void *b)
{
    const struct dumped *x = a, *y = b;
    int order = strcmp(x->host, y->host);

    return order != 0 ? order : x->key < y->key ? -1 : 1;
}

/* "NAME:\t>1>5" for each channel, or for each host. */
static void put_index(struct mailq_session *s, bool hosts, struct buf *out)
{
    const char *before = NULL;

    qsort(s->dumped, s->dumped_count, sizeof *s->dumped, hosts ? by_host : by_channel);
    (void)buf_add_string(out, hosts ? "Hosts:" : "Channels:");
    for (size_t i = 0; i < s->dumped_count; i++) {
        const char *name = hosts ? s->dumped[i].host : s->dumped[i].channel;

        if (before == NULL || strcmp(name, before) != 0) {
            (void)buf_addf(out, "\n%s:\t", name);
        }
        (void)buf_addf(out, ">%" PRIu32, s->dumped[i].key);
        before = name;
    }
    (void)buf_add_byte(out, '\n');
}

static void end_vertices(struct mailq_session *s, struct buf *out)
{
    if (s->dumped_count > 0) {
        put_index(s, false, out);
        put_index(s, true, out);
    }
    (void)buf_add_string(out, "End:\n");
}

/* ---- counters ------------------------------------------------------------------------------- */

static void put_counters(const struct mailq_session *s, const json_t *status, struct buf *out)
{
    static const struct {
        const char *name, *member;
    } rows[] = {
        {"SC.StoredMessages-G", "active_messages"},
        {"SC.StoredRecipients-G", "active_recipients"},
        {"SC.StoredThreads-G", "active_destinations"},
        {"SC.TransportAgentProcesses-G", "in_flight"},
        {"SC.ReceivedMessages", "submitted"},
        {"SC.RcptsOk", "delivered"},
        {"SC.RcptsRetry", "deferrals"},
        {"SC.RcptsFail", "bounced"},
        {"SC.ExpiredMessages", "expired"},
        {"SC.Reports", "reports"},
    };

    (void)buf_addf(out, "Sluice %s\n%-30s %12" PRId64 "\n%-30s %12" PRId64 "\n\n", SLUICE_VERSION,
                   "Time_now", clock_wall().us / US_PER_S, "SYS.SchedulerMasterStartTime",
                   s->service->started.us / US_PER_S);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)buf_addf(out, "%-30s %12.0f\n", rows[i].name,
                       json_number_value(json_object_get(status, rows[i].member)));
    }
}

/* ---- questions to the queue process --------------------------------------------------------- */

/* Takes what the question needs of an answer; asks on or ends it. */
static void on_answer(void *arg, unsigned status, const json_t *answer);

/* Takes `question`. */
static void ask(struct mailq_session *s, json_t *question)
{
    CHECK(question != NULL);
    s->asked = control_ask(s->service->control, question, on_answer, s);
    if (s->asked == 0) {
        s->asked = NOBODY; /* until the deadline, which is now */
        stream_set_deadline(s->stream, clock_mono());
    }
}

static json_t *filter_of_thread(const struct mailq_session *s)
{
    struct buf name;
    json_t *filter;

    buf_init(&name, (size_t)2 * MAILQ_LINE_MAX + 2);
    (void)buf_addf(&name, "%s%s%s", s->channel, s->channel[0] == '\0' ? "" : "/",
                   s->host); /* fits: both come from one line */
    filter =
        json_pack("{s:o}", "destination", json_stringn(buf_slice(&name).ptr, buf_slice(&name).len));
    buf_fini(&name);
    return filter != NULL ? filter : json_pack("{s:s}", "destination", "/"); /* not UTF-8 */
}

static json_t *list_question(const struct mailq_session *s, json_t *filter)
{
    json_t *question = json_pack("{s:s, s:i, s:i, s:o}", "op", "list", "max", PAGE_MESSAGES,
                                 "recipients", PAGE_RCPTS, "filter", filter);

    CHECK(question != NULL);
    if (s->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(s->after)) == 0);
    }
    return question;
}

/* Names with bytes that are not UTF-8 are those of no thread. */
static void name_thread(const struct mailq_session *s, json_t *question)
{
    json_t *channel = json_string(s->channel), *host = json_string(s->host);

    CHECK(json_object_set_new(question, "transport", channel != NULL ? channel : json_string("")) ==
          0);
    CHECK(json_object_set_new(question, "nexthop", host != NULL ? host : json_string("")) == 0);
}

/* The next page. */
static void ask_next(struct mailq_session *s)
{
    json_t *question;

    switch (s->part) {
    case PART_COUNT:
        ask(s, json_pack("{s:s, s:{}}", "op", "count", "filter"));
        break;
    case PART_VERTICES:
        ask(s, list_question(s, s->question == MAILQ_ASK_THREAD ? filter_of_thread(s)
                                                                : json_object()));
        break;
    case PART_THREADS:
        question = json_pack("{s:s, s:I}", "op", "threads", "cursor", s->cursor);
        if (s->question == MAILQ_ASK_THREAD) {
            name_thread(s, question);
        }
        ask(s, question);
        break;
    case PART_TOTALS:
        ask(s, json_pack("{s:s}", "op", "status"));
        break;
    }
}

/* One page of a change. */
static void ask_change(struct mailq_session *s)
{
    static const char *const ops[] = {
        [MAILQ_ASK_ETRN] = "flush",
        [MAILQ_ASK_REROUTE] = "requeue",
    };
    json_t *question;

    if (s->question == MAILQ_ASK_KILL_THREAD) {
        s->part = PART_VERTICES;
        ask(s, list_question(s, filter_of_thread(s)));
        return;
    }
    question = json_pack("{s:s, s:o}", "op", ops[s->question], "filter", filter_of_thread(s));
    CHECK(question != NULL);
    if (s->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(s->after)) == 0);
    }
    ask(s, question);
}

/* Is all that is pending of the message for this thread? Only then can the message go: the mail of
 * other recipients is not what was to be killed. */
static bool only_for_thread(const struct mailq_session *s, const json_t *message)
{
    const json_t *rcpt;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        if (slice_equal(text_of(rcpt, "state"), SLICE("pending")) &&
            !of_thread(rcpt, slice_string(s->channel), slice_string(s->host))) {
            return false;
        }
    }
    return json_object_get(message, "next_recipient") == NULL;
}

/* Delete what a page lists. */
static void begin_kill(struct mailq_session *s, const json_t *page)
{
    const char *next = json_string_value(json_object_get(page, "next"));
    json_t *ids = json_array();
    const json_t *message;
    size_t i;

    json_array_foreach(json_object_get(page, "messages"), i, message)
    {
        const char *id = json_string_value(json_object_get(message, "queue_id"));

        if (only_for_thread(s, message)) {
            CHECK(json_array_append_new(ids, json_string(id)) == 0);
        } else {
            log_info("%s: not killed: it has recipients elsewhere", id);
        }
    }
    mem_free(s->after);
    s->after = next == NULL ? NULL : mem_string(next);
    s->part = PART_THREADS; /* the second step of a page */
    ask(s, json_pack("{s:s, s:o}", "op", "delete", "ids", ids));
}

/* A thread that is not named in full is none. */
static bool names_thread(const struct mailq_session *s)
{
    return s->channel[0] != '\0' && s->host[0] != '\0';
}

static void begin_change(struct mailq_session *s, const struct mailq_event *event)
{
    static const char *const words[] = {
        [MAILQ_ASK_ETRN] = "ETRN",
        [MAILQ_ASK_KILL_MSG] = "KILL MSG",
        [MAILQ_ASK_KILL_THREAD] = "KILL THREAD",
        [MAILQ_ASK_REROUTE] = "REROUTE",
    };
    json_t *id;

    log_info("mailq: %.*s: %s %.*s%.*s %.*s", SLICE_ARGS(event->user), words[event->question],
             SLICE_ARGS(event->id), SLICE_ARGS(event->channel), SLICE_ARGS(event->host));
    s->changed = 0;
    if (event->question == MAILQ_ASK_KILL_MSG) {
        id = json_stringn(event->id.ptr, event->id.len);
        ask(s, json_pack("{s:s, s:[o]}", "op", "delete", "ids", id != NULL ? id : json_string("")));
    } else if (s->host[0] != '\0') {
        ask_change(s);
    } else {
        mailq_server_verdict(s->server, false);
        end_answer(s);
    }
}

/* Begin to answer. */
static void begin_answer(struct mailq_session *s, const struct mailq_event *event)
{
    s->answering = true;
    s->question = event->question;
    s->channel = mem_copy(event->channel.ptr, event->channel.len);
    s->host = mem_copy(event->host.ptr, event->host.len);
    s->totals = (struct mailq_totals){0};
    s->cursor = 0;
    switch (event->question) {
    case MAILQ_ASK_DUMP:
        mailq_server_lines(s->server, SLICE("Vertices:\n"));
        s->part = PART_COUNT;
        ask_next(s);
        return;
    case MAILQ_ASK_THREAD:
        s->part = PART_THREADS;
        if (names_thread(s)) {
            ask_next(s);
        } else {
            mailq_server_done(s->server);
            end_answer(s);
        }
        return;
    case MAILQ_ASK_TOTALS:
    case MAILQ_ASK_RINGS:
    case MAILQ_ASK_THREADS:
    case MAILQ_ASK_THREAD_FIELDS:
        s->part = PART_THREADS;
        ask_next(s);
        return;
    case MAILQ_ASK_COUNTERS:
        s->part = PART_TOTALS;
        ask_next(s);
        return;
    case MAILQ_ASK_ETRN:
    case MAILQ_ASK_KILL_MSG:
    case MAILQ_ASK_KILL_THREAD:
    case MAILQ_ASK_REROUTE:
        begin_change(s, event);
        return;
    }
}

/* ---- answers of the queue process ----------------------------------------------------------- */

static void end_answer(struct mailq_session *s)
{
    s->answering = false;
    mem_free(s->channel);
    mem_free(s->host);
    mem_free(s->after);
    mem_free(s->ring_channel);
    for (size_t i = 0; i < s->dumped_count; i++) {
        mem_free(s->dumped[i].channel);
        mem_free(s->dumped[i].host);
    }
    mem_free(s->dumped);
    s->channel = s->host = s->after = s->ring_channel = NULL;
    s->dumped = NULL;
    s->dumped_count = 0;
}

static void take_change(struct mailq_session *s, const json_t *answer)
{
    const char *next = json_string_value(json_object_get(answer, "next"));

    s->changed += json_array_size(json_object_get(answer, "changed"));
    if (s->question == MAILQ_ASK_KILL_THREAD && s->part == PART_VERTICES) {
        begin_kill(s, answer);
        return;
    }
    if (s->question == MAILQ_ASK_KILL_THREAD) {
        next = s->after; /* of the page whose messages were just deleted */
    }
    if (next == NULL) {
        mailq_server_verdict(s->server, s->changed > 0);
        end_answer(s);
    } else {
        next = mem_string(next);
        mem_free(s->after);
        s->after = (char *)(uintptr_t)next;
        ask_change(s);
    }
}

/* What comes after a part whose last page has been put. */
static void end_part(struct mailq_session *s, struct buf *out)
{
    if (s->part == PART_VERTICES && s->question == MAILQ_ASK_DUMP) {
        end_vertices(s, out);
        s->part = PART_THREADS;
    } else if (s->part == PART_THREADS && s->question == MAILQ_ASK_THREAD) {
        s->part = PART_VERTICES;
    } else if (s->part == PART_THREADS && s->question != MAILQ_ASK_THREAD_FIELDS) {
        s->part = PART_TOTALS;
    } else {
        put(s, out);
        mailq_server_done(s->server);
        end_answer(s);
    }
}

static void take_list(struct mailq_session *s, const json_t *answer)
{
    bool last = true;
    struct buf out;

    buf_init(&out, (size_t)64 << 20);
    switch (s->part) {
    case PART_COUNT:
        if (json_integer_value(json_object_get(answer, "count")) <= DUMP_MESSAGES_MAX) {
            s->part = PART_VERTICES;
        } else {
            end_vertices(s, &out);
            s->part = PART_THREADS;
        }
        last = false;
        break;
    case PART_VERTICES:
        last = put_messages(s, answer, &out);
        break;
    case PART_THREADS:
        last = put_threads(s, answer, &out);
        break;
    case PART_TOTALS:
        if (s->question == MAILQ_ASK_COUNTERS) {
            put_counters(s, answer, &out);
        } else {
            put_summary(s, answer, &out);
        }
        break;
    }
    if (last) {
        end_part(s, &out);
    }
    if (s->answering) {
        put(s, &out);
    }
    buf_fini(&out);
}

static void on_answer(void *arg, unsigned status, const json_t *answer)
{
    struct mailq_session *s = arg;

    s->asked = 0;
    if (status != 200) {
        /* The protocol has no words for that; a list that is cut off is better than a lie. */
        log_warning("mailq: the queue process did not answer (%u)", status);
        session_free(s);
        return;
    }
    if (s->question >= MAILQ_ASK_ETRN) {
        take_change(s, answer);
    } else {
        take_list(s, answer);
    }
    session_go(s);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static void session_free(struct mailq_session *s)
{
    struct mailq_service *service = s->service;

    if (s->asked != 0 && s->asked != NOBODY) {
        control_forget(service->control, s->asked);
    }
    end_answer(s);
    TAILQ_REMOVE(&service->sessions, s, next);
    service->session_count--;
    stream_free(s->stream);
    mailq_server_free(s->server);
    buf_fini(&s->in);
    mem_free(s);
}

static void take_input(struct mailq_session *s)
{
    struct slice input = stream_input(s->stream);
    size_t room = 2 * MAILQ_LINE_MAX - buf_len(&s->in);

    if (input.len > room) {
        input.len = room;
    }
    if (buf_add(&s->in, input)) {
        stream_consume(s->stream, input.len);
    }
}

/* Send what is left, then close in good order. Frees the session when that is done. */
static void session_close(struct mailq_session *s)
{
    struct stream *stream = s->stream;

    stream_flush(stream, mailq_server_output(s->server));
    if (buf_len(mailq_server_output(s->server)) == 0) {
        s->stream = NULL;
        session_free(s);
        stream_finish(stream);
    }
}

/* Move on as far as it goes. May free the session. */
static void session_go(struct mailq_session *s)
{
    struct mailq_event event;

    for (;;) {
        stream_flush(s->stream, mailq_server_output(s->server));
        if (s->answering && s->asked == 0 && !mailq_server_is_full(s->server)) {
            ask_next(s);
        }
        if (s->answering || buf_len(mailq_server_output(s->server)) > 0) {
            return; /* the answer, or STREAM_WRITABLE, goes on */
        }
        take_input(s);
        mailq_server_next(s->server, &s->in, &event);
        if (event.type == MAILQ_ASK) {
            begin_answer(s, &event);
        } else if (event.type == MAILQ_CLOSE) {
            session_close(s);
            return;
        } else if (event.type == MAILQ_NEED_INPUT && stream_input(s->stream).len == 0 &&
                   buf_len(mailq_server_output(s->server)) == 0) {
            return;
        }
    }
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct mailq_session *s = arg;

    (void)stream;
    switch (event) {
    case STREAM_END:
        take_input(s);
        mailq_server_input_ended(s->server);
        session_go(s);
        break;
    case STREAM_READABLE:
    case STREAM_WRITABLE:
        session_go(s);
        break;
    default: /* STREAM_DEADLINE, STREAM_FAILED */
        session_free(s);
        break;
    }
}

/* ---- the service ---------------------------------------------------------------------------- */

static struct mailq_peer peer_of(const struct sockaddr_storage *addr)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
    struct mailq_peer peer = mailq_peer_local;

    if (addr->ss_family == AF_INET) {
        memcpy(peer.address, &in->sin_addr, 4);
    } else if (addr->ss_family == AF_INET6) {
        peer.len = 16;
        memcpy(peer.address, &in6->sin6_addr, 16);
    }
    return peer;
}

/* 24 random letters. */
static void make_nonce(char nonce[25])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bytes[24];

    CHECK(getrandom(bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        nonce[i] = letters[bytes[i] & 63];
    }
    nonce[24] = '\0';
}

static struct mailq_server *new_server(struct mailq_service *service,
                                       const struct sockaddr_storage *addr)
{
    struct mailq_peer peer = peer_of(addr);
    int64_t now = clock_wall().us;
    char moment[80], nonce[25];

    if (service->auth == NULL) {
        return mailq_server_new_v1();
    }
    make_nonce(nonce);
    (void)snprintf(moment, sizeof moment, "%" PRId64 ".%" PRId64 ".%u", now / US_PER_S,
                   now % US_PER_S, ++service->challenge_count); /* fits */
    return mailq_server_new(service->auth, &peer, moment, nonce);
}

static void session_begin(struct mailq_service *service, int fd,
                          const struct sockaddr_storage *addr)
{
    struct mailq_session *s;

    if (service->session_count >= MAILQ_SESSIONS_MAX) {
        log_warning("mailq: more than %d sessions at once, one is refused", MAILQ_SESSIONS_MAX);
        (void)close(fd); /* nothing was sent */
        return;
    }
    s = mem_new(sizeof *s);
    s->service = service;
    s->server = new_server(service, addr);
    s->stream = stream_new(service->streams, fd, on_stream, s);
    stream_set_deadline(s->stream, mono_after(clock_mono(), MAILQ_SESSION_S * US_PER_S));
    buf_init(&s->in, 4 * MAILQ_LINE_MAX);
    TAILQ_INSERT_TAIL(&service->sessions, s, next);
    service->session_count++;
    session_go(s);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct mailq_listener *l = arg;
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    int client = accept4(fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)what;
    if (client >= 0) {
        session_begin(l->service, client, &addr);
    } /* else that client has gone; the others come in the next turns */
}

static void listener_free(struct mailq_listener *l)
{
    TAILQ_REMOVE(&l->service->listeners, l, next);
    event_free(l->event);
    (void)close(l->fd); /* only listened */
    mem_free(l->url);
    mem_free(l);
}

void mailq_service_listen(struct mailq_service *service, struct slice url, int fd)
{
    struct mailq_listener *l = mem_new(sizeof *l);

    l->service = service;
    l->fd = fd;
    l->url = mem_copy(url.ptr, url.len);
    l->event = event_new(service->role->base, fd, EV_READ | EV_PERSIST, on_accept, l);
    CHECK(l->event != NULL && evutil_make_socket_nonblocking(fd) == 0 &&
          event_add(l->event, NULL) == 0);
    TAILQ_INSERT_TAIL(&service->listeners, l, next);
}

static void load_auth(struct mailq_service *service)
{
    const char *path = service->role->conf->authfile;
    struct slice text, rest;
    struct buf problems;

    mailq_auth_free(service->auth);
    service->auth = NULL;
    if (path[0] == '\0') {
        return;
    }
    buf_init(&problems, 65536);
    text = role_file(service->role, slice_string(path));
    service->auth = mailq_auth_parse(path, text, &problems);
    rest = buf_slice(&problems);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        log_warning("%.*s; the line is ignored", SLICE_ARGS(line));
    }
    buf_fini(&problems);
}

/* Sessions hold on to entries of the auth file: those of the old one end. */
static void end_sessions(struct mailq_service *service)
{
    struct mailq_session *s;

    while ((s = TAILQ_FIRST(&service->sessions)) != NULL) {
        session_free(s);
    }
}

struct mailq_service *mailq_service_new(struct role *role, struct control *control)
{
    struct mailq_service *service = mem_new(sizeof *service);

    service->role = role;
    service->control = control;
    service->streams = streams_new(role->base);
    service->started = clock_wall();
    TAILQ_INIT(&service->listeners);
    TAILQ_INIT(&service->sessions);
    load_auth(service);
    return service;
}

void mailq_service_reload(struct mailq_service *service)
{
    struct mailq_listener *l, *next;
    const char *wanted = service->role->conf->mailqsock;

    end_sessions(service);
    load_auth(service);
    for (l = TAILQ_FIRST(&service->listeners); l != NULL; l = next) {
        next = TAILQ_NEXT(l, next);
        if (strcmp(l->url + strlen("mailq:"), wanted) != 0) {
            listener_free(l);
        }
    }
}

void mailq_service_free(struct mailq_service *service)
{
    struct mailq_listener *l;

    if (service == NULL) {
        return;
    }
    end_sessions(service);
    while ((l = TAILQ_FIRST(&service->listeners)) != NULL) {
        listener_free(l);
    }
    streams_free(service->streams);
    mailq_auth_free(service->auth);
    mem_free(service);
}
