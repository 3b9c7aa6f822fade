#include "dialogue_feed.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "api_server.h"
#include "buf.h"
#include "check.h"
#include "control.h"
#include "json.h"
#include "mem.h"
#include "wire.h"

#define LINE_MAX_BYTES 65536u

struct reader {
    TAILQ_ENTRY(reader) next;
    struct dialogue_feed *feed;
    struct api_call *call;
    uint64_t question; /* outstanding query; 0: none */
    uint64_t watch;    /* 0: none yet */
    uint64_t dropped;  /* lines that were dropped and not reported yet */
};

struct dialogue_feed {
    struct control *control;
    TAILQ_HEAD(, reader) readers;
    struct event *beat;
};

/* ---- readers -------------------------------------------------------------------------------- */

static void ignore_answer(void *arg, unsigned status, const json_t *answer)
{
    (void)arg;
    (void)status;
    (void)answer;
}

static void unwatch(struct dialogue_feed *feed, uint64_t watch)
{
    /* If no query can be sent, the queue process has ended, and its watches with it. If there are
     * too many queries the watch remains until its next start. */
    (void)control_ask(feed->control,
                      json_pack("{s:s, s:I}", "op", "unwatch", "watch", (json_int_t)watch),
                      ignore_answer, NULL);
}

static void reader_free(struct reader *r)
{
    if (r->watch != 0) {
        unwatch(r->feed, r->watch);
    }
    TAILQ_REMOVE(&r->feed->readers, r, next);
    mem_free(r);
}

static void on_gone(void *arg)
{
    struct reader *r = arg;

    r->call = NULL;
    if (r->question == 0) { /* otherwise on_answer frees it, and its watch */
        reader_free(r);
    }
}

static void tell_dropped(struct reader *r)
{
    char text[96];

    if (r->dropped > 0) {
        (void)snprintf(text, sizeof text, "event: dropped\ndata: {\"lines\":%" PRIu64 "}\n\n",
                       r->dropped); /* fits */
        r->dropped = 0;
        api_answer_add(r->call, slice_string(text));
    }
}

static void on_answer(void *arg, unsigned status, const json_t *answer)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    struct reader *r = arg;
    struct api_call *call = r->call;

    r->question = 0;
    if (status == 200) {
        r->watch = (uint64_t)json_integer_value(json_object_get(answer, "watch"));
    }
    if (call == NULL || status != 200) {
        reader_free(r);
    }
    if (call == NULL) {
        return;
    }
    if (status != 200) {
        api_on_gone(call, NULL, NULL);
        api_answer_error(call, status,
                         error != NULL ? error : "the queue process does not answer; ask again");
        return;
    }
    api_answer_begin(call, 200, "text/event-stream");
    api_answer_add(call, SLICE(": a trace, as docs/api.md has it\n\n"));
}

void dialogue_feed_call(struct dialogue_feed *feed, struct api_call *call, const json_t *query)
{
    json_t *filter = json_object_get(query, "filter");
    struct reader *r = mem_new(sizeof *r);

    r->feed = feed;
    r->call = call;
    TAILQ_INSERT_TAIL(&feed->readers, r, next);
    api_audit(call);
    r->question = control_ask(
        feed->control, json_pack("{s:s, s:O}", "op", "watch", "filter", filter), on_answer, r);
    if (r->question == 0) {
        reader_free(r);
        api_answer_error(call, 503, "the queue process is being restarted");
        return;
    }
    api_on_gone(call, on_gone, r);
}

/* ---- lines of dialogues ---------------------------------------------------------------------- */

/* Adds a member. Texts of a dialogue are printable ASCII. */
static void put(struct buf *out, const char *name, struct slice text)
{
    if (text.len == 0) {
        return;
    }
    (void)buf_addf(out, ",\"%s\":\"", name); /* fits, as all appends here */
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"' || text.ptr[i] == '\\') {
            (void)buf_add_byte(out, '\\');
        }
        (void)buf_add_byte(out, text.ptr[i]);
    }
    (void)buf_add_byte(out, '"');
}

static void print_line(struct buf *out, const struct wire_dialogue *m)
{
    static const char *const names[] = {
        [SAID_OPENED] = "opened",   [SAID_LINE] = "line",       [SAID_LOGIN] = "login",
        [SAID_UNKNOWN] = "unknown", [SAID_CONTENT] = "content", [SAID_SECURED] = "secured",
        [SAID_CLOSED] = "closed",
    };

    (void)buf_addf(out,
                   "event: %s\ndata: {\"time\":%" PRId64 ".%06" PRId64
                   ",\"what\":\"%s\",\"by\":\"%s\",\"process\":\"%.*s\",\"connection\":%" PRIu64,
                   names[m->said], m->at.us / US_PER_S, m->at.us % US_PER_S, names[m->said],
                   m->ours ? "us" : "peer", SLICE_ARGS(m->process), m->connection);
    put(out, "peer", m->peer);
    put(out, "source", m->source);
    put(out, "tls", m->tls);
    put(out, "destination", m->destination);
    put(out, "queue_id", m->id);
    put(out, "text", m->text);
    if (m->said == SAID_LINE || m->said == SAID_LOGIN || m->said == SAID_UNKNOWN ||
        m->said == SAID_CONTENT) {
        (void)buf_addf(out, ",\"bytes\":%" PRIu64, m->bytes);
    }
    (void)buf_add_string(out, "}\n\n");
    CHECK(!out->failed);
}

static void on_ready(void *arg, struct api_call *call)
{
    (void)call;
    tell_dropped(arg);
}

bool dialogue_feed_heard(struct dialogue_feed *feed, struct slice body)
{
    struct wire_dialogue m;
    struct reader *r;
    struct buf out;

    if (!wire_get_dialogue(body, &m)) {
        return false;
    }
    TAILQ_FOREACH(r, &feed->readers, next)
    {
        if (r->watch == m.watch) {
            break;
        }
    }
    if (r == NULL || r->call == NULL) {
        return true; /* the reader has ended meanwhile */
    }
    if (__builtin_add_overflow(r->dropped, m.dropped, &r->dropped)) {
        r->dropped = UINT64_MAX;
    }
    if (api_unread(r->call) > FEED_BEHIND) {
        if (r->dropped == m.dropped) { /* the first dropped line */
            api_answer_wait(r->call, on_ready, r);
        }
        r->dropped += r->dropped < UINT64_MAX;
        return true;
    }
    tell_dropped(r);
    buf_init(&out, LINE_MAX_BYTES);
    print_line(&out, &m);
    api_answer_add(r->call, buf_slice(&out));
    buf_fini(&out);
    return true;
}

void dialogue_feed_queue_lost(struct dialogue_feed *feed)
{
    struct reader *r, *next;

    for (r = TAILQ_FIRST(&feed->readers); r != NULL; r = next) {
        next = TAILQ_NEXT(r, next);
        if (r->question == 0) { /* otherwise the answer to its query reports that */
            struct api_call *call = r->call;

            r->watch = 0;
            reader_free(r);
            api_on_gone(call, NULL, NULL);
            api_answer_cut(call);
        }
    }
}

/* ---- feed ------------------------------------------------------------------------------------ */

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
    struct dialogue_feed *feed = arg;
    struct reader *r;

    (void)fd;
    (void)what;
    TAILQ_FOREACH(r, &feed->readers, next)
    {
        if (r->watch != 0 && r->call != NULL && api_unread(r->call) == 0) {
            api_answer_add(r->call, SLICE(": no command and no reply\n\n"));
        }
    }
}

struct dialogue_feed *dialogue_feed_new(struct control *control, struct event_base *base)
{
    static const struct timeval beat = {.tv_sec = DIALOGUE_FEED_BEAT_S};
    struct dialogue_feed *feed = mem_new(sizeof *feed);

    feed->control = control;
    TAILQ_INIT(&feed->readers);
    feed->beat = event_new(base, -1, EV_PERSIST, on_beat, feed);
    CHECK(feed->beat != NULL && event_add(feed->beat, &beat) == 0);
    return feed;
}

void dialogue_feed_free(struct dialogue_feed *feed)
{
    struct reader *r;

    if (feed == NULL) {
        return;
    }
    while ((r = TAILQ_FIRST(&feed->readers)) != NULL) {
        if (r->question != 0) {
            control_forget(feed->control, r->question);
        }
        r->watch = 0;
        reader_free(r);
    }
    event_free(feed->beat);
    mem_free(feed);
}
