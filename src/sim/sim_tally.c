#include "sim_tally.h"

#include <math.h>

#include "check.h"

void sim_tally_init(struct sim_tally *t, const char *name)
{
    *t = (struct sim_tally){.name = name};
    histogram_init(&t->delay);
}

void sim_tally_fini(struct sim_tally *t)
{
    histogram_fini(&t->delay);
}

uint64_t sim_tally_left(const struct sim_tally *t)
{
    return t->recipients - t->sent - t->bounced - t->expired;
}

void sim_tally_close(struct sim_tally *t, struct mono now)
{
    double lasted = (double)(now.us - t->busy_since_us);

    t->busy_us += lasted * t->busy;
    t->busy_square_us += lasted * t->busy * t->busy;
    t->active_us += t->busy > 0 ? lasted : 0;
    t->busy_since_us = now.us;
}

void sim_tally_busy(struct sim_tally *t, struct mono now, int change)
{
    sim_tally_close(t, now);
    CHECK(change == 1 || t->busy > 0);
    t->busy = change == 1 ? t->busy + 1 : t->busy - 1;
    t->busy_peak = t->busy > t->busy_peak ? t->busy : t->busy_peak;
}

double sim_tally_busy_mean(const struct sim_tally *t)
{
    return t->active_us > 0 ? t->busy_us / t->active_us : 0;
}

double sim_tally_busy_deviation(const struct sim_tally *t)
{
    double mean = sim_tally_busy_mean(t), variance;

    if (t->active_us <= 0) {
        return 0;
    }
    variance = t->busy_square_us / t->active_us - mean * mean;
    return variance > 0 ? sqrt(variance) : 0; /* rounding can make it negative */
}

double sim_tally_defer_rate(const struct sim_tally *t)
{
    uint64_t all = t->asked + t->unattempted;

    return all > 0 ? (double)t->deferrals / (double)all : 0;
}

int64_t sim_tally_drain_us(const struct sim_tally *t)
{
    int64_t us = t->last_gone_us - t->last_came_us;

    if (sim_tally_left(t) > 0) {
        return -1;
    }
    return us > 0 ? us : 0;
}

void sim_tally_merge(struct sim_tally *to, const struct sim_tally *from)
{
    to->messages += from->messages;
    to->recipients += from->recipients;
    to->sent += from->sent;
    to->bounced += from->bounced;
    to->expired += from->expired;
    to->deferrals += from->deferrals;
    to->unattempted += from->unattempted;
    to->attempts += from->attempts;
    to->asked += from->asked;
    for (int i = 0; i < SIM_TRY_KINDS; i++) {
        to->failures[i] += from->failures[i];
    }
    histogram_merge(&to->delay, &from->delay);
    to->busy_peak = from->busy_peak > to->busy_peak ? from->busy_peak : to->busy_peak;
    to->busy_us += from->busy_us;
    to->busy_square_us += from->busy_square_us;
    to->active_us += from->active_us;
    to->last_came_us =
        from->last_came_us > to->last_came_us ? from->last_came_us : to->last_came_us;
    to->last_gone_us =
        from->last_gone_us > to->last_gone_us ? from->last_gone_us : to->last_gone_us;
}
