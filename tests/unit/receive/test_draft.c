#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "draft.h"
#include "mem.h"

static bool add_rcpt(struct draft *d, const char *address, const char *orcpt, uint32_t notify)
{
    return draft_add_rcpt(d,
                          &(struct wire_rcpt){.address = slice_string(address),
                                              .orcpt = slice_string(orcpt),
                                              .notify = notify},
                          false);
}

static void never(void *arg, struct channel *ch)
{
    (void)arg;
    (void)ch;
}

/* Submit `d` through a channel and decode what arrives. The channels stay open in `ends`. */
static struct wire_submit pass(struct event_base *base, struct draft *d, struct channel *ends[2],
                               struct wire_rcpt **ret_rcpts, int *ret_fd)
{
    struct wire_submit m = {.token = 7, .client = SLICE("c"), .pid = 9, .origin = SLICE("o")}, got;
    struct frame frame;
    int fds[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ends[0] = channel_new(base, fds[0], never, NULL);
    ends[1] = channel_new(base, fds[1], never, NULL);
    draft_submit(d, ends[0], &m);
    assert_true(channel_drain(ends[0], 1000));
    assert_int_equal(channel_wait(ends[1], 1000, &frame), CHANNEL_FRAME);
    assert_true(wire_get_submit(frame.body, &got, ret_rcpts));
    *ret_fd = frame.fd;
    return got;
}

static void a_draft_arrives_as_it_was_written(void **unused)
{
    struct event_base *base = event_base_new();
    struct draft_budget budget = {.max = 100000};
    struct channel *ends[2];
    struct wire_rcpt *rcpts;
    struct wire_submit m;
    struct draft d;
    int fd;

    (void)unused;
    draft_init(&d, &budget, 1000);
    assert_true(draft_begin(&d, SLICE("s@a.test"), SLICE("env+2Did")));
    assert_int_equal(draft_first_rcpt(&d).len, 0);
    assert_true(add_rcpt(&d, "one@b.test", "rfc822;x@y", NOTIFY_NEVER));
    assert_true(add_rcpt(&d, "two@b.test", "", NOTIFY_DEFAULT));
    assert_true(slice_equal(draft_sender(&d), SLICE("s@a.test")));
    assert_true(slice_equal(draft_first_rcpt(&d), SLICE("one@b.test")));
    assert_true(draft_add_content(&d, SLICE("Subject: x\r\n")));
    assert_true(draft_add_content(&d, SLICE("\r\nbody\r\n")));
    assert_true(draft_finish(&d));
    m = pass(base, &d, ends, &rcpts, &fd);
    assert_int_equal(fd, -1);
    assert_int_equal(m.token, 7);
    assert_int_equal(m.pid, 9);
    assert_true(slice_equal(m.sender, SLICE("s@a.test")));
    assert_true(slice_equal(m.envid, SLICE("env+2Did")));
    assert_int_equal(m.rcpt_count, 2);
    assert_true(slice_equal(rcpts[0].address, SLICE("one@b.test")));
    assert_true(slice_equal(rcpts[0].orcpt, SLICE("rfc822;x@y")));
    assert_int_equal(rcpts[0].notify, NOTIFY_NEVER);
    assert_true(slice_equal(rcpts[1].address, SLICE("two@b.test")));
    assert_true(slice_equal(m.content, SLICE("Subject: x\r\n\r\nbody\r\n")));
    assert_int_equal(m.fd_size, 0);
    assert_true(budget.used > 0); /* until it is dropped */
    draft_drop(&d);
    assert_int_equal(budget.used, 0);
    mem_free(rcpts);
    channel_free(ends[0]);
    channel_free(ends[1]);
    event_base_free(base);
}

static void large_content_travels_in_a_sealed_memfd(void **unused)
{
    static const size_t piece_sizes[] = {1, 7, 65535, 65536, 65537, 300000};
    struct event_base *base = event_base_new();
    size_t size = 300000;
    char *bytes = mem_new(size), *back = mem_new(size);

    (void)unused;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)(i * 31 + i / 251);
    }
    for (size_t k = 0; k < COUNT(piece_sizes); k++) {
        struct draft_budget budget = {.max = 1000000};
        struct channel *ends[2];
        struct wire_rcpt *rcpts;
        struct wire_submit m;
        struct draft d;
        int fd;

        draft_init(&d, &budget, 1000);
        assert_true(draft_begin(&d, SLICE(""), SLICE("")));
        assert_true(add_rcpt(&d, "one@b.test", "", 0));
        for (size_t at = 0; at < size; at += piece_sizes[k]) {
            size_t len = size - at < piece_sizes[k] ? size - at : piece_sizes[k];
            assert_true(draft_add_content(&d, slice_of(bytes + at, len)));
        }
        assert_true(draft_finish(&d));
        m = pass(base, &d, ends, &rcpts, &fd);
        assert_return_code(fd, 0);
        assert_int_equal(m.content.len, 0);
        assert_int_equal(m.fd_size, size);
        assert_int_equal(read(fd, back, size), size); /* from the beginning */
        assert_memory_equal(bytes, back, size);
        assert_int_equal(write(fd, "x", 1), -1);
        assert_int_equal(fcntl(fd, F_GET_SEALS),
                         F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
        (void)close(fd);
        mem_free(rcpts);
        draft_drop(&d);
        channel_free(ends[0]);
        channel_free(ends[1]);
    }
    mem_free(bytes);
    mem_free(back);
    event_base_free(base);
}

static void the_budget_is_shared_and_what_exceeds_it_fails_alone(void **unused)
{
    static char big[1000];
    struct draft_budget budget = {.max = 1500};
    struct draft a, b;

    (void)unused;
    draft_init(&a, &budget, 100);
    draft_init(&b, &budget, 100);
    assert_true(draft_begin(&a, SLICE("a@x"), SLICE("")));
    assert_true(draft_begin(&b, SLICE("b@x"), SLICE("")));
    assert_true(add_rcpt(&b, "r@x", "", 0));
    assert_true(draft_add_content(&a, slice_of(big, sizeof big)));
    assert_false(draft_add_content(&b, slice_of(big, sizeof big)));
    assert_false(draft_add_content(&b, SLICE("x"))); /* it stays failed */
    assert_false(add_rcpt(&b, "r@x", "", 0));
    assert_false(draft_finish(&b));
    assert_int_equal(draft_sender(&b).len, 0);
    assert_int_equal(budget.used, a.charged);
    assert_true(draft_finish(&a));
    draft_drop(&a);
    assert_true(draft_begin(&b, SLICE("b@x"), SLICE(""))); /* there is room for another */
    assert_true(draft_add_content(&b, slice_of(big, sizeof big)));
    draft_drop(&b);
    draft_drop(&b);
    assert_int_equal(budget.used, 0);
}

/* Addresses that clients give twice, and addresses that only look alike. */
static void a_recipient_is_in_the_envelope_once(void **unused)
{
    static const struct {
        const char *address;
        bool ignores_case, added;
    } cases[] = {
        {"u@b.test", false, true},
        {"u@b.test", false, false},
        {"u@B.Test", false, false},
        {"U@b.test", false, true}, /* its site may distinguish them */
        {"U@B.TEST", false, false},
        {"u@loc.test", true, true},
        {"U@Loc.test", true, false},
        {"u@loc.test", false, false}, /* the same text, given by a filter */
        {"\"a@x\"@b.test", false, true},
        {"\"a@X\"@b.test", false, true},
        {"\"a@x\"@B.test", false, false},
        {"u@[IPv6:2001:DB8::1]", false, true},
        {"u@[ipv6:2001:db8::1]", false, false},
        {"u+x@b.test", false, true},
        {"u", false, true},
        {"u@b\xc3\xbc"
         "cher.test",
         false, true},
        {"u@XN--bcher-kva.test", false, false},
        {"j\xc3\xbcrg", false, true}, /* a local part */
        {"u@b.test.", false, true},   /* not a stored form: nothing is normalised here */
    };
    struct draft_budget budget = {.max = 100000};
    struct draft d;
    uint32_t count = 0;

    (void)unused;
    draft_init(&d, &budget, 1000);
    assert_true(draft_begin(&d, SLICE("u@b.test"), SLICE("")));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct wire_rcpt rcpt = {.address = slice_string(cases[i].address),
                                       .notify = i == 0 ? NOTIFY_NEVER : NOTIFY_SUCCESS};

        assert_true(draft_add_rcpt(&d, &rcpt, cases[i].ignores_case));
        count += cases[i].added;
        assert_int_equal(draft_rcpts(&d), count);
    }
    struct wire_rcpt *rcpts = draft_envelope(&d);
    assert_int_equal(rcpts[0].notify, NOTIFY_NEVER); /* the first one's */
    mem_free(rcpts);
    draft_drop(&d);
    assert_int_equal(budget.used, 0);
}

/* A recipient that was taken back, or that a filter removed, may come again. */
static void a_removed_recipient_can_be_added_again(void **unused)
{
    struct draft_budget budget = {.max = 1 << 24};
    struct draft d;
    char address[32];

    (void)unused;
    draft_init(&d, &budget, 1000);
    assert_true(draft_begin(&d, SLICE(""), SLICE("")));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++) {
            (void)snprintf(address, sizeof address, "u%d@b.test", i);
            assert_true(add_rcpt(&d, address, "", 0));
        }
        assert_int_equal(draft_rcpts(&d), 2000);
        draft_undo_rcpt(&d);
        assert_int_equal(draft_remove_rcpt(&d, SLICE("u5@b.test")), 1);
        assert_int_equal(draft_rcpts(&d), 1998);
    }
    draft_drop(&d);
    assert_int_equal(budget.used, 0);
}

UNIT_MAIN(cmocka_unit_test(a_recipient_is_in_the_envelope_once),
          cmocka_unit_test(a_removed_recipient_can_be_added_again),
          cmocka_unit_test(a_draft_arrives_as_it_was_written),
          cmocka_unit_test(large_content_travels_in_a_sealed_memfd),
          cmocka_unit_test(the_budget_is_shared_and_what_exceeds_it_fails_alone))
