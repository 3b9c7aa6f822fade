#include "queue_measures.h"

#include <malloc.h>
#include <sys/resource.h>

#include "clock.h"
#include "conf.h"
#include "facts.h"
#include "json.h"
#include "listing.h"
#include "measures.h"
#include "queue.h"
#include "queue_why.h"
#include "spool_lease.h"
#include "spool_others.h"

void measures_put_process(json_t *object)
{
    struct rusage used;
    struct mallinfo2 heap = mallinfo2();
    int64_t us;

    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * US_PER_S + used.ru_utime.tv_usec +
         used.ru_stime.tv_usec;
    json_put(object, "cpu_seconds", json_seconds(us));
    json_put(object, "heap_bytes", json_integer((json_int_t)(heap.uordblks + heap.hblkhd)));
}

/* Returns the outcomes that are not 0: most combinations never occur. */
static json_t *outcomes(const struct measures *m)
{
    json_t *array = json_array();

    for (unsigned i = 0; i < MEASURE_OUTCOMES; i++) {
        for (unsigned j = 0; j < MEASURE_CATEGORIES; j++) {
            if (m->outcomes[i][j] > 0) {
                json_add(array, json_pack("{s:s, s:s, s:I}", "outcome", measure_outcome_name(i),
                                          "category", measure_category_name(j), "recipients",
                                          (json_int_t)m->outcomes[i][j]));
            }
        }
    }
    return array;
}

static json_t *delays(const struct class_counts *classes)
{
    json_t *array = json_array();

    for (size_t i = 0; i < classes->count; i++) {
        for (int j = 0; j < MEASURE_PHASES; j++) {
            json_t *one = measure_json(&classes->at[i].delays[j], &measure_delays);

            json_put(one, "class", json_string(classes->at[i].name));
            json_put(one, "phase", json_string(measure_phase_name((enum measure_phase)j)));
            json_add(array, one);
        }
    }
    return array;
}

json_t *measures_oldest(struct queue *q)
{
    struct wall arrived[MEASURE_STATES];
    json_t *object = json_object();

    facts_of_oldest(q, arrived);
    for (size_t i = 0; i < MEASURE_STATES; i++) {
        json_put_time(object, listing_state_name(facts_oldest_states[i]), arrived[i]);
    }
    return object;
}

/* Returns the numbers of a node in a cluster. */
static json_t *node_measures(const struct queue *q)
{
    struct spool_node_measures m;
    int64_t left = spool_lease_left_us(q->spool);

    spool_measure_node(q->spool, &m);
    return json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:i, s:i, s:o}", "partitions",
                     (int)m.partitions, "nodes_up", (int)m.nodes_up, "unowned", (int)m.unowned,
                     "given_up", (json_int_t)m.given_up, "missed", (json_int_t)m.missed, "drift",
                     (json_int_t)m.drift, "fresh_bytes", (json_int_t)m.fresh_bytes,
                     "oldest_snapshot", json_seconds(m.oldest_snapshot_us), "lease_margin",
                     json_seconds(left > 0 ? left : 0), "inquiries", (int)q->inquiries.count,
                     "acknowledged_lost", m.lacks ? 1 : 0, "clock", json_seconds(m.clock_us));
}

void measures_put(struct queue *q, json_t *status)
{
    json_put(status, "outcomes", outcomes(&q->measures));
    json_put(status, "delays", delays(&q->class_counts));
    json_put(status, "commit_time", measure_json(&q->measures.commit_time, &measure_commits));
    json_put(status, "batch_steps", measure_json(&q->measures.batch_steps, &measure_sizes));
    json_put(status, "oldest", measures_oldest(q));
    json_put(status, "named", why_named(q, &q->conf->metrics_destinations));
    if (spool_has_others(q->spool)) {
        json_put(status, "cluster", node_measures(q));
    }
    measures_put_process(status);
}
