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
#include "operation.h"
#include "park_key.h"
#include "queue.h"
#include "queue_agent.h"
#include "settlement.h"
#include "spool_notes.h"
#include "spool_others.h"
#include "spool_shared.h"
#include "status.h"

#define NOTE_PREFIX  "intervention/"
#define NOTE_NUMBER  "interventions" /* the last number that was given */
#define NOTE_DIGITS  12
#define BOUNCE_WORDS "5.7.1 mail for this destination is not delivered, by decision of its operator"
/* More are not looked up for one recipient. */
#define FOUND_MAX 32

/* ---- the set -------------------------------------------------------------------------------- */

static struct intervention *find_key(const struct interventions *is, const char *key, size_t len)
{
    struct intervention *i;

    HASH_FIND(hh, is->by_key, key, len, i);
    return i;
}

static void add(struct interventions *is, struct intervention *i)
{
    struct intervention *first;

    TAILQ_INSERT_TAIL(&is->list, i, next);
    is->count++;
    is->counts[i->verb]++;
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

/* Of those that are not about to end. */
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

/* Its reference becomes the caller's. */
static void take_out(struct interventions *is, struct intervention *i)
{
    size_t at = 0;

    TAILQ_REMOVE(&is->list, i, next);
    is->count--;
    is->counts[i->verb]--;
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

    json_put(object, "recipients", json_integer(0)); /* counted since the start */
    text = json_dumps(object, JSON_COMPACT);
    CHECK(text != NULL);
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)i->number); /* fits */
    rc = spool_note_put(q->spool, SLICE(NOTE_NUMBER), slice_string(number));
    if (rc == 0) { /* last, as it may be in force with this call */
        rc = spool_note_put(q->spool, note_name(i->number, name), slice_string(text));
    }
    free(text);
    json_decref(object);
    return rc;
}

/* One that can't be read any more, as the configuration has lost its transport, is left there: it
 * may be read again one day, and `sluice interventions` is not the place to lose it. */
static void load_note(struct queue *q, struct slice name, struct slice text)
{
    json_t *object = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    json_int_t number = json_integer_value(json_object_get(object, "number"));
    struct intervention *i = NULL;
    struct buf error;

    buf_init(&error, 4096);
    if (number > 0) {
        i = intervention_read(q->conf, object, (struct wall){1}, &error);
    } else {
        (void)buf_add_string(&error, "it makes no sense");
    }
    if (i == NULL) {
        log_warning("%.*s: this intervention is not in force: %s", SLICE_ARGS(name),
                    error.failed ? "?" : buf_cstr(&error));
    } else {
        intervention_number(i, (uint64_t)number);
        add(&q->interventions, i);
    }
    if (number > 0 && (uint64_t)number > q->interventions.last_number) {
        q->interventions.last_number = (uint64_t)number;
    }
    buf_fini(&error);
    json_decref(object);
}

void interventions_begin(struct queue *q)
{
    struct interventions *is = &q->interventions;
    char after[SPOOL_NOTE_NAME_MAX + 1] = "";
    struct slice name, text;
    unsigned long long number;
    int rc;

    *is = (struct interventions){.next_end = WALL_NEVER};
    TAILQ_INIT(&is->list);
    STAILQ_INIT(&is->works);
    while ((rc = spool_note_next(q->spool, slice_string(after), &name, &text)) == 0) {
        CHECK(name.len < sizeof after);
        memcpy(after, name.ptr, name.len);
        after[name.len] = '\0';
        if (slice_equal(name, SLICE(NOTE_NUMBER)) && slice_number(text, INT64_MAX, &number) &&
            number > is->last_number) {
            is->last_number = number;
        } else if (slice_starts(name, SLICE(NOTE_PREFIX)) && is->count < INTERVENTIONS_MAX) {
            load_note(q, slice_string(after), text);
        }
    }
    if (rc != -ENOENT && rc != -ENOTSUP) {
        log_error("interventions can't be read: %s", spool_error(q->spool));
    }
    intervention_share_begin(q);
    if (is->count > 0) {
        log_info("%zu interventions are in force", is->count);
    }
    if (rc != -ENOTSUP) {
        interventions_look_at_keys(q);
    }
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

/* A change of the set whose commit is under way. */
struct pending {
    struct intervention *i; /* a reference */
    const char *why;        /* of an end, for the log; NULL: it is set */
    uint64_t token;
    bool asked; /* by an operator, who gets an answer */
    int rc;     /* what the spool said to the change */
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
        if (p->why != NULL) { /* the next try waits a second */
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

/* Make a change durable that the spool answered `rc`. Takes a reference. */
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
    batch_commit(q); /* also ends a batch that failed */
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
    is->last_number++; /* one that is not used in the end does no harm */
    if (rc == 0) {
        interventions_tell_journal(q, i, true);
    }
    commit(q, i, NULL, &token, rc);
    return 0;
}

void interventions_hand_over(struct queue *q, struct intervention *i)
{
    char name[SPOOL_NOTE_NAME_MAX];

    if (spool_note_remove(q->spool, note_name(i->number, name)) != 0) {
        log_warning("intervention %s: it is of all nodes from now on, and will be that once more "
                    "after the next start: %s",
                    i->name, spool_error(q->spool));
    }
    interventions_leave(q, i, "it is one of all nodes from now on");
}

/* `token` NULL: no operator has asked. 0, or the error of the spool, and it has not ended. */
static int end(struct queue *q, struct intervention *i, const char *why, const uint64_t *token)
{
    char name[SPOOL_NOTE_NAME_MAX];
    int rc;

    if (i->is_shared) {
        return intervention_share_cancel(q, i, why, token);
    }
    rc = batch_is_blocked(&q->batch) ? -EIO
                                     : spool_note_remove(q->spool, note_name(i->number, name));
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

/* Those of all nodes are ended by one of them. */
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

/* End those whose time is over; those that can't be for now wait for a second. */
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

/* ---- what is about a recipient -------------------------------------------------------------- */

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

/* All of one key. */
static void find_one(const struct interventions *is, struct found *f, struct buf *key,
                     enum intervention_scope scope, const char *transport, struct slice text)
{
    const struct intervention *i;

    buf_clear(key);
    intervention_put_key(key, scope, transport, text);
    if (key->failed) {
        return; /* longer than any target may be */
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

/* The one of a verb that holds, or NULL. */
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
    return (struct intervention *)(uintptr_t)best; /* only counted in */
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

/* Can mail go to another host by it? Of Postfix's agents nothing but their names is known. */
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
        return; /* a reload has lost it */
    }
    route->transport = t->name;
    (void)strcpy(route->nexthop, i->to); /* no longer than ROUTE_NEXTHOP_MAX */
    route_destination(q->conf, address, route);
}

/* What is about it, where it goes and where a redirect takes it. Its route becomes the one that
 * holds; *ret_pause, the pause. */
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
        !intervention_matches_destination(to, mail.transport, mail.nexthop)) {
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
    /* Those that hold later go on top: the last to precede is put in last. */
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

/* For mailq, where agents keep what is said of recipients: the name is how they are found again. */
static void say_paused(struct queue *q, const struct active_msg *m, const uint32_t *ns,
                       size_t count, const struct destination *destination,
                       const struct intervention *pause)
{
    struct sched_action action = {.msg = {m->id.n},
                                  .transport = destination->transport,
                                  .dest = SLICE(""), /* it is well */
                                  .rcpts = ns,
                                  .rcpt_count = count};
    struct buf reason;

    buf_init(&reason, SCHED_REASON_MAX);
    (void)buf_addf(&reason, "4.3.2 paused by an operator (%s)%s%s", pause->name,
                   pause->text[0] != '\0' ? ": " : "", pause->text); /* fits */
    action.reason = buf_slice(&reason);
    (void)agents_deferred(q, &action); /* else the spool's key says it */
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
        settlement_add(&s, &said)->quiet = true; /* nothing new is to be said of it */
    }
    queue_settle(q, &s);
}
