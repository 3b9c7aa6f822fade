/*
 * DANE for SMTP (RFC 7672, 7671): the requirements for TLS to a host in secure answers of the DNS.
 * Records and rules only: the resolver queries, validates and rates the answers, and the TLS
 * library compares certificates.
 *
 * Each answer leads to the next query, or to a result:
 *
 *   MX answer        host's addresses   TLSA records        result
 *   failed, bogus                                           the domain waits
 *   insecure                                                DANE_NONE
 *   secure           failed, bogus                          this host is not used
 *   secure           insecure                               DANE_NONE, without a TLSA query
 *   secure           secure             failed, bogus       DANE_SKIP: never downgraded
 *   secure           secure             insecure, none      DANE_NONE
 *   secure           secure             some are usable     DANE_MATCH
 *   secure           secure             none is usable      DANE_ENCRYPT
 *
 * A next hop in brackets, and a domain without MX, begin with the addresses. deliver/hops.c
 * implements the rows without a TLSA answer.
 */
#ifndef SMTP_DANE_H
#define SMTP_DANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* Trust in an answer. "No such name" and "no such records" are answers, too. */
enum dane_answer {
    DANE_ANSWER_FAILED, /* no answer, SERVFAIL, or one with wrong signatures */
    DANE_ANSWER_INSECURE,
    DANE_ANSWER_SECURE,
};

enum dane_step {
    DANE_NONE,    /* the host's policy is that without DANE */
    DANE_SKIP,    /* the host must not be used now */
    DANE_ENCRYPT, /* TLS, with any certificate */
    DANE_MATCH,   /* TLS, and a usable record must match */
};

/* A TLSA record, from its data in the DNS. */
struct dane_record {
    uint8_t usage;    /* 2: DANE-TA, 3: DANE-EE */
    uint8_t selector; /* 0: certificate, 1: its public key */
    uint8_t matching; /* 0: the whole, 1: SHA-256, 2: SHA-512 */
    struct slice data;
};

/* Parses a record. Returns whether it is usable for SMTP: usages 2 and 3 (RFC 7672, 3.1.3: 0 and 1
 * are not), known selector and matching type, data of the right length. Data is borrowed. */
bool dane_record_parse(struct slice rdata, struct dane_record *ret_record);

/* Returns the result of the TLSA answer: of `count` records, `usable` are usable. */
enum dane_step dane_after_tlsa(enum dane_answer tlsa, size_t count, size_t usable);

#endif
