#include "trace_event.h"

#include "class_name.h"
#include "times.h"

/* Maximum of a time in seconds; greater numbers are not valid times. */
#define SECONDS_MAX 1e11
#define SIZE_PLAIN  4096 /* of reports, whose events have no size */

bool trace_event_is(struct slice line)
{
    return slice_starts(line, SLICE("{"));
}

static struct slice text_of(const json_t *event, const char *name)
{
    const json_t *text = json_object_get(event, name);

    return json_is_string(text) ? slice_of(json_string_value(text), json_string_length(text))
                                : SLICE("");
}

/* Returns seconds as microseconds; -1 if the value is not valid. */
static int64_t time_of(const json_t *number)
{
    double s = json_number_value(number);

    return json_is_number(number) && s >= 0 && s <= SECONDS_MAX ? (int64_t)(s * (double)US_PER_S)
                                                                : -1;
}

static struct slice domain_of(struct slice address)
{
    size_t at = slice_find_last(address, '@');

    return at < address.len ? slice_skip(address, at + 1) : SLICE("");
}

static bool domain_good(struct slice domain)
{
    for (size_t i = 0; i < domain.len; i++) {
        if (domain.ptr[i] <= ' ' || domain.ptr[i] == 0x7f || domain.ptr[i] == '/') {
            return false;
        }
    }
    return domain.len > 0 && domain.len <= TRACE_DOMAIN_MAX;
}

/* Reads the arrival of a message: "received", or a report if `id` names its id. */
static void read_arrival(const json_t *event, const char *id, struct trace_line *l)
{
    const json_t *size = json_object_get(event, "size");

    l->id = text_of(event, id);
    l->size_bytes = json_is_integer(size) ? json_integer_value(size) : SIZE_PLAIN;
    l->kind = l->id.len > 0 && l->size_bytes >= 0 ? TRACE_LINE_ACTIVE : TRACE_LINE_OTHER;
}

static void read_attempt(const json_t *event, enum trace_status status, struct trace_line *l)
{
    const json_t *delays = json_object_get(event, "delays");
    struct slice code = text_of(event, "status");
    int64_t setup = time_of(json_object_get(delays, "setup"));
    int64_t transmit = time_of(json_object_get(delays, "transmit"));

    l->status = status;
    l->unattempted = setup < 0 || transmit < 0;
    l->took_us = l->unattempted ? -1 : setup + transmit;
    l->unreached =
        code.len > 4 && (slice_starts(code, SLICE("4.4.")) || slice_starts(code, SLICE("5.4.")));
    l->kind = l->id.len > 0 && domain_good(l->domain) ? TRACE_LINE_ATTEMPT : TRACE_LINE_OTHER;
}

json_t *trace_event_read(struct slice line, struct trace_line *ret_line)
{
    json_t *event = json_loadb(line.ptr, line.len, JSON_ALLOW_NUL, NULL);
    struct slice name = text_of(event, "event");
    struct trace_line *l = ret_line;

    *l = (struct trace_line){.kind = TRACE_LINE_OTHER,
                             .event = true,
                             .took_us = -1,
                             .at_us = time_of(json_object_get(event, "time")),
                             .id = text_of(event, "queue_id"),
                             .sender = text_of(event, "sender"),
                             .address = text_of(event, "recipient"),
                             .class_name = text_of(event, "class")};
    l->domain = domain_of(l->address);
    if (l->at_us < 0 || l->id.len > TRACE_ID_MAX ||
        (l->class_name.len > 0 && !class_name_valid(l->class_name))) {
        return event;
    }
    if (slice_equal(name, SLICE("received"))) {
        read_arrival(event, "queue_id", l);
    } else if (slice_equal(name, SLICE("report"))) {
        l->sender = SLICE("");
        read_arrival(event, "report_id", l);
    } else if (slice_equal(name, SLICE("delivered"))) {
        read_attempt(event, TRACE_SENT, l);
    } else if (slice_equal(name, SLICE("deferred"))) {
        read_attempt(event, TRACE_DEFERRED, l);
    } else if (slice_equal(name, SLICE("bounced"))) {
        read_attempt(event, TRACE_BOUNCED, l);
    } else if (slice_equal(name, SLICE("expired"))) {
        read_attempt(event, TRACE_EXPIRED, l);
    } else if (slice_equal(name, SLICE("removed")) && l->id.len > 0) {
        l->kind = TRACE_LINE_GONE;
    }
    return event;
}
