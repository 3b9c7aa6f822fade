#include "window.h"

#include <math.h>
#include <stddef.h>

#include "check.h"

/* Largest error of a sum of feedback by binary rounding; see window.h. */
#define ROUNDING 1e-9

double feedback_value(const struct feedback *f, uint32_t n)
{
    CHECK(n >= 1);
    switch (f->form) {
    case FEEDBACK_CONSTANT:
        return f->base;
    case FEEDBACK_PER_WINDOW:
        return f->base / n;
    case FEEDBACK_PER_SQRT_WINDOW:
        return f->base / sqrt(n);
    }
    UNREACHABLE("no such form of feedback");
}

static uint32_t initial_size(const struct window_limits *limits)
{
    CHECK(limits->initial >= 1);
    return limits->max > 0 && limits->initial > limits->max ? limits->max : limits->initial;
}

/* Drops, under the documented rule, a remainder that is only rounding, so that it can't add up over
 * many rounds. Postfix keeps it. */
static double settle(const struct window_limits *limits, double sum)
{
    return limits->rule == WINDOW_DOCUMENTED && fabs(sum) < ROUNDING ? 0 : sum;
}

void window_init(struct window *w, const struct window_limits *limits)
{
    *w = (struct window){.size = initial_size(limits)};
}

bool window_succeeded(struct window *w, const struct window_limits *limits, uint32_t busy)
{
    double g, slack;

    w->failed_cohorts = 0;
    if (limits->max > 0 && w->size >= limits->max) {
        return false;
    }
    /* A window far wider than its use would react to trouble too late: failures of the few
     * deliveries in flight would have to narrow it for long before it limits anything. */
    if (w->size >= (uint64_t)busy + initial_size(limits)) {
        return false;
    }
    g = feedback_value(&limits->positive, w->size);
    w->success += g;
    /* Postfix adds half an event of slack against rounding. In the other direction (below) that
     * costs a step of two at the first failure if f is 1, which Postfix's text does not mention. */
    slack = limits->rule == WINDOW_POSTFIX ? g / 2 : ROUNDING;
    while (w->success + slack >= 1) {
        w->size++;
        w->success = settle(limits, w->success - 1);
        w->failure = 0;
    }
    window_limits_changed(w, limits);
    return true;
}

bool window_failed(struct window *w, const struct window_limits *limits)
{
    bool postfix = limits->rule == WINDOW_POSTFIX;
    double limit = limits->failed_cohort_limit, slack, f;
    int64_t size = w->size;

    w->failed_cohorts += 1.0 / w->size;
    if (limits->failed_cohort_limit > 0 &&
        (postfix ? w->failed_cohorts >= limit : w->failed_cohorts > limit + ROUNDING)) {
        return true;
    }
    f = feedback_value(&limits->negative, w->size);
    w->failure -= f;
    slack = postfix ? f / 2 : -ROUNDING;
    while (w->failure - slack < 0) {
        size--;
        w->success = 0;
        w->failure = settle(limits, w->failure + 1);
    }
    w->size = size < 1 ? 1 : (uint32_t)size;
    return false;
}

void window_revive(struct window *w, const struct window_limits *limits, uint32_t busy)
{
    *w = (struct window){.size = busy > 0 ? busy : initial_size(limits)};
}

void window_restart(struct window *w, const struct window_limits *limits, uint32_t size)
{
    *w = (struct window){.size = size >= 1 ? size : 1};
    window_limits_changed(w, limits);
}

void window_fade(struct window *w, const struct window_limits *limits, double kept)
{
    double initial = initial_size(limits);

    CHECK(kept >= 0);
    CHECK(kept <= 1);
    w->size = (uint32_t)(initial + (w->size - initial) * kept + 0.5);
    w->success *= kept;
    w->failure *= kept;
    w->failed_cohorts *= kept;
    window_limits_changed(w, limits);
}

void window_limits_changed(struct window *w, const struct window_limits *limits)
{
    if (limits->max > 0 && w->size > limits->max) {
        w->size = limits->max;
    }
}

void window_audit(const struct window *w, const struct window_limits *limits)
{
    CHECK(w->size >= 1);
    CHECK(w->success >= -0.5 - ROUNDING); /* half an event of slack, see above */
    CHECK(w->success < 1 + ROUNDING);
    CHECK(w->failure >= -ROUNDING);
    CHECK(w->failure < 2);
    CHECK(w->failed_cohorts >= 0);
    CHECK(limits->positive.base >= 0);
    CHECK(limits->negative.base >= 0);
}
