/*
 * What docs/guarantees.md promises of the order of deliveries, in numbers, over random histories.
 *
 * All mail here is of one transport, an entry is one recipient, and time is counted in deliveries
 * begun ("turns"), so nothing depends on how fast sites are. k is the slot cost, f = (100 -
 * discount) / 100, L the slot loan, N the recipients of a message.
 *
 * A job gains a slot's k-th part with each turn of its own, and pays k of them for each turn it
 * gives away. It may owe, but never more than the turns it has still to come (the candidate must
 * fit into max_slots), so in the end it has given away at most N / k, whatever the loan and the
 * discount are: these only let others go earlier. Who overtakes can be overtaken in turn, and pays
 * for that himself, hence
 *
 *      given away by a message  <=  X(N) = floor(N/k) + floor(N/k^2) + ... <= (N - 1) / (k - 1)
 *
 * A failure prints the seed of its history; SLUICE_SEEDS=FIRST-LAST runs others than the usual.
 */
#include "scheduler.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "rng.h"
#include "seeds.h"
#include "unit.h"

#define MESSAGES_MAX 64
#define BULK_MAX     400 /* recipients */
#define RUNNING_MAX  16
#define DESTS_MAX    6
#define CLASSES_MAX  4

struct message {
    uint32_t size, read, begun;
    uint32_t class;
    uint32_t waiting[DESTS_MAX]; /* recipients in memory, by destination */
    uint64_t came;               /* turns before it did */
    uint64_t first;              /* turns before its first */
    uint32_t overtaken;          /* turns of later ones of its class since it came, to its last */
    uint32_t allowed;            /* bound of that */
    uint32_t ahead;              /* messages that waited when it came */
    bool alone;                  /* then nothing of its class waited */
};

struct history {
    uint64_t seed;
    struct rng rng;
    struct mono now;
    struct sched *s;
    struct sched_transport_policy policy;
    uint32_t dests;
    uint32_t classes, weights[CLASSES_MAX], weight; /* weight: of all */
    unsigned failing;                               /* per cent of deliveries */
    struct message messages[MESSAGES_MAX];
    uint32_t count;
    struct sched_entry running[RUNNING_MAX];
    uint32_t running_count;
    uint64_t turns;
    void (*turn)(struct history *h, uint32_t message, uint32_t dest); /* NULL: nothing to look at */
};

static uint32_t pick(struct history *h, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&h->rng, high - low + 1);
}

static uint32_t dest_of(const struct history *h, uint32_t message, uint32_t rcpt)
{
    struct rng rng;

    rng_init(&rng, h->seed * 1000003 + message * 8191 + rcpt);
    return (uint32_t)rng_below(&rng, h->dests);
}

/* The most turns of others that a message of `size` recipients pays for. */
static uint32_t inflation(const struct history *h, uint32_t size)
{
    uint32_t cost = (uint32_t)h->policy.slot_cost, sum = 0;

    for (size /= cost; size > 0; size /= cost) {
        sum += size;
    }
    return sum;
}

static struct sched_transport_policy plain_policy(void)
{
    return (struct sched_transport_policy){
        .window = {.rule = WINDOW_DOCUMENTED,
                   .initial = RUNNING_MAX,
                   .max = RUNNING_MAX,
                   .positive = {FEEDBACK_CONSTANT, 1},
                   .negative = {FEEDBACK_CONSTANT, 1},
                   .failed_cohort_limit = 1},
        .process_limit = 1,
        .dest_recipient_limit = 1,
        .recipient_limit = 20000,
        .extra_recipient_limit = 1000,
        .refill_limit = 100,
        .refill_delay_us = 5 * US_PER_S,
    };
}

/* `policy` lasts; one process unless it says otherwise. */
static void history_start(struct history *h, uint64_t seed,
                          const struct sched_transport_policy *policy)
{
    static const struct sched_limits limits = {.message_active_limit = 20000,
                                               .message_recipient_limit = 20000,
                                               .message_recipient_minimum = 10,
                                               .minimal_backoff_us = 10 * US_PER_S,
                                               .maximal_backoff_us = 60 * US_PER_S,
                                               .transport_retry_us = 60 * US_PER_S};

    h->policy = *policy;
    h->seed = seed;
    h->now.us = 1000 * US_PER_S;
    h->s = sched_new(&limits);
    assert_int_equal(sched_transport(h->s, h->now, "smtp", policy), 0);
}

static void answer(struct history *h, const struct sched_action *a)
{
    static const char names[DESTS_MAX][2] = {"a", "b", "c", "d", "e", "f"};
    static struct sched_rcpt rcpts[SCHED_READ_MAX];
    struct message *m = &h->messages[a->msg.n - 1];
    uint32_t count = 0;

    for (; count < a->max && m->read < m->size; count++) {
        uint32_t dest = dest_of(h, (uint32_t)a->msg.n - 1, m->read);

        m->waiting[dest]++;
        rcpts[count] = (struct sched_rcpt){.n = m->read++, .dest = slice_of(names[dest], 1)};
    }
    sched_recipients(h->s, h->now, a->msg, rcpts, count, 0, m->read == m->size);
}

static void begin_turn(struct history *h, const struct sched_action *a)
{
    uint32_t i = (uint32_t)a->msg.n - 1, dest = (uint32_t)(a->dest.ptr[0] - 'a');
    struct message *m = &h->messages[i];

    CHECK(h->running_count < RUNNING_MAX);
    h->running[h->running_count++] = a->entry;
    if (m->begun == 0) {
        m->first = h->turns;
    }
    m->waiting[dest]--;
    for (uint32_t j = 0; j < i; j++) {
        if (h->messages[j].begun < h->messages[j].size && h->messages[j].class == m->class) {
            h->messages[j].overtaken++;
        }
    }
    if (h->turn != NULL) {
        h->turn(h, i, dest);
    }
    m->begun++;
    h->turns++;
}

static void deferred(struct history *h, const struct sched_action *a)
{
    struct message *m = &h->messages[a->msg.n - 1];

    for (size_t i = 0; i < a->rcpt_count; i++) {
        m->waiting[dest_of(h, (uint32_t)a->msg.n - 1, a->rcpts[i])]--;
        m->begun++;
    }
}

static void decide(struct history *h)
{
    struct sched_action a;

    while (sched_next(h->s, h->now, &a) != SCHED_NONE) {
        if (a.type == SCHED_READ) {
            answer(h, &a);
        } else if (a.type == SCHED_DELIVER) {
            begin_turn(h, &a);
        } else if (a.type == SCHED_DEFER) {
            deferred(h, &a);
        }
    }
}

/* A message comes; its number. */
static uint32_t come(struct history *h, uint32_t size)
{
    static const char *const classes[CLASSES_MAX] = {"", "one", "two", "three"};
    uint32_t i = h->count++;
    struct message *m = &h->messages[i];

    CHECK(h->count <= MESSAGES_MAX);
    m->size = size;
    m->class = pick(h, 0, h->classes - 1);
    m->came = h->turns;
    m->allowed = h->policy.slot_cost > 1 ? inflation(h, size) : 0;
    m->alone = true;
    for (uint32_t j = 0; j < i; j++) {
        const struct message *other = &h->messages[j];

        m->ahead += other->begun == 0;
        if (other->begun < other->size && other->class == m->class) {
            m->alone = false;
            m->allowed += h->policy.slot_cost > 1 ? inflation(h, other->size) : 0;
        }
    }
    sched_open_in_class(h->s, h->now, (struct sched_msg){i + 1}, size, false,
                        slice_string(classes[m->class]), h->weights[m->class]);
    decide(h);
    return i;
}

/* One of the deliveries in flight ends. False when there is none. */
static bool finish(struct history *h)
{
    uint32_t i;
    bool fails;

    if (h->running_count == 0) {
        return false;
    }
    i = pick(h, 0, h->running_count - 1);
    fails = pick(h, 1, 100) <= h->failing;
    assert_true(sched_finished(h->s, h->now, h->running[i], fails ? SCHED_DEST_FAIL : SCHED_OK,
                               SLICE("4.4.1 no answer")));
    h->running[i] = h->running[--h->running_count];
    decide(h);
    return true;
}

static void turns(struct history *h, uint64_t until)
{
    while (h->turns < until && finish(h)) {
    }
    assert_int_equal(h->turns, until);
}

/* Until nothing is left. */
static void history_end(struct history *h)
{
    while (finish(h)) {
        h->now.us += pick(h, 1, 500) * US_PER_MS;
    }
    assert_int_equal(sched_totals(h->s).messages, 0);
    sched_free(h->s);
}

static struct history *history_new(uint64_t seed)
{
    struct history *h = mem_new(sizeof *h);

    rng_init(&h->rng, seed);
    h->dests = h->classes = h->weights[0] = h->weight = 1;
    return h;
}

static void random_classes(struct history *h)
{
    h->classes = pick(h, 2, CLASSES_MAX);
    h->weight = 0;
    for (uint32_t i = 0; i < h->classes; i++) {
        h->weights[i] = i == 0 || pick(h, 0, 1) == 0 ? 1 : pick(h, 1, 20);
        h->weight += h->weights[i];
    }
}

static void random_preemption(struct history *h, struct sched_transport_policy *p)
{
    *p = plain_policy();
    p->slot_cost = (int)pick(h, 2, 7);
    p->slot_loan = (int)pick(h, 0, 6);
    p->slot_discount = (int)pick(h, 0, 4) * 25;
    p->minimum_slots = (int)pick(h, 0, 3);
    p->process_limit = pick(h, 1, 8);
}

/* ---- how much later a message ends ---------------------------------------------------------- */

static void no_message_is_overtaken_too_often(struct history *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        const struct message *m = &h->messages[i];

        if (m->overtaken > m->allowed) {
            fail_msg("seed %llu: message %u of %u recipients was overtaken by %u, allowed %u",
                     (unsigned long long)h->seed, i + 1, m->size, m->overtaken, m->allowed);
        }
    }
}

static void history_of_overtaking(uint64_t seed)
{
    struct history *h = history_new(seed);
    struct sched_transport_policy policy;
    uint32_t steps = pick(h, 50, 600), often = pick(h, 2, 30);

    random_preemption(h, &policy);
    policy.recipient_limit = pick(h, 50, 500);
    policy.refill_limit = pick(h, 1, 20);
    if (pick(h, 0, 1) == 0) {
        random_classes(h);
    }
    if (pick(h, 0, 1) == 0) {
        h->dests = pick(h, 2, DESTS_MAX); /* whose windows never are full */
    } else {
        policy.window.initial = policy.window.max = pick(h, 1, policy.process_limit);
    }
    history_start(h, seed, &policy);
    (void)come(h, pick(h, 20, BULK_MAX));
    for (uint32_t i = 0; i < steps; i++) {
        if (pick(h, 1, often) == 1 && h->count < MESSAGES_MAX) {
            (void)come(h, pick(h, 0, 3) == 0 ? pick(h, 1, 100) : pick(h, 1, 6));
        }
        (void)finish(h);
        h->now.us += pick(h, 1, 400) * US_PER_MS;
    }
    history_end(h);
    no_message_is_overtaken_too_often(h);
    mem_free(h);
}

static void a_message_pays_for_what_overtakes_it(void **unused)
{
    (void)unused;
    for_each_seed(1, 600, history_of_overtaking);
}

/* Each message comes when the one before it has had a turn, and just fits into it: all together
 * take what the bound allows. */
static void the_bound_of_overtaking_is_reached(void **unused)
{
    static const struct {
        int cost, loan, discount;
        uint32_t size, want_overtaken;
    } cases[] = {
        {2, 0, 100, 64, 63}, {2, 16, 50, 64, 63},  {2, 32, 0, 64, 63},
        {5, 3, 50, 25, 6},   {5, 0, 100, 125, 31}, {3, 0, 100, 80, 26 + 8 + 2},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct history *h = history_new(i);
        struct sched_transport_policy policy = plain_policy();

        policy.slot_cost = cases[i].cost;
        policy.slot_loan = cases[i].loan;
        policy.slot_discount = cases[i].discount;
        history_start(h, i, &policy);
        for (uint32_t size = cases[i].size; size > 0; size /= (uint32_t)cases[i].cost) {
            (void)come(h, size);
            if (h->count > 1) {
                turns(h, h->turns + 1);
            }
            assert_int_equal(h->messages[h->count - 1].begun, 1);
        }
        history_end(h);
        assert_int_equal(h->messages[0].overtaken, cases[i].want_overtaken);
        assert_int_equal(h->messages[0].allowed, cases[i].want_overtaken);
        mem_free(h);
    }
}

/* ---- how long a message to one waits behind bulk -------------------------------------------- */

/* When it begins, it has waited for the turns in which the bulk pays for the one let past before
 * (k), and the same and their one turn for each that waited already. Near its end a bulk message
 * can't pay for another, but then it is at its end. */
static uint32_t wait_behind_small(const struct history *h, const struct message *m)
{
    uint32_t cost = (uint32_t)h->policy.slot_cost;

    return (m->ahead + 1) * (cost + 1) + cost - 3;
}

static void history_of_small_mail(uint64_t seed)
{
    struct history *h = history_new(seed);
    struct sched_transport_policy policy;
    uint32_t often = pick(h, 1, 12);

    random_preemption(h, &policy);
    history_start(h, seed, &policy);
    (void)come(h, pick(h, (uint32_t)(policy.minimum_slots * policy.slot_cost) + 1, BULK_MAX));
    while (h->messages[0].begun < h->messages[0].size && h->count < MESSAGES_MAX) {
        if (pick(h, 1, often) == 1) {
            (void)come(h, 1);
        }
        (void)finish(h);
        h->now.us += pick(h, 1, 400) * US_PER_MS;
    }
    history_end(h);
    for (uint32_t i = 1; i < h->count; i++) {
        const struct message *m = &h->messages[i];

        if (m->first - m->came > wait_behind_small(h, m)) {
            fail_msg("seed %llu: message %u waited for %llu turns, %u were ahead of it",
                     (unsigned long long)seed, i + 1, (unsigned long long)(m->first - m->came),
                     m->ahead);
        }
    }
    mem_free(h);
}

static void small_mail_waits_for_few_turns_behind_bulk(void **unused)
{
    (void)unused;
    for_each_seed(1, 600, history_of_small_mail);
}

/* What messages that have begun may owe together, in turns, and a slot each for what comes. */
static double debts(const struct history *h)
{
    const struct sched_transport_policy *p = &h->policy;
    double sum = 0;

    for (uint32_t i = 0; i < h->count; i++) {
        const struct message *m = &h->messages[i];

        if (m->begun > 0 && m->begun < m->size) {
            sum += (int)m->size * p->slot_discount / 100.0 + p->slot_cost * (p->slot_loan + 1);
        }
    }
    return sum;
}

static void history_of_debts(uint64_t seed)
{
    struct history *h = history_new(seed);
    struct sched_transport_policy policy;
    double allowed[MESSAGES_MAX];
    uint32_t often = pick(h, 2, 20);

    random_preemption(h, &policy);
    policy.minimum_slots = 0;
    history_start(h, seed, &policy);
    (void)come(h, pick(h, 20, BULK_MAX));
    while (h->messages[0].begun < h->messages[0].size && h->count < MESSAGES_MAX) {
        if (pick(h, 1, often) == 1) {
            uint32_t size = pick(h, 0, 1) == 0 ? 1 : pick(h, 2, 80);

            allowed[h->count] = debts(h);
            (void)come(h, size);
        }
        (void)finish(h);
        h->now.us += pick(h, 1, 400) * US_PER_MS;
    }
    history_end(h);
    for (uint32_t i = 1; i < h->count; i++) {
        const struct message *m = &h->messages[i];

        if (m->size == 1 && m->ahead == 0 && (double)(m->first - m->came) > allowed[i]) {
            fail_msg("seed %llu: message %u waited for %llu turns, %g were owed",
                     (unsigned long long)seed, i + 1, (unsigned long long)(m->first - m->came),
                     allowed[i]);
        }
    }
    mem_free(h);
}

static void alone_it_waits_for_what_the_bulk_owes(void **unused)
{
    (void)unused;
    for_each_seed(1, 600, history_of_debts);
}

/* The default parameters at their worst: a list of a fifth of the bulk comes when it can just be
 * afforded, and its debt takes half of the bulk. */
static void a_debt_may_take_discount_and_loan_to_pay(void **unused)
{
    struct history *h = history_new(1);
    struct sched_transport_policy policy = plain_policy();
    const struct message *small;

    (void)unused;
    policy.slot_cost = 5;
    policy.slot_loan = 3;
    policy.slot_discount = 50;
    policy.minimum_slots = 3;
    history_start(h, 1, &policy);
    (void)come(h, 1000);
    turns(h, 485);
    (void)come(h, 200);
    turns(h, 485 + 200);
    assert_int_equal(h->messages[1].begun, 200);
    small = &h->messages[come(h, 1)];
    history_end(h);
    assert_int_equal(small->first - small->came, 515);
    mem_free(h);
}

/* ---- classes -------------------------------------------------------------------------------- */

/* A class whose weight is w of W has a turn among any 2W/w + 1, as it may have just had one. */
static void history_of_classes(uint64_t seed)
{
    struct history *h = history_new(seed);
    struct sched_transport_policy policy;
    uint32_t often = pick(h, 1, 12);

    random_preemption(h, &policy);
    random_classes(h);
    if (pick(h, 0, 1) == 0) {
        policy.window.initial = policy.window.max = pick(h, 1, policy.process_limit);
    }
    history_start(h, seed, &policy);
    for (uint32_t i = 0; i < 400; i++) {
        if (pick(h, 1, often) == 1 && h->count < MESSAGES_MAX) {
            (void)come(h, pick(h, 0, 3) == 0 ? pick(h, 2, 100) : 1);
        }
        (void)finish(h);
        h->now.us += pick(h, 1, 400) * US_PER_MS;
    }
    history_end(h);
    for (uint32_t i = 0; i < h->count; i++) {
        const struct message *m = &h->messages[i];

        if (m->alone && (m->first - m->came) * h->weights[m->class] > 2 * h->weight) {
            fail_msg("seed %llu: message %u of weight %u of %u waited for %llu turns",
                     (unsigned long long)seed, i + 1, h->weights[m->class], h->weight,
                     (unsigned long long)(m->first - m->came));
        }
    }
    mem_free(h);
}

static void mail_alone_in_its_class_is_soon_served(void **unused)
{
    (void)unused;
    for_each_seed(1, 600, history_of_classes);
}

/* ---- first come, first served --------------------------------------------------------------- */

static void none_waits_longer(struct history *h, uint32_t message, uint32_t dest)
{
    for (uint32_t i = 0; i < message; i++) {
        if (h->messages[i].waiting[dest] > 0) {
            fail_msg("seed %llu: message %u goes before %u", (unsigned long long)h->seed,
                     message + 1, i + 1);
        }
    }
}

static void history_in_order(uint64_t seed)
{
    struct history *h = history_new(seed);
    struct sched_transport_policy policy = plain_policy();
    uint32_t often = pick(h, 1, 10);

    policy.slot_cost = (int)pick(h, 0, 1);
    policy.process_limit = pick(h, 1, RUNNING_MAX);
    policy.window.initial = pick(h, 1, 5);
    policy.window.max = pick(h, 1, 5);
    policy.recipient_limit = pick(h, 1, 100);
    policy.extra_recipient_limit = 0;
    policy.refill_limit = pick(h, 1, 20);
    h->dests = pick(h, 1, DESTS_MAX);
    h->failing = pick(h, 0, 1) * pick(h, 1, 30);
    h->turn = none_waits_longer;
    history_start(h, seed, &policy);
    for (uint32_t i = 0; i < 300; i++) {
        if (pick(h, 1, often) == 1 && h->count < MESSAGES_MAX) {
            (void)come(h, pick(h, 0, 3) == 0 ? pick(h, 1, 60) : pick(h, 1, 4));
        }
        (void)finish(h);
        h->now.us += pick(h, 1, 3000) * US_PER_MS;
    }
    history_end(h);
    mem_free(h);
}

static void without_preemption_a_destination_is_served_in_order(void **unused)
{
    (void)unused;
    for_each_seed(1, 400, history_in_order);
}

UNIT_MAIN(cmocka_unit_test(a_message_pays_for_what_overtakes_it),
          cmocka_unit_test(the_bound_of_overtaking_is_reached),
          cmocka_unit_test(small_mail_waits_for_few_turns_behind_bulk),
          cmocka_unit_test(alone_it_waits_for_what_the_bulk_owes),
          cmocka_unit_test(a_debt_may_take_discount_and_loan_to_pay),
          cmocka_unit_test(mail_alone_in_its_class_is_soon_served),
          cmocka_unit_test(without_preemption_a_destination_is_served_in_order))
