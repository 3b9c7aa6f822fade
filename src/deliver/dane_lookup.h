/*
 * Finds the TLSA records for one host, if DANE applies to it (RFC 7672, sections 2.2.2 and 2.2.3;
 * smtp/dane.h has the rules).
 *
 *     the host's addresses                      TLSA records are looked up at
 *     secure                                    the host's name
 *     secure, through an alias                  the alias's target; if it has none, its name
 *     insecure, but the alias itself is secure  the host's name
 *     insecure                                  no name: DANE does not apply
 *
 * In the third case the alias needs a query of its own, because an answer is only as secure as its
 * weakest part.
 */
#ifndef DELIVER_DANE_LOOKUP_H
#define DELIVER_DANE_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dane.h"
#include "dns_answer.h"
#include "resolver.h"
#include "tls.h"

/* Records of one host that are used; a larger number is logged. */
#define DANE_RECORDS_MAX 64

struct dane_lookup;
typedef void dane_lookup_done(void *arg, struct dane_lookup *lookup);

/* Facts about the host; borrowed for the call. */
struct dane_question {
    struct slice host;
    struct slice alias; /* target if the host is an alias; else empty */
    bool secure;        /* its addresses are secure */
    uint16_t port;
};

/* Members after the answer are private to dane_lookup.c. */
struct dane_lookup {
    /* the answer, valid when `done` is called */
    enum dane_step step;     /* DANE_NONE, DANE_SKIP, DANE_ENCRYPT or DANE_MATCH */
    char base[DNS_NAME_MAX]; /* DANE_MATCH: the name with the records */
    struct tls_record records[DANE_RECORDS_MAX]; /* usable records */
    size_t record_count;
    uint32_t ttl; /* validity of the answer, in seconds */

    struct resolver *resolver;
    struct resolver_query *query;
    dane_lookup_done *done;
    void *arg;
    char *packet; /* owned: the data of `records` */
    char host[DNS_NAME_MAX], alias[DNS_NAME_MAX];
    uint16_t port;
};

/* Is a lookup needed? If not, DANE does not apply. */
bool dane_lookup_needed(const struct dane_question *question);

/* Starts a lookup, which must be needed. Calls `done` once, from the loop. */
struct dane_lookup *dane_lookup_new(struct resolver *resolver, const struct dane_question *question,
                                    dane_lookup_done *done, void *arg);

/* Frees a lookup, and cancels its query. NULL is fine. */
void dane_lookup_free(struct dane_lookup *lookup);

#endif
