/*
 * The end of this node's lease: one time in a page of memory, which the queue process writes and
 * the delivering processes can only read.
 *
 *     queue:      lease_page_make -> lease_page_share, to each worker -> lease_page_set, again
 *                                                                        and again
 *     a worker:   lease_page_take -> lease_holds, directly before a step that can't be undone
 *
 * A node of a cluster delivers the mail of a partition only while the other nodes respect it as the
 * owner: until its lease is over. The time is that of the monotonic clock (clock.h), and each check
 * reads the clock again, so that a process that has stood still since its turn began notices the
 * end of the lease. The page gives no guarantee for the time after the check.
 *
 * A node without a cluster needs no lease and has no page: the struct is empty, and its lease is
 * always valid, at the cost of one comparison.
 *
 * The page is a memfd that is sealed when it is made. Its size is fixed, and only the mapping of
 * the queue process can write. A process with the descriptor can read the time, but neither write
 * it nor truncate the page for others. If the queue process dies, the last time stays and is soon
 * over.
 */
#ifndef PROCESS_LEASE_PAGE_H
#define PROCESS_LEASE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "times.h"

/* {0}: no page. All members are private to lease_page.c. */
struct lease_page {
    _Atomic int64_t *until_us; /* mapped; NULL: none */
    bool is_ours;              /* made by this process, with its descriptor in `fd` */
    int fd;
};

/* Makes a page whose lease is over. Returns 0 or negative errno. */
int lease_page_make(struct lease_page *ret_page);

/* Sets the end of the lease of a page made by this process; a later call may set an earlier
 * time. */
void lease_page_set(struct lease_page *page, struct mono until);

/* Returns a descriptor of the page for another process, or negative errno; the caller owns it. */
int lease_page_share(const struct lease_page *page);

/* Takes a descriptor from another process in any case, and maps its page. Returns false and leaves
 * *ret_page if lease_page_make has not made the page. */
bool lease_page_take(int fd, struct lease_page *ret_page);

/* Frees the page; the struct is empty afterwards. */
void lease_page_fini(struct lease_page *page);

/* Is there a page? */
static inline bool lease_page_exists(const struct lease_page *page)
{
    return page->until_us != NULL;
}

/* Is the lease of this page valid now? */
bool lease_page_holds(const struct lease_page *page);

/* Is the lease valid now, or is there no page? */
static inline bool lease_holds(const struct lease_page *page)
{
    return !lease_page_exists(page) || lease_page_holds(page);
}

#endif
