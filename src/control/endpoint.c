#include "endpoint.h"

#include <stdint.h>
#include <string.h>

#include "check.h"
#include "http.h"
#include "json.h"
#include "openapi_files.h"
#include "printable.h"

/* Longest name or value of a query string, and longest part of a path, in bytes. */
#define TEXT_MAX 16384

/* ---- the tables ----------------------------------------------------------------------------- */

enum {
    P_STATE,
    P_SENDER,
    P_RECIPIENT,
    P_DESTINATION,
    P_CLASS,
    P_NAME,
    P_REASON,
    P_CLIENT,
    P_OLDER_THAN,
    P_NEWER_THAN,
    P_MIN_SIZE,
    P_MAX_SIZE,
    P_EVENT,
    P_QUEUE_ID,
    P_INTERVENTION,
    P_MAX,
    P_AFTER,
    P_RECIPIENTS,
    P_AFTER_RECIPIENT,
    P_CURSOR,
    P_DOMAIN,
    P_FETCH,
    P_CONNECT,
    P_BY,
    PARAMETERS
};

static const struct parameter {
    const char *name;
    bool in_filter; /* part of the filter; otherwise of the query itself */
    enum {
        QUERY_TEXT,
        QUERY_TEXTS, /* may be given several times */
        QUERY_NUMBER,
        QUERY_FLAG
    } type;
} parameters[PARAMETERS] = {
    [P_STATE] = {"state", true, QUERY_TEXTS},
    [P_SENDER] = {"sender", true, QUERY_TEXT},
    [P_RECIPIENT] = {"recipient", true, QUERY_TEXT},
    [P_DESTINATION] = {"destination", true, QUERY_TEXT},
    [P_CLASS] = {"class", true, QUERY_TEXT},
    [P_NAME] = {"name", true, QUERY_TEXT},
    [P_REASON] = {"reason", true, QUERY_TEXT},
    [P_CLIENT] = {"client", true, QUERY_TEXT},
    [P_OLDER_THAN] = {"older_than", true, QUERY_NUMBER},
    [P_NEWER_THAN] = {"newer_than", true, QUERY_NUMBER},
    [P_MIN_SIZE] = {"min_size", true, QUERY_NUMBER},
    [P_MAX_SIZE] = {"max_size", true, QUERY_NUMBER},
    [P_EVENT] = {"event", true, QUERY_TEXTS},
    [P_QUEUE_ID] = {"queue_id", true, QUERY_TEXT},
    [P_INTERVENTION] = {"intervention", true, QUERY_TEXT},
    [P_MAX] = {"max", false, QUERY_NUMBER},
    [P_AFTER] = {"after", false, QUERY_TEXT},
    [P_RECIPIENTS] = {"recipients", false, QUERY_NUMBER},
    [P_AFTER_RECIPIENT] = {"after_recipient", false, QUERY_NUMBER},
    [P_CURSOR] = {"cursor", false, QUERY_NUMBER},
    [P_DOMAIN] = {"domain", false, QUERY_TEXT},
    [P_FETCH] = {"fetch", false, QUERY_FLAG},
    [P_CONNECT] = {"connect", false, QUERY_FLAG},
    [P_BY] = {"by", false, QUERY_TEXT},
};
_Static_assert(PARAMETERS <= 32, "each has a bit");

#define BIT(name) (1u << P_##name)
#define FILTER                                                                                     \
    (BIT(STATE) | BIT(SENDER) | BIT(RECIPIENT) | BIT(DESTINATION) | BIT(CLASS) | BIT(NAME) |       \
     BIT(REASON) | BIT(CLIENT) | BIT(OLDER_THAN) | BIT(NEWER_THAN) | BIT(MIN_SIZE) |               \
     BIT(MAX_SIZE))
#define EVENT_FILTER                                                                               \
    (BIT(EVENT) | BIT(QUEUE_ID) | BIT(SENDER) | BIT(RECIPIENT) | BIT(DESTINATION) | BIT(CLASS) |   \
     BIT(INTERVENTION))

static const struct endpoint endpoints[] = {
    {"GET", "/v1/status", ENDPOINT_STATUS, "status", 0, false, false},
    {"GET", "/v1/overview", ENDPOINT_STATUS, "overview", 0, false, false},
    {"GET", "/v1/cluster", ENDPOINT_CLUSTER, NULL, 0, false, false},
    {"GET", "/v1/messages", ENDPOINT_LIST, "list", FILTER | BIT(MAX) | BIT(AFTER) | BIT(RECIPIENTS),
     false, false},
    {"GET", "/v1/messages/{id}", ENDPOINT_QUESTION, "show", BIT(RECIPIENTS) | BIT(AFTER_RECIPIENT),
     false, false},
    {"GET", "/v1/messages/{id}/content", ENDPOINT_CONTENT, "cat", 0, false, false},
    {"GET", "/v1/messages/{id}/why", ENDPOINT_QUESTION, "why",
     BIT(RECIPIENTS) | BIT(AFTER_RECIPIENT), false, false},
    {"GET", "/v1/count", ENDPOINT_LIST, "count", FILTER | BIT(AFTER), false, false},
    {"GET", "/v1/destinations", ENDPOINT_QUESTION, "destinations", BIT(MAX), false, false},
    {"GET", "/v1/table", ENDPOINT_QUESTION, "table", BIT(MAX), false, false},
    {"GET", "/v1/site", ENDPOINT_QUESTION, "site", BIT(DESTINATION), false, false},
    {"GET", "/v1/sites", ENDPOINT_QUESTION, "sites", BIT(CURSOR), false, false},
    {"GET", "/v1/tls", ENDPOINT_QUESTION, "tls", BIT(DOMAIN) | BIT(FETCH) | BIT(CONNECT), false,
     false},
    {"GET", "/v1/classes", ENDPOINT_QUESTION, "classes", 0, false, false},
    {"GET", "/v1/series", ENDPOINT_SERIES, NULL, BIT(DESTINATION), false, false},
    {"GET", "/v1/shape", ENDPOINT_QUESTION, "shape", BIT(BY) | BIT(AFTER), false, false},
    {"GET", "/v1/interventions", ENDPOINT_QUESTION, "interventions", BIT(CURSOR), false, false},
    {"GET", "/v1/events", ENDPOINT_EVENTS, NULL, EVENT_FILTER | BIT(AFTER), false, false},
    {"GET", "/v1/trace", ENDPOINT_TRACE, NULL, BIT(DESTINATION) | BIT(CLIENT) | BIT(QUEUE_ID), true,
     false},
    {"POST", "/v1/whatif", ENDPOINT_WHATIF, NULL, 0, false, true},
    {"GET", "/metrics", ENDPOINT_METRICS, NULL, 0, false, false},
    {"GET", "/v1/openapi.json", ENDPOINT_DESCRIPTION, NULL, 0, false, false},
    {"POST", "/v1/messages/hold", ENDPOINT_QUESTION, "hold", 0, true, true},
    {"POST", "/v1/messages/release", ENDPOINT_QUESTION, "release", 0, true, true},
    {"POST", "/v1/messages/delete", ENDPOINT_QUESTION, "delete", 0, true, true},
    {"POST", "/v1/messages/requeue", ENDPOINT_QUESTION, "requeue", 0, true, true},
    {"POST", "/v1/messages/expire", ENDPOINT_QUESTION, "expire", 0, true, true},
    {"POST", "/v1/messages/flush", ENDPOINT_QUESTION, "flush", 0, true, true},
    {"POST", "/v1/interventions", ENDPOINT_QUESTION, "intervene", 0, true, true},
    {"POST", "/v1/interventions/{name}/cancel", ENDPOINT_QUESTION, "cancel", 0, true, false},
    {"POST", "/v1/reload", ENDPOINT_RELOAD, NULL, 0, true, false},
    {"POST", "/v1/stop", ENDPOINT_STOP, NULL, 0, true, false},
    {"POST", "/v1/clock", ENDPOINT_CLOCK, NULL, 0, true, true},
};
#define ENDPOINTS (sizeof endpoints / sizeof endpoints[0])

const struct endpoint *endpoint_at(size_t index)
{
    return index < ENDPOINTS ? &endpoints[index] : NULL;
}

const char *endpoint_parameter(size_t number)
{
    return number < PARAMETERS ? parameters[number].name : NULL;
}

struct slice endpoint_description(void)
{
    return openapi_files[0].bytes;
}

/* ---- look-up --------------------------------------------------------------------------------- */

static bool path_matches(struct slice template, struct slice path, struct slice *ret_part)
{
    struct slice part = {.ptr = NULL};

    while (template.ptr != NULL && path.ptr != NULL) {
        struct slice want = slice_cut(&template, '/'), have = slice_cut(&path, '/');

        if (slice_starts(want, SLICE("{"))) {
            part = have;
        } else if (!slice_equal(want, have)) {
            return false;
        }
    }
    if (template.ptr != NULL || path.ptr != NULL) {
        return false;
    }
    *ret_part = part;
    return true;
}

const struct endpoint *endpoint_find(struct slice method, struct slice path, struct slice *ret_part,
                                     const char **ret_allowed)
{
    static const char *const allowed[] = {NULL, "Allow: GET, HEAD\r\n", "Allow: POST\r\n",
                                          "Allow: GET, HEAD, POST\r\n"};
    unsigned methods = 0;

    if (slice_equal(method, SLICE("HEAD"))) {
        method = SLICE("GET");
    }
    for (size_t i = 0; i < ENDPOINTS; i++) {
        if (path_matches(slice_string(endpoints[i].path), path, ret_part)) {
            if (slice_equal(method, slice_string(endpoints[i].method))) {
                return &endpoints[i];
            }
            methods |= strcmp(endpoints[i].method, "GET") == 0 ? 1u : 2u;
        }
    }
    *ret_allowed = allowed[methods];
    return NULL;
}

/* ---- query strings --------------------------------------------------------------------------- */

/* Appends a decoded name or value: as in a path, with `+` for a blank. */
static bool decode_query(struct slice text, struct buf *out)
{
    bool good = true;

    for (struct slice rest = text; good && rest.ptr != NULL;) {
        good = http_decode(slice_cut(&rest, '+'), out);
        if (good && rest.ptr != NULL) {
            good = buf_add_byte(out, ' ');
        }
    }
    return good && buf_len(out) < out->limit;
}

/* Reports a parameter that this call does not have. All names fit into `error`. */
static void say_unknown(const struct endpoint *endpoint, struct slice name, struct buf *error)
{
    const char *separator = "; known are ";

    (void)buf_add_string(error, "query: ");
    (void)printable_add(error, name, 40);
    (void)buf_add_string(error, " is not known");
    for (size_t i = 0; i < PARAMETERS; i++) {
        if ((endpoint->parameters >> i & 1) != 0) {
            (void)buf_addf(error, "%s%s", separator, parameters[i].name);
            separator = ", ";
        }
    }
    if (endpoint->parameters == 0) {
        (void)buf_add_string(error, "; this call has no parameters");
    }
}

/* Converts a value to JSON. Returns NULL with the expected form in `error`. */
static json_t *read_value(const struct parameter *p, struct slice text, struct buf *error)
{
    unsigned long long number = 0;
    json_t *value;

    if (p->type == QUERY_NUMBER || p->type == QUERY_FLAG) {
        const char *want = p->type == QUERY_FLAG ? "0 or 1" : "a number";

        if (!slice_number(text, p->type == QUERY_FLAG ? 1 : INT64_MAX, &number)) {
            (void)buf_addf(error, "%s: %s is expected, not \"", p->name, want); /* fits */
            (void)printable_add(error, text, 40);
            (void)buf_add_string(error, "\"");
            return NULL;
        }
        return json_integer((json_int_t)number);
    }
    value = memchr(text.ptr, 0, text.len) == NULL ? json_stringn(text.ptr, text.len) : NULL;
    if (value == NULL) {
        (void)buf_addf(error, "%s: UTF-8 is expected", p->name);
    }
    return value;
}

/* Adds one pair to the query or its filter. Returns false with the expected form in `error`. */
static bool add_pair(const struct endpoint *endpoint, json_t *question, struct slice name,
                     struct slice text, struct buf *error)
{
    const struct parameter *p = NULL;
    json_t *into, *value, *list;

    for (size_t i = 0; i < PARAMETERS; i++) {
        if ((endpoint->parameters >> i & 1) != 0 &&
            slice_equal(name, slice_string(parameters[i].name))) {
            p = &parameters[i];
        }
    }
    if (p == NULL) {
        say_unknown(endpoint, name, error);
        return false;
    }
    into = p->in_filter ? json_object_get(question, "filter") : question;
    list = json_object_get(into, p->name);
    if (list != NULL && p->type != QUERY_TEXTS) {
        (void)buf_addf(error, "%s: it is there twice, once is expected", p->name); /* fits */
        return false;
    }
    value = read_value(p, text, error);
    if (value == NULL) {
        return false;
    }
    if (p->type != QUERY_TEXTS) {
        json_put(into, p->name, value);
        return true;
    }
    if (list == NULL) {
        list = json_array();
        json_put(into, p->name, list);
    }
    json_add(list, value);
    return true;
}

bool endpoint_read_query(const struct endpoint *endpoint, struct slice query, json_t *question,
                         struct buf *error)
{
    struct slice raw_name, raw_value;
    bool ok = true;

    json_put(question, "filter", json_object());
    while (ok && http_parameter(&query, &raw_name, &raw_value)) {
        struct buf name, value;

        buf_init(&name, TEXT_MAX);
        buf_init(&value, TEXT_MAX);
        if (!decode_query(raw_name, &name) || !decode_query(raw_value, &value)) {
            (void)buf_add_string(error, "query: name=value&name=value is expected"); /* fits */
            ok = false;
        } else {
            struct slice text = buf_len(&value) == 0 ? SLICE("") : buf_slice(&value);

            ok = add_pair(endpoint, question, buf_slice(&name), text, error);
        }
        buf_fini(&name);
        buf_fini(&value);
    }
    return ok;
}

json_t *endpoint_decode(struct slice part)
{
    json_t *json = NULL;
    struct buf plain;

    buf_init(&plain, TEXT_MAX);
    if (http_decode(part, &plain) && buf_len(&plain) > 0 &&
        memchr(buf_slice(&plain).ptr, 0, buf_len(&plain)) == NULL) {
        json = json_stringn(buf_slice(&plain).ptr, buf_len(&plain));
    }
    buf_fini(&plain);
    return json != NULL ? json : json_string("");
}
