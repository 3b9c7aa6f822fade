/* The names to the scheduler's numbers. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "active.h"
#include "heap_bytes.h"
#include "mem.h"
#include "wire.h"

static struct active_msg *add(struct active *a, uint64_t n, uint64_t size)
{
    return active_add(a,
                      &(struct spool_message){.id = {n},
                                              .sender = SLICE("s@from.test"),
                                              .size = size,
                                              .rcpt_pending = 3,
                                              .rcpt_to_report = n == 2 ? 1 : 0},
                      SLICE(""), (struct mono){1}, (struct wall){2});
}

static void recipients_are_found_by_number_until_they_are_settled(void **state)
{
    struct active a;
    struct active_msg *m;

    (void)state;
    active_init(&a);
    m = add(&a, 1, 10);
    assert_ptr_equal(active_find(&a, (struct msg_id){1}), m);
    assert_null(active_find(&a, (struct msg_id){2}));
    for (uint32_t n = 2; n <= 200; n += 2) {
        active_add_rcpt(
            m,
            &(struct spool_rcpt){
                .n = n, .address = SLICE("a@b"), .orcpt = SLICE("rfc822;x"), .notify = n},
            STORED_ROUTE_STALE);
    }
    for (uint32_t n = 0; n <= 202; n++) {
        struct active_rcpt *r = active_find_rcpt(m, n);

        if (n % 2 == 1 || n < 2 || n > 200) {
            assert_null(r);
            continue;
        }
        assert_int_equal(r->notify, n);
        assert_string_equal(r->address, "a@b");
        assert_string_equal(active_rcpt_orcpt(r), "rfc822;x");
        active_settle_rcpt(m, r);
        assert_null(active_find_rcpt(m, n));
    }
    active_fini(&a);
}

/* A waiting message has two allocations, and one for each recipient. */
static void a_message_needs_few_bytes(void **state)
{
    enum { MESSAGES = 1000, MESSAGE_BYTES_MAX = 360, RCPT_BYTES_MAX = 40 };
    const struct spool_rcpt rcpt = {.n = 1, .address = SLICE("a@b"), .orcpt = SLICE("rfc822;x")};
    struct active a;
    size_t before;

    (void)state;
    active_init(&a);
    before = heap_bytes();
    for (uint64_t n = 1; n <= MESSAGES; n++) {
        (void)add(&a, n, 10);
    }
    assert_in_range((heap_bytes() - before) / MESSAGES, 1, MESSAGE_BYTES_MAX);
    before = heap_bytes();
    for (uint64_t n = 1; n <= MESSAGES; n++) {
        active_add_rcpt(active_find(&a, (struct msg_id){n}), &rcpt, STORED_ROUTE_OURS);
    }
    assert_in_range((heap_bytes() - before) / MESSAGES, 1, RCPT_BYTES_MAX);
    active_fini(&a);
}

static void settled_recipients_do_not_pile_up(void **state)
{
    struct active a;
    struct active_msg *m;

    (void)state;
    active_init(&a);
    m = add(&a, 1, 10);
    for (uint32_t n = 1; n <= 100000; n++) {
        active_add_rcpt(m, &(struct spool_rcpt){.n = n, .address = SLICE("a@b")},
                        STORED_ROUTE_OURS);
        m->rcpt_handed++;
        if (n > 10) {
            active_settle_rcpt(m, active_find_rcpt(m, n - 10));
        }
        assert_true(m->rcpt_handed <= m->rcpt_count);
    }
    assert_true(m->rcpt_size <= 64);
    assert_non_null(active_find_rcpt(m, 100000));
    active_fini(&a);
}

static void recipients_that_were_not_handed_out_stay_behind_those_that_were(void **state)
{
    struct active a;
    struct active_msg *m;

    (void)state;
    active_init(&a);
    m = add(&a, 1, 10);
    for (uint32_t n = 1; n <= 10; n++) {
        active_add_rcpt(m, &(struct spool_rcpt){.n = n, .address = SLICE("a@b")},
                        STORED_ROUTE_OURS);
    }
    m->rcpt_handed = 8;
    for (uint32_t n = 1; n <= 7; n++) {
        active_settle_rcpt(m, active_find_rcpt(m, n));
    }
    /* Drops the seven. */
    active_add_rcpt(m, &(struct spool_rcpt){.n = 11, .address = SLICE("a@b")}, STORED_ROUTE_OURS);
    assert_int_equal(m->rcpt_count, 4);
    assert_int_equal(m->rcpt_handed, 1);
    assert_int_equal(m->rcpts[m->rcpt_handed].n, 9);
    active_fini(&a);
}

static void content_is_kept_within_its_budget(void **state)
{
    static char bytes[ACTIVE_KEEP_MAX + 1];
    struct active a;
    struct active_msg *m[4], *large, *wrong;

    (void)state;
    active_init(&a);
    for (uint64_t i = 0; i < COUNT(m); i++) {
        m[i] = add(&a, i + 1, ACTIVE_KEEP_MAX);
        active_keep_content(&a, m[i], slice_of(bytes, ACTIVE_KEEP_MAX));
    }
    assert_non_null(m[1]->content);
    assert_null(m[3]->content);
    assert_true(a.content_bytes <= ACTIVE_CONTENT_MAX);
    for (size_t i = 0; i < COUNT(m); i++) {
        active_remove(&a, m[i]);
    }
    assert_int_equal(a.content_bytes, 0);
    large = add(&a, 9, sizeof bytes);
    active_keep_content(&a, large, slice_of(bytes, sizeof bytes));
    assert_null(large->content);
    wrong = add(&a, 10, 5);
    active_keep_content(&a, wrong, SLICE("four"));
    assert_null(wrong->content);
    active_fini(&a);
}

static int memory(size_t size, int seals)
{
    int fd = memfd_create("content", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* What could still be changed by the process that sent it is not what was stored. */
static void only_sealed_memory_of_the_right_size_is_passed_on(void **state)
{
    static const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    int sealed = memory(5000, all), open_end = memory(5000, all & ~F_SEAL_GROW);
    int writable = memory(5000, all & ~F_SEAL_WRITE), file = open("/dev/null", O_RDONLY);

    (void)state;
    assert_true(wire_fd_is_sealed(sealed, 5000));
    assert_false(wire_fd_is_sealed(sealed, 4999));
    assert_false(wire_fd_is_sealed(open_end, 5000));
    assert_false(wire_fd_is_sealed(writable, 5000));
    assert_false(wire_fd_is_sealed(file, 0));
    close(sealed);
    close(open_end);
    close(writable);
    close(file);
}

static void descriptors_are_kept_within_their_budgets(void **state)
{
    int fd = memory(1000, F_SEAL_SEAL), end;
    struct active_msg *m, *wrong;
    struct active a;

    (void)state;
    active_init(&a);
    for (uint64_t i = 0; i < ACTIVE_FDS_MAX + 10; i++) {
        m = add(&a, i + 1, 1010);
        active_keep_fd(&a, m, SLICE("Received: "), fd);
        assert_int_equal(m->content_fd >= 0, i < ACTIVE_FDS_MAX);
        assert_int_equal(m->content != NULL, i < ACTIVE_FDS_MAX);
    }
    assert_int_equal(a.fds, ACTIVE_FDS_MAX);
    assert_int_equal(a.fd_bytes, ACTIVE_FDS_MAX * 1000);
    for (uint64_t i = 0; i < ACTIVE_FDS_MAX + 10; i++) {
        active_remove(&a, active_find(&a, (struct msg_id){i + 1}));
    }
    assert_int_equal(a.fds + a.fd_bytes + a.content_bytes, 0);
    m = add(&a, 1, (uint64_t)ACTIVE_CONTENT_MAX + 11);
    active_keep_fd(&a, m, SLICE("Received: "), fd);
    assert_int_equal(m->content_fd, -1);
    wrong = add(&a, 2, 5);
    active_keep_fd(&a, wrong, SLICE("Received: "), fd);
    assert_int_equal(wrong->content_fd, -1);
    active_fini(&a);
    end = dup(fd); /* all but the one it was are closed */
    assert_int_equal(end, fd + 1);
    close(end);
    close(fd);
}

static void deliveries_carry_their_own_copies(void **state)
{
    uint32_t rcpts[] = {1, 2, 3};
    char dest[] = "there.test";
    struct active a;
    struct delivery *f;

    (void)state;
    active_init(&a);
    f = delivery_add(&a, 77, add(&a, 1, 10), 0, slice_string(dest), rcpts, COUNT(rcpts),
                     (struct mono){5});
    memset(rcpts, 0, sizeof rcpts);
    memset(dest, 'x', 5);
    assert_ptr_equal(delivery_find(&a, 77), f);
    assert_int_equal(f->rcpts[2], 3);
    assert_string_equal(f->dest, "there.test");
    f->inline_bytes = a.inline_bytes = 10;
    delivery_remove(&a, f);
    assert_int_equal(a.inline_bytes, 0);
    assert_null(delivery_find(&a, 77));
    active_fini(&a);
}

/* 't' a result is stored, 'l' it is taken out, 'd' its claim ends, 'e' all of it is delivered. */
static void what_happens_to_a_message_says_how_its_pass_ends(void **state)
{
    static const struct {
        const char *what;
        enum active_state want;
    } cases[] = {
        {"", ACTIVE_CLEAN},      {"t", ACTIVE_TOUCHED},  {"tt", ACTIVE_TOUCHED},
        {"l", ACTIVE_LEFT},      {"tl", ACTIVE_UNTRIED}, {"lt", ACTIVE_UNTRIED},
        {"d", ACTIVE_DROPPED},   {"td", ACTIVE_DROPPED}, {"ltd", ACTIVE_DROPPED},
        {"dlt", ACTIVE_DROPPED}, {"e", ACTIVE_ENDED},    {"le", ACTIVE_ENDED},
        {"ed", ACTIVE_ENDED},    {"etl", ACTIVE_ENDED},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct active a;
        struct active_msg *m;

        active_init(&a);
        m = add(&a, 1, 10);
        m->all_read = true;
        for (const char *at = cases[i].what; *at != '\0'; at++) {
            switch (*at) {
            case 't':
                active_touch(m);
                break;
            case 'l':
                active_leave(m);
                break;
            case 'd':
                active_drop(m);
                break;
            default:
                active_end(m);
            }
        }
        assert_int_equal(m->state, cases[i].want);
        assert_int_equal(active_is_dropped(m), cases[i].want == ACTIVE_DROPPED);
        assert_int_equal(active_is_clean(m),
                         cases[i].want == ACTIVE_CLEAN || cases[i].want == ACTIVE_LEFT);
        active_fini(&a);
    }
}

static void a_message_with_results_to_report_is_touched_from_the_start(void **state)
{
    struct active a;

    (void)state;
    active_init(&a);
    assert_int_equal(add(&a, 2, 10)->state, ACTIVE_TOUCHED);
    active_fini(&a);
}

UNIT_MAIN(cmocka_unit_test(what_happens_to_a_message_says_how_its_pass_ends),
          cmocka_unit_test(a_message_with_results_to_report_is_touched_from_the_start),
          cmocka_unit_test(recipients_are_found_by_number_until_they_are_settled),
          cmocka_unit_test(a_message_needs_few_bytes),
          cmocka_unit_test(settled_recipients_do_not_pile_up),
          cmocka_unit_test(recipients_that_were_not_handed_out_stay_behind_those_that_were),
          cmocka_unit_test(content_is_kept_within_its_budget),
          cmocka_unit_test(only_sealed_memory_of_the_right_size_is_passed_on),
          cmocka_unit_test(descriptors_are_kept_within_their_budgets),
          cmocka_unit_test(deliveries_carry_their_own_copies))
