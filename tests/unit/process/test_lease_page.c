#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "lease_page.h"

static int64_t offset_us; /* of the clock, which stands */

/* Without clock_update: the turn goes on, and so does the time. */
static void pass_time(int64_t us)
{
    offset_us += us;
    clock_set_offset(offset_us);
}

static void without_a_page_the_lease_holds_for_ever(void **state)
{
    struct lease_page none = {0};

    (void)state;
    assert_true(lease_holds(&none));
    lease_page_fini(&none); /* there is nothing to give back */
    assert_true(lease_holds(&none));
}

static void a_lease_holds_until_its_time_as_all_see_it(void **state)
{
    struct lease_page ours, theirs;
    struct mono turn;

    (void)state;
    clock_stand();
    turn = clock_mono();
    assert_int_equal(lease_page_make(&ours), 0);
    assert_true(lease_page_take(lease_page_share(&ours), &theirs));
    assert_false(lease_holds(&ours)); /* before the first word of the database */
    assert_false(lease_holds(&theirs));
    lease_page_set(&ours, mono_after(clock_mono_now(), 4 * US_PER_S));
    assert_true(lease_holds(&ours) && lease_holds(&theirs));
    pass_time(4 * US_PER_S - 1);
    assert_true(lease_holds(&ours) && lease_holds(&theirs));
    pass_time(1); /* in the same turn */
    assert_false(lease_holds(&ours) || lease_holds(&theirs));
    assert_int_equal(clock_mono().us, turn.us);
    lease_page_set(&ours, mono_after(clock_mono_now(), 1));
    assert_true(lease_holds(&theirs));
    lease_page_set(&ours, (struct mono){0}); /* it was taken away */
    assert_false(lease_holds(&theirs));
    lease_page_set(&ours, MONO_NEVER);
    lease_page_fini(&ours); /* the process is gone: what it said last stays */
    assert_true(lease_holds(&theirs));
    lease_page_fini(&theirs);
    assert_true(lease_holds(&theirs));
}

/* As an attacker in a process that delivers would. */
static void who_has_the_descriptor_can_only_read(void **state)
{
    static const char forged[8] = "forged!";
    struct lease_page page;
    pid_t pid;
    int fd, status;

    (void)state;
    assert_int_equal(lease_page_make(&page), 0);
    fd = lease_page_share(&page);
    assert_true(fd >= 0);
    assert_ptr_equal(mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(fd, forged, sizeof forged, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(ftruncate(fd, 1 << 20), -1);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    pid = fork();
    if (pid == 0) { /* the mapping can't be made writable, either */
        void *at = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);

        _exit(at != MAP_FAILED && mprotect(at, 8, PROT_READ | PROT_WRITE) == -1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(lease_holds(&page));
    lease_page_set(&page, MONO_NEVER); /* who made it goes on writing */
    assert_true(lease_holds(&page));
    assert_return_code(close(fd), 0);
    lease_page_fini(&page);
}

static void what_is_no_page_is_refused(void **state)
{
    struct lease_page page = {0};
    int fds[2], fd;

    (void)state;
    assert_return_code(pipe(fds), 0);
    assert_false(lease_page_take(fds[0], &page));
    assert_int_equal(fcntl(fds[0], F_GETFD), -1); /* it was taken all the same */
    assert_return_code(close(fds[1]), 0);
    fd = open("/proc/self/exe", O_RDONLY);
    assert_true(fd >= 0);
    assert_false(lease_page_take(fd, &page));
    for (unsigned i = 0; i < 3; i++) {
        static const int sizes[] = {0, 4096, 8};

        fd = memfd_create("page", MFD_ALLOW_SEALING);
        assert_return_code(ftruncate(fd, sizes[i]), 0);
        if (i < 2) { /* another size; the last one can be cut away under its reader */
            assert_return_code(
                fcntl(fd, F_ADD_SEALS,
                      F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                0);
        }
        assert_false(lease_page_take(fd, &page));
    }
    assert_true(lease_holds(&page)); /* as it was */
}

UNIT_MAIN(cmocka_unit_test(without_a_page_the_lease_holds_for_ever),
          cmocka_unit_test(a_lease_holds_until_its_time_as_all_see_it),
          cmocka_unit_test(who_has_the_descriptor_can_only_read),
          cmocka_unit_test(what_is_no_page_is_refused))
