#include "whatif_call.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_server.h"
#include "buf.h"
#include "channel.h"
#include "check.h"
#include "clock.h"
#include "control.h"
#include "json.h"
#include "log.h"
#include "mem.h"
#include "printable.h"
#include "slice.h"
#include "times.h"
#include "wire.h"

#define ERROR_MAX 1024

enum state { IDLE, SEEKS, RUNS };

struct whatif_call {
    struct control *control;
    struct event_base *base;
    struct channel *channel; /* NULL: the process is not running */
    enum state state;
    struct api_call *call; /* set in SEEKS and RUNS */
    uint64_t token;        /* number of the run, which grows */
    uint64_t question;     /* outstanding query; 0: none */
    json_t *set;           /* owned */
    double hours;
    struct wall until;
    uint64_t after, last; /* last event that was passed on, and last event of the run */
    struct event *timer;
};

/* ---- the end of a run ----------------------------------------------------------------------- */

static void end(struct whatif_call *w)
{
    if (w->question != 0) {
        control_forget(w->control, w->question);
        w->question = 0;
    }
    json_decref(w->set);
    w->set = NULL;
    w->call = NULL;
    w->state = IDLE;
    CHECK(event_del(w->timer) == 0);
}

static void send_page(struct whatif_call *w, uint32_t status, struct slice lines)
{
    wire_put_answer(w->channel,
                    &(struct wire_answer){.token = w->token, .status = status, .bytes = lines}, -1);
}

/* Ends the simulation, with an error for the process. */
static void stop_process(struct whatif_call *w)
{
    if (w->state == RUNS && w->channel != NULL) {
        send_page(w, 503, SLICE(""));
    }
}

static void refuse(struct whatif_call *w, unsigned status, const char *why)
{
    struct api_call *call = w->call;

    stop_process(w);
    end(w);
    api_on_gone(call, NULL, NULL);
    api_answer_error(call, status, why);
}

static void on_gone(void *arg)
{
    struct whatif_call *w = arg;

    stop_process(w);
    end(w);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    refuse(arg, 503, "the run took more than 300 s, as the machine is busy; ask for fewer hours");
}

/* ---- the journal ---------------------------------------------------------------------------- */

static void on_page(void *arg, unsigned status, const json_t *answer, struct slice bytes)
{
    struct whatif_call *w = arg;
    uint64_t last = (uint64_t)json_integer_value(json_object_get(answer, "last"));

    w->question = 0;
    if (status != 200) {
        refuse(w, 503, "the journal of events can't be read at present; ask again");
        return;
    }
    w->after = bytes.len == 0 || last <= w->after ? w->last : last;
    send_page(w, 200, bytes);
}

static void next_page(struct whatif_call *w)
{
    if (w->after >= w->last) {
        send_page(w, 200, SLICE(""));
        return;
    }
    w->question = control_ask_bytes(
        w->control, json_pack("{s:s, s:I}", "op", "events", "after", (json_int_t)w->after), on_page,
        w);
    if (w->question == 0) {
        refuse(w, 503, "the queue process is being restarted");
    }
}

/* Takes the position in the journal at which the hours begin. */
static void on_sought(void *arg, unsigned status, const json_t *answer, struct slice bytes)
{
    struct whatif_call *w = arg;
    bool cut;
    json_t *question;
    char *text;

    (void)bytes;
    w->question = 0;
    if (status != 200 || w->channel == NULL) {
        refuse(w, status == 409 ? 409 : 503,
               status == 409 ? "what if needs a record of the mail: set events = yes (with a spool "
                               "that has a place for events), and reload"
                             : "the queue process, or the one that simulates, is being restarted");
        return;
    }
    w->after = (uint64_t)json_integer_value(json_object_get(answer, "last"));
    w->last = (uint64_t)json_integer_value(json_object_get(answer, "newest"));
    cut = w->last > w->after && w->last - w->after > WHATIF_EVENTS_MAX;
    if (cut) {
        w->after = w->last - WHATIF_EVENTS_MAX;
    }
    question = json_pack("{s:f, s:f, s:b, s:I, s:O}", "hours", w->hours, "until",
                         (double)w->until.us / (double)US_PER_S, "cut", (int)cut, "events",
                         (json_int_t)(w->last > w->after ? w->last - w->after : 0), "set", w->set);
    CHECK(question != NULL);
    text = json_dumps(question, JSON_COMPACT);
    CHECK(text != NULL);
    w->state = RUNS;
    w->token++;
    wire_put_ask(w->channel, &(struct wire_ask){.token = w->token, .json = slice_string(text)});
    free(text);
    json_decref(question);
}

/* ---- the process ---------------------------------------------------------------------------- */

/* Passes the process's answer to the client. Returns false if it does not decode. */
static bool answered(struct whatif_call *w, struct slice body)
{
    struct api_call *call = w->call;
    struct wire_answer m;
    json_t *object;

    if (!wire_get_answer(body, &m)) {
        return false;
    }
    if (w->state != RUNS || m.token != w->token) {
        return true; /* belongs to a run that has ended */
    }
    object = json_loadb(m.json.ptr, m.json.len, 0, NULL);
    if (!json_is_object(object) ||
        (m.status != 200 && m.status != 400 && m.status != 409 && m.status != 503)) {
        json_decref(object);
        return false;
    }
    json_decref(object);
    end(w);
    api_on_gone(call, NULL, NULL);
    api_answer(call, m.status, "application/json", m.json);
    return true;
}

static bool wanted(struct whatif_call *w, struct slice body)
{
    uint64_t token;

    if (!wire_get_number(body, &token) ||
        (w->state == RUNS && token == w->token && w->question != 0)) {
        return false;
    }
    if (w->state == RUNS && token == w->token) {
        next_page(w);
    }
    return true;
}

static void process_lost(struct whatif_call *w)
{
    struct channel *channel = w->channel;

    w->channel = NULL;
    channel_free(channel);
    if (w->state == RUNS) {
        refuse(w, 503,
               "the process that simulates has ended (the log has the reason); ask again, "
               "perhaps for fewer hours");
    }
}

static void on_process(void *arg, struct channel *ch)
{
    struct whatif_call *w = arg;
    struct frame frame;

    while (w->channel != NULL) {
        bool good = false;

        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_CLOSED:
            process_lost(w);
            return;
        case CHANNEL_FRAME:
            good = (frame.type == WIRE_EVENTS_MORE && wanted(w, frame.body)) ||
                   (frame.type == WIRE_ANSWER && answered(w, frame.body));
            if (frame.fd >= 0) {
                (void)close(frame.fd); /* none is expected */
            }
            if (!good) {
                log_error("a frame of the process whatif does not decode: its channel is closed");
                process_lost(w);
                return;
            }
        }
    }
}

void whatif_call_peer(struct whatif_call *w, int fd)
{
    if (w->channel != NULL) {
        process_lost(w);
    }
    w->channel = channel_new(w->base, fd, on_process, w);
}

/* ---- the call ------------------------------------------------------------------------------- */

/* Checks the query. Returns false with the expected form in `error`. */
static bool question_good(const json_t *question, double *ret_hours, struct buf *error)
{
    const json_t *hours = json_object_get(question, "hours");
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)question, name, value)
    {
        if (strcmp(name, "hours") != 0 && strcmp(name, "set") != 0) {
            (void)printable_add(error, slice_string(name), 40); /* fits, as all appends here */
            (void)buf_add_string(error, " is not known; expected are hours and set");
            return false;
        }
    }
    *ret_hours = hours == NULL ? 1 : json_number_value(hours);
    if ((hours != NULL && !json_is_number(hours)) || !(*ret_hours > 0) ||
        *ret_hours > WHATIF_HOURS_MAX) {
        (void)buf_addf(error, "hours: a number above 0, up to %d is expected", WHATIF_HOURS_MAX);
        return false;
    }
    if (!json_is_object(json_object_get(question, "set"))) {
        (void)buf_add_string(error, "set: an object of parameters and values is expected");
        return false;
    }
    return true;
}

void whatif_call(struct whatif_call *w, struct api_call *call, const json_t *question)
{
    static const struct timeval patience = {.tv_sec = WHATIF_CALL_S};
    struct buf error;
    double hours;

    buf_init(&error, ERROR_MAX);
    if (!question_good(question, &hours, &error)) {
        api_answer_error(call, 400, buf_cstr(&error));
    } else if (w->state != IDLE) {
        api_answer_error(call, 409, "a run is in progress, and there is one at a time; ask again");
    } else {
        w->state = SEEKS;
        w->call = call;
        w->hours = hours;
        w->until = clock_wall();
        w->set = json_incref(json_object_get(question, "set"));
        CHECK(event_add(w->timer, &patience) == 0);
        api_on_gone(call, on_gone, w);
        w->question = control_ask_bytes(
            w->control,
            json_pack("{s:s, s:I}", "op", "events", "since",
                      (json_int_t)(w->until.us - (int64_t)(hours * 3600 * (double)US_PER_S))),
            on_sought, w);
        if (w->question == 0) {
            refuse(w, 503, "the queue process is being restarted");
        }
    }
    buf_fini(&error);
}

struct whatif_call *whatif_call_new(struct control *control, struct event_base *base)
{
    struct whatif_call *w = mem_new(sizeof *w);

    w->control = control;
    w->base = base;
    w->timer = evtimer_new(base, on_timer, w);
    CHECK(w->timer != NULL);
    return w;
}

void whatif_call_free(struct whatif_call *w)
{
    if (w == NULL) {
        return;
    }
    if (w->call != NULL) {
        api_on_gone(w->call, NULL, NULL);
    }
    end(w);
    event_free(w->timer);
    channel_free(w->channel);
    mem_free(w);
}
