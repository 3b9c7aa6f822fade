/*
 * The channel to the queue of one who delivers for it, and its end.
 */
#include "unit.h"

#include <sys/socket.h>
#include <unistd.h>

#include "mem.h"
#include "played_queue.h"
#include "worker.h"

static struct {
    struct worker worker;
    size_t frames, losses;
} site;

/* The queue wants to be forgotten, and nothing else. */
static bool on_frame(void *arg, const struct frame *frame)
{
    struct wire_forget forget;

    assert_ptr_equal(arg, &site);
    site.frames++;
    return frame->type == WIRE_FORGET && wire_get_forget(frame->body, &forget);
}

static void on_lost(void *arg)
{
    assert_ptr_equal(arg, &site);
    assert_null(site.worker.queue);
    site.losses++;
}

static const struct worker_ops worker_ops = {.frame = on_frame, .lost = on_lost};

static int start_role(struct role *role)
{
    worker_init(&site.worker, role, &worker_ops, &site);
    return 0;
}

static void take_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    (void)role;
    worker_peer(&site.worker, peer, fd);
}

static void take_turn(struct role *role)
{
    (void)role;
    worker_tick(&site.worker, false);
}

static void end_role(struct role *role)
{
    (void)role;
    worker_fini(&site.worker);
}

static const struct role_ops ops = {
    .program = "smtp", .start = start_role, .peer = take_peer, .turn = take_turn, .end = end_role};

static int start(void **state)
{
    (void)state;
    site.frames = site.losses = 0;
    played_init(&ops);
    played_start();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    played_end();
    return 0;
}

static void a_new_queue_takes_the_place_of_the_old_one(void **state)
{
    (void)state;
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_await_other(&site.frames, 1);
    assert_int_equal(site.losses, 0);
    played_connect();
    assert_int_equal(site.losses, 1);
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_await_other(&site.frames, 2);
    assert_int_equal(site.losses, 1);
}

static void one_that_says_what_does_not_decode_is_lost(void **state)
{
    (void)state;
    wire_put_need_content(played.channel, 1);
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_await_other(&site.losses, 1);
    assert_true(played.lost);
    assert_null(site.worker.queue);
    played_connect();
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_await_other(&site.frames, 2); /* what was behind the bad one is not heard */
}

static void a_lease_comes_once_and_goes_with_its_queue(void **state)
{
    struct lease_page page;
    int fds[2];

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    assert_true(lease_holds(&site.worker.lease));
    wire_put_lease(played.channel, lease_page_share(&page));
    wire_put_forget(played.channel, &(struct wire_forget){0});
    played_await_other(&site.frames, 1);
    assert_false(lease_holds(&site.worker.lease));
    lease_page_set(&page, MONO_NEVER);
    assert_true(lease_holds(&site.worker.lease));
    lease_page_set(&page, (struct mono){0});
    played_connect(); /* of a queue process that has no lease */
    assert_int_equal(site.losses, 1);
    assert_true(lease_holds(&site.worker.lease));

    /* Two of them, none, and what is no page. */
    wire_put_lease(played.channel, lease_page_share(&page));
    wire_put_lease(played.channel, lease_page_share(&page));
    played_await_other(&site.losses, 2);
    played_connect();
    wire_put_lease(played.channel, -1);
    played_await_other(&site.losses, 3);
    played_connect();
    assert_return_code(pipe(fds), 0);
    assert_return_code(close(fds[1]), 0);
    wire_put_lease(played.channel, fds[0]);
    played_await_other(&site.losses, 4);
    played_connect();
    assert_int_equal(site.frames, 1);
    lease_page_fini(&page);
}

static void strangers_are_turned_away(void **state)
{
    struct wire_peer stranger = {.role = ROLE_RECEIVE, .index = 0, .count = 1};
    struct channel *queue = site.worker.queue;
    int fds[2];
    char byte;

    (void)state;
    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    worker_peer(&site.worker, &stranger, fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    assert_return_code(close(fds[0]), 0);
    assert_ptr_equal(site.worker.queue, queue);
    assert_int_equal(site.losses, 0);
}

static void the_last_words_go_out_before_the_end(void **state)
{
    (void)state;
    played.role.stopping = true;
    worker_stop(&site.worker, 0);
    wire_put_need_content(site.worker.queue, 4711);
    worker_exit(&site.worker);
    assert_true(played.exited);
    played_settle();
    assert_int_equal(played.content_asked, 4711);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

UNIT_MAIN(TEST(a_new_queue_takes_the_place_of_the_old_one),
          TEST(one_that_says_what_does_not_decode_is_lost), TEST(strangers_are_turned_away),
          TEST(a_lease_comes_once_and_goes_with_its_queue),
          TEST(the_last_words_go_out_before_the_end))
