#include "policy.h"

#include <string.h>

#include "check.h"
#include "class_name.h"
#include "conf_private.h"
#include "match.h"
#include "nexthop.h"

#define NAME_BYTES_MAX 1024 /* maximum length of a name that patterns are tried on */

static const struct {
    const char *name;
    enum conf_agent agent;
} built_in[] = {
    {"smtp", CONF_AGENT_SMTP},       {"relay", CONF_AGENT_SMTP},    {"lmtp", CONF_AGENT_LMTP},
    {"local", CONF_AGENT_MAILDIR},   {"error", CONF_AGENT_ERROR},   {"retry", CONF_AGENT_RETRY},
    {"discard", CONF_AGENT_DISCARD}, {"milter", CONF_AGENT_MILTER},
};

/* Maximum recipients of a message for filters, which get all of them; as many fit a draft. */
#define MILTER_RCPTS_MAX 10000

#define BUILT_IN_COUNT (sizeof built_in / sizeof built_in[0])

bool layer_parse(struct layer *layer, const struct param *p, struct slice text,
                 struct policy_origin from, struct pool *pool, struct slice *ret_bad)
{
    if (!param_parse(p, text, pool, &layer->values, ret_bad)) {
        return false;
    }
    layer->set[p - param_table] = true;
    layer->from[p - param_table] = from;
    return true;
}

/* Copies the values that `layer` (may be NULL) sets, and their origins to `origins` (may be
 * NULL). */
static void layer_apply(struct policy *policy, struct policy_origin *origins,
                        const struct layer *layer)
{
    for (size_t i = param_policy_first; layer != NULL && i < param_count; i++) {
        const struct param *p = &param_table[i];

        if (layer->set[i]) {
            memcpy((char *)policy + p->offset, (const char *)&layer->values + p->offset, p->size);
            if (origins != NULL) {
                origins[i] = layer->from[i];
            }
        }
    }
}

bool clause_is_whole_transport(const struct clause *c)
{
    return glob_is_plain(c->channel) && slice_equal(c->host, SLICE("*"));
}

bool clause_is_of_all(const struct clause *c)
{
    return !c->is_class && slice_equal(c->channel, SLICE("*"));
}

bool clause_declares(const struct clause *c)
{
    const struct param *agent = param_find_in_clause(SLICE("agent"));

    return !c->is_class && clause_is_whole_transport(c) && c->body->own.set[agent - param_table];
}

struct transport_slot *slot_find(const struct conf_private *inner, struct slice name)
{
    struct transport_slot *found;

    HASH_FIND(hh, inner->transport_names, name.ptr, name.len, found);
    return found;
}

static struct transport_slot *slot_add(const struct conf *conf, const char *name)
{
    struct conf_private *inner = conf->inner;
    struct transport_slot *slot = &inner->transports[inner->transport_count++];

    slot->public.name = name;
    slot->start = conf->defaults;
    HASH_ADD_KEYPTR(hh, inner->transport_names, name, strlen(name), slot);
    return slot;
}

/* Applies the settings of the transport, later ones last. conf.c has checked their texts. */
static void apply_overrides(struct conf_private *inner, struct transport_slot *slot)
{
    for (size_t i = 0; i < inner->override_count; i++) {
        const struct override *o = &inner->overrides[i];
        struct slice bad;

        if (strcmp(o->transport, slot->public.name) == 0) {
            (void)param_parse(o->param, slice_string(o->raw), &inner->pool, &slot->start, &bad);
        }
    }
}

bool clause_has_ring(const struct clause *c)
{
    const size_t at = (size_t)(param_find_in_clause(SLICE("maxring")) - param_table);
    const struct clause_body *body = c->body;
    const struct layer *layer = body->own.set[at] || body->base == NULL ? &body->own : body->base;

    return !c->is_class && layer->set[at] && layer->values.maxring > 0;
}

static bool has_rings(const struct conf_private *inner)
{
    bool found = false;

    for (size_t i = 0; i < inner->clause_count; i++) {
        found = found || clause_has_ring(&inner->clauses[i]);
    }
    return found;
}

void policy_prepare(struct conf *conf)
{
    struct conf_private *inner = conf->inner;

    inner->has_rings = has_rings(inner);
    clause_index_init(&inner->clause_index, inner->clauses, inner->clause_count, &inner->pool);
    inner->transports =
        pool_new(&inner->pool, (BUILT_IN_COUNT + inner->clause_count + inner->override_count) *
                                   sizeof *inner->transports);
    for (size_t i = 0; i < BUILT_IN_COUNT; i++) {
        struct transport_slot *slot = slot_add(conf, built_in[i].name);

        if (conf_spool_routes(conf)) {
            continue;
        }
        slot->start.agent = (int)built_in[i].agent;
        if (strcmp(built_in[i].name, "local") == 0) {
            slot->start.destination_recipient_limit = 1;
            slot->start.destination_concurrency_limit = 2;
        } else if (built_in[i].agent == CONF_AGENT_MILTER) {
            slot->start.destination_recipient_limit = MILTER_RCPTS_MAX;
        }
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];

        if (clause_declares(c)) {
            struct transport_slot *slot = slot_find(inner, c->channel);

            if (slot == NULL) {
                slot = slot_add(conf, pool_string(&inner->pool, c->channel));
            }
            if (slot->declared == NULL) {
                slot->declared = &c->body->own;
            }
        }
    }
    for (size_t i = inner->clause_count; i-- > 0;) { /* so that the first one remains */
        const struct clause *c = &inner->clauses[i];
        struct transport_slot *slot =
            clause_is_whole_transport(c) ? slot_find(inner, c->channel) : NULL;

        if (slot != NULL && !c->is_class) {
            slot->whole = &c->body->own;
        }
    }
    for (size_t i = 0; i < inner->override_count && conf_spool_routes(conf); i++) {
        const char *name = inner->overrides[i].transport; /* the only mention of such a transport */

        if (slot_find(inner, slice_string(name)) == NULL) {
            (void)slot_add(conf, name);
        }
    }
    for (size_t i = 0; i < inner->transport_count; i++) {
        apply_overrides(inner, &inner->transports[i]);
    }
    for (size_t i = 0; i < inner->transport_count; i++) {
        struct conf_transport *t = &inner->transports[i].public;

        policy_for(conf, slice_string(t->name), SLICE(""), &t->policy);
    }
}

static struct slice lower_case(struct slice s, char *room)
{
    s.len = s.len > NAME_BYTES_MAX ? NAME_BYTES_MAX : s.len;
    for (size_t i = 0; i < s.len; i++) {
        room[i] = ascii_lower(s.ptr[i]);
    }
    return slice_of(room, s.len);
}

bool clause_is_of(const struct clause *c, const char *transport)
{
    char room[NAME_BYTES_MAX];

    return !c->is_class && glob_match(c->lower_channel, lower_case(slice_string(transport), room));
}

static bool clause_matches(const struct clause *c, struct slice channel, struct slice host)
{
    return glob_match(c->lower_channel, channel) && nexthop_match(c->host, host);
}

static const struct clause *clause_for(const struct conf_private *inner, struct slice transport,
                                       struct slice nexthop)
{
    char channel_room[NAME_BYTES_MAX], host_room[NAME_BYTES_MAX], room[NAME_BYTES_MAX];
    struct slice channel = lower_case(transport, channel_room);
    struct slice host = lower_case(nexthop_canonical(nexthop, room, sizeof room), host_room);
    size_t found = clause_index_find(&inner->clause_index, false, channel, host,
                                     inner->clause_count, clause_matches);

    return found < inner->clause_count ? &inner->clauses[found] : NULL;
}

/* Applies rules 1 to 3 to the values of rules 4 and 5. */
static void apply_clauses(const struct conf_private *inner, const struct transport_slot *slot,
                          const struct clause *match, struct policy *policy,
                          struct policy_origin *origins)
{
    bool routes = inner->dialect != NULL && inner->dialect->routes;

    layer_apply(policy, origins, match != NULL ? match->body->base : inner->defaults_clause);
    layer_apply(policy, origins, slot != NULL && !routes ? slot->declared : NULL);
    if (slot != NULL && !routes && match != NULL && clause_is_of_all(match)) {
        layer_apply(policy, origins, slot->whole);
    }
    layer_apply(policy, origins, match != NULL ? &match->body->own : NULL);
    policy->ring = match != NULL ? (uint32_t)(match - inner->clauses) + 1 : 0;
    if (inner->dialect != NULL) {
        inner->dialect->adjust(policy);
    }
}

const char *policy_clause_authorities(const struct conf *conf, size_t n,
                                      struct policy_origin *ret_where)
{
    const size_t at = (size_t)(param_find_in_clause(SLICE("tls_CAfile")) - param_table);
    const struct clause_body *body;
    const struct layer *layer;

    if (n >= conf->inner->clause_count) {
        return NULL;
    }
    body = conf->inner->clauses[n].body;
    layer = body->own.set[at] || body->base == NULL ? &body->own : body->base;
    if (!layer->set[at]) {
        return "";
    }
    *ret_where = layer->from[at];
    return layer->values.tls_CAfile;
}

void policy_for(const struct conf *conf, struct slice transport, struct slice nexthop,
                struct policy *ret_policy)
{
    const struct conf_private *inner = conf->inner;
    const struct transport_slot *slot = slot_find(inner, transport);

    *ret_policy = slot != NULL ? slot->start : conf->defaults;
    apply_clauses(inner, slot, clause_for(inner, transport, nexthop), ret_policy, NULL);
}

/* Sets the origins of the values of rules 4 and 5. */
static void explain_start(const struct conf_private *inner, const struct transport_slot *slot,
                          struct policy_origin *origins)
{
    for (size_t i = param_policy_first; i < param_count; i++) {
        const struct setting *s = &inner->settings[i];

        origins[i] = (struct policy_origin){0};
        if (s->raw != NULL) {
            origins[i] = (struct policy_origin){
                .file = s->file, .line = s->line, .column = s->column, .name = param_table[i].name};
        }
    }
    for (size_t i = 0; slot != NULL && i < inner->override_count; i++) {
        const struct override *o = &inner->overrides[i];

        if (strcmp(o->transport, slot->public.name) == 0) {
            origins[o->param - param_table] = (struct policy_origin){
                .file = o->file, .line = o->line, .column = o->column, .name = o->name};
        }
    }
}

bool policy_starts_agents(const struct policy *policy)
{
    return policy->agent == CONF_AGENT_POSTFIX ||
           (policy->agent == CONF_AGENT_TA && policy->command[0] != '\0');
}

bool policy_explain(const struct conf *conf, struct slice transport, struct slice nexthop,
                    struct policy *ret_policy, struct policy_origin ret_origins[PARAM_COUNT_MAX])
{
    const struct conf_private *inner = conf->inner;
    const struct transport_slot *slot = slot_find(inner, transport);
    const struct clause *match = clause_for(inner, transport, nexthop);

    explain_start(inner, slot, ret_origins);
    *ret_policy = slot != NULL ? slot->start : conf->defaults;
    apply_clauses(inner, slot, match, ret_policy, ret_origins);
    return slot != NULL || match != NULL;
}

const char *policy_user(const struct conf *conf, const struct policy *policy)
{
    return strcmp(policy->user, POLICY_USER_MAIL_OWNER) == 0 ? conf_mail_owner(conf) : policy->user;
}

void policy_of_clause(const struct conf *conf, const struct transport_slot *slot,
                      const struct clause *match, struct policy *ret_policy)
{
    *ret_policy = slot->start;
    apply_clauses(conf->inner, slot, match, ret_policy, NULL);
}

const char *policy_clause(const struct conf *conf, uint32_t ring)
{
    return ring == 0 || ring > conf->inner->clause_count ? NULL
                                                         : conf->inner->clauses[ring - 1].pattern;
}

void clause_put_pattern(struct buf *out, struct slice destination)
{
    bool is_path = slice_starts(destination, SLICE("unix:"));
    size_t slash = is_path ? destination.len : slice_find(destination, '/');
    bool has_transport = slash < destination.len;
    struct slice transport = has_transport ? slice_of(destination.ptr, slash) : SLICE("*");
    struct slice host = has_transport ? slice_skip(destination, slash + 1) : destination;

    (void)buf_addf(out, "%.*s/", SLICE_ARGS(transport)); /* errors are sticky */
    if (slice_find(host, '*') < host.len || slice_find(host, '?') < host.len) {
        (void)buf_add(out, host);
    } else {
        nexthop_put_pattern(out, host);
    }
}

const char *policy_shared_ring(const struct conf *conf, struct slice transport,
                               struct slice nexthop)
{
    struct policy policy;

    if (!conf->inner->has_rings) {
        return NULL; /* this function is called for each recipient */
    }
    policy_for(conf, transport, nexthop, &policy);
    return policy.maxring > 0 ? policy_clause(conf, policy.ring) : NULL;
}

/* Returns the values of the first clause class/PATTERN that matches, if it sets this parameter. */
static const struct policy *class_says(const struct conf *conf, struct slice name,
                                       struct slice param)
{
    const struct conf_private *inner = conf->inner;

    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];

        /* The parameter is looked up last, because this function is called for each message. */
        if (c->is_class && glob_match(c->host, name)) {
            const struct param *p = param_find_in_clause(param);

            return c->body->own.set[p - param_table] ? &c->body->own.values : NULL;
        }
    }
    return NULL;
}

bool policy_wants_sts(const struct conf *conf)
{
    const struct conf_private *inner = conf->inner;
    bool found = conf->defaults.mta_sts != CONF_STS_NO;

    for (size_t i = 0; i < inner->transport_count; i++) {
        found = found || inner->transports[i].public.policy.mta_sts != CONF_STS_NO;
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause_body *body = inner->clauses[i].body;

        found = found || body->own.values.mta_sts != CONF_STS_NO ||
                (body->base != NULL && body->base->values.mta_sts != CONF_STS_NO);
    }
    return found;
}

uint32_t class_weight(const struct conf *conf, struct slice name)
{
    const struct policy *said = class_says(conf, name, SLICE("weight"));

    if (said != NULL) {
        return (uint32_t)said->weight;
    }
    return conf->default_class == CONF_DEFAULT_CLASS_AUTO &&
                   slice_equal(name, SLICE(CLASS_NAME_PERSONAL))
               ? CLASS_WEIGHT_PERSONAL
               : 1;
}

enum conf_class_fairness class_fairness(const struct conf *conf, struct slice name)
{
    const struct policy *said = class_says(conf, name, SLICE("fairness"));

    if (said != NULL) {
        return (enum conf_class_fairness)said->fairness;
    }
    return slice_equal(name, SLICE(CLASS_NAME_BULK))
               ? (enum conf_class_fairness)conf->class_fairness
               : CONF_CLASS_FAIRNESS_NONE;
}

size_t conf_transport_count(const struct conf *conf)
{
    return conf->inner->transport_count;
}

const struct conf_transport *conf_transport_at(const struct conf *conf, size_t index)
{
    CHECK(index < conf->inner->transport_count);
    return &conf->inner->transports[index].public;
}

const struct conf_transport *conf_transport_find(const struct conf *conf, struct slice name)
{
    const struct transport_slot *slot = slot_find(conf->inner, name);

    return slot == NULL ? NULL : &slot->public;
}

static bool is_dane(const struct policy *p)
{
    return p->tls_security_level == CONF_TLS_DANE || p->tls_security_level == CONF_TLS_DANE_ONLY;
}

bool policy_wants_dane(const struct conf *conf, struct policy_origin *ret_where)
{
    const struct conf_private *inner = conf->inner;
    size_t at = (size_t)(param_find_in_clause(SLICE("tls_security_level")) - param_table);

    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct layer *own = &inner->clauses[i].body->own;

        if (own->set[at] && is_dane(&own->values)) {
            *ret_where = own->from[at];
            return true;
        }
    }
    for (size_t i = 0; i < inner->transport_count; i++) {
        struct policy_origin origins[PARAM_COUNT_MAX];
        struct policy policy;

        (void)policy_explain(conf, slice_string(inner->transports[i].public.name), SLICE(""),
                             &policy, origins); /* the transport exists */
        if (is_dane(&policy) &&
            (policy.agent == CONF_AGENT_SMTP || policy.agent == CONF_AGENT_LMTP)) {
            *ret_where = origins[at];
            return true;
        }
    }
    return false;
}
