#include "clock.h"

#include <time.h>

#include "check.h"

static int64_t offset_us;
static int64_t step_us;
static struct mono mono_now; /* 0: both clocks must be read */
static struct wall wall_now;
static bool standing;
static struct mono mono_stood; /* times without the offset while the clocks are stopped */
static struct wall wall_stood;

static int64_t read_clock(clockid_t id)
{
    struct timespec t;

    CHECK(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

struct mono clock_mono_now(void)
{
    return (struct mono){us_add(standing ? mono_stood.us : read_clock(CLOCK_BOOTTIME), offset_us)};
}

void clock_update(void)
{
    mono_now = clock_mono_now();
    wall_now.us =
        us_add(standing ? wall_stood.us : read_clock(CLOCK_REALTIME), offset_us) + step_us;
}

void clock_stand(void)
{
    mono_stood.us = read_clock(CLOCK_BOOTTIME);
    wall_stood.us = read_clock(CLOCK_REALTIME);
    standing = true;
}

void clock_forget(void)
{
    mono_now.us = 0;
}

struct mono clock_mono(void)
{
    if (mono_now.us == 0) {
        clock_update();
    }
    return mono_now;
}

struct wall clock_wall(void)
{
    if (mono_now.us == 0) {
        clock_update();
    }
    return wall_now;
}

void clock_set_step(int64_t step)
{
    step_us = step;
}

void clock_set_offset(int64_t offset)
{
    CHECK(offset >= 0);
    offset_us = offset;
}

int64_t clock_offset(void)
{
    return offset_us;
}

int clock_zone(struct wall t)
{
    time_t seconds = (time_t)us_seconds(t.us);
    struct tm local;

    return localtime_r(&seconds, &local) == NULL ? 0 : (int)local.tm_gmtoff;
}
