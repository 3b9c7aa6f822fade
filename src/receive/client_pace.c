#include "client_pace.h"

#include <math.h>

/* Limit of the weighted time: the integral of a weight that halves every CLIENT_PACE_HALF_US, which
 * is CLIENT_PACE_HALF_US / ln 2. */
#define RECENT_MAX_US ((double)CLIENT_PACE_HALF_US / 0.69314718)
/* Minimum divisor of a rate. */
#define LEAST_US US_PER_MS

/* Returns the pace with the time waited until `now`. */
static struct client_pace settled(const struct client_pace *p, struct mono now)
{
    struct client_pace result = *p;
    double faded;
    int64_t us;

    if (p->since.us == US_FOREVER || p->since.us >= now.us) {
        return result;
    }
    us = now.us - p->since.us;
    result.since = now;
    result.waited_us = us_add(p->waited_us, us);
    faded = exp2(-(double)us / (double)CLIENT_PACE_HALF_US);
    result.recent_us = p->recent_us * faded + RECENT_MAX_US * (1 - faded);
    result.recent_bytes = p->recent_bytes * faded;
    return result;
}

void client_pace_begin(struct client_pace *p, struct mono now, int64_t waited_us)
{
    *p = (struct client_pace){.since = now, .waited_us = waited_us};
}

void client_pace_wait(struct client_pace *p, struct mono now)
{
    if (p->since.us == US_FOREVER) {
        p->since = now;
    }
}

void client_pace_rest(struct client_pace *p, struct mono now)
{
    *p = settled(p, now);
    p->since = MONO_NEVER;
}

void client_pace_add(struct client_pace *p, struct mono now, uint64_t bytes)
{
    *p = settled(p, now);
    p->recent_bytes += (double)bytes;
}

void client_pace_delivered(struct client_pace *p, struct mono now)
{
    *p = settled(p, now);
    p->waited_us = 0;
}

bool client_pace_waits(const struct client_pace *p)
{
    return p->since.us != US_FOREVER;
}

int64_t client_pace_waited_us(const struct client_pace *p, struct mono now)
{
    return settled(p, now).waited_us;
}

static double rate(double bytes, double us)
{
    return bytes * (double)US_PER_S / (us < (double)LEAST_US ? (double)LEAST_US : us);
}

double client_pace_rate(const struct client_pace *p, struct mono now)
{
    struct client_pace s = settled(p, now);

    return rate(CLIENT_PACE_CREDIT, (double)s.waited_us) + rate(s.recent_bytes, s.recent_us);
}
