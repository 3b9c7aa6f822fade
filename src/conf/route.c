#include "route.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "check.h"
#include "conf.h"
#include "conf_private.h"
#include "hash.h"
#include "idn.h"
#include "map_text.h"
#include "match.h"
#include "mem.h"
#include "nexthop.h"

/* ---- tables --------------------------------------------------------------------------------- */

struct entry {
    UT_hash_handle hh;
    const struct conf_transport *transport; /* NULL: that of the route without the table */
    const char *nexthop;                    /* "": not set */
    unsigned line;                          /* line in the file of its map */
    char key[];                             /* in lower case */
};

struct route_map {
    struct entry *entries;
    const char *file;
    struct pool pool;
};

struct route_maps {
    size_t count;
    size_t senders; /* index of the first map of sender_dependent_relayhost_maps */
    bool have_unix; /* true if an entry has a next hop unix:PATH */
    struct route_map maps[];
};

/* Right side of a map, or a transport parameter: "transport:nexthop", "transport", ":nexthop". */
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

/* Returns the fault of a target, or NULL. */
static const char *target_error(const struct conf *conf, const struct target *t)
{
    const struct conf_transport *transport = conf_transport_find(conf, t->transport);
    struct nexthop n;

    if (t->transport.len > 0 && transport == NULL) {
        return "names a transport that nothing declares";
    }
    if (transport != NULL && transport->policy.agent == CONF_AGENT_MILTER) {
        return "names the transport of our own reports on their way to filters";
    }
    if (t->nexthop.len > ROUTE_NEXTHOP_MAX) {
        return "has a next hop longer than 512 bytes";
    }
    if (t->nexthop.len == 0) {
        return NULL;
    }
    if (transport != NULL && transport->policy.agent != CONF_AGENT_SMTP &&
        transport->policy.agent != CONF_AGENT_LMTP) {
        return NULL; /* a text, or input of the agent */
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

/* FNV-1a: a fixed function for a fingerprint that is stored and compared between processes. A
 * collision helps no attacker, because the tables are the operator's own. */
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t fnv(uint64_t h, struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        h = (h ^ (unsigned char)s.ptr[i]) * FNV_PRIME;
    }
    return (h ^ 0xff) * FNV_PRIME; /* makes "a","bc" and "ab","c" differ */
}

struct map_reader {
    const struct conf *conf;
    struct route_maps *maps;
    struct route_map *map;
    struct conf_problems *problems;
    const char *file;
    unsigned lines;
    bool senders; /* true for sender_dependent_relayhost_maps */
};

/* Returns the fault of a line "pattern transport:nexthop", or NULL. */
static const char *transport_error(const struct map_reader *r, struct slice value,
                                   const struct target *t)
{
    return value.len == 0                        ? "has no transport:nexthop after it"
           : slice_find(value, ':') == value.len ? "has no `:' after its transport"
                                                 : target_error(r->conf, t);
}

/* Returns the fault of a line "sender nexthop", or NULL. */
static const char *sender_error(struct slice key, struct slice nexthop)
{
    struct nexthop n;

    if (!slice_equal(key, SLICE("<>")) && slice_find(key, '@') == key.len) {
        return "is none of an address, @domain and <>";
    }
    if (nexthop.len == 0) {
        return "has no next hop after it";
    }
    return nexthop_parse(nexthop, &n) && nexthop.len <= ROUTE_NEXTHOP_MAX
               ? NULL
               : "has a next hop that is none of host, [host], host:port, [host]:port, unix:path";
}

/* Parses a line of a sender. DUNNO ends the search without a result, as in Postfix. */
static const char *read_sender_line(struct slice key, struct slice value, struct target *ret_target)
{
    const char *error = sender_error(key, value);

    *ret_target =
        (struct target){.transport = SLICE(""),
                        .nexthop = slice_equal_nocase(value, SLICE("DUNNO")) ? SLICE("") : value};
    return error;
}

static void read_line(struct map_reader *r, const struct map_line *line)
{
    char room[ADDRESS_MAX];
    struct slice key = idn_address(line->key, room, sizeof room), value = line->value;
    struct target t = target_of(value);
    const char *error =
        r->senders ? read_sender_line(key, value, &t) : transport_error(r, value, &t);
    struct entry *e;

    if (error != NULL) {
        problem_add(r->problems, CONF_ERROR, r->file, line->line, 1, "`%.*s' %s",
                    key.len > 100 ? 100 : (int)key.len, key.ptr, error);
        return;
    }
    if (++r->lines > ROUTE_MAP_MAX) {
        if (r->lines == ROUTE_MAP_MAX + 1) {
            problem_add(r->problems, CONF_ERROR, r->file, line->line, 1, "more than %u entries",
                        ROUTE_MAP_MAX);
        }
        return;
    }
    e = pool_new(&r->map->pool, sizeof *e + key.len + 1);
    lower_copy(e->key, key);
    e->transport = t.transport.len == 0 ? NULL : conf_transport_find(r->conf, t.transport);
    e->nexthop = pool_string(&r->map->pool, t.nexthop);
    e->line = line->line;

    struct entry *before;
    HASH_FIND(hh, r->map->entries, e->key, key.len, before);
    if (before != NULL) {
        problem_add(r->problems, CONF_WARNING, r->file, line->line, 1,
                    "`%s' stands in this table before; the first holds", e->key);
        return;
    }
    HASH_ADD_KEYPTR(hh, r->map->entries, e->key, key.len, e);
    r->maps->have_unix = r->maps->have_unix || is_unix(e->nexthop);
}

static void read_map(struct map_reader *r, struct slice content)
{
    struct map_text text;
    struct map_line line;

    map_text_init(&text, content);
    while (map_text_next(&text, &line)) {
        read_line(r, &line);
    }
    if (text.error != NULL) {
        problem_add(r->problems, CONF_ERROR, r->file, text.error_line, text.error_line > 0, "%s",
                    text.error);
    }
    map_text_fini(&text);
}

/* Loads a map. `parameter` names the file. */
static void load_map(struct conf *conf, const char *parameter, size_t index, struct slice name,
                     const char *directory, struct conf_problems *problems)
{
    const char *path = path_below(&conf->inner->pool, directory, map_file_name(name));
    const struct setting *where =
        &conf->inner->settings[param_find(slice_string(parameter)) - param_table];
    struct route_maps *maps = conf->inner->maps;
    struct map_reader r = {.conf = conf,
                           .maps = maps,
                           .map = &maps->maps[index],
                           .problems = problems,
                           .file = path,
                           .senders = index >= maps->senders};
    struct buf content;
    int error;

    r.map->file = path;
    buf_init(&content, ROUTE_MAP_FILE_MAX);
    error = file_read(conf->inner->world, path, &content);
    if (error != 0) {
        problem_add(problems, CONF_ERROR, where->file, where->line, where->column,
                    "%s: can't read %s: %s", parameter, path, strerror(-error));
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

    if (conf_spool_routes(conf) &&
        (value == conf->content_filter || value == conf->fallback_transport)) {
        error = "can't hold here: in this store a router decides where mail goes";
    }

    if (error != NULL) {
        problem_add(problems, CONF_ERROR, s->raw != NULL ? s->file : "built-in defaults", s->line,
                    s->column, "%s: `%s' %s", name, value, error);
    }
}

/* Adds a name to a fingerprint. `self` and other machines' own names count as equal; NULL: no name
 * does. */
static uint64_t name_fingerprint(uint64_t h, const char *name, const char *self)
{
    return fnv(h, self != NULL && strcasecmp(name, self) == 0 ? SLICE("$myhostname")
                                                              : slice_string(name));
}

static uint64_t list_fingerprint(uint64_t h, const struct conf_list *list, const char *self)
{
    for (size_t i = 0; i < list->count; i++) {
        h = name_fingerprint(h, list->items[i], self);
    }
    return fnv(h, SLICE(""));
}

/* Returns the fingerprint of a map: a sum of its entries, because a seeded hash has no fixed
 * order. */
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

/* Returns the fingerprint of all input of route_address, and of recipient limits of clauses, which
 * determine names of destinations. `self` as in name_fingerprint. */
static uint64_t fingerprint(const struct conf *conf, const char *self)
{
    const struct conf_private *inner = conf->inner;
    const struct param *limit = param_find_in_clause(SLICE("destination_recipient_limit"));
    uint64_t h = list_fingerprint(FNV_BASIS, &conf->local_domains, self);

    h = list_fingerprint(h, &conf->relay_domains, self);
    h = fnv(h, slice_string(conf->local_transport));
    h = fnv(h, slice_string(conf->relay_transport));
    h = fnv(h, slice_string(conf->default_transport));
    h = fnv(h, slice_string(conf->relayhost));
    h = name_fingerprint(h, conf->myorigin, self);
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

/* Adds one value of a layer to a fingerprint: whether it is set, and whether it is a limit. */
static uint64_t limit_fingerprint(uint64_t h, const struct layer *layer, const struct param *limit)
{
    return fnv(h, layer == NULL || !layer->set[limit - param_table] ? SLICE("")
                  : layer->values.maxring > 0                       ? SLICE("1")
                                                                    : SLICE("0"));
}

/* Adds the input of policy_shared_ring to a fingerprint; `h` itself without rings. The size of a
 * limit has no effect. A machine's own name has, because two machines with these tables must
 * agree. */
static uint64_t ring_fingerprint(uint64_t h, const struct conf *conf)
{
    const struct conf_private *inner = conf->inner;
    const struct param *limit = param_find_in_clause(SLICE("maxring"));

    for (size_t i = 0; inner->has_rings && i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];

        if (!c->is_class) {
            h = fnv(h, slice_string(c->pattern));
            h = fnv(h, clause_declares(c) ? SLICE("d") : SLICE(""));
            h = limit_fingerprint(h, c->body->base, limit);
            h = limit_fingerprint(h, &c->body->own, limit);
        }
    }
    return h;
}

void route_prepare(struct conf *conf, const char *directory, struct conf_problems *problems)
{
    const struct conf_list *senders = &conf->sender_dependent_relayhost_maps;
    size_t count = conf->transport_maps.count + senders->count;
    struct route_maps *maps = mem_new(sizeof *maps + count * sizeof maps->maps[0]);

    conf->inner->maps = maps;
    maps->count = count;
    maps->senders = conf->transport_maps.count;
    for (size_t i = 0; i < maps->senders; i++) {
        load_map(conf, "transport_maps", i, slice_string(conf->transport_maps.items[i]), directory,
                 problems);
    }
    for (size_t i = 0; i < senders->count; i++) {
        load_map(conf, "sender_dependent_relayhost_maps", maps->senders + i,
                 slice_string(senders->items[i]), directory, problems);
    }
    check_target(conf, "local_transport", conf->local_transport, problems);
    check_target(conf, "relay_transport", conf->relay_transport, problems);
    check_target(conf, "default_transport", conf->default_transport, problems);
    if (conf->content_filter[0] != '\0') {
        check_target(conf, "content_filter", conf->content_filter, problems);
    }
    if (conf->fallback_transport[0] != '\0') {
        check_target(conf, "fallback_transport", conf->fallback_transport, problems);
    }
    for (size_t i = 0; i < conf->defer_transports.count; i++) {
        const struct setting *s =
            &conf->inner->settings[param_find(SLICE("defer_transports")) - param_table];

        if (conf_transport_find(conf, slice_string(conf->defer_transports.items[i])) == NULL) {
            problem_add(problems, CONF_WARNING, s->file, s->line, s->column,
                        "defer_transports: nothing declares a transport `%s'",
                        conf->defer_transports.items[i]);
        }
    }
    conf->route_generation = fingerprint(conf, NULL) % (INT64_MAX - 1) + 1;
    conf->route_tables =
        ring_fingerprint(fingerprint(conf, conf->myhostname), conf) % (INT64_MAX - 1) + 1;
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

/* An address that is only an extension keeps it, because the rest names no user. The two system
 * names that contain a common delimiter have no extension. */
struct slice route_without_extension(const struct conf *conf, struct slice local)
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

/* Searches the maps from index `from` to before `to`. */
static const struct entry *get_among(const struct route_maps *maps, size_t from, size_t to,
                                     struct slice key)
{
    const struct entry *e = NULL;

    for (size_t i = from; i < to && e == NULL; i++) {
        HASH_FIND(hh, maps->maps[i].entries, key.ptr, key.len, e);
    }
    return e;
}

static const struct entry *map_get(const struct route_maps *maps, struct slice key)
{
    return get_among(maps, 0, maps->senders, key);
}

static const struct entry *sender_get(const struct route_maps *maps, struct slice key)
{
    return get_among(maps, maps->senders, maps->count, key);
}

/* Searches transport_maps. `address` is in lower case and at most ADDRESS_MAX long. */
static const struct entry *map_lookup(const struct conf *conf, struct slice address)
{
    const struct route_maps *maps = conf->inner->maps;
    struct slice domain = route_domain(address), local = local_part(address);
    struct slice user = route_without_extension(conf, local);
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
    memmove(route->nexthop, nexthop.ptr, nexthop.len); /* it may be the current one */
    route->nexthop[nexthop.len] = '\0';
}

/* Does the address have an @ that is not in a quoted local part? */
static bool has_at(struct slice address)
{
    size_t at = slice_find_last(address, '@');

    return at < address.len && slice_find(slice_skip(address, at), '"') == address.len - at;
}

struct slice route_complete(const struct conf *conf, struct slice address, char room[ADDRESS_MAX])
{
    size_t origin_len = strlen(conf->myorigin);

    if (address.len == 0 || has_at(address) || address.len + 1 + origin_len > ADDRESS_MAX) {
        return address;
    }
    memcpy(room, address.ptr, address.len);
    room[address.len] = '@';
    memcpy(room + address.len + 1, conf->myorigin, origin_len);
    return slice_of(room, address.len + 1 + origin_len);
}

/* Returns the entry of the sender in sender_dependent_relayhost_maps; NULL: none. */
static const struct entry *find_sender(const struct conf *conf, struct slice sender)
{
    const struct route_maps *maps = conf->inner->maps;
    char whole[ADDRESS_MAX], with_a_labels[ADDRESS_MAX], room[ADDRESS_MAX + 1];
    const struct entry *e;
    size_t at;

    if (maps->senders == maps->count || sender.ptr == NULL) {
        return NULL;
    }
    if (sender.len == 0) {
        return sender_get(maps, SLICE("<>"));
    }
    sender = route_complete(conf, sender, whole);
    if (sender.len > ADDRESS_MAX) {
        return NULL;
    }
    sender = idn_address(sender, with_a_labels, sizeof with_a_labels);
    sender = slice_of(lower_copy(room, sender), sender.len);
    e = sender_get(maps, sender);
    at = slice_find_last(sender, '@');
    if (e == NULL && at < sender.len) {
        size_t user_len = route_without_extension(conf, slice_of(sender.ptr, at)).len;

        if (user_len < at) {
            memcpy(whole, room, user_len);
            memcpy(whole + user_len, room + at, sender.len - at);
            e = sender_get(maps, slice_of(whole, user_len + sender.len - at));
        }
    }
    return e != NULL || at == sender.len ? e : sender_get(maps, slice_skip(sender, at));
}

/* Origin of a next hop: an entry of a map, a parameter, or otherwise the recipient. */
struct namer {
    const struct entry *entry;
    const char *parameter;
};

/* Sets the route without transport_maps. */
static struct namer route_by_class(const struct conf *conf, struct slice sender,
                                   struct slice domain, struct route *route)
{
    bool local = domain_list_match(&conf->local_domains, domain);
    bool relayed = !local && domain_list_match(&conf->relay_domains, domain);
    struct target t = target_of(slice_string(local     ? conf->local_transport
                                             : relayed ? conf->relay_transport
                                                       : conf->default_transport));
    const struct entry *e;

    route->transport = conf_transport_find(conf, t.transport)->name;
    if (t.nexthop.len > 0) {
        set_nexthop(route, t.nexthop);
        return (struct namer){.parameter = local     ? "local_transport"
                                           : relayed ? "relay_transport"
                                                     : "default_transport"};
    }
    e = local ? NULL : find_sender(conf, sender);
    if (e != NULL && e->nexthop[0] != '\0') {
        set_nexthop(route, slice_string(e->nexthop));
        return (struct namer){.entry = e};
    }
    if (!local && conf->relayhost[0] != '\0') {
        set_nexthop(route, slice_string(conf->relayhost));
        return (struct namer){.parameter = "relayhost"};
    }
    set_nexthop(route, domain);
    return (struct namer){.entry = NULL};
}

static void refuse(struct route *route, const char *text)
{
    route->transport = "error";
    set_nexthop(route, slice_string(text));
}

/* Returns the reason why an address is undeliverable, or NULL. Receivers check more; this check is
 * for mail from other ways. */
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

static struct namer find_route(const struct conf *conf, struct slice sender, struct slice recipient,
                               struct route *ret_route)
{
    char room[ADDRESS_MAX + 1], whole[ADDRESS_MAX], with_a_labels[ADDRESS_MAX];
    const struct entry *e;
    const char *error;

    *ret_route = (struct route){.transport = NULL};
    recipient = route_complete(conf, recipient, whole);
    error = address_error(recipient);
    if (error != NULL) {
        refuse(ret_route, error);
        route_destination(conf, recipient, ret_route);
        return (struct namer){.entry = NULL};
    }

    recipient = idn_address(recipient, with_a_labels, sizeof with_a_labels);
    struct slice lower = slice_of(lower_copy(room, recipient), recipient.len);
    struct slice domain = route_domain(recipient);
    struct namer namer = route_by_class(conf, sender, domain, ret_route);
    e = map_lookup(conf, lower);
    if (e != NULL && e->transport != NULL) {
        ret_route->transport = e->transport->name;
        set_nexthop(ret_route, domain);
        namer = (struct namer){.entry = NULL};
    }
    if (e != NULL && e->nexthop[0] != '\0') {
        set_nexthop(ret_route, slice_string(e->nexthop));
        namer = (struct namer){.entry = e};
    } else if (e != NULL && e->transport != NULL &&
               e->transport->policy.agent == CONF_AGENT_ERROR) {
        set_nexthop(ret_route, SLICE("5.0.0 mail to this address is not accepted"));
    }
    route_destination(conf, recipient, ret_route);
    return namer;
}

void route_address(const struct conf *conf, struct slice sender, struct slice recipient,
                   struct route *ret_route)
{
    (void)find_route(conf, sender, recipient, ret_route); /* its origin is not needed */
}

bool route_ignores_case(const struct conf *conf, struct slice recipient)
{
    const struct conf_transport *transport;
    struct route route;

    route_address(conf, ROUTE_NO_SENDER, recipient, &route);
    transport = conf_transport_find(conf, slice_string(route.transport));
    return transport != NULL && transport->policy.agent == CONF_AGENT_MAILDIR;
}

bool route_is_recipients(struct slice nexthop, struct slice recipient)
{
    char room[ADDRESS_MAX], nexthop_room[ROUTE_NEXTHOP_MAX];
    struct slice domain = idn_domain(route_domain(recipient), room, sizeof room);
    struct nexthop n;

    nexthop = idn_domain(nexthop, nexthop_room, sizeof nexthop_room);
    return domain.len > 0 &&
           (slice_equal_nocase(nexthop, domain) || /* this covers an address in brackets */
            (nexthop_parse(nexthop, &n) && n.use_mx && slice_equal_nocase(n.host, domain)));
}

struct route_origin route_setting(const struct conf *conf, enum route_namer namer,
                                  const char *parameter)
{
    const struct param *p = param_find(slice_string(parameter));
    const struct setting *s;

    CHECK(p != NULL);
    s = &conf->inner->settings[p - param_table];
    return (struct route_origin){.namer = namer,
                                 .name = parameter,
                                 .file = s->raw == NULL ? NULL : s->file,
                                 .line = s->line};
}

/* Returns the origin of an entry: its map. */
static struct route_origin origin_of_entry(const struct route_maps *maps, const struct entry *e)
{
    for (size_t i = 0; i < maps->count; i++) {
        const struct entry *found;

        HASH_FIND(hh, maps->maps[i].entries, e->key, strlen(e->key), found);
        if (found == e) {
            return (struct route_origin){
                .namer = i < maps->senders ? ROUTE_BY_TRANSPORT_MAPS : ROUTE_BY_SENDER_MAPS,
                .name = i < maps->senders ? "transport_maps" : "sender_dependent_relayhost_maps",
                .file = maps->maps[i].file,
                .line = e->line};
        }
    }
    UNREACHABLE("an entry of no map");
}

void route_explain(const struct conf *conf, struct slice sender, struct slice recipient,
                   struct route *ret_route, struct route_origin *ret_origin)
{
    struct namer namer = find_route(conf, sender, recipient, ret_route);

    if (route_is_recipients(slice_string(ret_route->nexthop), recipient) ||
        (namer.entry == NULL && namer.parameter == NULL)) {
        *ret_origin = (struct route_origin){.namer = ROUTE_BY_RECIPIENT};
    } else if (namer.entry != NULL) {
        *ret_origin = origin_of_entry(conf->inner->maps, namer.entry);
    } else {
        *ret_origin = route_setting(conf,
                                    strcmp(namer.parameter, "relayhost") == 0 ? ROUTE_BY_RELAYHOST
                                                                              : ROUTE_BY_TRANSPORT,
                                    namer.parameter);
    }
}

const char *route_target_error(const struct conf *conf, struct slice target)
{
    struct target t = target_of(target);

    if (conf_spool_routes(conf)) {
        return "can't hold here: in this store a router decides where mail goes";
    }
    return t.transport.len == 0 || slice_find(target, ':') == target.len
               ? "is not TRANSPORT:NEXTHOP, or TRANSPORT: alone"
               : target_error(conf, &t);
}

bool route_forced(const struct conf *conf, struct slice target, struct slice recipient,
                  struct route *ret_route)
{
    struct target t = target_of(target);
    const struct conf_transport *transport = conf_transport_find(conf, t.transport);
    struct slice domain = route_domain(recipient);

    *ret_route = (struct route){.transport = NULL};
    if (transport == NULL || target_error(conf, &t) != NULL) {
        return false;
    }
    for (size_t i = 0; i < t.nexthop.len; i++) {
        if ((unsigned char)t.nexthop.ptr[i] < ' ') {
            return false;
        }
    }
    ret_route->transport = transport->name;
    set_nexthop(ret_route, t.nexthop.len > 0 ? t.nexthop
                           : conf->default_filter_nexthop[0] != '\0'
                               ? slice_string(conf->default_filter_nexthop)
                               : domain);
    route_destination(conf, recipient, ret_route);
    return ret_route->nexthop[0] != '\0';
}

/* Is the next hop of this transport a result for the mail instead of a host? */
static bool is_verdict(const struct policy *policy, const char *transport)
{
    return policy->agent == CONF_AGENT_ERROR || policy->agent == CONF_AGENT_RETRY ||
           (policy->agent == CONF_AGENT_POSTFIX &&
            (strcmp(transport, "error") == 0 || strcmp(transport, "retry") == 0));
}

void route_destination(const struct conf *conf, struct slice recipient, struct route *route)
{
    struct slice nexthop = slice_string(route->nexthop);
    struct policy policy;
    char room[ROUTE_NEXTHOP_MAX], *at = route->destination;

    policy_for(conf, slice_string(route->transport), nexthop, &policy);
    if (policy.agent == CONF_AGENT_SMTP || policy.agent == CONF_AGENT_LMTP) { /* else any text */
        set_nexthop(route, nexthop_canonical(nexthop, room, sizeof room));
        nexthop = slice_string(route->nexthop);
    }
    if (policy.destination_recipient_limit == 1 && !is_verdict(&policy, route->transport) &&
        recipient.len <= ADDRESS_MAX) {
        struct slice user = route_without_extension(conf, local_part(recipient));

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
                                   conf->default_transport, conf->content_filter,
                                   conf->fallback_transport};
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
           domain_list_match(&conf->relay_domains, domain) ||
           domain_list_match(&conf->virtual_alias_domains, domain);
}
