/*
 * Part of a spool: generations of routes, where several nodes route the same mail.
 *
 * Each stored route has the generation of the tables that made it. Where one process alone routes,
 * the generation is the fingerprint of its tables (route.h), and a route with any other is stale.
 * Several nodes may have different tables for a while; with fingerprints they would route a
 * recipient alternately. So there a generation is a number that the store assigns to a fingerprint,
 * and that only rises:
 *
 *     stored    < own    stale: the recipient is routed again, and the new route stored
 *               = own    made by our tables
 *               > own    made by newer tables: kept, whatever our tables contain
 *
 * A number becomes the highest when its tables are put in force: tables that are new to all nodes,
 * by a start or a reload; others by a reload (spool_route_by). A start with older tables changes
 * nothing, and logs a warning.
 */
#ifndef SPOOL_SPOOL_ROUTES_H
#define SPOOL_SPOOL_ROUTES_H

#include "spool.h"

/* A generation is number * SPOOL_ROUTE_VERSIONS + a version that rises with each other change of
 * routes. A value above SPOOL_ROUTE_GENERATION_MAX that is not fixed is a fingerprint, stored by a
 * program without numbers: it is stale. */
#define SPOOL_ROUTE_VERSIONS       ((uint64_t)1 << 20)
#define SPOOL_ROUTE_NUMBERS_MAX    ((uint64_t)1 << 24)
#define SPOOL_ROUTE_GENERATION_MAX ((SPOOL_ROUTE_NUMBERS_MAX + 1) * SPOOL_ROUTE_VERSIONS - 1)

/* Puts the loaded tables with this fingerprint (route.h: route_tables; not 0) in force. Where
 * generations are numbers, SPOOL_EVENT_ROUTES follows when the number is known. */
void spool_route_by(struct spool *sp, uint64_t fingerprint);

/* Returns the generation of routes that are made now: the fingerprint (route.h: route_generation),
 * or the number of the tables of the last spool_route_by or spool_open. 0: not known yet; then no
 * stored route is stale, and a route stored with 0 is stale to all. */
uint64_t spool_route_generation(const struct spool *sp, uint64_t fingerprint);

/* Is a stored route of this generation stale to tables of generation `own`; is it newer? Not for
 * SPOOL_ROUTE_FIXED. */
bool spool_route_is_stale(const struct spool *sp, uint64_t stored, uint64_t own);
bool spool_route_is_newer(const struct spool *sp, uint64_t stored, uint64_t own);

/* Are the tables of our generation in force, and has every process adopted them? */
bool spool_routes_are_in_force(const struct spool *sp);

/* A message with a stored route, and its partition. */
struct spool_routed {
    unsigned partition;
    struct msg_id id;
};

bool spool_finds_stale_routes(const struct spool *sp);

/* Lists this process's waiting messages with routes that are stale to tables of generation `own`:
 * one page after *after (zeroed: from the first), in order of partitions. It also loads them.
 * -EAGAIN while they are requested, -ENOTSUP when !spool_finds_stale_routes. */
int spool_stale_routes(struct spool *sp, uint64_t own, const struct spool_routed *after, size_t max,
                       struct spool_routed *ret, size_t *ret_count);

/* Functions of an engine with this part. */
struct spool_routes_part {
    void (*route_by)(struct spool *sp, uint64_t fingerprint);
    uint64_t (*generation)(const struct spool *sp);
    bool (*are_in_force)(const struct spool *sp);
    int (*stale)(struct spool *sp, uint64_t own, const struct spool_routed *after, size_t max,
                 struct spool_routed *ret, size_t *ret_count);
};

#endif
