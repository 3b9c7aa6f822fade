/*
 * Store of the policies of sts_cache.h on disk, so that they survive a restart. Each domain has a
 * file in the directory STATE_DIRECTORY/sts.
 *
 *     sluice-sts 1 SUM          checksum of the rest, as 16 hexadecimal digits (checksum.h)
 *     id: 20160831085700Z
 *     fetched: 1761955200       seconds since 1970
 *     used: 1761958800
 *                               an empty line, then the policy as sts_policy_put writes it
 *
 * A new file is renamed over the old one, without a sync. After a crash of the machine a policy may
 * be missing or its file cut short; then it is fetched again like a new one. A file that is
 * damaged, or not ours, is removed and logged.
 */
#ifndef QUEUE_STS_STORE_H
#define QUEUE_STS_STORE_H

#include <stdbool.h>

#include "sts_cache.h"
#include "times.h"

struct sts_store;

/* Opens the store. The directory is made with the first policy. A failure is logged, and nothing is
 * stored. */
struct sts_store *sts_store_open(const char *state_directory);
void sts_store_close(struct sts_store *s);

/* Puts all stored policies into the cache, and removes files that can't be used. `wall` is the time
 * of `now`. */
void sts_store_load(struct sts_store *s, struct sts_cache *cache, struct mono now,
                    struct wall wall);

/* Stores the domain's policy, or removes its file if it has none. Failures are logged. */
void sts_store_put(struct sts_store *s, const struct sts_domain *d, struct mono now,
                   struct wall wall);

#endif
