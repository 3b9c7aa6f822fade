/*
 * What conf.c, policy.c, route.c, conf_text.c and dialects (dialect.h) share; private to these.
 */
#ifndef CONF_CONF_PRIVATE_H
#define CONF_CONF_PRIVATE_H

#include "conf.h"
#include "dialect.h"
#include "param.h"
#include "policy.h"
#include "pool.h"

/* Some policy values; the others are silent. */
struct layer {
    struct policy values;
    /* By index in param_table, of which only POLICY_PARAMS are used. */
    bool set[PARAM_COUNT_MAX];
    struct policy_origin from[PARAM_COUNT_MAX];
};

/* What a clause says. Clauses without values share the next one's. */
struct clause_body {
    struct layer own;
    struct layer *base; /* the defaults clause where this one opened; NULL = none */
};

struct clause {
    const char *pattern; /* as written */
    struct slice channel, host;
    struct clause_body *body;
    bool is_class; /* class/NAME: of a class, not of destinations */
    const char *file;
    unsigned line;
};

/* TRANSPORT_name = value, as given. */
struct override {
    const struct param *param;
    const char *transport, *name, *raw, *file;
    unsigned line, column;
};

/* A parameter's value, as given. raw == NULL: not given. */
struct setting {
    const char *raw, *file;
    unsigned line, column;
};

struct transport_slot {
    struct conf_transport public;
    struct policy start;          /* rules 4 and 5 of policy.h */
    const struct layer *declared; /* rule 2; NULL = none */
};

struct conf_private {
    struct pool pool;
    struct setting settings[PARAM_COUNT_MAX];
    struct override *overrides;
    size_t override_count;
    struct clause *clauses;
    size_t clause_count;
    const struct layer *defaults_clause; /* the last one; NULL = none */
    struct transport_slot *transports;
    size_t transport_count;
    bool has_rings; /* some clause has a maxring */
    struct route_maps *maps;
    const struct conf_dialect *dialect;    /* of the mail system it was written for; NULL = ours */
    void *dialect_data[CONF_DIALECTS_MAX]; /* in the order of registration */
    const struct conf_world *world;        /* borrowed, while it is loaded; may be NULL */
};

__attribute__((format(printf, 6, 7))) void problem_add(struct conf_problems *problems,
                                                       enum conf_severity severity,
                                                       const char *file, unsigned line,
                                                       unsigned column, const char *format, ...);

/* For problems: not longer than a line of them should be. */
struct slice problem_quote(struct slice s);

/* The content of a regular file, at most the buffer's limit; read as `world` (may be NULL) says. 0
 * or a negative errno (-EFBIG). */
int file_read(const struct conf_world *world, const char *path, struct buf *content);

/* Parse one policy value into a layer; as param_parse. */
bool layer_parse(struct layer *layer, const struct param *p, struct slice text,
                 struct policy_origin from, struct pool *pool, struct slice *ret_bad);

/* Find the transports of a parsed file and compute what policy_for starts from. */
void policy_prepare(struct conf *conf);

/* What holds for those next hops of a transport that `match` (may be NULL) is the clause of. */
void policy_of_clause(const struct conf *conf, const struct transport_slot *slot,
                      const struct clause *match, struct policy *ret_policy);

/* Does a clause's pattern name exactly one transport and all of its next hops? */
bool clause_is_whole_transport(const struct clause *c);

/* Does it declare that transport (rule 2 of policy.h)? */
bool clause_declares(const struct clause *c);
/* Has it a maxring, or the clause beneath it? */
bool clause_has_ring(const struct clause *c);
bool pattern_is_plain(struct slice pattern);

/* Load transport_maps, check what routing parameters name, and compute route_generation. */
void route_prepare(struct conf *conf, const char *directory, struct conf_problems *problems);
void route_maps_free(struct route_maps *maps);

/* `path` itself when it is absolute, else below `directory`; from the pool. */
const char *path_below(struct pool *pool, const char *directory, struct slice path);

#endif
