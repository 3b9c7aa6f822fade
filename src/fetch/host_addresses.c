#include "host_addresses.h"

#include <arpa/inet.h>

#include "buf.h"
#include "check.h"
#include "dns_answer.h"
#include "mem.h"
#include "public_address.h"

struct host_addresses {
    struct resolver_query *queries[2];
    struct buf text;
    bool public_only;
    bool no_dns;     /* whether a name server did not answer */
    bool not_public; /* whether a private address was ignored */
    host_addresses_found *found;
    void *arg;
};

static bool is_allowed(const struct host_addresses *a, bool ipv6, struct slice address)
{
    return !a->public_only || (ipv6 ? public_address_ipv6((const uint8_t *)address.ptr)
                                    : public_address_ipv4((const uint8_t *)address.ptr));
}

static void add_address(struct host_addresses *a, bool ipv6, struct slice address)
{
    char text[INET6_ADDRSTRLEN];

    if (address.len != (ipv6 ? 16 : 4)) {
        return;
    }
    if (!is_allowed(a, ipv6, address)) {
        a->not_public = true;
        return;
    }
    CHECK(inet_ntop(ipv6 ? AF_INET6 : AF_INET, address.ptr, text, sizeof text) != NULL);
    CHECK(buf_addf(&a->text, ipv6 ? "%s[%s]" : "%s%s", buf_len(&a->text) > 0 ? "," : "", text));
}

static void on_answer(struct host_addresses *a, bool ipv6, const struct resolver_answer *answer)
{
    struct slice data[HOST_ADDRESSES_MAX];
    size_t count = 0;

    a->queries[ipv6] = NULL;
    a->no_dns = a->no_dns || answer->outcome == RESOLVER_AGAIN;
    if (answer->outcome == RESOLVER_ANSWER &&
        dns_answer_records(answer->packet, ipv6 ? RESOLVER_AAAA : RESOLVER_A, data,
                           HOST_ADDRESSES_MAX, &count)) {
        for (size_t i = 0; i < count && i < HOST_ADDRESSES_MAX; i++) {
            add_address(a, ipv6, data[i]);
        }
    }
    if (a->queries[!ipv6] == NULL) {
        a->found(a->arg, a);
    }
}

static void on_ipv4(void *arg, const struct resolver_answer *answer)
{
    on_answer(arg, false, answer);
}

static void on_ipv6(void *arg, const struct resolver_answer *answer)
{
    on_answer(arg, true, answer);
}

static bool uses_family(const struct conf *conf, const char *family)
{
    for (size_t i = 0; i < conf->inet_protocols.count; i++) {
        struct slice protocol = slice_string(conf->inet_protocols.items[i]);

        if (slice_equal_nocase(protocol, SLICE("all")) ||
            slice_equal_nocase(protocol, slice_string(family))) {
            return true;
        }
    }
    return false;
}

struct host_addresses *host_addresses_new(struct resolver *resolver, const struct conf *conf,
                                          struct slice host, bool public_only,
                                          host_addresses_found *found, void *arg)
{
    struct host_addresses *a = mem_new(sizeof *a);
    bool ipv6 = uses_family(conf, "ipv6");

    a->public_only = public_only;
    a->found = found;
    a->arg = arg;
    buf_init(&a->text, 2 * HOST_ADDRESSES_MAX * (INET6_ADDRSTRLEN + 3));
    if (ipv6) {
        a->queries[1] = resolver_ask(resolver, host, RESOLVER_AAAA, on_ipv6, a);
    }
    if (!ipv6 || uses_family(conf, "ipv4")) {
        a->queries[0] = resolver_ask(resolver, host, RESOLVER_A, on_ipv4, a);
    }
    return a;
}

void host_addresses_free(struct host_addresses *a)
{
    if (a != NULL) {
        resolver_cancel(a->queries[0]);
        resolver_cancel(a->queries[1]);
        buf_fini(&a->text);
        mem_free(a);
    }
}

const char *host_addresses_text(struct host_addresses *a)
{
    return buf_len(&a->text) == 0 ? "" : buf_cstr(&a->text);
}

const char *host_addresses_why(const struct host_addresses *a)
{
    return a->not_public ? "its addresses are not of the public Internet"
           : a->no_dns   ? "no name server has an answer"
                         : "there is no such host";
}
