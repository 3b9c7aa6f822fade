/*
 * What the DNS says about DANE for one host: which of its names has TLSA records, and which (RFC
 * 7672, sections 2.2.2 and 2.2.3; the rules are those of smtp/dane.h).
 *
 *     the host's addresses                    TLSA is asked for at
 *     secure                                  the host's name
 *     secure, by an alias                     what it is an alias of; if there are none, its name
 *     insecure, by an alias that is secure    its name
 *     insecure                                no name: DANE does not apply
 *
 * The alias itself has to be asked for in the third case, as an answer is worth what its weakest
 * part is.
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

/* Records of one host that are looked at; the log tells of more. */
#define DANE_RECORDS_MAX 64

struct dane_lookup;
typedef void dane_lookup_done(void *arg, struct dane_lookup *lookup);

/* What is known of the host; borrowed for the call. */
struct dane_question {
    struct slice host;
    struct slice alias; /* what it is an alias of; empty: of nothing */
    bool secure;        /* its addresses are */
    uint16_t port;
};

/* Fields but the answer are private to dane_lookup.c. */
struct dane_lookup {
    /* the answer, once `done` is called */
    enum dane_step step;     /* DANE_NONE, DANE_SKIP, DANE_ENCRYPT or DANE_MATCH */
    char base[DNS_NAME_MAX]; /* DANE_MATCH: the name that has the records */
    struct tls_record records[DANE_RECORDS_MAX]; /* those that can be used */
    size_t record_count;
    uint32_t ttl; /* seconds that the answer holds */

    struct resolver *resolver;
    struct resolver_query *query;
    dane_lookup_done *done;
    void *arg;
    char *packet; /* owned: the data of `records` */
    char host[DNS_NAME_MAX], alias[DNS_NAME_MAX];
    uint16_t port;
};

/* Does anything have to be asked? If not, DANE does not apply. */
bool dane_lookup_needed(const struct dane_question *question);

/* Ask; needed. `done` is called once, from the loop. */
struct dane_lookup *dane_lookup_new(struct resolver *resolver, const struct dane_question *question,
                                    dane_lookup_done *done, void *arg);

/* Ends what is under way, too. NULL is fine. */
void dane_lookup_free(struct dane_lookup *lookup);

#endif
