/*
 * The role `fetch` (fetch_role in role.h): looks up MTA-STS policies (RFC 8461) for the queue
 * process.
 *
 *     WIRE_FETCH --> TXT _mta-sts.DOMAIN --+--> no record, or the known id: answer
 *                                          |
 *                                        LINE (until one of FETCH_AT_ONCE ends)
 *                                          |
 *                                        addresses of mta-sts.DOMAIN
 *                                          |
 *                                        GET https://mta-sts.DOMAIN/.well-known/mta-sts.txt
 *                                          |
 *     WIRE_FETCHED <-- parsed, printed ----+
 *
 * Any domain may name the host to call. Therefore the process has no files, can reach only name
 * servers and such hosts, and gets no mail: only domains and ids of policies. It stores nothing;
 * the queue process keeps the policies and knows when to look them up again (sts_cache.h).
 *
 * Limits: WIRE_FETCHES_MAX look-ups in flight, to which the queue process keeps; FETCH_AT_ONCE of
 * them call hosts, for at most FETCH_TIMEOUT_US each (RFC 8461, 3.3: a minute), with
 * HOST_ADDRESSES_MAX addresses of each family.
 *
 * One such process runs if smtp_mta_sts or mta_sts of a clause is set.
 */
#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H

#include "role.h"
#include "times.h"

#define FETCH_AT_ONCE    50u
#define FETCH_TIMEOUT_US (60 * US_PER_S)

#endif
