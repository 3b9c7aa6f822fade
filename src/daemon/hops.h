/*
 * From a next hop to the addresses behind it: MX and address lookups, and the texts for when there
 * are none.
 *
 *     domain      MX records, else the domain's own addresses
 *     [host]      the host's addresses
 *     [address]   itself, no lookup
 *
 * All hosts of a list are looked up at once. A host that can't be looked up costs nothing as long
 * as another one can. Wording and status codes are those of Postfix, but for the null MX, which is
 * RFC 7505's.
 */
#ifndef DAEMON_HOPS_H
#define DAEMON_HOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "mxlist.h"
#include "nexthop.h"
#include "resolver.h"
#include "status.h"

/* What all lookups of a process share. */
struct hops_world {
    struct resolver *resolver; /* borrowed */
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

    struct hops_world *world;
    hops_done *done;
    void *arg;
    struct mxlist_rules rules;
    char name[MXLIST_NAME_MAX];
    uint16_t port;
    bool detect_self; /* our own listeners would be a loop */
    bool by_mx;       /* the hosts are from MX records */
    bool again;       /* some lookup could not be answered for now */
    bool missing;     /* some name does not exist */
    bool asking;      /* lookups are still being started */
    size_t pending;
    struct resolver_query *mx_query;
    struct hops_lookup *lookups; /* owned, lookup_count */
    size_t lookup_count;
};

/* Look up a next hop that is not a Unix socket. `port` holds when it names none. When the answer
 * needs no lookup, `finished` is set on return and `done` not called. `detect_self`: reaching one
 * of our own listeners is a loop. */
struct hops *hops_find(struct hops_world *world, const struct nexthop *nexthop, uint16_t port,
                       const struct mxlist_rules *rules, bool detect_self, hops_done *done,
                       void *arg);

/* Ends lookups under way, too. NULL is fine. */
void hops_free(struct hops *h);

#endif
