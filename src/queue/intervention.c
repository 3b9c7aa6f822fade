#include "intervention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "checksum.h"
#include "class_name.h"
#include "idn.h"
#include "json.h"
#include "match.h"
#include "mem.h"
#include "nexthop.h"
#include "param.h"
#include "printable.h"
#include "route.h"
#include "status.h"

static const char *const verb_names[INTERVENTION_VERBS] = {"pause", "bounce", "redirect", "limit"};

const char *intervention_verb_name(enum intervention_verb verb)
{
    return verb_names[verb];
}

/* ---- references ----------------------------------------------------------------------------- */

struct intervention *intervention_ref(struct intervention *i)
{
    i->references++;
    return i;
}

void intervention_unref(struct intervention *i)
{
    if (i == NULL || --i->references > 0) {
        return;
    }
    mem_free(i->key);
    mem_free(i->target);
    mem_free(i->transport);
    mem_free(i->host);
    mem_free(i->text);
    mem_free(i->to_transport);
    mem_free(i->to);
    mem_free(i->by);
    mem_free(i->node);
    mem_free(i->note);
    json_decref(i->values);
    mem_free(i);
}

void intervention_number(struct intervention *i, uint64_t number)
{
    i->number = number;
    (void)snprintf(i->name, sizeof i->name, "%s-%llu", verb_names[i->verb],
                   (unsigned long long)number); /* fits */
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Returns the form in which targets and properties of mail are compared, apart from letter case.
 * The result is `text` or in the room. */
static struct slice comparable(enum intervention_scope scope, struct slice text,
                               char room[INTERVENTION_TARGET_MAX])
{
    switch (scope) {
    case INTERVENTION_DESTINATION:
        return nexthop_canonical(text, room, INTERVENTION_TARGET_MAX);
    case INTERVENTION_SENDER:
        return idn_address(text, room, INTERVENTION_TARGET_MAX);
    case INTERVENTION_CLASS:
        return text;
    }
    UNREACHABLE("all scopes are above");
}

static char *lower_copy(enum intervention_scope scope, struct slice s)
{
    char room[INTERVENTION_TARGET_MAX], *copy;

    s = comparable(scope, s, room);
    copy = mem_copy(s.ptr, s.len);
    for (size_t i = 0; i < s.len; i++) {
        copy[i] = ascii_lower(copy[i]);
    }
    return copy;
}

/* Finds blanks and control characters, which no address, domain or next hop has. Non-ASCII is
 * fine. */
static bool has_blank(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == 127) {
            return true;
        }
    }
    return false;
}

static bool has_control(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] < ' ' || s.ptr[i] == 127) {
            return true;
        }
    }
    return false;
}

static bool has_mark(const char *s)
{
    return strpbrk(s, "*?") != NULL;
}

/* Reads a text member; a missing one is empty. Returns false, with *error set, if it is no text,
 * too long, or has control characters. */
static bool get_text(const json_t *object, const char *name, size_t max, struct slice *ret,
                     struct buf *error)
{
    const json_t *value = json_object_get(object, name);

    *ret = slice_of("", 0);
    if (value == NULL) {
        return true;
    }
    if (json_is_string(value)) {
        *ret = slice_trim(slice_of(json_string_value(value), json_string_length(value)));
    }
    if (!json_is_string(value) || ret->len > max || has_control(*ret)) {
        (void)buf_addf(error,
                       "%s: a text of at most %zu bytes without control characters is "
                       "expected",
                       name, max);
        return false;
    }
    return true;
}

static void expect(struct buf *error, const char *name, const char *what, struct slice bad)
{
    (void)buf_addf(error, "%s: %s is expected, not \"", name, what);
    (void)printable_add(error, bad, 80);
    (void)buf_add_string(error, "\"");
}

/* `conf` NULL: every name is accepted. */
static bool transport_fits(const struct conf *conf, struct slice transport)
{
    if (conf == NULL || conf_spool_routes(conf)) {
        return true; /* no list of transports */
    }
    if (conf_transport_find(conf, transport) != NULL) {
        return true;
    }
    for (size_t i = 0; i < conf_transport_count(conf); i++) {
        if (glob_match(transport, slice_string(conf_transport_at(conf, i)->name))) {
            return true;
        }
    }
    return false;
}

/* Reads "TRANSPORT/NEXTHOP", "TRANSPORT/", "TRANSPORT", "DOMAIN", or a pattern of these. */
static bool read_destination(struct intervention *i, const struct conf *conf, struct slice text,
                             struct buf *error)
{
    static const char what[] = "a domain, a next hop, transport/nexthop, a transport, or a pattern "
                               "of these with * and ?";
    struct slice host = text, transport = slice_of("", 0);
    size_t slash = slice_find(text, '/');
    bool is_path = slice_starts(text, SLICE("unix:"));

    if (slice_starts(host, SLICE("*@"))) {
        host = slice_skip(host, 2);
    } else if (slice_starts(host, SLICE("@"))) {
        host = slice_skip(host, 1);
    } else if (!is_path && slash < text.len) {
        transport = slice_of(text.ptr, slash);
        host = slice_skip(text, slash + 1);
        if (transport.len == 0 || !transport_fits(conf, transport)) {
            expect(error, "destination", "the name of a transport in front of the /", transport);
            return false;
        }
        host = host.len == 0 ? SLICE("*") : host;
    } else if (conf != NULL && conf_transport_find(conf, text) != NULL) {
        transport = text;
        host = SLICE("*");
    }
    if (host.len == 0 || has_blank(text) ||
        (slice_find(host, '@') < host.len && !slice_starts(host, SLICE("unix:")))) {
        expect(error, "destination", what, text);
        return false;
    }
    i->transport = transport.len == 0 || slice_equal(transport, SLICE("*"))
                       ? NULL
                       : mem_copy(transport.ptr, transport.len);
    i->host = lower_copy(i->scope, host);
    i->is_pattern = (i->transport != NULL && has_mark(i->transport)) ||
                    (has_mark(i->host) && strcmp(i->host, "*") != 0);
    if (i->is_pattern &&
        ((i->transport != NULL && glob_error(slice_string(i->transport)) != NULL) ||
         (has_mark(i->host) && nexthop_pattern_error(slice_string(i->host)) != NULL))) {
        expect(error, "destination", "a pattern of a form that clauses have, too", text);
        return false;
    }
    if (i->transport != NULL && strcmp(i->host, "*") == 0) {
        i->target = mem_new(strlen(i->transport) + sizeof "/*");
        (void)strcat(strcpy(i->target, i->transport), "/*"); /* fits */
    } else if (i->transport != NULL) {
        i->target = mem_copy(text.ptr, text.len);
    } else {
        i->target = mem_copy(host.ptr, host.len);
    }
    return true;
}

/* Reads "user@domain", "@domain", "*@domain", "domain", "<>", or any of them in <>. */
static bool read_sender(struct intervention *i, struct slice text, struct buf *error)
{
    struct slice address = text;
    size_t at;

    if (address.len >= 2 && address.ptr[0] == '<' && address.ptr[address.len - 1] == '>') {
        address = slice_of(address.ptr + 1, address.len - 2);
    }
    address = slice_starts(address, SLICE("*@")) ? slice_skip(address, 1) : address;
    at = slice_find_last(address, '@');
    if (text.len == 0 || has_blank(address) || slice_find(address, '*') < address.len ||
        (at < address.len && at + 1 == address.len) || (address.len == 0 && text.len != 2)) {
        expect(error, "sender", "an address, a domain as @domain, or <>", text);
        return false;
    }
    if (address.len == 0) {
        i->host = mem_string("");
        i->target = mem_string("<>");
    } else if (at == address.len) {
        i->target = mem_new(address.len + 2);
        i->target[0] = '@';
        memcpy(i->target + 1, address.ptr, address.len);
        i->host = lower_copy(i->scope, slice_string(i->target));
    } else {
        i->target = mem_copy(address.ptr, address.len);
        i->host = lower_copy(i->scope, address);
    }
    return true;
}

static bool read_class(struct intervention *i, struct slice text, struct buf *error)
{
    char room[CLASS_NAME_MAX];
    struct slice name;

    if (!class_name_parse(text, room, &name)) {
        expect(error, "class", "the name of a class", text);
        return false;
    }
    i->host = mem_copy(name.ptr, name.len);
    i->target = mem_copy(name.ptr, name.len);
    return true;
}

static bool read_target(struct intervention *i, const struct conf *conf, const json_t *object,
                        struct buf *error)
{
    static const char *const names[] = {"destination", "sender", "class"};
    size_t given = 0;
    struct slice text;

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (json_object_get(object, names[n]) != NULL) {
            i->scope = (enum intervention_scope)n;
            given++;
        }
    }
    if (given != 1) {
        (void)buf_add_string(error,
                             "what it is about is expected: one of destination, sender, class");
        return false;
    }
    if (!get_text(object, names[i->scope], INTERVENTION_TARGET_MAX, &text, error)) {
        return false;
    }
    switch (i->scope) {
    case INTERVENTION_DESTINATION:
        return read_destination(i, conf, text, error);
    case INTERVENTION_SENDER:
        return read_sender(i, text, error);
    case INTERVENTION_CLASS:
        return read_class(i, text, error);
    }
    UNREACHABLE("all scopes are above");
}

/* Reads the target of a redirect: NEXTHOP, or TRANSPORT:NEXTHOP. */
static bool read_redirect(struct intervention *i, const struct conf *conf, const json_t *object,
                          struct buf *error)
{
    struct slice text, rest, transport;
    char room[ROUTE_NEXTHOP_MAX];
    struct nexthop nexthop;

    if (!get_text(object, "nexthop", ROUTE_NEXTHOP_MAX, &text, error)) {
        return false;
    }
    rest = text;
    transport = slice_cut(&rest, ':');
    if (rest.ptr != NULL && conf_transport_find(conf, transport) != NULL) {
        i->to_transport = mem_copy(transport.ptr, transport.len);
    } else {
        rest = text;
    }
    if (has_blank(rest) || slice_find(rest, '*') < rest.len || slice_find(rest, '@') < rest.len ||
        !nexthop_parse(rest, &nexthop)) {
        expect(error, "nexthop",
               "host, host:port, [host], [host]:port or unix:path, perhaps with "
               "TRANSPORT: in front,",
               text);
        return false;
    }
    if (i->scope != INTERVENTION_DESTINATION) {
        (void)buf_add_string(error, "redirect: a destination is expected, not a sender or a class");
        return false;
    }
    rest = nexthop_canonical(rest, room, sizeof room);
    i->to = mem_copy(rest.ptr, rest.len);
    return true;
}

/* Parameters that a limit can set: those of the scheduler for destinations, and for transports. */
static const struct {
    const char *name;
    bool of_transport;
} limits[] = {
    {"destination_concurrency_limit", false},
    {"initial_destination_concurrency", false},
    {"destination_rate_delay", false},
    {"destination_concurrency_failed_cohort_limit", false},
    {"destination_concurrency_positive_feedback", false},
    {"destination_concurrency_negative_feedback", false},
    {"maxthr", false},
    {"process_limit", true},
    {"transport_rate_delay", true},
};

bool intervention_is_of_transport(const char *name)
{
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (strcmp(limits[i].name, name) == 0) {
            return limits[i].of_transport;
        }
    }
    return false;
}

static bool read_value(const struct intervention *i, const char *name, const json_t *value,
                       struct buf *error)
{
    const struct param *p = param_find_in_clause(slice_string(name));
    struct policy policy = {0};
    struct pool pool = {NULL};
    struct slice bad;
    size_t n = 0;
    bool ok;

    while (p != NULL && n < sizeof limits / sizeof limits[0] &&
           strcmp(limits[n].name, p->suffix) != 0) {
        n++;
    }
    if (p == NULL || n == sizeof limits / sizeof limits[0]) {
        (void)buf_add_string(error, "values: ");
        (void)printable_add(error, slice_string(name), 60);
        (void)buf_add_string(error, " can't be changed so; these can:");
        for (n = 0; n < sizeof limits / sizeof limits[0]; n++) {
            (void)buf_addf(error, "%s %s", n > 0 ? "," : "", limits[n].name);
        }
        return false;
    }
    if (limits[n].of_transport &&
        (i->transport == NULL || i->is_pattern || strcmp(i->host, "*") != 0)) {
        (void)buf_addf(error,
                       "values: %s is one of a transport as a whole: TRANSPORT/ is expected "
                       "as destination",
                       limits[n].name);
        return false;
    }
    if (!json_is_string(value)) {
        (void)buf_addf(error, "values: %s: a text is expected", limits[n].name);
        return false;
    }
    ok = param_parse(p, slice_trim(slice_string(json_string_value(value))), &pool, &policy, &bad);
    pool_fini(&pool);
    if (!ok) {
        (void)buf_addf(error, "values: %s: ", limits[n].name);
        param_add_expected(error, p);
        (void)buf_add_string(error, " is expected, not \"");
        (void)printable_add(error, bad, 80);
        (void)buf_add_string(error, "\"");
    }
    return ok;
}

static bool read_values(struct intervention *i, const json_t *object, struct buf *error)
{
    json_t *values = json_object_get(object, "values"), *value;
    const char *name;

    if (!json_is_object(values) || json_object_size(values) == 0 ||
        json_object_size(values) > INTERVENTION_VALUES_MAX) {
        (void)buf_add_string(error, "values: an object with names and values of parameters is "
                                    "expected");
        return false;
    }
    if (i->scope != INTERVENTION_DESTINATION) {
        (void)buf_add_string(error, "limit: a destination is expected, not a sender or a class");
        return false;
    }
    i->values = json_object();
    json_object_foreach(values, name, value)
    {
        const struct param *p = param_find_in_clause(slice_string(name));

        if (!read_value(i, name, value, error)) {
            return false;
        }
        json_put(i->values, p->suffix, json_incref(value));
    }
    return true;
}

/* Reads "until" (seconds since 1970), or "for" (seconds). */
static bool read_end(struct intervention *i, const json_t *object, struct wall now,
                     struct buf *error)
{
    const json_t *until = json_object_get(object, "until"), *span = json_object_get(object, "for");
    double at = json_number_value(until), seconds = json_number_value(span);

    if (until != NULL && span != NULL) {
        (void)buf_add_string(error, "until, or for, is expected, not both");
        return false;
    }
    if (until != NULL) {
        if (!json_is_number(until) || at <= (double)now.us / (double)US_PER_S || at > 1e11) {
            (void)buf_add_string(error, "until: a time to come is expected, in seconds since 1970");
            return false;
        }
        i->until.us = (int64_t)(at * (double)US_PER_S);
    }
    if (span != NULL) {
        if (!json_is_number(span) || seconds < 1 || seconds > 100.0 * 366 * 86400) {
            (void)buf_add_string(error,
                                 "for: a number of seconds is expected, from 1 to 100 years");
            return false;
        }
        i->until = wall_after(now, (int64_t)(seconds * (double)US_PER_S));
    }
    return true;
}

static bool read_verb(struct intervention *i, const json_t *object, struct buf *error)
{
    const char *verb = json_string_value(json_object_get(object, "verb"));

    for (int v = 0; verb != NULL && v < INTERVENTION_VERBS; v++) {
        if (strcmp(verb, verb_names[v]) == 0) {
            i->verb = (enum intervention_verb)v;
            return true;
        }
    }
    (void)buf_add_string(error, "verb: pause, bounce, redirect or limit is expected");
    return false;
}

/* Checks the text of a bounce, which may begin with a permanent status. */
static bool check_report(const struct intervention *i, struct buf *error)
{
    struct status status;
    size_t len;

    for (const char *c = i->text; *c != '\0'; c++) {
        if ((unsigned char)*c >= 127) {
            (void)buf_add_string(error, "reason: it stands in reports, so ASCII is expected");
            return false;
        }
    }
    if (status_prefix(slice_string(i->text), &status, &len) && status.class != STATUS_PERMANENT) {
        (void)buf_add_string(error, "reason: a status in front of it has to be one of failure, "
                                    "5.x.y");
        return false;
    }
    return true;
}

static bool is_member(const char *name)
{
    static const char *const known[] = {"verb",  "destination", "sender",  "class",      "reason",
                                        "until", "for",         "nexthop", "values",     "name",
                                        "since", "number",      "op",      "recipients", "by",
                                        "node",  "local"};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Refuses a member of another verb, which would have no effect. */
static bool fits_verb(const struct intervention *i, const char *name, struct buf *error)
{
    if ((strcmp(name, "nexthop") == 0 && i->verb != INTERVENTION_REDIRECT) ||
        (strcmp(name, "values") == 0 && i->verb != INTERVENTION_LIMIT)) {
        (void)buf_addf(error, "%s: %s has none", name, verb_names[i->verb]); /* fits */
        return false;
    }
    return true;
}

static bool check_members(const struct intervention *i, const json_t *object, struct buf *error)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!is_member(name)) {
            (void)printable_add(error, slice_string(name), 60);
            (void)buf_add_string(error, ": known are verb, destination, sender, class, reason, "
                                        "until, for, nexthop, values");
            return false;
        }
        if (!fits_verb(i, name, error)) {
            return false;
        }
    }
    return true;
}

static bool read_all(struct intervention *i, const struct conf *conf, const json_t *object,
                     struct wall now, bool is_stored, struct buf *error)
{
    struct slice text, by, node;
    struct buf key;

    if (!read_verb(i, object, error) || !check_members(i, object, error) ||
        !read_target(i, is_stored ? NULL : conf, object, error) ||
        !read_end(i, object, now, error) ||
        !get_text(object, "reason", INTERVENTION_TEXT_MAX, &text, error) ||
        !get_text(object, "by", INTERVENTION_WHO_MAX, &by, error) ||
        !get_text(object, "node", INTERVENTION_WHO_MAX, &node, error)) {
        return false;
    }
    if (conf_spool_routes(conf) && !conf_spool_uses_services(conf) &&
        (i->verb == INTERVENTION_BOUNCE || i->verb == INTERVENTION_REDIRECT)) {
        (void)buf_addf(error, "%s: in this store its router says where mail goes",
                       verb_names[i->verb]);
        return false;
    }
    i->text = mem_copy(text.ptr, text.len);
    i->by = mem_copy(by.ptr, by.len);
    i->node = mem_copy(node.ptr, node.len);
    if ((i->verb == INTERVENTION_BOUNCE && !check_report(i, error)) ||
        (i->verb == INTERVENTION_REDIRECT && !read_redirect(i, conf, object, error)) ||
        (i->verb == INTERVENTION_LIMIT && !read_values(i, object, error))) {
        return false;
    }
    i->since = now;
    buf_init(&key, 4096);
    intervention_put_key(&key, i->scope, i->transport, slice_string(i->host));
    i->key = mem_string(buf_cstr(&key));
    buf_fini(&key);
    return true;
}

static struct intervention *read_one(const struct conf *conf, const json_t *object, struct wall now,
                                     bool is_stored, struct buf *error)
{
    struct intervention *i = mem_new(sizeof *i);
    double since = json_number_value(json_object_get(object, "since"));

    i->references = 1;
    if (!read_all(i, conf, object, now, is_stored, error)) {
        intervention_unref(i);
        return NULL;
    }
    if (since > 0) {
        i->since.us = (int64_t)(since * (double)US_PER_S);
    }
    return i;
}

struct intervention *intervention_read(const struct conf *conf, const json_t *object,
                                       struct wall now, struct buf *error)
{
    return read_one(conf, object, now, false, error);
}

struct intervention *intervention_read_stored(const struct conf *conf, const json_t *object,
                                              struct buf *error)
{
    return read_one(conf, object, (struct wall){1}, true, error);
}

/* ---- unreadable ones ------------------------------------------------------------------------ */

struct intervention *intervention_unreadable(const struct conf *conf, const json_t *object,
                                             enum intervention_stored stored, struct slice why)
{
    static const char *const names[] = {"destination", "sender", "class"};
    json_t *pause = json_pack("{s:s}", "verb", "pause");
    struct intervention *i = NULL;
    struct buf error, text;

    CHECK(pause != NULL && stored != INTERVENTION_WHOLE);
    buf_init(&error, 4096);
    buf_init(&text, INTERVENTION_TEXT_MAX);
    for (size_t n = 0; object != NULL && n < sizeof names / sizeof names[0]; n++) {
        json_t *target = json_object_get(object, names[n]);

        if (target != NULL) {
            json_put(pause, names[n], json_incref(target));
        }
    }
    if (json_object_size(pause) == 2) {
        i = intervention_read_stored(conf, pause, &error);
    }
    if (i == NULL) {
        json_decref(pause);
        buf_clear(&error);
        pause = json_pack("{s:s, s:s}", "verb", "pause", "destination", "*");
        i = intervention_read_stored(conf, pause, &error);
        CHECK(i != NULL);
    }
    (void)printable_add(&text, why, INTERVENTION_TEXT_MAX); /* may be cut */
    mem_free(i->text);
    i->text = mem_string(text.failed ? "it can't be read" : buf_cstr(&text));
    i->stored = stored;
    buf_fini(&text);
    buf_fini(&error);
    json_decref(pause);
    return i;
}

/* An older program accepts any value of this member, and refuses members that it does not know. */
#define SEAL_MEMBER "op"
#define SEAL_PREFIX "sum "

static void print_seal(const json_t *object, char room[sizeof SEAL_PREFIX + 16])
{
    json_t *copy = json_copy((json_t *)(uintptr_t)object);
    char *text;

    CHECK(copy != NULL);
    (void)json_object_del(copy, SEAL_MEMBER); /* may have none */
    text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    CHECK(text != NULL);
    (void)snprintf(room, sizeof SEAL_PREFIX + 16, SEAL_PREFIX "%016llx", /* fits */
                   (unsigned long long)checksum_of(slice_string(text)));
    free(text);
    json_decref(copy);
}

void intervention_seal(json_t *object)
{
    char seal[sizeof SEAL_PREFIX + 16];

    print_seal(object, seal);
    json_put(object, SEAL_MEMBER, json_string(seal));
}

bool intervention_is_whole(const json_t *object)
{
    const json_t *found = json_object_get(object, SEAL_MEMBER);
    char seal[sizeof SEAL_PREFIX + 16];

    if (found == NULL) {
        return true;
    }
    print_seal(object, seal);
    return json_is_string(found) && strcmp(json_string_value(found), seal) == 0;
}

json_t *intervention_json(const struct intervention *i)
{
    static const char *const scopes[] = {"destination", "sender", "class"};
    json_t *object =
        json_pack("{s:s, s:I, s:s, s:s, s:s}", "name", i->name, "number", (json_int_t)i->number,
                  "verb", verb_names[i->verb], scopes[i->scope], i->target, "reason", i->text);

    CHECK(object != NULL);
    json_put_time(object, "since", i->since);
    json_put_time(object, "until", i->until);
    if (i->to != NULL && i->to_transport != NULL) {
        json_put(object, "nexthop", json_pack("s++", i->to_transport, ":", i->to));
    } else if (i->to != NULL) {
        json_put(object, "nexthop", json_string(i->to));
    }
    if (i->values != NULL) {
        json_put(object, "values", json_incref(i->values));
    }
    if (i->by[0] != '\0') {
        json_put(object, "by", json_string(i->by));
    }
    if (i->node[0] != '\0') {
        json_put(object, "node", json_string(i->node));
        if (!i->is_shared) {
            json_put(object, "local", json_true());
        }
    }
    if (i->stored != INTERVENTION_WHOLE) {
        json_put(object, "unreadable", json_true());
    }
    json_put(object, "recipients", json_integer((json_int_t)i->recipients));
    return object;
}

/* ---- comparing ------------------------------------------------------------------------------ */

void intervention_put_key(struct buf *out, enum intervention_scope scope, const char *transport,
                          struct slice text)
{
    char room[INTERVENTION_TARGET_MAX];

    text = comparable(scope, text, room);
    (void)buf_addf(out, "%c%s/", "dsc"[scope], transport != NULL ? transport : "*");
    for (size_t i = 0; i < text.len; i++) {
        (void)buf_add_byte(out, ascii_lower(text.ptr[i])); /* all have limits */
    }
}

static bool host_matches(const struct intervention *i, struct slice host)
{
    char lower[INTERVENTION_TARGET_MAX], room[INTERVENTION_TARGET_MAX];
    struct slice want = slice_string(i->host);

    host = comparable(INTERVENTION_DESTINATION, host, room);
    if (slice_equal(want, SLICE("*")) || slice_equal_nocase(want, host)) {
        return true;
    }
    if (!has_mark(i->host) || host.len > sizeof lower) {
        return false;
    }
    for (size_t n = 0; n < host.len; n++) {
        lower[n] = ascii_lower(host.ptr[n]);
    }
    return nexthop_match(want, slice_of(lower, host.len));
}

bool intervention_matches_destination(const struct intervention *i, const char *transport,
                                      struct slice nexthop)
{
    if (i->scope != INTERVENTION_DESTINATION) {
        return false;
    }
    if (i->transport != NULL && strcmp(i->transport, transport) != 0 &&
        !(i->is_pattern && glob_match(slice_string(i->transport), slice_string(transport)))) {
        return false;
    }
    return host_matches(i, nexthop);
}

bool intervention_matches(const struct intervention *i, const struct intervention_mail *mail)
{
    char room[INTERVENTION_TARGET_MAX];
    struct slice sender;
    size_t at;

    switch (i->scope) {
    case INTERVENTION_DESTINATION:
        return intervention_matches_destination(i, mail->transport, mail->nexthop) ||
               (i->transport == NULL && mail->domain.len > 0 && host_matches(i, mail->domain));
    case INTERVENTION_SENDER:
        sender = comparable(i->scope, mail->sender, room);
        if (i->host[0] != '@') {
            return slice_equal_nocase(slice_string(i->host), sender);
        }
        at = slice_find_last(sender, '@');
        return at < sender.len && slice_equal_nocase(slice_string(i->host), slice_skip(sender, at));
    case INTERVENTION_CLASS:
        return slice_equal(slice_string(i->host), mail->class_name);
    }
    UNREACHABLE("all scopes are above");
}

static int rank(const struct intervention *i)
{
    if (i->scope == INTERVENTION_SENDER) {
        return i->host[0] == '@' ? 5 : 6;
    }
    if (i->scope == INTERVENTION_CLASS) {
        return 0;
    }
    return i->is_pattern ? 2 : strcmp(i->host, "*") == 0 ? 1 : i->transport == NULL ? 3 : 4;
}

bool intervention_precedes(const struct intervention *a, const struct intervention *b)
{
    return rank(a) != rank(b) ? rank(a) > rank(b) : a->number > b->number;
}

void intervention_limit(const struct intervention *i, struct policy *policy)
{
    struct pool pool = {NULL};
    struct slice bad;
    const char *name;
    json_t *value;

    json_object_foreach(i->values, name, value)
    {
        /* Only numbers, times and feedbacks: none uses the pool. */
        CHECK(param_parse(param_find_in_clause(slice_string(name)),
                          slice_trim(slice_string(json_string_value(value))), &pool, policy, &bad));
    }
    pool_fini(&pool);
}
