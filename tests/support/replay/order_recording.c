#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "order_replay.h"
#include "recorded_params.h"
#include "recording.h"

/*
 * As the recordings were made: messages came 0.1 s to 0.2 s apart, a plug was there until all had
 * come, then a delivery took about 0.07 s.
 *
 * What a recording does not hold is when the clock's second ticked, and the age that Postfix
 * weighs when one message may overtake another is in whole seconds. Now and then that decides. So
 * where the usual timing gives another order, the others that fit the description are tried, and
 * the one that gives the recorded order is told.
 */
struct timing {
    int64_t phase_us, arrival_us;
    int64_t plug_us; /* behind the last arrival */
};

#define DELIVERY_US (70 * US_PER_MS)
#define PHASE_US    (100 * US_PER_MS) /* step of those that are tried */

/* There are 90 of them. One of more deliveries would take too long. */
#define TIMED_DELIVERIES_MAX 10000

static const struct timing usual = {0, 150 * US_PER_MS, US_PER_S};
static const int64_t arrivals_us[] = {150 * US_PER_MS, 100 * US_PER_MS, 200 * US_PER_MS};
static const int64_t plugs_us[] = {US_PER_S, US_PER_S / 2, 2 * US_PER_S};

#define ROW 24 /* deliveries in a row of what is shown */

/* Numbers from 1, an array of whole numbers in [1, max]. NULL: they are not. */
static uint32_t *read_numbers(const json_t *array, uint32_t max, size_t count_max,
                              size_t *ret_count)
{
    size_t count = json_array_size(array); /* 0 for anything else */
    uint32_t *numbers;

    if (count == 0 || count > count_max) {
        return NULL;
    }
    numbers = mem_array(count, sizeof *numbers);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        json_int_t number = json_integer_value(value); /* 0 for anything else */

        if (number < 1 || number > max) {
            mem_free(numbers);
            return NULL;
        }
        numbers[i] = (uint32_t)number;
    }
    *ret_count = count;
    return numbers;
}

/* A member in numbers; else *out says what was expected. */
static uint32_t *need_numbers(const json_t *recording, const char *member, uint32_t max,
                              size_t count_max, size_t *ret_count, struct buf *out)
{
    uint32_t *numbers = read_numbers(json_object_get(recording, member), max, count_max, ret_count);

    if (numbers == NULL) {
        (void)buf_addf(out, "%s: an array of 1 to %zu whole numbers from 1 to %u is expected",
                       member, count_max, max); /* sticky */
    }
    return numbers;
}

static uint64_t sum_of(const uint32_t *numbers, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum += numbers[i];
    }
    return sum;
}

/* ---- comparing ------------------------------------------------------------------------------ */

struct sequence {
    uint32_t *at; /* message of each delivery, from 1 */
    size_t count;
};

static size_t first_difference(struct sequence a, struct sequence b)
{
    size_t i = 0;

    while (i < a.count && i < b.count && a.at[i] == b.at[i]) {
        i++;
    }
    return i;
}

static void add_row(struct buf *out, const char *title, struct sequence s, size_t from, int width)
{
    (void)buf_addf(out, "  %-9s %6zu:", title, from + 1); /* sticky, as what follows */
    for (size_t i = from; i < s.count && i < from + ROW; i++) {
        (void)buf_addf(out, " %*u", width, s.at[i]);
    }
    (void)buf_add_byte(out, '\n');
}

/* Both sequences in rows below each other, and a mark below the first difference. */
static void add_both(struct buf *out, struct sequence recorded, struct sequence replayed)
{
    size_t difference = first_difference(recorded, replayed), end;
    uint32_t largest = 0;
    char text[16];
    int width;

    end = recorded.count > replayed.count ? recorded.count : replayed.count;
    for (size_t i = 0; i < recorded.count; i++) {
        largest = recorded.at[i] > largest ? recorded.at[i] : largest;
    }
    width = snprintf(text, sizeof text, "%u", largest);
    for (size_t from = 0; from < end; from += ROW) {
        add_row(out, "recorded", recorded, from, width);
        add_row(out, "simulated", replayed, from, width);
        if (difference >= from && difference < from + ROW) {
            size_t column = 19 + (difference - from + 1) * ((size_t)width + 1);

            (void)buf_addf(out, "%*s\n", (int)column, "^"); /* sticky */
        }
    }
}

static bool same(struct sequence a, struct sequence b)
{
    return a.count == b.count && first_difference(a, b) == a.count;
}

/* ---- playing -------------------------------------------------------------------------------- */

/* A recording in numbers. */
struct recorded {
    struct recorded_params params;
    uint32_t *messages; /* owned; recipients */
    size_t count;
    uint64_t recipients; /* of all */
    uint32_t *order;     /* owned */
    size_t order_count;
};

/* The order that comes out; to be released with mem_free. */
static struct sequence play(const struct recorded *r, const struct timing *timing)
{
    struct order_arrival *arrivals = mem_array(r->count, sizeof *arrivals);
    struct order_scenario scenario = {
        .limits = r->params.limits,
        .policy = r->params.policy,
        .arrivals = arrivals,
        .arrival_count = r->count,
        .phase_us = timing->phase_us,
        .plug_us = (int64_t)r->count * timing->arrival_us + timing->plug_us,
        .delivery_us = DELIVERY_US,
    };
    struct sequence replayed;
    uint32_t *order;

    for (size_t i = 0; i < r->count; i++) {
        arrivals[i] = (struct order_arrival){(int64_t)(i + 1) * timing->arrival_us, r->messages[i]};
    }
    order = order_replay(&scenario, &replayed.count);
    for (size_t i = 0; i < replayed.count; i++) {
        order[i]++;
    }
    mem_free(arrivals);
    replayed.at = order;
    return replayed;
}

static bool plays_equal(const struct recorded *r, const struct timing *timing)
{
    struct sequence replayed = play(r, timing);
    bool equal = same((struct sequence){r->order, r->order_count}, replayed);

    mem_free(replayed.at);
    return equal;
}

/* Is there a timing that fits the description and gives the recorded order? */
static bool find_timing(const struct recorded *r, struct timing *ret)
{
    if (r->order_count > TIMED_DELIVERIES_MAX || r->recipients > TIMED_DELIVERIES_MAX) {
        return false;
    }
    for (size_t p = 0; p < sizeof plugs_us / sizeof plugs_us[0]; p++) {
        for (size_t a = 0; a < sizeof arrivals_us / sizeof arrivals_us[0]; a++) {
            for (int64_t phase = 0; phase < US_PER_S; phase += PHASE_US) {
                struct timing timing = {phase, arrivals_us[a], plugs_us[p]};

                if (plays_equal(r, &timing)) {
                    *ret = timing;
                    return true;
                }
            }
        }
    }
    return false;
}

static double seconds(int64_t us)
{
    return (double)us / (double)US_PER_S;
}

static enum recording_verdict compare(const char *name, const struct recorded *r, struct buf *out)
{
    struct sequence recorded = {r->order, r->order_count}, replayed = play(r, &usual);
    enum recording_verdict verdict = RECORDING_EQUAL;
    struct timing timing;

    /* Appending is sticky in *out. */
    if (same(recorded, replayed)) {
        (void)buf_addf(out, "%s: ok\n", name);
    } else if (find_timing(r, &timing)) {
        (void)buf_addf(out,
                       "%s: ok when the plug comes %.1f s past a full second, mail %.2f s apart, "
                       "and the plug goes %.1f s later\n",
                       name, seconds(timing.phase_us), seconds(timing.arrival_us),
                       seconds(timing.plug_us));
    } else {
        (void)buf_addf(out, "%s: differs at delivery %zu of %zu\n", name,
                       first_difference(recorded, replayed) + 1, recorded.count);
        add_both(out, recorded, replayed);
        verdict = RECORDING_DIFFERS;
    }
    mem_free(replayed.at);
    return verdict;
}

static bool read_recording(const json_t *recording, struct recorded *r, struct buf *out)
{
    r->messages = need_numbers(recording, "messages", ORDER_REPLAY_RECIPIENTS_MAX,
                               ORDER_REPLAY_MESSAGES_MAX, &r->count, out);
    if (r->messages == NULL) {
        return false;
    }
    r->recipients = sum_of(r->messages, r->count);
    if (r->recipients > ORDER_REPLAY_RECIPIENTS_MAX) {
        (void)buf_addf(out, "messages: more than %u recipients",
                       ORDER_REPLAY_RECIPIENTS_MAX); /* sticky */
        return false;
    }
    r->order = need_numbers(recording, "order", (uint32_t)r->count, ORDER_REPLAY_RECIPIENTS_MAX,
                            &r->order_count, out);
    return r->order != NULL &&
           recorded_params_read(json_object_get(recording, "params"), true, &r->params, out);
}

enum recording_verdict order_recording_replay(const json_t *recording, struct buf *out)
{
    struct recorded r = {0};
    enum recording_verdict verdict = RECORDING_BAD;

    if (read_recording(recording, &r, out)) {
        verdict = compare(recording_name(recording), &r, out);
    }
    mem_free(r.messages);
    mem_free(r.order);
    return verdict;
}
