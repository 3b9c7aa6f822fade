/*
 * A connection, and what it waits for:
 *
 *   NONE --ask--> ASKED --socket--> CONNECTING --> OPEN        any --trouble, end--> NONE
 *                   ^                   |
 *                   +--next address-----+
 *
 * A question is a range of stages that each filter goes through, one filter after the other; before
 * MAIL come CONNECT and HELO where the filter has not heard them. `run` takes the steps of one
 * filter until it has to wait, `advance` goes from filter to filter, and both begin again whenever
 * a socket has something, a deadline has come or the parent has answered.
 */
#include "filters.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "envelope.h"
#include "filter_changes.h"
#include "header.h"
#include "log.h"
#include "mem.h"
#include "milter.h"
#include "stream.h"

/* More than the protocol's packets hold is not sent in one step. */
#define PIECE_SIZE MILTER_BODY_MAX
/* Input is given to the engine in pieces that fit behind what it has. */
#define INPUT_PIECE 16384u
/* Text of a reason for a log line, and of a macro. */
#define TEXT_MAX 300
/* Macros that one step can have. */
#define MACROS_MAX 8

enum link_state { LINK_NONE, LINK_ASKED, LINK_CONNECTING, LINK_OPEN };

enum stage {
    STAGE_CONNECT,
    STAGE_HELO,
    STAGE_MAIL,
    STAGE_RCPT,
    STAGE_DATA,
    STAGE_HEADER,
    STAGE_END_OF_HEADER,
    STAGE_BODY,
    STAGE_END,
    STAGE_DONE,
};

struct link {
    struct filters *filters;
    const struct milter_spec *spec;
    enum link_state state;
    uint64_t token; /* in ASKED */
    uint32_t attempt;
    bool more_addresses;    /* in CONNECTING: another attempt makes sense */
    struct stream *stream;  /* from CONNECTING on */
    struct milter milter;   /* in OPEN */
    struct mono output_due; /* when what waits has to be taken; MONO_NEVER: nothing waits */
    bool connected;         /* it has heard CONNECT */
    char *helo;             /* that it has heard, with the TLS description; owned; NULL: none */
    bool in_message;        /* it has heard MAIL */
    bool lost;              /* in_message, and the connection went away: `why` */
    bool skipped;           /* for this message */
    bool has_refused;       /* the session: `refusal` */
    struct filters_answer refusal;
    char why[TEXT_MAX];
};

struct filters {
    struct filter_hub *hub;
    struct filter_set *set;
    filters_done *done;
    void *arg;
    struct link links[MILTER_LIST_MAX];

    /* the client; strings are owned */
    char *name, *ip, *helo, *tls, *user, *mechanism;
    int family;
    uint16_t port;

    /* the message */
    char id[FILTER_ID_SIZE];
    char *sender, *parameters, *rcpt; /* owned */
    struct draft *draft;              /* of the question; NULL: it is not about one */
    struct filter_changes changes;
    char *hold; /* owned; NULL: none */
    unsigned flags;
    bool discards;

    /* the question */
    bool is_asked;
    bool in_call; /* the answer is to be returned, not told */
    enum stage first, last;
    size_t at; /* the filter */
    enum stage stage;
    size_t header_at, rcpt_at;
    uint64_t body_at;
    struct filters_answer answer;
};

static void advance(struct filters *f);

/* ---- answers -------------------------------------------------------------------------------- */

static void set_answer(struct filters_answer *a, unsigned code, const char *status,
                       struct slice text)
{
    *a = (struct filters_answer){.result = FILTERS_REFUSE, .code = code};
    (void)snprintf(a->status, sizeof a->status, "%s", status);         /* fits */
    (void)snprintf(a->text, sizeof a->text, "%.*s", SLICE_ARGS(text)); /* or is cut */
}

static void set_hold(struct filters *f, struct slice reason)
{
    mem_free(f->hold);
    f->hold = mem_copy(reason.ptr, reason.len);
}

/* ---- the life of a connection --------------------------------------------------------------- */

static void link_close(struct link *l)
{
    if (l->state == LINK_ASKED) {
        filter_hub_forget(l->filters->hub, l->token);
    }
    if (l->state == LINK_OPEN) {
        milter_quit(&l->milter);
        if (stream_state(l->stream) == STREAM_STATE_OPEN) {
            stream_flush(l->stream, milter_output(&l->milter)); /* or it finds out by itself */
        }
        milter_fini(&l->milter);
    }
    stream_free(l->stream);
    mem_free(l->helo);
    l->stream = NULL;
    l->helo = NULL;
    l->connected = false;
    l->state = LINK_NONE;
}

static void on_stream(void *arg, struct stream *stream, enum stream_event event);

static void link_ask(struct link *l);

static void on_socket(void *arg, int fd, uint32_t addresses, struct slice error)
{
    struct link *l = arg;
    struct filters *f = l->filters;

    CHECK(l->state == LINK_ASKED);
    l->state = LINK_NONE;
    l->attempt++;
    if (fd >= 0) {
        l->state = LINK_CONNECTING;
        l->stream = stream_adopt(f->hub->streams, fd, on_stream, l);
        stream_set_deadline(l->stream, mono_after(clock_mono(), l->spec->connect_timeout_us));
        l->more_addresses = l->attempt < addresses;
        return;
    }
    if (l->attempt < addresses) {
        link_ask(l);
        return;
    }
    l->lost = true;
    (void)snprintf(l->why, sizeof l->why, "connect: %.*s", SLICE_ARGS(error)); /* or is cut */
    advance(f);
}

static void link_ask(struct link *l)
{
    l->state = LINK_ASKED;
    l->token = filter_hub_ask(l->filters->hub, l->spec->text, l->attempt, on_socket, l);
}

static void set_deadline(struct link *l)
{
    size_t waiting = buf_len(milter_output(&l->milter));

    if (waiting == 0) {
        l->output_due = MONO_NEVER;
    } else if (l->output_due.us == US_FOREVER) {
        l->output_due = mono_after(clock_mono(), l->spec->content_timeout_us);
    }
    stream_set_deadline(l->stream, mono_min(milter_deadline(&l->milter), l->output_due));
}

/* Send what waits; each byte that the filter takes is a sign of life. */
static void link_flush(struct link *l)
{
    struct buf *out = milter_output(&l->milter);
    size_t before = buf_len(out);

    if (before > 0 && stream_state(l->stream) == STREAM_STATE_OPEN) {
        stream_flush(l->stream, out);
        if (buf_len(out) < before) {
            l->output_due = MONO_NEVER; /* counted anew */
        }
    }
    set_deadline(l);
}

/* The connection is of no more use. Between messages that is no trouble: the next one gets a new
 * connection. */
static void link_lost(struct link *l, const char *why)
{
    struct filters *f = l->filters;
    bool is_needed = l->in_message || (f->is_asked && &f->links[f->at] == l);

    (void)snprintf(l->why, sizeof l->why, "%s", why); /* or is cut */
    link_close(l);
    l->lost = is_needed;
    if (is_needed) {
        advance(f);
    }
}

static void on_connecting(struct link *l, enum stream_event event)
{
    char why[TEXT_MAX];

    switch (event) {
    case STREAM_CONNECTED:
        l->state = LINK_OPEN;
        l->output_due = MONO_NEVER;
        milter_init(&l->milter, &l->filters->set->configs[l - l->filters->links], clock_mono());
        link_flush(l);
        advance(l->filters);
        return;
    case STREAM_FAILED:
        if (l->more_addresses) {
            stream_free(l->stream);
            l->stream = NULL;
            link_ask(l);
            return;
        }
        (void)snprintf(why, sizeof why, "connect: %s", stream_error(l->stream)); /* or is cut */
        link_lost(l, why);
        return;
    case STREAM_DEADLINE:
        link_lost(l, "connect: no connection in time");
        return;
    case STREAM_SECURED:
    case STREAM_READABLE:
    case STREAM_WRITABLE:
    case STREAM_END:
        UNREACHABLE("it connects");
    }
}

static void take_input(struct link *l)
{
    struct slice in = stream_input(l->stream);
    struct slice part = slice_of(in.ptr, in.len < INPUT_PIECE ? in.len : INPUT_PIECE);

    milter_input(&l->milter, part, clock_mono());
    stream_consume(l->stream, part.len);
}

static bool run_idle(struct link *l);

static void on_stream(void *arg, struct stream *stream, enum stream_event event)
{
    struct link *l = arg;
    struct filters *f = l->filters;

    (void)stream;
    if (l->state == LINK_CONNECTING) {
        on_connecting(l, event);
        return;
    }
    CHECK(l->state == LINK_OPEN);
    switch (event) {
    case STREAM_READABLE:
        if (f->is_asked && &f->links[f->at] == l) {
            advance(f); /* takes the input */
        } else {
            take_input(l); /* which it should not send */
            (void)run_idle(l);
        }
        return;
    case STREAM_WRITABLE:
        link_flush(l);
        if (f->is_asked && &f->links[f->at] == l) {
            advance(f);
        }
        return;
    case STREAM_END:
    case STREAM_FAILED:
        milter_lost(&l->milter);
        if (f->is_asked && &f->links[f->at] == l) {
            advance(f); /* what it said before counts */
        } else {
            link_lost(l, "connection lost");
        }
        return;
    case STREAM_DEADLINE:
        milter_expire(&l->milter, clock_mono());
        if (mono_reached(l->output_due, clock_mono())) {
            link_lost(l, "it does not take what it is sent");
        } else if (f->is_asked && &f->links[f->at] == l) {
            advance(f);
        } else {
            (void)run_idle(l);
        }
        return;
    case STREAM_CONNECTED:
    case STREAM_SECURED:
        UNREACHABLE("it is connected, in clear");
    }
}

/* Not asked anything: only a failure can come of it. */
static bool run_idle(struct link *l)
{
    struct milter_event event;

    milter_next(&l->milter, &event);
    if (event.type == MILTER_FAILED) {
        char why[TEXT_MAX];

        (void)snprintf(why, sizeof why, "%.*s", SLICE_ARGS(event.text)); /* or is cut */
        link_lost(l, why);
        return false;
    }
    return true;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static bool is_new_helo(const struct filters *f, const struct link *l)
{
    size_t len = strlen(f->helo);

    return l->helo == NULL || strncmp(l->helo, f->helo, len) != 0 ||
           strcmp(l->helo + len, f->tls) != 0;
}

static void keep_helo(const struct filters *f, struct link *l)
{
    size_t helo = strlen(f->helo), tls = strlen(f->tls);

    mem_free(l->helo);
    l->helo = mem_array(helo + tls + 1, 1);
    memcpy(l->helo, f->helo, helo);
    memcpy(l->helo + helo, f->tls, tls + 1);
}

/* The word behind `marker` in a description of TLS; of the whole text without one. */
static struct slice word_behind(const char *text, const char *marker)
{
    const char *at = marker == NULL ? text : strstr(text, marker);
    size_t skip = marker == NULL || at == NULL ? 0 : strlen(marker);

    return at == NULL ? SLICE("") : slice_of(at + skip, strcspn(at + skip, " /)"));
}

static void take_connect(struct filters *f, struct link *l)
{
    char client[TEXT_MAX], port[8];
    struct slice ip = slice_string(f->ip);

    (void)snprintf(client, sizeof client, "%s [%s]", f->name, f->ip); /* or is cut */
    (void)snprintf(port, sizeof port, "%u", f->port);                 /* fits */
    const struct milter_macro macros[] = {
        {"j", slice_string(f->set->hostname)},
        {"{daemon_name}", slice_string(f->set->daemon_name)},
        {"v", slice_string(f->set->version)},
        {"_", slice_string(client)},
        {"{client_name}", slice_string(f->name)},
        {"{client_ptr}", slice_string(f->name)},
        {"{client_addr}", ip},
        {"{client_port}", slice_string(port)},
    };
    _Static_assert(sizeof macros / sizeof macros[0] <= MACROS_MAX, "all that are known");

    milter_macros(&l->milter, MILTER_AT_CONNECT, macros, sizeof macros / sizeof macros[0]);
    milter_connect(&l->milter, slice_string(f->name), f->family, ip, f->port, clock_mono());
    l->connected = true;
}

static void take_helo(struct filters *f, struct link *l)
{
    const struct milter_macro macros[] = {
        {"{tls_version}", word_behind(f->tls, NULL)},
        {"{cipher}", word_behind(f->tls, "cipher ")},
        {"{cipher_bits}", word_behind(f->tls, "(")},
    };

    if (f->tls[0] != '\0') {
        milter_macros(&l->milter, MILTER_AT_HELO, macros, sizeof macros / sizeof macros[0]);
    }
    milter_helo(&l->milter, slice_string(f->helo), clock_mono());
    keep_helo(f, l);
}

static void take_mail(struct filters *f, struct link *l)
{
    struct milter_macro macros[MACROS_MAX] = {{"i", slice_string(f->id)},
                                              {"{mail_addr}", slice_string(f->sender)}};
    size_t count = 2;

    if (f->user[0] != '\0') {
        macros[count++] = (struct milter_macro){"{auth_type}", slice_string(f->mechanism)};
        macros[count++] = (struct milter_macro){"{auth_authen}", slice_string(f->user)};
    }
    milter_macros(&l->milter, MILTER_AT_MAIL, macros, count);
    milter_mail(&l->milter, slice_string(f->sender), slice_string(f->parameters), clock_mono());
    l->in_message = true;
}

static void take_rcpt(struct filters *f, struct link *l)
{
    const struct milter_macro macros[] = {{"i", slice_string(f->id)},
                                          {"{rcpt_addr}", slice_string(f->rcpt)}};

    milter_macros(&l->milter, MILTER_AT_RCPT, macros, sizeof macros / sizeof macros[0]);
    milter_rcpt(&l->milter, slice_string(f->rcpt), SLICE(""), clock_mono());
}

static void put_id(const struct filters *f, struct link *l, enum milter_macros_of step)
{
    const struct milter_macro id = {"i", slice_string(f->id)};

    milter_macros(&l->milter, step, &id, 1);
}

/* The next recipient of a message that is whole; false: there are no more. */
static bool next_rcpt(struct filters *f)
{
    struct slice address;

    if (f->draft == NULL) {
        return true; /* the one that the question is about; once */
    }
    if (!draft_next_rcpt(f->draft, &f->rcpt_at, &address)) {
        return false;
    }
    mem_free(f->rcpt);
    f->rcpt = mem_copy(address.ptr, address.len);
    return true;
}

static bool take_header(struct filters *f, struct link *l)
{
    struct slice header = draft_header(f->draft), rest = slice_skip(header, f->header_at);
    struct header_field field;

    if (!milter_wants_content(&l->milter) || !header_next(&rest, &field)) {
        return false;
    }
    f->header_at = header.len - rest.len;
    milter_header(&l->milter, field.name, field.value, clock_mono());
    return true;
}

static bool take_body(struct filters *f, struct link *l)
{
    char piece[PIECE_SIZE];
    size_t len = milter_wants_body(&l->milter)
                     ? draft_read_body(f->draft, f->body_at, piece, sizeof piece)
                     : 0;

    if (len == 0) {
        return false;
    }
    f->body_at += len;
    milter_body(&l->milter, slice_of(piece, len), clock_mono());
    return true;
}

/* Take the step of the stage. False: it has none, or no more. */
static bool take_step(struct filters *f, struct link *l)
{
    switch (f->stage) {
    case STAGE_CONNECT:
        if (l->connected) {
            return false;
        }
        take_connect(f, l);
        return true;
    case STAGE_HELO:
        if (!is_new_helo(f, l)) {
            return false;
        }
        take_helo(f, l);
        return true;
    case STAGE_MAIL:
        if (l->in_message) {
            return false;
        }
        take_mail(f, l);
        return true;
    case STAGE_RCPT:
        if ((f->draft == NULL && f->rcpt_at++ > 0) || !next_rcpt(f)) {
            return false;
        }
        take_rcpt(f, l);
        return true;
    case STAGE_DATA:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_DATA);
        milter_data(&l->milter, clock_mono());
        return true;
    case STAGE_HEADER:
        return take_header(f, l);
    case STAGE_END_OF_HEADER:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_END_OF_HEADER);
        milter_end_of_header(&l->milter, clock_mono());
        return true;
    case STAGE_BODY:
        return take_body(f, l);
    case STAGE_END:
        if (f->rcpt_at++ > 0) {
            return false;
        }
        put_id(f, l, MILTER_AT_END);
        milter_end(&l->milter, clock_mono());
        return true;
    case STAGE_DONE:
        break;
    }
    UNREACHABLE("a stage that is none");
}

static void next_stage(struct filters *f)
{
    f->stage++;
    f->rcpt_at = 0; /* in stages of one step: how often it was taken */
}

/* ---- what comes of a step ------------------------------------------------------------------- */

enum run { RUN_WAIT, RUN_NEXT, RUN_ANSWERED };

/* A filter can't be asked: what its default_action says. */
static enum run trouble(struct filters *f, struct link *l, const char *why)
{
    const struct slice unavailable = SLICE("Service unavailable - try again later");
    char hold[TEXT_MAX + MILTER_ADDRESS_MAX + 16];

    log_warning("filter %s: %s", l->spec->text, why);
    (void)snprintf(hold, sizeof hold, "filter %s: %s", l->spec->text, why); /* fits */
    link_close(l);
    l->lost = l->in_message = false;
    filter_changes_drop(&f->changes);
    switch (l->spec->default_action) {
    case CONF_MILTER_ACTION_TEMPFAIL:
        set_answer(&f->answer, 451, "4.7.1", unavailable);
        return RUN_ANSWERED;
    case CONF_MILTER_ACTION_REJECT:
        set_answer(&f->answer, 550, "5.7.1", SLICE("Service unavailable"));
        return RUN_ANSWERED;
    case CONF_MILTER_ACTION_SHUTDOWN:
        set_answer(&f->answer, 421, "4.7.1", unavailable);
        return RUN_ANSWERED;
    case CONF_MILTER_ACTION_QUARANTINE:
        set_hold(f, slice_string(hold));
        break;
    case CONF_MILTER_ACTION_ACCEPT:
        break;
    }
    l->skipped = true;
    return RUN_NEXT;
}

/* Its message is complete, and passes this filter. */
static enum run apply(struct filters *f, struct link *l)
{
    const char *why = "";

    milter_rest(&l->milter);
    switch (filter_changes_apply(&f->changes, &why)) {
    case FILTER_CHANGE_BAD:
        return trouble(f, l, why);
    case FILTER_CHANGE_NO_MEMORY:
        set_answer(&f->answer, 452, "4.3.1", SLICE("Insufficient memory, try again later"));
        return RUN_ANSWERED;
    case FILTER_CHANGE_OK:
        break;
    }
    f->flags |= f->changes.has_8bit ? (unsigned)ENVELOPE_8BIT : 0;
    if (buf_len(&f->changes.hold) > 0) {
        log_info("filter %s: %s: to be put on hold: %.*s", l->spec->text, f->id,
                 SLICE_ARGS(buf_slice(&f->changes.hold)));
        set_hold(f, buf_slice(&f->changes.hold));
    }
    filter_changes_drop(&f->changes);
    if (draft_rcpts(f->draft) == 0) {
        log_info("filter %s: %s: it has removed all recipients", l->spec->text, f->id);
        f->discards = true;
        f->answer = (struct filters_answer){.result = FILTERS_DISCARD};
        return RUN_ANSWERED;
    }
    return RUN_NEXT;
}

static enum run refused(struct filters *f, struct link *l)
{
    if (f->stage <= STAGE_HELO) { /* it says so of the session */
        l->refusal = f->answer;
        l->has_refused = f->answer.code / 100 == 5;
        link_close(l);
    }
    return RUN_ANSWERED;
}

/* RUN_WAIT stands for: go on with the steps. */
static enum run on_verdict(struct filters *f, struct link *l, const struct milter_event *event)
{
    char status[sizeof f->answer.status];

    if (f->stage == STAGE_END) {
        l->in_message = false;
    }
    switch (event->verdict) {
    case MILTER_CONTINUE:
    case MILTER_ACCEPT:
        return f->stage == STAGE_END ? apply(f, l) : RUN_WAIT; /* the engine passes the rest */
    case MILTER_REJECT:
        set_answer(&f->answer, 550, "5.7.1", SLICE("Command rejected"));
        return refused(f, l);
    case MILTER_TEMPFAIL:
        set_answer(&f->answer, 451, "4.7.1", SLICE("Service unavailable - try again later"));
        return refused(f, l);
    case MILTER_REPLY:
        if (event->status.len > 0) {
            (void)snprintf(status, sizeof status, "%.*s", SLICE_ARGS(event->status)); /* fits */
        } else {
            (void)snprintf(status, sizeof status, "%c.7.1", event->code < 500 ? '4' : '5');
        }
        set_answer(&f->answer, event->code, status,
                   event->text.len > 0 ? event->text : SLICE("Command rejected"));
        return refused(f, l);
    case MILTER_DISCARD:
        f->discards = true;
        f->answer =
            (struct filters_answer){.result = f->draft != NULL ? FILTERS_DISCARD : FILTERS_PASS};
        return RUN_ANSWERED;
    case MILTER_CLOSE:
        set_answer(&f->answer, 421, "4.7.0", SLICE("Server closing connection"));
        return refused(f, l);
    }
    UNREACHABLE("a verdict that is none");
}

static enum run on_event(struct filters *f, struct link *l, const struct milter_event *event)
{
    enum filter_change_result result;
    const char *why = "";
    char text[TEXT_MAX];

    switch (event->type) {
    case MILTER_VERDICT:
        return on_verdict(f, l, event);
    case MILTER_CHANGED:
        result = filter_changes_take(&f->changes, event, &why);
        if (result == FILTER_CHANGE_NO_MEMORY) {
            set_answer(&f->answer, 452, "4.3.1", SLICE("Insufficient memory, try again later"));
            link_close(l); /* in the middle of what it says */
            l->in_message = false;
            filter_changes_drop(&f->changes);
            return RUN_ANSWERED;
        }
        return result == FILTER_CHANGE_BAD ? trouble(f, l, why) : RUN_WAIT;
    case MILTER_FAILED:
        (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(event->text)); /* or is cut */
        return trouble(f, l, text);
    case MILTER_NEED_INPUT:
        break;
    }
    UNREACHABLE("there is an event");
}

/* Steps, verdicts and changes of one filter until it has to wait. */
static enum run run_open(struct filters *f, struct link *l)
{
    for (;;) {
        struct milter_event event;
        enum run result;

        milter_next(&l->milter, &event);
        if (event.type != MILTER_NEED_INPUT) {
            result = on_event(f, l, &event);
            if (result != RUN_WAIT) {
                return result;
            }
            continue;
        }
        if (stream_input(l->stream).len > 0) {
            take_input(l);
            continue;
        }
        link_flush(l);
        if (!milter_is_ready(&l->milter) ||
            buf_len(milter_output(&l->milter)) > FILTERS_OUTPUT_HIGH) {
            return RUN_WAIT;
        }
        if (!take_step(f, l)) {
            next_stage(f);
            if (f->stage > f->last) {
                link_flush(l);
                return RUN_NEXT;
            }
        }
    }
}

static enum run run(struct filters *f, struct link *l)
{
    if (l->skipped) {
        return RUN_NEXT;
    }
    if (l->lost) {
        return trouble(f, l, l->why);
    }
    if (l->has_refused) {
        f->answer = l->refusal;
        return RUN_ANSWERED;
    }
    switch (l->state) {
    case LINK_NONE:
        if (f->first != STAGE_CONNECT) {
            return trouble(f, l, "connection lost");
        }
        l->attempt = 0;
        link_ask(l);
        return RUN_WAIT;
    case LINK_ASKED:
    case LINK_CONNECTING:
        return RUN_WAIT;
    case LINK_OPEN:
        return run_open(f, l);
    }
    UNREACHABLE("a state that is none");
}

/* ---- questions ------------------------------------------------------------------------------ */

static void begin_filter(struct filters *f)
{
    f->stage = f->first;
    f->header_at = f->rcpt_at = 0;
    f->body_at = 0;
    filter_changes_drop(&f->changes);
    if (f->draft != NULL) {
        filter_changes_begin(&f->changes, f->draft, f->set->inline_max, f->set->body_max);
    }
}

static void finish(struct filters *f)
{
    f->is_asked = false;
    filter_changes_drop(&f->changes);
    f->draft = NULL;
    if (!f->in_call) {
        f->done(f->arg, f); /* may free it */
    }
}

static void advance(struct filters *f)
{
    while (f->is_asked) {
        enum run result = f->at < f->set->count ? run(f, &f->links[f->at]) : RUN_ANSWERED;

        switch (result) {
        case RUN_WAIT:
            return;
        case RUN_ANSWERED:
            finish(f);
            return;
        case RUN_NEXT:
            f->at++;
            if (f->at < f->set->count) {
                begin_filter(f);
            }
            break;
        }
    }
}

/* True: it is answered. */
static bool ask(struct filters *f, enum stage first, enum stage last, struct draft *draft)
{
    CHECK(!f->is_asked);
    f->answer = (struct filters_answer){.result = f->discards && draft != NULL ? FILTERS_DISCARD
                                                                               : FILTERS_PASS};
    if (f->discards) {
        return true;
    }
    f->is_asked = true;
    f->first = first;
    f->last = last;
    f->draft = draft;
    f->at = 0;
    begin_filter(f);
    f->in_call = true;
    advance(f);
    f->in_call = false;
    return !f->is_asked;
}

static void set_text(char **text, struct slice value)
{
    mem_free(*text);
    *text = mem_copy(value.ptr, value.len);
}

static void set_client(struct filters *f, const struct filters_client *client)
{
    set_text(&f->name, client->name);
    set_text(&f->ip, client->ip);
    set_text(&f->helo, client->helo.len > 0 ? client->helo : slice_string(f->set->hostname));
    set_text(&f->tls, client->tls);
    set_text(&f->user, client->user);
    set_text(&f->mechanism, client->mechanism);
    f->family = client->family;
    f->port = client->port;
}

static void begin_message(struct filters *f, const struct filters_client *client,
                          struct slice sender, struct slice parameters)
{
    filters_abort(f);
    set_client(f, client);
    set_text(&f->sender, sender);
    set_text(&f->parameters, parameters);
    filter_hub_name(f->hub, f->id);
}

bool filters_mail(struct filters *f, const struct filters_client *client, struct slice sender,
                  struct slice parameters)
{
    begin_message(f, client, sender, parameters);
    return ask(f, STAGE_CONNECT, STAGE_MAIL, NULL);
}

bool filters_rcpt(struct filters *f, struct slice rcpt)
{
    set_text(&f->rcpt, rcpt);
    return ask(f, STAGE_RCPT, STAGE_RCPT, NULL);
}

bool filters_data(struct filters *f)
{
    return ask(f, STAGE_DATA, STAGE_DATA, NULL);
}

bool filters_message(struct filters *f, struct draft *draft)
{
    return ask(f, STAGE_HEADER, STAGE_END, draft);
}

bool filters_whole(struct filters *f, const struct filters_client *client, struct draft *draft)
{
    begin_message(f, client, draft_sender(draft), SLICE(""));
    return ask(f, STAGE_CONNECT, STAGE_END, draft);
}

/* ---- the whole ------------------------------------------------------------------------------ */

struct filters *filters_new(struct filter_hub *hub, struct filter_set *set, filters_done *done,
                            void *arg)
{
    struct filters *f = mem_new(sizeof *f);

    f->hub = hub;
    f->set = filter_set_ref(set);
    f->done = done;
    f->arg = arg;
    for (size_t i = 0; i < set->count; i++) {
        f->links[i].filters = f;
        f->links[i].spec = &set->specs[i];
        f->links[i].output_due = MONO_NEVER;
    }
    return f;
}

void filters_free(struct filters *f)
{
    if (f == NULL) {
        return;
    }
    for (size_t i = 0; i < f->set->count; i++) {
        link_close(&f->links[i]);
    }
    filter_changes_drop(&f->changes);
    char *const texts[] = {f->name,      f->ip,     f->helo,       f->tls,  f->user,
                           f->mechanism, f->sender, f->parameters, f->rcpt, f->hold};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        mem_free(texts[i]);
    }
    filter_set_unref(f->set);
    mem_free(f);
}

void filters_abort(struct filters *f)
{
    bool was_asked = f->is_asked;

    f->is_asked = false;
    f->draft = NULL;
    filter_changes_drop(&f->changes);
    for (size_t i = 0; i < f->set->count; i++) {
        struct link *l = &f->links[i];

        if (l->state == LINK_OPEN && l->in_message) {
            milter_abort(&l->milter);
            link_flush(l);
        }
        /* One that was to answer is out of step; one that is not there yet need not come. */
        if (l->state != LINK_NONE && (l->state != LINK_OPEN || !milter_is_ready(&l->milter)) &&
            (was_asked || l->in_message)) {
            link_close(l);
        }
        l->in_message = l->lost = l->skipped = false;
    }
    mem_free(f->hold);
    f->hold = NULL;
    f->flags = 0;
    f->discards = false;
}

const struct filters_answer *filters_answer(const struct filters *f)
{
    return &f->answer;
}

struct slice filters_hold(const struct filters *f)
{
    return f->hold == NULL ? SLICE("") : slice_string(f->hold);
}

unsigned filters_flags(const struct filters *f)
{
    return f->flags;
}

const char *filters_id(const struct filters *f)
{
    return f->id;
}
