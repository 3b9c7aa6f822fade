#include "mailq_answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "log.h"
#include "mailq_dump.h"
#include "mailq_json.h"
#include "mailq_report.h"
#include "mailq_text.h"
#include "mem.h"
#include "zmailer_dialect.h"

/* Messages in one page of a listing, and recipients of each. */
#define PAGE_MESSAGES 200
#define PAGE_RCPTS    500
/* Limit in bytes of lines that are passed on at once. */
#define LINES_MAX ((size_t)256 << 20)

/* Most counters with a value, apart from those of the server's own work. */
#define COUNTERS_KNOWN_MAX 48
/* A counter that the queue process reads from the machine. */
#define OF_MACHINE(counter)                                                                        \
    {                                                                                              \
        counter, mailq_json_count(a->machine, counter)                                             \
    }

struct mailq_answer {
    const struct mailq_facts *facts;
    struct mailq_server *server;
    mailq_answer_progress *progress;
    void *arg;
    bool busy;      /* a question is being answered */
    uint64_t asked; /* id of the outstanding request; 0: none */
    enum mailq_question question;
    enum { PART_VERTICES, PART_THREADS, PART_RINGS, PART_TOTALS } part;
    char *channel, *host; /* owned; channel and host of the question */
    char *after;          /* owned; last message of the previous page */
    char *more_of;        /* owned; message whose other recipients are still missing; NULL: none */
    uint32_t more_after;  /* last recipient of `more_of` that was read */
    uint32_t row;         /* SHOW THREAD: number of recipients of that message that were shown */
    json_t *machine;      /* owned; counters of the machine; NULL: unknown */
    json_t *cursor;       /* owned; position in the list of threads; NULL: its start */
    const json_t *ring;   /* ring of `report` whose threads are requested again; borrowed */
    struct mailq_report *report; /* owned, as `dump` */
    struct mailq_dump *dump;
    struct mailq_totals totals;
    size_t changed;     /* number of messages that a change affected */
    uint64_t under_way; /* recipients that the change left alone */
};

static void end_answer(struct mailq_answer *a);

static void put(struct mailq_answer *a, struct buf *lines)
{
    mailq_server_lines(a->server, buf_slice(lines));
    buf_clear(lines);
}

/* ---- totals --------------------------------------------------------------------------------- */

static void sum_up(struct mailq_answer *a, const json_t *status)
{
    struct mailq_totals *t = &a->totals;
    uint64_t stored = mailq_json_count(status, "incoming") + mailq_json_count(status, "deferred") +
                      mailq_json_count(status, "hold");
    uint64_t submitted = mailq_json_count(status, "submitted");
    uint64_t completed = submitted > stored ? submitted - stored : 0;

    mailq_report_sums(a->report, t);
    if (conf_postoffice(a->facts->role->conf) != NULL) { /* messages of a postoffice are files */
        stored = mailq_json_count(status, "files");
        completed = mailq_json_count(status, "completed");
    }
    t->messages = stored > UINT32_MAX ? UINT32_MAX : (uint32_t)stored;
    t->uptime_s = (clock_wall().us - a->facts->started.us) / US_PER_S;
    /* mail that was there at the start counts as received, as in ZMailer */
    t->messages_stored = (int64_t)stored;
    t->messages_out = completed;
    t->messages_in = stored + t->messages_out;
    t->rcpts_out = mailq_json_count(status, "delivered") + mailq_json_count(status, "bounced");
    t->rcpts_in = t->rcpts_out + (uint64_t)t->rcpts_stored;
}

static void put_counters(const struct mailq_answer *a, const json_t *status, struct buf *out)
{
    const struct mailq_totals *t = &a->totals;
    struct mailq_counter rows[COUNTERS_KNOWN_MAX + MAILQ_COUNTS_ROWS] = {
        {"Time_now", (uint64_t)(clock_wall().us / US_PER_S)},
        {"SYS.SchedulerMasterPID", (uint64_t)a->facts->daemon_pid},
        {"SYS.SchedulerMasterStartTime", (uint64_t)(a->facts->started.us / US_PER_S)},
        {"SYS.SchedulerMasterStarts", 1},
        OF_MACHINE("SYS.Load-Avg-1-min-G"),
        OF_MACHINE("SYS.Load-Avg-5-min-G"),
        OF_MACHINE("SYS.SpoolFreeSpace-kB-G"),
        OF_MACHINE("SYS.SpoolUsedSpace-kB-G"),
        OF_MACHINE("SYS.SpoolFreeFiles-G"),
        OF_MACHINE("SYS.SpoolUsedFiles-G"),
        OF_MACHINE("SYS.TportSpoolFreeSpace-kB-G"),
        OF_MACHINE("SYS.TportSpoolUsedSpace-kB-G"),
        OF_MACHINE("SYS.TportSpoolFreeFiles-G"),
        OF_MACHINE("SYS.TportSpoolUsedFiles-G"),
        OF_MACHINE("SYS.LogFreeSpace-kB-G"),
        OF_MACHINE("SYS.LogUsedSpace-kB-G"),
        OF_MACHINE("SYS.LogFreeFiles-G"),
        OF_MACHINE("SYS.LogUsedFiles-G"),
        {"SC.ReceivedMessages", t->messages_in},
        {"SC.ReceivedRecipients", t->rcpts_in},
        {"SC.TransmittedMessages", t->messages_out},
        {"SC.TransmittedRecipients", t->rcpts_out},
        {"SC.StoredMessages-G", (uint64_t)t->messages_stored},
        {"SC.StoredThreads-G", t->threads},
        {"SC.StoredVertices-G", t->vertices},
        {"SC.StoredRecipients-G", (uint64_t)t->rcpts_stored},
        {"SC.StoredVolume-kB-G", mailq_json_count(status, "bytes") / 1024},
        {"SC.TransportAgentForks", mailq_json_count(status, "agent_starts")},
        {"SC.TransportAgentProcesses-G", t->agents},
        {"SC.TransportAgentsActive-G", t->agents - t->idle},
        {"SC.TransportAgentsIdle-G", t->idle},
    };
    size_t count = 0;

    while (rows[count].name != NULL) {
        count++;
    }
    mailq_counts_rows(&a->facts->counts, rows + count);
    mailq_put_counters(out, rows, count + MAILQ_COUNTS_ROWS);
}

/* ---- recipients ----------------------------------------------------------------------------- */

static bool of_thread(const json_t *rcpt, struct slice channel, struct slice host)
{
    return slice_equal(mailq_json_text(rcpt, "state"), SLICE("pending")) &&
           slice_equal(mailq_json_text(rcpt, "transport"), channel) &&
           slice_equal(mailq_json_text(rcpt, "nexthop"), host);
}

static void put_rcpt(struct mailq_answer *a, const json_t *message, const json_t *rcpt,
                     const json_t *thread, struct buf *out)
{
    int64_t now = clock_wall().us / US_PER_S, lifetime = mailq_json_seconds(thread, "lifetime");
    int64_t wait = mailq_json_wait(thread, message, now);
    int64_t handed = mailq_json_seconds(rcpt, "handed");

    const struct mailq_rcpt r = {
        .path = mailq_json_path(message),
        .n = a->row++,
        .error_to = mailq_json_text(message, "sender"),
        .offset = mailq_json_count(rcpt, "n"),
        .expires_s = lifetime > 0 ? mailq_json_seconds(message, "created") + lifetime : 0,
        .wake_s = wait > 0 ? now + wait : 0,
        .last_fed_s = handed != 0 ? handed : mailq_json_seconds(rcpt, "last_attempt"),
        .attempts = mailq_json_count32(rcpt, "attempts"),
        .retry_in_s = wait,
        .pending = mailq_json_pending(thread),
        .diagnostic = mailq_json_reply(rcpt),
    };
    mailq_put_rcpt(out, &r);
}

static void put_rcpts(struct mailq_answer *a, const json_t *message, const json_t *threads,
                      struct buf *out)
{
    const json_t *rcpt;
    size_t i;

    json_array_foreach(json_object_get(message, "recipients"), i, rcpt)
    {
        const json_t *thread = mailq_json_thread(rcpt, threads);

        if (thread != NULL && of_thread(rcpt, slice_string(a->channel), slice_string(a->host))) {
            put_rcpt(a, message, rcpt, thread, out);
        }
    }
}

static void keep(char **text, const char *value)
{
    char *copy = value == NULL ? NULL : mem_string(value);

    mem_free(*text);
    *text = copy;
}

/* Appends recipients of a message. Returns false if its other recipients must be requested
 * first. */
static bool put_message(struct mailq_answer *a, const json_t *message, const json_t *threads,
                        struct buf *out)
{
    const json_t *next = json_object_get(message, "next_recipient");
    const char *id = json_string_value(json_object_get(message, "queue_id"));

    if (a->question == MAILQ_ASK_THREAD) {
        put_rcpts(a, message, threads, out);
    } else {
        mailq_dump_message(a->dump, message, threads, next == NULL, out);
    }
    if (next == NULL) {
        keep(&a->more_of, NULL);
        a->row = 0;
        return true;
    }
    keep(&a->more_of, id);
    keep(&a->after, id); /* the rest of its page, after this message, is requested again */
    a->more_after = (uint32_t)json_integer_value(next);
    return false;
}

/* Appends a page of messages, or of recipients of one message. Returns true for the last page. */
static bool put_messages(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    const json_t *threads = json_object_get(answer, "threads"), *message;
    bool was_one = a->more_of != NULL;
    size_t i;

    json_array_foreach(json_object_get(answer, "messages"), i, message)
    {
        if (!put_message(a, message, threads, out)) {
            return false;
        }
    }
    if (was_one) {
        return false; /* the list continues after this message */
    }
    keep(&a->after, json_string_value(json_object_get(answer, "next")));
    return a->after == NULL;
}

/* ---- requests to the queue process ----------------------------------------------------------- */

static void put_rings(struct mailq_answer *a);

/* Takes an answer of the queue process; then requests the next page or ends the answer. */
static void on_answer(void *arg, unsigned status, const json_t *answer);

static void fail(struct mailq_answer *a)
{
    mailq_server_failed(a->server);
    end_answer(a);
}

/* Sends `question` to the queue process and frees it. */
static void ask(struct mailq_answer *a, json_t *question)
{
    CHECK(question != NULL);
    a->asked = control_ask(a->facts->control, question, on_answer, a);
    if (a->asked == 0) {
        fail(a);
    }
}

static json_t *filter_of_thread(const struct mailq_answer *a)
{
    struct buf name;
    json_t *filter;

    buf_init(&name, (size_t)2 * MAILQ_LINE_MAX + 2);
    (void)buf_addf(&name, "%s%s%s", a->channel, a->channel[0] == '\0' ? "" : "/",
                   a->host); /* fits: both are words of one line */
    filter =
        json_pack("{s:o}", "destination", json_stringn(buf_slice(&name).ptr, buf_slice(&name).len));
    buf_fini(&name);
    return filter != NULL ? filter : json_pack("{s:s}", "destination", "/"); /* not UTF-8 */
}

static json_t *list_question(const struct mailq_answer *a, json_t *filter)
{
    json_t *question = json_pack("{s:s, s:i, s:i, s:o}", "op", "vertices", "max", PAGE_MESSAGES,
                                 "recipients", PAGE_RCPTS, "filter", filter);

    CHECK(question != NULL);
    if (a->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(a->after)) == 0);
    }
    return question;
}

/* Makes the request for messages, or for more recipients of the last one. */
static json_t *vertices_question(const struct mailq_answer *a)
{
    if (a->more_of != NULL) {
        return json_pack("{s:s, s:s, s:i, s:I}", "op", "vertices", "id", a->more_of, "recipients",
                         PAGE_RCPTS, "after_recipient", (json_int_t)a->more_after);
    }
    return list_question(a, a->question == MAILQ_ASK_THREAD ? filter_of_thread(a) : json_object());
}

/* Adds the names of the thread; a name that is not UTF-8 becomes "", which no thread has. */
static void name_thread(const struct mailq_answer *a, json_t *question)
{
    json_t *channel = json_string(a->channel), *host = json_string(a->host);

    CHECK(json_object_set_new(question, "transport", channel != NULL ? channel : json_string("")) ==
          0);
    CHECK(json_object_set_new(question, "nexthop", host != NULL ? host : json_string("")) == 0);
}

static json_t *threads_question(const struct mailq_answer *a)
{
    bool brief = a->question == MAILQ_ASK_TOTALS || a->question == MAILQ_ASK_RINGS ||
                 a->question == MAILQ_ASK_COUNTERS;
    json_t *question = json_pack("{s:s, s:b, s:b}", "op", "threads", "brief", (int)brief, "machine",
                                 (int)(a->question == MAILQ_ASK_COUNTERS));

    CHECK(question != NULL);
    if (a->question == MAILQ_ASK_THREAD) {
        name_thread(a, question);
    }
    if (a->ring != NULL) {
        CHECK(json_object_set(question, "ring", (json_t *)(uintptr_t)a->ring) == 0);
    }
    if (a->cursor != NULL) {
        CHECK(json_object_set(question, "cursor", a->cursor) == 0);
    }
    return question;
}

static void ask_next(struct mailq_answer *a)
{
    switch (a->part) {
    case PART_VERTICES:
        ask(a, vertices_question(a));
        break;
    case PART_THREADS:
        ask(a, threads_question(a));
        break;
    case PART_RINGS:
        put_rings(a);
        break;
    case PART_TOTALS:
        ask(a, json_pack("{s:s}", "op", "status"));
        break;
    }
}

/* Requests one page of a change. */
static void ask_change(struct mailq_answer *a)
{
    bool is_reroute = a->question == MAILQ_ASK_REROUTE;
    json_t *question;

    if (a->question == MAILQ_ASK_KILL_THREAD ||
        (is_reroute && conf_postoffice(a->facts->role->conf) != NULL)) {
        question = json_pack("{s:s}", "op", is_reroute ? "reroute" : "kill");
        CHECK(question != NULL);
        name_thread(a, question);
    } else {
        question = json_pack("{s:s, s:o}", "op", is_reroute ? "requeue" : "flush", "filter",
                             filter_of_thread(a));
        CHECK(question != NULL);
    }
    if (a->after != NULL) {
        CHECK(json_object_set_new(question, "after", json_string(a->after)) == 0);
    }
    ask(a, question);
}

/* Does the question name a thread, with channel and host? */
static bool names_thread(const struct mailq_answer *a)
{
    return a->channel[0] != '\0' && a->host[0] != '\0';
}

/* Logs a change in ZMailer's format, with the user at the end. */
static void log_change(const struct mailq_event *event)
{
    switch (event->question) {
    case MAILQ_ASK_ETRN:
        log_info("MQ2 ETRN: %.*s %.*s (by %.*s)", SLICE_ARGS(event->host), SLICE_ARGS(event->rest),
                 SLICE_ARGS(event->user));
        break;
    case MAILQ_ASK_KILL_MSG:
        log_info("MQ2 KILL MSG: %.*s (by %.*s)", SLICE_ARGS(event->id), SLICE_ARGS(event->user));
        break;
    default:
        log_info("MQ2 %s: %.*s %.*s (by %.*s)",
                 event->question == MAILQ_ASK_REROUTE ? "REROUTE" : "KILL THREAD",
                 SLICE_ARGS(event->channel), SLICE_ARGS(event->host), SLICE_ARGS(event->user));
        break;
    }
}

static void begin_change(struct mailq_answer *a, const struct mailq_event *event)
{
    json_t *id;

    log_change(event);
    a->changed = a->under_way = 0;
    if (event->question == MAILQ_ASK_KILL_MSG) {
        id = json_stringn(event->id.ptr, event->id.len);
        ask(a, json_pack("{s:s, s:[o]}", "op", "delete", "ids", id != NULL ? id : json_string("")));
    } else if (a->host[0] != '\0' && (event->question == MAILQ_ASK_ETRN || names_thread(a))) {
        ask_change(a);
    } else {
        mailq_server_verdict(a->server, false, 0);
        end_answer(a);
    }
}

static void begin_report(struct mailq_answer *a, enum mailq_report_form form)
{
    a->report = mailq_report_new(form);
    ask_next(a);
}

static void begin_dump(struct mailq_answer *a)
{
    if (a->facts->role->conf->mailq_short) {
        mailq_server_lines(a->server, SLICE("Vertices:\nEnd:\n"));
    } else {
        mailq_server_lines(a->server, SLICE("Vertices:\n"));
        a->dump = mailq_dump_new();
        a->part = PART_VERTICES;
    }
    ask_next(a);
}

void mailq_answer_begin(struct mailq_answer *a, const struct mailq_event *event)
{
    a->busy = true;
    a->question = event->question;
    a->channel = mem_copy(event->channel.ptr, event->channel.len);
    a->host = mem_copy(event->host.ptr, event->host.len);
    a->totals = (struct mailq_totals){0};
    a->part = PART_THREADS;
    switch (event->question) {
    case MAILQ_ASK_DUMP:
        a->report = mailq_report_new(MAILQ_REPORT_THREADS);
        begin_dump(a);
        break;
    case MAILQ_ASK_THREAD:
        if (names_thread(a)) {
            ask_next(a);
        } else {
            mailq_server_done(a->server);
            end_answer(a);
        }
        break;
    case MAILQ_ASK_TOTALS:
    case MAILQ_ASK_COUNTERS:
        begin_report(a, MAILQ_REPORT_TOTALS);
        break;
    case MAILQ_ASK_RINGS:
        begin_report(a, MAILQ_REPORT_RINGS);
        break;
    case MAILQ_ASK_THREADS:
        begin_report(a, MAILQ_REPORT_THREADS);
        break;
    case MAILQ_ASK_THREAD_FIELDS:
        begin_report(a, MAILQ_REPORT_FIELDS);
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
    mem_free(a->more_of);
    json_decref(a->machine);
    json_decref(a->cursor);
    mailq_report_free(a->report);
    mailq_dump_free(a->dump);
    a->channel = a->host = a->after = a->more_of = NULL;
    a->machine = a->cursor = NULL;
    a->ring = NULL;
    a->report = NULL;
    a->dump = NULL;
    a->row = 0;
}

static void take_change(struct mailq_answer *a, const json_t *answer)
{
    const char *next = json_string_value(json_object_get(answer, "next"));

    a->changed += json_array_size(json_object_get(answer, "changed"));
    a->under_way += mailq_json_count(answer, "under_way");
    if (next == NULL) {
        mailq_server_verdict(a->server, a->changed > 0, a->under_way);
        end_answer(a);
    } else {
        keep(&a->after, next);
        ask_change(a);
    }
}

static void done(struct mailq_answer *a)
{
    mailq_server_done(a->server);
    end_answer(a);
}

/* Writes rings until the session has enough to send, or the threads of one must be requested. */
static void put_rings(struct mailq_answer *a)
{
    bool more = true;
    struct buf out;

    buf_init(&out, LINES_MAX);
    while (more && a->ring == NULL && !mailq_server_is_full(a->server)) {
        more = mailq_report_next(a->report, &out, &a->ring);
        put(a, &out);
    }
    buf_fini(&out);
    if (a->ring != NULL) {
        a->part = PART_THREADS;
    } else if (!more && a->question == MAILQ_ASK_THREAD_FIELDS) {
        done(a);
    } else if (!more) {
        a->part = PART_TOTALS;
    }
}

/* Writes the head of the thread of SHOW THREAD; its recipients are then found by the names in the
 * answer. */
static void take_thread(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    const json_t *thread = json_array_get(json_object_get(answer, "threads"), 0);

    if (thread == NULL) {
        done(a);
        return;
    }
    keep(&a->channel, json_string_value(json_object_get(thread, "transport")));
    keep(&a->host, json_string_value(json_object_get(thread, "nexthop")));
    mailq_report_head(thread, out);
    a->part = PART_VERTICES;
}

static void take_threads(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    json_t *cursor = json_object_get(answer, "cursor");
    json_t *machine = json_object_get(answer, "machine");

    json_incref(machine);
    json_decref(a->machine);
    a->machine = machine;
    mailq_report_page(a->report, answer, cursor == NULL, out);
    json_incref(cursor);
    json_decref(a->cursor);
    a->cursor = cursor;
    if (cursor == NULL) {
        a->ring = NULL;
        a->part = PART_RINGS;
    }
}

static void take_vertices(struct mailq_answer *a, const json_t *answer, struct buf *out)
{
    if (!put_messages(a, answer, out)) {
        return;
    }
    if (a->question == MAILQ_ASK_DUMP) {
        mailq_dump_end(a->dump, out);
        mailq_dump_free(a->dump);
        a->dump = NULL;
        a->part = PART_THREADS;
    } else {
        put(a, out);
        done(a);
    }
}

static void take_totals(struct mailq_answer *a, const json_t *status, struct buf *out)
{
    sum_up(a, status);
    if (a->question == MAILQ_ASK_COUNTERS) {
        put_counters(a, status, out);
    } else {
        mailq_put_totals(out, &a->totals, a->question == MAILQ_ASK_TOTALS);
    }
    put(a, out);
    done(a);
}

static void take_list(struct mailq_answer *a, const json_t *answer)
{
    struct buf out;

    buf_init(&out, LINES_MAX);
    switch (a->part) {
    case PART_VERTICES:
        take_vertices(a, answer, &out);
        break;
    case PART_THREADS:
        if (a->question == MAILQ_ASK_THREAD) {
            take_thread(a, answer, &out);
        } else {
            take_threads(a, answer, &out);
        }
        break;
    case PART_RINGS:
        UNREACHABLE("nothing is asked for it");
    case PART_TOTALS:
        take_totals(a, answer, &out);
        break;
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
        log_warning("mailq: the queue process did not answer (%u)", status);
        fail(a);
    } else if (a->question >= MAILQ_ASK_ETRN) {
        take_change(a, answer);
    } else {
        take_list(a, answer);
    }
    a->progress(a->arg);
}

/* ---- life of an answer ----------------------------------------------------------------------- */

void mailq_answer_go_on(struct mailq_answer *a)
{
    while (a->busy && a->asked == 0 && !mailq_server_is_full(a->server)) {
        ask_next(a);
    }
}

bool mailq_answer_waits(const struct mailq_answer *a)
{
    return a->asked != 0;
}

bool mailq_answer_is_busy(const struct mailq_answer *a)
{
    return a->busy;
}

struct mailq_answer *mailq_answer_new(const struct mailq_facts *facts, struct mailq_server *server,
                                      mailq_answer_progress *progress, void *arg)
{
    struct mailq_answer *a = mem_new(sizeof *a);

    a->facts = facts;
    a->server = server;
    a->progress = progress;
    a->arg = arg;
    return a;
}

void mailq_answer_free(struct mailq_answer *a)
{
    if (a->asked != 0) {
        control_forget(a->facts->control, a->asked);
    }
    end_answer(a);
    mem_free(a);
}
