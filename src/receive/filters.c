/*
 * A question is a range of stages that each filter passes, one filter after the other. CONNECT and
 * HELO come before MAIL for a filter that has not received them. `run` takes the steps of one
 * filter until it must wait. `filters_advance` goes from filter to filter, and continues after each
 * event of a socket, deadline, or answer of the parent.
 */
#include "filters.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "envelope.h"
#include "filters_private.h"
#include "log.h"
#include "mem.h"

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

/* ---- results of a step ---------------------------------------------------------------------- */

enum run { RUN_WAIT, RUN_NEXT, RUN_ANSWERED };

/* Applies default_action, because the filter has failed. */
static enum run trouble(struct filters *f, struct link *l, const char *why)
{
    const struct slice unavailable = SLICE("Service unavailable - try again later");
    char hold[FILTERS_TEXT_MAX + MILTER_ADDRESS_MAX + 16];

    log_warning("filter %s: %s", l->spec->text, why);
    (void)snprintf(hold, sizeof hold, "filter %s: %s", l->spec->text, why); /* fits */
    filter_link_close(l);
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

/* Applies the changes of a filter that passes the message. */
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
    if (f->stage <= STAGE_HELO) { /* the refusal is for the session */
        l->refusal = f->answer;
        l->has_refused = f->answer.code / 100 == 5;
        filter_link_close(l);
    }
    return RUN_ANSWERED;
}

/* Returns RUN_WAIT to continue with the steps. */
static enum run on_verdict(struct filters *f, struct link *l, const struct milter_event *event)
{
    char status[sizeof f->answer.status];

    if (f->stage == STAGE_END) {
        l->in_message = false;
    }
    switch (event->verdict) {
    case MILTER_CONTINUE:
    case MILTER_ACCEPT:
        return f->stage == STAGE_END ? apply(f, l) : RUN_WAIT; /* the engine passes the other
                                                                * stages */
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
    char text[FILTERS_TEXT_MAX];

    switch (event->type) {
    case MILTER_VERDICT:
        return on_verdict(f, l, event);
    case MILTER_CHANGED:
        result = filter_changes_take(&f->changes, event, &why);
        if (result == FILTER_CHANGE_NO_MEMORY) {
            set_answer(&f->answer, 452, "4.3.1", SLICE("Insufficient memory, try again later"));
            filter_link_close(l); /* its event is incomplete */
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

static void next_stage(struct filters *f)
{
    f->stage++;
    f->rcpt_at = 0; /* in stages of one step: number of steps taken */
}

/* Runs steps, verdicts and changes of one filter until it must wait. */
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
            filter_link_take_input(l);
            continue;
        }
        filter_link_flush(l);
        if (!milter_is_ready(&l->milter) ||
            buf_len(milter_output(&l->milter)) > FILTERS_OUTPUT_HIGH) {
            return RUN_WAIT;
        }
        if (!filter_step(f, l)) {
            next_stage(f);
            if (f->stage > f->last) {
                filter_link_flush(l);
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
        filter_link_ask(l);
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
        f->done(f->arg, f); /* may free f */
    }
}

void filters_advance(struct filters *f)
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

/* Begins a question. Returns true if it is answered. */
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
    filters_advance(f);
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

/* ---- filters of a session or message -------------------------------------------------------- */

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
        filter_link_close(&f->links[i]);
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
            filter_link_flush(l);
        }
        /* A filter with an open question is out of step; a connection in progress is not needed. */
        if (l->state != LINK_NONE && (l->state != LINK_OPEN || !milter_is_ready(&l->milter)) &&
            (was_asked || l->in_message)) {
            filter_link_close(l);
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
