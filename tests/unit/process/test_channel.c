#include "unit.h"

#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel.h"
#include "frame.h"
#include "mem.h"

/* A channel on one end of a pair; the test holds the other end as a bare socket. */
struct fixture {
    struct event_base *base;
    struct channel *ch;
    int other;
    unsigned ready; /* how often the callback came */
};

static void on_ready(void *arg, struct channel *ch)
{
    struct fixture *f = arg;

    (void)ch;
    f->ready++;
    assert_int_equal(event_base_loopbreak(f->base), 0);
}

static int set_up(void **state)
{
    struct fixture *f = mem_new(sizeof *f);
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    f->base = event_base_new();
    f->ch = channel_new(f->base, fds[0], on_ready, f);
    f->other = fds[1];
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    channel_free(f->ch);
    event_base_free(f->base);
    if (f->other >= 0) {
        close(f->other);
    }
    mem_free(f);
    return 0;
}

static void send_bytes(struct fixture *f, const void *bytes, size_t len)
{
    assert_int_equal(send(f->other, bytes, len, MSG_NOSIGNAL), len);
}

/* Bytes with `count` descriptors attached. */
static void send_with_fds(struct fixture *f, const void *bytes, size_t len, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 200)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (size_t i = 0; i < count; i++) {
        memcpy(CMSG_DATA(c) + i * sizeof f->other, &f->other, sizeof f->other);
    }
    assert_int_equal(sendmsg(f->other, &m, 0), len);
}

#define HELLO "\5\0\0\0\7\0\0\0hello"
static const char hello[] = HELLO;

static void a_frame_arrives_in_any_split(void **state)
{
    struct fixture *f = *state;
    struct frame frame;
    size_t len = sizeof HELLO - 1;

    for (size_t cut = 1; cut < len; cut++) {
        send_bytes(f, hello, cut);
        assert_int_equal(channel_next(f->ch, &frame), CHANNEL_EMPTY);
        send_bytes(f, hello + cut, len - cut);
        assert_int_equal(channel_next(f->ch, &frame), CHANNEL_FRAME);
        assert_int_equal(frame.type, 7);
        assert_int_equal(frame.fd, -1);
        assert_true(slice_equal(frame.body, SLICE("hello")));
        assert_int_equal(channel_next(f->ch, &frame), CHANNEL_EMPTY);
    }
}

static void frames_that_came_before_the_end_still_count(void **state)
{
    struct fixture *f = *state;
    struct frame frame;

    send_bytes(f, HELLO HELLO "\5\0\0", 2 * (sizeof HELLO - 1) + 3);
    close(f->other);
    f->other = -1;
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_FRAME);
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_FRAME);
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_CLOSED);
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_CLOSED);
}

static void a_hostile_header_ends_it(void **state)
{
    static const struct slice headers[] = {
        {"\377\377\377\377\1\0\0\0", 8}, /* longer than CHANNEL_BODY_MAX */
        {"\1\0\0\2\1\0\0\0", 8},         /* by one byte */
        {"\0\0\0\0\1\0\2\0", 8},         /* two descriptors */
        {"\0\0\0\0\1\0\1\0", 8},         /* one that has not come */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(headers); i++) {
        void *inner;
        struct fixture *f;
        struct frame frame;

        set_up(&inner);
        f = inner;
        send_bytes(f, headers[i].ptr, headers[i].len);
        assert_int_equal(channel_next(f->ch, &frame), CHANNEL_CLOSED);
        tear_down(&inner);
    }
}

static void descriptors_nobody_claims_end_it(void **state)
{
    struct fixture *f = *state;
    struct frame frame;
    enum channel_event event = CHANNEL_FRAME;

    /* More than a channel holds, a few with each harmless frame. */
    for (unsigned i = 0; i < 10 && event != CHANNEL_CLOSED; i++) {
        send_with_fds(f, HELLO, sizeof HELLO - 1, 30);
        event = channel_next(f->ch, &frame);
    }
    for (unsigned i = 0; i < 10 && event != CHANNEL_CLOSED; i++) {
        event = channel_next(f->ch, &frame);
    }
    assert_int_equal(event, CHANNEL_CLOSED);
}

static void a_descriptor_comes_with_its_frame(void **state)
{
    struct fixture *f = *state;
    struct channel *other = channel_new(f->base, dup(f->other), on_ready, f);
    struct frame frame;
    char text[4] = "";

    for (unsigned i = 0; i < 3; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC);

        assert_int_equal(pwrite(fd, &(char){(char)('a' + i)}, 1, 0), 1);
        frame_put_u32(channel_begin(f->ch, 1), i);
        channel_end(f->ch, -1);
        frame_put_u32(channel_begin(f->ch, 2), i);
        channel_end(f->ch, fd);
    }
    channel_flush_all();
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(channel_next(other, &frame), CHANNEL_FRAME);
        assert_int_equal(frame.type, i % 2 + 1);
        assert_int_equal(frame.fd >= 0, i % 2 == 1);
        if (frame.fd >= 0) {
            assert_int_equal(pread(frame.fd, text, 1, 0), 1);
            assert_int_equal(text[0], 'a' + (int)i / 2);
            assert_int_equal(fcntl(frame.fd, F_GETFD), FD_CLOEXEC);
            close(frame.fd);
        }
    }
    assert_int_equal(channel_next(other, &frame), CHANNEL_EMPTY);
    channel_free(other);
}

/* Far more than a socket holds: what does not fit waits, and goes when the other side reads. */
static void output_waits_for_a_slow_reader(void **state)
{
    enum { SIZE = 3 << 20 };
    struct fixture *f = *state;
    struct channel *other = channel_new(f->base, dup(f->other), on_ready, f);
    struct buf *body = channel_begin(f->ch, 9);
    struct frame frame;
    enum channel_event event = CHANNEL_EMPTY;

    memset(buf_room(body, SIZE), 'x', SIZE);
    buf_grew(body, SIZE);
    channel_end(f->ch, -1);
    channel_flush_all();
    assert_true(channel_waiting(f->ch) > 0);
    for (unsigned i = 0; i < 1000 && event == CHANNEL_EMPTY; i++) {
        event = channel_next(other, &frame);
        event_base_loop(f->base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(event, CHANNEL_FRAME);
    assert_int_equal(frame.body.len, SIZE);
    assert_int_equal(frame.body.ptr[SIZE - 1], 'x');
    assert_int_equal(channel_waiting(f->ch), 0);
    channel_free(other);
}

static void a_paused_channel_reads_nothing(void **state)
{
    struct fixture *f = *state;
    struct frame frame;

    channel_pause(f->ch, true);
    send_bytes(f, HELLO, sizeof HELLO - 1);
    event_base_loop(f->base, EVLOOP_NONBLOCK);
    assert_int_equal(f->ready, 0);
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_EMPTY);
    channel_pause(f->ch, false);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->ready, 1);
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_FRAME);
}

static void writing_to_nobody_is_learnt_by_reading(void **state)
{
    struct fixture *f = *state;
    struct frame frame;

    close(f->other);
    f->other = -1;
    (void)channel_begin(f->ch, 1);
    channel_end(f->ch, -1);
    channel_flush_all();
    assert_int_equal(channel_next(f->ch, &frame), CHANNEL_CLOSED);
    assert_false(channel_drain(f->ch, 10));
}

static void waiting_for_a_frame_has_an_end(void **state)
{
    struct fixture *f = *state;
    struct frame frame;

    assert_int_equal(channel_wait(f->ch, 1, &frame), CHANNEL_EMPTY);
    send_bytes(f, HELLO, sizeof HELLO - 1);
    assert_int_equal(channel_wait(f->ch, 1000, &frame), CHANNEL_FRAME);
}

#define CHANNEL_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(CHANNEL_TEST(a_frame_arrives_in_any_split),
          CHANNEL_TEST(frames_that_came_before_the_end_still_count),
          cmocka_unit_test(a_hostile_header_ends_it),
          CHANNEL_TEST(descriptors_nobody_claims_end_it),
          CHANNEL_TEST(a_descriptor_comes_with_its_frame),
          CHANNEL_TEST(output_waits_for_a_slow_reader),
          CHANNEL_TEST(a_paused_channel_reads_nothing),
          CHANNEL_TEST(writing_to_nobody_is_learnt_by_reading),
          CHANNEL_TEST(waiting_for_a_frame_has_an_end))
