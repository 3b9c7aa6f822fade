#include "filter.h"

#include <stdio.h>
#include <unistd.h>

#include "assignment.h"
#include "check.h"
#include "clock.h"
#include "draft.h"
#include "filters.h"
#include "log.h"
#include "mem.h"
#include "stream.h"
#include "worker.h"

/* A stop waits so long for filters and the queue's answers. */
#define STOP_US (5 * US_PER_S)

struct filter {
    struct worker worker;
    struct assignments assignments;
    struct draft_budget budget; /* without a limit: the queue process hands over only so much */
    struct streams *streams;
    struct filter_hub hub;
    struct filter_set *set; /* NULL: there are no filters any more */
    unsigned jobs;
};

/* A report on its way through the filters. */
struct job {
    struct filter *filter;
    struct assignment *assignment; /* owned */
    struct draft draft;
    struct filters *filters; /* owned; NULL: not asked, or none */
};

/* ---- the end of a job ----------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    j->filter->jobs--;
    filters_free(j->filters);
    draft_drop(&j->draft);
    mem_free(j);
}

static void finish(struct job *j, struct status status, struct slice text)
{
    const struct assignment_end end = {.outcome = OUTCOME_OK,
                                       .transmit_us = clock_mono().us - j->assignment->taken.us};

    if (status.class == STATUS_SUCCESS) {
        for (size_t i = 0; i < j->assignment->ask.rcpt_count; i++) {
            assignment_decide(j->assignment, i, VERDICT_SENT, status, text, SLICE("milter"));
        }
    } else {
        assignment_decide_rest(j->assignment, status, text, SLICE("milter"));
    }
    assignment_finish(j->assignment, &end);
    job_free(j);
}

static void defer(struct job *j, const char *text)
{
    finish(j, (struct status){STATUS_TRANSIENT, 3, 0}, slice_string(text));
}

/* ---- filters -------------------------------------------------------------------------------- */

/* It has passed: the queue stores it anew, and answers by the entry's number. */
static void submit(struct job *j)
{
    const struct wire_deliver *ask = &j->assignment->ask;
    struct wire_submit m = {.token = ask->entry,
                            .flags = ask->flags,
                            .arrived = ask->arrived,
                            .client = SLICE("local report"),
                            .pid = (uint32_t)getpid(),
                            .origin = SLICE("milter")};
    char login[40] = "";

    if (j->filter->worker.queue == NULL) {
        defer(j, "Queue is not available, try again later"); /* an orphan's result goes nowhere */
        return;
    }
    if (j->filters != NULL) {
        m.flags |= filters_flags(j->filters);
        m.hold = filters_hold(j->filters);
        (void)snprintf(login, sizeof login, "milter_id=%s", filters_id(j->filters)); /* fits */
        m.login = slice_string(login);
    }
    draft_submit(&j->draft, j->filter->worker.queue, &m);
}

static void filtered(struct job *j)
{
    const struct filters_answer *a = filters_answer(j->filters);
    struct status status;
    char text[sizeof a->text + 16];

    switch (a->result) {
    case FILTERS_PASS:
        submit(j);
        return;
    case FILTERS_DISCARD:
        finish(j, (struct status){STATUS_SUCCESS, 0, 0}, SLICE("discarded by a filter"));
        return;
    case FILTERS_REFUSE:
        if (!status_parse(slice_string(a->status), &status)) {
            status = status_of_reply(a->code);
        }
        (void)snprintf(text, sizeof text, "%u %s %s", a->code, a->status, a->text); /* fits */
        finish(j, status_repair(status, a->code < 500 ? STATUS_TRANSIENT : STATUS_PERMANENT),
               slice_string(text));
        return;
    }
    UNREACHABLE("an answer that is none");
}

static void on_filters(void *arg, struct filters *f)
{
    (void)f;
    filtered(arg);
}

static void ask_filters(struct job *j)
{
    static const struct filters_client local = {
        .name = {"localhost", 9}, .ip = {"127.0.0.1", 9}, .family = 4};

    if (j->filter->set == NULL) {
        submit(j);
        return;
    }
    j->filters = filters_new(&j->filter->hub, j->filter->set, on_filters, j);
    if (filters_whole(j->filters, &local, &j->draft)) {
        filtered(j);
    }
}

/* ---- the draft ------------------------------------------------------------------------------ */

/* Take the content over, as far as it is there. */
static void take_content(struct job *j)
{
    for (;;) {
        struct slice piece;
        bool last;

        switch (assignment_piece(j->assignment, &piece, &last)) {
        case ASSIGNMENT_PIECE_WAIT:
            assignment_ask_content(j->assignment);
            return;
        case ASSIGNMENT_PIECE_BROKEN:
            defer(j, "message content can't be read");
            return;
        case ASSIGNMENT_PIECE:
            break;
        }
        if (!draft_add_content(&j->draft, piece)) {
            defer(j, "Insufficient memory, try again later");
            return;
        }
        assignment_piece_used(j->assignment, piece.len);
        if (last) {
            break;
        }
    }
    if (draft_finish(&j->draft)) {
        ask_filters(j);
    } else {
        defer(j, "Insufficient memory, try again later");
    }
}

static bool begin(struct filter *f, const struct frame *frame)
{
    struct assignment *assignment = assignment_new(frame);
    struct job *j;
    bool ok;

    if (assignment == NULL) {
        return false;
    }
    j = mem_new(sizeof *j);
    j->filter = f;
    j->assignment = assignment;
    f->jobs++;
    assignments_add(&f->assignments, assignment, j);
    draft_init(&j->draft, &f->budget, (uint64_t)f->worker.role->conf->spool_inline_limit);
    ok = draft_begin(&j->draft, assignment->ask.sender, assignment->ask.envid);
    for (size_t i = 0; ok && i < assignment->ask.rcpt_count; i++) {
        const struct wire_deliver_rcpt *r = &assignment->ask.rcpts[i];

        ok = draft_add_rcpt(&j->draft, r->address, r->orcpt, r->notify);
    }
    if (!ok) {
        defer(j, "Insufficient memory, try again later");
        return true;
    }
    draft_keep_header(&j->draft);
    take_content(j);
    return true;
}

/* ---- the queue process ---------------------------------------------------------------------- */

static bool content_came(struct filter *f, const struct frame *frame)
{
    struct wire_content m;
    struct job *j;

    if (!wire_get_content(frame->body, &m) ||
        (j = assignments_find(&f->assignments, m.entry)) == NULL) {
        if (frame->fd >= 0) {
            (void)close(frame->fd); /* of no use */
        }
        return false;
    }
    if (assignment_take_content(j->assignment, &m, frame->fd)) {
        take_content(j);
    } else {
        defer(j, "message content can't be read");
    }
    return true;
}

static bool submit_done(struct filter *f, struct slice body)
{
    struct wire_submit_done done;
    struct job *j;
    char text[WIRE_TEXT_MAX];

    if (!wire_get_submit_done(body, &done)) {
        return false;
    }
    j = assignments_find(&f->assignments, done.token);
    if (j == NULL) {
        return true; /* of a queue process before this one */
    }
    (void)snprintf(text, sizeof text, "%u %.*s %.*s", done.code, SLICE_ARGS(done.status),
                   SLICE_ARGS(done.text)); /* or is cut */
    finish(j, status_of_reply(done.code), slice_string(text));
    return true;
}

static bool filter_frame(void *arg, const struct frame *frame)
{
    struct filter *f = arg;

    switch (frame->type) {
    case WIRE_DELIVER:
        return begin(f, frame);
    case WIRE_CONTENT:
        return content_came(f, frame);
    case WIRE_SUBMIT_DONE:
        return submit_done(f, frame->body);
    case WIRE_FORGET:
        return true; /* no connection outlasts its message */
    default:
        if (frame->fd >= 0) {
            (void)close(frame->fd); /* of no use */
        }
        return false;
    }
}

/* It will want anew what it has no result of. */
static bool drop_job(void *arg, void *owner)
{
    struct job *j = owner;

    (void)arg;
    assignment_free(j->assignment);
    job_free(j);
    return false;
}

static void filter_lost(void *arg)
{
    struct filter *f = arg;

    assignments_lost(&f->assignments, drop_job, NULL);
}

static const struct worker_ops ops = {.frame = filter_frame, .lost = filter_lost};

/* ---- the role ------------------------------------------------------------------------------- */

static int filter_start(struct role *role)
{
    struct filter *f = mem_new(sizeof *f);

    role->state = f;
    worker_init(&f->worker, role, &ops, f);
    f->assignments.queue = &f->worker.queue;
    f->budget.max = UINT64_MAX;
    f->streams = streams_new(role->base);
    filter_hub_init(&f->hub, role, f->streams);
    f->set = filter_set_new(role->conf, role->conf->non_smtpd_milters);
    return 0;
}

static void filter_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct filter *f = role->state;

    worker_peer(&f->worker, peer, fd);
}

static bool filter_parent_frame(struct role *role, const struct frame *frame)
{
    struct filter *f = role->state;

    return filter_hub_frame(&f->hub, frame);
}

static void filter_reload(struct role *role, const struct conf *old)
{
    struct filter *f = role->state;

    (void)old;
    filter_set_unref(f->set); /* what is under way has its own reference */
    f->set = filter_set_new(role->conf, role->conf->non_smtpd_milters);
}

static void filter_stop(struct role *role)
{
    struct filter *f = role->state;

    worker_stop(&f->worker, STOP_US);
}

static void filter_clock_moved(struct role *role)
{
    struct filter *f = role->state;

    streams_clock_moved(f->streams);
}

static void give_back(void *arg, void *owner)
{
    struct job *j = owner;

    (void)arg;
    assignment_give_back(j->assignment, false);
    job_free(j);
}

static void filter_turn(struct role *role)
{
    struct filter *f = role->state;

    if (role->stopping && f->jobs > 0 && mono_reached(f->worker.stop_at, clock_mono())) {
        assignments_each(&f->assignments, give_back, NULL);
    }
    worker_tick(&f->worker, false);
    if (role->stopping && f->jobs == 0) {
        worker_exit(&f->worker);
    }
}

static void filter_end(struct role *role)
{
    struct filter *f = role->state;

    worker_fini(&f->worker);
    filter_hub_fini(&f->hub);
    filter_set_unref(f->set);
    streams_free(f->streams);
    mem_free(f);
}

static unsigned filter_count(const struct conf *conf)
{
    return conf->non_smtpd_milters[0] != '\0' && conf->internal_mail_filter_classes.count > 0 ? 1
                                                                                              : 0;
}

const struct role_ops filter_role = {
    .role = ROLE_FILTER,
    .program = "milter",
    .kind = ROLE_WORKS,
    .count = filter_count,
    .start = filter_start,
    .peer = filter_peer,
    .parent_frame = filter_parent_frame,
    .reload = filter_reload,
    .stop = filter_stop,
    .clock_moved = filter_clock_moved,
    .turn = filter_turn,
    .end = filter_end,
};
