/*
 * Queries over a channel to the resolve process, which the test plays.
 */
#include "unit.h"

#include <event2/event.h>
#include <sys/socket.h>

#include "channel.h"
#include "dns_link.h"
#include "resolver.h"
#include "wire.h"

#define QUERIES_MAX 8

struct peer {
    struct channel *channel;
    struct wire_dns_query queries[QUERIES_MAX]; /* without the name */
    size_t count;
};

struct result {
    unsigned calls;
    enum resolver_outcome outcome;
    bool secure;
    size_t packet_len;
    char bogus[32];
};

static void on_query(void *arg, struct channel *ch)
{
    struct peer *peer = arg;
    struct frame frame;

    while (channel_next(ch, &frame) == CHANNEL_FRAME) {
        assert_int_equal(frame.type, WIRE_DNS_QUERY);
        assert_true(peer->count < QUERIES_MAX);
        assert_true(wire_get_dns_query(frame.body, &peer->queries[peer->count++]));
    }
}

static void connect_to(struct event_base *base, struct peer *peer, struct dns_link *link)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    *peer = (struct peer){.channel = channel_new(base, fds[0], on_query, peer)};
    dns_link_peer(link, fds[1]);
}

static void run_until(struct event_base *base, const size_t *count, size_t wanted)
{
    while (*count < wanted) {
        channel_flush_all();
        assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
    }
}

static void run_until_called(struct event_base *base, const struct result *result)
{
    while (result->calls == 0) {
        channel_flush_all();
        assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
    }
}

static void on_done(void *arg, const struct resolver_answer *answer)
{
    struct result *result = arg;

    result->calls++;
    result->outcome = answer->outcome;
    result->secure = answer->secure;
    result->packet_len = answer->packet.len;
    snprintf(result->bogus, sizeof result->bogus, "%s",
             answer->bogus == NULL ? "none" : answer->bogus);
}

static void give(const struct peer *peer, const struct wire_dns_answer *m)
{
    wire_put_dns_answer(peer->channel, m);
}

static void each_query_gets_its_answer(void **state)
{
    struct event_base *base = event_base_new();
    struct dns_link *link = dns_link_new(base);
    struct resolver *plain = resolver_over(base, link, false);
    struct resolver *proven = resolver_over(base, link, true);
    struct result a = {0}, b = {0}, gone = {0};
    struct resolver_query *cancelled;
    struct peer peer;

    (void)state;
    (void)resolver_ask(plain, SLICE("a.example"), RESOLVER_MX, on_done,
                       &a); /* before there is one */
    connect_to(base, &peer, link);
    (void)resolver_ask(proven, SLICE("b.example"), RESOLVER_TLSA, on_done, &b);
    cancelled = resolver_ask(plain, SLICE("c.example"), RESOLVER_A, on_done, &gone);
    run_until(base, &peer.count, 3);
    assert_int_equal(peer.queries[0].type, RESOLVER_MX);
    assert_false(peer.queries[0].prove);
    assert_int_equal(peer.queries[1].type, RESOLVER_TLSA);
    assert_true(peer.queries[1].prove);
    resolver_cancel(cancelled);

    /* In another order, one for a query that is gone, one for a query that never was. */
    give(&peer, &(struct wire_dns_answer){.token = peer.queries[2].token});
    give(&peer, &(struct wire_dns_answer){.token = 12345});
    give(&peer, &(struct wire_dns_answer){.token = peer.queries[1].token,
                                          .outcome = RESOLVER_AGAIN,
                                          .bogus = SLICE("expired")});
    give(&peer, &(struct wire_dns_answer){.token = peer.queries[0].token,
                                          .outcome = RESOLVER_ANSWER,
                                          .secure = true,
                                          .packet = SLICE("0123456789ab")});
    give(&peer, &(struct wire_dns_answer){.token = peer.queries[0].token});
    run_until_called(base, &a);
    assert_int_equal(a.outcome, RESOLVER_ANSWER);
    assert_true(a.secure);
    assert_int_equal(a.packet_len, 12);
    assert_string_equal(a.bogus, "none");
    assert_int_equal(b.outcome, RESOLVER_AGAIN);
    assert_string_equal(b.bogus, "expired");
    assert_int_equal(a.calls + b.calls, 2);
    assert_int_equal(gone.calls, 0);

    resolver_free(plain);
    resolver_free(proven);
    dns_link_free(link);
    channel_free(peer.channel);
    event_base_free(base);
}

static void a_new_process_is_asked_again(void **state)
{
    struct event_base *base = event_base_new();
    struct dns_link *link = dns_link_new(base);
    struct resolver *r = resolver_over(base, link, false);
    struct result result = {0}, waits = {0};
    struct peer first, second;

    (void)state;
    connect_to(base, &first, link);
    (void)resolver_ask(r, SLICE("a.example"), RESOLVER_A, on_done, &result);
    (void)resolver_ask(r, SLICE("b.example"), RESOLVER_A, on_done, &waits);
    run_until(base, &first.count, 2);
    channel_free(first.channel);
    connect_to(base, &second, link);
    run_until(base, &second.count, 2);
    give(&second,
         &(struct wire_dns_answer){.token = second.queries[0].token, .outcome = RESOLVER_NO_NAME});
    run_until_called(base, &result);
    assert_int_equal(result.outcome, RESOLVER_NO_NAME);

    resolver_free(r); /* with a query in flight */
    assert_int_equal(waits.calls, 0);
    dns_link_free(link);
    channel_free(second.channel);
    event_base_free(base);
}

static void what_does_not_decode_is_no_answer(void **state)
{
    struct event_base *base = event_base_new();
    struct dns_link *link = dns_link_new(base);
    struct resolver *r = resolver_over(base, link, false);
    struct result result = {0};
    struct peer peer;

    (void)state;
    connect_to(base, &peer, link);
    (void)resolver_ask(r, SLICE("a.example"), RESOLVER_A, on_done, &result);
    run_until(base, &peer.count, 1);
    wire_put_number(peer.channel, WIRE_DNS_ANSWER, peer.queries[0].token);
    wire_put_empty(peer.channel, WIRE_STARTED);
    give(&peer, &(struct wire_dns_answer){.token = peer.queries[0].token, .outcome = 77});
    run_until_called(base, &result);
    assert_int_equal(result.outcome, RESOLVER_AGAIN);

    resolver_free(r);
    dns_link_free(link);
    channel_free(peer.channel);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_query_gets_its_answer),
        cmocka_unit_test(a_new_process_is_asked_again),
        cmocka_unit_test(what_does_not_decode_is_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
