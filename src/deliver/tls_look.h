/*
 * What TLS mail for a destination would get, for operators who ask (WIRE_TLS_LOOK): hosts, their
 * DNSSEC status and TLSA records, what the policy demands of each, and which are not used. Looked
 * up as for a delivery (hops.h), but with proven answers where there is a trust anchor, whatever
 * the level is.
 *
 * When asked to (`connect`), each host that is used is connected to as a delivery would, at its
 * first address and with what the demand wants, up to the point where a login or mail would be
 * next, and what it has shown is told. That takes TLS_LOOK_US at most.
 *
 * Limits: TLS_LOOKS_MAX at once, and of those TLS_LOOKS_CONNECTING that connect; more are answered
 * that there are too many.
 */
#ifndef DELIVER_TLS_LOOK_H
#define DELIVER_TLS_LOOK_H

#include <stdbool.h>
#include <sys/queue.h>

#include "channel.h"
#include "hops.h"
#include "slice.h"
#include "smtp_destination.h"

#define TLS_LOOKS_MAX        100u
#define TLS_LOOKS_CONNECTING 4u
#define TLS_LOOK_US          (30 * US_PER_S)

struct tls_look;

struct event_base;

struct tls_looks {
    struct event_base *base;                /* borrowed */
    struct sessions *sessions;              /* borrowed */
    struct hops_world *world;               /* borrowed */
    struct smtp_destinations *destinations; /* borrowed */
    struct channel *const *queue;           /* borrowed; *queue NULL: the queue process is away */
    LIST_HEAD(, tls_look) all;
    unsigned count, connecting;
};

void tls_looks_init(struct tls_looks *looks, struct event_base *base, struct hops_world *world,
                    struct sessions *sessions, struct smtp_destinations *destinations,
                    struct channel *const *queue);

/* WIRE_TLS_LOOK; false: it does not decode. */
bool tls_looks_begin(struct tls_looks *looks, struct slice body);

/* The process that asked is gone, or this one ends. */
void tls_looks_drop(struct tls_looks *looks);

#endif
