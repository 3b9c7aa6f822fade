/*
 * Answers of the DNS: exchangers, addresses, what a name is an alias of, TLSA records.
 *
 * Input: a DNS packet. Wanted, beside no crash: hosts are names that may be asked for, in the order
 * of their preference; so is an alias; no more is kept than the limits say; a TLSA record that is
 * used has a form that the TLS library takes.
 */
#include <stdint.h>

#include "check.h"
#include "dane.h"
#include "dns_answer.h"
#include "mxlist.h"
#include "tls.h"

#define RECORDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_exchangers(struct slice packet)
{
    struct mxlist list;
    struct rng rng;

    mxlist_init(&list);
    rng_init(&rng, 1);
    if (mxlist_add_mx(&list, packet, &rng) == MXLIST_SOME) {
        CHECK(list.host_count > 0 && list.host_count <= MXLIST_HOSTS_MAX);
        for (size_t i = 0; i < list.host_count; i++) {
            CHECK(dns_name_valid(slice_string(list.hosts[i].name)));
            CHECK(i == 0 || list.hosts[i - 1].preference <= list.hosts[i].preference);
        }
        (void)mxlist_add_addresses(&list, 0, packet, MXLIST_IPV4, 25); /* perhaps there are some */
        (void)mxlist_add_addresses(&list, 0, packet, MXLIST_IPV6, 25);
        CHECK(list.address_count <= (size_t)MXLIST_ADDRESSES_MAX * 2);
    }
    mxlist_fini(&list);
}

static void read_tlsa(struct slice packet)
{
    struct slice records[RECORDS_MAX];
    size_t count = 0;

    if (!dns_answer_records(packet, RESOLVER_TLSA, records, RECORDS_MAX, &count)) {
        return;
    }
    for (size_t i = 0; i < count && i < RECORDS_MAX; i++) {
        struct dane_record r;

        if (dane_record_parse(records[i], &r)) {
            struct tls_record use = {r.usage, r.selector, r.matching, r.data};

            CHECK(r.usage == 2 || r.usage == 3);
            CHECK(tls_record_usable(&use) || r.matching == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice packet = slice_of((const char *)data, size);
    char alias[DNS_NAME_MAX];

    (void)dns_answer_ttl(packet); /* whatever it says */
    if (dns_answer_alias(packet, ns_t_a, SLICE("a.test"), alias)) {
        CHECK(dns_name_valid(slice_string(alias)));
    }
    read_exchangers(packet);
    read_tlsa(packet);
    return 0;
}
