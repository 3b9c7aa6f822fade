/*
 * Values of the policy for one transport and next hop.
 *
 * Each value is the first of
 *   1. the first clause of the file whose pattern matches (and no other),
 *   2. the clause that declares the transport (pattern NAME or
 *      NAME/ with a star after it, and agent= or command=); if the transport of the
 *      clause of rule 1 is a star, before that also the first clause with such a pattern,
 *   3. the clause `*` (stars on both sides), as it was at the clause of rule 1,
 *   4. the parameter TRANSPORT_name (built in: local_destination_recipient_limit = 1 and
 *      local_destination_concurrency_limit = 2),
 *   5. the parameter `default_name` or its built-in default.
 *
 * Where the store routes (conf_spool_routes), no clause declares a transport, so rule 2 does not
 * apply.
 */
#ifndef CONF_POLICY_H
#define CONF_POLICY_H

#include "buf.h"
#include "params.h"
#include "slice.h"

struct conf;

struct policy {
#define POLICY_MEMBER(type, name, default_name, unit, preset, min, max, meaning)                   \
    PARAM_MEMBER_##type(name)
    POLICY_PARAMS(POLICY_MEMBER)
#undef POLICY_MEMBER
    /* Number of the clause of rule 1, from 1 (0: none), used as the name of a ring: destinations of
     * one ring share maxring. */
    uint32_t ring;
};

struct policy_origin;

/* Returns the pattern of the clause with this number, as written; NULL: none. */
const char *policy_clause(const struct conf *conf, uint32_t ring);

/* Appends the pattern of a clause that matches exactly an operator's `destination`:
 * transport/nexthop, a next hop, or a pattern of these with `*` and `?`. Errors of *out are
 * sticky. */
void clause_put_pattern(struct buf *out, struct slice destination);

/* Returns the pattern of the destination's clause if its destinations share a limit (maxring),
 * otherwise NULL. In a cluster one node delivers to all these destinations. */
const char *policy_shared_ring(const struct conf *conf, struct slice transport,
                               struct slice nexthop);

/* Returns the tls_CAfile of clause number `n`, and its place: "" if the clause sets none, NULL
 * after the last clause. */
const char *policy_clause_authorities(const struct conf *conf, size_t n,
                                      struct policy_origin *ret_where);

/* Computes the policy of a destination. Costs a search (clause_index.h) and a copy per value, so
 * callers store the result with the destination. Its strings and lists are borrowed from `conf`.
 * `nexthop` is compared in its canonical form (nexthop.h) and lower case. An empty one means the
 * transport as a whole, which only patterns with an empty or starred host match. */
void policy_for(const struct conf *conf, struct slice transport, struct slice nexthop,
                struct policy *ret_policy);

/* Can agents start: by a command of the policy, or by other programs? */
bool policy_starts_agents(const struct policy *policy);

/* Does any destination use MTA-STS policies of domains? */
bool policy_wants_sts(const struct conf *conf);

/* Place of a value. */
struct policy_origin {
    const char *file; /* NULL: built in */
    unsigned line, column;
    const char *name; /* pattern of the clause, or the parameter */
};

/* Computes the policy as policy_for, with the origin of each value at its index in param_table
 * (param.h). Returns false if no clause matches and no transport of that name exists. */
bool policy_explain(const struct conf *conf, struct slice transport, struct slice nexthop,
                    struct policy *ret_policy, struct policy_origin ret_origins[PARAM_COUNT_MAX]);

/* Does any destination have a level of DANE? If so, *ret_where is the place of one. */
bool policy_wants_dane(const struct conf *conf, struct policy_origin *ret_where);

/* Default weight of class `personal`. With weights from 2 to 100 a delivery of personal mail begins
 * as soon as one ends, until there is more than the site accepts (docs/simulator.md). Then bulk
 * keeps an eleventh, enough to end some day. */
#define CLASS_WEIGHT_PERSONAL 10

/* Value of user= for mail_owner. It is explicit, because such a command may read and change the
 * whole queue. */
#define POLICY_USER_MAIL_OWNER "$mail_owner"

/* Returns the name or number of the delivering user; "": none. */
const char *policy_user(const struct conf *conf, const struct policy *policy);

/* Returns the weight of a class, 1..CONF_WEIGHT_MAX, from the first clause class/PATTERN that
 * matches its name (lower case; empty for mail without a class). The default is 1; for `personal`
 * with default_class = auto it is CLASS_WEIGHT_PERSONAL. */
uint32_t class_weight(const struct conf *conf, struct slice name);

/* Returns the fairness of a class from that clause. The default is class_fairness for `bulk`, and
 * none for other classes. */
enum conf_class_fairness class_fairness(const struct conf *conf, struct slice name);

/* A transport: built in (smtp, relay, lmtp, local, error, retry, discard, milter) or declared. */
struct conf_transport {
    const char *name;
    struct policy policy; /* policy_for(name, "") */
};

/* Returns the number of transports. Their order is fixed: built-in ones, then as declared. */
size_t conf_transport_count(const struct conf *conf);
const struct conf_transport *conf_transport_at(const struct conf *conf, size_t index);

/* Returns the transport of this name; NULL: none. */
const struct conf_transport *conf_transport_find(const struct conf *conf, struct slice name);

#endif
