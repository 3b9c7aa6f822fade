/*
 * The clocks of this room. By boot_now leases and limits of time run: it goes on while the machine
 * sleeps, and is never set. By wall_now ids are made, and times that other machines read. What is
 * tested in virtual time has the time passed in, and reads neither.
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
