/*
 * The resolver with name servers that the test plays. No file of the system is read.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <stdio.h>
#include <unistd.h>

#include "dns_answer.h"
#include "resolver.h"

struct result {
    bool is_done;
    enum resolver_outcome outcome;
    char address[4]; /* of the last A record */
};

struct server {
    int fd;
    char where[32];
    struct event *event;
    unsigned questions;
    bool is_silent;
};

static void on_done(void *arg, const struct resolver_answer *answer)
{
    struct result *result = arg;

    assert_false(result->is_done);
    result->is_done = true;
    result->outcome = answer->outcome;
    if (answer->outcome == RESOLVER_ANSWER) {
        struct slice data[4];
        size_t count;

        assert_true(dns_answer_records(answer->packet, RESOLVER_A, data, COUNT(data), &count));
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(data[i].len, 4);
            memcpy(result->address, data[i].ptr, 4);
        }
    }
}

/* Answers each question with NXDOMAIN. */
static void on_question(evutil_socket_t fd, short what, void *arg)
{
    struct server *server = arg;
    unsigned char packet[512];
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    ssize_t n = recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &len);

    (void)what;
    server->questions++;
    if (n >= 12 && !server->is_silent) {
        packet[2] |= 0x80;
        packet[3] = 0x83; /* RA, NXDOMAIN */
        assert_int_equal(sendto(fd, packet, (size_t)n, 0, (struct sockaddr *)&from, len), n);
    }
}

static void open_server(struct event_base *base, struct server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    server->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(server->fd >= 0 && bind(server->fd, (struct sockaddr *)&at, sizeof at) == 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&at, &len), 0);
    snprintf(server->where, sizeof server->where, "127.0.0.1:%u", ntohs(at.sin_port));
    server->event = event_new(base, server->fd, EV_READ | EV_PERSIST, on_question, server);
    assert_int_equal(event_add(server->event, NULL), 0);
}

static void close_server(struct server *server)
{
    event_free(server->event);
    (void)close(server->fd);
}

static void run_until(struct event_base *base, const bool *flag)
{
    while (!*flag) {
        assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
    }
}

static struct resolver *open_resolver(struct event_base *base, const struct dns_sources *sources)
{
    struct resolver *r;
    struct buf error;

    buf_init(&error, 1000);
    r = resolver_new(base, sources, &error);
    assert_string_equal(buf_cstr(&error), "");
    buf_fini(&error);
    return r;
}

static void renew(struct resolver *r, const struct dns_sources *sources)
{
    struct buf error;

    buf_init(&error, 1000);
    assert_true(resolver_renew(r, sources, &error));
    buf_fini(&error);
}

static struct result look_up(struct event_base *base, struct resolver *r, const char *name)
{
    struct result result = {0};

    (void)resolver_ask(r, slice_string(name), RESOLVER_A, on_done, &result);
    run_until(base, &result.is_done);
    return result;
}

/* Each line of the file may be anything. */
static void names_of_hosts_need_no_server(void **state)
{
    static const char *const nowhere[] = {"127.0.0.1:9"};
    static const char *const known[] = {"a.example", "c.example", "d.example", "e_1.example"};
    char name[300];
    struct dns_sources sources = {
        .servers = nowhere,
        .count = 1,
        .hosts = SLICE("127.0.0.1 localhost\n# 192.0.2.9 a.example\nx y\n1.2.3 b.example\n"
                       "192.0.2.1\tA.example \"quoted\" a\\032b \x01\xff c.example #192.0.2.3\r\n"
                       "2001:db8::1 six.example\n\n 192.0.2.1  d.example\r\n192.0.2.1\n"
                       "192.0.2.1 . .. a..b -; $INCLUDE e_1.example")};
    struct event_base *base = event_base_new();
    struct resolver *r = open_resolver(base, &sources);
    struct result result;
    struct buf text;

    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        result = look_up(base, r, known[i]);
        assert_int_equal(result.outcome, RESOLVER_ANSWER);
        assert_memory_equal(result.address, "\xc0\x00\x02\x01", 4);
    }
    sources.hosts = SLICE("192.0.2.2 a.example\n");
    renew(r, &sources);
    assert_memory_equal(look_up(base, r, "a.example").address, "\xc0\x00\x02\x02", 4);

    /* Names and labels that are too long. */
    memset(name, 'x', sizeof name);
    buf_init(&text, 100000);
    for (int len = 60; len < 300; len++) {
        (void)buf_addf(&text, "192.0.2.3 %.*s.example\n", len, name);
    }
    (void)buf_addf(&text, "192.0.2.3 a.example\n");
    sources.hosts = buf_slice(&text);
    renew(r, &sources);
    assert_memory_equal(look_up(base, r, "a.example").address, "\xc0\x00\x02\x03", 4);
    buf_fini(&text);
    resolver_free(r);
    event_base_free(base);
}

/* More names than are taken: a process that stood still for them would deliver nothing. */
static void a_huge_hosts_file_has_a_bound(void **state)
{
    struct event_base *base = event_base_new();
    struct server server = {0};
    const char *servers[] = {server.where};
    struct dns_sources sources = {.servers = servers, .count = 1};
    struct resolver *r;
    struct buf text;

    (void)state;
    open_server(base, &server);
    buf_init(&text, 1 << 22);
    for (int i = 0; i < 50001; i++) {
        assert_true(buf_addf(&text, "192.0.2.%d n%d.example\n", i % 256, i));
    }
    sources.hosts = buf_slice(&text);
    r = open_resolver(base, &sources);
    assert_int_equal(look_up(base, r, "n49999.example").outcome, RESOLVER_ANSWER);
    assert_int_equal(look_up(base, r, "n50000.example").outcome, RESOLVER_NO_NAME);
    assert_true(server.questions > 0);
    resolver_free(r);
    close_server(&server);
    buf_fini(&text);
    event_base_free(base);
}

/* The old server is silent: each question is asked again at once, and answered once. */
static void questions_under_way_go_to_the_new_servers(void **state)
{
    struct event_base *base = event_base_new();
    struct server silent = {.is_silent = true}, speaks = {0};
    const char *servers[] = {silent.where};
    struct dns_sources sources = {.servers = servers, .count = 1};
    struct result kept = {0}, same = {0}, dropped = {0};
    struct resolver_query *gone;
    struct resolver *r;
    struct buf error;

    (void)state;
    open_server(base, &silent);
    open_server(base, &speaks);
    r = open_resolver(base, &sources);
    (void)resolver_ask(r, SLICE("kept.example"), RESOLVER_A, on_done, &kept);
    (void)resolver_ask(r, SLICE("kept.example"), RESOLVER_A, on_done, &same);
    gone = resolver_ask(r, SLICE("dropped.example"), RESOLVER_A, on_done, &dropped);
    while (silent.questions < 2) {
        assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
    }
    resolver_cancel(gone);
    servers[0] = speaks.where;
    renew(r, &sources);
    assert_false(kept.is_done); /* never from within */
    run_until(base, &kept.is_done);
    run_until(base, &same.is_done);
    assert_int_equal(kept.outcome, RESOLVER_NO_NAME);
    assert_int_equal(same.outcome, RESOLVER_NO_NAME);
    assert_false(dropped.is_done);

    /* With the same sources all stays, the cache too. */
    speaks.questions = 0;
    renew(r, &sources);
    assert_int_equal(look_up(base, r, "kept.example").outcome, RESOLVER_NO_NAME);
    assert_int_equal(speaks.questions, 0);

    /* So it does with sources that do not work. */
    buf_init(&error, 1000);
    servers[0] = "not-a-server";
    assert_false(resolver_renew(r, &sources, &error));
    assert_string_equal(buf_cstr(&error), "bad name server \"not-a-server\"");
    buf_fini(&error);
    assert_int_equal(look_up(base, r, "kept.example").outcome, RESOLVER_NO_NAME);
    assert_int_equal(speaks.questions, 0);

    /* An answer that there is no such name does not outlive the change. */
    servers[0] = speaks.where;
    sources.hosts = SLICE("192.0.2.1 other.example\n");
    renew(r, &sources);
    assert_int_equal(look_up(base, r, "kept.example").outcome, RESOLVER_NO_NAME);
    assert_true(speaks.questions > 0);
    resolver_free(r);
    close_server(&silent);
    close_server(&speaks);
    event_base_free(base);
}

UNIT_MAIN(cmocka_unit_test(names_of_hosts_need_no_server),
          cmocka_unit_test(a_huge_hosts_file_has_a_bound),
          cmocka_unit_test(questions_under_way_go_to_the_new_servers))
