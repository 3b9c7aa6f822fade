/*
 * Clients that come, wait and go, with a clock that the test moves.
 */
#include "admission.h"

#include "unit.h"

#include <string.h>

#include "heap.h"
#include "mem.h"
#include "rng.h"

#define S  US_PER_S
#define MS US_PER_MS

static const uint64_t nothing = 0;

struct hall {
    struct admission a;
    struct admission_limits limits;
    struct mono now;
};

static void open_hall(struct hall *h, uint64_t places)
{
    *h = (struct hall){.now = {1000 * S}};
    h->limits = (struct admission_limits){
        .places = places,
        .address_max = UINT64_MAX,
        .patience_us = 250 * MS,
        .address_bits4 = 32,
        .address_bits6 = 64,
        .network_bits4 = 24,
        .network_bits6 = 48,
    };
    admission_init(&h->a);
}

static void close_hall(struct hall *h)
{
    while (h->a.count > 0) {
        struct place *p = h->a.all[0];

        admission_leave(&h->a, p, false, h->now);
        mem_free(p); /* the first member, where there is more */
    }
    admission_audit(&h->a);
    admission_fini(&h->a);
}

static void later(struct hall *h, int64_t us)
{
    h->now = mono_after(h->now, us);
}

/* 10.a.b.c */
static void ip4(unsigned char ip[16], unsigned a, unsigned b, unsigned c)
{
    memset(ip, 0, 16);
    ip[10] = ip[11] = 0xff;
    ip[12] = 10;
    ip[13] = (unsigned char)a;
    ip[14] = (unsigned char)b;
    ip[15] = (unsigned char)c;
}

/* 2001:db8:a:b::c */
static void ip6(unsigned char ip[16], unsigned a, unsigned b, unsigned c)
{
    static const unsigned char start[4] = {0x20, 0x01, 0x0d, 0xb8};

    memset(ip, 0, 16);
    memcpy(ip, start, sizeof start);
    ip[5] = (unsigned char)a;
    ip[7] = (unsigned char)b;
    ip[15] = (unsigned char)c;
}

static struct admission_answer come_as(struct hall *h, struct admission_client client,
                                       struct place **ret_place)
{
    struct admission_answer answer = admission_ask(&h->a, &h->limits, &client, h->now);

    if (answer.victim != NULL) {
        assert_true(answer.admitted);
        admission_leave(&h->a, answer.victim, true, h->now);
    }
    *ret_place = NULL;
    if (answer.admitted) {
        *ret_place = mem_new(sizeof **ret_place);
        admission_enter(&h->a, &h->limits, *ret_place, &client, &nothing, h->now);
    }
    admission_audit(&h->a);
    return answer;
}

static struct place *come(struct hall *h, const unsigned char ip[16])
{
    struct place *place;
    struct admission_answer answer = come_as(h, (struct admission_client){.ip = ip}, &place);

    assert_true(answer.admitted);
    mem_free(answer.victim);
    return place;
}

/* Does a client of this address get in? In the place of `*want_victim` (NULL: of nobody), or
 * refused by `limit`. */
static void expect_victim(struct hall *h, const unsigned char ip[16], const struct place *want)
{
    struct admission_client client = {.ip = ip};
    struct admission_answer answer = admission_ask(&h->a, &h->limits, &client, h->now);

    assert_true(answer.admitted);
    assert_ptr_equal(answer.victim, want);
}

static void expect_refused(struct hall *h, const unsigned char ip[16], enum admission_limit limit)
{
    struct admission_client client = {.ip = ip};
    struct admission_answer answer = admission_ask(&h->a, &h->limits, &client, h->now);

    assert_false(answer.admitted);
    assert_null(answer.victim);
    assert_string_equal(admission_limit_name(answer.limit), admission_limit_name(limit));
}

static void the_slowest_loses_its_place_and_only_when_all_are_taken(void **unused)
{
    unsigned char ip[16];
    struct place *p[4];
    struct hall h;

    (void)unused;
    open_hall(&h, 4);
    for (unsigned i = 0; i < 4; i++) {
        ip4(ip, i, 0, 1);
        expect_victim(&h, ip, NULL);
        p[i] = come(&h, ip);
        later(&h, 10 * MS);
    }
    ip4(ip, 9, 0, 1);
    expect_refused(&h, ip, ADMISSION_PLACES); /* all have just come */
    later(&h, 10 * S);
    client_pace_add(&p[0]->pace, h.now, 30000);
    client_pace_add(&p[1]->pace, h.now, 3);
    client_pace_add(&p[2]->pace, h.now, 300);
    client_pace_add(&p[3]->pace, h.now, 3000);
    expect_victim(&h, ip, p[1]);
    client_pace_rest(&p[1]->pace, h.now); /* it waits for us: it has done its part */
    expect_victim(&h, ip, p[2]);
    client_pace_wait(&p[1]->pace, h.now);
    admission_delivered(p[1], h.now);
    expect_victim(&h, ip, p[2]);
    close_hall(&h);
}

static void who_loses_its_place_does_not_come_back_to_take_that_of_another(void **unused)
{
    unsigned char slow[16], good[16];
    struct place *place;
    struct hall h;

    (void)unused;
    open_hall(&h, 4);
    for (unsigned i = 0; i < 5; i++) {
        ip4(slow, i, 0, 1);
        (void)come(&h, slow);
        later(&h, 10 * S);
    }
    /* The first has been replaced. It has kept us waiting for longer than any other has. */
    ip4(slow, 0, 0, 1);
    later(&h, -20 * S);
    expect_refused(&h, slow, ADMISSION_PLACES);
    ip4(good, 9, 0, 1);
    place = come(&h, good);
    /* After ten minutes it is as good as any. */
    later(&h, 10 * ADMISSION_FORGET_US);
    client_pace_add(&place->pace, h.now, 1 << 20);
    assert_true(come(&h, slow) != NULL);
    close_hall(&h);
}

static void a_message_pays_for_all_clients_of_the_address(void **unused)
{
    unsigned char ip[16];
    struct place *p;
    struct hall h;

    (void)unused;
    open_hall(&h, 4);
    ip4(ip, 0, 0, 1);
    p = come(&h, ip);
    later(&h, 100 * S);
    admission_leave(&h.a, p, true, h.now);
    mem_free(p);
    assert_int_equal(h.a.remembered_count, 1);
    p = come(&h, ip);
    assert_int_equal(client_pace_waited_us(&p->pace, h.now), 100 * S);
    admission_delivered(p, h.now);
    assert_int_equal(client_pace_waited_us(&p->pace, h.now), 0);
    admission_leave(&h.a, p, false, h.now);
    mem_free(p);
    assert_int_equal(h.a.remembered_count, 0);
    close_hall(&h);
}

static void an_address_has_its_limit_and_so_has_a_64(void **unused)
{
    unsigned char ip[16];
    struct hall h;

    (void)unused;
    open_hall(&h, 100);
    h.limits.address_max = 2;
    for (unsigned i = 0; i < 2; i++) {
        ip4(ip, 0, 0, 1);
        (void)come(&h, ip);
        ip6(ip, 0, 0, i);
        (void)come(&h, ip);
    }
    later(&h, 100 * S); /* slow or not */
    ip4(ip, 0, 0, 1);
    expect_refused(&h, ip, ADMISSION_ADDRESS);
    ip4(ip, 0, 0, 2);
    expect_victim(&h, ip, NULL);
    ip6(ip, 0, 0, 77);
    expect_refused(&h, ip, ADMISSION_ADDRESS);
    ip6(ip, 0, 1, 77);
    expect_victim(&h, ip, NULL);
    close_hall(&h);
}

/* 100 networks that take what they get leave places for others, which are there at once. */
static void the_allowance_shrinks_as_places_get_scarce(void **unused)
{
    unsigned char ip[16];
    struct hall h;
    uint64_t most = 0;

    (void)unused;
    open_hall(&h, 1000);
    h.limits.share_percent = 50;
    for (unsigned round = 0; round < 1000; round++) {
        for (unsigned i = 0; i < 100; i++) {
            struct place *place;
            struct admission_answer answer;

            ip4(ip, i, 0, round % 256); /* another address does not help */
            answer = come_as(&h, (struct admission_client){.ip = ip}, &place);
            assert_null(answer.victim);
            if (place != NULL && admission_network_places(place) > most) {
                most = admission_network_places(place);
            }
        }
    }
    assert_in_range(h.a.count, 970, 990);
    assert_in_range(most, 9, 11);
    for (unsigned i = 0; i < 10; i++) {
        ip4(ip, 200 + i, 0, 1);
        expect_victim(&h, ip, NULL);
        (void)come(&h, ip);
    }
    later(&h, 1 * S); /* a faster one of the same network gets in, others lose nothing */
    ip4(ip, 0, 0, 1);
    {
        struct admission_client client = {.ip = ip};
        struct admission_answer answer = admission_ask(&h.a, &h.limits, &client, h.now);

        assert_true(answer.admitted);
        assert_int_equal(answer.limit, ADMISSION_NETWORK);
        assert_true(answer.victim->network != NULL);
    }
    close_hall(&h);
}

static void one_network_alone_gets_a_third_and_an_exempt_one_all(void **unused)
{
    unsigned char ip[16];
    struct hall h;

    (void)unused;
    for (int exempt = 0; exempt < 2; exempt++) {
        struct place *place;

        open_hall(&h, 900);
        h.limits.share_percent = 50;
        ip4(ip, 0, 0, 1);
        for (unsigned i = 0; i < 2000; i++) {
            (void)come_as(&h, (struct admission_client){.ip = ip, .exempt = exempt}, &place);
        }
        assert_int_equal(h.a.count, exempt ? 900 : 300);
        close_hall(&h);
    }
}

static void a_big_sender_that_sends_keeps_its_places_beside_drips(void **unused)
{
    unsigned char big[16], slow[16];
    struct place *p[40];
    struct hall h;

    (void)unused;
    open_hall(&h, 100);
    for (unsigned i = 0; i < 60; i++) {
        ip4(slow, i, 0, 1);
        (void)come(&h, slow);
    }
    ip4(big, 200, 0, 1);
    for (unsigned i = 0; i < 40; i++) {
        p[i] = come(&h, big);
    }
    for (int second = 0; second < 100; second++) {
        later(&h, 1 * S);
        for (unsigned i = 0; i < 40; i++) {
            client_pace_add(&p[i]->pace, h.now, 20000);
        }
        if (second >= 5) {
            ip4(slow, 100, (unsigned)second, 1);
            (void)come(&h, slow);
        }
    }
    for (unsigned i = 0; i < 40; i++) {
        assert_ptr_equal(h.a.all[p[i]->index], p[i]);
    }
    close_hall(&h);
}

static void places_are_kept_for_those_that_may_relay(void **unused)
{
    unsigned char ip[16];
    struct admission_client own = {.trusted = true, .exempt = true};
    struct admission_answer answer;
    struct place *place, *first = NULL;
    struct hall h;

    (void)unused;
    open_hall(&h, 20);
    h.limits.reserve = 5;
    for (unsigned i = 0; i < 15; i++) {
        ip4(ip, i, 0, 1);
        (void)come(&h, ip);
    }
    ip4(ip, 99, 0, 1);
    expect_refused(&h, ip, ADMISSION_PLACES);
    for (int i = 0; i < 5; i++) {
        answer = come_as(&h, own, &place);
        assert_true(answer.admitted);
        assert_null(answer.victim);
        first = first == NULL ? place : first;
    }
    later(&h, 10 * S);
    answer = admission_ask(&h.a, &h.limits, &own, h.now);
    assert_true(answer.admitted);
    assert_non_null(answer.victim);
    /* A stranger never gets the place of one of the five. */
    for (unsigned i = 0; i < 15; i++) {
        later(&h, 1 * S);
        ip4(ip, 100 + i, 0, 1);
        answer = come_as(&h, (struct admission_client){.ip = ip}, &place);
        assert_true(answer.admitted);
        assert_false(answer.victim->trusted);
        mem_free(answer.victim);
    }
    close_hall(&h);
}

/* And an office full of broken machines does not keep the world out. */
static void more_than_the_reserve_can_be_lost_to_strangers(void **unused)
{
    struct admission_client own = {.trusted = true, .exempt = true};
    struct admission_answer answer;
    struct place *place;
    unsigned char ip[16];
    struct hall h;

    (void)unused;
    open_hall(&h, 20);
    h.limits.reserve = 5;
    for (int i = 0; i < 20; i++) {
        assert_true(come_as(&h, own, &place).admitted);
    }
    later(&h, 1 * S);
    for (unsigned i = 0; i < 15; i++) {
        ip4(ip, i, 0, 1);
        answer = come_as(&h, (struct admission_client){.ip = ip}, &place);
        assert_true(answer.admitted);
        assert_true(answer.victim->trusted);
        mem_free(answer.victim);
    }
    ip4(ip, 50, 0, 1);
    expect_refused(&h, ip, ADMISSION_PLACES); /* the others have just come */
    close_hall(&h);
}

static void memory_is_taken_from_the_slowest_with_the_most(void **unused)
{
    static const uint64_t held[] = {0, 100000, 9000000, 9000000};
    struct place p[4];
    unsigned char ip[16];
    struct hall h;

    (void)unused;
    open_hall(&h, 4);
    for (unsigned i = 0; i < 4; i++) {
        ip4(ip, i, 0, 1);
        admission_enter(&h.a, &h.limits, &p[i], &(struct admission_client){.ip = ip}, &held[i],
                        h.now);
    }
    assert_null(admission_memory_victim(&h.a, &h.limits, &p[0], h.now)); /* nobody is slow yet */
    later(&h, 20 * S);
    client_pace_add(&p[3].pace, h.now, 1000000);
    assert_ptr_equal(admission_memory_victim(&h.a, &h.limits, &p[0], h.now), &p[2]);
    assert_ptr_equal(admission_memory_victim(&h.a, &h.limits, &p[3], h.now), &p[2]);
    assert_null(admission_memory_victim(&h.a, &h.limits, &p[2], h.now)); /* that is the worst */
    client_pace_rest(&p[2].pace, h.now);                                 /* with the queue */
    assert_ptr_equal(admission_memory_victim(&h.a, &h.limits, &p[0], h.now), &p[1]);
    for (unsigned i = 0; i < 4; i++) {
        admission_leave(&h.a, &p[i], false, h.now);
    }
    close_hall(&h);
}

#define CROWD 5000

/* A client of the crowd, or the good one. */
struct visitor {
    struct place place;
    struct visitor **mine; /* where it is known */
};

/* A client comes and is known at *mine, if it gets in. */
static void visit(struct hall *h, const unsigned char ip[16], struct visitor **mine)
{
    struct admission_client client = {.ip = ip};
    struct admission_answer answer = admission_ask(&h->a, &h->limits, &client, h->now);

    if (answer.victim != NULL) {
        struct visitor *victim = CONTAINER_OF(answer.victim, struct visitor, place);

        admission_leave(&h->a, answer.victim, true, h->now);
        *victim->mine = NULL;
        mem_free(victim);
    }
    if (answer.admitted) {
        *mine = mem_new(sizeof **mine);
        (*mine)->mine = mine;
        admission_enter(&h->a, &h->limits, &(*mine)->place, &client, &nothing, h->now);
    }
}

/* 5,000 clients on 1,000 places, each of a network of its own, that drip and come back as soon as
 * they have lost their place: one that sends gets in at once and stays, with pauses of 100 ms. */
static void good_mail_passes_a_crowd_that_comes_back_at_once(void **unused)
{
    enum { STEPS = 6, ROUNDS = 20, COMING = 400 };
    static struct visitor *held[CROWD];
    struct hall h;
    struct rng rng;
    unsigned served = 0;

    (void)unused;
    open_hall(&h, 1000);
    h.limits.reserve = 100;
    h.limits.share_percent = 50;
    memset(held, 0, sizeof held);
    rng_init(&rng, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct visitor *good = NULL;
        unsigned char ip[16];

        for (unsigned step = 0; step <= STEPS; step++) {
            for (unsigned i = 0; i < COMING; i++) {
                unsigned who = (unsigned)rng_below(&rng, CROWD);

                if (held[who] != NULL) {
                    client_pace_add(&held[who]->place.pace, h.now, 3);
                } else {
                    ip4(ip, who / 250, who % 250, 1);
                    visit(&h, ip, &held[who]);
                }
                later(&h, 100 * MS / COMING);
            }
            if (step == 0) {
                ip4(ip, 250, round % 250, 1);
                visit(&h, ip, &good);
            } else if (good != NULL) {
                client_pace_add(&good->place.pace, h.now, 100);
            }
        }
        admission_audit(&h.a);
        served += good != NULL || round == 0; /* at first all have just come */
        if (good != NULL) {
            admission_delivered(&good->place, h.now);
            admission_leave(&h.a, &good->place, false, h.now);
            mem_free(good);
        }
    }
    assert_int_equal(served, ROUNDS);
    close_hall(&h);
}

static void remembered_addresses_are_bounded(void **unused)
{
    unsigned char ip[16];
    struct hall h;

    (void)unused;
    open_hall(&h, 4);
    for (unsigned i = 0; i < ADMISSION_REMEMBERED_MAX + 1000; i++) {
        struct place *p;

        ip4(ip, i / 65536, i / 256 % 256, i % 256);
        p = come(&h, ip);
        later(&h, 1 * S);
        admission_leave(&h.a, p, true, h.now);
        mem_free(p);
    }
    assert_int_equal(h.a.remembered_count, ADMISSION_REMEMBERED_MAX);
    close_hall(&h);
}

static void any_history_keeps_the_counts(void **unused)
{
    struct hall h;
    struct rng rng;

    (void)unused;
    open_hall(&h, 50);
    rng_init(&rng, 7);
    h.limits.reserve = 5;
    h.limits.address_max = 5;
    for (int i = 0; i < 5000; i++) {
        unsigned char ip[16];
        struct place *p;

        if (i % 250 == 0) { /* a reload */
            h.limits.places = 10 + rng_below(&rng, 100);
            h.limits.share_percent = rng_below(&rng, 200);
            h.limits.network_bits4 = 1 + (unsigned)rng_below(&rng, 32);
            h.limits.address_bits6 = 1 + (unsigned)rng_below(&rng, 128);
        }
        later(&h, (int64_t)rng_below(&rng, 200 * MS));
        if (rng_below(&rng, 3) == 0) {
            (i % 2 == 0 ? ip4 : ip6)(ip, (unsigned)rng_below(&rng, 4), (unsigned)rng_below(&rng, 4),
                                     (unsigned)rng_below(&rng, 4));
            struct admission_client client = {.ip = rng_below(&rng, 10) == 0 ? NULL : ip,
                                              .trusted = rng_below(&rng, 4) == 0,
                                              .exempt = rng_below(&rng, 4) == 0};
            struct admission_answer answer = come_as(&h, client, &p);

            mem_free(answer.victim);
            continue;
        }
        if (h.a.count == 0) {
            continue;
        }
        p = h.a.all[rng_below(&rng, h.a.count)];
        switch (rng_below(&rng, 5)) {
        case 0:
            client_pace_rest(&p->pace, h.now);
            break;
        case 1:
            client_pace_wait(&p->pace, h.now);
            break;
        case 2:
            admission_delivered(p, h.now);
            break;
        case 3:
            client_pace_add(&p->pace, h.now, rng_below(&rng, 100000));
            break;
        default:
            admission_leave(&h.a, p, rng_below(&rng, 2) == 0, h.now);
            mem_free(p);
        }
        admission_audit(&h.a);
    }
    close_hall(&h);
}

UNIT_MAIN(cmocka_unit_test(the_slowest_loses_its_place_and_only_when_all_are_taken),
          cmocka_unit_test(who_loses_its_place_does_not_come_back_to_take_that_of_another),
          cmocka_unit_test(a_message_pays_for_all_clients_of_the_address),
          cmocka_unit_test(an_address_has_its_limit_and_so_has_a_64),
          cmocka_unit_test(the_allowance_shrinks_as_places_get_scarce),
          cmocka_unit_test(one_network_alone_gets_a_third_and_an_exempt_one_all),
          cmocka_unit_test(a_big_sender_that_sends_keeps_its_places_beside_drips),
          cmocka_unit_test(places_are_kept_for_those_that_may_relay),
          cmocka_unit_test(more_than_the_reserve_can_be_lost_to_strangers),
          cmocka_unit_test(memory_is_taken_from_the_slowest_with_the_most),
          cmocka_unit_test(good_mail_passes_a_crowd_that_comes_back_at_once),
          cmocka_unit_test(remembered_addresses_are_bounded),
          cmocka_unit_test(any_history_keeps_the_counts))
