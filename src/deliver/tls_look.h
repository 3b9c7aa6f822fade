/*
 * Reports the TLS of mail for a destination to operators (WIRE_TLS_LOOK): hosts, their DNSSEC
 * status and TLSA records, the demand for each host, and which hosts are not used. The lookup is
 * that of a delivery (hops.h), but with proven answers at any level if there is a trust anchor.
 *
 * On request (`connect`) each host in use is connected to, at its first address and with its
 * demand, up to the point where a login or mail would follow. The answer then has the host's proof.
 * That takes at most TLS_LOOK_US.
 *
 * Limits: TLS_LOOKS_MAX requests at once, of which TLS_LOOKS_CONNECTING may connect; further
 * requests are refused.
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
    struct channel *const *queue;           /* borrowed; *queue NULL: the queue process is gone */
    LIST_HEAD(, tls_look) all;
    unsigned count, connecting;
};

void tls_looks_init(struct tls_looks *looks, struct event_base *base, struct hops_world *world,
                    struct sessions *sessions, struct smtp_destinations *destinations,
                    struct channel *const *queue);

/* Handles WIRE_TLS_LOOK. Returns false if it does not decode. */
bool tls_looks_begin(struct tls_looks *looks, struct slice body);

/* Drops all requests: the queue process is gone, or this process ends. */
void tls_looks_drop(struct tls_looks *looks);

#endif
