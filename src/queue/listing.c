#include "listing.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "check.h"
#include "json.h"
#include "match.h"
#include "mem.h"
#include "park_key.h"
#include "shape.h"
#include "spool_others.h"
#include "spool_division.h"
#include "whole.h"

/* Messages of a control file that are listed with the first one. */
#define PARTS_MAX 1000
/* Rows of the messages and parts of a page: fewer than a spool in a database caches. */
#define LISTING_ROWS_MAX 1000

static const struct {
    const char *name;
    enum spool_state state;
} states[] = {
    {"incoming", SPOOL_INCOMING},
    {"deferred", SPOOL_DEFERRED},
    {"hold", SPOOL_HOLD},
    {"corrupt", SPOOL_CORRUPT},
};
#define STATE_COUNT (sizeof states / sizeof states[0])

const char *listing_state_name(enum spool_state state)
{
    for (size_t i = 0; i < STATE_COUNT; i++) {
        if (states[i].state == state) {
            return states[i].name;
        }
    }
    UNREACHABLE("every state has a name");
}

unsigned listing_error(unsigned status, json_t **ret_answer, const char *format, ...)
{
    va_list args;
    struct buf text;

    buf_init(&text, 8192);
    va_start(args, format);
    (void)buf_addv(&text, format, args); /* an empty text is better than none */
    va_end(args);
    *ret_answer = json_pack("{s:s%}", "error", buf_slice(&text).ptr, buf_len(&text));
    if (*ret_answer == NULL) {
        *ret_answer = json_pack("{s:s}", "error", "the text of this error is not UTF-8");
    }
    buf_fini(&text);
    return status;
}

static unsigned spool_failed(struct spool *sp, int rc, json_t **ret_answer)
{
    return listing_error(rc == -ENOENT    ? 404
                         : rc == -EBADMSG ? 409
                                          : 503,
                         ret_answer, "%s", spool_error(sp));
}

json_t *listing_text(struct slice s)
{
    bool has_nul = s.len > 0 && slice_find(s, '\0') < s.len;
    json_t *json = has_nul ? NULL : json_stringn(s.ptr, s.len);
    struct buf utf8;

    if (json != NULL) {
        return json;
    }
    buf_init(&utf8, s.len * 4 + 16);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '\0') {
            (void)buf_add_string(&utf8, "\\x00"); /* readers of JSON refuse NUL; fits */
        } else if (c < 0x80) {
            (void)buf_add_byte(&utf8, s.ptr[i]); /* fits */
        } else {
            (void)buf_add_byte(&utf8, (char)(0xc0 | c >> 6)); /* fits */
            (void)buf_add_byte(&utf8, (char)(0x80 | (c & 0x3f)));
        }
    }
    json = json_stringn(buf_slice(&utf8).ptr, buf_len(&utf8));
    buf_fini(&utf8);
    CHECK(json != NULL);
    return json;
}

/* ---- filters -------------------------------------------------------------------------------- */

static bool add_state(const json_t *name, unsigned *mask)
{
    for (size_t i = 0; i < STATE_COUNT; i++) {
        if (json_is_string(name) && strcmp(json_string_value(name), states[i].name) == 0) {
            *mask |= 1u << states[i].state;
            return true;
        }
    }
    return false;
}

static bool is_active(const json_t *name)
{
    return json_is_string(name) && strcmp(json_string_value(name), "active") == 0;
}

static bool get_text(const json_t *value, struct slice *ret)
{
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) > 2 * ADDRESS_MAX) {
        return false;
    }
    *ret = slice_of(json_string_value(value), json_string_length(value));
    return true;
}

static bool has_any_of(struct slice s, const char *chars)
{
    for (size_t i = 0; i < s.len; i++) {
        if (strchr(chars, s.ptr[i]) != NULL) { /* also finds NUL */
            return true;
        }
    }
    return false;
}

/* Characters that an address without quotes can't have: the text is a pattern, or a list. */
#define NO_ADDRESS " \t,*<>@"

/* Reads an address as people type it. "a@b" and "<a@b>" are one address. "@d", "*@d" and "d" are
 * all addresses of a domain, and `value` is rewritten; "d" must have a dot, because it may be a
 * user's name. Returns false for a text with another meaning, which would match nothing. */
static bool get_address(json_t *value, struct slice *ret)
{
    char whole_domain[2 * ADDRESS_MAX + 2] = "@";
    struct slice typed, local, domain;
    size_t at;

    if (!get_text(value, &typed)) {
        return false;
    }
    typed = slice_trim(typed);
    if (typed.len > 2 && typed.ptr[0] == '<' && typed.ptr[typed.len - 1] == '>') {
        *ret = slice_of(typed.ptr + 1, typed.len - 2); /* exactly this text */
        return ret->ptr[0] != '@';
    }
    typed = slice_starts(typed, SLICE("*@")) ? slice_skip(typed, 1) : typed;
    at = slice_find_last(typed, '@');
    local = slice_of(typed.ptr, at < typed.len ? at : 0);
    domain = at < typed.len ? slice_skip(typed, at + 1) : typed;
    if (domain.len == 0 || domain.ptr[0] == '.' || has_any_of(domain, NO_ADDRESS) ||
        (!slice_starts(local, SLICE("\"")) && has_any_of(local, NO_ADDRESS))) {
        return false;
    }
    if (at < typed.len) {
        *ret = typed;
        return true;
    }
    if (slice_find(domain, '.') == domain.len) {
        return false;
    }
    memcpy(whole_domain + 1, domain.ptr, domain.len);
    CHECK(json_string_setn(value, whole_domain, domain.len + 1) == 0); /* it was UTF-8 before */
    *ret = slice_of(json_string_value(value), domain.len + 1);
    return true;
}

static bool get_sender(json_t *value, struct slice *ret)
{
    return (get_text(value, ret) && slice_equal(slice_trim(*ret), SLICE("<>")))
               ? (*ret = SLICE("<>"), true)
               : get_address(value, ret);
}

/* Reads "transport/nexthop", a next hop, or a domain, which may begin with @. */
static bool get_destination(json_t *value, struct slice *ret)
{
    if (!get_text(value, ret)) {
        return false;
    }
    *ret = slice_trim(*ret);
    *ret = slice_starts(*ret, SLICE("*@")) ? slice_skip(*ret, 1) : *ret;
    *ret = slice_starts(*ret, SLICE("@")) ? slice_skip(*ret, 1) : *ret;
    return ret->len > 0 && ret->ptr[ret->len - 1] != '/' && !has_any_of(*ret, NO_ADDRESS);
}

/* Reads a host's name or address, a network, or a pattern. */
static bool get_client(json_t *value, struct listing_filter *lf)
{
    struct slice typed;

    if (!get_text(value, &typed)) {
        return false;
    }
    typed = slice_trim(typed);
    if (typed.len > 2 && typed.ptr[0] == '[' && typed.ptr[typed.len - 1] == ']') {
        typed = slice_of(typed.ptr + 1, typed.len - 2);
    }
    lf->client = typed;
    lf->client_is_network = slice_find(typed, '/') < typed.len;
    return typed.len > 0 && (!lf->client_is_network || cidr_parse(typed, &lf->client_network));
}

static bool get_states(const json_t *value, unsigned *ret, bool *ret_active)
{
    size_t i;
    json_t *element;

    if (!json_is_array(value)) {
        *ret_active = *ret_active || is_active(value);
        return is_active(value) || add_state(value, ret);
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, element)
    {
        *ret_active = *ret_active || is_active(element);
        if (!is_active(element) && !add_state(element, ret)) {
            return false;
        }
    }
    return true;
}

/* Reads one member of a filter. Returns NULL, or a text with the expected value. */
static const char *filter_member(struct listing_filter *lf, const char *key, json_t *value,
                                 struct wall now)
{
    struct spool_filter *f = &lf->spool;
    json_int_t number = json_integer_value(value);
    bool counted = json_is_integer(value) && number >= 0 && number <= INT64_MAX / US_PER_S;

    if (strcmp(key, "state") == 0) {
        return get_states(value, &f->states, &lf->active)
                   ? NULL
                   : "state: incoming, active, deferred, hold or corrupt is expected";
    }
    if (strcmp(key, "sender") == 0) {
        return get_sender(value, &f->sender)
                   ? NULL
                   : "sender: an address, @domain or <> is expected (patterns are not known; a "
                     "domain without a dot needs its @; <...> is exactly what is in it)";
    }
    if (strcmp(key, "recipient") == 0) {
        return get_address(value, &f->rcpt)
                   ? NULL
                   : "recipient: an address or @domain is expected (patterns are not known; a "
                     "domain without a dot needs its @; <...> is exactly what is in it)";
    }
    if (strcmp(key, "destination") == 0) {
        return get_destination(value, &f->destination)
                   ? NULL
                   : "destination: transport/nexthop, a next hop or a domain is expected";
    }
    if (strcmp(key, "class") == 0) {
        return get_text(value, &f->class_name) ? NULL : "class: a name is expected";
    }
    if (strcmp(key, "name") == 0) {
        return get_text(value, &f->name) ? NULL : "name: a name, path or spoolid is expected";
    }
    if (strcmp(key, "older_than") == 0) {
        f->arrived_before.us = counted ? now.us - number * US_PER_S : 0;
        return counted ? NULL : "older_than: a number of seconds is expected";
    }
    if (strcmp(key, "newer_than") == 0) {
        f->arrived_after.us = counted ? now.us - number * US_PER_S : 0;
        return counted ? NULL : "newer_than: a number of seconds is expected";
    }
    if (strcmp(key, "min_size") == 0) {
        f->size_min = (uint64_t)number;
        return counted ? NULL : "min_size: a number of bytes is expected";
    }
    if (strcmp(key, "max_size") == 0) {
        f->size_max = (uint64_t)number;
        return counted ? NULL : "max_size: a number of bytes is expected";
    }
    if (strcmp(key, "reason") == 0) {
        return get_text(value, &lf->reason) ? NULL : "reason: a text or a pattern is expected";
    }
    if (strcmp(key, "client") == 0) {
        return get_client(value, lf)
                   ? NULL
                   : "client: a host's name, an address, a network like 192.0.2.0/24 or a pattern "
                     "is expected";
    }
    return "filter: known are state, sender, recipient, destination, class, name, reason, client "
           "(texts), older_than, newer_than (seconds), min_size, max_size (bytes)";
}

bool listing_filter(json_t *filter, struct wall now, struct listing_filter *ret_filter,
                    const char **ret_error)
{
    /* Use a new snapshot: cached results of an earlier question may be out of date. */
    struct listing_filter f = {.spool.look = (uint64_t)now.us};
    const char *key;
    json_t *value;

    if (filter != NULL && !json_is_object(filter)) {
        *ret_error = "filter: an object is expected";
        return false;
    }
    json_object_foreach(filter, key, value)
    {
        *ret_error = filter_member(&f, key, value, now);
        if (*ret_error != NULL) {
            return false;
        }
    }
    if (f.active) { /* on disk, a message in memory is in one of these states */
        f.states = f.spool.states;
        f.spool.states |= 1u << SPOOL_INCOMING | 1u << SPOOL_DEFERRED;
    }
    *ret_filter = f;
    return true;
}

/* Is the typed text, words or a pattern, within `text`, or, if `whole`, equal to `text`? Case is
 * ignored. */
static bool means(struct slice typed, struct slice text, bool whole)
{
    char pattern[2 * ADDRESS_MAX + 2], *lower;
    bool is_pattern = has_any_of(typed, "*?"), matches = false;

    CHECK(typed.len + 2 <= sizeof pattern); /* get_text limits it */
    if (whole && !is_pattern) {
        return slice_equal_nocase(typed, text);
    }
    pattern[0] = pattern[typed.len + 1] = '*';
    for (size_t i = 0; i < typed.len; i++) {
        pattern[i + 1] = ascii_lower(typed.ptr[i]);
    }
    lower = mem_copy(text.ptr, text.len);
    for (size_t i = 0; i < text.len; i++) {
        lower[i] = ascii_lower(lower[i]);
    }
    if (!is_pattern) {
        matches = memmem(lower, text.len, pattern + 1, typed.len) != NULL;
    } else if (whole) {
        matches = glob_match(slice_of(pattern + 1, typed.len), slice_of(lower, text.len));
    } else {
        matches = glob_match(slice_of(pattern, typed.len + 2), slice_of(lower, text.len));
    }
    mem_free(lower);
    return matches;
}

/* Does the filter match "name[address]": all or part of it, a domain of the name, or a network? */
static bool client_matches(const struct listing_filter *f, struct slice client)
{
    size_t open = slice_find(client, '['), close = slice_find_last(client, ']');
    struct slice name = slice_of(client.ptr, open), typed = f->client, address = SLICE("");
    unsigned char ip[16];

    if (open < close && close < client.len) {
        address = slice_of(client.ptr + open + 1, close - open - 1);
    }
    if (f->client_is_network) {
        return ip_parse(address, ip) && cidr_match(&f->client_network, ip);
    }
    return means(typed, client, true) || means(typed, name, true) || means(typed, address, true) ||
           (name.len > typed.len && slice_ends_nocase(name, typed) &&
            name.ptr[name.len - typed.len - 1] == '.');
}

/* Does the text match the message's reason or a recipient's reply? *looked grows by the number
 * read. */
static bool a_reason_matches(struct spool *sp, struct msg_id id, struct slice typed,
                             const struct spool_message *m, size_t *looked)
{
    struct spool_rcpt page[100];
    uint32_t after = 0;
    size_t count;

    if (m->reason.len > 0 && means(typed, m->reason, false)) {
        return true;
    }
    do {
        if (spool_read_rcpts(sp, id, after, false, 100, page, &count) != 0) {
            return false; /* the reason of a damaged message is enough */
        }
        *looked += count;
        for (size_t i = 0; i < count; i++) {
            after = page[i].n;
            if (page[i].diagnostic.len > 0 && means(typed, page[i].diagnostic, false)) {
                return true;
            }
        }
    } while (count == 100);
    return false;
}

/* Messages with parts in memory, sorted. */
struct divided {
    struct msg_id *ids; /* owned */
    size_t count;
};

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = ((const struct msg_id *)a)->n, y = ((const struct msg_id *)b)->n;

    return x < y ? -1 : x > y;
}

static void find_divided(struct spool *sp, struct divided *d)
{
    struct msg_id page[200];
    struct spool_message m;
    uint64_t cursor = 0;
    size_t size = 0;

    *d = (struct divided){.ids = NULL};
    do {
        size_t count = spool_claimed(sp, &cursor, sizeof page / sizeof page[0], page);

        for (size_t i = 0; i < count; i++) {
            if (spool_read(sp, page[i], &m) != 0 || spool_whole(&m).n == m.id.n) {
                continue;
            }
            if (d->count == size) {
                size = size == 0 ? 64 : 2 * size;
                d->ids = mem_resize(d->ids, size, sizeof *d->ids);
            }
            d->ids[d->count++] = spool_whole(&m);
        }
    } while (cursor != 0);
    if (d->count > 0) {
        qsort(d->ids, d->count, sizeof *d->ids, compare_ids);
    }
}

static bool is_wanted(struct spool *sp, const struct listing_filter *f, const struct divided *d,
                      struct msg_id id, size_t *looked)
{
    struct spool_message m;
    bool in_memory =
        f->active &&
        (spool_is_claimed(sp, id) ||
         (d->count > 0 && bsearch(&id, d->ids, d->count, sizeof id, compare_ids) != NULL));

    if ((f->active && !in_memory && f->states == 0) ||
        (f->extra != NULL && !f->extra(f->context, id))) {
        return false;
    }
    if (f->reason.len == 0 && f->client.len == 0 && (!f->active || in_memory)) {
        return true;
    }
    if (spool_read(sp, id, &m) != 0) {
        return false;
    }
    return (!f->active || in_memory || (f->states >> m.state & 1) != 0) &&
           (f->client.len == 0 || client_matches(f, m.client)) &&
           (f->reason.len == 0 || a_reason_matches(sp, id, f->reason, &m, looked));
}

int listing_scan(struct spool *sp, const struct listing_filter *f, size_t max,
                 struct msg_id *ret_ids, size_t *ret_count, struct msg_id *ret_last, bool *ret_more)
{
    struct spool_filter from = f->spool;
    struct msg_id page[200], rest = {0};
    struct divided divided = {.ids = NULL};
    size_t found = 0, looked = 0, count = 0;
    bool indexed = !f->active && f->reason.len == 0 && f->client.len == 0 && f->extra == NULL;
    bool more = true, cut = false;
    int rc;

    if (indexed) {
        rc = spool_scan(sp, &from, max, ret_ids, ret_count);
        *ret_more = rc == 0 && max > 0 && *ret_count == max;
        *ret_last = *ret_more ? ret_ids[max - 1] : from.after;
        *ret_more = *ret_more || (rc == 0 && spool_scan_goes_on(sp, ret_last));
        return rc;
    }
    if (f->active && spool_has_others(sp)) {
        find_divided(sp, &divided);
    }
    while (found < max && looked < LISTING_LOOKED_MAX && more && !cut) {
        rc = spool_scan(sp, &from, sizeof page / sizeof page[0], page, &count);
        if (rc != 0) {
            mem_free(divided.ids);
            return rc;
        }
        more = count == sizeof page / sizeof page[0];
        cut = !more && spool_scan_goes_on(sp, &rest); /* it has reached its limit for one call */
        for (size_t i = 0; i < count; i++) {
            if (found == max || looked >= LISTING_LOOKED_MAX) {
                more = true;
                cut = false;
                break;
            }
            looked++;
            from.after = page[i];
            if (is_wanted(sp, f, &divided, page[i], &looked)) {
                ret_ids[found++] = page[i];
            }
        }
    }
    mem_free(divided.ids);
    *ret_count = found;
    *ret_last = cut ? rest : from.after;
    *ret_more = max > 0 && (more || cut);
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------ */

size_t listing_ids(struct spool *sp, const char *text, size_t max, struct msg_id *ret_ids)
{
    struct spool_filter f = {.name = slice_string(text)};
    struct spool_message m;
    size_t count = 0;

    if (max > 0 && spool_id_parse(f.name, ret_ids) && spool_read(sp, *ret_ids, &m) != -ENOENT) {
        return 1;
    }
    return f.name.len > 0 && spool_scan(sp, &f, max, ret_ids, &count) == 0 ? count : 0;
}

unsigned listing_id(struct spool *sp, const char *text, struct msg_id *ret_id, json_t **ret_answer)
{
    struct msg_id id;

    if (text == NULL || text[0] == '\0') {
        return listing_error(400, ret_answer, "id: a queue id is expected");
    }
    if (listing_ids(sp, text, 1, ret_id) > 0) {
        return 200;
    }
    /* Only mail in files of other programs has names next to its id. */
    return spool_divides(sp) || spool_id_parse(slice_string(text), &id)
               ? listing_error(404, ret_answer, "%s: no such message", text)
               : listing_error(400, ret_answer, "%s: a queue id is expected", text);
}

/* ---- messages ------------------------------------------------------------------------------- */

const char *listing_shown_id(const struct spool_message *m, char room[QUEUE_NAME_MAX])
{
    if (m->path.len == 0 && m->spoolid.len > 0) {
        (void)snprintf(room, QUEUE_NAME_MAX, "%.*s", SLICE_ARGS(m->spoolid)); /* may be cut */
    } else {
        spool_id_print(spool_whole(m), room);
    }
    return room;
}

static json_t *rcpt_json(const struct spool_rcpt *r)
{
    static const char *const names[] = {
        [SPOOL_RCPT_PENDING] = "pending",
        [SPOOL_RCPT_FAILED] = "failed",
        [SPOOL_RCPT_DELIVERED] = "delivered",
        [SPOOL_RCPT_RELAYED] = "relayed",
    };
    json_t *object = json_object();

    json_put(object, "n", json_integer(r->n));
    json_put(object, "address", listing_text(r->address));
    json_put(object, "state", json_string(names[r->state]));
    json_put(object, "transport", listing_text(r->transport));
    json_put(object, "nexthop", listing_text(r->nexthop));
    if (r->route_generation == SPOOL_ROUTE_FIXED) {
        json_put(object, "route_fixed", json_true());
    }
    json_put(object, "attempts", json_integer(r->attempts));
    if (r->diagnostic.len > 0) {
        json_put(object, r->state == SPOOL_RCPT_FAILED ? "bounce_reason" : "delay_reason",
                 listing_text(r->diagnostic));
        json_put(object, "status", listing_text(r->status));
        json_put(object, "remote", listing_text(r->remote));
        if (r->tls.len > 0) {
            json_put(object, "tls", listing_text(r->tls));
        }
    }
    json_put_time(object, "last_attempt", r->last_attempt);
    return object;
}

/* Returns an upper bound of a text's length in JSON, in which a byte may become "\u0000". */
static size_t json_bytes(size_t text_len)
{
    return 400 + 6 * text_len;
}

static size_t rcpt_bytes(const struct spool_rcpt *r)
{
    return json_bytes(r->address.len + r->transport.len + r->nexthop.len + r->diagnostic.len +
                      r->remote.len + r->tls.len);
}

/* Recipients of several rows, sorted by number. */
struct rcpt_list {
    json_t *array;
    uint32_t ns[LISTING_RCPTS_MAX];
    size_t count;
};

static void add_rcpt(struct rcpt_list *list, const struct spool_rcpt *r)
{
    size_t at = list->count;

    CHECK(list->count < LISTING_RCPTS_MAX);
    while (at > 0 && list->ns[at - 1] > r->n) {
        list->ns[at] = list->ns[at - 1];
        at--;
    }
    list->ns[at] = r->n;
    list->count++;
    CHECK(json_array_insert_new(list->array, at, rcpt_json(r)) == 0);
}

/* Appends recipients of one row, with numbers after `after` up to `last`. */
static int add_rcpts(struct spool *sp, struct msg_id id, uint32_t after, uint32_t last,
                     size_t max_rcpts, size_t *bytes, struct rcpt_list *list)
{
    struct spool_rcpt page[100];
    size_t count = 1;
    int rc = 0;

    while (rc == 0 && count > 0 && list->count < max_rcpts && *bytes < LISTING_BYTES_MAX) {
        size_t max = max_rcpts - list->count < 100 ? max_rcpts - list->count : 100;

        count = 0;
        rc = spool_read_rcpts(sp, id, after, false, max, page, &count);
        for (size_t i = 0; rc == 0 && i < count && *bytes < LISTING_BYTES_MAX; i++) {
            if (page[i].n > last) {
                return 0;
            }
            add_rcpt(list, &page[i]);
            after = page[i].n;
            *bytes += rcpt_bytes(&page[i]);
        }
        count = count < max ? 0 : count;
    }
    return rc;
}

/* Appends recipients of all rows. *ret_next is the last one if there may be more, or 0. */
static int add_all_rcpts(struct spool *sp, const struct whole *w, uint32_t after, size_t max_rcpts,
                         size_t *bytes, json_t *array, uint32_t *ret_next)
{
    struct rcpt_list list = {.array = array};
    size_t room = *bytes < LISTING_BYTES_MAX ? LISTING_BYTES_MAX - *bytes : 0;
    uint32_t last;
    int rc = whole_page(sp, w, after, max_rcpts, room, rcpt_bytes, &last);

    for (size_t i = 0; i < w->count && rc == 0; i++) {
        rc = add_rcpts(sp, w->rows[i], after, last, max_rcpts, bytes, &list);
        rc = rc == -ENOENT && w->count > 1 ? 0 : rc; /* the part has ended */
    }
    *ret_next = 0;
    if (list.count == max_rcpts || *bytes >= LISTING_BYTES_MAX) {
        *ret_next = list.count > 0 ? list.ns[list.count - 1] : after;
    }
    return rc;
}

/* Makes the JSON of a message with at most `max_rcpts` recipients after number `after`, or fewer if
 * *bytes, to which the length is added, exceeds LISTING_BYTES_MAX. `parts`: with the recipients of
 * all its parts. On an error, such as -EBADMSG, the object has only the error's text, so that a
 * list can continue after a damaged message. */
static int message_json(struct spool *sp, struct msg_id id, bool parts, uint32_t after,
                        size_t max_rcpts, size_t *bytes, json_t **ret_object)
{
    json_t *object = json_object(), *array = json_array();
    struct spool_message m;
    char text[QUEUE_NAME_MAX];
    struct whole whole;
    uint32_t next;
    int rc = whole_read(sp, id, parts, &m, &whole);

    if (rc != 0) {
        spool_id_print(id, text);
        json_put(object, "queue_id", json_string(text));
        json_put(object, "queue_name", json_string("corrupt"));
        json_put(object, "reason", listing_text(slice_string(spool_error(sp))));
        json_put(object, "recipients", array);
        *ret_object = object;
        return rc;
    }
    json_put(object, "queue_id", json_string(listing_shown_id(&m, text)));
    json_put(object, "queue_name",
             json_string(whole.is_active ? "active" : listing_state_name(m.state)));
    *bytes += json_bytes(m.sender.len + m.client.len + m.envid.len + m.reason.len);
    if (m.path.len > 0) {
        json_put(object, "path", listing_text(m.path));
        json_put(object, "spoolid", listing_text(m.spoolid));
    }
    json_put_time(object, "arrival_time", m.arrived);
    json_put(object, "message_size", json_integer((json_int_t)m.size));
    json_put(object, "forced_expire", json_boolean(m.force_expire));
    json_put(object, "sender", listing_text(m.sender));
    json_put(object, "client", listing_text(m.client));
    if (m.class_name.len > 0) {
        json_put(object, "class", listing_text(m.class_name));
        json_put(object, "class_source", json_string(class_source_word(m.class_source)));
    }
    if (m.envid.len > 0) {
        json_put(object, "envid", listing_text(m.envid));
    }
    if (m.reason.len > 0) {
        bool stopped = m.state == SPOOL_HOLD || m.state == SPOOL_CORRUPT;

        json_put(object, stopped ? "reason" : "rules", listing_text(m.reason));
    }
    if ((m.state == SPOOL_DEFERRED && park_key_kind(m.parked) != PARK_REQUEST) ||
        m.state == SPOOL_INCOMING) {
        json_put_time(object, "next_attempt", spool_next_attempt(&m));
    }
    if (m.parked.len > 0) {
        json_put(object, "waits_for", listing_text(park_key_place(m.parked)));
    }
    json_put_time(object, "created", m.created);
    json_put(object, "recipients_total", json_integer(m.rcpt_total));
    json_put(object, "recipients_pending", json_integer(m.rcpt_pending));
    json_put(object, "recipients", array);
    rc = add_all_rcpts(sp, &whole, after, max_rcpts, bytes, array, &next);
    if (next > 0 || max_rcpts == 0) {
        json_put(object, "next_recipient", json_integer(next > 0 ? next : after));
    }
    if (rc != 0) {
        json_put(object, "reason", listing_text(slice_string(spool_error(sp))));
    }
    *ret_object = object;
    return 0;
}

static size_t get_count(const json_t *question, const char *name, size_t preset, size_t max)
{
    const json_t *value = json_object_get(question, name);
    json_int_t n = json_integer_value(value);

    return !json_is_integer(value) || n < 0 ? preset : (size_t)n > max ? max : (size_t)n;
}

/* Are all of these loaded? Missing ones are requested. A page with many parts gets fewer
 * messages. */
static bool are_at_hand(struct spool *sp, const struct msg_id *ids, size_t *count,
                        struct msg_id *last, bool *more)
{
    bool all = true, is_at_hand;
    size_t rows = 0;

    for (size_t i = 0; i < *count; i++) {
        if (rows >= LISTING_ROWS_MAX) {
            *count = i;
            *last = ids[i - 1];
            *more = true;
            break;
        }
        rows += whole_want(sp, ids[i], &is_at_hand);
        all = all && is_at_hand;
    }
    return all;
}

/* Answers with the page of messages that match the filter, after "after". */
static unsigned ask_list(struct spool *sp, const json_t *question, struct wall now,
                         json_t **ret_answer)
{
    size_t max = get_count(question, "max", 100, LISTING_PAGE_MAX), count = 0;
    size_t max_rcpts = get_count(question, "recipients", 50, LISTING_RCPTS_MAX);
    size_t bytes_max = get_count(question, "bytes", LISTING_BYTES_MAX, LISTING_BYTES_MAX);
    size_t bytes = 0, shown;
    const char *error, *after = json_string_value(json_object_get(question, "after"));
    struct listing_filter f;
    struct msg_id *ids, last;
    bool more;
    json_t *messages, *answer;
    int rc;

    if (!listing_filter(json_object_get(question, "filter"), now, &f, &error)) {
        return listing_error(400, ret_answer, "%s", error);
    }
    if (after != NULL && !spool_id_parse(slice_string(after), &f.spool.after)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    ids = mem_array(max, sizeof *ids);
    rc = listing_scan(sp, &f, max, ids, &count, &last, &more);
    if (rc != 0) {
        mem_free(ids);
        return spool_failed(sp, rc, ret_answer);
    }
    if (!are_at_hand(sp, ids, &count, &last, &more)) {
        mem_free(ids);
        return listing_error(503, ret_answer, "the messages are not loaded: try again");
    }
    answer = json_object();
    messages = json_array();
    json_put(answer, "messages", messages);
    for (shown = 0; shown < count && bytes < bytes_max; shown++) {
        json_t *message;

        if (message_json(sp, ids[shown], true, 0, max_rcpts, &bytes, &message) == -ENOENT) {
            json_decref(message); /* another process has removed it meanwhile */
        } else {
            CHECK(json_array_append_new(messages, message) == 0); /* perhaps an error */
        }
    }
    if (more || shown < count) {
        char text[SPOOL_ID_TEXT_MAX];
        spool_id_print(shown < count ? ids[shown - 1] : last, text);
        json_put(answer, "next", json_string(text));
    }
    mem_free(ids);
    *ret_answer = answer;
    return 200;
}

/* Adds the ids of the other messages of the control file that `text` names, if it does. */
static void add_parts(struct spool *sp, const char *text, json_t *object)
{
    struct msg_id ids[PARTS_MAX];
    size_t count = listing_ids(sp, text, PARTS_MAX, ids);
    json_t *parts = json_array();

    for (size_t i = 1; i < count; i++) {
        char id[SPOOL_ID_TEXT_MAX];

        spool_id_print(ids[i], id);
        CHECK(json_array_append_new(parts, json_string(id)) == 0);
    }
    if (count > 1) {
        json_put(object, "parts", json_incref(parts));
    }
    json_decref(parts);
}

static unsigned ask_show(struct spool *sp, const json_t *question, json_t **ret_answer)
{
    const char *text = json_string_value(json_object_get(question, "id"));
    size_t after = get_count(question, "after_recipient", 0, SPOOL_RCPTS_MAX), bytes = 0;
    struct msg_id id;
    json_t *object;
    unsigned status = listing_id(sp, text, &id, ret_answer);
    int rc;

    if (status != 200) {
        return status;
    }
    rc = message_json(sp, id, !json_is_true(json_object_get(question, "alone")), (uint32_t)after,
                      get_count(question, "recipients", LISTING_RCPTS_MAX, LISTING_RCPTS_MAX),
                      &bytes, &object);
    if (rc == -ENOENT) {
        json_decref(object);
        return listing_error(404, ret_answer, "%s: no such message", text);
    }
    add_parts(sp, text, object);
    *ret_answer = object;
    return 200;
}

/* Counts messages; without an index in pages, and "next" in the answer means that there are
 * more. */
static unsigned ask_count(struct spool *sp, const json_t *question, struct wall now,
                          json_t **ret_answer)
{
    const char *error, *after = json_string_value(json_object_get(question, "after"));
    struct msg_id ids[LISTING_PAGE_MAX], last;
    char text[SPOOL_ID_TEXT_MAX];
    struct listing_filter f;
    size_t found = 0;
    uint64_t count;
    bool more = false;
    int rc;

    if (!listing_filter(json_object_get(question, "filter"), now, &f, &error)) {
        return listing_error(400, ret_answer, "%s", error);
    }
    if (after != NULL && !spool_id_parse(slice_string(after), &f.spool.after)) {
        return listing_error(400, ret_answer, "after: a queue id is expected");
    }
    if (f.active || f.reason.len > 0 || f.client.len > 0) {
        rc = listing_scan(sp, &f, LISTING_PAGE_MAX, ids, &found, &last, &more);
        count = found;
    } else {
        rc = spool_count(sp, &f.spool, &count);
        more = rc == 0 && spool_scan_goes_on(sp, &last);
    }
    if (rc != 0) {
        return spool_failed(sp, rc, ret_answer);
    }
    *ret_answer = json_pack("{s:I}", "count", (json_int_t)count);
    if (more) {
        spool_id_print(last, text);
        json_put(*ret_answer, "next", json_string(text));
    }
    return 200;
}

static unsigned ask_destinations(struct spool *sp, const json_t *question, json_t **ret_answer)
{
    size_t max = get_count(question, "max", 100, LISTING_PAGE_MAX), count = 0;
    struct spool_destination *list = mem_array(max, sizeof *list);
    json_t *array = json_array();
    int rc = spool_destinations(sp, max, list, &count);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        json_t *object = json_object();
        json_put(object, "transport", listing_text(list[i].transport));
        json_put(object, "nexthop", listing_text(list[i].nexthop));
        json_put(object, "recipients", json_integer((json_int_t)list[i].rcpts));
        json_put(object, "messages", json_integer((json_int_t)list[i].messages));
        CHECK(json_array_append_new(array, object) == 0);
    }
    mem_free(list);
    if (rc != 0) {
        json_decref(array);
        return spool_failed(sp, rc, ret_answer);
    }
    *ret_answer = json_pack("{s:o}", "destinations", array);
    return 200;
}

static unsigned ask_totals(struct spool *sp, json_t **ret_answer)
{
    struct spool_totals t;
    int rc = spool_totals(sp, &t);

    if (rc != 0) {
        return spool_failed(sp, rc, ret_answer);
    }
    *ret_answer = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "incoming", (json_int_t)t.incoming,
                            "deferred", (json_int_t)t.deferred, "hold", (json_int_t)t.hold,
                            "corrupt", (json_int_t)t.corrupt, "bytes", (json_int_t)t.bytes, "files",
                            (json_int_t)t.files);
    return 200;
}

bool listing_knows(const char *op)
{
    static const char *const ops[] = {"list", "show", "count", "destinations", "shape", "totals"};

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(op, ops[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool listing_is_of_memory(const json_t *question)
{
    const char *op = json_string_value(json_object_get(question, "op"));
    const json_t *filter = json_object_get(question, "filter");
    unsigned others = 0;
    bool active = false;

    if (op == NULL || (strcmp(op, "list") != 0 && strcmp(op, "count") != 0)) {
        return false;
    }
    (void)get_states(json_object_get(filter, "state"), &others,
                     &active); /* errors are found later */
    return active;
}

unsigned listing_ask(struct spool *sp, const json_t *question, struct wall now, json_t **ret_answer)
{
    const char *op = json_string_value(json_object_get(question, "op"));

    CHECK(op != NULL);
    if (strcmp(op, "list") == 0) {
        return ask_list(sp, question, now, ret_answer);
    }
    if (strcmp(op, "show") == 0) {
        return ask_show(sp, question, ret_answer);
    }
    if (strcmp(op, "count") == 0) {
        return ask_count(sp, question, now, ret_answer);
    }
    if (strcmp(op, "shape") == 0) {
        return shape_ask(sp, question, now, ret_answer);
    }
    if (strcmp(op, "destinations") == 0) {
        return ask_destinations(sp, question, ret_answer);
    }
    CHECK(strcmp(op, "totals") == 0);
    return ask_totals(sp, ret_answer);
}
