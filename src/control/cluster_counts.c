#include "cluster_counts.h"

#include <stdint.h>

#include "check.h"
#include "json.h"

/* Largest number of nodes whose counters are kept. */
#define SEEN_MAX 64

static const char *const counters[] = {"submitted", "delivered", "deferrals",
                                       "bounced",   "reports",   "commits"};
#define COUNTERS (sizeof counters / sizeof counters[0])

void cluster_counts_fini(struct cluster_counts *c)
{
    json_decref(c->seen);
    json_decref(c->totals);
}

static json_int_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* Adds what a node has counted since its last sample; nothing for a new node. */
static void add_node(struct cluster_counts *c, const json_t *node)
{
    const char *name = json_string_value(json_object_get(node, "node"));
    const json_t *before = json_object_get(c->seen, name);
    json_t *now = json_object();

    for (size_t i = 0; i < COUNTERS; i++) {
        json_int_t n = number_of(node, counters[i]), old = number_of(before, counters[i]);
        json_int_t more = before == NULL ? 0 : n >= old ? n - old : n; /* the node has restarted */
        json_int_t total = number_of(c->totals, counters[i]);

        json_put(now, counters[i], json_integer(n));
        if (more > 0 && more <= INT64_MAX - total) {
            json_put(c->totals, counters[i], json_integer(total + more));
        }
    }
    json_put(c->seen, name, now);
}

void cluster_counts_put(struct cluster_counts *c, const json_t *cluster, json_t *sample)
{
    const json_t *node;
    size_t i;

    if (c->seen == NULL || json_object_size(c->seen) > SEEN_MAX) {
        json_decref(c->seen);
        c->seen = json_object();
    }
    if (c->totals == NULL) {
        c->totals = json_object();
    }
    json_array_foreach(json_object_get(cluster, "nodes"), i, node)
    {
        if (json_is_true(json_object_get(node, "answered"))) {
            add_node(c, node);
        }
    }
    CHECK(json_object_update(sample, json_object_get(cluster, "sums")) == 0);
    for (i = 0; i < COUNTERS; i++) {
        json_put(sample, counters[i], json_integer(number_of(c->totals, counters[i])));
    }
    json_put(sample, "busiest", json_incref(json_object_get(cluster, "busiest")));
}
