/*
 * Makes the ordered list of addresses to try from DNS answers (RFC 5321, section 5; RFC 7505).
 *
 *     mxlist_add_mx         an answer to the MX query           hosts with preferences
 *     mxlist_add_host       no MX: the domain, or a host        one host, preference 0
 *     mxlist_add_addresses  answers for each host               addresses
 *     mxlist_finish         own host, order, limits             the list to try
 *
 * Hosts are tried by preference, those of equal preference in random order, and the addresses of
 * one host IPv6 first. If this machine is itself a mail exchanger, only better hosts remain: mail
 * sent to an equal or worse one would return.
 *
 * No I/O: the input is packets and a random generator, the output a list. Packets may be hostile.
 * The list keeps the best MXLIST_HOSTS_MAX hosts, and the first MXLIST_ADDRESSES_MAX addresses of
 * each host.
 */
#ifndef DELIVER_MXLIST_H
#define DELIVER_MXLIST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dns_answer.h"
#include "rng.h"
#include "slice.h"

#define MXLIST_HOSTS_MAX     16
#define MXLIST_ADDRESSES_MAX 16 /* for one host and family */
#define MXLIST_NAME_MAX      DNS_NAME_MAX

struct mx_host {
    char name[MXLIST_NAME_MAX];
    uint16_t preference;
    uint32_t order; /* random, for order among equal preferences */
    bool self;      /* is this machine; set by the owner */
    bool refused;   /* excluded by the domain's TLS policy; set by the owner */
};

union ip_address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* Are address and port equal? Both are IPv4 or IPv6. */
bool ip_address_equal(const union ip_address *a, const union ip_address *b);

struct mx_address {
    union ip_address ip; /* with port */
    uint16_t host;       /* index into hosts */
    bool self;           /* is this machine; set by the owner before mxlist_finish */
};

struct mxlist {
    struct mx_host *hosts; /* owned */
    size_t host_count;
    struct mx_address *addresses; /* owned */
    size_t address_count;
};

enum mxlist_answer {
    MXLIST_SOME, /* there are records */
    MXLIST_NONE, /* no record of that type */
    MXLIST_NULL, /* the domain accepts no mail (null MX) */
    MXLIST_BAD,  /* no DNS answer, or no usable record */
};

enum mxlist_family { MXLIST_IPV4, MXLIST_IPV6 };

enum mxlist_prefer {
    MXLIST_PREFER_ANY,  /* by host, IPv6 before IPv4 */
    MXLIST_PREFER_IPV6, /* all IPv6 addresses of equal preference first */
    MXLIST_PREFER_IPV4,
};

struct mxlist_rules {
    enum mxlist_prefer prefer;
    size_t limit; /* maximum number of addresses, >= 1 */
};

enum mxlist_outcome {
    MXLIST_READY,   /* the list has addresses */
    MXLIST_EMPTY,   /* no addresses */
    MXLIST_LOOP,    /* no host is better than this machine */
    MXLIST_REFUSED, /* all remaining hosts are `refused` */
};

void mxlist_init(struct mxlist *list);
void mxlist_fini(struct mxlist *list);

/* Adds the hosts of an answer to an MX query. */
enum mxlist_answer mxlist_add_mx(struct mxlist *list, struct slice packet, struct rng *rng);

/* Adds one host. CHECKs that there is room and that the name fits. */
void mxlist_add_host(struct mxlist *list, struct slice name);

/* Adds the addresses of a host from an answer to an A or AAAA query. */
enum mxlist_answer mxlist_add_addresses(struct mxlist *list, size_t host, struct slice packet,
                                        enum mxlist_family family, uint16_t port);

/* Adds one address with its port. */
void mxlist_add_address(struct mxlist *list, size_t host, const union ip_address *ip);

/* Drops hosts and addresses marked `self` and `refused`, sorts the rest, and cuts the list to the
 * limit. The cut keeps at least one address of each family (unless the limit is 1), so that a
 * network without working IPv6 still reaches a site with many IPv6 addresses. *ret_found_self: some
 * address or host is this machine. */
enum mxlist_outcome mxlist_finish(struct mxlist *list, const struct mxlist_rules *rules,
                                  bool *ret_found_self);

#endif
