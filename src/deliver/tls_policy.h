/*
 * The demand that a next hop's TLS policy makes on a connection to one of its hosts.
 *
 * Policies belong to domains, proofs to connections. A domain's level, its DNS and its MTA-STS
 * policy make a demand for each of its hosts. A connection is opened with a demand and keeps it, as
 * well as the proof of its handshake. A delivery may use a connection that another one has opened
 * to the same host if that proof meets its own demand (session_meets). So domains that share a host
 * share its connections, and never their policies: a fault in one domain's policy delays only the
 * mail of that domain.
 *
 *     level      DANE: usable    records, but       no records      MTA-STS "enforce"
 *                records         none usable                        allows the host
 *     none       NONE            NONE               NONE            NONE
 *     may        MAY             MAY                MAY             VERIFY host
 *     encrypt    ENCRYPT         ENCRYPT            ENCRYPT         VERIFY host
 *     verify     VERIFY host     VERIFY host        VERIFY host     VERIFY host
 *     secure     VERIFY domain   VERIFY domain      VERIFY domain   VERIFY domain
 *     dane       DANE            ENCRYPT            MAY             VERIFY host, or DANE
 *     dane-only  DANE            not used           not used        ignored
 *
 * "VERIFY host" checks the certificate for the host's name, "VERIFY domain" for the next hop's
 * domain or a name below it. If DANE applies, DANE alone decides: MTA-STS must not allow what DANE
 * refuses (RFC 8461, section 2). The levels none, verify, secure and dane-only ignore MTA-STS.
 *
 * No I/O; allocates memory. Demands are immutable and have counted references.
 */
#ifndef DELIVER_TLS_POLICY_H
#define DELIVER_TLS_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "dane.h"
#include "times.h"
#include "tls.h"

/* Names that a certificate may have. */
#define TLS_DEMAND_NAMES_MAX 3

/* Kinds of demand; each includes the previous ones. */
enum tls_demand_kind {
    TLS_DEMAND_NONE,    /* no TLS */
    TLS_DEMAND_MAY,     /* TLS if it is offered and works */
    TLS_DEMAND_ENCRYPT, /* TLS, with any certificate */
    /* TLS with a certificate for one of the names, signed by a trusted authority */
    TLS_DEMAND_VERIFY,
    TLS_DEMAND_DANE, /* TLS with a certificate that matches one of the records */
};

struct tls_demand {
    enum tls_demand_kind kind;
    char *sni;                         /* owned: server name in the handshake */
    char *names[TLS_DEMAND_NAMES_MAX]; /* owned; as in struct tls_peer */
    size_t name_count;
    bool dns_ids;               /* as in struct tls_peer */
    struct tls_record *records; /* owned with their data; for TLS_DEMAND_DANE */
    size_t record_count;
    struct mono until; /* end of the validity of the facts for the demand; MONO_NEVER: a reload */
    uint32_t refs;
};

/* Result of a domain's MTA-STS policy for a host. */
enum tls_sts {
    TLS_STS_NONE, /* no policy, or not enforced */
    TLS_STS_ALLOWS,
    TLS_STS_REFUSES,
};

/* Facts about a host for its demand; borrowed for the call. */
struct tls_host {
    const char *name;         /* name of the host */
    const char *domain;       /* domain of the next hop, or the host itself */
    const char *domain_alias; /* target if secure answers show the domain as an alias; else NULL */
    enum dane_step dane;      /* DANE_NONE, _SKIP, _ENCRYPT or _MATCH, for levels with DANE */
    const char *base;         /* DANE_MATCH: the name with the records */
    const struct tls_record *records;
    size_t record_count;
    enum tls_sts sts;
    struct mono until; /* end of the validity of these facts; MONO_NEVER: none */
};

/* Does the level need proven DNS answers? Does it use MTA-STS policies? */
bool tls_policy_uses_dane(enum conf_tls level);
bool tls_policy_uses_sts(enum conf_tls level);

/* Makes the demand of a domain with this level; the caller gets one reference. `least`: level
 * needed for a login at this host; CONF_TLS_NONE: none. Returns NULL and appends the reason to
 * *ret_why if the host must not be used now. */
struct tls_demand *tls_demand_new(enum conf_tls level, enum conf_tls least,
                                  const struct tls_host *host, struct buf *ret_why);

struct tls_demand *tls_demand_ref(struct tls_demand *d);
void tls_demand_unref(struct tls_demand *d); /* NULL is fine */

/* Do both have the same records, in any order? */
bool tls_demand_same_records(const struct tls_demand *a, const struct tls_demand *b);

#endif
