/*
 * The role `fetch` (its table is fetch_role in role.h): looks up MTA-STS policies (RFC 8461) for
 * the queue process.
 *
 *   WIRE_FETCH --> TXT _mta-sts.DOMAIN --+--> none, or the id that is known already: answered
 *                                        |
 *                            LINE (for one of FETCH_AT_ONCE) --> addresses of mta-sts.DOMAIN
 *                                        |
 *                            GET https://mta-sts.DOMAIN/.well-known/mta-sts.txt
 *                                        |
 *   WIRE_FETCHED <-- read, written anew -+
 *
 * It talks to hosts that any domain may name, so it has no files, reaches nothing but name servers
 * and these hosts, and knows of no mail: only domains and ids of policies come to it. Nothing is
 * remembered here; the queue process keeps policies and says when to ask again (sts_cache.h).
 *
 * Limits: WIRE_FETCHES_MAX look-ups, which the queue keeps to; FETCH_AT_ONCE of them talk to hosts,
 * each for FETCH_TIMEOUT_US at most (RFC 8461, 3.3: a minute) and with HOST_ADDRESSES_MAX
 * addresses of each family.
 *
 * There is one such process where smtp_mta_sts or a clause's mta_sts is set.
 */
#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H

#include "role.h"
#include "times.h"

#define FETCH_AT_ONCE    50u
#define FETCH_TIMEOUT_US (60 * US_PER_S)

#endif
