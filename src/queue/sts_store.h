/*
 * Policies of sts_cache.h on disk, so that a restart does not forget them: a file of each domain in
 * the directory STATE_DIRECTORY/sts.
 *
 *     sluice-sts 1 SUM          of what follows, as 16 hexadecimal digits (checksum.h)
 *     id: 20160831085700Z
 *     fetched: 1761955200       seconds since 1970
 *     used: 1761958800
 *                               an empty line, then the policy as sts_policy_put writes it
 *
 * A file is written beside the old one and renamed over it, without a sync: after a crash of the
 * machine a policy may be missing, or its file cut short, and is fetched anew as one that was never
 * known. What is not whole, or not written by us, is removed and logged.
 */
#ifndef QUEUE_STS_STORE_H
#define QUEUE_STS_STORE_H

#include <stdbool.h>

#include "sts_cache.h"
#include "times.h"

struct sts_store;

/* The directory is made with the first policy. Where that fails it is logged, and nothing is
 * stored. */
struct sts_store *sts_store_open(const char *state_directory);
void sts_store_close(struct sts_store *s);

/* Put all that is stored into the cache, and remove what can't be used. `wall` is the time of
 * `now`. */
void sts_store_load(struct sts_store *s, struct sts_cache *cache, struct mono now,
                    struct wall wall);

/* Store its policy, or remove the file when it has none. What fails is logged. */
void sts_store_put(struct sts_store *s, const struct sts_domain *d, struct mono now,
                   struct wall wall);

#endif
