/*
 * Callouts between clients that ask and a peer that the test plays; time is moved, not waited for.
 */
#include "unit.h"

#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "callout.h"
#include "clock.h"
#include "mem.h"
#include "stream.h"

#define PEERS_MAX   8
#define ANSWERS_MAX 1200
#define TURNS_MAX   20000

static const struct callout_target target = {.lmtp = true, .text = "inet:127.0.0.1:24"};

/* A connection as the peer has it. */
struct line_peer {
    int fd;
    char in[4096]; /* lines that have come and are not looked at */
    size_t len;
};

struct socket_ask {
    filter_socket *answer;
    void *arg;
};

static struct {
    struct event_base *base;
    struct socket_ask socket_asks[PEERS_MAX];
    size_t asked, hub_answered;
    struct filter_hub hub;
    struct callouts *all;
    struct line_peer peers[PEERS_MAX];
    size_t peer_count;
    bool is_down; /* sockets can't be had */
    enum callout_result answers[ANSWERS_MAX];
    size_t answered;
} w;

/* In the place of filter_hub.c: the answer comes with the next turn. */
uint64_t filter_hub_ask(struct filter_hub *hub, const char *address, uint32_t attempt,
                        filter_socket *answer, void *arg)
{
    assert_ptr_equal(hub, &w.hub);
    assert_string_equal(address, target.text);
    assert_int_equal(attempt, 0);
    assert_true(w.asked < PEERS_MAX);
    w.socket_asks[w.asked++] = (struct socket_ask){answer, arg};
    return w.asked;
}

static void answer_hub(void)
{
    for (; w.hub_answered < w.asked; w.hub_answered++) {
        const struct socket_ask *a = &w.socket_asks[w.hub_answered];
        int fds[2];

        if (w.is_down) {
            a->answer(a->arg, -1, 1, SLICE("Connection refused"));
            continue;
        }
        assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        w.peers[w.peer_count++] = (struct line_peer){.fd = fds[1]};
        a->answer(a->arg, fds[0], 1, SLICE(""));
    }
}

void filter_hub_forget(struct filter_hub *hub, uint64_t token)
{
    (void)hub;
    (void)token;
}

static void turn(void)
{
    for (int i = 0; i < 10; i++) {
        answer_hub();
        clock_forget();
        assert_true(event_base_loop(w.base, EVLOOP_NONBLOCK) >= 0);
    }
}

static void move(int64_t us)
{
    clock_set_offset(clock_offset() + us);
    clock_forget();
    streams_clock_moved(w.hub.streams);
    turn();
}

static void say(size_t peer, const char *text)
{
    turn();
    assert_int_equal(write(w.peers[peer].fd, text, strlen(text)), strlen(text));
    turn();
}

/* The next line that this connection has got; "" without one, "gone" at the end. */
static const char *heard(size_t peer)
{
    static char line[1024];
    struct line_peer *p = &w.peers[peer];
    ssize_t n;
    char *end;

    turn();
    n = read(p->fd, p->in + p->len, sizeof p->in - p->len);
    p->len += n > 0 ? (size_t)n : 0;
    end = memchr(p->in, '\n', p->len);
    if (end == NULL) {
        return n == 0 ? "gone" : "";
    }
    (void)snprintf(line, sizeof line, "%.*s", (int)(end - p->in - 1), p->in);
    p->len -= (size_t)(end + 1 - p->in);
    memmove(p->in, end + 1, p->len);
    return line;
}

/* What the loop does when a time has come. */
static void until_answered(size_t count)
{
    for (int i = 0; i < TURNS_MAX && w.answered < count; i++) {
        turn();
    }
    assert_int_equal(w.answered, count);
}

static void until_gone(size_t peer)
{
    for (int i = 0; i < TURNS_MAX; i++) {
        const char *line = heard(peer);

        if (strcmp(line, "gone") == 0) {
            return;
        }
        assert_string_equal(line, "");
    }
    fail_msg("connection %zu is still there", peer);
}

static void done(void *arg, enum callout_result result)
{
    assert_null(arg);
    assert_true(w.answered < ANSWERS_MAX);
    w.answers[w.answered++] = result;
}

static enum callout_result ask(const char *address)
{
    struct callout_question *q;

    return callouts_ask(w.all, &target, slice_string(address), done, NULL, &q);
}

/* Greeting to the reply to MAIL; the first RCPT is on its way then. */
static void begin(size_t peer)
{
    say(peer, "220 store ready\r\n");
    assert_string_equal(heard(peer), "LHLO mx.test");
    say(peer, "250-store\r\n250 8BITMIME\r\n");
    assert_string_equal(heard(peer), "MAIL FROM:<>");
    say(peer, "250 2.1.0 Ok\r\n");
}

static int set_up(void **unused)
{
    const struct callout_limits limits = {.timeout_us = 30 * US_PER_S,
                                          .positive_us = 3600 * US_PER_S,
                                          .negative_us = 300 * US_PER_S,
                                          .hostname = "mx.test"};

    (void)unused;
    memset(&w, 0, sizeof w);
    clock_stand();
    w.base = event_base_new();
    w.hub.streams = streams_new(w.base);
    w.all = callouts_new(&w.hub);
    callouts_configure(w.all, &limits);
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    callouts_free(w.all);
    streams_free(w.hub.streams);
    event_base_free(w.base);
    for (size_t i = 0; i < w.peer_count; i++) {
        (void)close(w.peers[i].fd);
    }
    return 0;
}

static void yes_and_no_are_remembered_each_for_its_time(void **unused)
{
    (void)unused;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    begin(0);
    assert_string_equal(heard(0), "RCPT TO:<a@x.test>");
    say(0, "250 2.1.5 Ok\r\n");
    assert_int_equal(ask("b@x.test"), CALLOUT_PENDING);
    assert_string_equal(heard(0), "RCPT TO:<b@x.test>");
    say(0, "550 5.1.1 no\r\n");
    assert_int_equal(w.answered, 2);
    assert_int_equal(w.answers[0], CALLOUT_KNOWN);
    assert_int_equal(w.answers[1], CALLOUT_UNKNOWN);
    assert_int_equal(ask("A@X.TEST"), CALLOUT_KNOWN);
    assert_int_equal(ask("b@x.test"), CALLOUT_UNKNOWN);
    move(301 * US_PER_S);
    until_gone(0); /* it was idle for too long */
    assert_int_equal(ask("a@x.test"), CALLOUT_KNOWN);
    assert_int_equal(ask("b@x.test"), CALLOUT_PENDING); /* over another connection */
    turn();
    assert_int_equal(w.peer_count, 2);
    move(3600 * US_PER_S);
    until_answered(3);
    assert_int_equal(w.answers[2], CALLOUT_UNSURE);
    move(CALLOUT_PAUSE_US);
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
}

static void a_reply_that_is_neither_is_not_remembered(void **unused)
{
    static const char *const replies[] = {"450 4.2.0 later\r\n", "354 what\r\n", "421 bye\r\n"};

    (void)unused;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    begin(0);
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        assert_string_equal(heard(0), "RCPT TO:<a@x.test>");
        say(0, replies[i]);
        assert_int_equal(w.answered, i + 1);
        assert_int_equal(w.answers[i], CALLOUT_UNSURE);
        assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    }
}

static void a_peer_in_trouble_is_left_alone_for_a_while(void **unused)
{
    (void)unused;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    assert_int_equal(ask("b@x.test"), CALLOUT_PENDING);
    say(0, "554 go away\r\n");
    assert_int_equal(w.answered, 2); /* those that waited, too */
    assert_int_equal(w.answers[0], CALLOUT_UNSURE);
    assert_int_equal(w.answers[1], CALLOUT_UNSURE);
    assert_int_equal(ask("a@x.test"), CALLOUT_UNSURE);
    move(CALLOUT_PAUSE_US);
    w.is_down = true;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    until_answered(3);
    assert_int_equal(w.answers[2], CALLOUT_UNSURE);
}

static void one_that_hangs_is_given_up_in_time(void **unused)
{
    (void)unused;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    begin(0);
    move(29 * US_PER_S);
    assert_int_equal(w.answered, 0);
    move(1 * US_PER_S);
    until_answered(1);
    assert_int_equal(w.answers[0], CALLOUT_UNSURE);
}

static void what_comes_before_it_is_asked_for_is_no_answer(void **unused)
{
    (void)unused;
    assert_int_equal(ask("a@x.test"), CALLOUT_PENDING);
    begin(0);
    say(0, "250 2.1.5 Ok\r\n250 2.1.5 Ok\r\n");
    assert_int_equal(w.answered, 1);
    assert_int_equal(w.answers[0], CALLOUT_UNSURE);
}

static void a_question_that_is_forgotten_is_not_answered(void **unused)
{
    struct callout_question *first, *second;

    (void)unused;
    for (int i = 0; i < CALLOUT_CONNECTIONS; i++) { /* all are busy: the next one waits */
        assert_int_equal(callouts_ask(w.all, &target, SLICE("a@x.test"), done, NULL, &first),
                         CALLOUT_PENDING);
    }
    assert_int_equal(callouts_ask(w.all, &target, SLICE("b@x.test"), done, NULL, &second),
                     CALLOUT_PENDING);
    callouts_forget(second);
    turn();
    assert_int_equal(w.peer_count, CALLOUT_CONNECTIONS);
    begin(0);
    assert_string_equal(heard(0), "RCPT TO:<a@x.test>");
    say(0, "250 2.1.5 Ok\r\n");
    assert_int_equal(w.answered, 1);
    assert_int_equal(ask("a@x.test"), CALLOUT_KNOWN);
    callouts_forget(NULL);
}

static void a_transaction_has_so_many_recipients_and_no_more(void **unused)
{
    char address[32], want[64];

    (void)unused;
    for (int i = 0; i <= CALLOUT_RCPTS_MAX; i++) {
        (void)snprintf(address, sizeof address, "u%d@x.test", i);
        assert_int_equal(ask(address), CALLOUT_PENDING);
        if (i == 0) {
            begin(0);
        } else if (i == CALLOUT_RCPTS_MAX) {
            assert_string_equal(heard(0), "RSET");
            say(0, "250 2.0.0 Ok\r\n");
            assert_string_equal(heard(0), "MAIL FROM:<>");
            say(0, "250 2.1.0 Ok\r\n");
        }
        (void)snprintf(want, sizeof want, "RCPT TO:<%s>", address);
        assert_string_equal(heard(0), want);
        say(0, "250 2.1.5 Ok\r\n");
        assert_int_equal(w.answered, i + 1);
    }
}

static void with_too_many_that_wait_the_next_is_unsure(void **unused)
{
    char address[32];
    size_t pending = 0;

    (void)unused;
    for (unsigned i = 0; i < CALLOUT_WAITING_MAX + 10; i++) {
        (void)snprintf(address, sizeof address, "u%u@x.test", i);
        pending += ask(address) == CALLOUT_PENDING;
    }
    turn();
    assert_int_equal(pending, CALLOUT_WAITING_MAX);
    assert_int_equal(w.peer_count, CALLOUT_CONNECTIONS);
    say(0, "554 go away\r\n");
    assert_int_equal(w.answered, pending);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(TEST(yes_and_no_are_remembered_each_for_its_time),
          TEST(a_reply_that_is_neither_is_not_remembered),
          TEST(a_peer_in_trouble_is_left_alone_for_a_while),
          TEST(one_that_hangs_is_given_up_in_time),
          TEST(what_comes_before_it_is_asked_for_is_no_answer),
          TEST(a_question_that_is_forgotten_is_not_answered),
          TEST(a_transaction_has_so_many_recipients_and_no_more),
          TEST(with_too_many_that_wait_the_next_is_unsure))
