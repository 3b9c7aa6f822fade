#include "hops.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "check.h"
#include "match.h"
#include "mem.h"

#define TEXT_MAX 1024

static const struct status try_again = {STATUS_TRANSIENT, 4, 3};
static const struct status not_found = {STATUS_PERMANENT, 4, 4};
static const struct status loops_back = {STATUS_PERMANENT, 4, 6};
static const struct status null_mx = {STATUS_PERMANENT, 1, 10};

/* One address question. */
struct hops_lookup {
    struct hops *hops;
    struct resolver_query *query;
    size_t host;
    enum mxlist_family family;
};

/* ---- ourselves ------------------------------------------------------------------------------ */

static bool parse_address(struct slice text, uint16_t port, union ip_address *ret_ip)
{
    char copy[INET6_ADDRSTRLEN];
    union ip_address ip = {0};

    if (text.len >= sizeof copy) {
        return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET, copy, &ip.in.sin_addr) == 1) {
        ip.in.sin_family = AF_INET;
        ip.in.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, copy, &ip.in6.sin6_addr) == 1) {
        ip.in6.sin6_family = AF_INET6;
        ip.in6.sin6_port = htons(port);
    } else {
        return false;
    }
    *ret_ip = ip;
    return true;
}

static void add_self(struct hops_world *world, const union ip_address *ip)
{
    world->self = mem_resize(world->self, world->self_count + 1, sizeof world->self[0]);
    world->self[world->self_count++] = *ip;
}

/* A listener on all addresses listens on those of each interface. */
static void add_interfaces(struct hops_world *world, uint16_t port)
{
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0) {
        return; /* the host name still tells who we are */
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        union ip_address ip = {0};

        if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        if (i->ifa_addr->sa_family == AF_INET) {
            memcpy(&ip.in, i->ifa_addr, sizeof ip.in);
            ip.in.sin_port = htons(port);
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            memcpy(&ip.in6, i->ifa_addr, sizeof ip.in6);
            ip.in6.sin6_port = htons(port);
        } else {
            continue;
        }
        add_self(world, &ip);
    }
    freeifaddrs(all);
}

static bool is_wildcard(const union ip_address *ip)
{
    return ip->sa.sa_family == AF_INET ? ip->in.sin_addr.s_addr == htonl(INADDR_ANY)
                                       : IN6_IS_ADDR_UNSPECIFIED(&ip->in6.sin6_addr);
}

static bool same_place(const union ip_address *a, const union ip_address *b)
{
    if (a->sa.sa_family != b->sa.sa_family) {
        return false;
    }
    if (a->sa.sa_family == AF_INET) {
        return a->in.sin_port == b->in.sin_port && a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
    }
    return a->in6.sin6_port == b->in6.sin6_port &&
           IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
}

static bool is_self(const struct hops_world *world, const union ip_address *ip)
{
    for (size_t i = 0; i < world->self_count; i++) {
        if (same_place(&world->self[i], ip)) {
            return true;
        }
    }
    return false;
}

static void add_listener(struct hops_world *world, struct slice url, bool interfaces)
{
    struct listen_address listen;
    union ip_address ip;

    if (!listen_parse(url, &listen) || listen.lmtp || listen.is_unix) {
        return;
    }
    if (listen.host.len > 0 && parse_address(listen.host, listen.port, &ip) && !is_wildcard(&ip)) {
        if (!is_self(world, &ip)) {
            add_self(world, &ip);
        }
    } else if (interfaces) {
        add_interfaces(world, listen.port);
    }
}

/* What needs nothing but the configuration. */
static void take_conf(struct hops_world *world, const struct conf *conf)
{
    mem_free(world->hostname);
    world->hostname = mem_string(conf->myhostname);
    world->ipv4 = world->ipv6 = false;
    for (size_t i = 0; i < conf->inet_protocols.count; i++) {
        struct slice protocol = slice_string(conf->inet_protocols.items[i]);
        bool all = slice_equal_nocase(protocol, SLICE("all"));

        world->ipv4 = world->ipv4 || all || slice_equal_nocase(protocol, SLICE("ipv4"));
        world->ipv6 = world->ipv6 || all || slice_equal_nocase(protocol, SLICE("ipv6"));
    }
}

void hops_world_init(struct hops_world *world, const struct conf *conf, struct resolver *resolver,
                     uint64_t seed)
{
    *world = (struct hops_world){.resolver = resolver};
    rng_init(&world->rng, seed);
    take_conf(world, conf);
    for (size_t i = 0; i < conf->listen.count; i++) {
        add_listener(world, slice_string(conf->listen.items[i]), true);
    }
}

void hops_world_renew(struct hops_world *world, const struct conf *conf)
{
    take_conf(world, conf);
    for (size_t i = 0; i < conf->listen.count; i++) {
        add_listener(world, slice_string(conf->listen.items[i]), false);
    }
}

void hops_world_fini(struct hops_world *world)
{
    mem_free(world->hostname);
    mem_free(world->self);
    *world = (struct hops_world){0};
}

/* ---- the answer ----------------------------------------------------------------------------- */

static void set_text(struct hops *h, enum hops_outcome outcome, struct status status,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

static void set_text(struct hops *h, enum hops_outcome outcome, struct status status,
                     const char *format, ...)
{
    struct buf text;
    va_list args;

    h->outcome = outcome;
    h->status = status;
    buf_init(&text, TEXT_MAX);
    va_start(args, format);
    CHECK(buf_addv(&text, format, args));
    va_end(args);
    h->text = buf_take(&text);
    buf_fini(&text);
}

static void set_dns_text(struct hops *h, enum hops_outcome outcome, struct status status,
                         const char *type, const char *why)
{
    set_text(h, outcome, status,
             "Host or domain name not found. Name service error for name=%s type=%s: %s", h->name,
             type, why);
}

static void finish(struct hops *h)
{
    h->finished = true;
    if (!h->asking) {
        h->done(h->arg, h);
    }
}

/* All hosts and addresses are known. */
static void conclude(struct hops *h)
{
    const char *type = h->world->ipv4 ? "A" : "AAAA";

    for (size_t i = 0; h->detect_self && i < h->list.host_count; i++) {
        struct mx_host *host = &h->list.hosts[i];

        /* Behind a translated address only the name gives us away. */
        host->self = h->by_mx &&
                     slice_equal_nocase(slice_string(host->name), slice_string(h->world->hostname));
    }
    for (size_t i = 0; h->detect_self && i < h->list.address_count; i++) {
        h->list.addresses[i].self = is_self(h->world, &h->list.addresses[i].ip);
    }
    switch (mxlist_finish(&h->list, &h->rules, &h->found_self)) {
    case MXLIST_READY:
        h->outcome = HOPS_FOUND;
        break;
    case MXLIST_LOOP:
        h->last_word = true;
        set_text(h, HOPS_BOUNCED, loops_back, "mail for %s loops back to myself", h->name);
        break;
    case MXLIST_EMPTY:
        if (h->again) {
            set_dns_text(h, HOPS_DEFERRED, try_again, type, "Host not found, try again");
        } else if (h->missing) {
            set_dns_text(h, HOPS_BOUNCED, not_found, type, "Host not found");
        } else {
            set_dns_text(h, HOPS_BOUNCED, not_found, type,
                         "Host found but no data record of requested type");
        }
        break;
    }
    finish(h);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void on_addresses(void *arg, enum resolver_outcome outcome, struct slice packet)
{
    struct hops_lookup *lookup = arg;
    struct hops *h = lookup->hops;

    lookup->query = NULL;
    switch (outcome) {
    case RESOLVER_ANSWER:
        h->again = mxlist_add_addresses(&h->list, lookup->host, packet, lookup->family, h->port) ==
                       MXLIST_BAD ||
                   h->again;
        break;
    case RESOLVER_NO_NAME:
        h->missing = true;
        break;
    case RESOLVER_AGAIN:
        h->again = true;
        break;
    }
    if (--h->pending == 0) {
        conclude(h);
    }
}

static void ask_address(struct hops *h, size_t host, enum mxlist_family family)
{
    struct hops_lookup *lookup = &h->lookups[h->lookup_count++];

    *lookup = (struct hops_lookup){.hops = h, .host = host, .family = family};
    h->pending++;
    lookup->query =
        resolver_ask(h->world->resolver, slice_string(h->list.hosts[host].name),
                     family == MXLIST_IPV6 ? RESOLVER_AAAA : RESOLVER_A, on_addresses, lookup);
}

static void ask_addresses(struct hops *h)
{
    h->lookups = mem_array(h->list.host_count * 2, sizeof h->lookups[0]);
    for (size_t i = 0; i < h->list.host_count; i++) {
        union ip_address ip;

        /* An exchanger given as an address is against the rules, and common. */
        if (parse_address(slice_string(h->list.hosts[i].name), h->port, &ip)) {
            mxlist_add_address(&h->list, i, &ip);
            continue;
        }
        if (h->world->ipv6) {
            ask_address(h, i, MXLIST_IPV6);
        }
        if (h->world->ipv4) {
            ask_address(h, i, MXLIST_IPV4);
        }
    }
    if (h->pending == 0) {
        conclude(h);
    }
}

static void on_mx_answer(struct hops *h, struct slice packet)
{
    switch (mxlist_add_mx(&h->list, packet, &h->world->rng)) {
    case MXLIST_SOME:
        h->by_mx = true;
        ask_addresses(h);
        return;
    case MXLIST_NONE:
        mxlist_add_host(&h->list, slice_string(h->name));
        ask_addresses(h);
        return;
    case MXLIST_NULL:
        h->last_word = true;
        set_text(h, HOPS_BOUNCED, null_mx, "Domain %s does not accept mail (nullMX)", h->name);
        break;
    case MXLIST_BAD:
        set_dns_text(h, HOPS_DEFERRED, try_again, "MX",
                     "Malformed or unexpected name server reply");
        break;
    }
    finish(h);
}

static void on_mx(void *arg, enum resolver_outcome outcome, struct slice packet)
{
    struct hops *h = arg;

    h->mx_query = NULL;
    switch (outcome) {
    case RESOLVER_ANSWER:
        on_mx_answer(h, packet);
        return;
    case RESOLVER_NO_NAME:
        set_dns_text(h, HOPS_BOUNCED, not_found, "MX", "Host not found");
        break;
    case RESOLVER_AGAIN:
        set_dns_text(h, HOPS_DEFERRED, try_again, "MX", "Host not found, try again");
        break;
    }
    finish(h);
}

static void begin(struct hops *h, const struct nexthop *nexthop)
{
    struct slice name = nexthop->host;
    union ip_address ip;

    if (nexthop->is_address && parse_address(name, h->port, &ip)) {
        mxlist_add_host(&h->list, name);
        mxlist_add_address(&h->list, 0, &ip);
        conclude(h);
        return;
    }
    /* A trailing dot only says that the name is complete. */
    if (name.len > 1 && name.ptr[name.len - 1] == '.') {
        name.len--;
        h->name[name.len] = '\0';
    }
    if (!mxlist_name_valid(name)) {
        set_dns_text(h, HOPS_BOUNCED, not_found, nexthop->use_mx ? "MX" : "A",
                     "Invalid host or domain name");
        finish(h);
    } else if (nexthop->use_mx) {
        h->mx_query = resolver_ask(h->world->resolver, name, RESOLVER_MX, on_mx, h);
    } else {
        mxlist_add_host(&h->list, name);
        ask_addresses(h);
    }
}

struct hops *hops_find(struct hops_world *world, const struct nexthop *nexthop, uint16_t port,
                       const struct mxlist_rules *rules, bool detect_self, hops_done *done,
                       void *arg)
{
    struct hops *h = mem_new(sizeof *h);
    size_t len = nexthop->host.len < sizeof h->name ? nexthop->host.len : sizeof h->name - 1;

    CHECK(!nexthop->is_unix);
    h->world = world;
    h->done = done;
    h->arg = arg;
    h->rules = *rules;
    h->detect_self = detect_self;
    h->port = nexthop->port != 0 ? nexthop->port : port;
    memcpy(h->name, nexthop->host.ptr, len);
    mxlist_init(&h->list);
    h->asking = true;
    begin(h, nexthop);
    h->asking = false;
    return h;
}

void hops_free(struct hops *h)
{
    if (h == NULL) {
        return;
    }
    resolver_cancel(h->mx_query);
    for (size_t i = 0; i < h->lookup_count; i++) {
        resolver_cancel(h->lookups[i].query);
    }
    mem_free(h->lookups);
    mem_free(h->text);
    mxlist_fini(&h->list);
    mem_free(h);
}
