/*
 * Finds the addresses of a next hop: MX and address lookups, and the texts of failures.
 *
 *     domain      MX records, else the domain's own addresses
 *     [host]      the host's addresses
 *     [address]   itself, no lookup
 *
 * A level with DANE needs proven answers, and the TLSA records of each host (dane_lookup.h). A
 * level that allows MTA-STS uses the hosts of the domain's policy. Both decide the demand of each
 * host (tls_policy.h), or the reason not to use the host.
 *
 * All hosts of a list are looked up at once. A host that can't be looked up is ignored as long as
 * another host has addresses. Texts and status codes are those of Postfix, except for the null MX
 * (RFC 7505).
 */
#ifndef DELIVER_HOPS_H
#define DELIVER_HOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "dane_lookup.h"
#include "failure.h"
#include "mxlist.h"
#include "nexthop.h"
#include "resolver.h"
#include "status.h"
#include "sts.h"
#include "tls_policy.h"

/* An answer about a domain's MTA-STS policy. */
struct sts_answer {
    const struct sts_policy *policy; /* policy of any mode, valid for the call; NULL: none */
    struct mono until;               /* end of the answer's validity */
};

struct sts_question;
typedef void sts_done(void *arg, const struct sts_answer *answer);

/* A source of MTA-STS policies. */
struct sts_source {
    void *arg;
    /* Requests the policy of a domain. Calls `done` once, from the loop, unless the question is
     * cancelled before. */
    struct sts_question *(*ask)(void *arg, struct slice domain, sts_done *done, void *done_arg);
    void (*cancel)(struct sts_question *question);
};

/* State shared by all lookups of a process. */
struct hops_world {
    struct resolver *resolver;    /* borrowed */
    struct resolver *validator;   /* borrowed: resolver for proven answers; NULL: DANE is off */
    const struct sts_source *sts; /* borrowed; NULL: no MTA-STS */
    struct rng rng;
    bool ipv4, ipv6;
    char *hostname;         /* owned: our name */
    union ip_address *self; /* owned: addresses of our own SMTP listeners, with ports */
    size_t self_count;
};

/* Takes settings from the configuration and the addresses of the interfaces from the system. Call
 * it before confinement. */
void hops_world_init(struct hops_world *world, const struct conf *conf, struct resolver *resolver,
                     uint64_t seed);
/* Takes settings from a new configuration. Listeners given by address are updated; interfaces are
 * not, because a confined process can't read them. */
void hops_world_renew(struct hops_world *world, const struct conf *conf);

void hops_world_fini(struct hops_world *world);

enum hops_outcome {
    HOPS_FOUND,    /* list.addresses has the addresses, in order */
    HOPS_DEFERRED, /* a temporary failure: status and text */
    HOPS_FAILED,   /* a permanent failure, as far as the DNS shows: cause, status and text */
};

/* A destination's TLS requirements at a next hop. */
struct hops_tls {
    enum conf_tls level;
    enum conf_tls least; /* level needed for a login there; CONF_TLS_NONE: none */
    enum conf_sts sts;
    bool prove; /* get proven answers and TLSA records at any level, for display */
};

struct hops;
typedef void hops_done(void *arg, struct hops *h);

/* Members after the answer are private to hops.c. */
struct hops {
    /* the answer, valid if `finished` */
    bool finished;
    enum hops_outcome outcome;
    enum failure_cause cause; /* for HOPS_FAILED */
    struct status status;
    char *text; /* owned; NULL for HOPS_FOUND */
    struct mxlist list;
    bool found_self; /* this host is a mail exchanger of the domain */
    bool last_word;  /* no other next hop must be tried: null MX, loop */
    bool refused;    /* HOPS_DEFERRED because of the TLS policy; the site is not to blame */
    /* Demand of each of list.hosts, valid if `finished` with HOPS_FOUND. NULL for a host that must
     * not be used. */
    struct tls_demand **demands;

    struct hops_world *world;
    struct hops_tls tls;
    hops_done *done;
    void *arg;
    struct mxlist_rules rules;
    char name[MXLIST_NAME_MAX];
    uint16_t port;
    bool detect_self; /* one of our own listeners would be a loop */
    bool is_domain;   /* false for a host in brackets */
    bool by_mx;       /* hosts come from MX records */
    bool again;       /* a lookup failed temporarily */
    bool missing;     /* a name does not exist */
    bool looks_aside; /* lookups are for the family that inet_protocols leaves out */
    bool aside;       /* that family has addresses */
    bool asking;      /* more lookups will be started */
    size_t pending;
    bool proven;                     /* the answers that led to the hosts' names are secure */
    uint32_t ttl;                    /* time to live of those answers, in seconds */
    char domain_alias[DNS_NAME_MAX]; /* target if the domain is an alias and `proven` is set */
    struct resolver_query *mx_query;
    struct sts_question *sts_question;
    struct mono sts_until;
    struct hops_lookup *lookups; /* owned, lookup_count */
    size_t lookup_count;
    struct hops_host *hosts; /* owned, parallel to list.hosts: facts for the demands */
};

/* Looks up a next hop that is not a Unix socket. `port` applies if the next hop has none. If no
 * lookup is needed, `finished` is set on return and `done` is not called. `detect_self`: one of our
 * own listeners is a loop. */
struct hops *hops_find(struct hops_world *world, const struct nexthop *nexthop, uint16_t port,
                       const struct mxlist_rules *rules, const struct hops_tls *tls,
                       bool detect_self, hops_done *done, void *arg);

/* Facts about a host of the list, valid if `finished`; they last as long as the struct hops. */
struct hops_facts {
    bool secure; /* its addresses and the answers that led to its name are secure */
    const struct tls_record *records;
    size_t record_count;
    bool is_tlsa_broken;             /* lookup of its TLSA records failed */
    const struct tls_demand *demand; /* NULL: not used */
};

/* Sets *ret to the facts about a host. Appends the reason to *ret_why if the host is not used. */
void hops_describe(const struct hops *h, size_t host, struct hops_facts *ret, struct buf *ret_why);

/* Frees a lookup and cancels its queries. NULL is fine. */
void hops_free(struct hops *h);

#endif
