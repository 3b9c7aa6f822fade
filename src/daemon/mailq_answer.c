#include "mailq_answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mailq_text.h"
#include "mem.h"

/* Messages, and recipients of each, in one page of a listing. */
#define PAGE_MESSAGES 50
#define PAGE_RCPTS    200
/* Version 1 lists every vertex, then for each channel and host the numbers of its vertices. With
 * more messages than this it lists none, as ZMailer's does with -Q. */
#define DUMP_MESSAGES_MAX 5000
#define DUMP_VERTICES_MAX 50000 /* listed; of more, the oldest messages' */
#define AGENTS_MAX        1000  /* of one thread that are shown */

/* Of the dump of version 1: whose vertex has which number. */
struct dumped {
    char *channel, *host; /* owned */
    uint32_t key;
};

struct mailq_answer {
    struct role *role;
    struct control *control;
    struct wall started;
    struct mailq_server *server;
    mailq_answer_progress *progress;
    void *arg;
    bool busy;      /* something is being answered */
    bool lost;      /* nobody can answer it any more */
    uint64_t asked; /* the question under way, or 0 */
    enum mailq_question question;
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

static void end_answer(struct mailq_answer *a);

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

static void put(struct mailq_answer *a, struct buf *lines)
{
    mailq_server_lines(a->server, buf_slice(lines));
    buf_clear(lines);
}

static bool shows_threads(const struct mailq_answer *a)
{
    return a->question == MAILQ_ASK_THREADS || a->question == MAILQ_ASK_DUMP;
}

static bool shows_rings(const struct mailq_answer *a)
{
    return a->question == MAILQ_ASK_RINGS || shows_threads(a);
}

/* The line that ends the threads of a ring. */
static void end_ring(struct mailq_answer *a, struct buf *out)
{
    if (a->ring_channel != NULL && shows_rings(a)) {
        mailq_put_ring_totals(out, &a->ring);
    }
    mem_free(a->ring_channel);
    a->ring_channel = NULL;
}

static void begin_ring(struct mailq_answer *a, struct slice channel, struct buf *out)
{
    const struct conf_transport *t = conf_transport_find(a->role->conf, channel);

    a->ring_channel = mem_copy(channel.ptr, channel.len);
    a->ring = (struct mailq_ring){
        .channel = slice_string(a->ring_channel),
        .host = SLICE("*"),
        .ring_limit = t != NULL ? (uint32_t)t->policy.process_limit : 0,
        .feed_limit = t != NULL ? (uint32_t)t->policy.destination_recipient_limit : 0,
        .thread_limit = t != NULL ? (uint32_t)t->policy.destination_concurrency_limit : 0,
    };
    if (shows_rings(a)) {
        mailq_put_ring_head(out, &a->ring);
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

static void put_thread(struct mailq_answer *a, const json_t *object, struct mailq_agent *agents,
                       struct buf *out)
{
    struct mailq_thread t;

    read_thread(object, agents, &t);
    if (a->ring_channel == NULL || !slice_equal(a->ring.channel, t.channel)) {
        end_ring(a, out);
        begin_ring(a, t.channel, out);
    }
    a->ring.threads++;
    a->ring.vertices += t.vertices;
    a->ring.agents += (uint32_t)t.agent_count;
    a->totals.threads++;
    a->totals.vertices += t.vertices;
    a->totals.rcpts_stored += (int64_t)t.recipients;
    if (shows_threads(a)) {
        mailq_put_thread(out, &t);
    } else if (a->question == MAILQ_ASK_THREAD_FIELDS) {
        mailq_put_thread_fields(out, &t);
    } else if (a->question == MAILQ_ASK_THREAD) {
        mailq_put_thread_head(out, &t);
    }
}

/* One page of them; true when it was the last. */
static bool put_threads(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    struct mailq_agent *agents = mem_array(AGENTS_MAX, sizeof *agents);
    const json_t *thread, *cursor = json_object_get(answer, "cursor");
    size_t i;

    json_array_foreach(json_object_get(answer, "threads"), i, thread)
    {
        put_thread(a, thread, agents, out);
    }
    a->cursor = json_integer_value(cursor);
    if (cursor == NULL) {
        end_ring(a, out);
    }
    mem_free(agents);
    return cursor == NULL;
}

static void put_summary(struct mailq_answer *a, const json_t *status, struct buf *out)
{
    struct mailq_totals *t = &a->totals;
    uint64_t stored = (uint64_t)count_of(status, "incoming") + count_of(status, "deferred") +
                      count_of(status, "hold");
    uint64_t submitted = count_of(status, "submitted");

    t->agents = count_of(status, "in_flight");
    t->messages = stored > UINT32_MAX ? UINT32_MAX : (uint32_t)stored;
    t->uptime_s = (clock_wall().us - a->started.us) / US_PER_S;
    /* What was there at the start came in, too, as in ZMailer. */
    t->messages_stored = (int64_t)stored;
    t->messages_out = submitted > stored ? submitted - stored : 0;
    t->messages_in = stored + t->messages_out;
    t->rcpts_out = (uint64_t)count_of(status, "delivered") + count_of(status, "bounced");
    t->rcpts_in = t->rcpts_out + (uint64_t)t->rcpts_stored;
    mailq_put_totals(out, t, a->question == MAILQ_ASK_TOTALS);
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

static void put_rcpts(struct mailq_answer *a, const json_t *message, struct buf *out)
{
    int64_t now = clock_wall().us / US_PER_S, next = seconds_of(message, "next_attempt");
    int64_t lifetime = a->role->conf->maximal_queue_lifetime_us / US_PER_S;
    const json_t *rcpt;
    uint32_t n = 0;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        if (of_thread(rcpt, slice_string(a->channel), slice_string(a->host))) {
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

static void remember_vertex(struct mailq_answer *a, uint32_t key, struct slice channel,
                            struct slice host)
{
    if (a->dumped_count % 64 == 0) {
        a->dumped = mem_resize(a->dumped, a->dumped_count + 64, sizeof *a->dumped);
    }
    a->dumped[a->dumped_count++] = (struct dumped){
        .channel = mem_copy(channel.ptr, channel.len),
        .host = mem_copy(host.ptr, host.len),
        .key = key,
    };
}

/* The vertex that begins with the recipient at `first`; those of it are marked in `seen`. */
static void put_vertex(struct mailq_answer *a, const json_t *message, size_t first, bool *seen,
                       struct buf *out)
{
    const json_t *rcpts = json_object_get(message, "recipients");
    const json_t *head = json_array_get(rcpts, first), *rcpt;
    struct slice channel = text_of(head, "transport"), host = text_of(head, "nexthop");
    int64_t now = clock_wall().us / US_PER_S;
    int64_t lifetime = a->role->conf->maximal_queue_lifetime_us / US_PER_S;
    uint64_t offsets[PAGE_RCPTS];
    struct mailq_vertex v = {
        .key = (uint32_t)a->dumped_count + 1,
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
    remember_vertex(a, v.key, channel, host);
}

static void put_vertices(struct mailq_answer *a, const json_t *message, struct buf *out)
{
    const json_t *rcpts = json_object_get(message, "recipients"), *rcpt;
    bool *seen = mem_array(json_array_size(rcpts) + 1, sizeof *seen);
    size_t i;

    json_array_foreach(rcpts, i, rcpt)
    {
        if (!seen[i] && a->dumped_count < DUMP_VERTICES_MAX &&
            slice_equal(text_of(rcpt, "state"), SLICE("pending")) &&
            text_of(rcpt, "transport").len > 0) {
            put_vertex(a, message, i, seen, out);
        }
    }
    mem_free(seen);
}

/* One page of messages; true when it was the last. */
static bool put_messages(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    const char *next = json_string_value(json_object_get(answer, "next"));
    const json_t *message;
    size_t i;

    json_array_foreach(json_object_get(answer, "messages"), i, message)
    {
        if (a->question == MAILQ_ASK_THREAD) {
            put_rcpts(a, message, out);
        } else {
            put_vertices(a, message, out);
        }
    }
    mem_free(a->after);
    a->after = next == NULL ? NULL : mem_string(next);
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
static void put_index(struct mailq_answer *a, bool hosts, struct buf *out)
{
    const char *before = NULL;

    qsort(a->dumped, a->dumped_count, sizeof *a->dumped, hosts ? by_host : by_channel);
    (void)buf_add_string(out, hosts ? "Hosts:" : "Channels:");
    for (size_t i = 0; i < a->dumped_count; i++) {
        const char *name = hosts ? a->dumped[i].host : a->dumped[i].channel;

        if (before == NULL || strcmp(name, before) != 0) {
            (void)buf_addf(out, "\n%s:\t", name);
        }
        (void)buf_addf(out, ">%" PRIu32, a->dumped[i].key);
        before = name;
    }
    (void)buf_add_byte(out, '\n');
}

static void end_vertices(struct mailq_answer *a, struct buf *out)
{
    if (a->dumped_count > 0) {
        put_index(a, false, out);
        put_index(a, true, out);
    }
    (void)buf_add_string(out, "End:\n");
}

/* ---- counters ------------------------------------------------------------------------------- */

static void put_counters(const struct mailq_answer *a, const json_t *status, struct buf *out)
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
                   a->started.us / US_PER_S);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)buf_addf(out, "%-30s %12.0f\n", rows[i].name,
                       json_number_value(json_object_get(status, rows[i].member)));
    }
}

/* ---- questions to the queue process --------------------------------------------------------- */

/* Takes what the question needs of an answer; asks on or ends it. */
static void on_answer(void *arg, unsigned status, const json_t *answer);

/* Takes `question`. */
static void ask(struct mailq_answer *a, json_t *question)
{
    CHECK(question != NULL);
    a->asked = control_ask(a->control, question, on_answer, a);
    a->lost = a->asked == 0;
}

static json_t *filter_of_thread(const struct mailq_answer *a)
{
    struct buf name;
    json_t *filter;

    buf_init(&name, (size_t)2 * MAILQ_LINE_MAX + 2);
    (void)buf_addf(&name, "%s%s%s", a->channel, a->channel[0] == '\0' ? "" : "/",
                   a->host); /* fits: both come from one line */
    filter =
        json_pack("{s:o}", "destination", json_stringn(buf_slice(&name).ptr, buf_slice(&name).len));
    buf_fini(&name);
    return filter != NULL ? filter : json_pack("{s:s}", "destination", "/"); /* not UTF-8 */
}

static json_t *list_question(const struct mailq_answer *a, json_t *filter)
{
    json_t *question = json_pack("{s:s, s:i, s:i, s:o}", "op", "list", "max", PAGE_MESSAGES,
                                 "recipients", PAGE_RCPTS, "filter", filter);

    CHECK(question != NULL);
    if (a->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(a->after)) == 0);
    }
    return question;
}

/* Names with bytes that are not UTF-8 are those of no thread. */
static void name_thread(const struct mailq_answer *a, json_t *question)
{
    json_t *channel = json_string(a->channel), *host = json_string(a->host);

    CHECK(json_object_set_new(question, "transport", channel != NULL ? channel : json_string("")) ==
          0);
    CHECK(json_object_set_new(question, "nexthop", host != NULL ? host : json_string("")) == 0);
}

/* The next page. */
static void ask_next(struct mailq_answer *a)
{
    json_t *question;

    switch (a->part) {
    case PART_COUNT:
        ask(a, json_pack("{s:s, s:{}}", "op", "count", "filter"));
        break;
    case PART_VERTICES:
        ask(a, list_question(a, a->question == MAILQ_ASK_THREAD ? filter_of_thread(a)
                                                                : json_object()));
        break;
    case PART_THREADS:
        question = json_pack("{s:s, s:I}", "op", "threads", "cursor", a->cursor);
        if (a->question == MAILQ_ASK_THREAD) {
            name_thread(a, question);
        }
        ask(a, question);
        break;
    case PART_TOTALS:
        ask(a, json_pack("{s:s}", "op", "status"));
        break;
    }
}

/* One page of a change. */
static void ask_change(struct mailq_answer *a)
{
    static const char *const ops[] = {
        [MAILQ_ASK_ETRN] = "flush",
        [MAILQ_ASK_REROUTE] = "requeue",
    };
    json_t *question;

    if (a->question == MAILQ_ASK_KILL_THREAD) {
        a->part = PART_VERTICES;
        ask(a, list_question(a, filter_of_thread(a)));
        return;
    }
    question = json_pack("{s:s, s:o}", "op", ops[a->question], "filter", filter_of_thread(a));
    CHECK(question != NULL);
    if (a->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(a->after)) == 0);
    }
    ask(a, question);
}

/* Is all that is pending of the message for this thread? Only then can the message go: the mail of
 * other recipients is not what was to be killed. */
static bool only_for_thread(const struct mailq_answer *a, const json_t *message)
{
    const json_t *rcpt;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        if (slice_equal(text_of(rcpt, "state"), SLICE("pending")) &&
            !of_thread(rcpt, slice_string(a->channel), slice_string(a->host))) {
            return false;
        }
    }
    return json_object_get(message, "next_recipient") == NULL;
}

/* Delete what a page lists. */
static void begin_kill(struct mailq_answer *a, const json_t *page)
{
    const char *next = json_string_value(json_object_get(page, "next"));
    json_t *ids = json_array();
    const json_t *message;
    size_t i;

    json_array_foreach(json_object_get(page, "messages"), i, message)
    {
        const char *id = json_string_value(json_object_get(message, "queue_id"));

        if (only_for_thread(a, message)) {
            CHECK(json_array_append_new(ids, json_string(id)) == 0);
        } else {
            log_info("%s: not killed: it has recipients elsewhere", id);
        }
    }
    mem_free(a->after);
    a->after = next == NULL ? NULL : mem_string(next);
    a->part = PART_THREADS; /* the second step of a page */
    ask(a, json_pack("{s:s, s:o}", "op", "delete", "ids", ids));
}

/* A thread that is not named in full is none. */
static bool names_thread(const struct mailq_answer *a)
{
    return a->channel[0] != '\0' && a->host[0] != '\0';
}

static void begin_change(struct mailq_answer *a, const struct mailq_event *event)
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
    a->changed = 0;
    if (event->question == MAILQ_ASK_KILL_MSG) {
        id = json_stringn(event->id.ptr, event->id.len);
        ask(a, json_pack("{s:s, s:[o]}", "op", "delete", "ids", id != NULL ? id : json_string("")));
    } else if (a->host[0] != '\0') {
        ask_change(a);
    } else {
        mailq_server_verdict(a->server, false);
        end_answer(a);
    }
}

void mailq_answer_begin(struct mailq_answer *a, const struct mailq_event *event)
{
    a->busy = true;
    a->question = event->question;
    a->channel = mem_copy(event->channel.ptr, event->channel.len);
    a->host = mem_copy(event->host.ptr, event->host.len);
    a->totals = (struct mailq_totals){0};
    a->cursor = 0;
    switch (event->question) {
    case MAILQ_ASK_DUMP:
        mailq_server_lines(a->server, SLICE("Vertices:\n"));
        a->part = PART_COUNT;
        ask_next(a);
        break;
    case MAILQ_ASK_THREAD:
        a->part = PART_THREADS;
        if (names_thread(a)) {
            ask_next(a);
        } else {
            mailq_server_done(a->server);
            end_answer(a);
        }
        break;
    case MAILQ_ASK_TOTALS:
    case MAILQ_ASK_RINGS:
    case MAILQ_ASK_THREADS:
    case MAILQ_ASK_THREAD_FIELDS:
        a->part = PART_THREADS;
        ask_next(a);
        break;
    case MAILQ_ASK_COUNTERS:
        a->part = PART_TOTALS;
        ask_next(a);
        break;
    case MAILQ_ASK_ETRN:
    case MAILQ_ASK_KILL_MSG:
    case MAILQ_ASK_KILL_THREAD:
    case MAILQ_ASK_REROUTE:
        begin_change(a, event);
        break;
    }
}

/* ---- answers of the queue process ----------------------------------------------------------- */

static void end_answer(struct mailq_answer *a)
{
    a->busy = false;
    mem_free(a->channel);
    mem_free(a->host);
    mem_free(a->after);
    mem_free(a->ring_channel);
    for (size_t i = 0; i < a->dumped_count; i++) {
        mem_free(a->dumped[i].channel);
        mem_free(a->dumped[i].host);
    }
    mem_free(a->dumped);
    a->channel = a->host = a->after = a->ring_channel = NULL;
    a->dumped = NULL;
    a->dumped_count = 0;
}

static void take_change(struct mailq_answer *a, const json_t *answer)
{
    const char *next = json_string_value(json_object_get(answer, "next"));

    a->changed += json_array_size(json_object_get(answer, "changed"));
    if (a->question == MAILQ_ASK_KILL_THREAD && a->part == PART_VERTICES) {
        begin_kill(a, answer);
        return;
    }
    if (a->question == MAILQ_ASK_KILL_THREAD) {
        next = a->after; /* of the page whose messages were just deleted */
    }
    if (next == NULL) {
        mailq_server_verdict(a->server, a->changed > 0);
        end_answer(a);
    } else {
        next = mem_string(next);
        mem_free(a->after);
        a->after = (char *)(uintptr_t)next;
        ask_change(a);
    }
}

/* What comes after a part whose last page has been put. */
static void end_part(struct mailq_answer *a, struct buf *out)
{
    if (a->part == PART_VERTICES && a->question == MAILQ_ASK_DUMP) {
        end_vertices(a, out);
        a->part = PART_THREADS;
    } else if (a->part == PART_THREADS && a->question == MAILQ_ASK_THREAD) {
        a->part = PART_VERTICES;
    } else if (a->part == PART_THREADS && a->question != MAILQ_ASK_THREAD_FIELDS) {
        a->part = PART_TOTALS;
    } else {
        put(a, out);
        mailq_server_done(a->server);
        end_answer(a);
    }
}

static void take_list(struct mailq_answer *a, const json_t *answer)
{
    bool last = true;
    struct buf out;

    buf_init(&out, (size_t)64 << 20);
    switch (a->part) {
    case PART_COUNT:
        if (json_integer_value(json_object_get(answer, "count")) <= DUMP_MESSAGES_MAX) {
            a->part = PART_VERTICES;
        } else {
            end_vertices(a, &out);
            a->part = PART_THREADS;
        }
        last = false;
        break;
    case PART_VERTICES:
        last = put_messages(a, answer, &out);
        break;
    case PART_THREADS:
        last = put_threads(a, answer, &out);
        break;
    case PART_TOTALS:
        if (a->question == MAILQ_ASK_COUNTERS) {
            put_counters(a, answer, &out);
        } else {
            put_summary(a, answer, &out);
        }
        break;
    }
    if (last) {
        end_part(a, &out);
    }
    if (a->busy) {
        put(a, &out);
    }
    buf_fini(&out);
}

static void on_answer(void *arg, unsigned status, const json_t *answer)
{
    struct mailq_answer *a = arg;

    a->asked = 0;
    if (status != 200) {
        /* The protocol has no words for that; a list that is cut off is better than a lie. */
        log_warning("mailq: the queue process did not answer (%u)", status);
        a->lost = true;
        a->progress(a->arg);
        return;
    }
    if (a->question >= MAILQ_ASK_ETRN) {
        take_change(a, answer);
    } else {
        take_list(a, answer);
    }
    a->progress(a->arg);
}

/* ---- its life ------------------------------------------------------------------------------- */

bool mailq_answer_go_on(struct mailq_answer *a)
{
    if (a->busy && a->asked == 0 && !a->lost && !mailq_server_is_full(a->server)) {
        ask_next(a);
    }
    return !a->lost;
}

bool mailq_answer_is_busy(const struct mailq_answer *a)
{
    return a->busy;
}

struct mailq_answer *mailq_answer_new(struct role *role, struct control *control,
                                      struct wall started, struct mailq_server *server,
                                      mailq_answer_progress *progress, void *arg)
{
    struct mailq_answer *a = mem_new(sizeof *a);

    a->role = role;
    a->control = control;
    a->started = started;
    a->server = server;
    a->progress = progress;
    a->arg = arg;
    return a;
}

void mailq_answer_free(struct mailq_answer *a)
{
    if (a->asked != 0) {
        control_forget(a->control, a->asked);
    }
    end_answer(a);
    mem_free(a);
}
