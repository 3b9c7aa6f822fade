#include "series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "mem.h"

/* Members of "status". */
static const char *const wholes[] = {
    "submitted",
    "delivered",
    "deferrals",
    "bounced",
    "reports",
    "commits",
    "incoming",
    "deferred",
    "hold",
    "corrupt",
    "in_flight",
    "waiting",
    "active_messages",
    "active_destinations",
    "dead_destinations",
};
#define WHOLES (sizeof wholes / sizeof wholes[0])

/* Members of a SITE. */
static const char *const parts[] = {"window", "busy", "waiting", "per_second"};
#define PARTS (sizeof parts / sizeof parts[0])

#define NAME_MAX_BYTES 1200 /* longest transport and destination in bytes */

struct track {
    char name[NAME_MAX_BYTES];       /* empty: unused */
    uint64_t seen;                   /* number of the last sample that named it */
    float at[SERIES_SAMPLES][PARTS]; /* NAN: not named */
};

struct series {
    uint64_t count; /* number of samples since the start; the last SERIES_SAMPLES are kept */
    int64_t times[SERIES_SAMPLES];
    double at[SERIES_SAMPLES][WHOLES];
    struct track *tracks; /* owned: SERIES_DESTINATIONS tracks */
};

struct series *series_new(void)
{
    struct series *s = mem_new(sizeof *s);

    s->tracks = mem_array(SERIES_DESTINATIONS, sizeof *s->tracks);
    return s;
}

void series_free(struct series *s)
{
    if (s != NULL) {
        mem_free(s->tracks);
        mem_free(s);
    }
}

static struct track *track_find(const struct series *s, const char *name)
{
    for (size_t i = 0; i < SERIES_DESTINATIONS; i++) {
        if (strcmp(s->tracks[i].name, name) == 0) {
            return &s->tracks[i];
        }
    }
    return NULL;
}

/* Returns the track of this name; otherwise an unused one, or the one that was named longest
 * ago. */
static struct track *track_need(struct series *s, const char *name)
{
    struct track *t = track_find(s, name);

    if (t != NULL) {
        return t;
    }
    t = &s->tracks[0];
    for (size_t i = 1; i < SERIES_DESTINATIONS; i++) {
        if (s->tracks[i].seen < t->seen) {
            t = &s->tracks[i];
        }
    }
    (void)snprintf(t->name, sizeof t->name, "%s", name); /* fits: the caller has checked */
    for (size_t i = 0; i < SERIES_SAMPLES; i++) {
        for (size_t j = 0; j < PARTS; j++) {
            t->at[i][j] = NAN;
        }
    }
    return t;
}

static void add_sites(struct series *s, const json_t *sites, size_t slot)
{
    const json_t *site;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)sites, i, site)
    {
        const char *transport = json_string_value(json_object_get(site, "transport"));
        const char *destination = json_string_value(json_object_get(site, "destination"));
        char name[NAME_MAX_BYTES];
        struct track *t;

        if (transport == NULL || destination == NULL ||
            snprintf(name, sizeof name, "%s/%s", transport, destination) >= (int)sizeof name) {
            continue;
        }
        t = track_need(s, name);
        t->seen = s->count + 1;
        for (size_t j = 0; j < PARTS; j++) {
            t->at[slot][j] = (float)json_number_value(json_object_get(site, parts[j]));
        }
    }
}

void series_add(struct series *s, const json_t *status, struct wall now)
{
    size_t slot = s->count % SERIES_SAMPLES;

    s->times[slot] = now.us;
    for (size_t j = 0; j < WHOLES; j++) {
        s->at[slot][j] = json_number_value(json_object_get(status, wholes[j]));
    }
    for (size_t i = 0; i < SERIES_DESTINATIONS; i++) {
        for (size_t j = 0; j < PARTS; j++) {
            s->tracks[i].at[slot][j] = NAN;
        }
    }
    add_sites(s, json_object_get(status, "troubled"), slot);
    add_sites(s, json_object_get(status, "busiest"), slot);
    s->count++;
}

static uint64_t first_of(const struct series *s)
{
    return s->count > SERIES_SAMPLES ? s->count - SERIES_SAMPLES : 0;
}

/* Makes the answer with the times of the samples from `first` on. */
static json_t *begin(const struct series *s, uint64_t first)
{
    json_t *object = json_pack("{s:i}", "step", SERIES_STEP_S), *times = json_array();

    for (uint64_t i = first; i < s->count; i++) {
        json_add(times, json_seconds(s->times[i % SERIES_SAMPLES]));
    }
    json_put(object, "at", times);
    return object;
}

json_t *series_json(const struct series *s)
{
    json_t *object = begin(s, first_of(s));

    for (size_t j = 0; j < WHOLES; j++) {
        json_t *values = json_array();

        for (uint64_t i = first_of(s); i < s->count; i++) {
            json_add(values, json_integer((json_int_t)s->at[i % SERIES_SAMPLES][j]));
        }
        json_put(object, wholes[j], values);
    }
    return object;
}

json_t *series_destination_json(const struct series *s, struct slice name)
{
    char text[NAME_MAX_BYTES] = "";
    const struct track *t = NULL;
    uint64_t first = s->count;
    json_t *object;

    if (name.len > 0 && name.len < sizeof text) {
        (void)snprintf(text, sizeof text, "%.*s", SLICE_ARGS(name)); /* fits */
        t = track_find(s, text);
    }
    if (t != NULL && t->seen > first_of(s)) {
        first = first_of(s);
    }
    object = begin(s, first);
    for (size_t j = 0; j < PARTS; j++) {
        json_t *values = json_array();

        for (uint64_t i = first; i < s->count; i++) {
            float value = t->at[i % SERIES_SAMPLES][j];

            json_add(values, isnan(value) ? json_null() : json_real((double)value));
        }
        json_put(object, parts[j], values);
    }
    return object;
}
