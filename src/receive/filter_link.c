/*
 * Connection to one filter:
 *
 *   NONE --ask--> ASKED --socket--> CONNECTING --> OPEN        any --failure, end--> NONE
 *                   ^                   |
 *                   +--next address-----+
 */
#include "filters_private.h"

#include <stdio.h>

#include "check.h"
#include "clock.h"
#include "mem.h"

/* Maximum bytes of input that the engine gets at once; it has room for them. */
#define INPUT_PIECE 16384u

void filter_link_close(struct link *l)
{
    if (l->state == LINK_ASKED) {
        filter_hub_forget(l->filters->hub, l->token);
    }
    if (l->state == LINK_OPEN) {
        milter_quit(&l->milter);
        if (stream_state(l->stream) == STREAM_STATE_OPEN) {
            stream_flush(l->stream, milter_output(&l->milter)); /* a rest that can't be sent is
                                                                 * lost */
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
        filter_link_ask(l);
        return;
    }
    l->lost = true;
    (void)snprintf(l->why, sizeof l->why, "connect: %.*s", SLICE_ARGS(error)); /* or is cut */
    filters_advance(f);
}

void filter_link_ask(struct link *l)
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

void filter_link_flush(struct link *l)
{
    struct buf *out = milter_output(&l->milter);
    size_t before = buf_len(out);

    if (before > 0 && stream_state(l->stream) == STREAM_STATE_OPEN) {
        stream_flush(l->stream, out);
        if (buf_len(out) < before) {
            l->output_due = MONO_NEVER; /* begins again with the next output */
        }
    }
    set_deadline(l);
}

/* Closes the connection. This is a failure only during a message or an open question; otherwise the
 * next message gets a new connection. */
static void link_lost(struct link *l, const char *why)
{
    struct filters *f = l->filters;
    bool is_needed = l->in_message || (f->is_asked && &f->links[f->at] == l);

    (void)snprintf(l->why, sizeof l->why, "%s", why); /* or is cut */
    filter_link_close(l);
    l->lost = is_needed;
    if (is_needed) {
        filters_advance(f);
    }
}

static void on_connecting(struct link *l, enum stream_event event)
{
    char why[FILTERS_TEXT_MAX];

    switch (event) {
    case STREAM_CONNECTED:
        l->state = LINK_OPEN;
        l->output_due = MONO_NEVER;
        milter_init(&l->milter, &l->filters->set->configs[l - l->filters->links], clock_mono());
        filter_link_flush(l);
        filters_advance(l->filters);
        return;
    case STREAM_FAILED:
        if (l->more_addresses) {
            stream_free(l->stream);
            l->stream = NULL;
            filter_link_ask(l);
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

void filter_link_take_input(struct link *l)
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
            filters_advance(f); /* reads the input */
        } else {
            filter_link_take_input(l); /* unexpected input */
            (void)run_idle(l);
        }
        return;
    case STREAM_WRITABLE:
        filter_link_flush(l);
        if (f->is_asked && &f->links[f->at] == l) {
            filters_advance(f);
        }
        return;
    case STREAM_END:
    case STREAM_FAILED:
        milter_lost(&l->milter);
        if (f->is_asked && &f->links[f->at] == l) {
            filters_advance(f); /* earlier input counts */
        } else {
            link_lost(l, "connection lost");
        }
        return;
    case STREAM_DEADLINE:
        milter_expire(&l->milter, clock_mono());
        if (mono_reached(l->output_due, clock_mono())) {
            link_lost(l, "it does not take what it is sent");
        } else if (f->is_asked && &f->links[f->at] == l) {
            filters_advance(f);
        } else {
            (void)run_idle(l);
        }
        return;
    case STREAM_CONNECTED:
    case STREAM_SECURED:
        UNREACHABLE("it is connected, in clear");
    }
}

/* Runs the engine without an open question, where only a failure can occur. Returns false after a
 * failure. */
static bool run_idle(struct link *l)
{
    struct milter_event event;

    milter_next(&l->milter, &event);
    if (event.type == MILTER_FAILED) {
        char why[FILTERS_TEXT_MAX];

        (void)snprintf(why, sizeof why, "%.*s", SLICE_ARGS(event.text)); /* or is cut */
        link_lost(l, why);
        return false;
    }
    return true;
}
