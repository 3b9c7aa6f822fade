/*
 * Shares of the active queue. It plays an owner that parks what it is told to park, and answers
 * questions for parked mail, at once or later.
 */
#include "scheduler.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "rng.h"
#include "unit.h"

#define S         US_PER_S
#define DESTS     40
#define MAIL_MAX  4096
#define RCPTS_MAX 3

enum place { ABROAD, IN_MEMORY, PARKED, GONE };

struct mail {
    enum place place;
    uint32_t rcpts, read;
    uint32_t to[RCPTS_MAX];
    bool started[RCPTS_MAX], settled[RCPTS_MAX];
};

struct owner {
    struct sched *s;
    struct mono now;
    struct rng rng;
    struct mail mail[MAIL_MAX]; /* by id; ids ascend with age */
    uint32_t arrived;
    uint32_t asked[DESTS]; /* max of the question not answered yet */
    uint32_t last_started[DESTS];
    uint32_t questions[DESTS];
    struct {
        uint32_t id, dest, count, rcpts[RCPTS_MAX];
        struct sched_entry entry;
    } running[MAIL_MAX];
    uint32_t running_count;
    bool answers_late;
    bool fifo; /* mail of one recipient only, which must start in order */
};

static const struct sched_limits few_places = {
    .message_active_limit = 100,
    .message_recipient_limit = 1000,
    .message_recipient_minimum = 10,
    .destination_share = 100,
    .minimal_backoff_us = 300 * S,
    .transport_retry_us = 60 * S,
};

static const struct sched_transport_policy usual = {
    .window = {.rule = WINDOW_DOCUMENTED,
               .initial = 5,
               .max = 5,
               .positive = {FEEDBACK_PER_WINDOW, 1},
               .negative = {FEEDBACK_PER_WINDOW, 1}},
    .dest_recipient_limit = 50,
    .recipient_limit = 10000,
    .refill_limit = 100,
    .refill_delay_us = 5 * S,
};

static struct owner *owner_new(const struct sched_limits *limits)
{
    struct owner *o = mem_new(sizeof *o);

    o->s = sched_new(limits);
    o->now.us = 1000 * S;
    rng_init(&o->rng, 1);
    (void)sched_transport(o->s, o->now, "smtp", &usual);
    return o;
}

static void owner_free(struct owner *o)
{
    sched_free(o->s);
    mem_free(o);
}

/* The destination's name, until the next call. */
static struct slice name_of(uint32_t dest)
{
    static char name[16];

    return slice_of(name, (size_t)snprintf(name, sizeof name, "d%u", dest));
}

static uint32_t dest_of(struct slice name)
{
    char text[16];
    unsigned dest;

    (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name)); /* names are short */
    CHECK(sscanf(text, "d%u", &dest) == 1);
    CHECK(dest < DESTS);
    return dest;
}

/* All that is left goes to one destination. */
static bool goes_to_one(const struct mail *m, uint32_t *ret_dest)
{
    bool any = false;

    for (uint32_t i = 0; i < m->rcpts; i++) {
        if (m->settled[i]) {
            continue;
        }
        if (any && m->to[i] != *ret_dest) {
            return false;
        }
        *ret_dest = m->to[i];
        any = true;
    }
    return any;
}

static void enter(struct owner *o, uint32_t id)
{
    struct mail *m = &o->mail[id];

    m->place = IN_MEMORY;
    m->read = 0;
    sched_open(o->s, o->now, (struct sched_msg){id}, m->rcpts, false);
}

static void answer_read(struct owner *o, uint32_t id, uint32_t max)
{
    struct mail *m = &o->mail[id];
    struct sched_rcpt rcpts[RCPTS_MAX];
    char names[RCPTS_MAX][16];
    size_t count = 0;

    for (; m->read < m->rcpts && count < max; m->read++) {
        if (!m->settled[m->read]) {
            struct slice name = name_of(m->to[m->read]);

            memcpy(names[count], name.ptr, name.len);
            rcpts[count] = (struct sched_rcpt){
                .n = m->read, .transport = 0, .dest = slice_of(names[count], name.len)};
            count++;
        }
    }
    sched_recipients(o->s, o->now, (struct sched_msg){id}, rcpts, count, 0, m->read == m->rcpts);
}

/* The oldest mail parked for the destination; MAIL_MAX when there is none. */
static uint32_t oldest_parked(const struct owner *o, uint32_t dest)
{
    uint32_t at = 0;

    for (uint32_t id = 1; id <= o->arrived; id++) {
        if (o->mail[id].place == PARKED && goes_to_one(&o->mail[id], &at) && at == dest) {
            return id;
        }
    }
    return MAIL_MAX;
}

static void answer_question(struct owner *o, uint32_t dest)
{
    uint32_t count = 0, id;

    for (; count < o->asked[dest]; count++) {
        id = oldest_parked(o, dest);
        if (id == MAIL_MAX) {
            break;
        }
        enter(o, id);
    }
    o->asked[dest] = 0;
    sched_admitted(o->s, o->now, 0, name_of(dest), SLICE(""), count,
                   oldest_parked(o, dest) != MAIL_MAX);
}

static void start(struct owner *o, const struct sched_action *a)
{
    struct mail *m = &o->mail[a->msg.n];
    uint32_t dest = dest_of(a->dest), at = o->running_count++;

    o->running[at].id = (uint32_t)a->msg.n;
    o->running[at].dest = dest;
    o->running[at].entry = a->entry;
    o->running[at].count = (uint32_t)a->rcpt_count;
    for (size_t i = 0; i < a->rcpt_count; i++) {
        uint32_t n = a->rcpts[i];

        assert_int_equal(m->to[n], dest);
        assert_false(m->started[n]);
        m->started[n] = true;
        o->running[at].rcpts[i] = n;
    }
    if (o->fifo) {
        assert_true(o->last_started[dest] < a->msg.n);
        o->last_started[dest] = (uint32_t)a->msg.n;
    }
}

static void park(struct owner *o, const struct sched_action *a)
{
    struct mail *m = &o->mail[a->msg.n];
    uint32_t dest;

    assert_int_equal(m->place, IN_MEMORY);
    assert_true(goes_to_one(m, &dest));
    assert_int_equal(dest, dest_of(a->dest));
    for (uint32_t i = 0; i < m->rcpts; i++) {
        assert_int_equal(m->started[i], m->settled[i]);
    }
    assert_false(sched_has_message(o->s, a->msg));
    m->place = PARKED;
}

static void decide(struct owner *o)
{
    struct sched_action a;
    uint32_t dest;

    while (sched_next(o->s, o->now, &a) != SCHED_NONE) {
        sched_audit(o->s);
        switch (a.type) {
        case SCHED_READ:
            answer_read(o, (uint32_t)a.msg.n, a.max);
            break;
        case SCHED_DELIVER:
            start(o, &a);
            break;
        case SCHED_DONE:
            o->mail[a.msg.n].place = GONE;
            break;
        case SCHED_PARK:
            park(o, &a);
            break;
        case SCHED_ADMIT:
            dest = dest_of(a.dest);
            assert_int_equal(o->asked[dest], 0); /* one question at a time */
            assert_true(a.max >= 1);
            o->asked[dest] = a.max;
            o->questions[dest]++;
            if (!o->answers_late) {
                answer_question(o, dest);
            }
            break;
        case SCHED_DEFER:
        case SCHED_DEST_DEAD:
        case SCHED_DEST_PROBED:
        case SCHED_DEST_REVIVED:
        case SCHED_NONE:
            fail_msg("nothing fails here");
        }
        sched_audit(o->s);
    }
}

/* Mail comes; false when it has to wait outside. */
static bool arrives(struct owner *o, const uint32_t *to, uint32_t rcpts)
{
    struct mail *m = &o->mail[o->arrived + 1];
    uint32_t dest;

    CHECK(o->arrived + 1 < MAIL_MAX);
    m->rcpts = rcpts;
    memcpy(m->to, to, rcpts * sizeof *to);
    if (goes_to_one(m, &dest) && sched_share_full(o->s, 0, name_of(dest), SLICE(""))) {
        sched_parked(o->s, o->now, 0, name_of(dest), SLICE(""));
        m->place = PARKED;
    } else if (sched_has_room(o->s)) {
        enter(o, o->arrived + 1);
    } else {
        return false;
    }
    o->arrived++;
    sched_audit(o->s);
    decide(o);
    return true;
}

static bool arrives_for(struct owner *o, uint32_t dest)
{
    return arrives(o, &dest, 1);
}

/* One of those being delivered ends: the first to this destination, or any (DESTS). */
static bool ends(struct owner *o, uint32_t dest)
{
    for (uint32_t i = 0; i < o->running_count; i++) {
        struct mail *m = &o->mail[o->running[i].id];

        if (dest == DESTS || o->running[i].dest == dest) {
            struct sched_entry entry = o->running[i].entry;

            for (uint32_t j = 0; j < o->running[i].count; j++) {
                m->settled[o->running[i].rcpts[j]] = true;
            }
            o->running[i] = o->running[--o->running_count];
            assert_true(sched_finished(o->s, o->now, entry, SCHED_OK, SLICE("")));
            sched_audit(o->s);
            return true;
        }
    }
    return false;
}

static uint32_t count(const struct owner *o, enum place place)
{
    uint32_t found = 0;

    for (uint32_t id = 1; id <= o->arrived; id++) {
        found += o->mail[id].place == place;
    }
    return found;
}

/* All sites are well: everything is delivered. */
static void drain(struct owner *o)
{
    for (;;) {
        decide(o);
        for (uint32_t dest = 0; dest < DESTS; dest++) {
            if (o->asked[dest] > 0) {
                answer_question(o, dest);
                decide(o);
            }
        }
        if (!ends(o, DESTS)) {
            break;
        }
    }
    assert_int_equal(count(o, GONE), o->arrived);
    assert_int_equal(sched_totals(o->s).destinations, 0);
    assert_int_equal(sched_totals(o->s).parked_destinations, 0);
    assert_true(sched_has_room(o->s));
}

/* ---- one after the other -------------------------------------------------------------------- */

/* A site that takes long gets 1000 messages; then mail for another comes. */
static bool healthy_mail_enters(uint32_t share)
{
    struct sched_limits limits = few_places;
    struct owner *o;
    bool entered;

    limits.destination_share = share;
    o = owner_new(&limits);
    for (int i = 0; i < 1000 && arrives_for(o, 0); i++) {
    }
    entered = arrives_for(o, 1);
    if (entered) {
        assert_true(ends(o, 1)); /* it was selected at once */
        assert_int_equal(o->arrived, 1001);
        /* All but what an equal share for one more would be. */
        assert_int_equal(sched_totals(o->s).messages, 51);
        drain(o);
    }
    owner_free(o);
    return entered;
}

static void a_slow_site_keeps_no_other_waiting(void **state)
{
    (void)state;
    assert_true(healthy_mail_enters(100));
    assert_false(healthy_mail_enters(0)); /* as in Postfix */
}

static void n_slow_sites_leave_a_part_for_the_others(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    for (uint32_t i = 0; i < 500; i++) {
        assert_true(arrives_for(o, i % 4));
    }
    /* 100 places, four shares and one that stays free. */
    assert_int_equal(sched_totals(o->s).messages, 80);
    assert_int_equal(sched_totals(o->s).parked_destinations, 4);
    for (uint32_t i = 4; i < 14; i++) {
        assert_true(arrives_for(o, i));
    }
    drain(o);
    owner_free(o);
}

static void parked_mail_comes_before_the_window_runs_dry(void **state)
{
    struct owner *o = owner_new(&few_places);
    uint32_t ended = 0;

    (void)state;
    o->fifo = true;
    for (uint32_t i = 0; i < 500; i++) {
        assert_true(arrives_for(o, 0));
    }
    assert_int_equal(o->questions[0], 0); /* enough is in memory */
    while (ends(o, 0)) {
        ended++;
        decide(o);
        assert_int_equal(o->running_count, ended <= 495 ? 5 : 500 - ended);
    }
    assert_int_equal(ended, 500);
    assert_in_range(o->questions[0], 5, 30); /* not one disk read for each */
    assert_int_equal(sched_totals(o->s).destinations, 0);
    owner_free(o);
}

/* The disk is slow: all that was in memory is delivered before the answer comes. */
static void a_window_that_ran_dry_gets_more_the_next_time(void **state)
{
    static const uint32_t wants[] = {50, 50, 100, 200, 400};
    struct sched_limits limits = few_places;
    struct owner *o;

    (void)state;
    limits.message_active_limit = limits.message_recipient_limit = 20000;
    o = owner_new(&limits);
    o->answers_late = true;
    sched_parked(o->s, o->now, 0, name_of(0), SLICE(""));
    for (uint32_t id = 1; id <= 900; id++) {
        o->mail[id] = (struct mail){.place = PARKED, .rcpts = 1, .to = {0}};
        o->arrived = id;
    }
    decide(o); /* nothing was in memory: that tells nothing */
    for (size_t i = 0; i < COUNT(wants); i++) {
        uint32_t asked = o->asked[0];

        assert_int_equal(asked, wants[i]);
        answer_question(o, 0);
        decide(o);
        while (ends(o, 0)) {
            decide(o);
        }
    }
    drain(o);
    owner_free(o);
}

static void new_mail_goes_behind_what_is_parked(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    o->fifo = o->answers_late = true;
    for (uint32_t i = 0; i < 60; i++) {
        assert_true(arrives_for(o, 0));
    }
    while (sched_totals(o->s).messages > 10) {
        assert_true(ends(o, 0));
        decide(o);
    }
    assert_true(o->asked[0] > 0);
    assert_true(arrives_for(o, 0)); /* below the share, but not its turn */
    assert_int_equal(o->mail[61].place, PARKED);
    answer_question(o, 0);
    drain(o);
    owner_free(o);
}

static void what_was_parked_after_the_question_is_asked_for_again(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    o->answers_late = true;
    sched_parked(o->s, o->now, 0, name_of(0), SLICE("")); /* as after a restart */
    decide(o);
    assert_int_equal(o->questions[0], 1);
    assert_true(arrives_for(o, 0));
    assert_int_equal(o->mail[1].place, PARKED);
    /* The owner's look at the disk was before that. */
    o->asked[0] = 0;
    sched_admitted(o->s, o->now, 0, name_of(0), SLICE(""), 0, false);
    decide(o);
    assert_int_equal(o->questions[0], 2);
    drain(o);
    owner_free(o);
}

static void an_answer_of_none_is_not_asked_for_in_the_same_breath(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    o->answers_late = true;
    sched_parked(o->s, o->now, 0, name_of(0), SLICE(""));
    decide(o);
    o->asked[0] = 0;
    sched_admitted(o->s, o->now, 0, name_of(0), SLICE(""), 0, true); /* the disk fails */
    decide(o);
    assert_int_equal(o->questions[0], 1);
    assert_int_equal(sched_wake_at(o->s).us, o->now.us + S);
    o->now = sched_wake_at(o->s);
    decide(o);
    assert_int_equal(o->questions[0], 2);
    drain(o);
    owner_free(o);
}

static void questions_never_ask_for_more_than_there_are_places(void **state)
{
    struct owner *o = owner_new(&few_places);
    uint32_t asked = 0;

    (void)state;
    o->answers_late = true;
    for (uint32_t dest = 0; dest < DESTS; dest++) {
        sched_parked(o->s, o->now, 0, name_of(dest), SLICE(""));
    }
    decide(o);
    for (uint32_t dest = 0; dest < DESTS; dest++) {
        asked += o->asked[dest];
    }
    assert_int_equal(asked, 100);
    assert_false(sched_has_room(o->s)); /* the places are kept for the answers */
    drain(o);
    for (uint32_t dest = 0; dest < DESTS; dest++) {
        assert_in_range(o->questions[dest], 1, 2); /* the second hears that no more is parked */
    }
    owner_free(o);
}

static void new_mail_that_takes_every_place_does_not_starve_parked_mail(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        assert_true(arrives_for(o, 0));
    }
    assert_int_equal(count(o, PARKED), 10);
    /* From now on every place is taken as soon as it is free, before a question is answered. */
    o->answers_late = true;
    while (count(o, PARKED) > 0) {
        while (sched_has_room(o->s)) {
            o->mail[++o->arrived] = (struct mail){.rcpts = 1, .to = {1}};
            CHECK(o->arrived + 1 < MAIL_MAX);
            enter(o, o->arrived);
        }
        if (o->asked[0] > 0) {
            answer_question(o, 0);
        }
        assert_true(sched_totals(o->s).messages <= 100);
        decide(o);
        assert_true(ends(o, 0) || ends(o, 1));
        decide(o);
    }
    drain(o);
    owner_free(o);
}

static void mail_whose_rest_waits_for_a_slow_site_is_parked(void **state)
{
    static const uint32_t both[] = {0, 1};
    struct owner *o = owner_new(&few_places);

    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        assert_true(arrives_for(o, 0));
    }
    for (uint32_t i = 0; i < 40; i++) {
        assert_true(arrives(o, both, 2)); /* not known yet */
    }
    assert_int_equal(count(o, PARKED), 0);
    assert_int_equal(sched_totals(o->s).messages, 80);
    while (ends(o, 1)) {
        decide(o);
    }
    /* Evicting stops where the share is kept. */
    assert_int_equal(count(o, PARKED), 30);
    assert_int_equal(sched_totals(o->s).messages, 50);
    drain(o);
    owner_free(o);
}

static void the_next_to_be_delivered_is_not_parked(void **state)
{
    static const uint32_t both[] = {0, 1};
    struct owner *o = owner_new(&few_places);

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(arrives_for(o, 0));
    }
    assert_true(arrives(o, both, 2));
    assert_true(arrives(o, both, 2));
    for (uint32_t i = 0; i < 43; i++) {
        assert_true(arrives_for(o, 0));
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(arrives_for(o, 2 + i)); /* so the slow one has more than its share */
    }
    assert_int_equal(o->mail[6].place, IN_MEMORY);
    assert_true(ends(o, 1));
    assert_true(ends(o, 1));
    decide(o);
    assert_int_equal(o->mail[6].place, IN_MEMORY);
    assert_int_equal(o->mail[7].place, PARKED);
    drain(o);
    owner_free(o);
}

static void an_answer_does_not_exceed_the_share(void **state)
{
    struct sched_limits limits = few_places;
    struct owner *o;

    (void)state;
    limits.message_active_limit = 41;
    o = owner_new(&limits);
    o->answers_late = true;
    sched_parked(o->s, o->now, 0, name_of(0), SLICE(""));
    decide(o);
    assert_int_equal(o->asked[0], 21); /* then 20 are left */
    drain(o);
    owner_free(o);
}

static void a_question_outlives_all_that_may_happen_meanwhile(void **state)
{
    struct sched_limits fewer = few_places;
    struct sched_transport_policy other = usual;
    struct owner *o = owner_new(&few_places);

    (void)state;
    o->answers_late = true;
    for (uint32_t i = 0; i < 70; i++) {
        assert_true(arrives_for(o, 0));
    }
    for (uint32_t id = 1; id <= 50; id++) {
        assert_true(sched_drop(o->s, o->now, (struct sched_msg){id}));
        sched_audit(o->s);
    }
    decide(o);
    assert_true(o->asked[0] > 0);
    while (ends(o, 0)) {
        decide(o); /* nothing of the destination is in memory now */
    }
    fewer.message_active_limit = 5;
    sched_set_limits(o->s, &fewer);
    other.window.initial = other.window.max = 2;
    (void)sched_transport(o->s, o->now, "smtp", &other);
    sched_revive_all(o->s, o->now);
    sched_transport_failed(o->s, o->now, 0, SLICE("4.3.0 no"));
    sched_revive(o->s, o->now, 0, SLICE(""));
    sched_audit(o->s);
    decide(o);
    assert_int_equal(o->questions[0], 1);
    drain(o);
    owner_free(o);
}

static void a_dead_transport_asks_for_nothing(void **state)
{
    struct owner *o = owner_new(&few_places);

    (void)state;
    sched_transport_failed(o->s, o->now, 0, SLICE("4.3.0 no"));
    sched_parked(o->s, o->now, 0, name_of(3), SLICE(""));
    decide(o);
    assert_int_equal(o->questions[3], 0);
    o->now = sched_wake_at(o->s);
    decide(o);
    assert_int_equal(o->questions[3], 1);
    owner_free(o);
}

/* ---- random --------------------------------------------------------------------------------- */

static void any_arrivals(uint64_t seed)
{
    struct owner *o = owner_new(&few_places);
    uint32_t dests;

    rng_init(&o->rng, seed);
    dests = 1 + (uint32_t)rng_below(&o->rng, DESTS - 1);
    o->fifo = seed % 2 == 0;
    o->answers_late = seed % 3 == 0;
    for (uint32_t step = 0; step < 800; step++) {
        uint32_t to[RCPTS_MAX], rcpts = 1;

        if (!o->fifo) {
            rcpts += (uint32_t)rng_below(&o->rng, RCPTS_MAX);
        }
        for (uint32_t i = 0; i < rcpts; i++) {
            /* Half of all goes to the first, which is slow. */
            to[i] = rng_below(&o->rng, 2) == 0 ? 0 : (uint32_t)rng_below(&o->rng, dests);
        }
        (void)arrives(o, to, rcpts);
        if (rng_below(&o->rng, 20) == 0) {
            (void)ends(o, 0);
        }
        if (dests > 1 && rng_below(&o->rng, 3) > 0) {
            (void)ends(o, 1 + (uint32_t)rng_below(&o->rng, dests - 1));
        }
        if (rng_below(&o->rng, 4) == 0) {
            uint32_t dest = (uint32_t)rng_below(&o->rng, dests);
            if (o->asked[dest] > 0) {
                answer_question(o, dest);
            }
        }
        decide(o);
        assert_true(sched_totals(o->s).messages <= few_places.message_active_limit);
    }
    drain(o);
    owner_free(o);
}

static void nothing_is_lost_or_delivered_twice(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        any_arrivals(seed);
    }
}

UNIT_MAIN(cmocka_unit_test(a_slow_site_keeps_no_other_waiting),
          cmocka_unit_test(n_slow_sites_leave_a_part_for_the_others),
          cmocka_unit_test(parked_mail_comes_before_the_window_runs_dry),
          cmocka_unit_test(a_window_that_ran_dry_gets_more_the_next_time),
          cmocka_unit_test(new_mail_goes_behind_what_is_parked),
          cmocka_unit_test(what_was_parked_after_the_question_is_asked_for_again),
          cmocka_unit_test(an_answer_of_none_is_not_asked_for_in_the_same_breath),
          cmocka_unit_test(questions_never_ask_for_more_than_there_are_places),
          cmocka_unit_test(new_mail_that_takes_every_place_does_not_starve_parked_mail),
          cmocka_unit_test(mail_whose_rest_waits_for_a_slow_site_is_parked),
          cmocka_unit_test(the_next_to_be_delivered_is_not_parked),
          cmocka_unit_test(an_answer_does_not_exceed_the_share),
          cmocka_unit_test(a_question_outlives_all_that_may_happen_meanwhile),
          cmocka_unit_test(a_dead_transport_asks_for_nothing),
          cmocka_unit_test(nothing_is_lost_or_delivered_twice))
