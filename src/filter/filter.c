#include "filter.h"

#include <stdio.h>
#include <unistd.h>

#include <sysexits.h>

#include "assignment.h"
#include "check.h"
#include "clock.h"
#include "filters.h"
#include "local_mail.h"
#include "log.h"
#include "mem.h"
#include "stream.h"
#include "worker.h"

/* Maximum time that a stop waits for filters and for answers of the queue process. */
#define STOP_US (5 * US_PER_S)

#define NO_MEMORY "Insufficient memory, or a header of more than 4 MiB: try again later"

_Static_assert(DRAFT_HEADER_MAX == 4 << 20, "as the text above has it");

struct filter {
    struct worker worker;
    struct assignments assignments;
    struct draft_budget budget; /* without a limit, because the queue process limits its
                                 * deliveries */
    struct streams *streams;
    struct filter_hub hub;
    struct filter_set *set; /* NULL: no filters */
    struct rule_set *rules; /* rules of the configuration */
    unsigned jobs;
};

/* A message on its way through the filters. Requeued mail passes the rules first. */
struct job {
    struct filter *filter;
    struct assignment *assignment; /* owned */
    bool is_requeued;              /* false for a bounce or notice */
    struct local_mail mail;        /* only its draft is used for a bounce or notice */
    struct filter_set *set;        /* filters at the start of the job, a reference; NULL: none */
    struct filters *filters;       /* owned; NULL: not asked, or none */
    char *envelope;                /* envelope for log lines about rules; owned; NULL: not made
                                    * yet */
};

/* ---- the end of a job ----------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    j->filter->jobs--;
    filters_free(j->filters);
    filter_set_unref(j->set);
    local_mail_drop(&j->mail);
    mem_free(j->envelope);
    mem_free(j);
}

static void finish(struct job *j, struct status status, struct slice text)
{
    const struct assignment_end end = {.outcome = OUTCOME_OK,
                                       .transmit_us = clock_mono().us - j->assignment->taken.us};

    if (status.class == STATUS_SUCCESS) {
        for (size_t i = 0; i < j->assignment->ask.rcpt_count; i++) {
            assignment_decide(j->assignment, i, VERDICT_SENT, FAILURE_ANSWER, status, text,
                              SLICE("milter"));
            assignment_quote(j->assignment, i, WIRE_REPORT_NONE, false, SLICE(""));
        }
    } else {
        assignment_decide_rest(j->assignment, FAILURE_ANSWER, status, text, SLICE("milter"));
    }
    assignment_finish(j->assignment, &end);
    job_free(j);
}

static void defer(struct job *j, const char *text)
{
    finish(j, (struct status){STATUS_TRANSIENT, 3, 0}, slice_string(text));
}

/* ---- filters -------------------------------------------------------------------------------- */

static void log_rules(const struct job *j, const char *id)
{
    if (j->is_requeued) {
        arrival_log(&j->mail.arrival, id, "local", j->envelope);
    }
}

/* Applies the results of the rules to *m, as pickup does. *ret_rcpts has the recipients, to be
 * freed. */
static struct server_reply put_ruled(struct job *j, struct wire_submit *m,
                                     char class_room[CLASS_NAME_MAX], const char *id,
                                     struct wire_rcpt **ret_rcpts)
{
    const struct conf *conf = j->filter->worker.role->conf;
    struct classified class =
        classify_end(&j->mail.classify, conf, true, SLICE(""), NULL, id, class_room);
    struct server_reply reply;

    *ret_rcpts = draft_envelope(&j->mail.draft);
    m->class_name = class.name;
    m->class_source = class.source;
    m->hold = arrival_hold(&j->mail.arrival);
    m->sender = draft_sender(&j->mail.draft);
    m->rcpt_count = draft_rcpts(&j->mail.draft);
    reply = arrival_envelope(&j->mail.arrival, conf, &m->sender, ret_rcpts, &m->rcpt_count,
                             WIRE_RCPTS_MAX);
    m->rcpts = *ret_rcpts;
    m->rules = arrival_rules(&j->mail.arrival);
    return reply;
}

/* Finishes the job with the refusal of rules or filters. */
static void refuse(struct job *j, unsigned code, const char *enhanced, struct slice text)
{
    struct status status;
    struct buf words;

    if (!status_parse(slice_string(enhanced), &status)) {
        status = status_of_reply(code);
    }
    buf_init(&words, WIRE_TEXT_MAX);
    (void)buf_addf(&words, "%u %s %.*s", code, enhanced, SLICE_ARGS(text)); /* or is cut */
    finish(j, status_repair(status, code < 500 ? STATUS_TRANSIENT : STATUS_PERMANENT),
           buf_slice(&words));
    buf_fini(&words);
}

/* Submits a message that has passed. The queue process stores it in place of the old message, and
 * its answer has the number of the entry. */
static void submit(struct job *j)
{
    const struct wire_deliver *ask = &j->assignment->ask;
    struct wire_submit m = {.token = ask->entry,
                            .flags = ask->flags,
                            .arrived = ask->arrived,
                            .pid = (uint32_t)getpid(),
                            .origin = SLICE("milter"),
                            .replaces = ask->entry};
    char login[WIRE_ID_MAX + 60], id[WIRE_ID_MAX + 1], class_room[CLASS_NAME_MAX];
    struct wire_rcpt *rcpts = NULL;
    struct server_reply reply = SERVER_ACCEPT;

    if (j->filter->worker.queue == NULL) {
        defer(j, "Queue is not available, try again later"); /* the result is dropped without a
                                                              * queue process */
        return;
    }
    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(ask->id)); /* fits */
    if (j->is_requeued) {
        reply = put_ruled(j, &m, class_room, id, &rcpts);
    }
    if (reply.code != 0) {
        mem_free(rcpts);
        refuse(j, reply.code, reply.status, reply.text);
        return;
    }
    if (j->filters != NULL) {
        m.flags |= filters_flags(j->filters);
        m.hold = m.hold.len > 0 ? m.hold : filters_hold(j->filters);
    }
    (void)snprintf(login, sizeof login, "%s%s%sorig_id=%s", j->filters != NULL ? "milter_id=" : "",
                   j->filters != NULL ? filters_id(j->filters) : "", j->filters != NULL ? ", " : "",
                   id); /* fits */
    m.login = slice_string(login);
    draft_submit(&j->mail.draft, j->filter->worker.queue, &m);
    mem_free(rcpts);
}

static void filtered(struct job *j)
{
    const struct filters_answer *a = filters_answer(j->filters);

    switch (a->result) {
    case FILTERS_PASS:
        submit(j);
        return;
    case FILTERS_DISCARD:
        finish(j, (struct status){STATUS_SUCCESS, 0, 0}, SLICE("discarded by a filter"));
        return;
    case FILTERS_REFUSE:
        refuse(j, a->code, a->status, slice_string(a->text));
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

    if (j->set == NULL) {
        submit(j);
        return;
    }
    j->filters = filters_new(&j->filter->hub, j->set, on_filters, j);
    if (filters_whole(j->filters, &local, &j->mail.draft)) {
        filtered(j);
    }
}

/* ---- rules ---------------------------------------------------------------------------------- */

/* Ends the content and applies the rules. */
static void ask_rules(struct job *j)
{
    const struct conf *conf = j->filter->worker.role->conf;
    char id[WIRE_ID_MAX + 1];
    struct server_reply ruled;

    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(j->assignment->ask.id)); /* fits */
    ruled = local_mail_end(&j->mail, id);
    if (j->mail.draft.failed) {
        defer(j, NO_MEMORY);
        return;
    }
    j->envelope = local_mail_envelope(&j->mail.draft);
    if ((int64_t)j->mail.scanner.facts.received > conf->hopcount_limit) {
        refuse(j, 554, "5.4.6", SLICE("Too many hops: it goes round in circles"));
    } else if (ruled.code != 0) {
        log_rules(j, id);
        refuse(j, ruled.code, ruled.status, ruled.text);
    } else if (j->mail.arrival.ruling.discard) {
        log_rules(j, id);
        finish(j, (struct status){STATUS_SUCCESS, 0, 0}, SLICE("discarded by a rule"));
    } else {
        ask_filters(j);
    }
}

/* ---- the draft ------------------------------------------------------------------------------ */

/* Moves the content received so far into the draft. */
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
        if (j->is_requeued) {
            local_mail_add(&j->mail, piece);
        } else {
            (void)draft_add_content(&j->mail.draft, piece); /* a failure shows in the draft */
        }
        if (j->mail.draft.failed) {
            defer(j, NO_MEMORY);
            return;
        }
        assignment_piece_used(j->assignment, piece.len);
        if (last) {
            break;
        }
    }
    if (j->is_requeued) {
        ask_rules(j);
    } else if (draft_finish(&j->mail.draft)) {
        ask_filters(j);
    } else {
        defer(j, NO_MEMORY);
    }
}

static bool begin(struct filter *f, const struct frame *frame)
{
    struct assignment *assignment = assignment_new(frame);
    const struct conf *conf = f->worker.role->conf;
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
    j->is_requeued = slice_equal(assignment->ask.nexthop, WIRE_MILTER_REQUEUE);
    j->set = f->set != NULL ? filter_set_ref(f->set) : NULL;
    if (j->is_requeued) {
        local_mail_begin(&j->mail, conf, f->rules, &f->budget, (uint64_t)conf->spool_inline_limit);
    } else {
        draft_init(&j->mail.draft, &f->budget, (uint64_t)conf->spool_inline_limit);
    }
    ok = draft_begin(&j->mail.draft, assignment->ask.sender, assignment->ask.envid);
    for (size_t i = 0; ok && i < assignment->ask.rcpt_count; i++) {
        const struct wire_deliver_rcpt *r = &assignment->ask.rcpts[i];

        ok = draft_add_rcpt(
            &j->mail.draft,
            &(struct wire_rcpt){.address = r->address, .orcpt = r->orcpt, .notify = r->notify},
            false);
    }
    if (!ok) {
        defer(j, NO_MEMORY);
        return true;
    }
    if (j->set != NULL) {
        draft_keep_header(&j->mail.draft);
    }
    if (j->is_requeued) {
        local_mail_data(&j->mail, false, SLICE(""));
    }
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
            (void)close(frame->fd); /* no job needs it */
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
    char text[WIRE_TEXT_MAX], id[WIRE_ID_MAX + 1];

    if (!wire_get_submit_done(body, &done)) {
        return false;
    }
    j = assignments_find(&f->assignments, done.token);
    if (j == NULL) {
        return true; /* an answer of the previous queue process */
    }
    if (done.code / 100 == 2) {                                     /* this ends the entry, too */
        (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(done.id)); /* fits */
        log_rules(j, id);
        assignment_free(j->assignment);
        job_free(j);
        return true;
    }
    if (done.code == WIRE_SUBMIT_GIVE_BACK) {
        assignment_give_back(j->assignment, false);
        job_free(j);
        return true;
    }
    (void)snprintf(text, sizeof text, "%u %.*s %.*s", done.code, SLICE_ARGS(done.status),
                   SLICE_ARGS(done.text)); /* or is cut */
    defer(j, text);
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
            (void)close(frame->fd); /* no frame of this type has one */
        }
        return false;
    }
}

/* Drops a job: the new queue process will deliver its message again. */
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
    return arrival_use_rules(role, &f->rules) ? EX_OK : EX_SOFTWARE;
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
    if (!arrival_use_rules(role, &f->rules)) {
        role_exit(role, EX_SOFTWARE);
        return;
    }
    filter_set_unref(f->set); /* a job has its own reference */
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
    rule_set_unref(f->rules);
    streams_free(f->streams);
    mem_free(f);
}

static unsigned filter_count(const struct conf *conf)
{
    return conf_spool_routes(conf) ? 0 : 1; /* mail may be requeued at any time */
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
