#include "sim_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "nexthop.h"
#include "route.h"

/* FNV-1a gives the same result on machines of either byte order; hash_bytes does not. */
uint64_t sim_stream_seed(uint64_t seed, const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;

    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- transports ----------------------------------------------------------------------------- */

static void load_transports(struct sim_places *p)
{
    for (size_t i = 0; i < conf_transport_count(p->conf); i++) {
        const struct conf_transport *t = conf_transport_at(p->conf, i);
        struct sched_transport_policy policy = tuning_transport(p->conf, &t->policy);
        uint32_t index = sched_transport(p->sched, (struct mono){0}, t->name, &policy);

        CHECK(index == i); /* the scheduler is new and the names differ */
    }
}

static uint32_t transport_index(const struct sim_places *p, const char *name)
{
    for (size_t i = 0; i < conf_transport_count(p->conf); i++) {
        if (strcmp(conf_transport_at(p->conf, i)->name, name) == 0) {
            return (uint32_t)i;
        }
    }
    UNREACHABLE("a route names a transport of the configuration");
}

/* ---- places --------------------------------------------------------------------------------- */

static struct sim_client client_of(const struct policy *policy)
{
    bool smtp = policy->agent == CONF_AGENT_SMTP || policy->agent == CONF_AGENT_LMTP;

    return (struct sim_client){
        .connect_timeout_us = policy->connect_timeout_us,
        .greeting_timeout_us = policy->helo_timeout_us,
        .address_limit = (uint32_t)policy->mx_address_limit,
        .cache = smtp && policy->connection_cache_on_demand,
        .cache_time_us = policy->connection_cache_time_limit_us,
        .reuse_time_us = policy->connection_reuse_time_limit_us,
        .reuse_count = (uint64_t)policy->connection_reuse_count_limit,
    };
}

/* Returns the text that site lines are matched with: the host of the next hop, or all of a next hop
 * that can't be parsed. */
static struct slice host_of(struct slice nexthop)
{
    struct nexthop parsed;

    return nexthop_parse(nexthop, &parsed) ? parsed.host : nexthop;
}

/* Removes the mailbox before the last `@`, if the destination has one that its next hop lacks. */
static struct slice without_mailbox(const struct route *route, bool *ret_per_mailbox)
{
    struct slice destination = slice_string(route->destination);
    size_t nexthop_len = strlen(route->nexthop);

    CHECK(destination.len >= nexthop_len);
    *ret_per_mailbox = destination.len > nexthop_len;
    return slice_skip(destination, destination.len - nexthop_len);
}

static struct sim_place *place_find(const struct sim_places *p, const char *key)
{
    struct sim_place *place;

    HASH_FIND(hh, p->by_key, key, strlen(key), place);
    return place;
}

static struct sim_place *place_new(struct sim_places *p, const struct route *route, char *key,
                                   const struct sim_site_model *model)
{
    const struct conf_transport *transport =
        conf_transport_find(p->conf, slice_string(route->transport));
    struct sim_place *place = mem_new(sizeof *place);
    struct policy policy;
    struct sim_client client;

    policy_for(p->conf, slice_string(route->transport), slice_string(route->nexthop), &policy);
    place->key = key;
    place->dest = slice_string(strchr(key, '/') + 1);
    place->transport = transport_index(p, route->transport);
    place->agent = (enum conf_agent)transport->policy.agent;
    place->tuning = tuning_dest(p->conf, &policy);
    place->tuning.policy.depth = 1; /* with a depth of 1 an agent would sometimes wait for its next
                                     * entry; a simulated one never does */
    client = client_of(&policy);
    sim_site_init(&place->site, model, &client, p->events, sim_stream_seed(p->seed, key));
    sim_tally_init(&place->tally, place->key);
    return place;
}

static void place_add(struct sim_places *p, struct sim_place *place)
{
    p->list = mem_grow(p->list, p->count, &p->size, sizeof(struct sim_place *));
    place->number = p->count;
    p->list[p->count++] = place;
    HASH_ADD_KEYPTR(hh, p->by_key, place->key, strlen(place->key), place);
}

/* Routes mail of defer_transports to the transport retry, so that it is not tried. */
static void hold_back(const struct conf *conf, struct route *route)
{
    for (size_t i = 0; i < conf->defer_transports.count; i++) {
        if (strcmp(conf->defer_transports.items[i], route->transport) == 0) {
            route->transport = "retry";
        }
    }
}

static char *key_of(const struct route *route, struct slice dest)
{
    size_t len = strlen(route->transport) + 1 + dest.len;
    char *key = mem_new(len + 1);

    (void)snprintf(key, len + 1, "%s/%.*s", route->transport, SLICE_ARGS(dest)); /* fits exactly */
    return key;
}

static const struct sim_site_model *model_of(const struct sim_places *p, struct slice host,
                                             struct slice domain,
                                             const struct sim_site_model *model, bool relayed)
{
    const struct workload_site *site = workload_site_find(p->workload, host);

    if (model != NULL && (slice_equal_nocase(host, domain) || (relayed && site == NULL))) {
        return model;
    }
    return site != NULL ? &site->model : &p->plain;
}

uint32_t sim_places_need(struct sim_places *p, struct slice domain,
                         const struct sim_site_model *model, bool relayed)
{
    char address[WORKLOAD_NAME_MAX + 64];
    struct sim_place *place;
    struct route route;
    struct slice dest;
    bool per_mailbox;
    char *key;

    (void)snprintf(address, sizeof address, "u1@%.*s", SLICE_ARGS(domain)); /* fits */
    route_address(p->conf, ROUTE_NO_SENDER, slice_string(address), &route);
    hold_back(p->conf, &route);
    dest = without_mailbox(&route, &per_mailbox);
    key = key_of(&route, dest);
    place = place_find(p, key);
    if (place != NULL) {
        mem_free(key);
        return place->number;
    }
    place = place_new(p, &route, key, model_of(p, host_of(dest), domain, model, relayed));
    place->per_mailbox = per_mailbox;
    place_add(p, place);
    return place->number;
}

static int compare_names(const void *a, const void *b)
{
    const struct sim_place *x = *(struct sim_place *const *)a, *y = *(struct sim_place *const *)b;
    int order = slice_compare(x->dest, y->dest);

    return order != 0 ? order : strcmp(x->key, y->key);
}

void sim_places_rank(struct sim_places *p)
{
    struct sim_place **sorted = mem_array(p->count, sizeof(struct sim_place *));

    for (uint32_t i = 0; i < p->count; i++) {
        sorted[i] = p->list[i];
    }
    if (p->count > 1) {
        qsort(sorted, p->count, sizeof *sorted, compare_names);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        sorted[i]->rank = i;
    }
    mem_free(sorted);
}

void sim_places_init(struct sim_places *p, const struct conf *conf, const struct workload *workload,
                     struct sched *sched, struct sim_events *events, uint64_t seed)
{
    *p = (struct sim_places){.conf = conf,
                             .workload = workload,
                             .sched = sched,
                             .events = events,
                             .seed = seed,
                             .plain = sim_site_model_default()};
    load_transports(p);
}

void sim_places_fini(struct sim_places *p)
{
    HASH_CLEAR(hh, p->by_key);
    for (uint32_t i = 0; i < p->count; i++) {
        sim_site_fini(&p->list[i]->site);
        sim_tally_fini(&p->list[i]->tally);
        mem_free(p->list[i]->key);
        mem_free(p->list[i]);
    }
    mem_free(p->list);
    sim_site_model_fini(&p->plain);
}
