/*
 * What operators ask of the queue and do to it, through the control process. docs/api.md describes
 * the operations. Those that only read are in listing.c; here are those that need the scheduler or
 * change something.
 *
 * A change of many messages comes as a filter and is done page by page: the answer says where the
 * next page begins, and the asker asks again. So no question holds up deliveries for long, and an
 * answer is sent after its own commit.
 */
#include "queue_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "flush.h"
#include "intervention_ask.h"
#include "json.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "operation.h"
#include "queue.h"
#include "queue_measures.h"
#include "queue_overview.h"
#include "queue_report.h"
#include "queue_why.h"
#include "send_limit.h"
#include "spool_division.h"
#include "spool_parts.h"
#include "spool_search.h"

/* Messages changed by one question. */
#define CHANGE_PAGE 200
/* Recipients of a named message whose destinations are tried again at once. */
#define REVIVED_MAX 20
/* Bytes of events in an answer, about. */
#define EVENTS_PAGE 262144

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
    const char *done;  /* for the log */
    const char *event; /* for the journal */
} changes[] = {
    [CHANGE_HOLD] = {"hold", "placed on hold", "held"},
    [CHANGE_RELEASE] = {"release", "released from hold", "released"},
    [CHANGE_DELETE] = {"delete", "removed", "removed"},
    [CHANGE_REQUEUE] = {"requeue", "requeued", "requeued"},
    [CHANGE_EXPIRE] = {"expire", "expired", NULL}, /* its recipients have that event */
    [CHANGE_FLUSH] = {"flush", NULL, NULL},
};

static int change_one(struct queue *q, enum change change, struct msg_id id,
                      const struct spool_message *m)
{
    int rc;

    switch (change) {
    case CHANGE_HOLD:
        rc = spool_hold(q->spool, id, SLICE("held by an operator"));
        /* Held mail is due when it was held, so that it is known since when. */
        return rc != 0
                   ? rc
                   : spool_set_due(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()));
    case CHANGE_RELEASE:
        return m->state == SPOOL_HOLD
                   ? spool_release(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()))
                   : flush_message(q, id, m);
    case CHANGE_DELETE:
        return spool_remove(q->spool, id);
    case CHANGE_REQUEUE:
        return spool_requeue(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()));
    case CHANGE_EXPIRE:
        rc = spool_set_force_expire(q->spool, id);
        if (rc != 0 || m->state == SPOOL_HOLD) {
            return rc;
        }
        return spool_is_claimed(q->spool, id)
                   ? 0
                   : spool_set_due(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()));
    case CHANGE_FLUSH:
        return flush_message(q, id, m);
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

/* Does the change make sense in this state? To hold what was quarantined is to go on with what is
 * left of it, which only an operator who names it can want. */
static bool change_fits(enum change change, enum spool_state state, bool is_named)
{
    switch (change) {
    case CHANGE_HOLD:
        return state == SPOOL_INCOMING || state == SPOOL_DEFERRED ||
               (state == SPOOL_CORRUPT && is_named);
    case CHANGE_RELEASE: /* who names a deferred message wants it to go on */
        return state == SPOOL_HOLD ||
               (is_named && (state == SPOOL_INCOMING || state == SPOOL_DEFERRED));
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
    struct spool_message m;
    struct msg_id id;

    if (spool_id_parse(slice_string(text), &id) &&
        (spool_read(q->spool, id, &m) != -ENOENT ||
         listing_ids(q->spool, text, 1, ids + *count) == 0)) { /* else a name that looks like one */
        ids[(*count)++] = id;
        return;
    }
    found = listing_ids(q->spool, text, room, ids + *count);
    if (found == 0) {
        error = spool_divides(q->spool) ? "no message has that id or name"
                                        : "no message has that queue id";
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
                               char ret_next[SPOOL_ID_TEXT_MAX], json_t *errors,
                               json_t **ret_answer)
{
    const json_t *list = json_object_get(question, "ids");
    json_t *filter = json_object_get(question, "filter");
    const char *after = json_string_value(json_object_get(question, "after")), *error, *key;
    struct listing_filter f;
    struct msg_id last;
    size_t i;
    json_t *value;

    *ret_count = 0;
    *ret_more = false;
    if ((list == NULL) == (filter == NULL)) {
        return listing_error(400, ret_answer, "either ids or a filter is expected");
    }
    json_object_foreach((json_t *)(uintptr_t)question, key, value)
    {
        /* A word that is not understood might have been meant to keep mail from a change. */
        if (strcmp(key, "ids") != 0 && strcmp(key, "filter") != 0 && strcmp(key, "after") != 0 &&
            strcmp(key, "dry_run") != 0 && strcmp(key, "op") != 0) {
            return listing_error(400, ret_answer,
                                 "%s is not known; known are ids, filter, after, dry_run", key);
        }
    }
    value = json_object_get(question, "dry_run");
    if (value != NULL && !json_is_boolean(value)) {
        return listing_error(400, ret_answer, "dry_run: true or false is expected");
    }
    value = json_object_get(question, "after");
    if (value != NULL && !json_is_string(value)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    if (list != NULL) {
        if (!json_is_array(list) || json_array_size(list) > CHANGE_PAGE) {
            return listing_error(400, ret_answer, "ids: an array of at most %d is expected",
                                 CHANGE_PAGE);
        }
        json_array_foreach((json_t *)(uintptr_t)list, i, value)
        {
            if (!json_is_string(value)) {
                return listing_error(400, ret_answer, "ids: an array of texts is expected");
            }
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
    if (after != NULL && !spool_id_parse(slice_string(after), &f.spool.after)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    if (listing_scan(q->spool, &f, CHANGE_PAGE, ids, ret_count, &last, ret_more) != 0) {
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    if (*ret_more) {
        spool_id_print(last, ret_next);
    }
    return 200;
}

/* `why` may hold bytes of a damaged message. */
static void add_error(json_t *errors, const char *id, const char *why)
{
    json_t *error = json_pack("{s:s}", "id", id);

    json_put(error, "error", listing_text(slice_string(why)));
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
    agents_forget(q);
    if (dest == NULL) {
        sched_revive_all(q->sched, clock_mono());
    } else {
        flush_revive(q, slice_string(dest));
    }
}

/* Who names a message wants it to be tried, so where it is to go is tried again, too. */
static void revive_for(struct queue *q, struct msg_id id)
{
    struct spool_rcpt page[REVIVED_MAX];
    struct buf name;
    size_t count;

    if (spool_read_rcpts(q->spool, id, 0, true, REVIVED_MAX, page, &count) != 0) {
        return; /* the change itself will say so */
    }
    agents_forget(q);
    buf_init(&name, 2 * SPOOL_ROUTE_MAX + 2);
    for (size_t i = 0; i < count; i++) {
        if (page[i].transport.len > 0) {
            buf_clear(&name);
            (void)buf_addf(&name, "%.*s/%.*s", SLICE_ARGS(page[i].transport),
                           SLICE_ARGS(page[i].nexthop)); /* fits */
            flush_revive(q, buf_slice(&name));
        }
    }
    buf_fini(&name);
}

/* What is to be said of the end of a message that another system named, to be freed; NULL: it has
 * no such name. */
static char *last_words(struct queue *q, const struct spool_message *m)
{
    size_t slash = slice_find_last(m->path, '/');
    struct slice name = slash < m->path.len ? slice_skip(m->path, slash + 1) : m->path;
    struct buf text;

    if (m->path.len == 0) {
        return NULL;
    }
    buf_init(&text, LOG_LINE_MAX);
    (void)buf_addf(&text, "deletemsg: %.*s %.*s killed", SLICE_ARGS(m->spoolid),
                   SLICE_ARGS(name)); /* names of files are shorter */
    report_verbose(q, m->id, "ordered deletion of task file from scheduler memory (%.*s)",
                   SLICE_ARGS(name));
    return buf_take(&text);
}

/* A page of changes, until its commit has ended. */
struct change_page {
    enum change change;
    uint64_t token;
    bool dry_run, more;
    int rc; /* what ended it early */
    size_t matched, done_count;
    json_t *errors;       /* owned */
    struct msg_id *parts; /* owned: of those done that are stored in parts */
    size_t part_count;
    struct msg_id done[CHANGE_PAGE];
    char names[CHANGE_PAGE][QUEUE_NAME_MAX]; /* of those done, as other lines of the log have it */
    char shown[CHANGE_PAGE][QUEUE_NAME_MAX]; /* and as users know them */
    char *killed[CHANGE_PAGE];               /* owned */
    char next[SPOOL_ID_TEXT_MAX];
};

static void page_free(struct change_page *page)
{
    for (size_t i = 0; i < page->done_count; i++) {
        mem_free(page->killed[i]);
    }
    json_decref(page->errors);
    mem_free(page->parts);
    mem_free(page);
}

/* Change the parts of a message before it. 0, or what the spool refused. */
static int change_parts(struct queue *q, struct change_page *page, struct msg_id whole)
{
    struct msg_id ids[CHANGE_PAGE], after = {0};
    struct spool_message m;
    size_t count;
    int rc;

    do {
        rc = spool_parts_of(q->spool, whole, after, CHANGE_PAGE, ids, &count);
        page->parts = mem_resize(page->parts, page->part_count + count, sizeof page->parts[0]);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            after = ids[i];
            rc = spool_read(q->spool, ids[i], &m);
            if (rc == 0 && change_fits(page->change, m.state, true)) {
                rc = change_one(q, page->change, ids[i], &m);
                page->parts[page->part_count] = ids[i];
                page->part_count += rc == 0;
            }
        }
    } while (rc == 0 && count == CHANGE_PAGE);
    return rc;
}

/* Give the texts of a message a place of their own, to be freed, as the next call of the spool ends
 * their life. */
static char *keep_texts(struct spool_message *m)
{
    struct slice *const texts[] = {&m->sender, &m->class_name, &m->client, &m->path, &m->spoolid};
    size_t len = 1;
    char *room, *at;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        len += texts[i]->len;
    }
    room = at = mem_new(len);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i]->len > 0) {
            memcpy(at, texts[i]->ptr, texts[i]->len);
        }
        texts[i]->ptr = at;
        at += texts[i]->len;
    }
    return room;
}

/* Change one of the targets, of which the reading has ended with `found`. 0, or what ends the page.
 */
static int change_read(struct queue *q, struct change_page *page, struct msg_id id, bool is_named,
                       int found, struct spool_message m)
{
    enum change change = page->change;
    size_t at = page->done_count;
    struct spool_message now = m;
    char text[SPOOL_ID_TEXT_MAX];
    int rc;
    bool damaged = found == -EBADMSG;

    spool_id_print(id, text);
    if (found != 0 && !(damaged && change == CHANGE_DELETE)) {
        add_error(page->errors, text, found == -ENOENT ? "no such message" : spool_error(q->spool));
        return 0;
    }
    if (!damaged && !change_fits(change, m.state, is_named)) {
        if (is_named) {
            CHECK(json_array_append_new(page->errors, json_pack("{s:s, s:s+}", "id", text, "error",
                                                                "the message is in ",
                                                                listing_state_name(m.state))) == 0);
        }
        return 0;
    }
    page->matched++;
    if (page->dry_run) {
        return 0;
    }
    if (is_named && (change == CHANGE_FLUSH || change == CHANGE_RELEASE) && m.state != SPOOL_HOLD) {
        revive_for(q, id);
    }
    if (damaged) {
        spool_id_print(id, page->names[at]);
        spool_id_print(id, page->shown[at]);
    } else {
        (void)listing_shown_id(&m, page->shown[at]); /* it is in the room, as is this: */
        (void)queue_message_name(&m, page->names[at]);
    }
    if (change == CHANGE_DELETE && !damaged) {
        page->killed[at] = last_words(q, &m);
    }
    rc = !damaged && m.gathers ? change_parts(q, page, id) : 0;
    if (rc == 0 && !damaged && m.gathers) {
        rc = spool_read(q->spool, id, &now); /* it has changed with them */
    }
    rc = rc == 0 ? change_one(q, change, id, &now) : rc;
    if (rc == 0) {
        if (changes[change].event != NULL) {
            journal_changed(q, changes[change].event, page->shown[at], damaged ? NULL : &m,
                            SLICE(""));
        }
        page->done[page->done_count++] = id;
        return 0;
    }
    mem_free(page->killed[at]);
    page->killed[at] = NULL;
    if (batch_refused(rc)) {
        add_error(page->errors, text, spool_error(q->spool));
        rc = 0; /* the others go on */
    }
    return rc;
}

static int change_target(struct queue *q, struct change_page *page, struct msg_id id, bool is_named)
{
    struct spool_message m = {.id = id};
    int found = spool_read(q->spool, id, &m), rc;
    char *texts = found == 0 ? keep_texts(&m) : NULL;

    rc = change_read(q, page, id, is_named, found, m);
    mem_free(texts);
    return rc;
}

/* The answer to a page that is done. */
static json_t *page_done(struct queue *q, struct change_page *page)
{
    json_t *changed = json_array(), *answer;

    import_now(&q->import);
    for (size_t i = 0; i < page->part_count; i++) {
        change_committed(q, page->change, page->parts[i]);
    }
    for (size_t i = 0; i < page->done_count; i++) {
        change_committed(q, page->change, page->done[i]);
        CHECK(json_array_append_new(changed, json_string(page->shown[i])) == 0);
        if (changes[page->change].done != NULL) {
            log_info("%s: %s", page->names[i], changes[page->change].done);
        }
        if (page->killed[i] != NULL) {
            report_completed(q, slice_string(page->killed[i]));
        }
    }
    answer = json_pack("{s:I, s:o, s:O}", "matched", (json_int_t)page->matched, "changed", changed,
                       "errors", page->errors);
    if (page->more) {
        json_put(answer, "next", json_string(page->next));
    }
    return answer;
}

/* Its commit has ended. */
static void page_ended(struct queue *q, void *arg, int rc)
{
    struct change_page *page = arg;
    json_t *answer = NULL;
    unsigned status = 200;

    if (rc != 0 || page->rc != 0) {
        status = listing_error(503, &answer, "nothing was changed: %s", spool_error(q->spool));
    } else {
        answer = page_done(q, page);
    }
    operations_answer_later(q, page->token, status, answer);
    page_free(page);
}

static unsigned ask_change(struct queue *q, enum change change, const json_t *question,
                           uint64_t token, json_t **ret_answer)
{
    bool is_named = json_object_get(question, "ids") != NULL;
    struct change_page *page = mem_new(sizeof *page);
    struct msg_id ids[CHANGE_PAGE];
    unsigned status;
    size_t count;

    page->change = change;
    page->token = token;
    page->dry_run = json_is_true(json_object_get(question, "dry_run"));
    page->errors = json_array();
    status = change_targets(q, change, question, ids, &count, &page->more, page->next, page->errors,
                            ret_answer);
    if (status != 200) {
        page_free(page);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (spool_want(q->spool, ids[i], SPOOL_WANT_ROWS) == -EAGAIN ||
            spool_parts_want(q->spool, ids[i]) == -EAGAIN) {
            status = 503; /* all that is not at hand is asked for; the question comes again */
        }
    }
    if (status != 200) {
        page_free(page);
        return listing_error(status, ret_answer, "the messages are not at hand: try again");
    }
    if (change == CHANGE_FLUSH && !page->dry_run) {
        revive(q, question);
    }
    for (size_t i = 0; i < count && page->rc == 0; i++) {
        page->rc = change_target(q, page, ids[i], is_named);
    }
    if (page->dry_run) {
        page_ended(q, page, 0);
        return 0;
    }
    batch_add_waiter(q, page_ended, page);
    batch_commit(q); /* also ends a batch that failed */
    return 0;
}

/* ---- what the scheduler knows --------------------------------------------------------------- */

static void add_audit(const struct queue *q, json_t *answer)
{
    const struct auditor *a = &q->auditor;

    json_put(answer, "audit_rounds", json_integer((json_int_t)a->rounds));
    json_put(answer, "audit_findings", json_integer((json_int_t)a->findings));
    json_put(answer, "audit_repaired", json_integer((json_int_t)a->repaired));
    if (a->findings > 0) {
        json_put(answer, "audit_last", listing_text(slice_string(a->last_words)));
        json_put(answer, "audit_last_time", json_seconds(a->last_finding.us));
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

struct number {
    const char *name;
    uint64_t value;
};

static void put_numbers(json_t *answer, const struct number *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_put(answer, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    }
}

/* How often each limit has refused something, since the start. */
static json_t *count_send_limits(const struct queue *q)
{
    json_t *limits = json_array();

    for (int i = 0; i < SEND_LIMITS; i++) {
        enum send_limit limit = (enum send_limit)i;

        json_add(limits, json_pack("{s:s, s:I}", "limit", send_limit_name(limit), "refusals",
                                   (json_int_t)send_counts_refusals(q->send_counts, limit)));
    }
    return limits;
}

static unsigned ask_status(struct queue *q, const json_t *question, json_t **ret_answer)
{
    (void)question; /* it has no members */
    const struct wire_flow *flow = clients_flow(&q->clients);
    const struct queue_counts *counts = &q->counts;
    struct sched_totals t = sched_totals(q->sched);
    const struct number numbers[] = {
        {"active_messages", t.messages},
        {"active_recipients", t.recipients},
        {"waiting", t.entries_waiting},
        {"in_flight", t.entries_busy},
        {"active_destinations", t.destinations},
        {"dead_destinations", t.dead_destinations},
        {"parked_destinations", t.parked_destinations},
        {"decisions", t.decisions},
        {"commits", q->batch.commits},
        {"submitted", counts->submitted},
        {"delivered", counts->delivered},
        {"deferrals", counts->deferred},
        {"bounced", counts->bounced},
        {"expired", counts->expired},
        {"reports", counts->reports},
    };
    json_t *totals = json_pack("{s:s}", "op", "totals");
    unsigned status = listing_ask(q->spool, totals, clock_wall(), ret_answer);

    json_decref(totals);
    if (status != 200) {
        return status;
    }
    put_numbers(*ret_answer, numbers, sizeof numbers / sizeof numbers[0]);
    json_put(*ret_answer, "storage_ok", json_boolean(flow->storage_ok));
    json_put(*ret_answer, "space_ok", json_boolean(flow->space_ok));
    json_put(*ret_answer, "behind", json_boolean(flow->behind));
    json_put(*ret_answer, "free_bytes", json_integer((json_int_t)flow->free_bytes));
    json_put(*ret_answer, "scheduler_bytes", json_integer((json_int_t)t.bytes));
    add_audit(q, *ret_answer);
    json_put(*ret_answer, "completed", json_integer((json_int_t)q->counts.completed));
    agents_status(&q->agents, *ret_answer);
    json_put(*ret_answer, "busiest", why_busiest(q));
    json_put(*ret_answer, "classes", count_classes(q));
    json_put(*ret_answer, "send_limits", count_send_limits(q));
    json_put(*ret_answer, "interventions", interventions_ask_counts(q));
    json_put(*ret_answer, "web_hooks", hooks_json(q));
    return 200;
}

static unsigned ask_metrics(struct queue *q, const json_t *question, json_t **ret_answer)
{
    unsigned status = ask_status(q, question, ret_answer);

    if (status == 200) {
        measures_put(q, *ret_answer);
    }
    return status;
}

/* For the last hour's plots. */
static unsigned ask_sample(struct queue *q, const json_t *question, json_t **ret_answer)
{
    unsigned status = ask_status(q, question, ret_answer);

    if (status == 200) {
        json_put(*ret_answer, "troubled", why_troubled(q));
    }
    return status;
}

static unsigned ask_overview(struct queue *q, const json_t *question, json_t **ret_answer)
{
    unsigned status = ask_status(q, question, ret_answer);

    if (status == 200) {
        overview_put(q, *ret_answer);
    }
    return status;
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

/* Events behind `after`, as lines, or where those from `since` (microseconds) on begin. With none,
 * the control process is told when there are some. */
static unsigned ask_events(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                           json_t **ret_answer)
{
    json_int_t after = json_integer_value(json_object_get(question, "after"));
    uint64_t last = q->journal.last;
    int rc = 0;

    (void)ret_fd; /* bytes */
    if (!q->journal.on) {
        return listing_error(409, ret_answer,
                             "there is no journal of events: events = no, or the spool has no "
                             "place for one");
    }
    if (json_object_get(question, "since") != NULL) {
        rc = journal_find(q, (struct wall){json_integer_value(json_object_get(question, "since"))},
                          &last);
    } else if (after >= 0 && (uint64_t)after <= q->journal.last) {
        rc = journal_read(q, (uint64_t)after, EVENTS_PAGE, bytes, &last);
    }
    if (rc != 0) {
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    if (buf_len(bytes) == 0 && json_object_get(question, "since") == NULL) {
        journal_tell_more(q);
    }
    *ret_answer = json_pack("{s:I, s:I, s:I}", "last", (json_int_t)last, "newest",
                            (json_int_t)q->journal.last, "oldest", (json_int_t)q->journal.first);
    return 200;
}

static unsigned ask_change_named(struct queue *q, const json_t *question, uint64_t token,
                                 json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (strcmp(op, changes[i].op) == 0) {
            return ask_change(q, (enum change)i, question, token, ret_answer);
        }
    }
    UNREACHABLE("the table below has no others");
}

void ask_register(void)
{
    static const struct operation operations[] = {
        {.op = "hold", .later = ask_change_named},
        {.op = "release", .later = ask_change_named},
        {.op = "delete", .later = ask_change_named},
        {.op = "requeue", .later = ask_change_named},
        {.op = "expire", .later = ask_change_named},
        {.op = "flush", .later = ask_change_named},
        {.op = "status", .answer = ask_status},
        {.op = "metrics", .answer = ask_metrics},
        {.op = "overview", .answer = ask_overview},
        {.op = "sample", .answer = ask_sample},
        {.op = "table", .answer = overview_table},
        {.op = "classes", .answer = overview_classes},
        {.op = "sites", .answer = why_sites},
        {.op = "site", .answer = why_site},
        {.op = "why", .answer = why_message},
        {.op = "interventions", .answer = interventions_ask_list},
        {.op = "intervene", .later = interventions_ask_set},
        {.op = "cancel", .later = interventions_ask_cancel},
        {.op = "cat", .bytes = ask_cat},
        {.op = "events", .bytes = ask_events},
        {.op = "tls", .later = tls_question_ask},
        {.op = "watch", .answer = watches_begin},
        {.op = "unwatch", .answer = watches_end},
    };

    operations_register(operations, sizeof operations / sizeof operations[0]);
}
