/*
 * From a next hop to the addresses behind it: MX and address lookups, and the texts for when there
 * are none.
 *
 *     domain      MX records, else the domain's own addresses
 *     [host]      the host's addresses
 *     [address]   itself, no lookup
 *
 * With a level that asks for DANE, answers are proven and lead to the TLSA records of each host
 * (dane_lookup.h); with one that allows MTA-STS the domain's policy says which hosts it has. All
 * that makes the demand of each host (tls_policy.h), or the reason not to use it.
 *
 * All hosts of a list are looked up at once. A host that can't be looked up costs nothing as long
 * as another one can. Wording and status codes are those of Postfix, but for the null MX, which is
 * RFC 7505's.
 */
#ifndef DELIVER_HOPS_H
#define DELIVER_HOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "dane_lookup.h"
#include "mxlist.h"
#include "nexthop.h"
#include "resolver.h"
#include "status.h"
#include "sts.h"
#include "tls_policy.h"

/* What is known of a domain's MTA-STS policy. */
struct sts_answer {
    const struct sts_policy *policy; /* of any mode; NULL: there is none. For the call */
    struct mono until;               /* when to ask again */
};

struct sts_question;
typedef void sts_done(void *arg, const struct sts_answer *answer);

/* Where MTA-STS policies come from. */
struct sts_source {
    void *arg;
    /* Ask for the policy of a domain. `done` is called once, from the loop, unless it is cancelled
     * before. */
    struct sts_question *(*ask)(void *arg, struct slice domain, sts_done *done, void *done_arg);
    void (*cancel)(struct sts_question *question);
};

/* What all lookups of a process share. */
struct hops_world {
    struct resolver *resolver;    /* borrowed */
    struct resolver *validator;   /* borrowed: one whose answers are proven; NULL: DANE is off */
    const struct sts_source *sts; /* borrowed; NULL: there are no MTA-STS policies */
    struct rng rng;
    bool ipv4, ipv6;
    char *hostname;         /* owned: what we call ourselves */
    union ip_address *self; /* owned: where our own SMTP listeners are, with their ports */
    size_t self_count;
};

/* What the configuration says, and the system of its interfaces; before confinement. */
void hops_world_init(struct hops_world *world, const struct conf *conf, struct resolver *resolver,
                     uint64_t seed);
/* A new configuration. Interfaces are not looked at again, as a confined process can't; listeners
 * given by address are. */
void hops_world_renew(struct hops_world *world, const struct conf *conf);

void hops_world_fini(struct hops_world *world);

enum hops_outcome {
    HOPS_FOUND,    /* list.addresses, in order */
    HOPS_DEFERRED, /* not now: status and text */
    HOPS_BOUNCED,  /* never: status and text */
};

/* What a destination demands of TLS at a next hop. */
struct hops_tls {
    enum conf_tls level;
    enum conf_tls least; /* what a login there needs; CONF_TLS_NONE: nothing */
    enum conf_sts sts;
    bool prove; /* proven answers and TLSA records are wanted whatever the level is, to be shown */
};

struct hops;
typedef void hops_done(void *arg, struct hops *h);

/* Fields but the answer are private to hops.c. */
struct hops {
    /* the answer, once `finished` */
    bool finished;
    enum hops_outcome outcome;
    struct status status;
    char *text; /* owned; NULL when HOPS_FOUND */
    struct mxlist list;
    bool found_self; /* we are a mail exchanger of this domain */
    bool last_word;  /* no other next hop may be tried: null MX, loop */
    bool refused;    /* HOPS_DEFERRED by the TLS policy: says nothing about the site */
    /* Of each of list.hosts, where `finished` with HOPS_FOUND: what a connection to it has to
     * show. NULL for a host that is not to be used. */
    struct tls_demand **demands;

    struct hops_world *world;
    struct hops_tls tls;
    hops_done *done;
    void *arg;
    struct mxlist_rules rules;
    char name[MXLIST_NAME_MAX];
    uint16_t port;
    bool detect_self; /* our own listeners would be a loop */
    bool is_domain;   /* not a host in brackets */
    bool by_mx;       /* the hosts are from MX records */
    bool again;       /* some lookup could not be answered for now */
    bool missing;     /* some name does not exist */
    bool asking;      /* lookups are still being started */
    size_t pending;
    bool proven;                     /* what led to the hosts' names is secure */
    uint32_t ttl;                    /* of that, in seconds */
    char domain_alias[DNS_NAME_MAX]; /* what the domain is an alias of, if `proven` */
    struct resolver_query *mx_query;
    struct sts_question *sts_question;
    struct mono sts_until;
    struct hops_lookup *lookups; /* owned, lookup_count */
    size_t lookup_count;
    struct hops_host *hosts; /* owned, as many as list.hosts: what their demands are made of */
};

/* Look up a next hop that is not a Unix socket. `port` holds when it names none. When the answer
 * needs no lookup, `finished` is set on return and `done` not called. `detect_self`: reaching one
 * of our own listeners is a loop. */
struct hops *hops_find(struct hops_world *world, const struct nexthop *nexthop, uint16_t port,
                       const struct mxlist_rules *rules, const struct hops_tls *tls,
                       bool detect_self, hops_done *done, void *arg);

/* What is known of a host of the list, once `finished`; lasts as long as `h`. */
struct hops_facts {
    bool secure; /* its addresses, and what led to its name */
    const struct tls_record *records;
    size_t record_count;
    bool is_tlsa_broken;             /* its TLSA records could not be looked up */
    const struct tls_demand *demand; /* NULL: it is not used */
};

/* The reason why a host is not used is appended to *ret_why. */
void hops_describe(const struct hops *h, size_t host, struct hops_facts *ret, struct buf *ret_why);

/* Ends lookups under way, too. NULL is fine. */
void hops_free(struct hops *h);

#endif
