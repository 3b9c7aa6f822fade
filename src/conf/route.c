#include "route.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "conf.h"
#include "conf_private.h"
#include "hash.h"
#include "match.h"
#include "mem.h"
#include "nexthop.h"

/* ---- tables --------------------------------------------------------------------------------- */

struct entry {
    UT_hash_handle hh;
    const struct conf_transport *transport; /* NULL: as without the table */
    const char *nexthop;                    /* "" = not given */
    char key[];                             /* lower case */
};

struct route_map {
    struct entry *entries;
    struct pool pool;
};

struct route_maps {
    size_t count;
    bool have_unix; /* an entry has a next hop unix:PATH */
    struct route_map maps[];
};

/* A right side or a transport parameter: "transport:nexthop", "transport", ":nexthop". */
struct target {
    struct slice transport, nexthop;
};

static struct target target_of(struct slice text)
{
    struct target t = {.nexthop = text};

    t.transport = slice_cut(&t.nexthop, ':');
    t.nexthop = t.nexthop.ptr == NULL ? SLICE("") : slice_trim(t.nexthop);
    t.transport = slice_trim(t.transport);
    return t;
}

/* What is wrong with a target, or NULL. */
static const char *target_error(const struct conf *conf, const struct target *t)
{
    const struct conf_transport *transport = conf_transport_find(conf, t->transport);
    struct nexthop n;

    if (t->transport.len > 0 && transport == NULL) {
        return "names a transport that nothing declares";
    }
    if (t->nexthop.len > ROUTE_NEXTHOP_MAX) {
        return "has a next hop longer than 512 bytes";
    }
    if (t->nexthop.len == 0) {
        return NULL;
    }
    if (transport != NULL && transport->policy.agent != CONF_AGENT_SMTP &&
        transport->policy.agent != CONF_AGENT_LMTP) {
        return NULL; /* a text, or what the agent makes of it */
    }
    return nexthop_parse(t->nexthop, &n)
               ? NULL
               : "has a next hop that is none of host, [host], host:port, [host]:port, unix:path";
}

static bool is_unix(const char *nexthop)
{
    return slice_starts(slice_string(nexthop), SLICE("unix:"));
}

static char *lower_copy(char *room, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        room[i] = ascii_lower(s.ptr[i]);
    }
    room[s.len] = '\0';
    return room;
}

/* FNV-1a: a fixed function, for a fingerprint that is stored and compared between processes. Nobody
 * gains by a collision: the tables are the administrator's own. */
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t fnv(uint64_t h, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        h = (h ^ (unsigned char)s.ptr[i]) * FNV_PRIME;
    }
    return (h ^ 0xff) * FNV_PRIME; /* so that "a","bc" and "ab","c" differ */
}

struct map_reader {
    const struct conf *conf;
    struct route_maps *maps;
    struct route_map *map;
    struct conf_problems *problems;
    const char *file;
    unsigned line, lines;
};

static void read_line(struct map_reader *r, struct slice line)
{
    struct slice text = slice_trim(line);
    size_t key_len = 0;

    if (text.len == 0 || text.ptr[0] == '#') {
        return;
    }
    while (key_len < text.len && text.ptr[key_len] != ' ' && text.ptr[key_len] != '\t') {
        key_len++;
    }
    unsigned column = (unsigned)(text.ptr - line.ptr) + 1;
    struct slice key = slice_of(text.ptr, key_len), value = slice_trim(slice_skip(text, key_len));
    struct target t = target_of(value);
    const char *error = value.len == 0                        ? "has no transport:nexthop behind it"
                        : slice_find(value, ':') == value.len ? "has no `:' behind its transport"
                                                              : target_error(r->conf, &t);
    struct entry *e;

    if (error != NULL) {
        problem_add(r->problems, CONF_ERROR, r->file, r->line, column, "`%.*s' %s",
                    key.len > 100 ? 100 : (int)key.len, key.ptr, error);
        return;
    }
    if (++r->lines > ROUTE_MAP_MAX) {
        if (r->lines == ROUTE_MAP_MAX + 1) {
            problem_add(r->problems, CONF_ERROR, r->file, r->line, column, "more than %u entries",
                        ROUTE_MAP_MAX);
        }
        return;
    }
    e = pool_new(&r->map->pool, sizeof *e + key.len + 1);
    lower_copy(e->key, key);
    e->transport = t.transport.len == 0 ? NULL : conf_transport_find(r->conf, t.transport);
    e->nexthop = pool_string(&r->map->pool, t.nexthop);

    struct entry *before;
    HASH_FIND(hh, r->map->entries, e->key, key.len, before);
    if (before != NULL) {
        problem_add(r->problems, CONF_WARNING, r->file, r->line, column,
                    "`%s' stands in this table before; the first holds", e->key);
        return;
    }
    HASH_ADD_KEYPTR(hh, r->map->entries, e->key, key.len, e);
    r->maps->have_unix = r->maps->have_unix || is_unix(e->nexthop);
}

/* A line that starts with a blank continues the one before, as in Postfix's tables. */
static void read_map(struct map_reader *r, struct slice text)
{
    struct buf logical;
    unsigned line = 0;

    if (slice_find(text, '\0') < text.len) {
        problem_add(r->problems, CONF_ERROR, r->file, 0, 0, "a NUL byte has no place in a text");
        return;
    }
    buf_init(&logical, CONF_LINE_MAX);
    while (text.ptr != NULL) {
        struct slice part = slice_cut(&text, '\n'), trimmed = slice_trim(part);

        line++;
        if (trimmed.len == 0 || trimmed.ptr[0] == '#') {
            continue;
        }
        if (part.ptr[0] != ' ' && part.ptr[0] != '\t') {
            read_line(r, buf_slice(&logical));
            buf_clear(&logical);
            r->line = line;
        } else {
            (void)buf_add_byte(&logical, ' '); /* failure is sticky, seen below */
        }
        if (!buf_add(&logical, trimmed)) {
            problem_add(r->problems, CONF_ERROR, r->file, line, 1,
                        "the line is longer than %u bytes", CONF_LINE_MAX);
            buf_clear(&logical);
        }
    }
    read_line(r, buf_slice(&logical));
    buf_fini(&logical);
}

/* "texthash:" and "hash:" are Postfix's names of such a file; the text is what is read. */
static struct slice without_type(struct slice file)
{
    if (slice_starts(file, SLICE("texthash:"))) {
        return slice_skip(file, 9);
    }
    return slice_skip(file, slice_starts(file, SLICE("hash:")) ? 5 : 0);
}

static void load_map(struct conf *conf, size_t index, struct slice name, const char *directory,
                     struct conf_problems *problems)
{
    const char *path = path_below(&conf->inner->pool, directory, without_type(name));
    const struct setting *where =
        &conf->inner->settings[param_find(SLICE("transport_maps")) - param_table];
    struct route_maps *maps = conf->inner->maps;
    struct map_reader r = {
        .conf = conf, .maps = maps, .map = &maps->maps[index], .problems = problems, .file = path};
    struct buf content;
    int error;

    buf_init(&content, ROUTE_MAP_FILE_MAX);
    error = file_read(conf->inner->world, path, &content);
    if (error != 0) {
        problem_add(problems, CONF_ERROR, where->file, where->line, where->column,
                    "transport_maps: can't read %s: %s", path, strerror(-error));
    } else {
        read_map(&r, buf_slice(&content));
    }
    buf_fini(&content);
}

void route_maps_free(struct route_maps *maps)
{
    for (size_t i = 0; maps != NULL && i < maps->count; i++) {
        HASH_CLEAR(hh, maps->maps[i].entries);
        pool_fini(&maps->maps[i].pool);
    }
    mem_free(maps);
}

/* ---- after loading -------------------------------------------------------------------------- */

static void check_target(struct conf *conf, const char *name, const char *value,
                         struct conf_problems *problems)
{
    const struct setting *s = &conf->inner->settings[param_find(slice_string(name)) - param_table];
    struct target t = target_of(slice_string(value));
    const char *error = t.transport.len == 0 ? "has no transport" : target_error(conf, &t);

    if (error != NULL) {
        problem_add(problems, CONF_ERROR, s->raw != NULL ? s->file : "built-in defaults", s->line,
                    s->column, "%s: `%s' %s", name, value, error);
    }
}

static uint64_t list_fingerprint(uint64_t h, const struct conf_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        h = fnv(h, slice_string(list->items[i]));
    }
    return fnv(h, SLICE(""));
}

/* Entries are summed, so that the order of a hash table, which is seeded, does not matter. */
static uint64_t map_fingerprint(const struct route_map *map)
{
    uint64_t sum = 0;

    for (const struct entry *e = map->entries; e != NULL; e = e->hh.next) {
        uint64_t h = fnv(FNV_BASIS, slice_string(e->key));

        h = fnv(h, slice_string(e->transport == NULL ? "" : e->transport->name));
        sum += fnv(h, slice_string(e->nexthop));
    }
    return sum;
}

/* Everything that route_address looks at; recipient limits of clauses decide destination names. */
static uint64_t fingerprint(const struct conf *conf)
{
    const struct conf_private *inner = conf->inner;
    const struct param *limit = param_find_in_clause(SLICE("destination_recipient_limit"));
    uint64_t h = list_fingerprint(FNV_BASIS, &conf->local_domains);

    h = list_fingerprint(h, &conf->relay_domains);
    h = fnv(h, slice_string(conf->local_transport));
    h = fnv(h, slice_string(conf->relay_transport));
    h = fnv(h, slice_string(conf->default_transport));
    h = fnv(h, slice_string(conf->relayhost));
    h = fnv(h, slice_string(conf->myorigin));
    h = fnv(h, slice_string(conf->recipient_delimiter));
    for (size_t i = 0; i < inner->transport_count; i++) {
        h = fnv(h, slice_string(inner->transports[i].public.name));
        h = fnv(h, inner->transports[i].public.policy.destination_recipient_limit == 1
                       ? SLICE("1")
                       : SLICE("n"));
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct layer *own = &inner->clauses[i].body->own;

        if (own->set[limit - param_table]) {
            h = fnv(h, slice_string(inner->clauses[i].pattern));
            h = fnv(h, own->values.destination_recipient_limit == 1 ? SLICE("1") : SLICE("n"));
        }
    }
    for (size_t i = 0; i < inner->maps->count; i++) {
        uint64_t sum = map_fingerprint(&inner->maps->maps[i]);

        h = fnv(h, slice_of(&sum, sizeof sum));
    }
    return h;
}

void route_prepare(struct conf *conf, const char *directory, struct conf_problems *problems)
{
    struct route_maps *maps =
        mem_new(sizeof *maps + conf->transport_maps.count * sizeof maps->maps[0]);

    conf->inner->maps = maps;
    maps->count = conf->transport_maps.count;
    for (size_t i = 0; i < maps->count; i++) {
        load_map(conf, i, slice_string(conf->transport_maps.items[i]), directory, problems);
    }
    check_target(conf, "local_transport", conf->local_transport, problems);
    check_target(conf, "relay_transport", conf->relay_transport, problems);
    check_target(conf, "default_transport", conf->default_transport, problems);
    for (size_t i = 0; i < conf->defer_transports.count; i++) {
        const struct setting *s =
            &conf->inner->settings[param_find(SLICE("defer_transports")) - param_table];

        if (conf_transport_find(conf, slice_string(conf->defer_transports.items[i])) == NULL) {
            problem_add(problems, CONF_WARNING, s->file, s->line, s->column,
                        "defer_transports: nothing declares a transport `%s'",
                        conf->defer_transports.items[i]);
        }
    }
    conf->route_generation = fingerprint(conf) & INT64_MAX;
}

/* ---- routing -------------------------------------------------------------------------------- */

struct slice route_domain(struct slice address)
{
    size_t at = slice_find_last(address, '@');

    return at == address.len ? slice_of(address.ptr, 0) : slice_skip(address, at + 1);
}

static struct slice local_part(struct slice address)
{
    return slice_of(address.ptr, slice_find_last(address, '@'));
}

/* Without the extension. An address that is all extension stays: it would name nobody. The two
 * system names that contain a common delimiter are no user with an extension. */
static struct slice without_extension(const struct conf *conf, struct slice local)
{
    if (slice_equal_nocase(local, SLICE("mailer-daemon")) ||
        slice_equal_nocase(local, slice_string(conf->double_bounce_sender))) {
        return local;
    }
    for (size_t i = 1; i < local.len; i++) {
        if (strchr(conf->recipient_delimiter, local.ptr[i]) != NULL) {
            return slice_of(local.ptr, i);
        }
    }
    return local;
}

static const struct entry *map_get(const struct route_maps *maps, struct slice key)
{
    const struct entry *e = NULL;

    for (size_t i = 0; i < maps->count && e == NULL; i++) {
        HASH_FIND(hh, maps->maps[i].entries, key.ptr, key.len, e);
    }
    return e;
}

/* `address` is in lower case and no longer than ADDRESS_MAX. */
static const struct entry *map_lookup(const struct conf *conf, struct slice address)
{
    const struct route_maps *maps = conf->inner->maps;
    struct slice domain = route_domain(address), local = local_part(address);
    struct slice user = without_extension(conf, local);
    const struct entry *e = map_get(maps, address);

    if (e == NULL && user.len < local.len) {
        char bare[ADDRESS_MAX];

        memcpy(bare, user.ptr, user.len);
        memcpy(bare + user.len, address.ptr + local.len, address.len - local.len);
        e = map_get(maps, slice_of(bare, address.len - local.len + user.len));
    }
    if (e == NULL) {
        e = map_get(maps, domain);
    }
    for (size_t dot;
         e == NULL && (dot = slice_find(slice_skip(domain, 1), '.') + 1) < domain.len;) {
        domain = slice_skip(domain, dot);
        e = map_get(maps, domain);
    }
    return e != NULL ? e : map_get(maps, SLICE("*"));
}

static void set_nexthop(struct route *route, struct slice nexthop)
{
    CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX);
    memcpy(route->nexthop, nexthop.ptr, nexthop.len);
    route->nexthop[nexthop.len] = '\0';
}

/* What holds without transport_maps. */
static void route_by_class(const struct conf *conf, struct slice domain, struct route *route)
{
    bool local = domain_list_match(&conf->local_domains, domain);
    const char *text = local                                             ? conf->local_transport
                       : domain_list_match(&conf->relay_domains, domain) ? conf->relay_transport
                                                                         : conf->default_transport;
    struct target t = target_of(slice_string(text));

    route->transport = conf_transport_find(conf, t.transport)->name;
    set_nexthop(route, t.nexthop.len > 0                      ? t.nexthop
                       : !local && conf->relayhost[0] != '\0' ? slice_string(conf->relayhost)
                                                              : domain);
}

static void refuse(struct route *route, const char *text)
{
    route->transport = "error";
    set_nexthop(route, slice_string(text));
}

/* Why an address can't be delivered to, or NULL. Receivers check more; this is for what comes by
 * other ways. */
static const char *address_error(struct slice address)
{
    if (address.len == 0) {
        return "5.1.3 null recipient address";
    }
    if (address.len > ADDRESS_MAX || local_part(address).len == 0 ||
        route_domain(address).len == 0 || memchr(address.ptr, '\0', address.len) != NULL) {
        return "5.1.3 bad address syntax";
    }
    return NULL;
}

void route_address(const struct conf *conf, struct slice recipient, struct route *ret_route)
{
    char room[ADDRESS_MAX + 1], whole[ADDRESS_MAX];
    const struct entry *e;
    const char *error;

    *ret_route = (struct route){.transport = NULL};
    if (recipient.len > 0 && slice_find(recipient, '@') == recipient.len) {
        size_t origin_len = strlen(conf->myorigin);

        if (recipient.len + 1 + origin_len <= ADDRESS_MAX) {
            memcpy(whole, recipient.ptr, recipient.len);
            whole[recipient.len] = '@';
            memcpy(whole + recipient.len + 1, conf->myorigin, origin_len);
            recipient = slice_of(whole, recipient.len + 1 + origin_len);
        }
    }
    error = address_error(recipient);
    if (error != NULL) {
        refuse(ret_route, error);
        route_destination(conf, recipient, ret_route);
        return;
    }

    struct slice lower = slice_of(lower_copy(room, recipient), recipient.len);
    struct slice domain = route_domain(recipient);
    e = map_lookup(conf, lower);
    route_by_class(conf, domain, ret_route);
    if (e != NULL && e->transport != NULL) {
        ret_route->transport = e->transport->name;
        set_nexthop(ret_route, domain);
    }
    if (e != NULL && e->nexthop[0] != '\0') {
        set_nexthop(ret_route, slice_string(e->nexthop));
    } else if (e != NULL && e->transport != NULL &&
               e->transport->policy.agent == CONF_AGENT_ERROR) {
        set_nexthop(ret_route, SLICE("5.0.0 mail to this address is not accepted"));
    }
    route_destination(conf, recipient, ret_route);
}

void route_destination(const struct conf *conf, struct slice recipient, struct route *route)
{
    struct slice nexthop = slice_string(route->nexthop);
    struct policy policy;
    char *at = route->destination;

    policy_for(conf, slice_string(route->transport), nexthop, &policy);
    if (policy.destination_recipient_limit == 1 && policy.agent != CONF_AGENT_ERROR &&
        policy.agent != CONF_AGENT_RETRY && recipient.len <= ADDRESS_MAX) {
        struct slice user = without_extension(conf, local_part(recipient));

        lower_copy(at, user);
        at += user.len;
        *at++ = '@';
    }
    lower_copy(at, nexthop);
}

static bool list_has_unix(const struct conf_list *list)
{
    bool found = false;

    for (size_t i = 0; i < list->count; i++) {
        found = found || is_unix(list->items[i]);
    }
    return found;
}

bool route_has_unix_nexthops(const struct conf *conf)
{
    const struct conf_private *inner = conf->inner;
    const char *const targets[] = {conf->local_transport, conf->relay_transport,
                                   conf->default_transport};
    bool found = inner->maps->have_unix || is_unix(conf->relayhost);

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        found = found || slice_starts(target_of(slice_string(targets[i])).nexthop, SLICE("unix:"));
    }
    for (size_t i = 0; i < inner->transport_count; i++) {
        found = found || list_has_unix(&inner->transports[i].public.policy.fallback_relay);
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        found = found || list_has_unix(&inner->clauses[i].body->own.values.fallback_relay) ||
                (inner->clauses[i].body->base != NULL &&
                 list_has_unix(&inner->clauses[i].body->base->values.fallback_relay));
    }
    return found;
}

bool route_accepts_domain(const struct conf *conf, struct slice domain)
{
    return domain_list_match(&conf->local_domains, domain) ||
           domain_list_match(&conf->relay_domains, domain);
}
