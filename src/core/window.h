/*
 * Feedback window: how many deliveries one destination may have in flight.
 *
 * Each success adds g(N) to `success`, each failure takes f(N) from `failure`; a whole unit moves
 * the window by one. Independently, failed pseudo-cohorts are counted (1/N per failure, back to 0
 * at a success): at the limit the destination is dead. Source: Postfix's SCHEDULER_README,
 * concurrency scheduling; there are two rules because its text and its program differ:
 *
 *   WINDOW_DOCUMENTED  the text: dead when cohorts > limit; exact thresholds. A sum within 1e-9 of
 *                      a threshold counts as on it, so that 1/N takes exactly N events: the
 *                      rounding of N additions stays far below that for every window that fits in
 *                      memory, and no useful feedback is that small.
 *   WINDOW_POSTFIX     the program (3.7): dead at >=; half a feedback unit of slack on both loops,
 *                      so the first failure at feedback 1 costs 2. Recorded paths are reproduced
 *                      bit for bit.
 *
 * IEEE doubles, as in the source, contraction off. A plain value: embed it in its owner.
 */
#ifndef CORE_WINDOW_H
#define CORE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum window_rule { WINDOW_DOCUMENTED, WINDOW_POSTFIX };

enum feedback_form { FEEDBACK_CONSTANT, FEEDBACK_PER_WINDOW, FEEDBACK_PER_SQRT_WINDOW };

struct feedback {
    enum feedback_form form;
    double base; /* 0..1 */
};

struct window_limits {
    enum window_rule rule;
    uint32_t initial; /* initial_destination_concurrency, >= 1 */
    uint32_t max;     /* destination_concurrency_limit; 0 = no limit */
    struct feedback positive, negative;
    uint32_t failed_cohort_limit; /* 0 = never dead */
};

struct window {
    uint32_t size; /* >= 1, also of a dead destination */
    double success, failure, failed_cohorts;
};

/* Initializes a window with the initial size (at most max). */
void window_init(struct window *w, const struct window_limits *limits);

/* Accounts for a delivery that succeeded; `busy` includes it. Nothing accumulates at the maximum,
 * or if the window exceeds `busy` by the initial size or more. Returns whether feedback was
 * applied. */
bool window_succeeded(struct window *w, const struct window_limits *limits, uint32_t busy);

/* Accounts for a delivery that failed at the destination. Returns true if the destination is now
 * dead; window_revive then resets the window. */
bool window_failed(struct window *w, const struct window_limits *limits);

/* Resets the window of a destination that was dead: counters 0, size `busy` (deliveries still
 * running) if not 0, else the initial size. */
void window_revive(struct window *w, const struct window_limits *limits, uint32_t busy);

/* Resets the window to `size` (at least 1, at most max), with counters 0. */
void window_restart(struct window *w, const struct window_limits *limits, uint32_t size);

/* Forgets a part of the feedback; `kept` is the part that stays, 1 all, 0 nothing. Size and sums
 * move to their initial values in proportion. */
void window_fade(struct window *w, const struct window_limits *limits, double kept);

/* Narrows the window to the maximum of changed limits; the feedback so far stays. */
void window_limits_changed(struct window *w, const struct window_limits *limits);

/* Returns the feedback at window size n >= 1. */
double feedback_value(const struct feedback *f, uint32_t n);

/* Aborts unless the window's size and sums are in their ranges. */
void window_audit(const struct window *w, const struct window_limits *limits);

#endif
