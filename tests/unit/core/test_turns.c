#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "turns.h"

#define TURNS_MAX 12
#define STEPS     400

/* ---- the method, by looking at everything --------------------------------------------------- */

struct plain {
    bool waits, takes_part;
    int64_t start; /* in 2^-TURNS_BITS */
    uint32_t weight;
    uint64_t serial;
};

struct plain_turns {
    struct plain all[TURNS_MAX];
    size_t count;
    int64_t now;
    uint64_t serial;
};

static int64_t one_over(uint64_t weight)
{
    return (int64_t)((UINT64_C(1) << TURNS_BITS) / weight);
}

static uint64_t plain_weight(const struct plain_turns *r)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < r->count; i++) {
        sum += r->all[i].takes_part ? r->all[i].weight : 0;
    }
    return sum;
}

static void plain_rest(struct plain_turns *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct plain *p = &r->all[i];

        p->takes_part = p->takes_part && (p->waits || p->start > r->now);
    }
}

static bool earlier(const struct plain *a, const struct plain *b)
{
    int64_t da = a->start + one_over(a->weight), db = b->start + one_over(b->weight);

    return da != db ? da < db : a->start != b->start ? a->start < b->start : a->serial < b->serial;
}

static int plain_first(struct plain_turns *r)
{
    int64_t least = INT64_MAX;
    int best = -1;

    for (size_t i = 0; i < r->count; i++) {
        least = r->all[i].waits && r->all[i].start < least ? r->all[i].start : least;
    }
    if (least == INT64_MAX) { /* none waits: what was is forgotten */
        for (size_t i = 0; i < r->count; i++) {
            bool ahead = r->all[i].takes_part && r->all[i].start > r->now;
            r->now = ahead ? r->all[i].start : r->now;
        }
    } else if (least > r->now) {
        r->now = least;
    }
    plain_rest(r);
    for (size_t i = 0; i < r->count; i++) {
        const struct plain *p = &r->all[i];

        if (p->waits && p->start <= r->now && (best < 0 || earlier(p, &r->all[best]))) {
            best = (int)i;
        }
    }
    return best;
}

static void plain_join(struct plain_turns *r, size_t i)
{
    struct plain *p = &r->all[i];

    p->start = p->takes_part ? p->start : r->now;
    p->waits = p->takes_part = true;
    p->serial = ++r->serial;
}

static void plain_leave(struct plain_turns *r, size_t i)
{
    r->all[i].waits = false;
    r->all[i].takes_part = r->all[i].start > r->now;
}

static void plain_took(struct plain_turns *r, size_t i)
{
    r->now += one_over(plain_weight(r));
    r->all[i].start += one_over(r->all[i].weight);
}

/* ---- the promise ---------------------------------------------------------------------------- */

/* What was seen of one that waits, since it began to. */
struct record {
    uint32_t got[STEPS + 1];  /* turns it had of the first n */
    uint64_t most[STEPS + 1]; /* most weight before the n-th */
    size_t n;
    bool ahead; /* it rested before */
};

static void keep_record(struct record *r, bool got, uint64_t weight)
{
    r->got[r->n + 1] = r->got[r->n] + got;
    r->most[r->n] = weight;
    r->n++;
}

/* Of any consecutive turns that end with the last one. */
static void check_promise(const struct record *r, uint64_t w)
{
    uint64_t most = 0;

    for (size_t from = r->n; from-- > 0;) {
        uint64_t n = r->n - from, got = r->got[r->n] - r->got[from];

        most = r->most[from] > most ? r->most[from] : most;
        assert_true(from == 0 && !r->ahead ? (got + 1) * most >= n * w : (got + 2) * most > n * w);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void random_histories(void **state)
{
    static struct record records[TURNS_MAX];

    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct plain_turns r = {.count = 1 + seed % TURNS_MAX};
        struct turn all[TURNS_MAX];
        struct turns ts;
        struct rng rng;

        rng_init(&rng, seed);
        turns_init(&ts);
        ts.now = seed % 2 == 0 ? 0 : UINT64_MAX - ((uint64_t)5 << TURNS_BITS); /* wraps around */
        memset(records, 0, sizeof records);
        for (size_t i = 0; i < r.count; i++) {
            r.all[i].weight = rng_below(&rng, 3) == 0 ? 1 + (uint32_t)rng_below(&rng, 20) : 1;
            turn_init(&all[i], r.all[i].weight);
        }
        for (int step = 0; step < STEPS; step++) {
            size_t i = (size_t)rng_below(&rng, r.count);
            bool busy = seed % 5 == 0; /* all wait all the time */

            if (!all[i].waits) {
                records[i].n = 0;
                records[i].ahead = r.all[i].takes_part;
                turns_join(&ts, &all[i]);
                plain_join(&r, i);
            } else if (!busy && rng_below(&rng, 4) == 0) {
                turns_leave(&ts, &all[i]);
                plain_leave(&r, i);
            }
            struct turn *first = turns_first(&ts), *rested;
            int want = plain_first(&r);

            while ((rested = turns_next_rested(&ts)) != NULL) {
                assert_false(turn_takes_part(rested));
            }
            turns_audit(&ts);
            assert_true((first == NULL) == (want < 0));
            if (first == NULL) {
                continue;
            }
            assert_ptr_equal(first, &all[want]);
            assert_int_equal(ts.weight, plain_weight(&r));
            for (size_t k = 0; k < r.count; k++) {
                if (all[k].waits) {
                    keep_record(&records[k], &all[k] == first, ts.weight);
                    check_promise(&records[k], all[k].weight);
                }
            }
            turns_took(&ts, first);
            plain_took(&r, (size_t)want);
            turns_audit(&ts);
        }
        turns_fini(&ts);
    }
}

static void give_turns(struct turns *ts, int count)
{
    for (int i = 0; i < count; i++) {
        turns_took(ts, turns_first(ts));
    }
}

static void a_newcomer_gets_no_credit_and_waits_for_its_share_only(void **state)
{
    struct turn all[101];
    struct turns ts;

    (void)state;
    turns_init(&ts);
    for (size_t i = 0; i < COUNT(all); i++) {
        turn_init(&all[i], i == 100 ? 50 : 1);
    }
    for (size_t i = 0; i < 100; i++) {
        turns_join(&ts, &all[i]);
    }
    give_turns(&ts, 1234);
    turns_join(&ts, &all[100]);
    /* A third of the turns, and evenly: never more than four of others in between. */
    for (int i = 0, since = 0; i < 600; i++) {
        struct turn *t = turns_first(&ts);

        since = t == &all[100] ? 0 : since + 1;
        assert_true(since <= 4);
        turns_took(&ts, t);
    }
    turns_fini(&ts);
}

/* One that leaves as soon as it had its turn and comes back at once gets no more than its share. */
static void coming_and_going_wins_nothing(void **state)
{
    struct turn heavy, sly;
    struct turns ts;
    int got = 0;

    (void)state;
    turns_init(&ts);
    turn_init(&heavy, 9);
    turn_init(&sly, 1);
    turns_join(&ts, &heavy);
    for (int i = 0; i < 1000; i++) {
        if (!sly.waits) {
            turns_join(&ts, &sly);
        }
        struct turn *t = turns_first(&ts);

        (void)turns_next_rested(&ts);
        turns_took(&ts, t);
        if (t == &sly) {
            got++;
            turns_leave(&ts, &sly);
        }
    }
    assert_in_range(got, 99, 101);
    turns_fini(&ts);
}

static void another_weight_holds_from_now_on(void **state)
{
    struct turn a, b;
    struct turns ts;
    int got = 0;

    (void)state;
    turns_init(&ts);
    turn_init(&a, 1);
    turn_init(&b, 1);
    turns_join(&ts, &a);
    turns_join(&ts, &b);
    give_turns(&ts, 10);
    turns_reweigh(&ts, &a, 3);
    turns_audit(&ts);
    for (int i = 0; i < 400; i++) {
        struct turn *t = turns_first(&ts);

        got += t == &a;
        turns_took(&ts, t);
    }
    assert_in_range(got, 298, 302);
    turns_fini(&ts);
}

UNIT_MAIN(cmocka_unit_test(random_histories),
          cmocka_unit_test(a_newcomer_gets_no_credit_and_waits_for_its_share_only),
          cmocka_unit_test(coming_and_going_wins_nothing),
          cmocka_unit_test(another_weight_holds_from_now_on))
