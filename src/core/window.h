/*
 * Feedback window: how many deliveries one destination may have under way.
 *
 * Each success adds g(N) to `success`, each failure takes f(N) from `failure`; a whole unit moves
 * the window by one. Independently, failed pseudo-cohorts are counted (1/N per failure, back to 0
 * at a success): at the limit the destination is dead. Source: Postfix's SCHEDULER_README,
 * concurrency scheduling; two rules because its text and its program differ:
 *
 *   WINDOW_DOCUMENTED  the text: dead when cohorts > limit; exact thresholds. A sum within 1e-9 of
 *                      a threshold counts as on it, so that 1/N takes exactly N events: the
 *                      rounding of N additions stays far below that for every window that fits in
 *                      memory, and no useful feedback is that small.
 *   WINDOW_POSTFIX     the program (3.7): dead at >=; half a feedback unit of slack on both loops,
 *                      so the first failure at feedback 1 costs 2. Recorded paths come out bit for
 *                      bit.
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
    uint32_t size; /* >= 1; a dead destination's is kept by its owner's state, not by a 0 here */
    double success, failure, failed_cohorts;
};

/* Open at the initial size (at most max). */
void window_init(struct window *w, const struct window_limits *limits);

/* A delivery ended well; `busy` includes it. Nothing accumulates at the maximum or when the window
 * is wider than what is in use by the initial size or more. True when feedback was applied. */
bool window_succeeded(struct window *w, const struct window_limits *limits, uint32_t busy);

/* A delivery failed at the destination. True when the destination is now dead (the window is then
 * reset by window_revive). */
bool window_failed(struct window *w, const struct window_limits *limits);

/* Back from the dead: counters 0, size `busy` (deliveries still running) if not 0, else initial. */
void window_revive(struct window *w, const struct window_limits *limits, uint32_t busy);

/* Tried again, from `size` on (at least 1, at most max): counters 0. */
void window_restart(struct window *w, const struct window_limits *limits, uint32_t size);

/* Forget a part of what was learned: `kept` is how much stays, 1 all, 0 nothing. Size and sums move
 * to their initial values in proportion. */
void window_fade(struct window *w, const struct window_limits *limits, double kept);

/* The limits have changed: the window is narrowed to their maximum; what was learned stays. */
void window_limits_changed(struct window *w, const struct window_limits *limits);

/* The value of a feedback at window size n >= 1. */
double feedback_value(const struct feedback *f, uint32_t n);

/* Abort unless the window's size and sums are in their ranges. */
void window_audit(const struct window *w, const struct window_limits *limits);

#endif
