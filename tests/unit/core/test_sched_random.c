/*
 * Random histories: the scheduler decides what the reference decides, and whatever happens it keeps
 * its invariants, its limits and its promise that every recipient gets exactly one outcome.
 *
 * A failure prints the seed of its history.
 */
#include "scheduler.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "pieces.h"
#include "reference.h"
#include "rng.h"
#include "seeds.h"
#include "unit.h"

#define MESSAGES_MAX   300 /* in a crowd */
#define MESSAGES_USUAL 64
#define TRANSPORTS_MAX 3
#define DECISIONS_MAX  16384
#define RUNNING_MAX    16384

/* Something decided for one or more recipients. */
struct decision {
    char kind; /* 'R'ead, 'D'eliver, de'F'er */
    uint64_t msg;
    uint32_t transport, first, count; /* count: of a read, the maximum */
    char dest[16];
    struct sched_entry entry;
    struct reference_entry *reference_entry;
};

struct decisions {
    struct decision list[DECISIONS_MAX];
    size_t count;
};

struct message {
    uint64_t id; /* 0: free */
    uint32_t total;
    uint64_t settled; /* bits of recipients not to be read again */
    uint32_t read[2]; /* by each side */
};

enum side { REAL, REFERENCE };

struct world {
    uint64_t seed;
    struct rng rng;
    struct mono now;
    struct sched *s;
    struct reference *r;
    struct sched_limits limits;
    struct sched_transport_policy policies[TRANSPORTS_MAX];
    uint32_t transports, dests, size_max;
    struct message messages[MESSAGES_MAX];
    uint64_t next_id;
    struct decisions told[2];
    struct decision running[RUNNING_MAX];
    size_t running_count;
    unsigned failing; /* per cent of deliveries */
};

static uint32_t pick(struct world *w, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&w->rng, high - low + 1);
}

/* The same for both sides, whenever they ask. */
static uint32_t property(const struct world *w, uint64_t msg, uint32_t n, uint32_t what,
                         uint32_t bound)
{
    struct rng rng;

    rng_init(&rng, w->seed * 1000003 + msg * 8191 + n * 31 + what);
    return (uint32_t)rng_below(&rng, bound);
}

static struct message *message_of(struct world *w, uint64_t id)
{
    for (size_t i = 0; i < MESSAGES_MAX; i++) {
        if (w->messages[i].id == id) {
            return &w->messages[i];
        }
    }
    CHECK(false);
    return NULL;
}

static struct decision *tell(struct world *w, enum side side, char kind, uint64_t msg)
{
    struct decision *d = &w->told[side].list[w->told[side].count++];

    CHECK(w->told[side].count < DECISIONS_MAX);
    *d = (struct decision){.kind = kind, .msg = msg};
    return d;
}

/* The next recipients of a message: some are passed over, and sometimes fewer come than might. */
static size_t read_on(struct world *w, enum side side, uint64_t msg, uint32_t max,
                      const struct sched_rcpt **ret_rcpts, uint32_t *ret_disposed,
                      bool *ret_complete)
{
    static struct sched_rcpt rcpts[SCHED_READ_MAX];
    static char names[SCHED_READ_MAX][16];
    struct message *m = message_of(w, msg);
    uint32_t *at = &m->read[side];
    uint32_t limit = property(w, msg, *at, 0, 4) == 0 ? (max + 1) / 2 : max;
    size_t count = 0;

    *ret_disposed = 0;
    while (count < limit && *at < m->total) {
        uint32_t n = (*at)++;

        if (n < 64 && (m->settled >> n & 1) != 0) {
            continue;
        }
        if (property(w, msg, n, 1, 11) == 0) {
            ++*ret_disposed;
            continue;
        }
        rcpts[count].n = n;
        rcpts[count].transport = property(w, msg, n, 2, w->transports);
        rcpts[count].dest =
            slice_of(names[count], (size_t)snprintf(names[count], sizeof names[count], "d%u",
                                                    property(w, msg, n, 3, w->dests)));
        count++;
    }
    *ret_rcpts = rcpts;
    *ret_complete = *at == m->total;
    tell(w, side, 'R', msg)->count = max;
    return count;
}

static size_t reference_reads(void *arg, uint64_t msg, uint32_t max,
                              const struct sched_rcpt **ret_rcpts, uint32_t *ret_disposed,
                              bool *ret_complete)
{
    return read_on(arg, REFERENCE, msg, max, ret_rcpts, ret_disposed, ret_complete);
}

/* Deferrals are told recipient by recipient, as the two sides batch them differently. */
static void tell_rcpts(struct world *w, enum side side, bool deliver, uint64_t msg,
                       uint32_t transport, struct slice dest, const uint32_t *rcpts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct decision *d = tell(w, side, deliver ? 'D' : 'F', msg);

        d->transport = transport;
        d->first = rcpts[i];
        d->count = deliver ? (uint32_t)count : 1;
        (void)snprintf(d->dest, sizeof d->dest, "%.*s", SLICE_ARGS(dest)); /* names are short */
        if (deliver) {
            break;
        }
    }
}

static void reference_chose(void *arg, uint64_t msg, uint32_t transport, const char *dest,
                            struct reference_entry *entry, const uint32_t *rcpts, size_t count)
{
    struct world *w = arg;

    tell_rcpts(w, REFERENCE, entry != NULL, msg, transport, slice_string(dest), rcpts, count);
    w->told[REFERENCE].list[w->told[REFERENCE].count - 1].reference_entry = entry;
}

static void real_decides(struct world *w)
{
    const struct sched_rcpt *rcpts;
    struct sched_action a;
    uint32_t disposed;
    bool complete;
    size_t count;

    while (sched_next(w->s, w->now, &a) != SCHED_NONE) {
        sched_audit(w->s);
        switch (a.type) {
        case SCHED_READ:
            count = read_on(w, REAL, a.msg.n, a.max, &rcpts, &disposed, &complete);
            sched_recipients(w->s, w->now, a.msg, rcpts, count, disposed, complete);
            break;
        case SCHED_DELIVER:
            tell_rcpts(w, REAL, true, a.msg.n, a.transport, a.dest, a.rcpts, a.rcpt_count);
            w->told[REAL].list[w->told[REAL].count - 1].entry = a.entry;
            break;
        case SCHED_DEFER:
            tell_rcpts(w, REAL, false, a.msg.n, a.transport, a.dest, a.rcpts, a.rcpt_count);
            break;
        case SCHED_DONE:
            assert_false(sched_has_message(w->s, a.msg));
            message_of(w, a.msg.n)->id = 0;
            break;
        case SCHED_PARK:
        case SCHED_ADMIT:
            fail_msg("nothing is parked here");
            break;
        case SCHED_DEST_DEAD:
        case SCHED_DEST_PROBED:
        case SCHED_DEST_REVIVED:
        case SCHED_NONE:
            break;
        }
        sched_audit(w->s);
    }
}

static void print_decisions(const struct decisions *told)
{
    for (size_t i = 0; i < told->count; i++) {
        const struct decision *d = &told->list[i];
        print_error(" %c m%llu t%u %s r%u x%u;", d->kind, (unsigned long long)d->msg, d->transport,
                    d->dest, d->first, d->count);
    }
    print_error("\n");
}

static bool same_decisions(const struct decisions *a, const struct decisions *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        const struct decision *x = &a->list[i], *y = &b->list[i];
        if (x->kind != y->kind || x->msg != y->msg || x->transport != y->transport ||
            x->first != y->first || x->count != y->count || strcmp(x->dest, y->dest) != 0) {
            return false;
        }
    }
    return true;
}

/* Both sides decide all they can, and the same. */
static void both_decide(struct world *w)
{
    w->told[REAL].count = w->told[REFERENCE].count = 0;
    reference_run(w->r, w->now);
    real_decides(w);
    sched_audit(w->s);
    if (!same_decisions(&w->told[REAL], &w->told[REFERENCE])) {
        print_error("seed %llu\nreal:     ", (unsigned long long)w->seed);
        print_decisions(&w->told[REAL]);
        print_error("reference:");
        print_decisions(&w->told[REFERENCE]);
        fail();
    }
    for (size_t i = 0; i < w->told[REAL].count; i++) {
        if (w->told[REAL].list[i].kind == 'D') {
            CHECK(w->running_count < RUNNING_MAX);
            w->running[w->running_count] = w->told[REAL].list[i];
            w->running[w->running_count++].reference_entry =
                w->told[REFERENCE].list[i].reference_entry;
        }
    }
    assert_int_equal(reference_messages(w->r), sched_totals(w->s).messages);
}

static void random_policy(struct world *w, struct sched_transport_policy *p)
{
    static const uint32_t rcpt_limits[] = {0, 1, 2, 50};
    static const struct feedback feedbacks[] = {
        {FEEDBACK_CONSTANT, 1}, {FEEDBACK_PER_WINDOW, 1}, {FEEDBACK_PER_SQRT_WINDOW, 1}};

    *p = (struct sched_transport_policy){
        .window = {.rule = pick(w, 0, 1) == 0 ? WINDOW_DOCUMENTED : WINDOW_POSTFIX,
                   .initial = pick(w, 1, 5),
                   .max = pick(w, 0, 6),
                   .positive = feedbacks[pick(w, 0, 2)],
                   .negative = feedbacks[pick(w, 0, 2)],
                   .failed_cohort_limit = pick(w, 0, 2)},
        .process_limit = pick(w, 0, 3) == 0 ? 0 : pick(w, 1, 16),
        .dest_recipient_limit = rcpt_limits[pick(w, 0, 3)],
        .recipient_limit = pick(w, 0, 60),
        .extra_recipient_limit = pick(w, 0, 20),
        .refill_limit = pick(w, 1, 12),
        .refill_delay_us = pick(w, 0, 3) * US_PER_S,
        .slot_cost = (int)pick(w, 0, 6),
        .slot_loan = (int)pick(w, 0, 4),
        .slot_discount = (int)pick(w, 0, 4) * 25,
        .minimum_slots = (int)pick(w, 0, 3),
        .dest_rate_delay_us = pick(w, 0, 5) == 0 ? pick(w, 1, 3) * US_PER_S : 0,
        .transport_rate_delay_us = pick(w, 0, 7) == 0 ? 300 * US_PER_MS : 0,
    };
    if (w->r != NULL && p->window.failed_cohort_limit > 0) {
        p->window.rule = WINDOW_POSTFIX; /* the other comes back from the dead in another way */
    }
}

static void world_start(struct world *w, uint64_t seed, uint32_t messages, bool with_reference)
{
    static const char *const names[] = {"smtp", "local", "relay"};

    memset(w, 0, sizeof *w);
    w->seed = seed;
    rng_init(&w->rng, seed);
    w->now.us = 5000 * US_PER_S + 123456;
    w->limits = (struct sched_limits){
        .message_active_limit = messages,
        .message_recipient_limit = pick(w, 0, 1) == 0 ? messages : 1000,
        .message_recipient_minimum = pick(w, 1, 10),
        .minimal_backoff_us = pick(w, 1, 20) * US_PER_S,
        .transport_retry_us = 5 * US_PER_S,
    };
    w->transports = pick(w, 1, TRANSPORTS_MAX);
    w->dests = pick(w, 1, 12);
    w->size_max = pick(w, 0, 1) == 0 ? 6 : 40;
    w->failing = pick(w, 0, 2) == 0 ? 0 : pick(w, 1, 40);
    w->limits.failing_share = w->failing == 0 ? 50 : 0; /* nothing changes unless some fail */
    w->s = sched_new(&w->limits);
    if (with_reference) {
        w->r = reference_new(&w->limits, reference_reads, reference_chose, w);
    }
    for (uint32_t i = 0; i < w->transports; i++) {
        random_policy(w, &w->policies[i]);
        assert_int_equal(sched_transport(w->s, w->now, names[i], &w->policies[i]), i);
        if (with_reference) {
            reference_transport(w->r, &w->policies[i], names[i]);
        }
    }
}

static struct message new_message(struct world *w)
{
    return (struct message){.id = ++w->next_id,
                            .total = pick(w, 0, 2) == 0 ? pick(w, 1, w->size_max) : pick(w, 1, 3)};
}

/* Of which class a message is: with the reference one class or none, which must make no difference;
 * else of several, some of them the only one of their class. */
#define CLASSES_MAX 40

static uint32_t class_of(const struct world *w, uint64_t id)
{
    return (uint32_t)(w->r != NULL       ? w->seed % 2
                      : w->seed % 3 == 0 ? 0
                                         : id % (1 + w->seed % CLASSES_MAX));
}

static struct slice class_name_of(uint32_t class_number, char room[32])
{
    /* Some are groups of a class, of which each may have one of its own, too. */
    int len = class_number % 3 == 2
                  ? snprintf(room, 32, "class%u/%u", class_number % 4, class_number)
                  : snprintf(room, 32, "class%u", class_number);

    return slice_of(room, class_number == 0 ? 0 : (size_t)len);
}

static void open_real(struct world *w, uint64_t id, uint32_t total, bool single)
{
    char room[32];
    struct slice class_name = class_name_of(class_of(w, id), room);

    sched_open_in_class(w->s, w->now, (struct sched_msg){id}, total, single, class_name,
                        slice_equal(class_name, SLICE("class3")) ? 1 + (uint32_t)(id % 9) : 1);
}

static void open_one(struct world *w)
{
    struct message *m = message_of(w, 0);
    bool single = pick(w, 0, 7) == 0;

    *m = new_message(w);
    open_real(w, m->id, m->total, single);
    if (w->r != NULL) {
        reference_open(w->r, w->now, m->id, m->total, single);
    }
}

static struct decision take_running(struct world *w)
{
    size_t i = pick(w, 0, (uint32_t)w->running_count - 1);
    struct decision d = w->running[i];

    w->running[i] = w->running[--w->running_count];
    return d;
}

static void finish_one(struct world *w, enum sched_outcome outcome)
{
    struct decision d = take_running(w);

    assert_true(sched_finished(w->s, w->now, d.entry, outcome, SLICE("4.4.1 no answer")));
    assert_false(sched_finished(w->s, w->now, d.entry, outcome, SLICE("")));
    reference_finished(w->r, w->now, d.reference_entry, outcome);
}

static enum sched_outcome random_outcome(struct world *w)
{
    if (pick(w, 1, 100) <= w->failing) {
        return pick(w, 0, 5) == 0 ? SCHED_CRASH : SCHED_DEST_FAIL;
    }
    return SCHED_OK;
}

/* A crowd has come already when the history begins. */
static void same_history(uint64_t seed, uint32_t crowd)
{
    struct world *w = mem_new(sizeof *w);

    world_start(w, seed, crowd > 0 ? MESSAGES_MAX : MESSAGES_USUAL, true);
    for (uint32_t i = 0; i < crowd; i++) {
        open_one(w);
        w->now.us += pick(w, 0, 900) * US_PER_MS;
    }
    for (int step = 0; step < 250; step++) {
        uint32_t what = pick(w, 0, 9);

        if (what < 4 && sched_has_room(w->s)) {
            open_one(w);
        } else if (what < 9 && w->running_count > 0) {
            finish_one(w, random_outcome(w));
        } else {
            w->now.us += pick(w, 0, 1) == 0 ? 400 * US_PER_MS : 3 * US_PER_S;
        }
        w->now.us += 7 * US_PER_MS;
        both_decide(w);
    }
    /* All sites are well now: the queue drains. */
    for (int step = 0; sched_totals(w->s).messages > 0; step++) {
        assert_true(step < 100000);
        if (w->running_count > 0) {
            finish_one(w, SCHED_OK);
        } else {
            w->now = sched_wake_at(w->s);
        }
        both_decide(w);
    }
    reference_free(w->r);
    sched_free(w->s);
    mem_free(w);
}

static void usual_history(uint64_t seed)
{
    same_history(seed, 0);
}

static void crowd_history(uint64_t seed)
{
    same_history(seed, 250);
}

static void the_reference_decides_the_same(void **state)
{
    (void)state;
    for_each_seed(1, 400, usual_history);
}

/* The list of jobs is long enough for a search in it to go wrong, and has old ones and young. */
static void the_reference_decides_the_same_in_a_crowd(void **state)
{
    (void)state;
    for_each_seed(1, 10, crowd_history);
}

/* ---- anything at all ------------------------------------------------------------------------ */

#define RCPTS_MAX 64

#define PARKED_MAX 400

#define RINGS_MAX 3

enum rcpt_state { UNREAD, WAITING, RUNNING, SETTLED };

/* What must be true of a message, kept beside the scheduler. */
struct ledger {
    enum rcpt_state rcpts[RCPTS_MAX];
    bool dropped, reading;
    uint32_t may_read;
};

struct parked {
    struct message m;
    struct ledger ledger;
    uint32_t transport, dest;
};

struct wild {
    struct world w;
    struct ledger ledgers[MESSAGES_MAX];
    struct parked parked[PARKED_MAX]; /* in order of their ids */
    size_t parked_count;
    uint32_t asked[TRANSPORTS_MAX][16][CLASSES_MAX]; /* max of a question not answered yet */
    struct sched_search search;
    struct {
        uint64_t msg;
        uint32_t transport, dest, count, rcpts[RCPTS_MAX];
        struct sched_entry entry;
    } running[RUNNING_MAX];
    size_t running_count;
    uint32_t busy[TRANSPORTS_MAX];
    struct sched_ring_policy rings[TRANSPORTS_MAX][1 + RINGS_MAX]; /* from 1; limits 0: none */
    int64_t postponed_until[TRANSPORTS_MAX][16];
    uint64_t settled;
};

static struct ledger *ledger_of(struct wild *x, uint64_t msg)
{
    return &x->ledgers[message_of(&x->w, msg) - x->w.messages];
}

static void move_rcpts(struct wild *x, uint64_t msg, const uint32_t *rcpts, size_t count,
                       enum rcpt_state from, enum rcpt_state to)
{
    struct ledger *ledger = ledger_of(x, msg);

    for (size_t i = 0; i < count; i++) {
        CHECK(rcpts[i] < RCPTS_MAX);
        assert_int_equal(ledger->rcpts[rcpts[i]], from);
        ledger->rcpts[rcpts[i]] = to;
        x->settled += to == SETTLED;
    }
}

static void wild_answer(struct wild *x, struct message *m)
{
    struct ledger *ledger = ledger_of(x, m->id);
    const struct sched_rcpt *rcpts;
    uint32_t disposed;
    bool complete;
    size_t count = read_on(&x->w, REAL, m->id, ledger->may_read, &rcpts, &disposed, &complete);

    x->w.told[REAL].count = 0;
    ledger->reading = false;
    for (size_t i = 0; i < count && !ledger->dropped; i++) {
        move_rcpts(x, m->id, &rcpts[i].n, 1, UNREAD, WAITING);
    }
    sched_recipients(x->w.s, x->w.now, (struct sched_msg){m->id}, rcpts, count, disposed, complete);
    if (count > 0 && pick(&x->w, 0, 5) == 0) {
        struct sched_dest_policy policy = {
            .window = x->w.policies[pick(&x->w, 0, x->w.transports - 1)].window,
            .rate_delay_us = pick(&x->w, 0, 3) == 0 ? US_PER_S : 0,
            .ring = x->rings[0][0].ring_limit > 0 ? pick(&x->w, 0, RINGS_MAX) : 0,
            .depth = pick(&x->w, 0, 1) == 0 ? 1 : pick(&x->w, 1, 25)};
        sched_dest_policy(x->w.s, x->w.now, rcpts[0].transport, rcpts[0].dest, &policy);
    }
}

static uint32_t dest_number(struct slice name)
{
    char text[16];
    unsigned n;

    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name)); /* names are short */
    CHECK(sscanf(text, "d%u", &n) == 1);
    CHECK(n < 16);
    return n;
}

/* ---- agents --------------------------------------------------------------------------------- */

/* Agents in use, from nothing but what runs and how much of it one agent has. */
struct agents {
    uint32_t of_ring[TRANSPORTS_MAX][1 + RINGS_MAX], of_transport[TRANSPORTS_MAX], all;
};

static void count_agents(const struct wild *x, struct agents *ret_agents)
{
    uint32_t running[TRANSPORTS_MAX][16] = {{0}};
    struct sched_dest_info info;
    uint64_t cursor = 0;

    *ret_agents = (struct agents){0};
    for (size_t i = 0; i < x->running_count; i++) {
        running[x->running[i].transport][x->running[i].dest]++;
    }
    while (sched_dest_each(x->w.s, &cursor, &info)) {
        uint32_t used =
            (running[info.transport][dest_number(info.dest)] + info.depth - 1) / info.depth;

        assert_int_equal(info.agents, used);
        ret_agents->of_ring[info.transport][info.ring] += used;
        ret_agents->of_transport[info.transport] += used;
        ret_agents->all += used;
    }
}

static bool within(uint32_t value, uint32_t limit)
{
    return limit == 0 || value <= limit;
}

/* What has just started is within the limits of its ring, unless an agent had room for it. */
static void agents_suffice(const struct wild *x, uint32_t transport,
                           const struct sched_dest_info *info)
{
    const struct sched_ring_policy *p = &x->rings[transport][info->ring];
    struct agents agents;

    count_agents(x, &agents);
    assert_true(info->agents <= info->window);
    if (info->ring > 0 && (info->busy - 1) % info->depth == 0) {
        assert_true(within(agents.of_ring[transport][info->ring], p->ring_limit));
        assert_true(within(agents.of_transport[transport], p->transport_limit));
        assert_true(within(agents.all, p->total_limit));
    }
}

static bool limit_closes(const struct sched_gate *g, uint32_t value, uint32_t limit)
{
    assert_int_equal(g->value, value);
    assert_int_equal(g->limit, limit);
    return value >= limit;
}

/* Is there a gate that keeps what waits for the destination? Of those of the ring the values are
 * those of the model. */
static bool gate_is_closed(const struct wild *x, const struct sched_dest_info *info,
                           const struct agents *agents, const struct sched_gate *g)
{
    const struct sched_ring_policy *p = &x->rings[info->transport][info->ring];

    switch (g->type) {
    case SCHED_GATE_RING:
        return limit_closes(g, agents->of_ring[info->transport][info->ring], p->ring_limit);
    case SCHED_GATE_AGENTS:
        return limit_closes(g, agents->all, p->total_limit);
    case SCHED_GATE_TRANSPORT_LIMIT:
    case SCHED_GATE_TRANSPORT_DEAD:
    case SCHED_GATE_TRANSPORT_RATE:
    case SCHED_GATE_DEST_DEAD:
    case SCHED_GATE_DEST_RATE:
    case SCHED_GATE_WINDOW:
    case SCHED_GATE_FAILING:
        return g->closed;
    case SCHED_GATE_BUSY:
    case SCHED_GATE_UNREAD:
    case SCHED_GATE_CLASS:
    case SCHED_GATE_GROUP:
    case SCHED_GATE_BEHIND:
        break; /* another's entry could start */
    }
    return false;
}

/* All that can be decided is: nothing waits that could start. */
static void nothing_idles(const struct wild *x)
{
    struct sched_dest_info info;
    struct sched_wait wait;
    struct agents agents;
    uint64_t cursor = 0;

    count_agents(x, &agents);
    while (sched_dest_each(x->w.s, &cursor, &info)) {
        bool closed = info.waiting == 0;

        sched_why_dest(x->w.s, info.transport, info.dest, &wait);
        for (size_t i = 0; i < wait.gate_count && !closed; i++) {
            closed = gate_is_closed(x, &info, &agents, &wait.gates[i]);
        }
        if (!closed) {
            fail_msg("seed %llu: mail waits for %.*s, and nothing keeps it",
                     (unsigned long long)x->w.seed, SLICE_ARGS(info.dest));
        }
    }
}

/* Some histories have rings, whose limits change. */
static void wild_rings(struct wild *x)
{
    x->rings[0][0].ring_limit = 1; /* there are some */
    for (uint32_t t = 0; t < x->w.transports; t++) {
        for (uint32_t r = 1; r <= RINGS_MAX; r++) {
            struct sched_ring_policy *p = &x->rings[t][r];

            *p = (struct sched_ring_policy){.ring_limit = pick(&x->w, 0, 4),
                                            .transport_limit = pick(&x->w, 0, 8),
                                            .total_limit = pick(&x->w, 0, 12)};
            sched_ring(x->w.s, x->w.now, t, r, p);
        }
    }
}

/* ---- deliveries ----------------------------------------------------------------------------- */

static void wild_postpone(struct wild *x)
{
    uint32_t transport = pick(&x->w, 0, x->w.transports - 1), dest = pick(&x->w, 0, 15);
    struct mono until = mono_after(x->w.now, pick(&x->w, 0, 4) * 500 * US_PER_MS);
    struct sched_dest_info before, after;
    char name[16];
    struct slice text = slice_of(name, (size_t)snprintf(name, sizeof name, "d%u", dest));
    bool known = sched_dest_get(x->w.s, transport, text, &before);
    bool told = sched_wake_at(x->w.s).us > x->w.now.us; /* or it has a policy to catch up with */

    sched_postpone(x->w.s, x->w.now, transport, text, until, SLICE("4.2.0 come back later"));
    assert_true(sched_dest_get(x->w.s, transport, text, &after));
    assert_true(after.postponed);
    assert_int_equal(after.state, SCHED_DEST_DEAD_UNTIL);
    if (known && told && before.state == SCHED_DEST_READY) {
        assert_int_equal(after.window, before.window);
        assert_true(after.failed_cohorts == before.failed_cohorts);
    }
    if (!known || before.state != SCHED_DEST_SUSPENDED) {
        assert_int_equal(after.until.us, until.us);
    }
    x->postponed_until[transport][dest] = until.us;
}

static void wild_revive(struct wild *x, uint32_t transport, struct slice dest)
{
    sched_revive(x->w.s, x->w.now, transport, dest);
    if (dest.len > 0) {
        x->postponed_until[transport][dest_number(dest)] = 0;
    } else {
        memset(x->postponed_until[transport], 0, sizeof x->postponed_until[transport]);
    }
}

static void wild_deliver(struct wild *x, const struct sched_action *a)
{
    uint32_t limit = x->w.policies[a->transport].process_limit;
    struct sched_dest_info info;

    assert_false(ledger_of(x, a->msg.n)->dropped);
    move_rcpts(x, a->msg.n, a->rcpts, a->rcpt_count, WAITING, RUNNING);
    CHECK(a->rcpt_count <= RCPTS_MAX);
    CHECK(x->running_count < RUNNING_MAX);
    x->running[x->running_count].msg = a->msg.n;
    x->running[x->running_count].transport = a->transport;
    x->running[x->running_count].dest = dest_number(a->dest);
    x->running[x->running_count].entry = a->entry;
    x->running[x->running_count].count = (uint32_t)a->rcpt_count;
    memcpy(x->running[x->running_count++].rcpts, a->rcpts, a->rcpt_count * sizeof *a->rcpts);
    x->busy[a->transport]++;
    assert_true(limit == 0 || x->busy[a->transport] <= limit);
    assert_true(sched_dest_get(x->w.s, a->transport, a->dest, &info));
    assert_true(info.state == SCHED_DEST_READY || info.state == SCHED_DEST_PROBING);
    assert_true(info.state == SCHED_DEST_READY || info.busy == 1);
    assert_int_equal(info.window, a->window);
    agents_suffice(x, a->transport, &info);
    assert_true(x->postponed_until[a->transport][dest_number(a->dest)] <= x->w.now.us);
}

/* ---- parking -------------------------------------------------------------------------------- */

static uint32_t class_number_of(struct slice name)
{
    char text[32];
    unsigned n = 0;

    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name)); /* likewise */
    CHECK(name.len == 0 || sscanf(text, "class%*u/%u", &n) == 1 ||
          sscanf(text, "class%u", &n) == 1);
    CHECK(n < CLASSES_MAX);
    return n;
}

/* All that is left of a message is for one destination. */
static bool left_for_one(const struct wild *x, const struct message *m, uint32_t *ret_transport,
                         uint32_t *ret_dest)
{
    bool any = false;

    for (uint32_t n = 0; n < m->total; n++) {
        uint32_t transport = property(&x->w, m->id, n, 2, x->w.transports);
        uint32_t dest = property(&x->w, m->id, n, 3, x->w.dests);

        if ((m->settled >> n & 1) != 0 || property(&x->w, m->id, n, 1, 11) == 0) {
            continue;
        }
        if (any && (transport != *ret_transport || dest != *ret_dest)) {
            return false;
        }
        *ret_transport = transport;
        *ret_dest = dest;
        any = true;
    }
    return any;
}

static void park(struct wild *x, const struct message *m, const struct ledger *ledger,
                 uint32_t transport, uint32_t dest)
{
    size_t at = x->parked_count++;

    CHECK(x->parked_count <= PARKED_MAX);
    for (; at > 0 && x->parked[at - 1].m.id > m->id; at--) {
        x->parked[at] = x->parked[at - 1];
    }
    x->parked[at] =
        (struct parked){.m = *m, .ledger = *ledger, .transport = transport, .dest = dest};
    x->parked[at].m.read[REAL] = 0;
}

/* Mail comes: it is parked, enters, or stays outside. */
static void wild_arrival(struct wild *x)
{
    struct world *w = &x->w;
    struct message m = new_message(w), *slot;
    char name[16], room[32];
    uint32_t transport, dest;

    if (left_for_one(x, &m, &transport, &dest)) {
        struct slice text = slice_of(name, (size_t)snprintf(name, sizeof name, "d%u", dest));
        struct slice class_name = class_name_of(class_of(w, m.id), room);
        if (sched_share_full(w->s, transport, text, class_name)) {
            park(x, &m, &(struct ledger){0}, transport, dest);
            sched_parked(w->s, w->now, transport, text, class_name);
            return;
        }
    }
    if (sched_has_room(w->s)) {
        slot = message_of(w, 0);
        *slot = m;
        memset(ledger_of(x, m.id), 0, sizeof(struct ledger));
        open_real(w, m.id, m.total, pick(w, 0, 7) == 0);
    }
}

static void wild_answer_question(struct wild *x, uint32_t transport, uint32_t dest,
                                 uint32_t class_number)
{
    struct world *w = &x->w;
    uint32_t count = 0, max = x->asked[transport][dest][class_number];
    char name[16], room[32];
    struct slice text = slice_of(name, (size_t)snprintf(name, sizeof name, "d%u", dest));
    size_t at = 0;

    x->asked[transport][dest][class_number] = 0;
    for (; at < x->parked_count; at++) {
        struct parked *p = &x->parked[at];
        struct message *slot;

        if (p->transport != transport || p->dest != dest || class_of(w, p->m.id) != class_number) {
            continue;
        }
        if (count == max) {
            break;
        }
        slot = message_of(w, 0);
        *slot = p->m;
        *ledger_of(x, slot->id) = p->ledger;
        open_real(w, slot->id, slot->total, false);
        count++;
        x->parked_count--;
        memmove(p, p + 1, (x->parked_count - at) * sizeof *p);
        at--;
    }
    sched_admitted(w->s, w->now, transport, text, class_name_of(class_number, room), count,
                   at < x->parked_count);
}

static void wild_parks(struct wild *x, const struct sched_action *a)
{
    struct message *m = message_of(&x->w, a->msg.n);
    struct ledger *ledger = ledger_of(x, a->msg.n);
    uint32_t transport, dest;
    char room[32];

    assert_false(sched_has_message(x->w.s, a->msg));
    assert_true(slice_equal(a->class_name, class_name_of(class_of(&x->w, a->msg.n), room)));
    assert_false(ledger->dropped);
    assert_false(ledger->reading);
    for (uint32_t n = 0; n < m->total; n++) {
        assert_int_not_equal(ledger->rcpts[n], RUNNING);
        if (ledger->rcpts[n] == SETTLED) {
            m->settled |= UINT64_C(1) << n;
        } else {
            ledger->rcpts[n] = UNREAD;
        }
    }
    assert_true(left_for_one(x, m, &transport, &dest));
    assert_int_equal(transport, a->transport);
    assert_int_equal(dest, dest_number(a->dest));
    park(x, m, ledger, transport, dest);
    m->id = 0;
}

static void wild_asks(struct wild *x, const struct sched_action *a)
{
    uint32_t dest = dest_number(a->dest), class_number = class_number_of(a->class_name);
    uint32_t *asked = &x->asked[a->transport][dest][class_number];

    assert_true(a->max > 0);
    assert_int_equal(*asked, 0);
    *asked = a->max;
    if (pick(&x->w, 0, 2) > 0) {
        wild_answer_question(x, a->transport, dest, class_number);
    }
}

/* All questions, or some one. True when there was one. */
static bool wild_answers(struct wild *x, bool all)
{
    bool any = false;

    for (uint32_t transport = 0; transport < TRANSPORTS_MAX; transport++) {
        for (uint32_t dest = 0; dest < 16; dest++) {
            for (uint32_t c = 0; c < CLASSES_MAX; c++) {
                if (x->asked[transport][dest][c] > 0 && (all || !any)) {
                    wild_answer_question(x, transport, dest, c);
                    any = true;
                }
            }
        }
    }
    return any;
}

static void no_faults(struct wild *x, uint32_t budget)
{
    static const struct sched_timeouts for_ever = {0};
    struct sched_fault fault;

    if (sched_search_faults(x->w.s, x->w.now, &for_ever, &x->search, budget, &fault, 1) > 0) {
        fail_msg("seed %llu: %s: %llu, expected %llu", (unsigned long long)x->w.seed, fault.words,
                 (unsigned long long)fault.value, (unsigned long long)fault.expected);
    }
}

/* ---- anything at all, continued ------------------------------------------------------------- */

static void wild_decides(struct wild *x)
{
    struct sched_action a;

    while (sched_next(x->w.s, x->w.now, &a) != SCHED_NONE) {
        struct ledger *ledger;

        sched_audit(x->w.s);
        switch (a.type) {
        case SCHED_READ:
            ledger = ledger_of(x, a.msg.n);
            assert_false(ledger->reading);
            ledger->reading = true;
            ledger->may_read = a.max;
            if (pick(&x->w, 0, 2) > 0) {
                wild_answer(x, message_of(&x->w, a.msg.n));
            }
            break;
        case SCHED_DELIVER:
            wild_deliver(x, &a);
            break;
        case SCHED_DEFER:
            assert_false(ledger_of(x, a.msg.n)->dropped);
            move_rcpts(x, a.msg.n, a.rcpts, a.rcpt_count, WAITING, SETTLED);
            break;
        case SCHED_DONE:
            ledger = ledger_of(x, a.msg.n);
            assert_false(ledger->reading);
            for (size_t i = 0; i < RCPTS_MAX; i++) {
                assert_int_not_equal(ledger->rcpts[i], RUNNING);
                assert_true(ledger->dropped || ledger->rcpts[i] != WAITING);
            }
            message_of(&x->w, a.msg.n)->id = 0;
            break;
        case SCHED_PARK:
            wild_parks(x, &a);
            break;
        case SCHED_ADMIT:
            wild_asks(x, &a);
            break;
        case SCHED_DEST_DEAD:
            assert_true(a.dest.len > 0);
            break;
        case SCHED_DEST_PROBED:
        case SCHED_DEST_REVIVED:
        case SCHED_NONE:
            break;
        }
        sched_audit(x->w.s);
        no_faults(x, 10);
    }
    if (sched_wake_at(x->w.s).us > x->w.now.us) { /* or there are chores left */
        nothing_idles(x);
    }
}

static void wild_end(struct wild *x, bool unselect, enum sched_outcome outcome)
{
    size_t i = pick(&x->w, 0, (uint32_t)x->running_count - 1);
    uint64_t msg = x->running[i].msg;

    x->busy[x->running[i].transport]--;
    if (unselect) {
        move_rcpts(x, msg, x->running[i].rcpts, x->running[i].count, RUNNING, WAITING);
        assert_true(sched_unselect(x->w.s, x->w.now, x->running[i].entry));
    } else {
        move_rcpts(x, msg, x->running[i].rcpts, x->running[i].count, RUNNING, SETTLED);
        assert_true(sched_finished(x->w.s, x->w.now, x->running[i].entry, outcome,
                                   SLICE("4.4.2 lost connection")));
    }
    assert_false(sched_unselect(x->w.s, x->w.now, x->running[i].entry));
    x->running[i] = x->running[--x->running_count];
}

static void wild_drop(struct wild *x)
{
    struct message *m = &x->w.messages[pick(&x->w, 0, MESSAGES_USUAL - 1)];

    if (m->id != 0) {
        assert_true(sched_drop(x->w.s, x->w.now, (struct sched_msg){m->id}));
        ledger_of(x, m->id)->dropped = true;
    } else {
        assert_false(sched_drop(x->w.s, x->w.now, (struct sched_msg){1000000}));
    }
}

static void wild_why(struct wild *x)
{
    struct message *m = &x->w.messages[pick(&x->w, 0, MESSAGES_USUAL - 1)];
    const uint32_t n = 0;
    struct sched_wait wait;
    uint32_t group;

    if (m->id != 0) {
        assert_int_equal(sched_why(x->w.s, (struct sched_msg){m->id}, &n, 1, &group, &wait), 1);
        assert_true(wait.gate_count >= 1);
        if (ledger_of(x, m->id)->rcpts[0] == RUNNING) {
            assert_int_equal(wait.gates[0].type, SCHED_GATE_BUSY);
        }
    }
}

static void wild_policy(struct wild *x)
{
    static const char *const names[] = {"smtp", "local", "relay"};
    struct world *w = &x->w;
    uint32_t i = pick(w, 0, w->transports - 1);

    random_policy(w, &w->policies[i]);
    assert_int_equal(sched_transport(w->s, w->now, names[i], &w->policies[i]), i);
    w->limits.message_recipient_minimum = pick(w, 1, 10);
    sched_set_limits(w->s, &w->limits);
}

static void wild_step(struct wild *x)
{
    struct world *w = &x->w;
    uint32_t what = pick(w, 0, 99);

    if (what < 35) {
        wild_arrival(x);
    } else if (what < 70) {
        if (x->running_count > 0) {
            wild_end(x, false, random_outcome(w));
        }
    } else if (what < 74) {
        if (x->running_count > 0) {
            wild_end(x, true, SCHED_OK);
        }
    } else if (what < 78) {
        wild_drop(x);
    } else if (what < 82) {
        for (size_t i = 0; i < MESSAGES_MAX; i++) {
            if (w->messages[i].id != 0 && x->ledgers[i].reading) {
                wild_answer(x, &w->messages[i]);
                break;
            }
        }
    } else if (what < 83) {
        (void)wild_answers(x, false);
    } else if (what < 84) {
        wild_revive(x, pick(w, 0, w->transports - 1), SLICE("d0"));
    } else if (what < 85) {
        for (uint32_t i = 0; i < w->transports; i++) {
            wild_revive(x, i, SLICE(""));
        }
    } else if (what < 86) {
        sched_transport_failed(w->s, w->now, pick(w, 0, w->transports - 1), SLICE("4.3.0 no"));
    } else if (what < 87) {
        wild_policy(x);
    } else if (what < 88 && x->rings[0][0].ring_limit > 0) {
        wild_rings(x);
    } else if (what < 89) {
        wild_postpone(x);
    } else if (what < 90) {
        wild_why(x);
    } else {
        w->now.us += pick(w, 0, 1) == 0 ? 400 * US_PER_MS : 3 * US_PER_S;
    }
}

/* Sites and agents are well and the reader answers: everything must end. */
static void wild_drain(struct wild *x)
{
    struct world *w = &x->w;

    for (int step = 0; sched_totals(w->s).messages > 0 || x->parked_count > 0; step++) {
        bool moved = wild_answers(x, true);

        assert_true(step < 100000);
        for (size_t i = 0; i < MESSAGES_MAX; i++) {
            if (w->messages[i].id != 0 && x->ledgers[i].reading) {
                wild_answer(x, &w->messages[i]);
                moved = true;
            }
        }
        if (x->running_count > 0) {
            wild_end(x, false, SCHED_OK);
        } else if (!moved) {
            assert_true(sched_wake_at(w->s).us < US_FOREVER);
            w->now = sched_wake_at(w->s);
        }
        wild_decides(x);
    }
    assert_int_equal(sched_totals(w->s).recipients, 0);
    assert_int_equal(sched_totals(w->s).entries_waiting, 0);
    assert_int_equal(sched_totals(w->s).entries_busy, 0);
    (void)wild_answers(x, true);
    assert_int_equal(sched_totals(w->s).parked_destinations, 0);
    assert_true(sched_has_room(w->s));
}

static void wild_history(uint64_t seed)
{
    struct wild *x = mem_new(sizeof *x);

    world_start(&x->w, seed, MESSAGES_USUAL, false);
    if (pick(&x->w, 0, 2) > 0) {
        pieces_set(x->w.s, pick(&x->w, 1, 3));
    }
    x->w.limits.message_active_limit = pick(&x->w, 5, MESSAGES_USUAL);
    x->w.limits.destination_share = pick(&x->w, 0, 3) * 60;
    x->w.limits.failing_share = pick(&x->w, 0, 3) * 30;
    x->w.limits.unproven_share = x->w.limits.failing_share;
    x->w.limits.maximal_backoff_us = pick(&x->w, 0, 60) * US_PER_S;
    x->w.limits.destination_memory_us = pick(&x->w, 0, 2) * 20 * US_PER_S;
    sched_set_limits(x->w.s, &x->w.limits);
    if (seed % 2 == 0) {
        wild_rings(x);
    }
    for (int step = 0; step < 300; step++) {
        wild_step(x);
        x->w.now.us += 5 * US_PER_MS;
        sched_audit(x->w.s);
        no_faults(x, 1000);
        if (pick(&x->w, 0, 3) > 0) { /* facts may come in batches */
            wild_decides(x);
        }
    }
    if (seed % 8 != 0) { /* a scheduler can be freed in any state */
        wild_drain(x);
    }
    sched_free(x->w.s);
    mem_free(x);
}

static void anything_at_all_keeps_the_invariants(void **state)
{
    (void)state;
    for_each_seed(1, 400, wild_history);
}

UNIT_MAIN(cmocka_unit_test(the_reference_decides_the_same),
          cmocka_unit_test(the_reference_decides_the_same_in_a_crowd),
          cmocka_unit_test(anything_at_all_keeps_the_invariants))
