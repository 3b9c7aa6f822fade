/*
 * The clock of this room, by which leases and limits of time run: it goes on while the machine
 * sleeps, and is never set. What is tested in virtual time has the time passed in, and does not
 * read it.
 */
#ifndef CLUSTER_BOOT_CLOCK_H
#define CLUSTER_BOOT_CLOCK_H

#include <time.h>

#include "check.h"
#include "times.h"

static inline struct mono boot_now(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
    return (struct mono){(int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000};
}

#endif
