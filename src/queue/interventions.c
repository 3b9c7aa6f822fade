#include "interventions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "json.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "nexthop.h"
#include "operation.h"
#include "park_key.h"
#include "queue.h"
#include "queue_agent.h"
#include "settlement.h"
#include "spool_notes.h"
#include "spool_others.h"
#include "spool_shared.h"
#include "status.h"

#define NOTE_PREFIX   "intervention/"
#define NOTE_NUMBER   "interventions" /* the highest number in use so far */
#define NOTE_ROUTES   "routes"        /* generation by which all mail was routed */
#define NOTE_DIGITS   12
#define JOURNAL_NOTES "journal/"   /* notes of the journal */
#define MAX_NUMBER    999999999999 /* has NOTE_DIGITS digits */
#define LOST_WORDS                                                                                 \
    "some were lost with a damaged store: set again what was ordered, then cancel this"
/* Damaged overrides that are listed. */
#define DAMAGED_MAX  100
#define BOUNCE_WORDS "5.7.1 mail for this destination is not delivered, by decision of its operator"
/* Overrides that are found for one recipient. */
#define FOUND_MAX 32

/* ---- the table ------------------------------------------------------------------------------ */

static struct intervention *find_key(const struct interventions *is, const char *key, size_t len)
{
    struct intervention *i;

    HASH_FIND(hh, is->by_key, key, len, i);
    return i;
}

static void add(struct interventions *is, struct intervention *i)
{
    struct intervention *first, *before;

    before = TAILQ_LAST(&is->list, intervention_list);
    while (before != NULL && before->number > i->number) { /* a damaged one may get any number */
        before = TAILQ_PREV(before, intervention_list, next);
    }
    if (before != NULL) {
        TAILQ_INSERT_AFTER(&is->list, before, i, next);
    } else {
        TAILQ_INSERT_HEAD(&is->list, i, next);
    }
    is->count++;
    is->counts[i->verb]++;
    is->unreadable += i->stored != INTERVENTION_WHOLE;
    if (i->until.us != 0) {
        is->next_end = wall_min(is->next_end, i->until);
    }
    if (i->is_pattern) {
        is->patterns =
            mem_resize(is->patterns, is->pattern_count + 1, sizeof(struct intervention *));
        is->patterns[is->pattern_count++] = i;
        return;
    }
    first = find_key(is, i->key, strlen(i->key));
    if (first != NULL) {
        HASH_DEL(is->by_key, first);
    }
    i->next_of_key = first;
    HASH_ADD_KEYPTR(hh, is->by_key, i->key, strlen(i->key), i);
}

static void remove_from_key(struct interventions *is, struct intervention *i)
{
    struct intervention *first = find_key(is, i->key, strlen(i->key)), *at = first;

    CHECK(first != NULL);
    if (first == i) {
        HASH_DEL(is->by_key, first);
        if (i->next_of_key != NULL) {
            HASH_ADD_KEYPTR(hh, is->by_key, i->next_of_key->key, strlen(i->next_of_key->key),
                            i->next_of_key);
        }
        i->next_of_key = NULL;
        return;
    }
    while (at->next_of_key != i) {
        at = at->next_of_key;
        CHECK(at != NULL);
    }
    at->next_of_key = i->next_of_key;
    i->next_of_key = NULL;
}

/* Finds the earliest end of overrides whose end is not being committed. */
static void find_next_end(struct interventions *is)
{
    const struct intervention *i;

    is->next_end = WALL_NEVER;
    TAILQ_FOREACH(i, &is->list, next)
    {
        if (i->until.us != 0 && !i->is_ending) {
            is->next_end = wall_min(is->next_end, i->until);
        }
    }
}

struct intervention *interventions_find(const struct interventions *is, const char *name)
{
    struct intervention *i;

    TAILQ_FOREACH(i, &is->list, next)
    {
        if (strcmp(i->name, name) == 0 && !i->is_ending) {
            break;
        }
    }
    return i;
}

/* Removes an override; the caller gets its reference. */
static void take_out(struct interventions *is, struct intervention *i)
{
    size_t at = 0;

    TAILQ_REMOVE(&is->list, i, next);
    is->count--;
    is->counts[i->verb]--;
    is->unreadable -= i->stored != INTERVENTION_WHOLE;
    if (i->is_pattern) {
        while (is->patterns[at] != i) {
            at++;
        }
        is->patterns[at] = is->patterns[--is->pattern_count];
    } else {
        remove_from_key(is, i);
    }
    find_next_end(is);
}

struct wall interventions_at(const struct interventions *is)
{
    return is->next_end;
}

size_t interventions_list(const struct interventions *is, uint64_t after,
                          const struct intervention **ret, size_t max)
{
    const struct intervention *i;
    size_t count = 0;

    TAILQ_FOREACH(i, &is->list, next)
    {
        if (i->number > after && count < max) {
            ret[count++] = i;
        }
    }
    return count;
}

/* ---- the spool ------------------------------------------------------------------------------ */

static struct slice note_name(uint64_t number, char room[SPOOL_NOTE_NAME_MAX])
{
    return slice_of(room, (size_t)snprintf(room, SPOOL_NOTE_NAME_MAX, NOTE_PREFIX "%0*llu",
                                           NOTE_DIGITS, (unsigned long long)number));
}

static int write_note(struct queue *q, const struct intervention *i)
{
    json_t *object = intervention_json(i);
    char name[SPOOL_NOTE_NAME_MAX], number[32];
    char *text;
    int rc;

    json_put(object, "recipients", json_integer(0)); /* counts since the start only */
    text = json_dumps(object, JSON_COMPACT);
    CHECK(text != NULL);
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)i->number); /* fits */
    rc = spool_note_put(q->spool, SLICE(NOTE_NUMBER), slice_string(number));
    if (rc == 0) { /* last, because it may be in force with this call */
        rc = spool_note_put(q->spool, note_name(i->number, name), slice_string(text));
    }
    free(text);
    json_decref(object);
    return rc;
}

static int remove_note(struct queue *q, const struct intervention *i)
{
    char name[SPOOL_NOTE_NAME_MAX];

    return i->stored == INTERVENTION_DAMAGED
               ? spool_note_remove_damaged(q->spool, slice_string(i->note))
           : i->stored == INTERVENTION_LOST
               ? spool_note_remove(q->spool, SLICE(SPOOL_NOTE_LOST))
               : spool_note_remove(q->spool, note_name(i->number, name));
}

static bool is_taken(const struct interventions *is, uint64_t number)
{
    const struct intervention *i;

    TAILQ_FOREACH(i, &is->list, next)
    {
        if (i->number == number) {
            return true;
        }
    }
    return false;
}

/* Puts an unreadable override in force; takes the reference. */
static void enter_unreadable(struct queue *q, struct intervention *i, uint64_t number)
{
    struct interventions *is = &q->interventions;

    if (number == 0 || is_taken(is, number)) {
        number = is->last_number + 1;
    }
    is->last_number = number > is->last_number ? number : is->last_number;
    intervention_number(i, number);
    add(is, i);
    interventions_log_unreadable(i);
}

void interventions_log_unreadable(const struct intervention *i)
{
    log_error("%s: mail for %s is held until it is cancelled: %s", i->name, i->target, i->text);
}

static void load_note(struct queue *q, struct slice name, struct slice text)
{
    struct interventions *is = &q->interventions;
    json_t *object = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    unsigned long long number = 0;
    struct intervention *i = NULL;
    struct buf error, why;

    buf_init(&error, 4096);
    buf_init(&why, 4096 + INTERVENTION_TEXT_MAX);
    /* a valid note has a number */
    (void)slice_number(slice_skip(name, strlen(NOTE_PREFIX)), INT64_MAX, &number);
    if (is->count < INTERVENTIONS_MAX) {
        i = intervention_read_stored(q->conf, object, &error);
    } else {
        (void)buf_addf(&error, "there are more than %u", INTERVENTIONS_MAX);
    }
    if (i != NULL && number > 0) {
        intervention_number(i, number);
        add(is, i);
    } else {
        intervention_unref(i);
        (void)buf_addf(&why, "%.*s in the spool: this configuration or program can't do it: %s",
                       SLICE_ARGS(name), error.failed ? "?" : buf_cstr(&error));
        enter_unreadable(q,
                         intervention_unreadable(q->conf, object, INTERVENTION_UNFIT,
                                                 slice_string(buf_cstr(&why))),
                         number);
    }
    is->last_number = number > is->last_number ? number : is->last_number;
    buf_fini(&why);
    buf_fini(&error);
    json_decref(object);
}

/* State of reading. Damaged notes are handled last, when all used numbers are known. */
struct loading {
    struct queue *q;
    char damaged[DAMAGED_MAX][SPOOL_NOTE_NAME_MAX + 1];
    size_t damaged_count;
};

static void load_damaged(struct queue *q, const char *note)
{
    struct slice name = slice_string(note);
    struct intervention *i;
    unsigned long long number = 0;
    struct buf why;

    buf_init(&why, INTERVENTION_TEXT_MAX);
    (void)buf_addf(&why, "%s in the spool is damaged: set again what was ordered, then cancel this",
                   note);
    i = intervention_unreadable(q->conf, NULL, INTERVENTION_DAMAGED, slice_string(buf_cstr(&why)));
    i->note = mem_string(note);
    if (slice_starts(name, SLICE(NOTE_PREFIX))) { /* so its parked mail need not move */
        (void)slice_number(slice_skip(name, strlen(NOTE_PREFIX)), MAX_NUMBER, &number);
    }
    enter_unreadable(q, i, number);
    buf_fini(&why);
}

/* Reads a note. A damaged one with an unknown name may be an override. */
static void read_note(void *context, struct slice name, struct slice text, bool is_damaged)
{
    struct loading *l = context;
    struct interventions *is = &l->q->interventions;
    unsigned long long number;

    if (slice_equal(name, SLICE(NOTE_NUMBER))) { /* else counted from the overrides in force */
        if (!is_damaged && slice_number(text, MAX_NUMBER, &number) && number > is->last_number) {
            is->last_number = number;
        }
    } else if (slice_equal(name, SLICE(NOTE_ROUTES))) {
        is->routes = !is_damaged && slice_number(text, INT64_MAX, &number) ? number : 0;
    } else if (is_damaged && !slice_starts(name, SLICE(JOURNAL_NOTES))) {
        size_t len = name.len < SPOOL_NOTE_NAME_MAX ? name.len : SPOOL_NOTE_NAME_MAX;

        if (l->damaged_count < DAMAGED_MAX) { /* one is enough to hold all mail */
            memcpy(l->damaged[l->damaged_count], name.len > 0 ? name.ptr : "", len);
            l->damaged[l->damaged_count++][len] = '\0';
        }
    } else if (!is_damaged && slice_equal(name, SLICE(SPOOL_NOTE_LOST))) {
        enter_unreadable(
            l->q, intervention_unreadable(l->q->conf, NULL, INTERVENTION_LOST, SLICE(LOST_WORDS)),
            0);
    } else if (!is_damaged && slice_starts(name, SLICE(NOTE_PREFIX))) {
        load_note(l->q, name, text);
    }
}

/* Reads all overrides from the spool. */
static void load(struct queue *q)
{
    struct loading *l = mem_new(sizeof *l);
    struct buf why;
    int rc;

    l->q = q;
    rc = spool_notes_read(q->spool, read_note, l);
    for (size_t i = 0; i < l->damaged_count; i++) {
        load_damaged(q, l->damaged[i]);
    }
    if (rc != 0 && rc != -ENOTSUP) {
        buf_init(&why, 4096);
        (void)buf_addf(&why, "interventions can't be read: %s", spool_error(q->spool)); /* fits */
        enter_unreadable(
            q,
            intervention_unreadable(q->conf, NULL, INTERVENTION_LOST, slice_string(buf_cstr(&why))),
            0);
        buf_fini(&why);
    }
    if (rc != -ENOTSUP) {
        interventions_look_at_keys(q);
    }
    mem_free(l);
}

void interventions_begin(struct queue *q)
{
    struct interventions *is = &q->interventions;

    *is = (struct interventions){.next_end = WALL_NEVER};
    TAILQ_INIT(&is->list);
    STAILQ_INIT(&is->works);
    load(q);
    intervention_share_begin(q);
    if (!conf_spool_routes(q->conf) && !spool_finds_stale_routes(q->spool) &&
        is->routes != queue_route_generation(q)) {
        interventions_reroute(q); /* the tables have changed since, or a walk was not finished */
    }
    if (is->count > 0) {
        log_info("%zu interventions are in force", is->count);
    }
}

void interventions_store_routes(struct queue *q)
{
    struct interventions *is = &q->interventions;
    uint64_t own = queue_route_generation(q);
    char text[32];

    if (is->routes == own || conf_spool_routes(q->conf) || spool_finds_stale_routes(q->spool)) {
        return;
    }
    is->routes = own;
    /* On a failure the commit reports the error; the next start then routes all mail again. */
    (void)spool_note_put(
        q->spool, SLICE(NOTE_ROUTES),
        slice_of(text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)own)));
}

void interventions_end(struct queue *q)
{
    struct interventions *is = &q->interventions;
    struct intervention *i;

    intervention_share_end(q);
    interventions_work_fini(is);
    while ((i = TAILQ_FIRST(&is->list)) != NULL) {
        take_out(is, i);
        intervention_unref(i);
    }
    mem_free(is->patterns);
}

/* ---- set and cancel ------------------------------------------------------------------------- */

static void log_set(const struct intervention *i)
{
    log_info("intervention %s: %s %s%s%s%s%s%s%s%s%s%s", i->name, intervention_verb_name(i->verb),
             i->target, i->to != NULL ? " to " : "", i->to != NULL ? i->to : "",
             i->text[0] != '\0' ? ": " : "", i->text, i->by[0] != '\0' ? " (asked by " : "", i->by,
             i->node[0] == '\0' ? ""
             : i->by[0] != '\0' ? " at node "
                                : " (asked at node ",
             i->node, i->by[0] != '\0' || i->node[0] != '\0' ? ")" : "");
}

static const char *intervention_event(enum intervention_verb verb)
{
    switch (verb) {
    case INTERVENTION_PAUSE:
        return "paused";
    case INTERVENTION_BOUNCE:
        return "bouncing";
    case INTERVENTION_REDIRECT:
        return "redirected";
    case INTERVENTION_LIMIT:
        return "limited";
    case INTERVENTION_VERBS:
        break;
    }
    UNREACHABLE("no such verb");
}

void interventions_tell_journal(struct queue *q, const struct intervention *i, bool is_set)
{
    journal_intervention(q, is_set ? intervention_event(i->verb) : "cancelled", i->name, i->target,
                         i->text, i->until);
}

void interventions_enter(struct queue *q, struct intervention *i, bool at_start)
{
    add(&q->interventions, i);
    if (!at_start) {
        log_set(i);
        interventions_follow(q, i, true);
    }
}

void interventions_leave(struct queue *q, struct intervention *i, const char *why)
{
    i->is_over = true;
    take_out(&q->interventions, i);
    log_info("intervention %s: %s", i->name, why);
    interventions_follow(q, i, false);
    intervention_unref(i);
}

unsigned interventions_failed(struct queue *q, int rc, json_t **ret_answer)
{
    return rc == -ENOTSUP
               ? listing_error(409, ret_answer, "interventions: %s", spool_error(q->spool))
               : listing_error(503, ret_answer, "nothing was changed: %s",
                               rc == -ENOTCONN ? "the database has not renewed this node's lease"
                                               : spool_error(q->spool));
}

/* A change whose commit is in flight. */
struct pending {
    struct intervention *i; /* a reference */
    const char *why;        /* reason of the end, for the log; NULL: it is set */
    uint64_t token;
    bool asked; /* an operator waits for an answer */
    int rc;     /* the spool's result of the change */
};

static void pending_ended(struct queue *q, void *arg, int rc)
{
    struct interventions *is = &q->interventions;
    struct pending *p = arg;
    struct intervention *i = p->i;
    json_t *answer = NULL;
    unsigned status = 200;

    rc = p->rc != 0 ? p->rc : rc;
    if (rc != 0) {
        i->is_ending = false;
        if (p->why != NULL) { /* try again in a second */
            is->next_end = wall_min(is->next_end, wall_after(clock_wall(), US_PER_S));
        }
        status = interventions_failed(q, rc, &answer);
    } else if (p->why == NULL) {
        interventions_enter(q, intervention_ref(i), false);
    } else {
        interventions_leave(q, i, p->why);
    }
    is->pending--;
    if (p->asked) {
        operations_answer_later(q, p->token, status, rc != 0 ? answer : intervention_json(i));
    } else {
        json_decref(answer);
    }
    intervention_unref(i);
    mem_free(p);
}

/* Makes a change durable, for which the spool has returned `rc`. Takes a reference. */
static void commit(struct queue *q, struct intervention *i, const char *why, const uint64_t *token,
                   int rc)
{
    struct pending *p = mem_new(sizeof *p);

    p->i = i;
    p->why = why;
    p->rc = rc;
    p->asked = token != NULL;
    p->token = token != NULL ? *token : 0;
    q->interventions.pending++;
    batch_add_waiter(q, pending_ended, p);
    batch_commit(q); /* a failed batch needs a commit, too */
}

unsigned interventions_set(struct queue *q, const json_t *question, uint64_t token,
                           json_t **ret_answer)
{
    struct interventions *is = &q->interventions;
    struct intervention *i;
    unsigned status = 200;
    struct buf error;
    int rc;

    buf_init(&error, 4096);
    i = intervention_read(q->conf, question, clock_wall(), &error);
    if (i == NULL) {
        status = listing_error(400, ret_answer, "%s", error.failed ? "?" : buf_cstr(&error));
    } else if (is->count + is->pending >= INTERVENTIONS_MAX) {
        status = listing_error(409, ret_answer,
                               "there are %u interventions, which is the limit: "
                               "cancel some",
                               INTERVENTIONS_MAX);
    } else if (i->is_pattern && is->pattern_count + is->pending >= INTERVENTION_PATTERNS_MAX) {
        status = listing_error(409, ret_answer,
                               "there are %u interventions with patterns, which "
                               "is the limit: cancel some",
                               INTERVENTION_PATTERNS_MAX);
    } else if (batch_is_blocked(&q->batch)) {
        status = interventions_failed(q, -EIO, ret_answer);
    }
    buf_fini(&error);
    if (status != 200) {
        intervention_unref(i);
        return status;
    }
    mem_free(i->node);
    i->node = mem_string(spool_node_name(q->spool, spool_node(q->spool)));
    if (spool_has_shared(q->spool)) {
        return intervention_share_set(q, i, token, ret_answer);
    }
    intervention_number(i, is->last_number + 1);
    rc = write_note(q, i);
    if (rc == -ENOTSUP) {
        intervention_unref(i);
        return interventions_failed(q, rc, ret_answer);
    }
    is->last_number++; /* a gap in the numbers is allowed */
    if (rc == 0) {
        interventions_tell_journal(q, i, true);
    }
    commit(q, i, NULL, &token, rc);
    return 0;
}

void interventions_hand_over(struct queue *q, struct intervention *i)
{
    if (remove_note(q, i) != 0) {
        log_warning("intervention %s: it is of all nodes from now on, and will be that once more "
                    "after the next start: %s",
                    i->name, spool_error(q->spool));
    }
    interventions_leave(q, i, "it is one of all nodes from now on");
}

/* Ends an override. `token` NULL: no operator waits. Returns 0, or the error of the spool, without
 * a change. */
static int end(struct queue *q, struct intervention *i, const char *why, const uint64_t *token)
{
    int rc;

    if (i->is_shared) {
        return intervention_share_cancel(q, i, why, token);
    }
    rc = batch_is_blocked(&q->batch) ? -EIO : remove_note(q, i);
    if (rc != 0 && !spool_dirty(q->spool)) {
        return rc;
    }
    if (rc == 0) {
        interventions_tell_journal(q, i, false);
    }
    i->is_ending = true;
    find_next_end(&q->interventions);
    commit(q, intervention_ref(i), why, token, rc);
    return 0;
}

unsigned interventions_cancel(struct queue *q, const char *name, uint64_t token,
                              json_t **ret_answer)
{
    struct intervention *i = interventions_find(&q->interventions, name);
    int rc;

    if (i == NULL) {
        return listing_error(404, ret_answer, "%s: no such intervention", name);
    }
    rc = end(q, i, "cancelled", &token);
    return rc != 0 ? interventions_failed(q, rc, ret_answer) : 0;
}

/* Returns an override whose time is over. Those of all nodes are ended by one node. */
static struct intervention *find_old(const struct queue *q)
{
    bool ends_shared = intervention_share_ends(q);
    struct intervention *i;

    TAILQ_FOREACH(i, &q->interventions.list, next)
    {
        if (i->until.us != 0 && i->until.us <= clock_wall().us && !i->is_ending &&
            (!i->is_shared || ends_shared)) {
            break;
        }
    }
    return i;
}

/* Ends overrides whose time is over. After a failure the next try is in a second. */
static void end_old(struct queue *q)
{
    struct interventions *is = &q->interventions;
    struct intervention *i;

    while (is->next_end.us <= clock_wall().us && (i = find_old(q)) != NULL) {
        if (end(q, i, "its time is over", NULL) != 0) {
            is->next_end = wall_after(clock_wall(), US_PER_S);
        }
    }
    if (is->next_end.us <= clock_wall().us) {
        is->next_end = wall_after(clock_wall(), US_PER_S);
    }
}

bool interventions_turn(struct queue *q)
{
    bool more;

    intervention_share_turn(q);
    if (q->interventions.next_end.us <= clock_wall().us && !batch_is_blocked(&q->batch)) {
        end_old(q);
    }
    more = interventions_work(q);
    intervention_share_end_turn(q, interventions_are_in_force(&q->interventions));
    return more;
}

/* ---- overrides of a recipient --------------------------------------------------------------- */

struct found {
    const struct intervention *all[FOUND_MAX];
    size_t count;
};

static void note_found(struct found *f, const struct intervention *i)
{
    for (size_t n = 0; n < f->count; n++) {
        if (f->all[n] == i) {
            return;
        }
    }
    if (f->count < FOUND_MAX) {
        f->all[f->count++] = i;
    }
}

/* Finds all overrides with one key. */
static void find_one(const struct interventions *is, struct found *f, struct buf *key,
                     enum intervention_scope scope, const char *transport, struct slice text)
{
    const struct intervention *i;

    buf_clear(key);
    intervention_put_key(key, scope, transport, text);
    if (key->failed) {
        return; /* longer than the longest target */
    }
    for (i = find_key(is, buf_slice(key).ptr, buf_len(key)); i != NULL; i = i->next_of_key) {
        note_found(f, i);
    }
}

static void find_destination(const struct interventions *is, struct found *f, struct buf *key,
                             const char *transport, struct slice nexthop)
{
    find_one(is, f, key, INTERVENTION_DESTINATION, transport, nexthop);
    find_one(is, f, key, INTERVENTION_DESTINATION, NULL, nexthop);
    find_one(is, f, key, INTERVENTION_DESTINATION, transport, SLICE("*"));
    find_one(is, f, key, INTERVENTION_DESTINATION, NULL, SLICE("*"));
}

static void find_mail(const struct interventions *is, struct found *f,
                      const struct intervention_mail *mail)
{
    size_t at = slice_find_last(mail->sender, '@');
    struct buf key;

    if (is->count == 0) {
        return;
    }
    buf_init(&key, 2 * INTERVENTION_TARGET_MAX + 8);
    if (is->count > is->pattern_count) {
        find_destination(is, f, &key, mail->transport, mail->nexthop);
        if (mail->domain.len > 0) {
            find_one(is, f, &key, INTERVENTION_DESTINATION, NULL, mail->domain);
        }
        find_one(is, f, &key, INTERVENTION_SENDER, NULL, mail->sender);
        if (at < mail->sender.len) {
            find_one(is, f, &key, INTERVENTION_SENDER, NULL, slice_skip(mail->sender, at));
        }
        if (mail->class_name.len > 0) {
            find_one(is, f, &key, INTERVENTION_CLASS, NULL, mail->class_name);
        }
    }
    buf_fini(&key);
    for (size_t n = 0; n < is->pattern_count; n++) {
        if (intervention_matches(is->patterns[n], mail)) {
            note_found(f, is->patterns[n]);
        }
    }
}

/* Returns the override of a verb that is in force; NULL: none. */
static struct intervention *choose(const struct found *f, enum intervention_verb verb)
{
    const struct intervention *best = NULL;

    for (size_t n = 0; n < f->count; n++) {
        const struct intervention *i = f->all[n];

        if (i->verb != verb) {
            continue;
        }
        if (verb == INTERVENTION_PAUSE && best != NULL) {
            int64_t ends = i->until.us != 0 ? i->until.us : US_FOREVER;
            int64_t best_ends = best->until.us != 0 ? best->until.us : US_FOREVER;

            best = ends > best_ends || (ends == best_ends && i->number < best->number) ? i : best;
        } else if (best == NULL || intervention_precedes(i, best)) {
            best = i;
        }
    }
    return (struct intervention *)(uintptr_t)best; /* callers change its count only */
}

/* ---- routes --------------------------------------------------------------------------------- */

static void route_to_error(struct route *route, const struct intervention *i)
{
    struct status status;
    size_t len;
    bool has_status = status_prefix(slice_string(i->text), &status, &len);

    route->transport = "error";
    (void)snprintf(route->nexthop, sizeof route->nexthop, "%s%s",
                   i->text[0] == '\0' ? ""
                   : has_status       ? ""
                                      : "5.7.1 ",
                   i->text[0] == '\0' ? BOUNCE_WORDS : i->text); /* fits */
    (void)strcpy(route->destination, route->nexthop);            /* shorter than its room */
    for (char *c = route->destination; *c != '\0'; c++) {
        *c = ascii_lower(*c);
    }
}

/* Does the transport send mail to other hosts? Postfix's agents are recognized by their names. */
static bool goes_to_hosts(const struct conf *conf, const char *transport)
{
    static const char *const others[] = {"local", "virtual", "error", "retry", "discard"};
    const struct conf_transport *t = conf_transport_find(conf, slice_string(transport));

    if (t == NULL || t->policy.agent != CONF_AGENT_POSTFIX) {
        return t != NULL &&
               (t->policy.agent == CONF_AGENT_SMTP || t->policy.agent == CONF_AGENT_LMTP);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(transport, others[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void redirect(const struct queue *q, struct slice address, struct route *route,
                     const struct intervention *i)
{
    const struct conf_transport *t =
        i->to_transport != NULL ? conf_transport_find(q->conf, slice_string(i->to_transport))
        : goes_to_hosts(q->conf, route->transport)
            ? conf_transport_find(q->conf, slice_string(route->transport))
            : conf_transport_find(q->conf, SLICE("smtp"));

    if (t == NULL) {
        return; /* no longer configured */
    }
    route->transport = t->name;
    (void)strcpy(route->nexthop, i->to); /* at most ROUTE_NEXTHOP_MAX */
    route_destination(q->conf, address, route);
}

/* Finds the overrides of a recipient, also those of the next hop to which a redirect leads, and
 * applies the redirect or bounce to the route. Sets *ret_pause, and *ret_change to the redirect or
 * bounce; NULL: none. */
static void apply(const struct queue *q, struct slice sender, struct slice class_name,
                  struct slice address, struct route *route, unsigned how, struct found *f,
                  struct intervention **ret_pause, struct intervention **ret_change)
{
    struct intervention_mail mail = {.sender = sender,
                                     .class_name = class_name,
                                     .domain = route_domain(address),
                                     .transport = route->transport,
                                     .nexthop = slice_string(route->nexthop)};
    struct intervention *to;

    find_mail(&q->interventions, f, &mail);
    to = choose(f, INTERVENTION_REDIRECT);
    if (to != NULL && (how & INTERVENE_FIXED) != 0 &&
        (!intervention_matches_destination(to, mail.transport, mail.nexthop) ||
         strcmp(mail.transport, "milter") == 0)) { /* it would bypass the filters */
        to = NULL;
    }
    if (to != NULL) {
        redirect(q, address, route, to);
        mail.transport = route->transport;
        mail.nexthop = slice_string(route->nexthop);
        find_mail(&q->interventions, f, &mail);
    }
    *ret_pause = choose(f, INTERVENTION_PAUSE);
    *ret_change = choose(f, INTERVENTION_BOUNCE);
    if (*ret_change != NULL && *ret_pause == NULL) {
        route_to_error(route, *ret_change);
    } else {
        *ret_change = to;
    }
}

struct intervention *interventions_route(struct queue *q, struct slice sender,
                                         struct slice class_name, struct slice address,
                                         struct route *route, unsigned how)
{
    struct intervention *pause, *change;
    struct found f = {.count = 0};

    if (q->interventions.count == 0) {
        return NULL;
    }
    apply(q, sender, class_name, address, route, how, &f, &pause, &change);
    if ((how & INTERVENE_COUNT) != 0 && pause != NULL) {
        pause->recipients++;
    } else if ((how & INTERVENE_COUNT) != 0 && change != NULL) {
        change->recipients++;
    }
    return pause;
}

size_t interventions_about(const struct queue *q, struct slice sender, struct slice class_name,
                           struct slice address, const struct route *route,
                           const struct intervention **ret, size_t max)
{
    struct intervention *pause = NULL, *change = NULL;
    struct found f = {.count = 0};
    struct route copy = *route;
    size_t count = 0;

    if (q->interventions.count == 0) {
        return 0;
    }
    apply(q, sender, class_name, address, &copy, 0, &f, &pause, &change);
    if (pause != NULL && count < max) {
        ret[count++] = pause;
    }
    if (change != NULL && count < max) {
        ret[count++] = change;
    }
    for (size_t n = 0; n < f.count && count < max; n++) {
        if (f.all[n] != pause && f.all[n] != change) {
            ret[count++] = f.all[n];
        }
    }
    return count;
}

/* ---- destinations --------------------------------------------------------------------------- */

static void find_of_destination(const struct interventions *is, struct found *f,
                                const char *transport, struct slice nexthop)
{
    struct buf key;

    if (is->count == 0) {
        return;
    }
    buf_init(&key, 2 * INTERVENTION_TARGET_MAX + 8);
    find_destination(is, f, &key, transport, nexthop);
    buf_fini(&key);
    for (size_t n = 0; n < is->pattern_count; n++) {
        if (intervention_matches_destination(is->patterns[n], transport, nexthop)) {
            note_found(f, is->patterns[n]);
        }
    }
}

const struct intervention *interventions_pause_of(const struct queue *q, const char *transport,
                                                  struct slice nexthop)
{
    struct found f = {.count = 0};

    if (q->interventions.counts[INTERVENTION_PAUSE] == 0) {
        return NULL;
    }
    find_of_destination(&q->interventions, &f, transport, nexthop);
    return choose(&f, INTERVENTION_PAUSE);
}

/* Is the override a redirect of all mail for this place, "nexthop" or "transport/nexthop"? */
static bool redirects_place(const struct intervention *i, struct slice wanted)
{
    char room[ROUTE_NEXTHOP_MAX];
    struct slice place = nexthop_canonical(wanted, room, sizeof room);
    struct slice nexthop = place, transport = slice_cut(&nexthop, '/');

    if (nexthop.ptr == NULL) {
        nexthop = place;
        transport = SLICE("");
    }
    return i->verb == INTERVENTION_REDIRECT && i->scope == INTERVENTION_DESTINATION &&
           slice_equal_nocase(slice_string(i->host), nexthop) &&
           (i->transport == NULL || transport.len == 0 ||
            slice_equal(slice_string(i->transport), transport));
}

struct slice interventions_leads_to(const struct queue *q, struct slice wanted)
{
    const struct intervention *i, *best = NULL;

    TAILQ_FOREACH(i, &q->interventions.list, next)
    {
        if (redirects_place(i, wanted) && (best == NULL || intervention_precedes(i, best))) {
            best = i;
        }
    }
    return best != NULL ? slice_string(best->to) : SLICE("");
}

bool interventions_may_lead_from(const struct queue *q, struct slice wanted)
{
    const struct intervention *i;

    TAILQ_FOREACH(i, &q->interventions.list, next)
    {
        if (i->verb == INTERVENTION_REDIRECT && !redirects_place(i, wanted) &&
            (i->transport == NULL || i->is_pattern || strcmp(i->host, "*") == 0)) {
            return true;
        }
    }
    return false;
}

size_t interventions_of_destination(const struct queue *q, const char *transport,
                                    struct slice nexthop, const struct intervention **ret,
                                    size_t max)
{
    const struct intervention *pause;
    struct found f = {.count = 0};
    size_t count = 0;

    find_of_destination(&q->interventions, &f, transport, nexthop);
    pause = choose(&f, INTERVENTION_PAUSE);
    if (pause != NULL && count < max) {
        ret[count++] = pause;
    }
    for (size_t n = 0; n < f.count && count < max; n++) {
        if (f.all[n] != pause) {
            ret[count++] = f.all[n];
        }
    }
    return count;
}

bool interventions_limit(const struct queue *q, const char *transport, struct slice nexthop,
                         struct policy *policy)
{
    struct found f = {.count = 0};
    const struct intervention *last;
    bool any = false;

    if (q->interventions.counts[INTERVENTION_LIMIT] == 0) {
        return false;
    }
    find_of_destination(&q->interventions, &f, transport, nexthop);
    /* Apply in ascending precedence, so that the highest one wins. */
    do {
        last = NULL;
        for (size_t n = 0; n < f.count; n++) {
            if (f.all[n] != NULL && f.all[n]->verb == INTERVENTION_LIMIT &&
                (last == NULL || intervention_precedes(last, f.all[n]))) {
                last = f.all[n];
            }
        }
        for (size_t n = 0; last != NULL && n < f.count; n++) {
            f.all[n] = f.all[n] == last ? NULL : f.all[n];
        }
        if (last != NULL) {
            intervention_limit(last, policy);
            any = true;
        }
    } while (last != NULL);
    return any;
}

/* ---- pauses --------------------------------------------------------------------------------- */

char *interventions_key(const struct intervention *pause)
{
    char key[sizeof PARK_KEY_PAUSE + INTERVENTION_NAME_MAX];

    (void)snprintf(key, sizeof key, PARK_KEY_PAUSE "%s", pause->name); /* fits */
    return mem_string(key);
}

/* Lets agents with a log of deferred recipients, such as Postfix's, record the pause. mailq shows
 * the record, and the store finds paused mail by the name in it. */
static void say_paused(struct queue *q, const struct active_msg *m, const uint32_t *ns,
                       size_t count, const struct destination *destination,
                       const struct intervention *pause)
{
    struct sched_action action = {.msg = {m->id.n},
                                  .transport = destination->transport,
                                  .dest = SLICE(""), /* no destination has failed */
                                  .rcpts = ns,
                                  .rcpt_count = count};
    struct buf reason;

    buf_init(&reason, SCHED_REASON_MAX);
    (void)buf_addf(&reason, "4.3.2 paused by an operator (%s)%s%s", pause->name,
                   pause->text[0] != '\0' ? ": " : "", pause->text); /* fits */
    action.reason = buf_slice(&reason);
    (void)agents_deferred(q, &action); /* false: the parking key alone shows the pause */
    buf_fini(&reason);
}

void interventions_keep(struct queue *q, struct active_msg *m, const uint32_t *ns, size_t count,
                        struct destination *destination, const struct intervention *pause)
{
    struct wire_verdict said = {.kind = VERDICT_DEFERRED};
    struct settlement s;

    if (destination != NULL) {
        say_paused(q, m, ns, count, destination, pause);
    }
    settlement_begin(&s, SETTLE_PAUSED, m, destination, NULL, count);
    s.park_key = interventions_key(pause);
    for (size_t i = 0; i < count; i++) {
        said.n = ns[i];
        settlement_add(&s, &said)->quiet = true; /* no log line */
    }
    queue_settle(q, &s);
}
