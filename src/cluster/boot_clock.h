/*
 * Clocks of this room. boot_now is for leases and timeouts: its clock is never set, and runs while
 * the machine sleeps. wall_now is for ids, and for times that other machines read. Modules that are
 * tested in virtual time get the time as an argument and call neither.
 */
#ifndef CLUSTER_BOOT_CLOCK_H
#define CLUSTER_BOOT_CLOCK_H

#include <time.h>

#include "check.h"
#include "times.h"

static inline int64_t clock_us(clockid_t id)
{
    struct timespec t;

    CHECK(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

static inline struct mono boot_now(void)
{
    return (struct mono){clock_us(CLOCK_BOOTTIME)};
}

static inline struct wall wall_now(void)
{
    return (struct wall){clock_us(CLOCK_REALTIME)};
}

#endif
