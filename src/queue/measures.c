#include "measures.h"

#include "check.h"
#include "json.h"
#include "times.h"

#define MS(n) ((n)*US_PER_MS)
#define S(n)  ((n)*US_PER_S)

const struct measure_scale measure_delays = {.bounds = {MS(50), MS(250), S(1), S(5), S(30), S(120),
                                                        S(600), S(3600), S(4 * 3600), S(12 * 3600),
                                                        S(86400), S(3 * 86400)},
                                             .unit = 1e-6};
const struct measure_scale measure_commits = {
    .bounds = {200, 500, MS(1), MS(2), MS(5), MS(10), MS(25), MS(100), MS(250), S(1), S(3), S(10)},
    .unit = 1e-6};
const struct measure_scale measure_sizes = {
    .bounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}, .unit = 1};

void measure_add(struct measure *m, const struct measure_scale *scale, int64_t value)
{
    size_t i = 0;

    value = value < 0 ? 0 : value;
    while (i < MEASURE_BOUNDS && value > scale->bounds[i]) {
        i++;
    }
    m->counts[i]++;
    m->count++;
    m->sum += (uint64_t)value;
}

json_t *measure_json(const struct measure *m, const struct measure_scale *scale)
{
    json_t *bounds = json_array(), *counts = json_array();

    for (size_t i = 0; i < MEASURE_BOUNDS; i++) {
        json_add(bounds, json_real((double)scale->bounds[i] * scale->unit));
    }
    for (size_t i = 0; i <= MEASURE_BOUNDS; i++) {
        json_add(counts, json_integer((json_int_t)m->counts[i]));
    }
    return json_pack("{s:o, s:o, s:I, s:f}", "bounds", bounds, "counts", counts, "count",
                     (json_int_t)m->count, "sum", (double)m->sum * scale->unit);
}

const char *measure_phase_name(enum measure_phase phase)
{
    static const char *const names[MEASURE_PHASES] = {"queued", "active", "setup", "transmit",
                                                      "total"};

    return names[phase];
}

static const char *const categories[MEASURE_CATEGORIES] = {
    "other", "address", "mailbox", "system", "network", "protocol", "content", "policy", "none"};

const char *measure_category_name(unsigned category)
{
    CHECK(category < MEASURE_CATEGORIES);
    return categories[category];
}

/* Returns the category of a status: 7 for "4.7.1". */
unsigned measure_category(struct slice status)
{
    if (status.len < 4 || status.ptr[1] != '.') {
        return MEASURE_CATEGORIES - 1;
    }
    return status.ptr[3] == '.' && status.ptr[2] >= '1' && status.ptr[2] <= '7'
               ? (unsigned)(status.ptr[2] - '0')
               : 0;
}

const char *measure_outcome_name(unsigned outcome)
{
    static const char *const names[MEASURE_OUTCOMES] = {"sent", "deferred", "bounced", "expired"};

    CHECK(outcome < MEASURE_OUTCOMES);
    return names[outcome];
}
