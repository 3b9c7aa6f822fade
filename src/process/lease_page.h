/*
 * Until when this node may deliver: one time in a page of memory, which the queue process writes
 * and the processes that deliver can only read.
 *
 *     queue:      lease_page_make -> lease_page_share, to each worker -> lease_page_set, again
 *                                                                        and again
 *     a worker:   lease_page_take -> lease_holds, directly before what can't be undone
 *
 * A node of several on one spool delivers the mail of a partition only as long as the others know
 * it to be the partition's owner: while its lease holds. The clock is that of intervals (clock.h),
 * and each look reads it anew: a process that has stood still since its turn began sees that its
 * time is over. A page says nothing of what is done right after the look.
 *
 * On a machine of its own the node needs no lease and there is no page: an empty struct, whose
 * lease holds for ever, at the cost of one comparison.
 *
 * The page is a memfd that is sealed when it is made: its size is fixed, and what is written comes
 * through the mapping that the queue process has already. So a process that has the descriptor can
 * read the time, and nothing else: neither write it, nor cut the page away from under the others.
 * When the queue process is gone, the last time stays, and is over soon.
 */
#ifndef PROCESS_LEASE_PAGE_H
#define PROCESS_LEASE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "times.h"

/* {0}: there is no page. Fields are private to lease_page.c. */
struct lease_page {
    _Atomic int64_t *until_us; /* mapped; NULL: none */
    bool is_ours;              /* made here: `fd` is its descriptor */
    int fd;
};

/* Make a page, whose lease does not hold yet. 0 or negative errno. */
int lease_page_make(struct lease_page *ret_page);

/* The lease of a page that was made here holds until then, and may end earlier than was said. */
void lease_page_set(struct lease_page *page, struct mono until);

/* A descriptor of it for another process, the caller's; or negative errno. */
int lease_page_share(const struct lease_page *page);

/* The page of a descriptor from another process (taken, whatever comes of it). False, and *ret_page
 * as it was, when it is not one that was made by lease_page_make. */
bool lease_page_take(int fd, struct lease_page *ret_page);

/* The struct is empty then. */
void lease_page_fini(struct lease_page *page);

/* Is there a page? */
static inline bool lease_page_exists(const struct lease_page *page)
{
    return page->until_us != NULL;
}

/* Does the lease of this page hold at this moment? */
bool lease_page_holds(const struct lease_page *page);

/* The same where there may be no page. */
static inline bool lease_holds(const struct lease_page *page)
{
    return !lease_page_exists(page) || lease_page_holds(page);
}

#endif
