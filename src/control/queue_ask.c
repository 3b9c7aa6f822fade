/*
 * Operations on the queue for the control process. docs/api.md describes them. Those that only read
 * are in listing.c; these need the scheduler or change something.
 *
 * A change of many messages has a filter and is made page by page: the answer has the start of the
 * next page, and the caller sends another query. So no query delays deliveries for long, and an
 * answer is sent after its own commit.
 */
#include "queue_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "flush.h"
#include "inquiry.h"
#include "intervention_ask.h"
#include "json.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "nexthop.h"
#include "operation.h"
#include "queue.h"
#include "queue_damage.h"
#include "queue_measures.h"
#include "queue_nodes.h"
#include "queue_overview.h"
#include "queue_report.h"
#include "queue_result.h"
#include "queue_route.h"
#include "queue_why.h"
#include "send_limit.h"
#include "spool_division.h"
#include "spool_others.h"
#include "spool_parts.h"
#include "spool_search.h"

/* Messages that one query changes. */
#define CHANGE_PAGE 200
/* Recipients of a named message whose destinations are tried again at once. */
#define REVIVED_MAX 20
/* Approximate bytes of events in an answer. */
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
    const char *done;  /* verb for the log */
    const char *event; /* name in the journal */
} changes[] = {
    [CHANGE_HOLD] = {"hold", "placed on hold", "held"},
    [CHANGE_RELEASE] = {"release", "released from hold", "released"},
    [CHANGE_DELETE] = {"delete", "removed", "removed"},
    [CHANGE_REQUEUE] = {"requeue", "requeued", "requeued"},
    [CHANGE_EXPIRE] = {"expire", "expired", NULL}, /* each recipient has an event "expired" */
    [CHANGE_FLUSH] = {"flush", NULL, NULL},
};

static int change_one(struct queue *q, enum change change, struct msg_id id,
                      const struct spool_message *m)
{
    int rc;

    switch (change) {
    case CHANGE_HOLD:
        rc = spool_hold(q->spool, id, SLICE("held by an operator"));
        /* Sets the due time of held mail to the time of the hold, to keep that time. */
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
        return queue_requeue(q, m);
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

/* Applies a committed change to a message in memory. */
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

/* Is the change allowed in this state? A hold of quarantined mail means to go on with what is left
 * of it, so the operator must name the message. */
static bool change_fits(enum change change, enum spool_state state, bool is_named)
{
    switch (change) {
    case CHANGE_HOLD:
        return state == SPOOL_INCOMING || state == SPOOL_DEFERRED ||
               (state == SPOOL_CORRUPT && is_named);
    case CHANGE_RELEASE: /* an operator who names a deferred message wants it to go on */
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

/* Does the change have an effect only if the message can be read and changed? */
static bool needs_sound_rows(enum change change)
{
    return change != CHANGE_HOLD && change != CHANGE_DELETE;
}

/* Appends the messages that an element of "ids" names. */
static void add_target(struct queue *q, enum change change, json_t *value, struct msg_id *ids,
                       size_t *count, json_t *errors)
{
    /* hold, release and delete change a file with all its parts */
    bool is_whole = change == CHANGE_HOLD || change == CHANGE_RELEASE || change == CHANGE_DELETE;
    const char *text = json_string_value(value), *error = NULL;
    size_t found, room = is_whole ? 1 : CHANGE_PAGE - *count;
    struct spool_message m;
    struct msg_id id;

    if (spool_id_parse(slice_string(text), &id) &&
        (spool_read(q->spool, id, &m) != -ENOENT ||
         listing_ids(q->spool, text, 1, ids + *count) == 0)) { /* otherwise a name */
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

/* A next hop, "nexthop" or "transport/nexthop", to which mail goes, or would go without
 * redirects. */
struct old_route {
    const struct queue *q;
    struct slice wanted;
};

static bool is_place(struct slice wanted, struct slice transport, struct slice nexthop)
{
    char room[ROUTE_NEXTHOP_MAX];
    struct slice place = nexthop_canonical(wanted, room, sizeof room);
    size_t slash = transport.len;

    if (slice_equal_nocase(place, nexthop)) {
        return true;
    }
    return place.len > slash && place.ptr[slash] == '/' && slice_starts(place, transport) &&
           slice_equal_nocase(slice_skip(place, slash + 1), nexthop);
}

/* Does a recipient of the message have this next hop or domain, or would it without redirects?
 * Returns false for a message that can't be read. */
static bool leads_or_led_to(const void *context, struct msg_id id)
{
    const struct old_route *old = context;
    struct spool *sp = old->q->spool;
    struct spool_rcpt page[100];
    struct spool_message m;
    char sender[SPOOL_SENDER_MAX];
    struct slice from;
    struct route route;
    uint32_t after = 0;
    size_t count;

    if (spool_read(sp, id, &m) != 0 || m.sender.len > sizeof sender) {
        return false;
    }
    from = slice_of(sender, m.sender.len);
    memcpy(sender, m.sender.len > 0 ? m.sender.ptr : "", m.sender.len);
    do {
        if (spool_read_rcpts(sp, id, after, true, 100, page, &count) != 0) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            const struct spool_rcpt *r = &page[i];

            after = r->n;
            if (slice_equal_nocase(route_domain(r->address), old->wanted) ||
                (r->transport.len > 0 && is_place(old->wanted, r->transport, r->nexthop))) {
                return true;
            }
            if (r->route_generation == SPOOL_ROUTE_FIXED) {
                continue;
            }
            route_address(old->q->conf, from, r->address, &route);
            if (is_place(old->wanted, slice_string(route.transport), slice_string(route.nexthop))) {
                return true;
            }
        }
    } while (count == 100);
    return false;
}

/* Finds the messages of a change: an array of ids, or one page of a filter. A query between nodes
 * (`is_inner`) has the ids of its page. */
static unsigned change_targets(struct queue *q, enum change change, const json_t *question,
                               bool is_inner, struct msg_id *ids, size_t *ret_count, bool *ret_more,
                               char ret_next[SPOOL_ID_TEXT_MAX], json_t *errors,
                               json_t **ret_answer)
{
    const json_t *list = json_object_get(question, "ids");
    json_t *filter = json_object_get(question, "filter");
    const char *after = json_string_value(json_object_get(question, "after")), *error, *key;
    struct listing_filter f;
    struct old_route old;
    struct msg_id last;
    size_t i;
    json_t *value;
    int rc;

    *ret_count = 0;
    *ret_more = false;
    if (is_inner ? list == NULL : (list == NULL) == (filter == NULL)) {
        return listing_error(400, ret_answer, "either ids or a filter is expected");
    }
    json_object_foreach((json_t *)(uintptr_t)question, key, value)
    {
        /* An unknown member could be a misspelled restriction. */
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
    if (!listing_filter(filter, q->question_asked, &f, &error)) {
        return listing_error(400, ret_answer, "%s", error);
    }
    if (after != NULL && !spool_id_parse(slice_string(after), &f.spool.after)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    old = (struct old_route){.q = q, .wanted = f.spool.destination};
    if (change == CHANGE_FLUSH && f.spool.destination.len > 0 && !conf_spool_routes(q->conf) &&
        interventions_may_lead_from(q, f.spool.destination)) {
        f.spool.destination = SLICE(""); /* the stored route is the new one */
        f.extra = leads_or_led_to;
        f.context = &old;
    }
    rc = listing_scan(q->spool, &f, CHANGE_PAGE, ids, ret_count, &last, ret_more);
    if (rc == 0 && *ret_count == 0 && !*ret_more && change == CHANGE_FLUSH) {
        /* A redirect has taken that mail elsewhere, and with it its stored route. */
        f.extra = NULL;
        f.spool.destination = interventions_leads_to(q, old.wanted);
        rc = f.spool.destination.len == 0
                 ? 0
                 : listing_scan(q->spool, &f, CHANGE_PAGE, ids, ret_count, &last, ret_more);
    }
    if (rc != 0) {
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    if (*ret_more) {
        spool_id_print(last, ret_next);
    }
    return 200;
}

/* Adds an error; `why` may contain bytes of a damaged message. */
static void add_error(json_t *errors, const char *id, const char *why)
{
    json_t *error = json_pack("{s:s}", "id", id);

    json_put(error, "error", listing_text(slice_string(why)));
    CHECK(json_array_append_new(errors, error) == 0);
}

/* Revives the destination that the filter names, or all destinations if it names none. */
static void revive(struct queue *q, const json_t *question)
{
    const char *dest =
        json_string_value(json_object_get(json_object_get(question, "filter"), "destination"));

    if (json_object_get(question, "filter") == NULL || json_object_get(question, "after") != NULL) {
        return;
    }
    agents_forget(q, SLICE(""), SLICE(""));
    if (dest == NULL) {
        sched_revive_all(q->sched, clock_mono());
    } else {
        struct slice to = interventions_leads_to(q, slice_string(dest));

        flush_revive(q, slice_string(dest));
        if (to.len > 0) {
            flush_revive(q, to);
        }
    }
}

/* Revives the destinations of a message that an operator has named. */
static void revive_for(struct queue *q, struct msg_id id)
{
    struct spool_rcpt page[REVIVED_MAX];
    struct buf name;
    size_t count;

    if (spool_read_rcpts(q->spool, id, 0, true, REVIVED_MAX, page, &count) != 0) {
        return; /* the change itself will report the error */
    }
    agents_forget(q, SLICE(""), SLICE(""));
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

/* Returns the log line about the end of a message that another system has named, which the caller
 * frees, or NULL for other messages. */
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
                   SLICE_ARGS(name)); /* fits: names of files are shorter */
    report_verbose(q, m->id, "ordered deletion of task file from scheduler memory (%.*s)",
                   SLICE_ARGS(name));
    return buf_take(&text);
}

/* A page of changes, until its commit has ended. */
struct change_page {
    enum change change;
    uint64_t token;
    bool dry_run, more;
    int rc; /* error that ended it early */
    size_t matched, done_count;
    json_t *errors;       /* owned */
    json_t *matched_ids;  /* owned; of a page between nodes, otherwise NULL */
    struct msg_id *parts; /* owned: changed messages that are stored in parts */
    size_t part_count;
    struct msg_id done[CHANGE_PAGE];
    char names[CHANGE_PAGE][QUEUE_NAME_MAX]; /* names of the changed messages in the log */
    char shown[CHANGE_PAGE][QUEUE_NAME_MAX]; /* names of the changed messages for users */
    char *killed[CHANGE_PAGE];               /* owned */
    char next[SPOOL_ID_TEXT_MAX];
};

static void page_free(struct change_page *page)
{
    for (size_t i = 0; i < page->done_count; i++) {
        mem_free(page->killed[i]);
    }
    json_decref(page->errors);
    json_decref(page->matched_ids);
    mem_free(page->parts);
    mem_free(page);
}

/* Adds an error for a message to which the change does not apply. Another node may have parts to
 * which it does. */
static void add_unfit(struct change_page *page, const char *id, const char *before,
                      const char *words)
{
    json_t *error = json_pack("{s:s, s:s+}", "id", id, "error", before, words);

    CHECK(error != NULL);
    if (page->matched_ids != NULL) {
        json_put(error, "unfit", json_true());
    }
    CHECK(json_array_append_new(page->errors, error) == 0);
}

/* Does the change apply to one of the parts on this node? */
static bool parts_fit(struct queue *q, enum change change, struct msg_id whole)
{
    struct msg_id ids[SPOOL_PARTITIONS_MAX];
    struct spool_message m;
    size_t count;

    if (spool_parts_of(q->spool, whole, (struct msg_id){0}, SPOOL_PARTITIONS_MAX, ids, &count) !=
        0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (spool_is_own(q->spool, ids[i]) && spool_read(q->spool, ids[i], &m) == 0 &&
            change_fits(change, m.state, true)) {
            return true;
        }
    }
    return false;
}

/* Changes the parts of a message on this node, before the message itself. Returns 0 or the error of
 * the spool. */
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
            if (!spool_is_own(q->spool, ids[i])) {
                continue; /* the part's owner gets the query, too */
            }
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

/* Copies the texts of a message, because the next call of the spool invalidates them. The caller
 * frees the copy. */
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

/* Changes one target, whose reading has returned `found`. Returns 0, or an error that ends the
 * page. */
static int change_read(struct queue *q, struct change_page *page, struct msg_id id, bool is_named,
                       int found, struct spool_message m)
{
    enum change change = page->change;
    size_t at = page->done_count;
    struct spool_message now = m;
    char text[SPOOL_ID_TEXT_MAX];
    int rc;
    bool damaged = found == -EBADMSG, is_own, fits;

    spool_id_print(id, text);
    if (found == -ENOENT) {
        add_unfit(page, text, "no such message", "");
        return 0;
    }
    is_own = spool_is_own(q->spool, id);
    if (found != 0 && !(damaged && change == CHANGE_DELETE)) {
        if (is_own) {
            add_error(page->errors, text, spool_error(q->spool));
        }
        return 0;
    }
    if (is_own && needs_sound_rows(change) && damage_is_hidden(&q->damage, id)) {
        if (is_named) {
            add_unfit(page, text, "it is damaged on disk, and waits for a repair", "");
        }
        return 0;
    }
    fits = is_own && (damaged || change_fits(change, m.state, is_named));
    if (!fits && (damaged || !m.gathers || !parts_fit(q, change, id))) {
        if (is_named && is_own) {
            add_unfit(page, text, "the message is in ", listing_state_name(m.state));
        }
        return 0; /* the message's owner changes it */
    }
    if (queue_is_replaced(q, id)) {
        add_error(page->errors, text, "it is about to be stored as requeued: try again");
        return 0;
    }
    page->matched++;
    if (page->matched_ids != NULL) {
        json_add(page->matched_ids, json_string(text));
    }
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
        (void)listing_shown_id(&m, page->shown[at]); /* fits, as the next one */
        (void)queue_message_name(&m, page->names[at]);
    }
    if (change == CHANGE_DELETE && !damaged) {
        page->killed[at] = last_words(q, &m);
    }
    rc = !damaged && m.gathers ? change_parts(q, page, id) : 0;
    if (rc == 0 && !damaged && m.gathers) {
        rc = spool_read(q->spool, id, &now); /* the message has changed with its parts */
    }
    rc = rc == 0 && fits ? change_one(q, change, id, &now) : rc;
    if (rc == 0) {
        if (changes[change].event != NULL && is_own) {
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
        rc = 0; /* the other changes go on */
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

/* Makes the answer of a committed page. */
static json_t *page_done(struct queue *q, struct change_page *page)
{
    json_t *changed = json_array(), *answer;

    import_now(&q->import);
    for (size_t i = 0; i < page->part_count; i++) {
        change_committed(q, page->change, page->parts[i]);
    }
    for (size_t i = 0; i < page->done_count; i++) {
        char text[SPOOL_ID_TEXT_MAX];

        change_committed(q, page->change, page->done[i]);
        spool_id_print(page->done[i], text);
        json_add(changed, json_string(page->matched_ids != NULL ? text : page->shown[i]));
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
    if (page->matched_ids != NULL) {
        json_put(answer, "matched_ids", json_incref(page->matched_ids));
    }
    return answer;
}

/* Answers a page after its commit. */
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
    bool is_named = json_object_get(question, "filter") == NULL;
    struct change_page *page = mem_new(sizeof *page);
    struct msg_id ids[CHANGE_PAGE];
    unsigned status;
    size_t count;

    page->change = change;
    page->token = token;
    page->dry_run = json_is_true(json_object_get(question, "dry_run"));
    page->errors = json_array();
    page->matched_ids = operation_is_inner(token) ? json_array() : NULL;
    status = change_targets(q, change, question, operation_is_inner(token), ids, &count,
                            &page->more, page->next, page->errors, ret_answer);
    if (status != 200) {
        page_free(page);
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (spool_want(q->spool, ids[i], SPOOL_WANT_ROWS) == -EAGAIN ||
            spool_parts_want(q->spool, ids[i]) == -EAGAIN) {
            status = 503; /* requests all that is not loaded; the query is then repeated */
        }
    }
    if (status != 200) {
        page_free(page);
        return listing_error(status, ret_answer, "the messages are not loaded: try again");
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

/* ---- changes of mail of several nodes -------------------------------------------------------- */

/* Members of the answer that collect the nodes' answers by id until its end. */
#define MATCHED "matched_ids"
#define CHANGED "changed_ids"
#define UNFIT   "unfit"
/* Largest number of errors from nodes. */
#define CHANGE_ERRORS_MAX 1000

static const struct inquiry_item *find_item(const struct inquiry *in, const char *id)
{
    for (size_t i = 0; id != NULL && i < in->item_count; i++) {
        if (strcmp(in->items[i].id, id) == 0) {
            return &in->items[i];
        }
    }
    return NULL;
}

static void add_change_error(struct inquiry *in, const char *id, const char *words)
{
    json_t *errors = json_object_get(in->answer, "errors");

    if (json_array_size(errors) < CHANGE_ERRORS_MAX) {
        json_add(errors, json_pack("{s:s, s:s}", "id", id[0] != '\0' ? id : "*", "error", words));
    }
}

/* Adds the ids of a list to the set, if they were asked for. */
static void merge_ids(const struct inquiry *in, const char *set, const json_t *list)
{
    json_t *to = json_object_get(in->answer, set), *value;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, value)
    {
        if (find_item(in, json_string_value(value)) != NULL) {
            json_put(to, json_string_value(value), json_true());
        }
    }
}

static void merge_errors(struct inquiry *in, const json_t *list)
{
    json_t *unfit = json_object_get(in->answer, UNFIT), *error;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)list, i, error)
    {
        const char *id = json_string_value(json_object_get(error, "id"));
        const char *words = json_string_value(json_object_get(error, "error"));

        if (words == NULL || find_item(in, id) == NULL) {
            continue;
        }
        if (json_is_true(json_object_get(error, "unfit"))) {
            json_put(unfit, id, json_string(words));
        } else {
            add_change_error(in, id, words);
        }
    }
}

static void merge_change(struct inquiry *in, int node, const char *name, unsigned status,
                         json_t *answer)
{
    const char *words = json_string_value(json_object_get(answer, "error"));
    char text[1024];

    if (status == 200) {
        merge_ids(in, MATCHED, json_object_get(answer, "matched_ids"));
        merge_ids(in, CHANGED, json_object_get(answer, "changed"));
        merge_errors(in, json_object_get(answer, "errors"));
        return;
    }
    (void)snprintf(text, sizeof text, "node %s: %s", name, words != NULL ? words : "?"); /* cut */
    for (size_t i = 0; i < in->item_count; i++) {
        if ((in->items[i].asked >> node & 1) != 0) {
            add_change_error(in, in->items[i].id, text);
        }
    }
}

static void change_failed(struct inquiry *in, const struct inquiry_item *item, const char *words)
{
    add_change_error(in, item->id, words);
}

static void finish_change(struct inquiry *in)
{
    json_t *matched = json_object_get(in->answer, MATCHED), *list = json_array(), *words, *value;
    const char *id;

    json_object_foreach(json_object_get(in->answer, UNFIT), id, words)
    {
        if (json_object_get(matched, id) == NULL) {
            add_change_error(in, id, json_string_value(words));
        }
    }
    json_object_foreach(json_object_get(in->answer, CHANGED), id, value)
    {
        json_add(list, json_string(id));
    }
    json_put(in->answer, "changed", list);
    json_put(in->answer, "matched", json_integer((json_int_t)json_object_size(matched)));
    (void)json_object_del(in->answer, MATCHED);
    (void)json_object_del(in->answer, CHANGED);
    (void)json_object_del(in->answer, UNFIT);
}

/* Makes the query for the nodes: without the members that select messages. */
static json_t *change_question(const json_t *question)
{
    static const char *const kept[] = {"op", "filter", "after", "dry_run"};
    json_t *copy = json_object();

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        json_t *value = json_object_get(question, kept[i]);

        if (value != NULL) {
            json_put(copy, kept[i], json_incref(value));
        }
    }
    return copy;
}

static enum change change_named(const json_t *question)
{
    const char *op = json_string_value(json_object_get(question, "op"));

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (strcmp(op, changes[i].op) == 0) {
            return (enum change)i;
        }
    }
    UNREACHABLE("the table below has no others");
}

/* Adds a message as an item. Returns false if it is not loaded yet. */
static bool add_change_item(struct queue *q, struct inquiry *in, struct msg_id id)
{
    struct spool_places places;
    char text[SPOOL_ID_TEXT_MAX];
    int rc = spool_places_of(q->spool, id, &places);

    if (rc == 0) {
        inquiry_add(in, id)->open = places;
    } else if (rc != -EAGAIN) {
        spool_id_print(id, text);
        add_error(json_object_get(in->answer, "errors"), text,
                  rc == -ENOENT ? "no such message" : spool_error(q->spool));
    }
    return rc != -EAGAIN;
}

static unsigned ask_change_spread(struct queue *q, const json_t *question, struct inquiry *in,
                                  json_t **ret_answer)
{
    enum change change = change_named(question);
    json_t *errors = json_array();
    struct msg_id ids[CHANGE_PAGE];
    char next[SPOOL_ID_TEXT_MAX];
    bool more, is_at_hand = true;
    unsigned status;
    size_t count;

    in->merge = merge_change;
    in->failed = change_failed;
    in->finish = finish_change;
    in->question = change_question(question);
    in->lists_ids = true;
    in->answer = json_pack("{s:o, s:{}, s:{}, s:{}}", "errors", errors, MATCHED, CHANGED, UNFIT);
    CHECK(in->answer != NULL);
    status =
        change_targets(q, change, question, false, ids, &count, &more, next, errors, ret_answer);
    if (status != 200) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        is_at_hand = add_change_item(q, in, ids[i]) && is_at_hand;
    }
    if (!is_at_hand) {
        return listing_error(503, ret_answer, "the messages are not loaded: try again");
    }
    if (more) {
        json_put(in->answer, "next", json_string(next));
    }
    if (change == CHANGE_FLUSH && json_object_get(question, "filter") != NULL &&
        json_object_get(question, "after") == NULL &&
        !json_is_true(json_object_get(question, "dry_run"))) {
        inquiry_open_all(inquiry_add(in, (struct msg_id){0})); /* each revives its own */
    }
    return 0;
}

/* ---- numbers of the scheduler ---------------------------------------------------------------- */

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

/* Returns counts of classes; class_count bounds their number. */
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

/* Returns the number of refusals of each limit since the start. */
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

/* Adds the name of this node, to which the counts belong. Counts of all nodes of a cluster are in
 * "cluster". */
static void put_node(const struct queue *q, json_t *answer)
{
    struct spool_node_measures measures;

    if (spool_has_others(q->spool)) {
        spool_measure_node(q->spool, &measures);
        json_put(answer, "node", json_string(q->conf->cluster_node));
        json_put(answer, "nodes_up", json_integer((json_int_t)measures.nodes_up));
    }
}

static unsigned ask_status(struct queue *q, const json_t *question, json_t **ret_answer)
{
    (void)question; /* has no members */
    const struct wire_flow *flow = clients_flow(&q->clients);
    struct sched_totals t = sched_totals(q->sched);
    json_t *totals = json_pack("{s:s}", "op", "totals");
    unsigned status = listing_ask(q->spool, totals, clock_wall(), ret_answer);

    json_decref(totals);
    if (status != 200) {
        return status;
    }
    nodes_put_counts(q, *ret_answer);
    put_node(q, *ret_answer);
    json_put(*ret_answer, "storage_ok", json_boolean(flow->storage_ok));
    json_put(*ret_answer, "space_ok", json_boolean(flow->space_ok));
    json_put(*ret_answer, "behind", json_boolean(flow->behind));
    if (flow->free_bytes <= INT64_MAX) { /* otherwise unknown */
        json_put(*ret_answer, "free_bytes", json_integer((json_int_t)flow->free_bytes));
    }
    json_put(*ret_answer, "scheduler_bytes", json_integer((json_int_t)t.bytes));
    add_audit(q, *ret_answer);
    json_put(*ret_answer, "completed", json_integer((json_int_t)q->counts.completed));
    agents_status(&q->agents, *ret_answer);
    json_put(*ret_answer, "busiest", why_busiest(q));
    json_put(*ret_answer, "classes", count_classes(q));
    json_put(*ret_answer, "send_limits", count_send_limits(q));
    json_put(*ret_answer, "interventions", interventions_ask_counts(q));
    if (q->interventions.unreadable > 0) {
        json_put(*ret_answer, "unreadable_interventions",
                 json_integer((json_int_t)q->interventions.unreadable));
    }
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

/* Answers the sample for the plots of the last hour. */
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

/* Answers with the content of a message, the one answer that is not JSON. */
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

/* Answers with the events after `after`, as lines, or with the position of those from `since`
 * (microseconds) on. If there are none yet, the control process is notified later. */
static unsigned ask_events(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                           json_t **ret_answer)
{
    json_int_t after = json_integer_value(json_object_get(question, "after"));
    uint64_t last = q->journal.last;
    int rc = 0;

    (void)ret_fd; /* the answer has bytes, no descriptor */
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
    return ask_change(q, change_named(question), question, token, ret_answer);
}

void ask_register(void)
{
    static const struct operation operations[] = {
        {.op = "hold", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "release", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "delete", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "requeue", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "expire", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "flush", .later = ask_change_named, .spread = ask_change_spread},
        {.op = "status", .answer = ask_status},
        {.op = "metrics", .answer = ask_metrics},
        {.op = "overview", .answer = ask_overview},
        {.op = "sample", .answer = ask_sample},
        {.op = "cluster", .answer = nodes_answer, .spread = nodes_spread},
        {.op = "list", .answer = nodes_list, .spread = nodes_list_spread}, /* mail in memory */
        {.op = "count", .answer = nodes_list, .spread = nodes_list_spread},
        {.op = "table", .answer = overview_table},
        {.op = "classes", .answer = overview_classes},
        {.op = "sites", .answer = why_sites, .spread = why_sites_spread},
        {.op = "site", .answer = why_site, .spread = why_site_spread},
        {.op = "why", .answer = why_message, .spread = why_message_spread},
        {.op = "interventions",
         .answer = interventions_ask_list,
         .spread = interventions_ask_list_spread},
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
