#include "pace.h"

#include <math.h>

/* What a weight of 1/2 every PACE_HALF_US adds up to: PACE_HALF_US / ln 2. */
#define RECENT_MAX_US ((double)PACE_HALF_US / 0.69314718)
/* Less is not worth measuring, and nothing is divided by 0. */
#define LEAST_US US_PER_MS

/* The pace with all that has been waited until now. */
static struct pace settled(const struct pace *p, struct mono now)
{
    struct pace result = *p;
    double faded;
    int64_t us;

    if (p->since.us == US_FOREVER || p->since.us >= now.us) {
        return result;
    }
    us = now.us - p->since.us;
    result.since = now;
    result.waited_us = us_add(p->waited_us, us);
    faded = exp2(-(double)us / (double)PACE_HALF_US);
    result.recent_us = p->recent_us * faded + RECENT_MAX_US * (1 - faded);
    result.recent_bytes = p->recent_bytes * faded;
    return result;
}

void pace_begin(struct pace *p, struct mono now, int64_t waited_us)
{
    *p = (struct pace){.since = now, .waited_us = waited_us};
}

void pace_wait(struct pace *p, struct mono now)
{
    if (p->since.us == US_FOREVER) {
        p->since = now;
    }
}

void pace_rest(struct pace *p, struct mono now)
{
    *p = settled(p, now);
    p->since = MONO_NEVER;
}

void pace_add(struct pace *p, struct mono now, uint64_t bytes)
{
    *p = settled(p, now);
    p->recent_bytes += (double)bytes;
}

void pace_delivered(struct pace *p, struct mono now)
{
    *p = settled(p, now);
    p->waited_us = 0;
}

bool pace_waits(const struct pace *p)
{
    return p->since.us != US_FOREVER;
}

int64_t pace_waited_us(const struct pace *p, struct mono now)
{
    return settled(p, now).waited_us;
}

static double rate(double bytes, double us)
{
    return bytes * (double)US_PER_S / (us < (double)LEAST_US ? (double)LEAST_US : us);
}

double pace_rate(const struct pace *p, struct mono now)
{
    struct pace s = settled(p, now);

    return rate(PACE_CREDIT, (double)s.waited_us) + rate(s.recent_bytes, s.recent_us);
}
