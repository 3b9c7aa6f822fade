#include "pace.h"

/* Returns the number of intervals that have ended since p->from_us. */
static int64_t elapsed(const struct pace *p, struct mono now)
{
    return now.us < p->from_us ? 0 : (now.us - p->from_us) / PACE_INTERVAL_US;
}

static struct pace moved_to(const struct pace *p, struct mono now)
{
    struct pace moved = *p;
    int64_t ended = elapsed(p, now);

    if (p->intervals > 0 && ended > 0) {
        moved.from_us = p->from_us + ended * PACE_INTERVAL_US;
        moved.before = ended == 1 ? p->current : 0;
        moved.current = 0;
        moved.intervals = 2;
    }
    return moved;
}

void pace_ended(struct pace *p, struct mono now, int64_t took_us)
{
    uint32_t took = took_us < 0 ? 0 : took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;

    if (p->intervals == 0) {
        *p = (struct pace){.from_us = now.us, .mean_us = took, .intervals = 1};
    }
    *p = moved_to(p, now);
    p->current++;
    p->mean_us = (uint32_t)(p->mean_us + ((int64_t)took - p->mean_us) / 8);
}

double pace_per_second(const struct pace *p, struct mono now)
{
    struct pace moved = moved_to(p, now);
    double part;

    if (p->intervals == 0) {
        return 0;
    }
    part = (double)(now.us - moved.from_us) / (double)PACE_INTERVAL_US;
    if (moved.intervals == 1) {
        return now.us - moved.from_us < US_PER_S
                   ? 0
                   : (double)moved.current / (part * (double)PACE_INTERVAL_US / (double)US_PER_S);
    }
    return (moved.before * (1 - part) + moved.current) /
           ((double)PACE_INTERVAL_US / (double)US_PER_S);
}

int64_t pace_mean(const struct pace *p)
{
    return p->mean_us;
}
