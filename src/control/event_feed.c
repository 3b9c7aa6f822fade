/*
 * States of a reader:
 *
 *     FIRST --> BEHIND <--> READY --> TAIL      any --client gone--> freed
 *                 |           ^        |
 *                 +--page-----+<--ring-+
 *
 *   FIRST   waits for the position of the journal; the head of the answer is sent afterwards
 *   BEHIND  waits for a page of the journal
 *   READY   waits until the client has read what was sent
 *   TAIL    has all events
 */
#include "event_feed.h"

#include <event2/event.h>
#include <inttypes.h>
#include <string.h>
#include <sys/queue.h>

#include "api_server.h"
#include "buf.h"
#include "check.h"
#include "control.h"
#include "event_filter.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "slice.h"
#include "times.h"

/* Time to collect events before they are requested. */
#define GATHER_US (20 * US_PER_MS)
#define AGAIN_US  US_PER_S
/* Largest output: a page that ends with a long line. */
#define OUT_MAX (4ul * FEED_PAGE + (1u << 20))

enum reader_state { READER_FIRST, READER_BEHIND, READER_READY, READER_TAIL };

struct reader {
    TAILQ_ENTRY(reader) next;
    struct event_feed *feed;
    struct api_call *call;
    enum reader_state state;
    bool from_now;     /* READER_FIRST: the client has sent no `after` */
    uint64_t at;       /* last event that was sent, or did not match */
    uint64_t offset;   /* offset of the next event in the ring */
    bool in_ring;      /* `offset` is valid */
    uint64_t question; /* outstanding query; 0: none */
    struct event_filter filter;
};

struct event_feed {
    struct control *control;
    TAILQ_HEAD(, reader) readers;
    struct buf ring;
    uint64_t ring_at;   /* offset of the ring's first byte, counted from the start */
    uint64_t ring_last; /* number of the ring's last event, or of the event before an empty ring */
    bool running;
    uint64_t question;
    struct event *timer, *beat;
};

static void reader_go(struct reader *r);

/* ---- lines of events ------------------------------------------------------------------------- */

/* Sends the lines that match the reader's filter. */
static void give(struct reader *r, struct slice lines)
{
    struct buf out;

    buf_init(&out, OUT_MAX + 2 * lines.len);
    while (lines.len > 0) {
        struct slice line = slice_of(lines.ptr, slice_find(lines, '\n'));
        uint64_t number = event_number(line);

        if (number > r->at + 1) { /* the events between were dropped from the journal */
            CHECK(buf_addf(&out, "event: lost\ndata: {\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}\n\n",
                           r->at + 1, number - 1));
        }
        if (event_filter_holds(&r->filter, line)) {
            struct slice event = event_name(line);

            CHECK(
                buf_addf(&out, "id: %" PRIu64 "\nevent: %.*s\ndata: ", number, SLICE_ARGS(event)) &&
                buf_add(&out, line) && buf_add_string(&out, "\n\n"));
        }
        r->at = number;
        lines = slice_skip(lines, line.len + 1);
    }
    if (buf_len(&out) > 0) {
        api_answer_add(r->call, buf_slice(&out));
    }
    buf_fini(&out);
}

/* ---- readers -------------------------------------------------------------------------------- */

static void reader_free(struct reader *r)
{
    if (r->question != 0) {
        control_forget(r->feed->control, r->question);
    }
    event_filter_fini(&r->filter);
    TAILQ_REMOVE(&r->feed->readers, r, next);
    mem_free(r);
}

static void on_gone(void *arg)
{
    reader_free(arg);
}

static void on_ready(void *arg, struct api_call *call)
{
    (void)call;
    reader_go(arg);
}

static void await_client(struct reader *r)
{
    r->state = READER_READY;
    api_answer_wait(r->call, on_ready, r);
}

static void end_reader(struct reader *r)
{
    struct api_call *call = r->call;

    reader_free(r);
    api_answer_cut(call); /* the client will reconnect, with the number of its last event */
}

static void run(struct event_feed *feed);

/* Takes the position of the journal and begins the answer. */
static void begin_answer(struct reader *r, unsigned status, const json_t *answer)
{
    uint64_t newest = (uint64_t)json_integer_value(json_object_get(answer, "newest"));
    struct api_call *call = r->call;
    char text[160];

    if (status != 200 || r->at > newest) {
        bool from_now = status == 200;

        reader_free(r);
        api_on_gone(call, NULL, NULL);
        if (from_now) {
            (void)snprintf(text, sizeof text, "after: the last event is %" PRIu64, newest);
            api_answer_error(call, 409, text);
        } else {
            api_answer_error(call, status == 409 ? 409 : 503,
                             status == 409 ? "there is no journal of events: events = no, or the "
                                             "spool has no place for one"
                                           : "the queue process does not answer; ask again");
        }
        return;
    }
    r->at = r->from_now ? newest : r->at;
    api_answer_begin(call, 200, "text/event-stream");
    api_answer_add(call, SLICE(": events, as docs/events.md has them\n\n"));
    if (!r->feed->running) {
        r->feed->running = true;
        buf_clear(&r->feed->ring);
        r->feed->ring_at = 0;
        r->feed->ring_last = newest;
        run(r->feed);
    }
    await_client(r);
}

static void on_page(void *arg, unsigned status, const json_t *answer, struct slice bytes)
{
    struct reader *r = arg;
    uint64_t last = (uint64_t)json_integer_value(json_object_get(answer, "last"));

    r->question = 0;
    if (r->state == READER_FIRST) {
        begin_answer(r, status, answer);
    } else if (status != 200) {
        end_reader(r);
    } else {
        give(r, bytes);
        if (last > r->at) {
            r->at = last;
        }
        if (bytes.len == 0) { /* the ring has begun meanwhile */
            r->at = r->at < r->feed->ring_last ? r->at : r->feed->ring_last;
        }
        await_client(r);
    }
}

static bool ask(struct reader *r, uint64_t after)
{
    r->question = control_ask_bytes(
        r->feed->control,
        json_pack("{s:s, s:I, s:i}", "op", "events", "after", (json_int_t)after, "max", FEED_PAGE),
        on_page, r);
    return r->question != 0;
}

/* Finds the offset of the event after `at`. Returns false if it is no longer in the ring. */
static bool find_in_ring(struct reader *r)
{
    struct event_feed *feed = r->feed;
    struct slice rest = buf_slice(&feed->ring);

    if (r->at == feed->ring_last) {
        r->offset = feed->ring_at + rest.len;
        return true;
    }
    if (rest.len == 0 || r->at > feed->ring_last || r->at + 1 < event_number(rest)) {
        return false;
    }
    while (rest.len > 0 && event_number(rest) <= r->at) {
        rest = slice_skip(rest, slice_find(rest, '\n') + 1);
    }
    r->offset = feed->ring_at + (buf_len(&feed->ring) - rest.len);
    return true;
}

/* Sends more to a reader whose client has read everything. */
static void reader_go(struct reader *r)
{
    struct event_feed *feed = r->feed;
    struct slice rest;

    r->in_ring = r->in_ring && r->offset >= feed->ring_at ? true : find_in_ring(r);
    if (!r->in_ring) {
        r->state = READER_BEHIND;
        if (!ask(r, r->at)) {
            end_reader(r);
        }
        return;
    }
    rest = slice_skip(buf_slice(&feed->ring), (size_t)(r->offset - feed->ring_at));
    if (rest.len == 0) {
        r->state = READER_TAIL;
        return;
    }
    if (rest.len > FEED_PAGE) { /* whole lines only */
        size_t end = slice_find_last(slice_of(rest.ptr, FEED_PAGE), '\n');

        rest.len = end < FEED_PAGE ? end + 1 : slice_find(rest, '\n') + 1;
    }
    r->offset += rest.len;
    give(r, rest);
    await_client(r);
}

/* Adds the conditions of the filter; addresses and destinations are those of a list's filter.
 * Returns false with the expected form in `error`. */
static bool add_conditions(struct reader *r, json_t *filter, struct buf *error)
{
    static const char *const texts[] = {"queue_id", "intervention"};
    json_t *events = json_object_get(filter, "event"), *rest = json_copy(filter), *value;
    struct listing_filter f;
    const char *expected = NULL;
    size_t i;

    json_array_foreach(events, i, value)
    {
        if (!event_filter_add(&r->filter, SLICE("event"), slice_string(json_string_value(value)))) {
            (void)buf_add_string(error, "event: one of these is expected:"); /* fits */
            for (size_t j = 0; event_filter_event(j) != NULL; j++) {
                (void)buf_addf(error, "%s %s", j > 0 ? "," : "", event_filter_event(j));
            }
            json_decref(rest);
            return false;
        }
    }
    (void)json_object_del(rest, "event"); /* may be missing */
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        value = json_object_get(rest, texts[i]);
        if (value != NULL && json_string_length(value) == 0) {
            (void)buf_addf(error, "%s: a name is expected", texts[i]); /* fits */
            json_decref(rest);
            return false;
        }
        if (value != NULL) {
            CHECK(event_filter_add(&r->filter, slice_string(texts[i]),
                                   slice_string(json_string_value(value))));
            (void)json_object_del(rest, texts[i]); /* may be missing */
        }
    }
    if (!listing_filter(rest, (struct wall){0}, &f, &expected)) {
        (void)buf_add_string(error, expected); /* fits */
    } else {
        const struct {
            const char *name;
            struct slice text;
        } members[] = {
            {"sender", slice_equal(f.spool.sender, SLICE("<>")) ? SLICE("") : f.spool.sender},
            {"recipient", f.spool.rcpt},
            {"destination", f.spool.destination},
            {"class", f.spool.class_name},
        };

        for (i = 0; i < sizeof members / sizeof members[0]; i++) {
            if (json_object_get(rest, members[i].name) != NULL) {
                CHECK(event_filter_add(&r->filter, slice_string(members[i].name), members[i].text));
            }
        }
    }
    json_decref(rest);
    return expected == NULL;
}

void event_feed_call(struct event_feed *feed, struct api_call *call, const json_t *query)
{
    const json_t *after = json_object_get(query, "after");
    struct slice id = api_field(call, SLICE("Last-Event-ID"));
    unsigned long long number = 0;
    struct buf error;
    struct reader *r;
    bool good;

    if (id.ptr == NULL && after != NULL) {
        id = slice_string(json_string_value(after));
    }
    if (id.ptr != NULL && !slice_number(id, INT64_MAX, &number)) {
        api_answer_error(call, 400, "after (or Last-Event-ID): the number of an event is expected");
        return;
    }
    r = mem_new(sizeof *r);
    r->feed = feed;
    r->call = call;
    r->at = number;
    r->from_now = id.ptr == NULL;
    TAILQ_INSERT_TAIL(&feed->readers, r, next);
    buf_init(&error, 1024);
    good = add_conditions(r, json_object_get(query, "filter"), &error);
    if (!good) {
        reader_free(r);
        api_answer_error(call, 400, buf_cstr(&error));
    } else {
        api_on_gone(call, on_gone, r);
        if (!ask(r, INT64_MAX)) {
            begin_answer(r, 503, NULL);
        }
    }
    buf_fini(&error);
}

/* ---- the ring ------------------------------------------------------------------------------- */

static void run_after(struct event_feed *feed, int64_t us)
{
    struct timeval delay = {.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};

    CHECK(event_add(feed->timer, &delay) == 0);
}

static void add_to_ring(struct event_feed *feed, struct slice lines)
{
    while (buf_len(&feed->ring) > 0 && buf_len(&feed->ring) + lines.len > FEED_RING_MAX) {
        size_t len = slice_find(buf_slice(&feed->ring), '\n') + 1;

        buf_consume(&feed->ring, len);
        feed->ring_at += len;
    }
    CHECK(buf_add(&feed->ring, lines));
}

static void on_events(void *arg, unsigned status, const json_t *answer, struct slice bytes)
{
    struct event_feed *feed = arg;
    struct reader *r, *next;

    feed->question = 0;
    if (TAILQ_EMPTY(&feed->readers)) {
        feed->running = false;
        return;
    }
    if (status != 200) {
        run_after(feed, AGAIN_US);
        return;
    }
    if (bytes.len == 0) {
        return; /* event_feed_more will be called */
    }
    add_to_ring(feed, bytes);
    feed->ring_last = (uint64_t)json_integer_value(json_object_get(answer, "last"));
    for (r = TAILQ_FIRST(&feed->readers); r != NULL; r = next) {
        next = TAILQ_NEXT(r, next);
        if (r->state == READER_TAIL) {
            reader_go(r);
        }
    }
    run_after(feed, GATHER_US);
}

static void run(struct event_feed *feed)
{
    if (feed->question != 0) {
        return;
    }
    feed->question = control_ask_bytes(
        feed->control,
        json_pack("{s:s, s:I}", "op", "events", "after", (json_int_t)feed->ring_last), on_events,
        feed);
    if (feed->question == 0) {
        run_after(feed, AGAIN_US);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct event_feed *feed = arg;

    (void)fd;
    (void)what;
    if (feed->running) {
        run(feed);
    }
}

void event_feed_more(struct event_feed *feed)
{
    if (feed->running && feed->question == 0) {
        run_after(feed, GATHER_US);
    }
}

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
    struct event_feed *feed = arg;
    struct reader *r, *next;

    (void)fd;
    (void)what;
    for (r = TAILQ_FIRST(&feed->readers); r != NULL; r = next) {
        next = TAILQ_NEXT(r, next);
        if (r->state == READER_TAIL && api_unread(r->call) == 0) {
            api_answer_add(r->call, SLICE(": nothing has happened\n\n"));
        }
    }
    if (feed->running && feed->question == 0) {
        run(feed); /* a report of new events may have been lost with a queue process */
    }
}

struct event_feed *event_feed_new(struct control *control, struct event_base *base)
{
    static const struct timeval beat = {.tv_sec = FEED_BEAT_S};
    struct event_feed *feed = mem_new(sizeof *feed);

    feed->control = control;
    TAILQ_INIT(&feed->readers);
    buf_init(&feed->ring, 2ul * FEED_RING_MAX);
    feed->timer = evtimer_new(base, on_timer, feed);
    feed->beat = event_new(base, -1, EV_PERSIST, on_beat, feed);
    CHECK(feed->timer != NULL && feed->beat != NULL);
    CHECK(event_add(feed->beat, &beat) == 0);
    return feed;
}

void event_feed_free(struct event_feed *feed)
{
    struct reader *r;

    if (feed == NULL) {
        return;
    }
    while ((r = TAILQ_FIRST(&feed->readers)) != NULL) {
        reader_free(r);
    }
    event_free(feed->timer);
    event_free(feed->beat);
    buf_fini(&feed->ring);
    mem_free(feed);
}
