#include "hops.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "idn.h"
#include "log.h"
#include "match.h"
#include "mem.h"

#define TEXT_MAX 1024

static const struct status try_again = {STATUS_TRANSIENT, 4, 3};
static const struct status not_found = {STATUS_PERMANENT, 4, 4};
static const struct status loops_back = {STATUS_PERMANENT, 4, 6};
static const struct status null_mx = {STATUS_PERMANENT, 1, 10};
static const struct status not_proven = {STATUS_TRANSIENT, 7, 5};
static const struct status bad_configuration = {STATUS_TRANSIENT, 3, 5};

/* Facts about a host of the list. */
struct hops_host {
    struct hops *hops;
    struct dane_lookup *dane; /* owned; its answer is valid once `pending` of the list is 0 */
    size_t pending;           /* number of address queries in flight */
    bool secure;              /* an answer with addresses was secure */
    char alias[DNS_NAME_MAX]; /* target if the host is an alias; else empty */
    uint32_t ttl;             /* time to live of its addresses, in seconds */
    enum tls_sts sts;
};

/* One address query. */
struct hops_lookup {
    struct hops *hops;
    struct resolver_query *query;
    size_t host;
    enum mxlist_family family;
};

/* ---- own addresses -------------------------------------------------------------------------- */

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

/* Adds the address of each interface, for a listener on all addresses. */
static void add_interfaces(struct hops_world *world, uint16_t port)
{
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0) {
        return; /* the host name still finds loops */
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

static bool is_self(const struct hops_world *world, const union ip_address *ip)
{
    for (size_t i = 0; i < world->self_count; i++) {
        if (ip_address_equal(&world->self[i], ip)) {
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

/* Takes settings that need only the configuration. */
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
    h->cause = FAILURE_LOOKUP;
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

/* Converts a time to live of the DNS into a time. */
static struct mono until(uint32_t ttl)
{
    return mono_after(clock_mono(), (int64_t)ttl * US_PER_S);
}

/* Does a demand depend on no DNS answer and no MTA-STS policy? Then it is valid until a reload. */
static bool is_fixed(const struct hops *h)
{
    return !tls_policy_uses_dane(h->tls.level) && h->sts_until.us == US_FOREVER;
}

/* Collects the facts about a host. */
static struct tls_host describe(const struct hops *h, size_t i)
{
    const struct hops_host *known = &h->hosts[i];
    uint32_t ttl = known->ttl < h->ttl ? known->ttl : h->ttl;
    struct tls_host host = {
        .name = h->list.hosts[i].name,
        .domain = h->name,
        .domain_alias = h->domain_alias[0] == '\0' ? NULL : h->domain_alias,
        .dane = DANE_NONE,
        .sts = known->sts,
        .until = MONO_NEVER,
    };

    if (known->dane != NULL) {
        host.dane = known->dane->step;
        host.base = known->dane->base;
        host.records = known->dane->records;
        host.record_count = known->dane->record_count;
        ttl = known->dane->ttl < ttl ? known->dane->ttl : ttl;
    }
    if (!is_fixed(h)) {
        host.until = mono_min(until(ttl), h->sts_until);
    }
    return host;
}

/* Makes the demand of each host. Appends the reason why the first unusable host is not used to
 * *ret_why. */
static void make_demands(struct hops *h, struct buf *ret_why)
{
    h->demands = mem_array(h->list.host_count, sizeof h->demands[0]);
    for (size_t i = 0; i < h->list.host_count; i++) {
        struct tls_host host = describe(h, i);
        struct buf why;

        buf_init(&why, TEXT_MAX);
        h->demands[i] = tls_demand_new(h->tls.level, h->tls.least, &host, &why);
        h->list.hosts[i].refused = h->demands[i] == NULL;
        if (h->list.hosts[i].refused) {
            log_info("%s: %s", h->name, buf_cstr(&why));
            if (buf_len(ret_why) == 0) {
                CHECK(buf_add(ret_why, buf_slice(&why)));
            }
        }
        buf_fini(&why);
    }
}

static void look_aside(struct hops *h);

/* Sets the answer; all hosts and addresses are known. */
static void conclude(struct hops *h)
{
    bool has_one_family = h->world->ipv4 != h->world->ipv6;
    const char *type = h->world->ipv4 ? "A" : "AAAA";
    struct buf why;

    if (h->list.address_count == 0 && !h->again && !h->looks_aside && has_one_family) {
        look_aside(h);
        return;
    }
    buf_init(&why, TEXT_MAX);
    make_demands(h, &why);

    for (size_t i = 0; h->detect_self && i < h->list.host_count; i++) {
        struct mx_host *host = &h->list.hosts[i];

        /* With address translation our addresses differ, and only the name identifies this host. */
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
    case MXLIST_REFUSED:
        h->refused = true;
        set_text(h, HOPS_DEFERRED, not_proven, "%s", buf_cstr(&why));
        break;
    case MXLIST_LOOP:
        h->last_word = true;
        set_text(h, HOPS_FAILED, loops_back, "mail for %s loops back to myself", h->name);
        h->cause = FAILURE_LOOP;
        break;
    case MXLIST_EMPTY:
        if (h->again) {
            set_dns_text(h, HOPS_DEFERRED, try_again, type, "Host not found, try again");
        } else if (h->aside) {
            set_text(h, HOPS_FAILED, not_found,
                     "Host %s has %s addresses alone, which inet_protocols leaves out", h->name,
                     h->world->ipv4 ? "IPv6" : "IPv4");
            h->cause = FAILURE_OURS;
        } else if (h->missing) {
            set_dns_text(h, HOPS_FAILED, not_found, type, "Host not found");
        } else {
            set_dns_text(h, HOPS_FAILED, not_found, type,
                         "Host found but no data record of requested type");
        }
        break;
    }
    buf_fini(&why);
    finish(h);
}

/* ---- queries -------------------------------------------------------------------------------- */

/* Counts the end of one query. */
static void settled(struct hops *h)
{
    CHECK(h->pending > 0);
    if (--h->pending == 0) {
        conclude(h);
    }
}

/* Returns the resolver to use: with DANE the one with proven answers. */
static struct resolver *resolver_of(const struct hops *h)
{
    bool prove = h->tls.prove && h->world->validator != NULL;

    return tls_policy_uses_dane(h->tls.level) || prove ? h->world->validator : h->world->resolver;
}

static void on_dane(void *arg, struct dane_lookup *lookup)
{
    struct hops_host *host = arg;

    CHECK(host->dane == lookup);
    settled(host->hops);
}

/* Looks up a host's TLSA records; all its addresses are known. */
static void ask_dane(struct hops *h, size_t i)
{
    struct hops_host *host = &h->hosts[i];
    struct dane_question question = {.host = slice_string(h->list.hosts[i].name),
                                     .alias = slice_string(host->alias),
                                     .secure = host->secure,
                                     .port = h->port};

    if (resolver_of(h) == h->world->validator && h->proven && dane_lookup_needed(&question)) {
        h->pending++;
        host->dane = dane_lookup_new(resolver_of(h), &question, on_dane, host);
    }
}

static bool has_addresses(struct slice packet, enum mxlist_family family)
{
    struct mxlist list;
    bool has;

    mxlist_init(&list);
    mxlist_add_host(&list, SLICE("host"));
    has = mxlist_add_addresses(&list, 0, packet, family, 25) == MXLIST_SOME;
    mxlist_fini(&list);
    return has;
}

static void take_addresses(struct hops *h, const struct hops_lookup *lookup,
                           const struct resolver_answer *answer)
{
    struct hops_host *host = &h->hosts[lookup->host];
    struct slice name = slice_string(h->list.hosts[lookup->host].name);
    uint32_t ttl = dns_answer_ttl(answer->packet);

    if (h->looks_aside) {
        h->aside = h->aside || has_addresses(answer->packet, lookup->family);
        return;
    }
    switch (mxlist_add_addresses(&h->list, lookup->host, answer->packet, lookup->family, h->port)) {
    case MXLIST_BAD:
        h->again = true;
        return;
    case MXLIST_NONE:
    case MXLIST_NULL:
        return;
    case MXLIST_SOME:
        host->secure = host->secure || answer->secure;
        host->ttl = ttl < host->ttl ? ttl : host->ttl;
        if (host->alias[0] == '\0') {
            (void)dns_answer_alias(answer->packet,
                                   lookup->family == MXLIST_IPV6 ? ns_t_aaaa : ns_t_a, name,
                                   host->alias); /* stays empty without an alias */
        }
        return;
    }
    UNREACHABLE("an answer beyond the enum");
}

/* Logs why an answer is bogus; the text for the mail is only that the lookup failed. */
static void log_bogus(const struct resolver_answer *answer)
{
    if (answer->bogus != NULL) {
        log_info("the DNS cannot be believed: %s", answer->bogus);
    }
}

static void on_addresses(void *arg, const struct resolver_answer *answer)
{
    struct hops_lookup *lookup = arg;
    struct hops *h = lookup->hops;

    lookup->query = NULL;
    log_bogus(answer);
    switch (answer->outcome) {
    case RESOLVER_ANSWER:
        take_addresses(h, lookup, answer);
        break;
    case RESOLVER_NO_NAME:
        h->missing = true;
        break;
    case RESOLVER_AGAIN:
        h->again = true;
        break;
    }
    if (--h->hosts[lookup->host].pending == 0 && !h->looks_aside) {
        ask_dane(h, lookup->host);
    }
    settled(h);
}

static void ask_address(struct hops *h, size_t host, enum mxlist_family family)
{
    struct hops_lookup *lookup = &h->lookups[h->lookup_count++];

    *lookup = (struct hops_lookup){.hops = h, .host = host, .family = family};
    h->pending++;
    h->hosts[host].pending++;
    lookup->query =
        resolver_ask(resolver_of(h), slice_string(h->list.hosts[host].name),
                     family == MXLIST_IPV6 ? RESOLVER_AAAA : RESOLVER_A, on_addresses, lookup);
}

/* Looks up addresses of the family that inet_protocols leaves out. They are not used, but if there
 * are any, our configuration is the reason for the failure. */
static void look_aside(struct hops *h)
{
    h->looks_aside = true;
    h->pending++;
    for (size_t i = 0; i < h->list.host_count; i++) {
        ask_address(h, i, h->world->ipv4 ? MXLIST_IPV6 : MXLIST_IPV4);
    }
    settled(h);
}

/* Logs that the policy does not allow a host, if the policy is not enforced. */
static void log_sts(const struct hops *h, const struct sts_policy *policy, const char *host)
{
    if (policy->mode != STS_NONE) {
        log_info(
            "%s: host %s is no host of the domain's MTA-STS policy, which is not enforced (%s)",
            h->name, host, policy->mode == STS_TESTING ? "its mode is testing" : "mta_sts = test");
    }
}

static void on_sts(void *arg, const struct sts_answer *answer)
{
    struct hops *h = arg;
    const struct sts_policy *policy = answer->policy;
    bool is_obeyed = policy != NULL && policy->mode == STS_ENFORCE && h->tls.sts == CONF_STS_YES;

    h->sts_question = NULL;
    h->sts_until = answer->until;
    for (size_t i = 0; policy != NULL && i < h->list.host_count; i++) {
        const char *host = h->list.hosts[i].name;
        bool allowed = sts_policy_allows(policy, slice_string(host));

        if (is_obeyed) {
            h->hosts[i].sts = allowed ? TLS_STS_ALLOWS : TLS_STS_REFUSES;
        } else if (!allowed) {
            log_sts(h, policy, host);
        }
    }
    settled(h);
}

/* Requests the policy of the domain; a host in brackets has none. */
static void ask_sts(struct hops *h)
{
    const struct sts_source *source = h->world->sts;

    if (source != NULL && h->is_domain && h->tls.sts != CONF_STS_NO &&
        tls_policy_uses_sts(h->tls.level) && sts_domain_valid(slice_string(h->name))) {
        h->pending++;
        h->sts_question = source->ask(source->arg, slice_string(h->name), on_sts, h);
    }
}

static void ask_addresses(struct hops *h)
{
    h->lookups = mem_array(h->list.host_count * 2, sizeof h->lookups[0]);
    h->hosts = mem_array(h->list.host_count, sizeof h->hosts[0]);
    h->pending++; /* for this function */
    for (size_t i = 0; i < h->list.host_count; i++) {
        union ip_address ip;

        h->hosts[i] = (struct hops_host){.hops = h, .ttl = UINT32_MAX};
        /* An address as mail exchanger is against the rules, but common. */
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
    ask_sts(h);
    settled(h);
}

static void on_mx_answer(struct hops *h, const struct resolver_answer *answer)
{
    h->ttl = dns_answer_ttl(answer->packet);
    switch (mxlist_add_mx(&h->list, answer->packet, &h->world->rng)) {
    case MXLIST_SOME:
        h->by_mx = true;
        h->proven = answer->secure;
        if (h->proven) {
            (void)dns_answer_alias(answer->packet, ns_t_mx, slice_string(h->name),
                                   h->domain_alias); /* stays empty without an alias */
        }
        ask_addresses(h);
        return;
    case MXLIST_NONE: /* the domain is the host; its addresses decide whether it is secure */
        mxlist_add_host(&h->list, slice_string(h->name));
        ask_addresses(h);
        return;
    case MXLIST_NULL:
        h->last_word = true;
        set_text(h, HOPS_FAILED, null_mx, "Domain %s does not accept mail (nullMX)", h->name);
        break;
    case MXLIST_BAD:
        set_dns_text(h, HOPS_DEFERRED, try_again, "MX",
                     "Malformed or unexpected name server reply");
        break;
    }
    finish(h);
}

static void on_mx(void *arg, const struct resolver_answer *answer)
{
    struct hops *h = arg;

    h->mx_query = NULL;
    log_bogus(answer);
    switch (answer->outcome) {
    case RESOLVER_ANSWER:
        on_mx_answer(h, answer);
        return;
    case RESOLVER_NO_NAME:
        set_dns_text(h, HOPS_FAILED, not_found, "MX", "Host not found");
        break;
    case RESOLVER_AGAIN:
        set_dns_text(h, HOPS_DEFERRED, try_again, "MX",
                     answer->bogus != NULL ? "DNSSEC validation failure"
                                           : "Host not found, try again");
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
        ask_addresses(h);
        return;
    }
    /* A trailing dot only marks a complete name. */
    if (name.len > 1 && name.ptr[name.len - 1] == '.') {
        name.len--;
        h->name[name.len] = '\0';
    }
    if (resolver_of(h) == NULL) {
        set_text(h, HOPS_DEFERRED, bad_configuration,
                 "mail system configuration error: no DANE without the trust anchor of "
                 "dnssec_trust_anchor_file");
        finish(h);
    } else if (!dns_name_valid(name)) {
        set_dns_text(h, HOPS_FAILED, not_found, nexthop->use_mx ? "MX" : "A",
                     "Invalid host or domain name");
        finish(h);
    } else if (nexthop->use_mx) {
        h->mx_query = resolver_ask(resolver_of(h), name, RESOLVER_MX, on_mx, h);
    } else {
        mxlist_add_host(&h->list, name);
        ask_addresses(h);
    }
}

struct hops *hops_find(struct hops_world *world, const struct nexthop *nexthop, uint16_t port,
                       const struct mxlist_rules *rules, const struct hops_tls *tls,
                       bool detect_self, hops_done *done, void *arg)
{
    struct hops *h = mem_new(sizeof *h);
    struct nexthop named = *nexthop;
    char room[sizeof h->name];
    size_t len;

    named.host = idn_domain(nexthop->host, room, sizeof room - 1);
    len = named.host.len < sizeof h->name ? named.host.len : sizeof h->name - 1;

    CHECK(!nexthop->is_unix);
    h->world = world;
    h->done = done;
    h->arg = arg;
    h->rules = *rules;
    h->tls = *tls;
    h->is_domain = nexthop->use_mx;
    h->proven = true;
    h->ttl = UINT32_MAX;
    h->sts_until = MONO_NEVER;
    h->detect_self = detect_self;
    h->port = nexthop->port != 0 ? nexthop->port : port;
    memcpy(h->name, named.host.ptr, len);
    mxlist_init(&h->list);
    h->asking = true;
    begin(h, &named);
    h->asking = false;
    return h;
}

void hops_describe(const struct hops *h, size_t host, struct hops_facts *ret, struct buf *ret_why)
{
    const struct hops_host *known = &h->hosts[host];
    const struct tls_host facts = describe(h, host);

    CHECK(h->finished && h->hosts != NULL && host < h->list.host_count);
    *ret = (struct hops_facts){.secure = known->secure && h->proven,
                               .records = facts.records,
                               .record_count = facts.record_count,
                               .is_tlsa_broken = facts.dane == DANE_SKIP,
                               .demand = h->demands[host]};
    if (ret->demand == NULL) {
        tls_demand_unref(tls_demand_new(h->tls.level, h->tls.least, &facts, ret_why));
    }
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
    if (h->sts_question != NULL) {
        h->world->sts->cancel(h->sts_question);
    }
    for (size_t i = 0; h->hosts != NULL && i < h->list.host_count; i++) {
        dane_lookup_free(h->hosts[i].dane);
    }
    for (size_t i = 0; h->demands != NULL && i < h->list.host_count; i++) {
        tls_demand_unref(h->demands[i]);
    }
    mem_free(h->demands);
    mem_free(h->hosts);
    mem_free(h->lookups);
    mem_free(h->text);
    mxlist_fini(&h->list);
    mem_free(h);
}
