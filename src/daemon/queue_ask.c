/*
 * What operators ask of the queue and do to it, through the control process. docs/api.md describes
 * the operations. Those that only read are in listing.c; here are those that need the scheduler or
 * change something.
 *
 * A change of many messages comes as a filter and is done page by page: the answer says where the
 * next page begins, and the asker asks again. So no question holds up deliveries for long, and an
 * answer is sent after its own commit.
 */
#include "queue.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "listing.h"
#include "log.h"
#include "mem.h"

/* Messages changed by one question. */
#define CHANGE_PAGE 200
/* Domains that wait for their flush; more ETRNs than that are dropped with a log line. */
#define FLUSHES_MAX 100

struct flush {
    STAILQ_ENTRY(flush) next;
    char *domain; /* owned */
    struct msg_id after;
};

static void set(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

/* ---- changes -------------------------------------------------------------------------------- */

enum change {
    CHANGE_HOLD,
    CHANGE_RELEASE,
    CHANGE_DELETE,
    CHANGE_REQUEUE,
    CHANGE_EXPIRE,
    CHANGE_FLUSH
};

static const struct {
    const char *op;
    const char *done; /* for the log */
} changes[] = {
    [CHANGE_HOLD] = {"hold", "placed on hold"},
    [CHANGE_RELEASE] = {"release", "released from hold"},
    [CHANGE_DELETE] = {"delete", "removed"},
    [CHANGE_REQUEUE] = {"requeue", "requeued"},
    [CHANGE_EXPIRE] = {"expire", "expired"},
    [CHANGE_FLUSH] = {"flush", NULL},
};

/* Make it due, unless that changes nothing: what is in memory goes on anyhow, and what is parked as
 * soon as its destination can take it. */
static int flush_one(struct queue *q, struct msg_id id, const struct spool_message *m)
{
    if (spool_is_claimed(q->spool, id) || park_is_full(q, m->parked)) {
        return 0;
    }
    pass_want(q, id);
    return spool_set_due(q->spool, id, clock_wall());
}

static int change_one(struct queue *q, enum change change, struct msg_id id,
                      const struct spool_message *m)
{
    int rc;

    switch (change) {
    case CHANGE_HOLD:
        rc = spool_hold(q->spool, id, SLICE("held by an operator"));
        /* Held mail is due when it was held, so that it is known since when. */
        return rc != 0 ? rc : spool_set_due(q->spool, id, clock_wall());
    case CHANGE_RELEASE:
        return spool_release(q->spool, id, clock_wall());
    case CHANGE_DELETE:
        return spool_remove(q->spool, id);
    case CHANGE_REQUEUE:
        return spool_requeue(q->spool, id, clock_wall());
    case CHANGE_EXPIRE:
        rc = spool_set_force_expire(q->spool, id);
        if (rc != 0 || m->state == SPOOL_HOLD) {
            return rc;
        }
        return spool_is_claimed(q->spool, id) ? 0 : spool_set_due(q->spool, id, clock_wall());
    case CHANGE_FLUSH:
        return flush_one(q, id, m);
    }
    UNREACHABLE("all changes are above");
}

/* After the commit: what it means for a message in memory. */
static void change_committed(struct queue *q, enum change change, struct msg_id id)
{
    switch (change) {
    case CHANGE_HOLD:
    case CHANGE_DELETE:
    case CHANGE_REQUEUE:
        queue_drop(q, id);
        return;
    case CHANGE_EXPIRE:
        queue_leave(q, id);
        return;
    case CHANGE_RELEASE:
    case CHANGE_FLUSH:
        return;
    }
}

/* Does the change make sense in this state? To hold what was set aside is to go on with what is
 * left of it, which only an operator who names it can want. */
static bool change_fits(enum change change, enum spool_state state, bool is_named)
{
    switch (change) {
    case CHANGE_HOLD:
        return state == SPOOL_INCOMING || state == SPOOL_DEFERRED ||
               (state == SPOOL_CORRUPT && is_named);
    case CHANGE_RELEASE:
        return state == SPOOL_HOLD;
    case CHANGE_DELETE:
        return true;
    case CHANGE_REQUEUE:
    case CHANGE_EXPIRE:
        return state != SPOOL_CORRUPT;
    case CHANGE_FLUSH:
        return state == SPOOL_INCOMING || state == SPOOL_DEFERRED;
    }
    UNREACHABLE("all changes are above");
}

/* The messages that an element of "ids" names, behind those that are there. */
static void add_target(struct queue *q, enum change change, json_t *value, struct msg_id *ids,
                       size_t *count, json_t *errors)
{
    /* These change a file with all its parts. */
    bool is_whole = change == CHANGE_HOLD || change == CHANGE_RELEASE || change == CHANGE_DELETE;
    const char *text = json_string_value(value), *error = NULL;
    size_t found, room = is_whole ? 1 : CHANGE_PAGE - *count;

    if (text != NULL && spool_id_parse(slice_string(text), &ids[*count])) {
        (*count)++;
        return;
    }
    found = text == NULL ? 0 : listing_ids(q->spool, text, room, ids + *count);
    if (found == 0) {
        error = spool_divides(q->spool) ? "no message has that id or name" : "this is no queue id";
    } else if (found == room && !is_whole) {
        error = "it is of many parts, of which some may be left: ask again";
    }
    *count += found;
    if (error != NULL) {
        CHECK(json_array_append_new(errors, json_pack("{s:O, s:s}", "id", value, "error", error)) ==
              0);
    }
}

/* The messages a change is for: an array of ids, or one page of a filter. */
static unsigned change_targets(struct queue *q, enum change change, const json_t *question,
                               struct msg_id *ids, size_t *ret_count, bool *ret_more,
                               json_t *errors, json_t **ret_answer)
{
    const json_t *list = json_object_get(question, "ids");
    const json_t *filter = json_object_get(question, "filter");
    const char *after = json_string_value(json_object_get(question, "after")), *error;
    struct spool_filter f;
    size_t i;
    json_t *value;

    *ret_count = 0;
    *ret_more = false;
    if ((list == NULL) == (filter == NULL)) {
        return listing_error(400, ret_answer, "either ids or a filter is expected");
    }
    if (list != NULL) {
        if (!json_is_array(list) || json_array_size(list) > CHANGE_PAGE) {
            return listing_error(400, ret_answer, "ids: an array of at most %d is expected",
                                 CHANGE_PAGE);
        }
        json_array_foreach((json_t *)(uintptr_t)list, i, value)
        {
            if (*ret_count < CHANGE_PAGE) {
                add_target(q, change, value, ids, ret_count, errors);
            } else {
                CHECK(json_array_append_new(
                          errors, json_pack("{s:O, s:s}", "id", value, "error",
                                            "names before it have used up the page: ask again")) ==
                      0);
            }
        }
        return 200;
    }
    if (!listing_filter(filter, clock_wall(), &f, &error)) {
        return listing_error(400, ret_answer, "%s", error);
    }
    if (after != NULL && !spool_id_parse(slice_string(after), &f.after)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    if (spool_scan(q->spool, &f, CHANGE_PAGE, ids, ret_count) != 0) {
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    *ret_more = *ret_count == CHANGE_PAGE;
    return 200;
}

/* Revive the destinations of that name, "nexthop" or "transport/nexthop". */
static void revive_named(struct queue *q, struct slice wanted)
{
    uint64_t cursor = 0;
    struct sched_dest_info info;

    while (sched_dest_each(q->sched, &cursor, &info)) {
        struct slice name = slice_string(q->transports[info.transport]);

        if (slice_equal_nocase(info.dest, wanted) ||
            (slice_starts(wanted, name) && wanted.len > name.len && wanted.ptr[name.len] == '/' &&
             slice_equal_nocase(slice_skip(wanted, name.len + 1), info.dest))) {
            char copy[SCHED_DEST_NAME_MAX + 1];
            CHECK(info.dest.len <= SCHED_DEST_NAME_MAX);
            memcpy(copy, info.dest.ptr, info.dest.len);
            sched_revive(q->sched, clock_mono(), info.transport, slice_of(copy, info.dest.len));
        }
    }
}

/* `why` may hold bytes of a damaged message. */
static void add_error(json_t *errors, const char *id, const char *why)
{
    json_t *error = json_pack("{s:s}", "id", id);

    set(error, "error", listing_text(slice_string(why)));
    CHECK(json_array_append_new(errors, error) == 0);
}

/* A destination asked for by name is revived at once; without one, all are. */
static void revive(struct queue *q, const json_t *question)
{
    const char *dest =
        json_string_value(json_object_get(json_object_get(question, "filter"), "destination"));

    if (json_object_get(question, "ids") != NULL || json_object_get(question, "after") != NULL) {
        return;
    }
    if (dest == NULL) {
        sched_revive_all(q->sched, clock_mono());
    } else {
        revive_named(q, slice_string(dest));
        queue_thread_ask_for(q, slice_string(dest));
    }
}

/* What is to be said of the end of a message of a postoffice, to be freed; NULL: it is of none. */
static char *last_words(struct queue *q, const struct spool_message *m)
{
    size_t slash = slice_find_last(m->path, '/');
    struct slice name = slash < m->path.len ? slice_skip(m->path, slash + 1) : m->path;
    struct buf text;

    if (m->spoolid.len == 0) {
        return NULL;
    }
    buf_init(&text, LOG_LINE_MAX);
    (void)buf_addf(&text, "deletemsg: %.*s %.*s killed", SLICE_ARGS(m->spoolid),
                   SLICE_ARGS(name)); /* names of files are shorter */
    report_verbose(q, m->id, "ordered deletion of task file from scheduler memory (%.*s)",
                   SLICE_ARGS(name));
    return buf_take(&text);
}

static unsigned ask_change(struct queue *q, enum change change, const json_t *question,
                           json_t **ret_answer)
{
    bool dry_run = json_is_true(json_object_get(question, "dry_run")), more;
    json_t *errors = json_array(), *changed = json_array();
    struct msg_id ids[CHANGE_PAGE], done[CHANGE_PAGE];
    char *killed[CHANGE_PAGE] = {NULL};
    size_t count, done_count = 0, matched = 0;
    char text[SPOOL_ID_TEXT_MAX];
    unsigned status;
    bool is_named = json_object_get(question, "ids") != NULL;
    int rc = 0;

    status = change_targets(q, change, question, ids, &count, &more, errors, ret_answer);
    if (status != 200) {
        json_decref(errors);
        json_decref(changed);
        return status;
    }
    if (change == CHANGE_FLUSH && !dry_run) {
        revive(q, question);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct spool_message m;
        int found = spool_read(q->spool, ids[i], &m);
        bool damaged = found == -EBADMSG;

        spool_id_print(ids[i], text);
        if (found != 0 && !(damaged && change == CHANGE_DELETE)) {
            add_error(errors, text, found == -ENOENT ? "no such message" : spool_error(q->spool));
            continue;
        }
        if (!damaged && !change_fits(change, m.state, is_named)) {
            if (is_named) {
                CHECK(json_array_append_new(errors, json_pack("{s:s, s:s+}", "id", text, "error",
                                                              "the message is in ",
                                                              listing_state_name(m.state))) == 0);
            }
            continue;
        }
        matched++;
        if (dry_run) {
            continue;
        }
        if (change == CHANGE_DELETE && !damaged) {
            killed[done_count] = last_words(q, &m);
        }
        rc = change_one(q, change, ids[i], &m);
        if (rc == 0) {
            done[done_count++] = ids[i];
            continue;
        }
        mem_free(killed[done_count]);
        killed[done_count] = NULL;
        if (queue_refused(rc)) {
            add_error(errors, text, spool_error(q->spool));
            rc = 0; /* the others go on */
        }
    }
    if (!dry_run) {
        int committed = commit_now(q); /* also ends a batch that failed */
        rc = rc != 0 ? rc : committed;
    }
    if (rc != 0) {
        json_decref(errors);
        json_decref(changed);
        for (size_t i = 0; i < done_count; i++) {
            mem_free(killed[i]);
        }
        return listing_error(503, ret_answer, "nothing was changed: %s", spool_error(q->spool));
    }
    q->next_due.us = 0;
    for (size_t i = 0; i < done_count; i++) {
        change_committed(q, change, done[i]);
        spool_id_print(done[i], text);
        CHECK(json_array_append_new(changed, json_string(text)) == 0);
        if (changes[change].done != NULL) {
            log_info("%s: %s", text, changes[change].done);
        }
        if (killed[i] != NULL) {
            q->completed++;
            report_line(q, "%s", killed[i]);
            mem_free(killed[i]);
        }
    }
    *ret_answer = json_pack("{s:I, s:o, s:o}", "matched", (json_int_t)matched, "changed", changed,
                            "errors", errors);
    if (more) {
        spool_id_print(ids[count - 1], text);
        set(*ret_answer, "next", json_string(text));
    }
    return 200;
}

/* ---- ETRN ----------------------------------------------------------------------------------- */

void ask_flush_domain(struct queue *q, struct slice domain)
{
    struct flush *flush;

    STAILQ_FOREACH(flush, &q->flushes, next)
    {
        if (slice_equal_nocase(slice_string(flush->domain), domain)) {
            return; /* under way */
        }
    }
    if (q->flush_count == FLUSHES_MAX) {
        log_warning("ETRN: %d domains are being flushed, %.*s is left out", FLUSHES_MAX,
                    SLICE_ARGS(domain));
        return;
    }
    revive_named(q, domain);
    queue_thread_ask_for(q, domain);
    flush = mem_new(sizeof *flush);
    flush->domain = mem_copy(domain.ptr, domain.len);
    STAILQ_INSERT_TAIL(&q->flushes, flush, next);
    q->flush_count++;
}

void ask_end(struct queue *q)
{
    struct flush *flush;

    while ((flush = STAILQ_FIRST(&q->flushes)) != NULL) {
        STAILQ_REMOVE_HEAD(&q->flushes, next);
        mem_free(flush->domain);
        mem_free(flush);
    }
}

bool ask_flush_some(struct queue *q)
{
    struct flush *flush = STAILQ_FIRST(&q->flushes);
    struct spool_filter f = {.states = 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED};
    struct msg_id ids[CHANGE_PAGE];
    size_t count = 0;

    if (flush == NULL) {
        return false;
    }
    f.destination = slice_string(flush->domain);
    f.after = flush->after;
    if (spool_scan(q->spool, &f, CHANGE_PAGE, ids, &count) != 0) {
        log_warning("ETRN %s: %s", flush->domain, spool_error(q->spool));
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct spool_message m;
        int rc = spool_read(q->spool, ids[i], &m);

        flush->after = ids[i];
        if (rc == 0) {
            rc = flush_one(q, ids[i], &m);
        }
        if (rc != 0) {
            log_warning("ETRN %s: %s", flush->domain, spool_error(q->spool));
        }
        if (rc != 0 && !queue_refused(rc)) {
            count = 0; /* the storage fails: who wants the mail will ask again */
        }
    }
    if (count < CHANGE_PAGE) {
        STAILQ_REMOVE_HEAD(&q->flushes, next);
        q->flush_count--;
        mem_free(flush->domain);
        mem_free(flush);
    }
    q->next_due.us = 0;
    return true;
}

/* ---- what the scheduler knows --------------------------------------------------------------- */

static void add_audit(const struct queue *q, json_t *answer)
{
    const struct auditor *a = &q->auditor;

    set(answer, "audit_rounds", json_integer((json_int_t)a->rounds));
    set(answer, "audit_findings", json_integer((json_int_t)a->findings));
    set(answer, "audit_repaired", json_integer((json_int_t)a->repaired));
    if (a->findings > 0) {
        set(answer, "audit_last", listing_text(slice_string(a->last_words)));
        set(answer, "audit_last_time", json_real((double)a->last_finding.us / (double)US_PER_S));
    }
}

/* Bounded by what class_count remembers. */
static json_t *count_classes(const struct queue *q)
{
    json_t *classes = json_array();

    for (size_t i = 0; i < q->class_counts.count; i++) {
        const struct class_count *c = &q->class_counts.at[i];
        json_t *one = json_pack("{s:s, s:I, s:I, s:I, s:I}", "class", c->name, "active_messages",
                                (json_int_t)active_class_count(&q->active, slice_string(c->name)),
                                "submitted", (json_int_t)c->submitted, "delivered",
                                (json_int_t)c->delivered, "deferrals", (json_int_t)c->deferred);

        CHECK(json_array_append_new(classes, one) == 0);
    }
    return classes;
}

static unsigned ask_status(struct queue *q, json_t **ret_answer)
{
    struct sched_totals t = sched_totals(q->sched);
    json_t *totals = json_pack("{s:s}", "op", "totals");
    unsigned status = listing_ask(q->spool, totals, clock_wall(), ret_answer);

    json_decref(totals);
    if (status != 200) {
        return status;
    }
    json_t *more = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, "
        "s:b, "
        "s:I, "
        "s:I}",
        "active_messages", (int)t.messages, "active_recipients", (int)t.recipients, "waiting",
        (int)t.entries_waiting, "in_flight", (int)t.entries_busy, "active_destinations",
        (int)t.destinations, "dead_destinations", (int)t.dead_destinations, "parked_destinations",
        (int)t.parked_destinations, "decisions", (json_int_t)t.decisions, "commits",
        (json_int_t)q->commits, "submitted", (json_int_t)q->submitted, "delivered",
        (json_int_t)q->delivered, "deferrals", (json_int_t)q->deferred, "bounced",
        (json_int_t)q->bounced, "expired", (json_int_t)q->expired, "reports",
        (json_int_t)q->reports, "storage_ok", (int)q->flow.storage_ok, "space_ok",
        (int)q->flow.space_ok, "behind", (int)q->flow.behind, "free_bytes",
        (json_int_t)q->flow.free_bytes, "scheduler_bytes", (json_int_t)t.bytes);
    CHECK(more != NULL);
    CHECK(json_object_update_new(*ret_answer, more) == 0);
    add_audit(q, *ret_answer);
    set(*ret_answer, "completed", json_integer((json_int_t)q->completed));
    set(*ret_answer, "agents", json_integer(agent_table_count(&q->agent_table)));
    set(*ret_answer, "agents_idle", json_integer(q->agent_table.idle));
    set(*ret_answer, "agent_starts", json_integer((json_int_t)q->agent_table.starts));
    set(*ret_answer, "busiest", why_busiest(q));
    set(*ret_answer, "classes", count_classes(q));
    return 200;
}

/* ---- the operations ------------------------------------------------------------------------- */

/* The content of a message: the one answer that is no JSON. */
static unsigned ask_cat(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                        json_t **ret_answer)
{
    const char *text = json_string_value(json_object_get(question, "id"));
    struct msg_id id;
    unsigned status = listing_id(q->spool, text, &id, ret_answer);
    uint64_t size;
    int rc;

    if (status != 200) {
        return status;
    }
    rc = spool_read_content(q->spool, id, bytes, ret_fd, &size);
    if (rc != 0) {
        return rc == -ENOENT ? listing_error(404, ret_answer, "%s: no such message", text)
                             : listing_error(rc == -EBADMSG ? 409 : 503, ret_answer, "%s",
                                             spool_error(q->spool));
    }
    *ret_answer = json_pack("{s:I}", "size", (json_int_t)size);
    return 200;
}

static unsigned answer_op(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                          json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));

    if (op == NULL) {
        return listing_error(400, ret_answer, "op: the name of an operation is expected");
    }
    if (listing_knows(op)) {
        return listing_ask(q->spool, question, clock_wall(), ret_answer);
    }
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (strcmp(op, changes[i].op) == 0) {
            return ask_change(q, (enum change)i, question, ret_answer);
        }
    }
    if (strcmp(op, "status") == 0) {
        return ask_status(q, ret_answer);
    }
    if (strcmp(op, "sites") == 0) {
        return why_sites(q, question, ret_answer);
    }
    if (strcmp(op, "site") == 0) {
        return why_site(q, question, ret_answer);
    }
    if (strcmp(op, "threads") == 0) {
        return ask_threads(q, question, ret_answer);
    }
    if (strcmp(op, "kill") == 0) {
        return ask_dismiss(q, DISMISS_KILL, question, ret_answer);
    }
    if (strcmp(op, "reroute") == 0) {
        return ask_dismiss(q, DISMISS_REROUTE, question, ret_answer);
    }
    if (strcmp(op, "vertices") == 0) {
        return ask_vertices(q, question, ret_answer);
    }
    if (strcmp(op, "why") == 0) {
        return why_message(q, question, ret_answer);
    }
    if (strcmp(op, "cat") == 0) {
        return ask_cat(q, question, bytes, ret_fd, ret_answer);
    }
    return listing_error(404, ret_answer, "%s: no such operation", op);
}

void ask_answer(struct queue *q, struct channel *control, const struct wire_ask *ask)
{
    struct wire_answer answer = {.token = ask->token};
    json_t *question, *object = NULL;
    json_error_t error;
    struct buf bytes;
    char *text;
    int fd = -1;

    buf_init(&bytes, WIRE_CONTENT_MAX);
    question = json_loadb(ask->json.ptr, ask->json.len, JSON_REJECT_DUPLICATES, &error);
    if (question == NULL) {
        answer.status = listing_error(400, &object, "not JSON: %s", error.text);
    } else {
        answer.status = answer_op(q, question, &bytes, &fd, &object);
    }
    text = json_dumps(object, JSON_COMPACT);
    CHECK(text != NULL);
    if (strlen(text) > WIRE_JSON_MAX) { /* listings bound themselves far below */
        free(text);
        json_decref(object);
        answer.status = listing_error(503, &object, "the answer is too long: ask for less");
        text = json_dumps(object, JSON_COMPACT);
        CHECK(text != NULL);
    }
    answer.json = slice_string(text);
    answer.bytes = buf_slice(&bytes);
    wire_put_answer(control, &answer, fd);
    free(text);
    json_decref(object);
    json_decref(question);
    buf_fini(&bytes);
}
