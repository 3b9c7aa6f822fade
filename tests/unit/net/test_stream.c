#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "stream.h"
#include "tls_fixture.h"

#define TURNS_MAX 20000

/* One stream and what has happened to it, one letter for each event but the input itself. */
struct end {
    struct stream *s;
    struct buf got;
    struct buf out;
    char story[64];
    bool keep_input; /* leave it in the stream */
    bool free_on_input;
    int64_t renew_us; /* each input moves the deadline to so long from now; 0: it does not */
};

struct world {
    struct event_base *base;
    struct streams *streams;
    struct end a, b;
};

static void on_event(void *arg, struct stream *s, enum stream_event event)
{
    static const char letters[] = {
        [STREAM_CONNECTED] = 'c', [STREAM_SECURED] = 's', [STREAM_READABLE] = 'r',
        [STREAM_WRITABLE] = 'w',  [STREAM_END] = 'e',     [STREAM_DEADLINE] = 'd',
        [STREAM_FAILED] = 'f'};
    struct end *end = arg;
    size_t len = strlen(end->story);

    assert_ptr_equal(s, end->s);
    if (event != STREAM_READABLE && event != STREAM_WRITABLE && len + 1 < sizeof end->story) {
        end->story[len] = letters[event];
        end->story[len + 1] = '\0';
    }
    if (event == STREAM_READABLE) {
        assert_true(stream_input(s).len > 0);
    }
    if (event == STREAM_READABLE && end->renew_us > 0) {
        stream_set_deadline(s, mono_after(clock_mono(), end->renew_us));
    }
    if (!end->keep_input) {
        struct slice in = stream_input(s);
        assert_true(buf_add(&end->got, in));
        stream_consume(s, in.len);
    }
    if (event == STREAM_WRITABLE) {
        stream_flush(s, &end->out);
    }
    if (event == STREAM_READABLE && end->free_on_input) {
        stream_free(s);
        end->s = NULL;
    }
}

static void end_init(struct end *end)
{
    *end = (struct end){0};
    buf_init(&end->got, 32u << 20);
    buf_init(&end->out, 32u << 20);
}

static void world_open(struct world *w)
{
    int fds[2];

    w->base = event_base_new();
    w->streams = streams_new(w->base);
    end_init(&w->a);
    end_init(&w->b);
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    w->a.s = stream_new(w->streams, fds[0], on_event, &w->a);
    w->b.s = stream_new(w->streams, fds[1], on_event, &w->b);
}

static void world_close(struct world *w)
{
    stream_free(w->a.s);
    stream_free(w->b.s);
    streams_free(w->streams);
    buf_fini(&w->a.got);
    buf_fini(&w->a.out);
    buf_fini(&w->b.got);
    buf_fini(&w->b.out);
    event_base_free(w->base);
}

/* Turn the loop until nothing is ready. */
static void settle(struct world *w)
{
    for (int i = 0; i < 10; i++) {
        clock_forget();
        assert_true(event_base_loop(w->base, EVLOOP_NONBLOCK) >= 0);
    }
}

static void until_got(struct world *w, const struct end *end, size_t len)
{
    for (int i = 0; i < TURNS_MAX && buf_len(&end->got) < len; i++) {
        clock_forget();
        assert_true(event_base_loop(w->base, EVLOOP_NONBLOCK) >= 0);
    }
    assert_int_equal(buf_len(&end->got), len);
}

static void until_story(struct world *w, const struct end *end, const char *want)
{
    for (int i = 0; i < TURNS_MAX && strcmp(end->story, want) != 0; i++) {
        clock_forget();
        assert_true(event_base_loop(w->base, EVLOOP_ONCE) >= 0);
    }
    assert_string_equal(end->story, want);
}

static void say(struct end *end, const char *text)
{
    assert_true(buf_add_string(&end->out, text));
    stream_flush(end->s, &end->out);
}

static void bytes_go_both_ways_and_the_end_follows_them(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    say(&w.a, "EHLO a\r\n");
    say(&w.b, "220 b\r\n");
    stream_end_output(w.a.s);
    settle(&w);
    assert_string_equal(buf_cstr(&w.b.got), "EHLO a\r\n");
    assert_string_equal(buf_cstr(&w.a.got), "220 b\r\n");
    assert_string_equal(w.b.story, "e");
    say(&w.b, "221 bye\r\n"); /* half-closed: this way is still open */
    settle(&w);
    assert_string_equal(buf_cstr(&w.a.got), "220 b\r\n221 bye\r\n");
    assert_string_equal(w.a.story, "");
    world_close(&w);
}

static void fill(struct buf *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        assert_true(buf_add_byte(out, (char)(i * 31 + i / 251)));
    }
}

static void move_much(struct world *w)
{
    size_t len = 3000000;
    struct buf want;

    buf_init(&want, len);
    fill(&want, len);
    fill(&w->a.out, len);
    stream_flush(w->a.s, &w->a.out);
    assert_true(buf_len(&w->a.out) > 0); /* more than a socket takes at once */
    until_got(w, &w->b, len);
    assert_true(slice_equal(buf_slice(&w->b.got), buf_slice(&want)));
    buf_fini(&want);
}

static void more_than_the_socket_takes_follows_when_it_can(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    move_much(&w);
    world_close(&w);
}

static void a_paused_stream_does_not_read(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    stream_pause(w.b.s, true);
    say(&w.a, "one");
    stream_end_output(w.a.s);
    settle(&w);
    assert_int_equal(buf_len(&w.b.got), 0);
    assert_string_equal(w.b.story, "");
    stream_pause(w.b.s, false);
    settle(&w);
    assert_string_equal(buf_cstr(&w.b.got), "one");
    assert_string_equal(w.b.story, "e");
    world_close(&w);
}

static void a_pause_that_watches_announces_nothing_but_the_end(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    stream_pause_watching(w.b.s);
    say(&w.a, "one");
    settle(&w);
    say(&w.a, "two");
    settle(&w);
    assert_int_equal(buf_len(&w.b.got), 0);
    assert_string_equal(w.b.story, "");
    assert_true(slice_equal(stream_input(w.b.s), SLICE("onetwo")));
    stream_pause(w.b.s, true); /* now a plain one */
    say(&w.a, "three");
    stream_end_output(w.a.s);
    settle(&w);
    assert_string_equal(w.b.story, "");
    stream_pause_watching(w.b.s);
    settle(&w);
    assert_string_equal(w.b.story, "e");
    world_close(&w);
}

static void a_pause_that_watches_keeps_a_bounded_amount(void **unused)
{
    struct world w;
    size_t kept;

    (void)unused;
    world_open(&w);
    stream_pause_watching(w.b.s);
    fill(&w.a.out, 3000000);
    stream_flush(w.a.s, &w.a.out);
    settle(&w);
    kept = stream_input(w.b.s).len;
    assert_in_range(kept, STREAM_INPUT_MAX, STREAM_READ_MAX);
    stream_consume(w.b.s, kept);
    stream_pause(w.b.s, false);
    until_got(&w, &w.b, 3000000 - kept);
    world_close(&w);
}

static void input_that_is_not_consumed_is_kept_and_stops_the_reading(void **unused)
{
    struct world w;
    size_t kept;

    (void)unused;
    world_open(&w);
    w.b.keep_input = true;
    fill(&w.a.out, 3000000);
    stream_flush(w.a.s, &w.a.out);
    settle(&w);
    kept = stream_input(w.b.s).len;
    assert_in_range(kept, STREAM_INPUT_MAX, STREAM_READ_MAX);
    settle(&w);
    assert_int_equal(stream_input(w.b.s).len, kept);
    w.b.keep_input = false;
    assert_true(buf_add(&w.b.got, stream_input(w.b.s)));
    stream_consume(w.b.s, kept);
    until_got(&w, &w.b, 3000000);
    world_close(&w);
}

static void a_stream_may_be_freed_in_its_callback(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    w.b.free_on_input = true;
    say(&w.a, "x");
    until_story(&w, &w.a, "e");
    assert_null(w.b.s);
    world_close(&w);
}

static void sending_to_somebody_who_is_gone_fails_from_the_loop(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    say(&w.b, "421 bye\r\n");
    stream_free(w.b.s);
    w.b.s = NULL;
    say(&w.a, "MAIL FROM:<>\r\n");
    assert_string_equal(w.a.story, ""); /* not from within stream_flush */
    until_story(&w, &w.a, "f");
    assert_string_equal(buf_cstr(&w.a.got), "421 bye\r\n"); /* the last words were saved */
    assert_int_equal(stream_errno(w.a.s), EPIPE);
    assert_string_equal(stream_error(w.a.s), "Broken pipe");
    assert_int_equal(stream_failed_in(w.a.s), STREAM_STATE_OPEN);
    assert_int_equal(stream_send(w.a.s, SLICE("more")), 0);
    world_close(&w);
}

static void deadlines_come_in_order_and_moving_one_away_holds(void **unused)
{
    struct world w;
    struct mono now;

    (void)unused;
    world_open(&w);
    now = clock_mono();
    stream_set_deadline(w.a.s, mono_after(now, 5 * US_PER_S));
    stream_set_deadline(w.b.s, mono_after(now, 10 * US_PER_S));
    stream_set_deadline(w.a.s, mono_after(now, 3600 * US_PER_S));
    clock_set_offset(11 * US_PER_S);
    clock_update();
    streams_clock_moved(w.streams);
    until_story(&w, &w.b, "d");
    assert_string_equal(w.a.story, "");
    stream_set_deadline(w.b.s, mono_after(now, 20 * US_PER_S));
    stream_set_deadline(w.b.s, MONO_NEVER);
    clock_set_offset(3601 * US_PER_S);
    clock_update();
    streams_clock_moved(w.streams);
    until_story(&w, &w.a, "d");
    assert_string_equal(w.b.story, "d");
    world_close(&w);
}

/* Runs after the sockets were asked, and before the deadlines are judged. */
static void say_hi(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;

    (void)fd;
    (void)what;
    assert_int_equal(stream_send(w->b.s, SLICE("hi")), 2);
}

/* As after a stop of this process: the deadline has passed, the peer has done its part. */
static void stand_still(struct world *w, int64_t us, bool peer_speaks)
{
    static const struct timeval at_once;

    clock_set_offset(clock_offset() + us);
    clock_update();
    if (peer_speaks) {
        assert_int_equal(event_base_once(w->base, -1, EV_TIMEOUT, say_hi, w, &at_once), 0);
    }
    streams_clock_moved(w->streams);
}

static void what_a_peer_did_in_time_counts_before_the_deadline(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    w.a.renew_us = 60 * US_PER_S;
    stream_set_deadline(w.a.s, mono_after(clock_mono(), 60 * US_PER_S));
    stand_still(&w, 61 * US_PER_S, true);
    until_got(&w, &w.a, 2);
    settle(&w);
    assert_string_equal(w.a.story, ""); /* the input gave it new time */
    w.a.renew_us = 0;
    stand_still(&w, 61 * US_PER_S, true);
    until_got(&w, &w.a, 4);
    until_story(&w, &w.a, "d"); /* this one did not */
    stream_set_deadline(w.a.s, mono_after(clock_mono(), 60 * US_PER_S));
    stand_still(&w, 61 * US_PER_S, false);
    until_story(&w, &w.a, "dd");
    world_close(&w);
}

static void a_peer_that_never_stops_to_send_gains_no_time(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    stream_set_deadline(w.a.s, mono_after(clock_mono(), 60 * US_PER_S));
    stand_still(&w, 61 * US_PER_S, false);
    for (int i = 0; i < 1000 && w.a.story[0] == '\0'; i++) {
        (void)stream_send(w.b.s, SLICE("hi"));
        clock_forget();
        assert_true(event_base_loop(w.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
    }
    assert_string_equal(w.a.story, "d");
    world_close(&w);
}

static void a_late_stream_may_be_freed_or_given_time_meanwhile(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    stream_set_deadline(w.a.s, mono_after(clock_mono(), US_PER_S));
    stream_set_deadline(w.b.s, mono_after(clock_mono(), US_PER_S));
    stand_still(&w, 2 * US_PER_S, false);
    assert_true(event_base_loop(w.base, EVLOOP_ONCE) >= 0); /* both are found late */
    stream_free(w.a.s);
    w.a.s = NULL;
    stream_set_deadline(w.b.s, mono_after(clock_mono(), 3600 * US_PER_S));
    settle(&w);
    assert_string_equal(w.b.story, "e"); /* the other end was closed */
    world_close(&w);
}

static void a_finished_stream_delivers_its_last_words_to_a_talker(void **unused)
{
    struct world w;

    (void)unused;
    world_open(&w);
    say(&w.b, "421 go away\r\n");
    fill(&w.a.out, 500000);
    stream_flush(w.a.s, &w.a.out);
    stream_finish(w.b.s);
    w.b.s = NULL;
    until_story(&w, &w.a, "e");
    assert_string_equal(buf_cstr(&w.a.got), "421 go away\r\n");
    for (int i = 0; i < TURNS_MAX && buf_len(&w.a.out) > 0; i++) {
        settle(&w);
    }
    assert_int_equal(buf_len(&w.a.out), 0); /* it was read and thrown away */
    stream_free(w.a.s);
    w.a.s = NULL;
    settle(&w);
    world_close(&w); /* nothing is left over: the leak checker looks */
}

/* A listener on the loopback whose connections nobody accepts. */
static int listen_loopback(struct sockaddr_in *ret_addr)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *ret_addr;

    *ret_addr =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_return_code(bind(fd, (struct sockaddr *)ret_addr, len), 0);
    assert_return_code(listen(fd, 5), 0);
    assert_return_code(getsockname(fd, (struct sockaddr *)ret_addr, &len), 0);
    return fd;
}

static void connecting_succeeds_from_the_address_asked_for(void **unused)
{
    struct sockaddr_in to,
        from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1)}, seen;
    socklen_t len = sizeof seen;
    int listener = listen_loopback(&to), fd;
    struct world w;

    (void)unused;
    world_open(&w);
    stream_free(w.a.s);
    w.a.s = stream_connect(w.streams, (struct sockaddr *)&to, sizeof to, (struct sockaddr *)&from,
                           sizeof from, on_event, &w.a);
    until_story(&w, &w.a, "c");
    fd = accept(listener, (struct sockaddr *)&seen, &len);
    assert_return_code(fd, 0);
    assert_int_equal(seen.sin_addr.s_addr, from.sin_addr.s_addr);
    say(&w.a, "hello");
    (void)close(fd);
    (void)close(listener);
    world_close(&w);
}

static void connecting_to_nobody_fails_with_a_reason(void **unused)
{
    struct sockaddr_in to, nobody = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    int listener = listen_loopback(&to);
    struct world w;

    (void)unused;
    (void)close(listener);
    world_open(&w);
    stream_free(w.a.s);
    stream_free(w.b.s);
    w.a.s = stream_connect(w.streams, (struct sockaddr *)&to, sizeof to, NULL, 0, on_event, &w.a);
    w.b.s = stream_connect(w.streams, (struct sockaddr *)&to, sizeof to, (struct sockaddr *)&nobody,
                           sizeof nobody, on_event, &w.b);
    assert_string_equal(w.b.story, ""); /* an error known at once is told from the loop, too */
    until_story(&w, &w.a, "f");
    until_story(&w, &w.b, "f");
    assert_string_equal(stream_error(w.a.s), "Connection refused");
    assert_int_equal(stream_errno(w.b.s), EADDRNOTAVAIL);
    assert_int_equal(stream_failed_in(w.b.s), STREAM_STATE_CONNECTING);
    world_close(&w);
}

/* Both sides of `w` go over to TLS. */
static void secure(struct world *w, struct tls_context **ret_server,
                   struct tls_context **ret_client)
{
    static const char *const name = "mx.example.test";
    struct tls_peer peer = {.sni = name, .names = &name, .name_count = 1, .verify = true};
    struct buf error;

    buf_init(&error, 1000);
    *ret_server =
        tls_server_new(slice_string(fixture_certificate), slice_string(fixture_key), &error);
    *ret_client = tls_client_new(slice_string(fixture_authority), &error);
    stream_start_tls(w->a.s, *ret_client, &peer);
    stream_start_tls(w->b.s, *ret_server, NULL);
    until_story(w, &w->a, "s");
    until_story(w, &w->b, "s");
}

static void with_tls_all_is_as_without(void **unused)
{
    struct tls_context *server, *client;
    struct world w;

    (void)unused;
    world_open(&w);
    secure(&w, &server, &client);
    assert_int_equal(tls_trust(stream_tls(w.a.s)), TLS_VERIFIED);
    move_much(&w);
    w.b.keep_input = true;
    fill(&w.a.out, 3000000);
    stream_flush(w.a.s, &w.a.out);
    settle(&w);
    stream_pause(w.b.s, true);
    settle(&w);
    assert_in_range(stream_input(w.b.s).len, STREAM_INPUT_MAX, STREAM_READ_MAX);
    buf_clear(&w.b.got);
    w.b.keep_input = false;
    assert_true(buf_add(&w.b.got, stream_input(w.b.s)));
    stream_consume(w.b.s, buf_len(&w.b.got));
    stream_pause(w.b.s, false);
    until_got(&w, &w.b, 3000000);
    stream_end_output(w.a.s);
    until_story(&w, &w.b, "se");
    world_close(&w);
    tls_context_free(server);
    tls_context_free(client);
}

static void what_was_said_in_the_clear_before_tls_is_forgotten(void **unused)
{
    struct tls_context *server, *client;
    struct world w;

    (void)unused;
    world_open(&w);
    w.b.keep_input = true;
    say(&w.a, "injected");
    settle(&w);
    assert_int_equal(stream_input(w.b.s).len, 8);
    secure(&w, &server, &client);
    assert_int_equal(stream_input(w.b.s).len, 0);
    world_close(&w);
    tls_context_free(server);
    tls_context_free(client);
}

static void a_failed_handshake_says_so(void **unused)
{
    struct tls_context *server;
    struct buf error;
    struct world w;

    (void)unused;
    world_open(&w);
    buf_init(&error, 1000);
    server = tls_server_new(slice_string(fixture_certificate), slice_string(fixture_key), &error);
    stream_start_tls(w.b.s, server, NULL);
    say(&w.a, "EHLO without.tls\r\n");
    until_story(&w, &w.b, "f");
    assert_int_equal(stream_failed_in(w.b.s), STREAM_STATE_HANDSHAKE);
    assert_int_equal(stream_errno(w.b.s), 0);
    assert_true(strlen(stream_error(w.b.s)) > 0);
    world_close(&w);
    tls_context_free(server);
}

UNIT_MAIN(cmocka_unit_test(bytes_go_both_ways_and_the_end_follows_them),
          cmocka_unit_test(more_than_the_socket_takes_follows_when_it_can),
          cmocka_unit_test(a_paused_stream_does_not_read),
          cmocka_unit_test(a_pause_that_watches_announces_nothing_but_the_end),
          cmocka_unit_test(a_pause_that_watches_keeps_a_bounded_amount),
          cmocka_unit_test(input_that_is_not_consumed_is_kept_and_stops_the_reading),
          cmocka_unit_test(a_stream_may_be_freed_in_its_callback),
          cmocka_unit_test(sending_to_somebody_who_is_gone_fails_from_the_loop),
          cmocka_unit_test(deadlines_come_in_order_and_moving_one_away_holds),
          cmocka_unit_test(what_a_peer_did_in_time_counts_before_the_deadline),
          cmocka_unit_test(a_peer_that_never_stops_to_send_gains_no_time),
          cmocka_unit_test(a_late_stream_may_be_freed_or_given_time_meanwhile),
          cmocka_unit_test(a_finished_stream_delivers_its_last_words_to_a_talker),
          cmocka_unit_test(connecting_succeeds_from_the_address_asked_for),
          cmocka_unit_test(connecting_to_nobody_fails_with_a_reason),
          cmocka_unit_test(with_tls_all_is_as_without),
          cmocka_unit_test(what_was_said_in_the_clear_before_tls_is_forgotten),
          cmocka_unit_test(a_failed_handshake_says_so))
