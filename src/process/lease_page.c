#include "lease_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"

/* Seals that a receiver of the descriptor requires. F_SEAL_FUTURE_WRITE, in the kernel since 5.1,
 * forbids writing except through earlier mappings. */
#define SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

typedef _Atomic int64_t page_time;

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && sizeof(page_time) == sizeof(int64_t),
               "processes share it, and some can only read");

int lease_page_make(struct lease_page *ret_page)
{
    int fd = memfd_create("lease", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;
    void *at = MAP_FAILED;

    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, sizeof(page_time)) == 0) {
        at = mmap(NULL, sizeof(page_time), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (at == MAP_FAILED || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        rc = -errno;
        if (at != MAP_FAILED) {
            (void)munmap(at, sizeof(page_time));
        }
        (void)close(fd); /* nothing was written */
        return rc;
    }
    *ret_page = (struct lease_page){.until_us = at, .is_ours = true, .fd = fd};
    return 0;
}

void lease_page_set(struct lease_page *page, struct mono until)
{
    CHECK(page->is_ours);
    atomic_store_explicit(page->until_us, until.us, memory_order_relaxed);
}

int lease_page_share(const struct lease_page *page)
{
    int fd;

    CHECK(page->is_ours);
    fd = fcntl(page->fd, F_DUPFD_CLOEXEC, 0);
    return fd >= 0 ? fd : -errno;
}

static bool is_page(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
           st.st_size == (off_t)sizeof(page_time);
}

bool lease_page_take(int fd, struct lease_page *ret_page)
{
    void *at =
        is_page(fd) ? mmap(NULL, sizeof(page_time), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    (void)close(fd); /* the mapping stays */
    if (at == MAP_FAILED) {
        return false;
    }
    *ret_page = (struct lease_page){.until_us = at};
    return true;
}

void lease_page_fini(struct lease_page *page)
{
    if (page->until_us != NULL) {
        (void)munmap((void *)page->until_us, sizeof(page_time)); /* our own */
    }
    if (page->is_ours) {
        (void)close(page->fd); /* memory */
    }
    *page = (struct lease_page){0};
}

bool lease_page_holds(const struct lease_page *page)
{
    struct mono until = {atomic_load_explicit(page->until_us, memory_order_relaxed)};

    return !mono_reached(until, clock_mono_now());
}
