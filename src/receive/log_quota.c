#include "log_quota.h"

bool log_quota_take(struct log_quota *q, struct mono now)
{
    if (mono_reached(q->until, now)) {
        q->until = mono_after(now, LOG_QUOTA_PERIOD_US);
        q->lines = 0;
    }
    q->lines++;
    if (q->lines <= q->lines_max) {
        return true;
    }
    q->unlogged++;
    return false;
}

bool log_quota_is_spent(const struct log_quota *q, struct mono now)
{
    return q->lines > q->lines_max && !mono_reached(q->until, now);
}

struct mono log_quota_due(const struct log_quota *q)
{
    return q->unlogged > 0 ? q->until : MONO_NEVER;
}

uint64_t log_quota_tell(struct log_quota *q, struct mono now)
{
    uint64_t unlogged = q->unlogged;

    if (!mono_reached(q->until, now)) {
        return 0;
    }
    q->unlogged = 0;
    return unlogged;
}
