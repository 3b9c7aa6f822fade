/*
 * What holds for one transport and next hop.
 *
 * Each value is the first of
 *   1. the first clause of the file whose pattern matches (and no other),
 *   2. the clause that declares the transport (pattern NAME or
 *      NAME/ with a star behind it, and agent= or command=),
 *   3. the clause `*` (stars on both sides) as far as it was known where the clause of 1 stands,
 *   4. the parameter TRANSPORT_name (built in: local_destination_recipient_limit = 1 and
 *      local_destination_concurrency_limit = 2),
 *   5. the parameter `default_name` or its built-in default.
 *
 * Where the store routes (conf_spool_routes), rule 2 does not hold: nothing declares a transport.
 */
#ifndef CONF_POLICY_H
#define CONF_POLICY_H

#include "params.h"
#include "slice.h"

struct conf;

struct policy {
#define POLICY_MEMBER(type, name, default_name, unit, preset, min, max, meaning)                   \
    PARAM_MEMBER_##type(name)
    POLICY_PARAMS(POLICY_MEMBER)
#undef POLICY_MEMBER
    /* The clause of rule 1, from 1 (0 = none), to be used as the name of a ring: destinations of
     * one ring share maxring. */
    uint32_t ring;
};

struct policy_origin;

/* The pattern of the clause with this number, as written; NULL when there is none. */
const char *policy_clause(const struct conf *conf, uint32_t ring);

/* The pattern of that clause, if its destinations share a limit of their own (maxring); NULL: they
 * do not. Where several machines deliver, one of them has to have all of these destinations. */
const char *policy_shared_ring(const struct conf *conf, struct slice transport,
                               struct slice nexthop);

/* What the n-th clause says itself of tls_CAfile, and where: "" when it says nothing, NULL behind
 * the last clause. */
const char *policy_clause_authorities(const struct conf *conf, size_t n,
                                      struct policy_origin *ret_where);

/* Compute the policy of a destination. Costs one pattern match per clause and a copy per value, so
 * callers keep the result with the destination; strings and lists in it are borrowed from `conf`.
 * `nexthop` is compared in lower case; an empty one asks for the transport as a whole, which only
 * patterns with an empty or starred host match. */
void policy_for(const struct conf *conf, struct slice transport, struct slice nexthop,
                struct policy *ret_policy);

/* Can agents be had: of the kind that is started by a command, and there is one, or that other
 * programs start? */
bool policy_starts_agents(const struct policy *policy);

/* Does any destination want the MTA-STS policies of domains? */
bool policy_wants_sts(const struct conf *conf);

/* Where a value stands. */
struct policy_origin {
    const char *file; /* NULL: built in */
    unsigned line, column;
    const char *name; /* the clause's pattern, or the parameter */
};

/* policy_for with the origin of each value, at its index in param_table (param.h). False when
 * neither a transport is declared by that name nor a clause matches. */
bool policy_explain(const struct conf *conf, struct slice transport, struct slice nexthop,
                    struct policy *ret_policy, struct policy_origin ret_origins[PARAM_COUNT_MAX]);

/* Does any destination have a level of DANE? If so *ret_where says by what. */
bool policy_wants_dane(const struct conf *conf, struct policy_origin *ret_where);

/* Of `personal` where no clause says otherwise. Deliveries of it come at once as soon as one ends
 * (see docs/simulator.md: weights from 2 to 100 give the same delays until there is more personal
 * mail than the site takes); then bulk keeps an eleventh, enough to end some day. */
#define CLASS_WEIGHT_PERSONAL 10

/* Stands in user= for mail_owner: that a command may read and change the whole queue has to be said
 * in so many words. */
#define POLICY_USER_MAIL_OWNER "$mail_owner"

/* The name or number of the user that delivers, "" when none is named. */
const char *policy_user(const struct conf *conf, const struct policy *policy);

/* The weight of a class: of the first clause class/PATTERN that matches its name (lower case; empty
 * for mail without a class), else, with default_class = auto, CLASS_WEIGHT_PERSONAL for `personal`,
 * else 1. 1..CONF_WEIGHT_MAX. */
uint32_t class_weight(const struct conf *conf, struct slice name);

/* Whose mail takes turns within a class: what the same clause says, else class_fairness for `bulk`
 * and none for all others. */
enum conf_class_fairness class_fairness(const struct conf *conf, struct slice name);

/* A transport: built in (smtp, relay, lmtp, local, error, retry, discard) or declared. */
struct conf_transport {
    const char *name;
    struct policy policy; /* policy_for(name, "") */
};

/* All transports, in a fixed order: built-in ones, then as declared. */
size_t conf_transport_count(const struct conf *conf);
const struct conf_transport *conf_transport_at(const struct conf *conf, size_t index);

/* NULL when nothing declares it. */
const struct conf_transport *conf_transport_find(const struct conf *conf, struct slice name);

#endif
