/*
 * Classes of mail: what they are for, and what they promise. That one class alone changes nothing
 * is in test_sched_random, the order of turns in test_turns.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "rng.h"
#include "scheduler.h"
#include "unit.h"

#define S           US_PER_S
#define MAIL_MAX    20000
#define CLASSES_MAX 8
#define DESTS_MAX   1000
#define GROUPS_MAX  5

/* One recipient each. */
struct mail {
    uint32_t class_number, dest; /* class 0: none */
    uint32_t group;              /* of its class; 0: none */
};

struct running {
    uint32_t mail;
    struct sched_entry entry;
};

/* Of one class, since it began to wait somewhere. */
struct record {
    uint32_t waiting;
    int64_t n, got;
    int64_t best; /* the most that it was ahead, in weight times turns */
};

struct office {
    struct sched *s;
    struct mono now;
    struct rng rng;
    struct mail mail[MAIL_MAX];
    uint32_t mails;
    struct running running[MAIL_MAX];
    uint32_t running_count;
    uint32_t starts, started_at[MAIL_MAX]; /* 1 = first */
    uint32_t classes, weights[CLASSES_MAX];
    int64_t weight; /* of all */
    struct record at_dest[DESTS_MAX][CLASSES_MAX], of_transport[CLASSES_MAX];
    uint32_t groups; /* of each class but 0; 0: they have none */
    struct record at_group[3][CLASSES_MAX][GROUPS_MAX + 1];
    bool promises_dests, promises_transport;
    bool any_order;
};

static const struct sched_limits limits = {
    .message_active_limit = MAIL_MAX,
    .message_recipient_limit = MAIL_MAX,
    .message_recipient_minimum = 10,
    .minimal_backoff_us = 300 * S,
    .maximal_backoff_us = 4000 * S,
    .transport_retry_us = 60 * S,
};

static struct sched_transport_policy policy_of(uint32_t window, uint32_t process_limit)
{
    return (struct sched_transport_policy){
        .window = {.rule = WINDOW_DOCUMENTED,
                   .initial = window,
                   .max = window,
                   .positive = {FEEDBACK_PER_WINDOW, 1},
                   .negative = {FEEDBACK_PER_WINDOW, 1}},
        .process_limit = process_limit,
        .dest_recipient_limit = 50,
        .recipient_limit = MAIL_MAX,
        .refill_limit = 100,
        .refill_delay_us = 5 * S,
        .slot_cost = 5,
        .slot_loan = 3,
        .slot_discount = 50,
        .minimum_slots = 3,
    };
}

static struct office *office_new(uint32_t window, uint32_t process_limit)
{
    struct sched_transport_policy policy = policy_of(window, process_limit);
    struct office *o = mem_new(sizeof *o);

    o->s = sched_new(&limits);
    o->now.us = 1000 * S;
    (void)sched_transport(o->s, o->now, "smtp", &policy);
    o->classes = 2;
    for (uint32_t i = 0; i < CLASSES_MAX; i++) {
        o->weights[i] = 1;
    }
    return o;
}

static void office_free(struct office *o)
{
    sched_free(o->s);
    mem_free(o);
}

static struct slice numbered(char *room, size_t size, const char *prefix, uint32_t number)
{
    return slice_of(room, (size_t)snprintf(room, size, "%s%u", prefix, number));
}

static uint32_t put_in_group(struct office *o, uint32_t class_number, uint32_t group, uint32_t dest)
{
    uint32_t id = ++o->mails;
    char room[32];
    int len = snprintf(room, sizeof room, group > 0 ? "c%u/%u" : "c%u", class_number, group);

    CHECK(id < MAIL_MAX);
    o->mail[id] = (struct mail){class_number, dest, group};
    sched_open_in_class(o->s, o->now, (struct sched_msg){id}, 1, false,
                        slice_of(room, class_number == 0 ? 0 : (size_t)len),
                        o->weights[class_number]);
    return id;
}

static uint32_t put(struct office *o, uint32_t class_number, uint32_t dest)
{
    uint32_t group =
        class_number > 0 && o->groups > 0 ? 1 + (uint32_t)rng_below(&o->rng, o->groups) : 0;

    return put_in_group(o, class_number, group, dest);
}

/* ---- the promise: of n turns in a row, more than n*w/W - 2 ---------------------------------- */

static void waits(struct record *r)
{
    if (r->waiting++ == 0) {
        r->n = r->got = r->best = 0;
    }
}

static void turn(const struct office *o, struct record records[], uint32_t taken_by)
{
    for (uint32_t c = 0; c < o->classes; c++) {
        struct record *r = &records[c];
        int64_t ahead;

        if (r->waiting == 0) {
            continue;
        }
        r->n++;
        r->got += c == taken_by;
        ahead = r->got * o->weight - r->n * o->weights[c];
        assert_true(ahead > r->best - 2 * o->weight);
        r->best = ahead > r->best ? ahead : r->best;
    }
    CHECK(records[taken_by].waiting > 0);
    records[taken_by].waiting--;
}

/* Of n turns of its class, more than n/groups - 2. */
static void turn_of_class(const struct office *o, struct record records[], uint32_t taken_by)
{
    for (uint32_t g = 1; g <= o->groups; g++) {
        struct record *r = &records[g];
        int64_t ahead;

        if (r->waiting == 0) {
            continue;
        }
        r->n++;
        r->got += g == taken_by;
        ahead = r->got * o->groups - r->n;
        assert_true(ahead > r->best - 2 * (int64_t)o->groups);
        r->best = ahead > r->best ? ahead : r->best;
    }
    CHECK(records[taken_by].waiting > 0);
    records[taken_by].waiting--;
}

static void count_waiting(struct office *o, const struct mail *m)
{
    if (o->promises_dests && m->group > 0) {
        waits(&o->at_group[m->dest][m->class_number][m->group]);
    }
    if (o->promises_dests) {
        waits(&o->at_dest[m->dest][m->class_number]);
    }
    if (o->promises_transport) {
        waits(&o->of_transport[m->class_number]);
    }
}

static void count_turn(struct office *o, const struct mail *m)
{
    if (o->promises_dests && m->group > 0) {
        turn_of_class(o, o->at_group[m->dest][m->class_number], m->group);
    }
    if (o->promises_dests) {
        turn(o, o->at_dest[m->dest], m->class_number);
    }
    if (o->promises_transport) {
        turn(o, o->of_transport, m->class_number);
    }
}

/* ---- running it ----------------------------------------------------------------------------- */

static bool decide(struct office *o)
{
    struct sched_action a;
    const struct mail *m;
    char room[32];

    if (sched_next(o->s, o->now, &a) == SCHED_NONE) {
        return false;
    }
    m = &o->mail[a.msg.n];
    switch (a.type) {
    case SCHED_READ:
        sched_recipients(
            o->s, o->now, a.msg,
            &(struct sched_rcpt){.n = 1, .dest = numbered(room, sizeof room, "d", m->dest)}, 1, 0,
            true);
        count_waiting(o, m);
        break;
    case SCHED_DELIVER:
        o->started_at[a.msg.n] = ++o->starts;
        o->running[o->running_count++] = (struct running){(uint32_t)a.msg.n, a.entry};
        count_turn(o, m);
        break;
    case SCHED_DONE:
        break;
    default:
        fail();
    }
    return true;
}

static void decide_all(struct office *o)
{
    while (decide(o)) {
    }
}

/* One that is being delivered ends. */
static void finish(struct office *o, uint32_t index)
{
    struct sched_entry entry = o->running[index].entry;

    o->running_count--;
    memmove(&o->running[index], &o->running[index + 1],
            (o->running_count - index) * sizeof o->running[0]);
    assert_true(sched_finished(o->s, o->now, entry, SCHED_OK, SLICE("")));
}

/* Deliver until this mail is on its way, the oldest deliveries first or in any order; how many
 * others were before it from now on. */
static uint32_t others_before(struct office *o, uint32_t id)
{
    uint32_t before = o->starts;

    decide_all(o);
    while (o->started_at[id] == 0) {
        CHECK(o->running_count > 0);
        finish(o, o->any_order ? (uint32_t)rng_below(&o->rng, o->running_count) : 0);
        decide_all(o);
    }
    return o->started_at[id] - before - 1;
}

static void drain(struct office *o)
{
    decide_all(o);
    while (o->running_count > 0) {
        finish(o, o->running_count - 1);
        decide_all(o);
    }
    sched_audit(o->s);
    assert_int_equal(sched_totals(o->s).messages, 0);
}

/* ---- what they are for ---------------------------------------------------------------------- */

static void put_bulk(struct office *o, uint32_t class_number, uint32_t mails, uint32_t dests)
{
    for (uint32_t i = 0; i < mails; i++) {
        (void)put(o, class_number, i % dests);
    }
    decide_all(o);
}

static void a_small_mail_passes_the_bulk_of_another_class(void **state)
{
    struct office *o;

    (void)state;
    /* Without classes it waits for all of it: preemption knows big messages, not many. */
    o = office_new(2, 0);
    put_bulk(o, 0, 2000, 1);
    assert_int_equal(others_before(o, put(o, 0, 0)), 1998);
    office_free(o);

    o = office_new(2, 0);
    put_bulk(o, 1, 2000, 1);
    assert_in_range(others_before(o, put(o, 0, 0)), 0, 2);
    drain(o);
    office_free(o);

    o = office_new(2, 0);
    o->weights[1] = 10;
    put_bulk(o, 0, 2000, 1);
    assert_int_equal(others_before(o, put(o, 1, 0)), 0);
    drain(o);
    office_free(o);
}

static void it_does_where_the_transport_is_the_bottleneck(void **state)
{
    struct office *o;

    (void)state;
    o = office_new(20, 10);
    put_bulk(o, 0, 5000, 500);
    assert_int_equal(others_before(o, put(o, 0, 600)), 4990);
    office_free(o);

    /* For a destination of its own; for one where bulk waits, too, and whose turn is unused for
     * long, as bulk is busy elsewhere. */
    for (uint32_t dest = 499; dest <= 600; dest += 101) {
        o = office_new(20, 10);
        put_bulk(o, 1, 5000, 500);
        assert_in_range(others_before(o, put(o, 0, dest)), 0, 2);
        assert_in_range(others_before(o, put(o, 2, dest)), 0, 3);
        drain(o);
        office_free(o);
    }
}

/* Both are short: deliveries of the transport and those of its destinations. */
static void it_does_where_there_are_two_bottlenecks(void **state)
{
    struct office *o = office_new(1, 10);

    (void)state;
    rng_init(&o->rng, 1);
    o->any_order = true;
    put_bulk(o, 0, 3000, 50);
    put_bulk(o, 1, 3000, 50);
    put_bulk(o, 2, 3000, 30);
    for (uint32_t i = 0; i < 150; i++) {
        assert_in_range(others_before(o, put(o, 3, i % 50)), 0, 100);
    }
    drain(o);
    office_free(o);
}

static void classes_share_by_weight(void **state)
{
    struct office *o = office_new(2, 0);
    uint32_t started[2] = {0};

    (void)state;
    o->weights[1] = 3;
    put_bulk(o, 0, 500, 1);
    put_bulk(o, 1, 500, 1);
    for (uint32_t i = 0; i < 400; i++) {
        finish(o, 0);
        decide_all(o);
    }
    for (uint32_t id = 1; id <= o->mails; id++) {
        started[o->mail[id].class_number] += o->started_at[id] != 0;
    }
    assert_in_range(started[1], 299, 302);

    /* A weight may change; it counts for mail that waits already. */
    sched_class_weight(o->s, SLICE("c1"), 1);
    for (uint32_t i = 0; i < 200; i++) {
        finish(o, 0);
        decide_all(o);
    }
    started[1] = 0;
    for (uint32_t id = 1; id <= o->mails; id++) {
        started[1] += o->mail[id].class_number == 1 && o->started_at[id] != 0;
    }
    assert_in_range(started[1], 398, 403);
    drain(o);
    office_free(o);
}

/* Bulk that fills its share of the active queue is parked; that is nothing to other mail. */
static void each_class_has_a_share_of_its_own(void **state)
{
    struct sched_limits few = limits;
    struct office *o = office_new(2, 0);

    (void)state;
    few.message_active_limit = 100;
    few.destination_share = 100;
    sched_set_limits(o->s, &few);
    put_bulk(o, 1, 50, 1);
    assert_true(sched_share_full(o->s, 0, SLICE("d0"), SLICE("c1")));
    assert_false(sched_share_full(o->s, 0, SLICE("d0"), SLICE("c2")));
    assert_false(sched_share_full(o->s, 0, SLICE("d0"), SLICE("")));
    sched_parked(o->s, o->now, 0, SLICE("d0"), SLICE("c1"));
    assert_false(sched_share_full(o->s, 0, SLICE("d0"), SLICE("c2")));
    /* The site has its share: the second class may have half as many as places are left. */
    put_bulk(o, 2, 16, 1);
    assert_false(sched_share_full(o->s, 0, SLICE("d0"), SLICE("c2")));
    put_bulk(o, 2, 1, 1);
    assert_true(sched_share_full(o->s, 0, SLICE("d0"), SLICE("c2")));
    sched_parked(o->s, o->now, 0, SLICE("d1"), SLICE("c1"));
    assert_true(sched_share_full(o->s, 0, SLICE("d1"), SLICE("c1")));
    assert_false(sched_share_full(o->s, 0, SLICE("d1"), SLICE("c2")));
    sched_audit(o->s);
    office_free(o);
}

/* Parked mail of every class is asked for, whichever has least in memory first; what one class has
 * left does not keep another's question back, and an answer is for its class alone. */
static void parked_mail_of_each_class_is_asked_for(void **state)
{
    static const uint32_t in_memory[] = {9, 0, 4}; /* of no class, c1, c2 */
    struct sched_limits shares = limits;
    struct office *o = office_new(2, 0);
    struct slice dest = SLICE("d0");
    struct slice names[] = {SLICE(""), SLICE("c1"), SLICE("c2")};
    static const uint32_t order[] = {1, 2, 0};
    struct sched_action a;

    (void)state;
    shares.destination_share = 100;
    sched_set_limits(o->s, &shares);
    for (uint32_t c = 0; c < COUNT(names); c++) {
        put_bulk(o, c, in_memory[c], 1);
    }
    for (uint32_t c = 0; c < COUNT(names); c++) {
        sched_parked(o->s, o->now, 0, dest, names[c]);
        sched_audit(o->s);
    }
    for (uint32_t i = 0; i < COUNT(order); i++) {
        assert_int_equal(sched_next(o->s, o->now, &a), SCHED_ADMIT);
        assert_true(slice_equal(a.dest, dest));
        assert_true(slice_equal(a.class_name, names[order[i]]));
        sched_audit(o->s);
    }
    assert_int_equal(sched_next(o->s, o->now, &a), SCHED_NONE);
    for (uint32_t c = 0; c < COUNT(names); c++) {
        assert_true(sched_class_get(o->s, 0, dest, names[c]).parked);
        assert_int_equal(sched_class_get(o->s, 0, dest, names[c]).messages, in_memory[c]);
        sched_admitted(o->s, o->now, 0, dest, names[c], 0, c == 1);
        sched_audit(o->s);
        if (c != 1) {
            assert_false(sched_class_get(o->s, 0, dest, names[c]).parked);
        }
    }
    /* That of c1 has failed; the next question comes after a second. */
    assert_int_equal(sched_next(o->s, o->now, &a), SCHED_NONE);
    o->now.us += S;
    assert_int_equal(sched_next(o->s, o->now, &a), SCHED_ADMIT);
    assert_true(slice_equal(a.class_name, names[1]));
    sched_admitted(o->s, o->now, 0, dest, names[1], 0, false);
    assert_int_equal(sched_totals(o->s).parked_destinations, 0);
    drain(o);
    office_free(o);
}

/* Nothing of a class stays when its mail has gone. */
static void classes_go_with_their_mail(void **state)
{
    struct office *o = office_new(5, 20);
    size_t bytes;

    (void)state;
    put_bulk(o, 0, 100, 10);
    drain(o);
    bytes = sched_totals(o->s).bytes;
    for (uint32_t c = 1; c < CLASSES_MAX; c++) {
        put_bulk(o, c, 100, 10);
    }
    drain(o);
    put_bulk(o, 0, 100, 10);
    drain(o);
    assert_in_range(sched_totals(o->s).bytes, 0, bytes + 65536); /* blocks and arrays are kept */
    office_free(o);
}

/* ---- what they promise ---------------------------------------------------------------------- */

static void any_history(uint64_t seed, bool by_dest, uint32_t groups)
{
    uint32_t dests = by_dest ? 1 + (uint32_t)(seed % 3) : CLASSES_MAX * 3;
    uint32_t window = by_dest ? 1 + (uint32_t)(seed % 4) : 1000;
    struct office *o = office_new(window, by_dest ? 0 : 1 + (uint32_t)(seed % 5));
    uint32_t busiest;

    rng_init(&o->rng, seed);
    o->promises_dests = by_dest;
    o->promises_transport = !by_dest;
    o->groups = groups;
    o->classes = 2 + (uint32_t)rng_below(&o->rng, CLASSES_MAX - 1);
    for (uint32_t c = 0; c < o->classes; c++) {
        o->weights[c] = rng_below(&o->rng, 2) == 0 ? 1 : 1 + (uint32_t)rng_below(&o->rng, 20);
        o->weight += o->weights[c];
    }
    busiest = (uint32_t)rng_below(&o->rng, o->classes);
    for (int step = 0; step < 1500; step++) {
        uint32_t c =
            rng_below(&o->rng, 3) == 0 ? busiest : (uint32_t)rng_below(&o->rng, o->classes);

        if (rng_below(&o->rng, 100) < (step % 500 < 250 ? 60U : 40U)) {
            uint32_t dest = (uint32_t)rng_below(&o->rng, dests);
            /* The transport's promise holds where a class never waits for a turn of another. */
            (void)put(o, c, by_dest ? dest : dest / CLASSES_MAX * CLASSES_MAX + c);
        } else if (o->running_count > 0) {
            finish(o, (uint32_t)rng_below(&o->rng, o->running_count));
        }
        o->now.us += (int64_t)rng_below(&o->rng, S / 10);
        decide_all(o);
        if (step % 10 == 0) {
            sched_audit(o->s);
        }
    }
    drain(o);
    office_free(o);
}

static void every_class_gets_its_share_of_a_destination(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        any_history(seed, true, 0);
    }
}

static void every_class_gets_its_share_of_the_transport(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        any_history(seed, false, 0);
        any_history(seed, false, 1 + (uint32_t)(seed % GROUPS_MAX));
    }
}

static void every_group_gets_its_part_of_its_class(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        any_history(seed, true, 1 + (uint32_t)(seed % GROUPS_MAX));
    }
}

/* A list of 2,000 does not hold up one of 3; nor do 60 of them mail of a class that has ten turns
 * for each of theirs. */
static void groups_take_the_turns_of_their_class(void **state)
{
    struct office *o = office_new(2, 0);
    uint32_t last;

    (void)state;
    for (uint32_t i = 0; i < 2000; i++) {
        (void)put_in_group(o, 1, 1, 0);
    }
    decide_all(o);
    (void)put_in_group(o, 1, 2, 0);
    (void)put_in_group(o, 1, 2, 0);
    last = put_in_group(o, 1, 2, 0);
    assert_in_range(others_before(o, last), 4, 6); /* of each two turns one */
    drain(o);
    office_free(o);

    o = office_new(2, 0);
    o->weights[2] = 10;
    for (uint32_t i = 0; i < 3000; i++) {
        (void)put_in_group(o, 1, 1 + i % 60, 0);
    }
    decide_all(o);
    for (uint32_t i = 0; i < 50; i++) {
        assert_in_range(others_before(o, put(o, 2, 0)), 0, 1);
    }
    drain(o);
    office_free(o);
}

/* Of the places that a destination may have, a class with many groups gets no more than one with
 * none, and each group the same. */
static void groups_share_the_places_of_their_class(void **state)
{
    struct office *o = office_new(1, 0);
    uint32_t full[4] = {0}, plain = 0;
    struct sched_limits shared = limits;

    (void)state;
    shared.destination_share = 50;
    shared.message_active_limit = 3000;
    shared.message_recipient_limit = 3000;
    sched_set_limits(o->s, &shared);
    for (uint32_t i = 0; i < 8000; i++) {
        char room[32];
        uint32_t g = i % 5; /* the fifth is a class of its own */
        struct slice name = slice_of(room, (size_t)snprintf(room, sizeof room, "c1/%u", g + 1));

        if (sched_share_full(o->s, 0, SLICE("d0"), g == 4 ? SLICE("c2") : name)) {
            continue;
        }
        if (g == 4) {
            (void)put_in_group(o, 2, 0, 0);
            plain++;
        } else {
            (void)put_in_group(o, 1, g + 1, 0);
            full[g]++;
        }
        decide_all(o);
    }
    for (uint32_t g = 0; g < 4; g++) {
        assert_in_range(full[g], full[0] * 2 / 3, full[0] * 3 / 2);
    }
    assert_in_range(plain, full[0] * 2, 3000);
    assert_in_range(sched_totals(o->s).messages, 1000, 2000);
    drain(o);
    office_free(o);
}

UNIT_MAIN(cmocka_unit_test(a_small_mail_passes_the_bulk_of_another_class),
          cmocka_unit_test(it_does_where_the_transport_is_the_bottleneck),
          cmocka_unit_test(it_does_where_there_are_two_bottlenecks),
          cmocka_unit_test(classes_share_by_weight),
          cmocka_unit_test(each_class_has_a_share_of_its_own),
          cmocka_unit_test(parked_mail_of_each_class_is_asked_for),
          cmocka_unit_test(classes_go_with_their_mail),
          cmocka_unit_test(every_class_gets_its_share_of_a_destination),
          cmocka_unit_test(every_class_gets_its_share_of_the_transport),
          cmocka_unit_test(every_group_gets_its_part_of_its_class),
          cmocka_unit_test(groups_take_the_turns_of_their_class),
          cmocka_unit_test(groups_share_the_places_of_their_class))
