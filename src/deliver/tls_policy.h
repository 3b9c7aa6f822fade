/*
 * What a next hop's TLS policy demands of a connection to one of its hosts.
 *
 * Policies belong to domains, proofs to connections. A domain's level, its DNS and its MTA-STS
 * policy make a demand for each of its hosts. A connection is opened with a demand and keeps it,
 * beside what its handshake has shown. A delivery may use a connection that another one has opened
 * to the same host when what was shown there meets its own demand (session_meets). So domains that
 * share a host share its connections, and never their policies: what is wrong with one's policy
 * delays that one's mail alone.
 *
 *     level      DANE: records   records, but       no records      MTA-STS "enforce"
 *                to be used      none to be used                    allows the host
 *     none       NONE            NONE               NONE            NONE
 *     may        MAY             MAY                MAY             VERIFY host
 *     encrypt    ENCRYPT         ENCRYPT            ENCRYPT         VERIFY host
 *     verify     VERIFY host     VERIFY host        VERIFY host     VERIFY host
 *     secure     VERIFY domain   VERIFY domain      VERIFY domain   VERIFY domain
 *     dane       DANE            ENCRYPT            MAY             VERIFY host, or DANE
 *     dane-only  DANE            not used           not used        as without
 *
 * "host" is the certificate's name, "domain" the next hop's or one below it. DANE that applies
 * decides alone: MTA-STS must not rescue what it refuses (RFC 8461, section 2). A level that names
 * the certificate itself (verify, secure, dane-only) does not ask MTA-STS, nor does "none".
 *
 * Pure but for memory. Demands are immutable, with counted references.
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

/* Names that a certificate may be for. */
#define TLS_DEMAND_NAMES_MAX 3

/* Each kind includes those before it. */
enum tls_demand_kind {
    TLS_DEMAND_NONE,    /* TLS is not used */
    TLS_DEMAND_MAY,     /* TLS where it is offered and works */
    TLS_DEMAND_ENCRYPT, /* TLS, with any certificate */
    TLS_DEMAND_VERIFY,  /* TLS; an authority vouches that the certificate is for one of the names */
    TLS_DEMAND_DANE,    /* TLS, and one of the records matches */
};

struct tls_demand {
    enum tls_demand_kind kind;
    char *sni;                         /* owned: the name under which the host is asked for */
    char *names[TLS_DEMAND_NAMES_MAX]; /* owned; as struct tls_peer has them */
    size_t name_count;
    bool dns_ids;               /* likewise */
    struct tls_record *records; /* owned with their data; of TLS_DEMAND_DANE */
    size_t record_count;
    struct mono until; /* what it was made of holds so long; MONO_NEVER: until a reload */
    uint32_t refs;
};

/* What a domain's MTA-STS policy says of a host. */
enum tls_sts {
    TLS_STS_NONE, /* there is no policy, or it is not to be enforced */
    TLS_STS_ALLOWS,
    TLS_STS_REFUSES,
};

/* What is known of a host when its demand is made; borrowed for the call. */
struct tls_host {
    const char *name;         /* of the host */
    const char *domain;       /* of the next hop: the domain, or the host itself */
    const char *domain_alias; /* what the domain is an alias of, by secure answers; NULL: of none */
    enum dane_step dane;      /* DANE_NONE, _SKIP, _ENCRYPT or _MATCH; for levels with DANE */
    const char *base;         /* DANE_MATCH: the name that has the records */
    const struct tls_record *records;
    size_t record_count;
    enum tls_sts sts;
    struct mono until; /* of the facts above; MONO_NEVER: they do not change */
};

/* Does the level need secure answers of the DNS? Does it ask for MTA-STS policies? */
bool tls_policy_uses_dane(enum conf_tls level);
bool tls_policy_uses_sts(enum conf_tls level);

/* The demand of a domain with this level, one reference being the caller's. `least`: what a login
 * at this host needs; CONF_TLS_NONE: nothing. NULL when the host must not be used now: the reason
 * is appended to *ret_why. */
struct tls_demand *tls_demand_new(enum conf_tls level, enum conf_tls least,
                                  const struct tls_host *host, struct buf *ret_why);

struct tls_demand *tls_demand_ref(struct tls_demand *d);
void tls_demand_unref(struct tls_demand *d); /* NULL is fine */

/* Have both the same records, in any order? */
bool tls_demand_same_records(const struct tls_demand *a, const struct tls_demand *b);

#endif
