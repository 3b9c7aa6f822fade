/* What the TCP of clients meets at a server that has more to do than it can. */
#include "sim_server.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define CALLS_MAX 32

struct client {
    struct sim_call call;
    struct sim_link *link; /* that was left to us */
    bool ended, keep;
    enum sim_server_end end;
    int64_t at_us;
};

static struct sim_events events;
static struct sim_server server;
static struct client clients[CALLS_MAX];
static size_t client_count;

/* No chance in the times that tests look at: about() of 1 us is 0 or 1. */
static const struct sim_server_model one_process = {.processes = 1,
                                                    .backlog = 1,
                                                    .rcpt_us = US_PER_S,
                                                    .accept_us = 1,
                                                    .message_us = 1,
                                                    .close_us = 1};

static void on_done(struct sim_call *call, enum sim_server_end end, struct sim_link *link)
{
    struct client *c = CONTAINER_OF(call, struct client, call);

    c->ended = true;
    c->end = end;
    c->at_us = events.now.us;
    c->link = link;
    if (link != NULL && !c->keep) {
        sim_link_hang_up(link);
        c->link = NULL;
    }
}

static struct client *client_new(uint32_t rcpts, bool keep)
{
    struct client *c = &clients[client_count++];

    assert_true(client_count <= CALLS_MAX);
    *c = (struct client){.keep = keep};
    c->call = (struct sim_call){.rcpt_count = rcpts,
                                .connect_timeout_us = 30 * US_PER_S,
                                .greeting_timeout_us = 300 * US_PER_S,
                                .done = on_done};
    return c;
}

static struct client *call(uint32_t rcpts, bool keep)
{
    struct client *c = client_new(rcpts, keep);

    sim_server_call(&server, &c->call);
    sim_server_audit(&server);
    return c;
}

static void start(const struct sim_server_model *model)
{
    client_count = 0;
    sim_events_init(&events);
    sim_server_init(&server, model, &events, 1);
}

static void run_until(int64_t second)
{
    while (sim_events_next(&events).us <= second * US_PER_S) {
        sim_events_run(&events, sim_events_next(&events));
        sim_server_audit(&server);
    }
    sim_events_run(&events, (struct mono){second * US_PER_S});
}

static void end(void)
{
    sim_server_fini(&server);
    sim_events_fini(&events);
}

static void ended(const struct client *c, enum sim_server_end how, int64_t second)
{
    assert_true(c->ended);
    assert_int_equal(c->end, how);
    assert_int_equal(us_seconds(c->at_us), second);
}

static void a_full_queue_loses_syns(void **state)
{
    struct client *a, *b, *c, *late;

    (void)state;
    start(&one_process);
    a = call(40, false); /* is served */
    b = call(1, false);  /* two wait: backlog + 1 */
    c = call(1, false);
    late = call(1, false);
    run_until(100);
    ended(a, SIM_SERVER_DELIVERED, 40);
    ended(b, SIM_SERVER_DELIVERED, 41);
    ended(c, SIM_SERVER_DELIVERED, 42);
    ended(late, SIM_SERVER_CONNECT_TIMEOUT, 30);
    end();
}

/* Five times after 3 s. */
static void a_syn_is_repeated(void **state)
{
    struct client *late;

    (void)state;
    start(&one_process);
    (void)call(4, false);
    (void)call(1, false);
    (void)call(1, false);
    late = call(1, false);
    run_until(100);
    ended(late, SIM_SERVER_DELIVERED, 7); /* room at 4, noticed at 6, free at 6 */
    end();
}

static void linux_lets_the_client_believe(void **state)
{
    struct sim_server_model model = one_process;
    struct client *first, *second, *third;

    (void)state;
    model.half_open = true;
    start(&model);
    (void)call(1000, false);
    (void)call(1, false);
    (void)call(1, false);
    first = call(1, false);  /* two handshakes may hang, young; */
    second = call(1, false); /* the next SYN is lost until they are not young */
    third = call(1, false);
    run_until(400);
    ended(first, SIM_SERVER_GREETING_TIMEOUT, 300);
    ended(second, SIM_SERVER_GREETING_TIMEOUT, 300);
    ended(third, SIM_SERVER_GREETING_TIMEOUT, 303);
    end();
}

static void a_dead_connection_is_greeted(void **state)
{
    struct client *gone, *after;

    (void)state;
    start(&one_process);
    (void)call(400, false);
    gone = call(50, false);
    run_until(350);
    ended(gone, SIM_SERVER_GREETING_TIMEOUT, 300);
    assert_int_equal(server.queued, 1); /* its place is not free */
    after = call(1, false);
    run_until(500);
    ended(after, SIM_SERVER_DELIVERED, 401); /* finding nobody takes no time to speak of */
    end();
}

static void one_client_too_many_is_turned_away(void **state)
{
    struct sim_server_model model = one_process;
    struct client *a, *b, *c;

    (void)state;
    model.processes = 3;
    model.client_limit = 1;
    start(&model);
    a = call(2, false);
    b = call(2, false);
    run_until(3);
    ended(a, SIM_SERVER_DELIVERED, 2);
    ended(b, SIM_SERVER_TURNED_AWAY, 0);
    c = call(1, false);
    run_until(10);
    ended(c, SIM_SERVER_DELIVERED, 4);
    end();
}

static void a_kept_connection_occupies_its_process(void **state)
{
    struct client *a, *b, *again;

    (void)state;
    start(&one_process);
    a = call(1, true);
    b = call(1, false);
    run_until(10);
    ended(a, SIM_SERVER_DELIVERED, 1);
    assert_false(b->ended);
    again = client_new(1, false);
    sim_link_call(a->link, &again->call);
    run_until(20);
    ended(again, SIM_SERVER_DELIVERED, 11);
    ended(b, SIM_SERVER_DELIVERED, 12);
    end();
}

UNIT_MAIN(cmocka_unit_test(a_full_queue_loses_syns), cmocka_unit_test(a_syn_is_repeated),
          cmocka_unit_test(linux_lets_the_client_believe),
          cmocka_unit_test(a_dead_connection_is_greeted),
          cmocka_unit_test(one_client_too_many_is_turned_away),
          cmocka_unit_test(a_kept_connection_occupies_its_process))
