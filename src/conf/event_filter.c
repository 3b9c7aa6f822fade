#include "event_filter.h"

#include <string.h>

#include "check.h"
#include "mem.h"

/* Comparison of a value. */
enum comparison {
    COMPARE_EVENT, /* one of `events` */
    COMPARE_EXACT,
    COMPARE_ADDRESS,    /* "@domain" matches all its addresses; ignores case */
    COMPARE_DESTINATION /* the part after the / is enough; ignores case */
};

static const struct {
    const char *name, *before; /* text before the value in a line */
    enum comparison comparison;
} members[] = {
    {"event", ",\"event\":\"", COMPARE_EVENT},
    {"queue_id", ",\"queue_id\":\"", COMPARE_EXACT},
    {"sender", ",\"sender\":\"", COMPARE_ADDRESS},
    {"recipient", ",\"recipient\":\"", COMPARE_ADDRESS},
    {"class", ",\"class\":\"", COMPARE_EXACT},
    {"destination", ",\"destination\":\"", COMPARE_DESTINATION},
    {"intervention", ",\"intervention\":\"", COMPARE_EXACT},
};
#define MEMBERS (sizeof members / sizeof members[0])

/* All events of the journal. */
static const char *const events[] = {
    "received", "delivered",  "deferred", "bounced",   "expired", "report", "held",
    "released", "removed",    "requeued", "dead",      "revived", "window", "paused",
    "bouncing", "redirected", "limited",  "cancelled", "lost",
};
#define EVENTS (sizeof events / sizeof events[0])

const char *event_filter_event(size_t i)
{
    return i < EVENTS ? events[i] : NULL;
}

static bool is_event(struct slice name)
{
    for (size_t i = 0; i < EVENTS; i++) {
        if (slice_equal(name, slice_string(events[i]))) {
            return true;
        }
    }
    return false;
}

uint64_t event_number(struct slice line)
{
    const struct slice before = SLICE("{\"number\":");
    unsigned long long n = 0;
    struct slice rest;

    if (!slice_starts(line, before)) {
        return 0;
    }
    rest = slice_skip(line, before.len);
    return slice_number(slice_of(rest.ptr, slice_find(rest, ',')), INT64_MAX, &n) ? n : 0;
}

/* Returns the value of a text member as it is in the line. JSON has no quote in a text without a
 * backslash before it, so a match of `before` is a member. */
static struct slice text_of(struct slice line, const char *before)
{
    const char *at = memmem(line.ptr, line.len, before, strlen(before));
    size_t from = at == NULL ? line.len : (size_t)(at - line.ptr) + strlen(before), to = from;

    while (to < line.len && line.ptr[to] != '"') {
        to += line.ptr[to] == '\\' ? 2 : 1;
    }
    return slice_of(line.ptr + from, to <= line.len ? to - from : 0);
}

struct slice event_name(struct slice line)
{
    return text_of(line, members[0].before);
}

bool event_filter_add(struct event_filter *f, struct slice member, struct slice value)
{
    unsigned m = 0;

    while (m < MEMBERS && !slice_equal(member, slice_string(members[m].name))) {
        m++;
    }
    if (m == MEMBERS || f->count == EVENT_VALUES_MAX ||
        (members[m].comparison == COMPARE_EVENT && !is_event(value))) {
        return false;
    }
    f->values[f->count].member = m;
    f->values[f->count++].text = mem_copy(value.ptr, value.len);
    return true;
}

static bool is_met(unsigned member, struct slice want, struct slice value)
{
    switch (members[member].comparison) {
    case COMPARE_EVENT:
    case COMPARE_EXACT:
        return slice_equal(value, want);
    case COMPARE_ADDRESS:
        return slice_equal_nocase(value, want) ||
               (slice_starts(want, SLICE("@")) && slice_ends_nocase(value, want));
    case COMPARE_DESTINATION:
        return slice_equal_nocase(value, want) ||
               (slice_ends_nocase(value, want) && value.len > want.len &&
                value.ptr[value.len - want.len - 1] == '/');
    }
    UNREACHABLE("all comparisons are above");
}

bool event_filter_holds(const struct event_filter *f, struct slice line)
{
    for (unsigned m = 0; m < MEMBERS; m++) {
        bool asked = false, met = false;

        for (size_t i = 0; i < f->count && !met; i++) {
            if (f->values[i].member == m) {
                asked = true;
                met = is_met(m, slice_string(f->values[i].text), text_of(line, members[m].before));
            }
        }
        if (asked && !met) {
            return false;
        }
    }
    return true;
}

void event_filter_fini(struct event_filter *f)
{
    for (size_t i = 0; i < f->count; i++) {
        mem_free(f->values[i].text);
    }
    f->count = 0;
}
