#include "mxlist.h"

#include <resolv.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dns_answer.h"
#include "mem.h"

_Static_assert(MXLIST_HOSTS_MAX *MXLIST_ADDRESSES_MAX * 2 <= UINT16_MAX, "indices fit");

void mxlist_init(struct mxlist *list)
{
    *list = (struct mxlist){0};
}

bool ip_address_equal(const union ip_address *a, const union ip_address *b)
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

void mxlist_fini(struct mxlist *list)
{
    mem_free(list->hosts);
    mem_free(list->addresses);
    mxlist_init(list);
}

/* ---- reading answers ------------------------------------------------------------------------ */

static bool host_before(const struct mx_host *a, const struct mx_host *b)
{
    if (a->preference != b->preference) {
        return a->preference < b->preference;
    }
    return a->order < b->order;
}

/* Inserts a host in order; if the table is full, drops the worst host. */
static void insert_host(struct mxlist *list, const struct mx_host *host)
{
    size_t at = list->host_count;

    if (list->hosts == NULL) {
        list->hosts = mem_array(MXLIST_HOSTS_MAX, sizeof list->hosts[0]);
    }
    while (at > 0 && host_before(host, &list->hosts[at - 1])) {
        at--;
    }
    if (at == MXLIST_HOSTS_MAX) {
        return;
    }
    if (list->host_count < MXLIST_HOSTS_MAX) {
        list->host_count++;
    }
    memmove(&list->hosts[at + 1], &list->hosts[at],
            (list->host_count - 1 - at) * sizeof list->hosts[0]);
    list->hosts[at] = *host;
}

enum mxlist_answer mxlist_add_mx(struct mxlist *list, struct slice packet, struct rng *rng)
{
    ns_msg message;
    ns_rr record;
    int at = 0;
    size_t records = 0, nulls = 0;

    CHECK(list->host_count == 0);
    if (!dns_answer_parse(packet, &message)) {
        return MXLIST_BAD;
    }
    while (dns_answer_next(&message, &at, ns_t_mx, &record)) {
        struct mx_host host = {.order = (uint32_t)rng_next(rng)};
        size_t len;

        records++;
        if (ns_rr_rdlen(record) < 3) {
            continue;
        }
        host.preference = (uint16_t)ns_get16(ns_rr_rdata(record));
        if (dn_expand(ns_msg_base(message), ns_msg_end(message), ns_rr_rdata(record) + 2, host.name,
                      sizeof host.name) < 0) {
            continue;
        }
        len = strlen(host.name);
        if (len == 0 || strcmp(host.name, ".") == 0) {
            nulls++;
        } else if (dns_name_valid(slice_of(host.name, len))) {
            insert_host(list, &host);
        }
    }
    if (records == 0) {
        return MXLIST_NONE;
    }
    /* Together with other records a null MX has no meaning (RFC 7505, section 3). */
    if (list->host_count == 0) {
        return nulls == records ? MXLIST_NULL : MXLIST_BAD;
    }
    return MXLIST_SOME;
}

void mxlist_add_host(struct mxlist *list, struct slice name)
{
    struct mx_host host = {.order = (uint32_t)list->host_count};

    CHECK(list->host_count < MXLIST_HOSTS_MAX);
    CHECK(name.len < sizeof host.name);
    memcpy(host.name, name.ptr, name.len);
    insert_host(list, &host);
}

void mxlist_add_address(struct mxlist *list, size_t host, const union ip_address *ip)
{
    CHECK(host < list->host_count);
    list->addresses =
        mem_resize(list->addresses, list->address_count + 1, sizeof list->addresses[0]);
    list->addresses[list->address_count++] = (struct mx_address){.ip = *ip, .host = (uint16_t)host};
}

enum mxlist_answer mxlist_add_addresses(struct mxlist *list, size_t host, struct slice packet,
                                        enum mxlist_family family, uint16_t port)
{
    ns_msg message;
    ns_rr record;
    int at = 0;
    size_t found = 0;

    if (!dns_answer_parse(packet, &message)) {
        return MXLIST_BAD;
    }
    while (found < MXLIST_ADDRESSES_MAX &&
           dns_answer_next(&message, &at, family == MXLIST_IPV6 ? ns_t_aaaa : ns_t_a, &record)) {
        union ip_address ip = {0};

        if (family == MXLIST_IPV6 && ns_rr_rdlen(record) == sizeof ip.in6.sin6_addr) {
            ip.in6.sin6_family = AF_INET6;
            ip.in6.sin6_port = htons(port);
            memcpy(&ip.in6.sin6_addr, ns_rr_rdata(record), sizeof ip.in6.sin6_addr);
        } else if (family == MXLIST_IPV4 && ns_rr_rdlen(record) == sizeof ip.in.sin_addr) {
            ip.in.sin_family = AF_INET;
            ip.in.sin_port = htons(port);
            memcpy(&ip.in.sin_addr, ns_rr_rdata(record), sizeof ip.in.sin_addr);
        } else {
            continue;
        }
        mxlist_add_address(list, host, &ip);
        found++;
    }
    return found > 0 ? MXLIST_SOME : MXLIST_NONE;
}

/* ---- order and limits ----------------------------------------------------------------------- */

/* Sort key of an address; lower is first. Hosts are in order already, and addresses of one host in
 * order of arrival. */
struct rank {
    uint16_t preference;
    bool other_family; /* not the preferred family; precedes the host in the order */
    uint16_t host;
    bool ipv4;
    size_t at;
};

static struct rank rank_of(const struct mxlist *list, size_t at, enum mxlist_prefer prefer)
{
    const struct mx_address *a = &list->addresses[at];
    bool ipv4 = a->ip.sa.sa_family == AF_INET;

    return (struct rank){
        .preference = list->hosts[a->host].preference,
        .other_family = prefer == MXLIST_PREFER_IPV6   ? ipv4
                        : prefer == MXLIST_PREFER_IPV4 ? !ipv4
                                                       : false,
        .host = a->host,
        .ipv4 = ipv4,
        .at = at,
    };
}

static int rank_compare(const void *left, const void *right)
{
    const struct rank *a = left, *b = right;

    if (a->preference != b->preference) {
        return a->preference < b->preference ? -1 : 1;
    }
    if (a->other_family != b->other_family) {
        return a->other_family ? 1 : -1;
    }
    if (a->host != b->host) {
        return a->host < b->host ? -1 : 1;
    }
    if (a->ipv4 != b->ipv4) {
        return a->ipv4 ? 1 : -1;
    }
    return a->at < b->at ? -1 : 1;
}

static void sort(struct mxlist *list, enum mxlist_prefer prefer)
{
    struct rank *ranks = mem_array(list->address_count, sizeof ranks[0]);
    struct mx_address *sorted = mem_array(list->address_count, sizeof sorted[0]);

    for (size_t i = 0; i < list->address_count; i++) {
        ranks[i] = rank_of(list, i, prefer);
    }
    qsort(ranks, list->address_count, sizeof ranks[0], rank_compare);
    for (size_t i = 0; i < list->address_count; i++) {
        sorted[i] = list->addresses[ranks[i].at];
    }
    mem_free(ranks);
    mem_free(list->addresses);
    list->addresses = sorted;
}

static void cut(struct mxlist *list, size_t limit)
{
    sa_family_t family = list->addresses[0].ip.sa.sa_family;
    bool mixed = false;

    CHECK(limit >= 1);
    if (list->address_count <= limit) {
        return;
    }
    for (size_t i = 1; i < limit; i++) {
        mixed = mixed || list->addresses[i].ip.sa.sa_family != family;
    }
    for (size_t i = limit; !mixed && limit > 1 && i < list->address_count; i++) {
        if (list->addresses[i].ip.sa.sa_family != family) {
            list->addresses[limit - 1] = list->addresses[i];
            mixed = true;
        }
    }
    list->address_count = limit;
}

static void drop_refused(struct mxlist *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->address_count; i++) {
        if (!list->hosts[list->addresses[i].host].refused) {
            list->addresses[kept++] = list->addresses[i];
        }
    }
    list->address_count = kept;
}

enum mxlist_outcome mxlist_finish(struct mxlist *list, const struct mxlist_rules *rules,
                                  bool *ret_found_self)
{
    unsigned better_than = UINT16_MAX + 1U;
    size_t kept = 0;

    for (size_t i = 0; i < list->host_count; i++) {
        if (list->hosts[i].self && list->hosts[i].preference < better_than) {
            better_than = list->hosts[i].preference;
        }
    }
    for (size_t i = 0; i < list->address_count; i++) {
        const struct mx_host *host = &list->hosts[list->addresses[i].host];

        if (list->addresses[i].self && host->preference < better_than) {
            better_than = host->preference;
        }
    }
    *ret_found_self = better_than <= UINT16_MAX;
    for (size_t i = 0; i < list->address_count; i++) {
        if (list->hosts[list->addresses[i].host].preference < better_than) {
            list->addresses[kept++] = list->addresses[i];
        }
    }
    list->address_count = kept;
    if (kept == 0) {
        return *ret_found_self ? MXLIST_LOOP : MXLIST_EMPTY;
    }
    drop_refused(list);
    if (list->address_count == 0) {
        return MXLIST_REFUSED;
    }
    sort(list, rules->prefer);
    cut(list, rules->limit);
    return MXLIST_READY;
}
