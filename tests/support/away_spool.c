#include "away_spool.h"

#include <errno.h>

#include "check.h"

#define KNOWN_MAX 4096
/* Messages that an event brings to be claimed, and how many looks it takes. */
#define PIECE 2
#define LOOKS 2

/* What was asked for; at hand once that was told. */
struct known {
    uint64_t id;
    bool content, is_at_hand;
};

static struct {
    const struct spool_engine *under;
    struct spool_engine engine;
    struct spool_commits_part commits;
    struct spool_parts_part parts;
    struct known known[KNOWN_MAX];
    size_t count;
    size_t ready, ready_by_key; /* messages that may be claimed */
    bool wants_mail;            /* to claim some */
    bool wants_keys, has_keys;
    bool is_asked; /* anything */
    unsigned looks, misses;
    bool has_event, is_held;
} away;

static void ask(void)
{
    if (!away.is_asked) {
        away.is_asked = true;
        away.looks = 0;
    }
}

static int miss(struct spool *sp)
{
    away.misses++;
    ask();
    return spool_fail(sp, -EAGAIN, "it is away");
}

static struct known *know(uint64_t id, bool content)
{
    for (size_t i = 0; i < away.count; i++) {
        if (away.known[i].id == id && away.known[i].content == content) {
            return &away.known[i];
        }
    }
    away.count = away.count == KNOWN_MAX ? 0 : away.count; /* all is forgotten */
    away.known[away.count] = (struct known){.id = id, .content = content};
    return &away.known[away.count++];
}

/* 0: it is at hand. */
static int look(struct spool *sp, uint64_t id, bool content)
{
    return know(id, content)->is_at_hand ? 0 : miss(sp);
}

/* What is claimed is at hand, and stays so for a moment when it is wanted. */
static int want(struct spool *sp, struct msg_id id, bool content)
{
    int err;

    if (away.under->is_claimed(sp, id)) {
        know(id.n, false)->is_at_hand = true;
    }
    err = look(sp, id.n, false);
    return err == 0 && content ? look(sp, id.n, true) : err;
}

/* By others than spool_want. */
static int need(struct spool *sp, struct msg_id id)
{
    return away.under->is_claimed(sp, id) ? 0 : look(sp, id.n, false);
}

static void turn(struct spool *sp)
{
    if (away.under->commits->turn != NULL) {
        away.under->commits->turn(sp);
    }
    if (away.is_held || !away.is_asked || away.looks++ < LOOKS) {
        return;
    }
    for (size_t i = 0; i < away.count; i++) {
        away.known[i].is_at_hand = true;
    }
    away.ready = away.wants_mail ? PIECE : away.ready;
    away.ready_by_key = away.wants_mail ? PIECE : away.ready_by_key;
    away.has_keys = away.has_keys || away.wants_keys;
    away.wants_mail = away.wants_keys = away.is_asked = false;
    away.has_event = true;
}

static bool next_event(struct spool *sp, struct spool_event *ret_event)
{
    if (away.has_event) {
        away.has_event = false;
        *ret_event = (struct spool_event){.type = SPOOL_EVENT_READY};
        return true;
    }
    return away.under->next_event != NULL && away.under->next_event(sp, ret_event);
}

/* ---- what needs it at hand ------------------------------------------------------------------- */

#define BY_ID(name, parameters, arguments)                                                         \
    static int name parameters                                                                     \
    {                                                                                              \
        int err = need(sp, id);                                                                    \
                                                                                                   \
        return err == 0 ? away.under->name arguments : err;                                        \
    }

BY_ID(settle, (struct spool * sp, struct msg_id id, uint32_t n, const struct spool_verdict *v),
      (sp, id, n, v))
BY_ID(set_route,
      (struct spool * sp, struct msg_id id, uint32_t n, struct slice transport,
       struct slice nexthop, uint64_t route_generation),
      (sp, id, n, transport, nexthop, route_generation))
BY_ID(reported, (struct spool * sp, struct msg_id id), (sp, id))
BY_ID(finish, (struct spool * sp, struct msg_id id, struct wall due, bool *ret_gone),
      (sp, id, due, ret_gone))
BY_ID(finish_all_done, (struct spool * sp, struct msg_id id), (sp, id))
BY_ID(remove, (struct spool * sp, struct msg_id id), (sp, id))
BY_ID(quarantine, (struct spool * sp, struct msg_id id, struct slice reason), (sp, id, reason))
BY_ID(read, (struct spool * sp, struct msg_id id, struct spool_message *ret_message),
      (sp, id, ret_message))
BY_ID(read_rcpts,
      (struct spool * sp, struct msg_id id, uint32_t after, bool only_pending, size_t max,
       struct spool_rcpt *ret_rcpts, size_t *ret_count),
      (sp, id, after, only_pending, max, ret_rcpts, ret_count))

static int read_content(struct spool *sp, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                        uint64_t *ret_size)
{
    int err = need(sp, id);

    err = err == 0 ? look(sp, id.n, true) : err;
    return err == 0 ? away.under->read_content(sp, id, ret_bytes, ret_fd, ret_size) : err;
}

/* The parts, too, are at hand for a moment. */
static int parts_want(struct spool *sp, struct msg_id whole)
{
    struct msg_id ids[100];
    size_t count = 0;
    int err = look(sp, whole.n, false);

    if (err == 0 &&
        away.under->parts->parts_of(sp, whole, (struct msg_id){0}, 100, ids, &count) == 0) {
        for (size_t i = 0; i < count; i++) {
            know(ids[i].n, false)->is_at_hand = true;
        }
    }
    return err;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void want_mail(void)
{
    away.wants_mail = true;
    ask();
}

static int claim(struct spool *sp, enum spool_state from, struct wall now, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count)
{
    int err;

    *ret_count = 0;
    if (away.ready == 0) {
        want_mail();
        return 0;
    }
    err = away.under->claim(sp, from, now, max < away.ready ? max : away.ready, ret_ids, ret_count);
    away.ready -= *ret_count;
    return err;
}

/* What is due and was not read is on its way: its coming is told. */
static int next_due(struct spool *sp, struct wall *ret_due)
{
    int err = away.under->next_due(sp, ret_due);

    if (err == 0 && away.ready == 0 && ret_due->us != WALL_NEVER.us) {
        want_mail();
    }
    return err;
}

static int claim_parked(struct spool *sp, struct slice key, struct wall now, size_t max,
                        struct msg_id *ret_ids, size_t *ret_count, bool *ret_more)
{
    int err = away.under->claim_parked(sp, key, now, 0, ret_ids, ret_count, ret_more);

    if (err != 0 || !*ret_more) {
        return err; /* nothing is parked under this key, and a node knows its keys */
    }
    if (away.ready_by_key == 0) {
        want_mail();
        return miss(sp);
    }
    err = away.under->claim_parked(sp, key, now, max < away.ready_by_key ? max : away.ready_by_key,
                                   ret_ids, ret_count, ret_more);
    away.ready_by_key -= *ret_count;
    return err;
}

static int parked_keys(struct spool *sp, struct slice after, size_t max, struct slice *ret_keys,
                       size_t *ret_count)
{
    if (!away.has_keys) {
        away.wants_keys = true;
        return miss(sp);
    }
    return away.under->parked_keys(sp, after, max, ret_keys, ret_count);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void wrap(struct spool *sp)
{
    away.under = sp->engine;
    away.engine = *sp->engine;
    away.commits = *sp->engine->commits;
    away.commits.turn = turn;
    away.commits.want = want;
    away.engine.commits = &away.commits;
    if (sp->engine->parts != NULL) {
        away.parts = *sp->engine->parts;
        away.parts.want = parts_want;
        away.engine.parts = &away.parts;
    }
    away.engine.settle = settle;
    away.engine.set_route = set_route;
    away.engine.reported = reported;
    away.engine.finish = finish;
    away.engine.finish_all_done = finish_all_done;
    away.engine.remove = remove;
    away.engine.quarantine = quarantine;
    away.engine.read = read;
    away.engine.read_rcpts = read_rcpts;
    away.engine.read_content = read_content;
    away.engine.claim = claim;
    away.engine.next_due = next_due;
    away.engine.claim_parked = claim_parked;
    away.engine.parked_keys = parked_keys;
    away.engine.next_event = next_event;
    sp->engine = &away.engine;
}

void away_spool(struct spool *sp)
{
    CHECK(sp->engine->commits != NULL);
    if (sp->engine->claim != claim) { /* else it was opened again */
        wrap(sp);
        away.misses = 0;
    }
    away.count = away.ready = away.ready_by_key = 0;
    away.wants_mail = away.wants_keys = away.has_keys = false;
    away.is_asked = away.has_event = away.is_held = false;
}

unsigned away_spool_misses(void)
{
    return away.misses;
}

void away_spool_hold(bool held)
{
    away.is_held = held;
    for (size_t i = 0; held && i < away.count; i++) {
        away.known[i].is_at_hand = false;
    }
}
