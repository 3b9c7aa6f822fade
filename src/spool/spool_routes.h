/*
 * Part of a spool: generations of routes, where several nodes route the same mail.
 *
 * Each stored route has the generation of the tables that made it. Where one process routes alone
 * it is the fingerprint of the tables (route.h), and a route with any other is stale. Nodes may
 * have different tables for a while, and would route a recipient in turns. So there a generation is
 * a number that the store gives to a fingerprint and that only rises:
 *
 *     stored    < own    it is stale: the recipient is routed anew, and its route stored
 *               = own    it is what our tables say
 *               > own    newer tables have made it: it is kept to, whatever our tables say
 *
 * A number becomes the highest when its tables are put in force: tables that no node has had
 * before, at a start or a reload; others at a reload (spool_route_by). A start with older ones
 * changes nothing, and warns.
 */
#ifndef SPOOL_SPOOL_ROUTES_H
#define SPOOL_SPOOL_ROUTES_H

#include "spool.h"

/* A generation is number * SPOOL_ROUTE_VERSIONS + a version that rises with what else changes
 * routes. What is above SPOOL_ROUTE_GENERATION_MAX and not fixed is the fingerprint that a program
 * without numbers has stored: it is stale. */
#define SPOOL_ROUTE_VERSIONS       ((uint64_t)1 << 20)
#define SPOOL_ROUTE_NUMBERS_MAX    ((uint64_t)1 << 24)
#define SPOOL_ROUTE_GENERATION_MAX ((SPOOL_ROUTE_NUMBERS_MAX + 1) * SPOOL_ROUTE_VERSIONS - 1)

/* The tables with this fingerprint (route.h: route_tables; not 0) were loaded and are to be in
 * force. Where generations are numbers SPOOL_EVENT_ROUTES says when theirs is known. */
void spool_route_by(struct spool *sp, uint64_t fingerprint);

/* The generation of routes that are made now: the fingerprint (route.h: route_generation), or the
 * number of the tables of the last spool_route_by, or spool_open. 0: it is not known yet. No stored
 * route is stale then; one that is stored with it is stale to all. */
uint64_t spool_route_generation(const struct spool *sp, uint64_t fingerprint);

/* Is a stored route of that generation stale to tables of generation `own`; is it newer? Not those
 * of SPOOL_ROUTE_FIXED. */
bool spool_route_is_stale(const struct spool *sp, uint64_t stored, uint64_t own);
bool spool_route_is_newer(const struct spool *sp, uint64_t stored, uint64_t own);

/* Are the tables of our generation those in force, and does each process know it? */
bool spool_routes_are_in_force(const struct spool *sp);

/* A message with a stored route, and where it lies. */
struct spool_routed {
    unsigned partition;
    struct msg_id id;
};

bool spool_finds_stale_routes(const struct spool *sp);

/* This process's messages that wait with routes that are stale to tables of generation `own`, one
 * page behind *after (zeroed: from the first), in order of partitions; they are read meanwhile.
 * -EAGAIN while they are asked for, -ENOTSUP when !spool_finds_stale_routes. */
int spool_stale_routes(struct spool *sp, uint64_t own, const struct spool_routed *after, size_t max,
                       struct spool_routed *ret, size_t *ret_count);

/* The part, as spool_engine.h wants it. */
struct spool_routes_part {
    void (*route_by)(struct spool *sp, uint64_t fingerprint);
    uint64_t (*generation)(const struct spool *sp);
    bool (*are_in_force)(const struct spool *sp);
    int (*stale)(struct spool *sp, uint64_t own, const struct spool_routed *after, size_t max,
                 struct spool_routed *ret, size_t *ret_count);
};

#endif
