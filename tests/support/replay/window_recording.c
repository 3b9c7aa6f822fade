#include <stdio.h>
#include <string.h>

#include "recorded_params.h"
#include "recording.h"
#include "window.h"

#define STEPS_MAX  1000000u
#define DIGITS_MAX 32 /* bytes of a number as %g has it */

/* One logged event and the state behind it. */
struct step {
    bool good;
    uint32_t size; /* 0 = dead */
    double success, failure, failed_cohorts;
};

static bool read_step(const json_t *array, struct step *ret)
{
    const char *sign = json_string_value(json_array_get(array, 0));
    json_int_t size = json_integer_value(json_array_get(array, 1));

    if (json_array_size(array) != 5 || sign == NULL ||
        (strcmp(sign, "+") != 0 && strcmp(sign, "-") != 0) ||
        !json_is_integer(json_array_get(array, 1)) || size < 0 || size > INT32_MAX) {
        return false;
    }
    for (size_t i = 2; i < 5; i++) {
        if (!json_is_number(json_array_get(array, i))) {
            return false;
        }
    }
    *ret = (struct step){
        .good = sign[0] == '+',
        .size = (uint32_t)size,
        .success = json_number_value(json_array_get(array, 2)),
        .failure = json_number_value(json_array_get(array, 3)),
        .failed_cohorts = json_number_value(json_array_get(array, 4)),
    };
    return true;
}

/* The digits that the log has. */
static bool same_digits(double a, double b)
{
    char x[DIGITS_MAX], y[DIGITS_MAX];

    (void)snprintf(x, sizeof x, "%g", a); /* fits */
    (void)snprintf(y, sizeof y, "%g", b); /* fits */
    return strcmp(x, y) == 0;
}

static bool same_step(const struct step *a, const struct step *b)
{
    return a->size == b->size && same_digits(a->success, b->success) &&
           same_digits(a->failure, b->failure) && same_digits(a->failed_cohorts, b->failed_cohorts);
}

/* ---- playing -------------------------------------------------------------------------------- */

struct replay {
    struct window_limits limits;
    struct window w;
    bool dead;
    uint32_t widest; /* so far: no more deliveries can run */
};

static struct step state_of(const struct replay *r, bool good)
{
    return (struct step){.good = good,
                         .size = r->dead ? 0 : r->w.size,
                         .success = r->w.success,
                         .failure = r->w.failure,
                         .failed_cohorts = r->w.failed_cohorts};
}

/* A success while dead: the window becomes what is running, which the log does not say, or the
 * initial size. */
static void revive(struct replay *r, uint32_t recorded)
{
    window_revive(&r->w, &r->limits, recorded <= r->widest ? recorded : 0);
    r->dead = false;
}

/* A success. The log does not say how many deliveries ran. Nearly always the window was full; when
 * so few ran that the safety condition held growth back, all sums stay but for the cohorts. Even
 * then one ran, so that can be only above the initial size. */
static void succeed(struct replay *r, const struct step *recorded)
{
    struct window before = r->w, held = r->w;
    struct step state;

    (void)window_succeeded(&r->w, &r->limits, before.size); /* the state tells */
    state = state_of(r, true);
    if (!same_step(&state, recorded) && !window_succeeded(&held, &r->limits, 1)) {
        struct replay other = *r;

        other.w = held;
        state = state_of(&other, true);
        r->w = same_step(&state, recorded) ? held : r->w;
    }
}

static struct step play_step(struct replay *r, const struct step *recorded)
{
    if (!recorded->good) {
        /* A failure of a dead destination is not heard of. */
        r->dead = r->dead || window_failed(&r->w, &r->limits);
    } else if (r->dead) {
        revive(r, recorded->size);
    } else {
        succeed(r, recorded);
    }
    r->widest = r->w.size > r->widest ? r->w.size : r->widest;
    return state_of(r, recorded->good);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void add_step(struct buf *out, const char *title, const struct step *s)
{
    (void)buf_addf(out, "  %-9s window %u, success %g, failure %g, failed cohorts %g\n", title,
                   s->size, s->success, s->failure, s->failed_cohorts); /* sticky */
}

static struct replay start(const struct window_limits *limits)
{
    struct replay r = {.limits = *limits};

    window_init(&r.w, limits);
    r.widest = r.w.size;
    return r;
}

/* Does the recorded step begin a new path? A destination without mail is forgotten, which the log
 * does not say. */
static bool starts_afresh(struct replay *r, const struct step *recorded)
{
    struct replay fresh = start(&r->limits);
    struct step got = play_step(&fresh, recorded);

    if (!same_step(&got, recorded)) {
        return false;
    }
    *r = fresh;
    return true;
}

static enum recording_verdict play(const char *name, const struct window_limits *limits,
                                   const json_t *steps, struct buf *out)
{
    struct replay r = start(limits);
    size_t count = json_array_size(steps), restarts = 0;

    /* Appending is sticky in *out. */
    for (size_t i = 0; i < count; i++) {
        struct step recorded, before = state_of(&r, true), got;
        struct replay next = r;

        if (!read_step(json_array_get(steps, i), &recorded)) {
            (void)buf_addf(out,
                           "steps: step %zu: [\"+\" or \"-\", window, success, failure, failed "
                           "cohorts] is expected",
                           i + 1);
            return RECORDING_BAD;
        }
        got = play_step(&next, &recorded);
        if (same_step(&got, &recorded)) {
            r = next;
        } else if (starts_afresh(&r, &recorded)) {
            restarts++;
        } else {
            (void)buf_addf(out, "%s: differs at step %zu of %zu, a %s\n", name, i + 1, count,
                           recorded.good ? "success" : "failure");
            add_step(out, "before", &before);
            add_step(out, "recorded", &recorded);
            add_step(out, "simulated", &got);
            return RECORDING_DIFFERS;
        }
    }
    (void)buf_addf(out, "%s: ok, %zu steps", name, count);
    if (restarts > 0) {
        (void)buf_addf(out, ", the destination forgotten %zu time%s", restarts,
                       restarts == 1 ? "" : "s");
    }
    (void)buf_add_byte(out, '\n');
    return RECORDING_EQUAL;
}

enum recording_verdict window_recording_replay(const json_t *recording, struct buf *out)
{
    const json_t *steps = json_object_get(recording, "steps");
    size_t count = json_array_size(steps); /* 0 for anything else */
    struct recorded_params params;

    if (count == 0 || count > STEPS_MAX) {
        (void)buf_addf(out, "steps: an array of 1 to %u steps is expected", STEPS_MAX); /* sticky */
        return RECORDING_BAD;
    }
    if (!recorded_params_read(json_object_get(recording, "params"), false, &params, out)) {
        return RECORDING_BAD;
    }
    return play(recording_name(recording), &params.policy.window, steps, out);
}
