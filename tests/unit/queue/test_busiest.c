#include "unit.h"

#include <stdio.h>

#include "busiest.h"

#define NOW ((struct mono){US_PER_S})

/* Destination `i` has i recipients, in one message, which are all read. */
static struct sched *with_destinations(uint32_t count)
{
    struct sched_limits limits = {.message_active_limit = 1000,
                                  .message_recipient_limit = 100000,
                                  .message_recipient_minimum = 10,
                                  .minimal_backoff_us = US_PER_S,
                                  .maximal_backoff_us = US_PER_S,
                                  .transport_retry_us = US_PER_S};
    struct sched_transport_policy policy = {
        .window = {.initial = 2, .max = 5}, .dest_recipient_limit = 1, .recipient_limit = 100000};
    struct sched *s = sched_new(&limits);
    struct sched_action a;

    (void)sched_transport(s, NOW, "smtp", &policy);
    for (uint32_t i = 1; i <= count; i++) {
        struct sched_rcpt rcpts[100];
        char name[20];

        (void)snprintf(name, sizeof name, "d%u", i);
        sched_open(s, NOW, (struct sched_msg){i}, i, false);
        assert_int_equal(sched_next(s, NOW, &a), SCHED_READ);
        for (uint32_t j = 0; j < i; j++) {
            rcpts[j] = (struct sched_rcpt){.n = j, .dest = slice_string(name)};
        }
        sched_recipients(s, NOW, (struct sched_msg){i}, rcpts, i, 0, true);
    }
    return s;
}

static void the_busiest_are_found_in_order_after_a_whole_walk(void **state)
{
    struct sched *s = with_destinations(50);
    struct busiest b;

    (void)state;
    busiest_init(&b);
    for (int i = 0; i < 5; i++) {
        busiest_step(&b, s, 10);
        assert_int_equal(b.told.count, 0);
    }
    busiest_step(&b, s, 10);
    assert_int_equal(b.told.count, BUSIEST_MAX);
    for (size_t i = 0; i < BUSIEST_MAX; i++) {
        assert_int_equal(b.told.destinations[i].load, 50 - i);
    }
    assert_string_equal(b.told.destinations[0].dest, "d50");
    sched_free(s);
    s = with_destinations(1);
    busiest_step(&b, s, 10); /* another scheduler: the walk begins anew */
    assert_int_equal(b.told.count, 1);
    busiest_fini(&b);
    sched_free(s);
}

UNIT_MAIN(cmocka_unit_test(the_busiest_are_found_in_order_after_a_whole_walk))
