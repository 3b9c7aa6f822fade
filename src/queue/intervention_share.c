#include "intervention_share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "json.h"
#include "listing.h"
#include "log.h"
#include "mem.h"
#include "operation.h"
#include "queue.h"
#include "spool_others.h"
#include "spool_shared.h"

_Static_assert(INTERVENTIONS_MAX == SPOOL_SHARED_MAX, "of all nodes as many as of one");

/* Two nodes may each have set the last pattern that was allowed. */
#define PATTERNS_MAX (INTERVENTION_PATTERNS_MAX + SPOOL_NODES_MAX)
/* Own overrides in one hand-over, and time until the next one. */
#define OWN_AT_ONCE  50
#define OWN_AGAIN_US (10 * US_PER_S)

/* ---- changes --------------------------------------------------------------------------------- */

struct shared_change {
    TAILQ_ENTRY(shared_change) next;
    struct intervention *i;     /* a reference; set, cancelled or handed over */
    const char *why;            /* reason of the end, for the log; NULL: it is set */
    bool is_own;                /* this node's own one, which is handed over */
    uint32_t shared_token;      /* for `set`: its token in the store */
    struct intervention *found; /* a reference; the same override in the copy */
    bool is_asked;              /* an operator waits for an answer */
    uint64_t token;
    struct mono until; /* end of the wait for the database, or for other nodes */
    bool is_committed;
    uint64_t look;  /* valid when committed: the copy includes the change from this comparison on */
    json_t *answer; /* owned; the answer, once this node has applied the change; NULL: not yet */
    uint64_t changes, watch; /* valid with `answer`: changes that other nodes must apply;
                                spool_shared_watch */
};

static void change_free(struct interventions *is, struct shared_change *c)
{
    TAILQ_REMOVE(&is->share.changes, c, next);
    is->pending -= c->answer == NULL;
    json_decref(c->answer);
    intervention_unref(c->i);
    intervention_unref(c->found);
    mem_free(c);
}

/* `object` is taken. */
static void answer(struct queue *q, struct shared_change *c, unsigned status, json_t *object)
{
    if (c->is_asked) {
        c->is_asked = false;
        operations_answer_later(q, c->token, status, object);
    } else {
        json_decref(object);
    }
}

static void change_failed(struct queue *q, struct shared_change *c, int rc)
{
    json_t *object;
    unsigned status = interventions_failed(q, rc, &object);

    c->i->is_ending = false;
    answer(q, c, status, object);
    change_free(&q->interventions, c);
}

static void commit_ended(struct queue *q, void *arg, int rc)
{
    struct shared_change *c = arg;

    if (rc != 0) {
        change_failed(q, c, rc);
        return;
    }
    c->is_committed = true;
    c->look = spool_shared_look(q->spool);
}

/* Begins a change that is in the batch. Takes the reference. `shared_token` 0: it is cancelled;
 * `token` NULL: no operator waits. */
static void begin(struct queue *q, struct intervention *i, uint32_t shared_token, const char *why,
                  const uint64_t *token)
{
    struct shared_change *c = mem_new(sizeof *c);

    c->i = i;
    c->why = why;
    c->shared_token = shared_token;
    c->is_own = shared_token != 0 && !i->is_shared && token == NULL;
    c->is_asked = token != NULL;
    c->token = token != NULL ? *token : 0;
    c->until = mono_after(clock_mono(), INTERVENTION_SHARE_US);
    TAILQ_INSERT_TAIL(&q->interventions.share.changes, c, next);
    q->interventions.pending++;
    batch_add_waiter(q, commit_ended, c);
    batch_commit(q); /* may free `c` */
}

/* Can nothing be stored now? */
static bool is_away(const struct queue *q)
{
    return !node_lease_holds(&q->lease) || batch_is_blocked(&q->batch);
}

static int put(struct queue *q, struct intervention *i, uint32_t shared_token)
{
    json_t *object = intervention_json(i);
    char *text;
    int rc;

    json_put(object, "recipients", json_integer(0)); /* each node counts its own recipients */
    (void)json_object_del(object, "local");
    (void)json_object_del(object, "name");
    (void)json_object_del(object, "number");
    intervention_seal(object);
    text = json_dumps(object, JSON_COMPACT);
    CHECK(text != NULL);
    rc = spool_shared_put(q->spool, shared_token, i->verb == INTERVENTION_REDIRECT,
                          slice_string(text));
    free(text);
    json_decref(object);
    return rc;
}

unsigned intervention_share_set(struct queue *q, struct intervention *i, uint64_t token,
                                json_t **ret_answer)
{
    struct intervention_share *s = &q->interventions.share;
    int rc = is_away(q) ? -ENOTCONN : put(q, i, ++s->last_token);

    if (rc != 0) {
        intervention_unref(i);
        return interventions_failed(q, rc, ret_answer);
    }
    begin(q, i, s->last_token, NULL, &token);
    return 0;
}

int intervention_share_cancel(struct queue *q, struct intervention *i, const char *why,
                              const uint64_t *token)
{
    int rc = is_away(q)
                 ? -ENOTCONN
                 : spool_shared_remove(q->spool, i->number, i->verb == INTERVENTION_REDIRECT);

    if (rc != 0) {
        return rc;
    }
    i->is_ending = true;
    begin(q, intervention_ref(i), 0, why, token);
    return 0;
}

bool intervention_share_ends(const struct queue *q)
{
    return spool_owner(q->spool, 0) == spool_node(q->spool);
}

/* ---- following the copy ---------------------------------------------------------------------- */

static struct shared_change *find_put(const struct intervention_share *s, uint32_t shared_token)
{
    struct shared_change *c;

    TAILQ_FOREACH(c, &s->changes, next)
    {
        if (c->why == NULL && c->shared_token == shared_token) {
            break;
        }
    }
    return c;
}

/* Reads a stored override. An unreadable one is a pause; of all mail, if it is damaged. */
static struct intervention *read_text(const struct queue *q, const struct spool_shared *shared)
{
    json_t *object = json_loadb(shared->text.len > 0 ? shared->text.ptr : "", shared->text.len,
                                JSON_REJECT_DUPLICATES, NULL);
    bool is_whole = json_is_object(object) && intervention_is_whole(object);
    struct intervention *i = NULL;
    struct buf error, why;

    buf_init(&error, 4096);
    buf_init(&why, 4096 + INTERVENTION_TEXT_MAX);
    if (!is_whole) {
        (void)buf_add_string(&error, "it is damaged");
    } else if (json_object_get(object, "for") != NULL) {
        (void)buf_add_string(&error, "it makes no sense");
    } else {
        i = intervention_read_stored(q->conf, object, &error);
    }
    if (i != NULL && i->is_pattern && q->interventions.pattern_count >= PATTERNS_MAX) {
        (void)buf_add_string(&error, "there are too many with patterns");
        intervention_unref(i);
        i = NULL;
        is_whole = false; /* its pause would be one more pattern */
    }
    if (i == NULL) {
        (void)buf_addf(&why, "number %" PRIu64 " of the cluster can't be read at this node: %s",
                       shared->number, error.failed ? "?" : buf_cstr(&error));
        i = intervention_unreadable(q->conf, is_whole ? object : NULL,
                                    is_whole ? INTERVENTION_UNFIT : INTERVENTION_DAMAGED,
                                    slice_string(buf_cstr(&why)));
    }
    intervention_number(i, shared->number);
    i->is_shared = true;
    if (i->stored != INTERVENTION_WHOLE) {
        interventions_log_unreadable(i);
    }
    buf_fini(&why);
    buf_fini(&error);
    json_decref(object);
    return i;
}

static void enter(struct queue *q, const struct spool_shared *shared, bool at_start)
{
    struct intervention *i = read_text(q, shared);
    struct shared_change *c =
        shared->token != 0 ? find_put(&q->interventions.share, shared->token) : NULL;

    if (c != NULL && c->found == NULL) {
        c->found = intervention_ref(i);
    }
    interventions_enter(q, i, at_start);
    if (c != NULL && !c->is_own) {
        interventions_tell_journal(q, i, true);
    }
}

static struct shared_change *find_cancel(const struct intervention_share *s,
                                         const struct intervention *i)
{
    struct shared_change *c;

    TAILQ_FOREACH(c, &s->changes, next)
    {
        if (c->why != NULL && c->i == i) {
            break;
        }
    }
    return c;
}

static void leave(struct queue *q, struct intervention *i)
{
    const struct shared_change *c = find_cancel(&q->interventions.share, i);

    if (c != NULL) {
        interventions_tell_journal(q, i, false);
    }
    interventions_leave(q, i, c != NULL ? c->why : "another node has ended it");
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void leave_gone(struct queue *q)
{
    struct intervention *i, *next;
    struct spool_shared shared;

    for (i = TAILQ_FIRST(&q->interventions.list); i != NULL; i = next) {
        next = TAILQ_NEXT(i, next);
        if (i->is_shared &&
            (!spool_shared_next(q->spool, i->number - 1, &shared) || shared.number != i->number)) {
            leave(q, i);
        }
    }
}

static void follow_copy(struct queue *q, bool at_start)
{
    struct intervention_share *s = &q->interventions.share;
    uint64_t *numbers = mem_array(SPOOL_SHARED_MAX, sizeof *numbers);
    struct spool_shared shared = {.number = 0};
    size_t count = 0;

    s->looks = spool_shared_looks(q->spool);
    s->followed = spool_shared_changes(q->spool);
    leave_gone(q);
    while (count < SPOOL_SHARED_MAX && spool_shared_next(q->spool, shared.number, &shared)) {
        numbers[count++] = shared.number;
        if (s->number_count == 0 || bsearch(&shared.number, s->numbers, s->number_count,
                                            sizeof *numbers, compare_numbers) == NULL) {
            enter(q, &shared, at_start);
        }
    }
    mem_free(s->numbers);
    s->numbers = numbers;
    s->number_count = count;
    if (spool_shared_is_cut(q->spool) && !s->is_cut) {
        log_warning("there are more than %u interventions in the database: only the oldest are in "
                    "force",
                    INTERVENTIONS_MAX);
    }
    s->is_cut = spool_shared_is_cut(q->spool);
}

/* ---- ends of changes ------------------------------------------------------------------------- */

/* Begins the wait for other nodes, after this node has applied the change. `object`, the answer, is
 * taken. */
static void spread(struct queue *q, struct shared_change *c, json_t *object)
{
    c->answer = object;
    c->changes = q->interventions.share.followed;
    c->watch = spool_shared_watch(q->spool);
    c->until = mono_after(clock_mono(), INTERVENTION_SPREAD_US);
    q->interventions.pending--;
}

/* Answers if all nodes have applied the change, or their time is over. Returns false if not. */
static bool spread_ends(struct queue *q, struct shared_change *c)
{
    uint64_t nodes;
    bool is_known = spool_shared_behind(q->spool, c->watch, c->changes, &nodes);
    json_t *names;

    if (q->interventions.share.gone_by < c->changes && spool_node(q->spool) != SPOOL_NOBODY) {
        nodes |= UINT64_C(1) << spool_node(q->spool);
    }
    if ((!is_known || nodes != 0) && !mono_reached(c->until, clock_mono())) {
        return false;
    }
    names = json_array();
    for (int node = 0; node < SPOOL_NODES_MAX; node++) {
        if ((nodes >> node & 1) != 0) {
            json_add(names, json_string(spool_node_name(q->spool, node)));
        }
    }
    if (json_array_size(names) > 0) {
        json_put(c->answer, "not_confirmed", json_incref(names));
    }
    json_decref(names);
    answer(q, c, 200, json_incref(c->answer));
    return true;
}

/* Handles the end of a set: the copy has the override, or should have it and has not. */
static void put_ended(struct queue *q, struct shared_change *c)
{
    json_t *object;
    unsigned status = 200;

    if (c->found != NULL) {
        object = intervention_json(c->found);
    } else if (q->interventions.share.number_count >= INTERVENTIONS_MAX) {
        status = listing_error(409, &object,
                               "there are %u interventions, which is the limit: cancel some",
                               INTERVENTIONS_MAX);
    } else {
        status = listing_error(503, &object,
                               "it was stored and is not found again: another node has cancelled "
                               "it, or has replaced this one; `sluice interventions' lists those "
                               "that are in force");
    }
    if (c->found != NULL && c->is_own && !c->i->is_over) {
        interventions_hand_over(q, c->i);
    } else if (c->is_own) {
        log_warning("intervention %s is this node's own still: %s", c->i->name,
                    json_string_value(json_object_get(object, "error")));
    }
    if (status == 200 && c->is_asked) {
        spread(q, c, object);
    } else {
        answer(q, c, status, object);
    }
}

static void cancel_ended(struct queue *q, struct shared_change *c)
{
    c->i->is_ending = false;
    if (c->is_asked) {
        spread(q, c, intervention_json(c->i));
    }
}

/* Continues a change. Returns true if it has ended and was freed. */
static bool change_ends(struct queue *q, struct shared_change *c)
{
    bool has_looked = c->is_committed && q->interventions.share.looks >= c->look;

    if (c->answer != NULL) {
        /* stored, and in force at this node */
    } else if (c->why != NULL && c->is_committed && (c->i->is_over || has_looked)) {
        cancel_ended(q, c);
    } else if (c->why == NULL && c->is_committed && (c->found != NULL || has_looked)) {
        put_ended(q, c);
    } else {
        return false;
    }
    if (c->answer != NULL && !spread_ends(q, c)) {
        return false;
    }
    change_free(&q->interventions, c);
    return true;
}

/* Answers an operator who has waited too long. The change may still succeed. */
static void look_at_patience(struct queue *q, struct shared_change *c)
{
    json_t *object;
    unsigned status;

    if (c->is_asked && c->answer == NULL && mono_reached(c->until, clock_mono())) {
        status = listing_error(503, &object,
                               "the database has not answered for %d s: it may come into force "
                               "all the same; `sluice interventions' lists those that have",
                               (int)(INTERVENTION_SHARE_US / US_PER_S));
        answer(q, c, status, object);
    }
}

static void look_at_changes(struct queue *q)
{
    struct shared_change *c, *next;

    for (c = TAILQ_FIRST(&q->interventions.share.changes); c != NULL; c = next) {
        next = TAILQ_NEXT(c, next);
        if (!change_ends(q, c)) {
            look_at_patience(q, c);
        }
    }
}

/* ---- this node's own overrides --------------------------------------------------------------- */

static bool is_under_way(const struct intervention_share *s, const struct intervention *i)
{
    const struct shared_change *c;

    TAILQ_FOREACH(c, &s->changes, next)
    {
        if (c->i == i) {
            return true;
        }
    }
    return false;
}

/* Hands over this node's own overrides. They stay in force meanwhile, also if it fails. */
static void hand_over_own(struct queue *q)
{
    struct intervention_share *s = &q->interventions.share;
    struct intervention *i;
    unsigned count = 0;

    if (is_away(q) || !mono_reached(s->own_at, clock_mono())) {
        return;
    }
    TAILQ_FOREACH(i, &q->interventions.list, next)
    {
        if (i->is_shared || i->stored != INTERVENTION_WHOLE || i->is_ending || is_under_way(s, i)) {
            continue;
        }
        if (count++ == OWN_AT_ONCE || put(q, i, ++s->last_token) != 0) {
            break;
        }
        if (i->node[0] == '\0') {
            mem_free(i->node);
            i->node = mem_string(spool_node_name(q->spool, spool_node(q->spool)));
        }
        begin(q, intervention_ref(i), s->last_token, NULL, NULL);
    }
    s->own_at = count > 0 ? mono_after(clock_mono(), OWN_AGAIN_US) : s->own_at;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Searches partitions that this node has gained for mail of pauses that were cancelled before. */
static void look_at_gains(struct queue *q)
{
    uint64_t gains = spool_gains(q->spool);

    if (gains != q->interventions.share.gains) {
        q->interventions.share.gains = gains;
        interventions_look_at_keys(q);
    }
}

void intervention_share_begin(struct queue *q)
{
    struct intervention_share *s = &q->interventions.share;

    TAILQ_INIT(&s->changes);
    s->gains = spool_gains(q->spool);
    if (spool_has_shared(q->spool)) {
        follow_copy(q, true);
    }
}

void intervention_share_end(struct queue *q)
{
    struct shared_change *c;

    while ((c = TAILQ_FIRST(&q->interventions.share.changes)) != NULL) {
        change_free(&q->interventions, c);
    }
    mem_free(q->interventions.share.numbers);
}

void intervention_share_turn(struct queue *q)
{
    if (!spool_has_others(q->spool)) {
        return;
    }
    look_at_gains(q);
    if (!spool_has_shared(q->spool)) {
        return;
    }
    if (q->interventions.share.looks != spool_shared_looks(q->spool)) {
        follow_copy(q, false);
    }
    hand_over_own(q);
}

void intervention_share_end_turn(struct queue *q, bool is_in_force)
{
    struct intervention_share *s = &q->interventions.share;

    if (!spool_has_shared(q->spool)) {
        return;
    }
    if (is_in_force && s->gone_by != s->followed) {
        s->gone_by = s->followed;
        spool_shared_go_by(q->spool, s->gone_by);
    }
    look_at_changes(q);
}
