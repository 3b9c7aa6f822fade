#include "rerun.h"

#include <stdlib.h>

#include "check.h"
#include "histogram.h"
#include "json.h"
#include "mem.h"
#include "sim_world.h"

#define SEED 1

/* A recipient that was sent. */
struct sample {
    int64_t delay_us;
    uint16_t step;
    uint16_t class;
};

struct rerun {
    const struct trace *trace;
    const struct conf *conf;
    struct sim_world *world;
    int64_t step_us;
    struct sample *samples; /* owned */
    size_t sample_count, sample_size;
    uint64_t waiting; /* recipients, now */
    uint32_t at;      /* the step of now */
    uint64_t waited[RERUN_STEPS];
    uint64_t sent[RERUN_STEPS];
};

/* ---- while it runs -------------------------------------------------------------------------- */

/* Fills the steps since the last event, in which nothing changed. */
static uint32_t step_of(struct rerun *r, struct mono now)
{
    int64_t step = now.us / r->step_us;
    uint32_t to = step < RERUN_STEPS ? (uint32_t)step : RERUN_STEPS - 1;

    while (r->at < to) {
        r->waited[++r->at] = r->waiting;
    }
    return to;
}

static void on_arrived(void *arg, struct mono now, uint64_t message, uint32_t rcpt_count)
{
    struct rerun *r = arg;
    uint32_t step = step_of(r, now);

    (void)message;
    r->waiting += rcpt_count;
    r->waited[step] = r->waiting > r->waited[step] ? r->waiting : r->waited[step];
}

static void on_settled(void *arg, struct mono now, uint64_t message, uint32_t rcpt_n,
                       const char *destination, enum sim_disposition disposition)
{
    struct rerun *r = arg;
    uint32_t step = step_of(r, now);
    const struct trace_message *m;

    (void)rcpt_n;
    (void)destination;
    if (disposition == SIM_DISPOSITION_DEFERRED) {
        return;
    }
    CHECK(r->waiting > 0);
    r->waiting--;
    if (disposition != SIM_DISPOSITION_SENT) {
        return;
    }
    CHECK(message >= 1 && message <= r->trace->message_count); /* there is no other mail */
    m = &r->trace->messages[message - 1];
    r->sent[step]++;
    r->samples = mem_grow(r->samples, r->sample_count, &r->sample_size, sizeof *r->samples);
    r->samples[r->sample_count++] =
        (struct sample){.delay_us = now.us - m->at_us, .step = (uint16_t)step, .class = m->class};
}

struct rerun *rerun_new(const struct conf *conf, const struct workload *workload,
                        const struct trace *trace)
{
    struct rerun *r = mem_new(sizeof *r);

    CHECK(workload->duration_us != US_FOREVER);
    r->trace = trace;
    r->conf = conf;
    r->step_us = workload->duration_us / RERUN_STEPS + 1;
    r->world = sim_world_new(
        &(struct sim_options){.conf = conf,
                              .workload = workload,
                              .trace = trace,
                              .seed = SEED,
                              .hooks = {.arg = r, .arrived = on_arrived, .settled = on_settled}});
    return r;
}

bool rerun_step(struct rerun *r)
{
    return sim_world_step(r->world);
}

void rerun_free(struct rerun *r)
{
    if (r != NULL) {
        sim_world_free(r->world);
        mem_free(r->samples);
        mem_free(r);
    }
}

/* ---- the result ----------------------------------------------------------------------------- */

static json_t *delay_json(const struct histogram *h)
{
    json_t *object = json_object();

    json_put(object, "p50", json_seconds(histogram_quantile(h, 500)));
    json_put(object, "p90", json_seconds(histogram_quantile(h, 900)));
    json_put(object, "p99", json_seconds(histogram_quantile(h, 990)));
    json_put(object, "max", json_seconds(h->max));
    return object;
}

static json_t *row_json(const struct sim_tally *t, const char *name)
{
    json_t *row = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "recipients", (json_int_t)t->recipients, "sent",
        (json_int_t)t->sent, "bounced", (json_int_t)t->bounced, "expired", (json_int_t)t->expired,
        "left", (json_int_t)sim_tally_left(t), "deferrals", (json_int_t)t->deferrals, "attempts",
        (json_int_t)t->attempts, "busy_peak", (json_int_t)t->busy_peak);
    json_t *text = json_string(name);

    CHECK(row != NULL);
    json_put(row, "name", text != NULL ? text : json_string("?")); /* a destination in no UTF-8 */
    json_put(row, "delay", delay_json(&t->delay));
    return row;
}

static int compare_samples(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;

    if (x->class != y->class) {
        return x->class < y->class ? -1 : 1;
    }
    if (x->step != y->step) {
        return x->step < y->step ? -1 : 1;
    }
    return x->delay_us < y->delay_us ? -1 : x->delay_us > y->delay_us;
}

/* Returns the delays of one class by step: `count` of the sorted samples from `first` on. */
static json_t *class_delays(const struct rerun *r, size_t first, size_t count, const char *name)
{
    json_t *half = json_array(), *most = json_array();
    size_t at = first;

    for (uint32_t step = 0; step < RERUN_STEPS; step++) {
        size_t from = at, n;

        while (at < first + count && r->samples[at].step == step) {
            at++;
        }
        n = at - from;
        json_add(half,
                 n == 0 ? json_null() : json_seconds(r->samples[from + (n - 1) / 2].delay_us));
        json_add(most, n == 0 ? json_null()
                              : json_seconds(r->samples[from + (n - 1) * 99 / 100].delay_us));
    }
    CHECK(at == first + count);
    return json_pack("{s:s, s:o, s:o}", "class", name, "p50", half, "p99", most);
}

static const char *class_name(const struct rerun *r, size_t class, const char *unmarked)
{
    return class == 0 ? unmarked : r->trace->classes[class - 1];
}

static json_t *delays_json(struct rerun *r, const char *unmarked)
{
    json_t *delays = json_array();

    if (r->sample_count > 1) {
        qsort(r->samples, r->sample_count, sizeof *r->samples, compare_samples);
    }
    for (size_t first = 0, end; first < r->sample_count; first = end) {
        for (end = first + 1;
             end < r->sample_count && r->samples[end].class == r->samples[first].class; end++) {
        }
        json_add(delays, class_delays(r, first, end - first,
                                      class_name(r, r->samples[first].class, unmarked)));
    }
    return delays;
}

json_t *rerun_json(struct rerun *r, const char *unmarked)
{
    const struct sim_result *result = sim_world_result(r->world);
    json_t *object = json_object(), *classes = json_array(), *dests = json_array();
    json_t *waiting = json_array(), *sent = json_array();

    (void)step_of(r, result->ended);
    for (size_t i = 0; i < result->class_count; i++) {
        if (result->classes[i].recipients > 0) {
            json_add(classes, row_json(&result->classes[i], class_name(r, i, unmarked)));
        }
    }
    for (size_t i = 0; i < result->dest_count && i < RERUN_DESTINATIONS; i++) {
        json_add(dests, row_json(result->dests[i], result->dests[i]->name));
    }
    for (uint32_t i = 0; i < RERUN_STEPS; i++) {
        json_add(waiting, json_integer((json_int_t)r->waited[i]));
        json_add(sent, json_integer((json_int_t)r->sent[i]));
    }
    json_put(object, "total", row_json(&result->total, "all"));
    json_put(object, "classes", classes);
    json_put(object, "destinations", dests);
    json_put(object, "waiting", waiting);
    json_put(object, "sent", sent);
    json_put(object, "delays", delays_json(r, unmarked));
    return object;
}

json_t *rerun_recorded(const struct trace *trace)
{
    struct histogram delays;
    json_t *object;

    histogram_init(&delays);
    for (size_t i = 0; i < trace->message_count; i++) {
        const struct trace_message *m = &trace->messages[i];

        for (uint32_t k = 0; k < m->rcpt_count; k++) {
            int64_t sent_us = trace->outcomes[m->first_rcpt + k].sent_us;

            if (sent_us != US_FOREVER) {
                histogram_add(&delays, sent_us - m->at_us);
            }
        }
    }
    object =
        json_pack("{s:I, s:o}", "sent", (json_int_t)delays.count, "delay", delay_json(&delays));
    histogram_fini(&delays);
    return object;
}
