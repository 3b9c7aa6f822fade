/*
 * Shared declarations of conf.c, policy.c, route.c, conf_text.c and dialects (dialect.h); private
 * to these.
 */
#ifndef CONF_CONF_PRIVATE_H
#define CONF_CONF_PRIVATE_H

#include "clause_index.h"
#include "conf.h"
#include "dialect.h"
#include "hash.h"
#include "param.h"
#include "policy.h"
#include "pool.h"

/* Values of some parameters of a policy. */
struct layer {
    struct policy values;
    /* indices as in param_table, of which only POLICY_PARAMS are used */
    bool set[PARAM_COUNT_MAX];
    struct policy_origin from[PARAM_COUNT_MAX];
};

/* Values of a clause. A clause without values shares the body of the next one. */
struct clause_body {
    struct layer own;
    struct layer *base; /* defaults clause at the start of this clause; NULL: none */
};

struct clause {
    const char *pattern;        /* as written */
    struct slice channel;       /* as written */
    struct slice lower_channel; /* channel in lower case, to compare names with */
    struct slice host;          /* host in lower case */
    struct clause_body *body;
    bool is_class; /* true for class/NAME: a clause of a class, not of destinations */
    const char *file;
    unsigned line;
};

/* TRANSPORT_name = value, as written. */
struct override {
    const struct param *param;
    const char *transport, *name, *raw, *file;
    unsigned line, column;
};

/* Value of a parameter as written. raw == NULL: not set. */
struct setting {
    const char *raw, *file;
    unsigned line, column;
};

struct transport_slot {
    UT_hash_handle hh; /* entry of transport_names */
    struct conf_transport public;
    struct policy start;          /* values of rules 4 and 5 of policy.h */
    const struct layer *declared; /* values of rule 2; NULL: none */
    const struct layer *whole;    /* values of the first clause NAME and a star; NULL: none */
};

struct conf_private {
    struct pool pool;
    struct setting settings[PARAM_COUNT_MAX];
    struct override *overrides;
    size_t override_count;
    struct clause *clauses;
    size_t clause_count;
    const struct layer *defaults_clause; /* last defaults clause of the file; NULL: none */
    struct clause_index clause_index;    /* valid after policy_prepare */
    struct transport_slot *transports;   /* array */
    size_t transport_count;
    struct transport_slot *transport_names; /* hash of its elements by name */
    bool has_rings;                         /* true if a clause has a maxring */
    struct route_maps *maps;
    const struct conf_dialect *dialect;    /* dialect of the mail system of this configuration;
                                            * NULL: ours */
    void *dialect_data[CONF_DIALECTS_MAX]; /* data of each dialect, in the order of registration */
    const struct conf_world *world;        /* borrowed during loading; may be NULL */
};

__attribute__((format(printf, 6, 7))) void problem_add(struct conf_problems *problems,
                                                       enum conf_severity severity,
                                                       const char *file, unsigned line,
                                                       unsigned column, const char *format, ...);

/* Returns a text that is short enough for a problem. */
struct slice problem_quote(struct slice s);

/* Reads the content of a regular file, up to the buffer's limit, by `world` (may be NULL). Returns
 * 0 or a negative errno (-EFBIG). */
int file_read(const struct conf_world *world, const char *path, struct buf *content);

/* Parses one policy value into a layer, as param_parse. */
bool layer_parse(struct layer *layer, const struct param *p, struct slice text,
                 struct policy_origin from, struct pool *pool, struct slice *ret_bad);

/* Finds the transports of a parsed file, and computes the start values of policy_for. */
void policy_prepare(struct conf *conf);

/* Computes the policy of those next hops of a transport whose clause is `match` (may be NULL). */
void policy_of_clause(const struct conf *conf, const struct transport_slot *slot,
                      const struct clause *match, struct policy *ret_policy);

/* Does the pattern of the clause name exactly one transport and all of its next hops? */
bool clause_is_whole_transport(const struct clause *c);

/* Does the clause concern next hops of every transport? */
bool clause_is_of_all(const struct clause *c);

/* Does the clause declare a transport (rule 2 of policy.h)? */
bool clause_declares(const struct clause *c);
/* Returns the transport of this name; NULL: none. */
struct transport_slot *slot_find(const struct conf_private *inner, struct slice name);
/* Does the clause concern next hops of this transport? */
bool clause_is_of(const struct clause *c, const char *transport);
/* Does the clause, or its defaults clause, have a maxring? */
bool clause_has_ring(const struct clause *c);

/* Loads transport_maps and sender_dependent_relayhost_maps, checks the targets of routing
 * parameters, and computes route_generation and route_tables. */
void route_prepare(struct conf *conf, const char *directory, struct conf_problems *problems);
void route_maps_free(struct route_maps *maps);

/* Returns `path` itself if absolute, otherwise `path` below `directory`; from the pool. */
const char *path_below(struct pool *pool, const char *directory, struct slice path);

#endif
