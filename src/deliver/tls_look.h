/*
 * What TLS mail for a destination would get, for operators who ask (WIRE_TLS_LOOK): hosts, their
 * DNSSEC status and TLSA records, what the policy demands of each, and which are not used. Looked
 * up as for a delivery (hops.h), but with proven answers where there is a trust anchor, whatever
 * the level is. Nothing is connected to.
 *
 * Limit: TLS_LOOKS_MAX at once; more are answered that there are too many.
 */
#ifndef DELIVER_TLS_LOOK_H
#define DELIVER_TLS_LOOK_H

#include <stdbool.h>
#include <sys/queue.h>

#include "channel.h"
#include "hops.h"
#include "slice.h"
#include "smtp_destination.h"

#define TLS_LOOKS_MAX 100u

struct tls_look;

struct tls_looks {
    struct hops_world *world;               /* borrowed */
    struct smtp_destinations *destinations; /* borrowed */
    struct channel *const *queue;           /* borrowed; *queue NULL: the queue process is away */
    LIST_HEAD(, tls_look) all;
    unsigned count;
};

void tls_looks_init(struct tls_looks *looks, struct hops_world *world,
                    struct smtp_destinations *destinations, struct channel *const *queue);

/* WIRE_TLS_LOOK; false: it does not decode. */
bool tls_looks_begin(struct tls_looks *looks, struct slice body);

/* The process that asked is gone, or this one ends. */
void tls_looks_drop(struct tls_looks *looks);

#endif
