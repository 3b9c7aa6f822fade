#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "order_replay.h"
#include "recorded_params.h"
#include "recording.h"

/* As the recordings were made: a delivery took about 0.07 s, messages came 0.1 s to 0.2 s apart,
 * and the plug was there until all had come. */
#define DELIVERY_US (70 * US_PER_MS)
#define ARRIVAL_US  (150 * US_PER_MS)
#define PLUG_US     US_PER_S /* behind the last arrival */

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

/* Arrivals of these messages. NULL: more recipients than are played; *out says so. */
static struct order_arrival *plan_arrivals(const uint32_t *messages, size_t count, struct buf *out)
{
    struct order_arrival *arrivals = mem_array(count, sizeof *arrivals);
    uint64_t recipients = 0;

    for (size_t i = 0; i < count; i++) {
        recipients += messages[i];
        arrivals[i] = (struct order_arrival){.at_us = (int64_t)(i + 1) * ARRIVAL_US,
                                             .recipients = messages[i]};
    }
    if (recipients > ORDER_REPLAY_RECIPIENTS_MAX) {
        (void)buf_addf(out, "messages: more than %u recipients", ORDER_REPLAY_RECIPIENTS_MAX);
        mem_free(arrivals);
        return NULL;
    }
    return arrivals;
}

/* ---- comparing ------------------------------------------------------------------------------ */

struct sequence {
    const uint32_t *at; /* message of each delivery, from 1 */
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

static enum recording_verdict compare(const char *name, struct sequence recorded,
                                      struct sequence replayed, struct buf *out)
{
    size_t difference = first_difference(recorded, replayed);

    if (difference == recorded.count && difference == replayed.count) {
        (void)buf_addf(out, "%s: ok\n", name); /* sticky, as what follows */
        return RECORDING_EQUAL;
    }
    (void)buf_addf(out, "%s: differs at delivery %zu of %zu\n", name, difference + 1,
                   recorded.count);
    add_both(out, recorded, replayed);
    return RECORDING_DIFFERS;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static enum recording_verdict play(const char *name, const struct recorded_params *params,
                                   const struct order_arrival *arrivals, size_t count,
                                   struct sequence recorded, struct buf *out)
{
    struct order_scenario scenario = {
        .limits = params->limits,
        .policy = params->policy,
        .arrivals = arrivals,
        .arrival_count = count,
        .plug_us = arrivals[count - 1].at_us + PLUG_US,
        .delivery_us = DELIVERY_US,
    };
    struct sequence replayed;
    uint32_t *order = order_replay(&scenario, &replayed.count);
    enum recording_verdict verdict;

    for (size_t i = 0; i < replayed.count; i++) {
        order[i]++;
    }
    replayed.at = order;
    verdict = compare(name, recorded, replayed, out);
    mem_free(order);
    return verdict;
}

enum recording_verdict order_recording_replay(const json_t *recording, struct buf *out)
{
    enum recording_verdict verdict = RECORDING_BAD;
    struct order_arrival *arrivals = NULL;
    struct recorded_params params;
    struct sequence recorded;
    uint32_t *messages, *order = NULL;
    size_t count;

    messages = need_numbers(recording, "messages", ORDER_REPLAY_RECIPIENTS_MAX,
                            ORDER_REPLAY_MESSAGES_MAX, &count, out);
    if (messages != NULL) {
        order = need_numbers(recording, "order", (uint32_t)count, ORDER_REPLAY_RECIPIENTS_MAX,
                             &recorded.count, out);
    }
    if (order != NULL) {
        arrivals = plan_arrivals(messages, count, out);
    }
    if (arrivals != NULL &&
        recorded_params_read(json_object_get(recording, "params"), true, &params, out)) {
        recorded.at = order;
        verdict = play(recording_name(recording), &params, arrivals, count, recorded, out);
    }
    mem_free(arrivals);
    mem_free(messages);
    mem_free(order);
    return verdict;
}

const char *recording_name(const json_t *recording)
{
    const char *name = json_string_value(json_object_get(recording, "name"));

    return name == NULL ? "(no name)" : name;
}
