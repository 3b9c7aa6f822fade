#include "check.h"
#include "json.h"
#include "sim_report.h"

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *delay_json(const struct histogram *h)
{
    static const struct {
        const char *name;
        unsigned per_mille;
    } quantiles[] = {{"p50_us", 500}, {"p90_us", 900}, {"p99_us", 990}, {"p999_us", 999}};
    json_t *object = json_object();

    json_put(object, "mean_us", json_integer((json_int_t)histogram_mean(h)));
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        json_put(object, quantiles[i].name,
                 json_integer(histogram_quantile(h, quantiles[i].per_mille)));
    }
    json_put(object, "max_us", json_integer(h->max));
    return object;
}

static json_t *failures_json(const struct sim_tally *t)
{
    static const char *const names[SIM_TRY_KINDS] = {
        [SIM_TRY_REFUSED] = "refused",
        [SIM_TRY_CONNECT_TIMEOUT] = "connect_timeout",
        [SIM_TRY_GREETING_TIMEOUT] = "greeting_timeout",
        [SIM_TRY_TURNED_AWAY] = "turned_away",
    };
    json_t *object = json_object();

    for (int i = SIM_TRY_REACHED + 1; i < SIM_TRY_KINDS; i++) {
        json_put(object, names[i], number(t->failures[i]));
    }
    return object;
}

static json_t *tally_json(const struct sim_tally *t)
{
    int64_t drain_us = sim_tally_drain_us(t);
    json_t *object = json_object(), *busy = json_object();

    json_put(object, "name", json_string(t->name));
    json_put(object, "messages", number(t->messages));
    json_put(object, "recipients", number(t->recipients));
    json_put(object, "sent", number(t->sent));
    json_put(object, "bounced", number(t->bounced));
    json_put(object, "expired", number(t->expired));
    json_put(object, "left", number(sim_tally_left(t)));
    json_put(object, "deferrals", number(t->deferrals));
    json_put(object, "deferred_unattempted", number(t->unattempted));
    json_put(object, "defer_rate", json_real(sim_tally_defer_rate(t)));
    json_put(object, "attempts", number(t->attempts));
    json_put(object, "failures", failures_json(t));
    json_put(object, "delay", delay_json(&t->delay));
    json_put(busy, "mean", json_real(sim_tally_busy_mean(t)));
    json_put(busy, "deviation", json_real(sim_tally_busy_deviation(t)));
    json_put(busy, "peak", number(t->busy_peak));
    json_put(object, "busy", busy);
    json_put(object, "drain_us", drain_us < 0 ? json_null() : json_integer(drain_us));
    return object;
}

static json_t *trace_json(const struct trace *t)
{
    json_t *object = json_object();

    json_put(object, "lines", number(t->lines));
    json_put(object, "understood", number(t->understood));
    json_put(object, "messages", number(t->message_count));
    json_put(object, "recipients", number(t->rcpt_count));
    json_put(object, "without_recipient", number(t->incomplete));
    json_put(object, "over_limit", number(t->over_limit));
    return object;
}

/* Returns the numbers of waiting messages by state over time. A run that outgrew the series has
 * merged samples. */
static json_t *series_json(const struct sim_series *s)
{
    json_t *active = json_array(), *incoming = json_array();
    json_t *deferred = json_array(), *parked = json_array();

    for (size_t i = 0; i < s->count; i++) {
        json_add(active, number(s->queue[i].active));
        json_add(incoming, number(s->queue[i].incoming));
        json_add(deferred, number(s->queue[i].deferred));
        json_add(parked, number(s->queue[i].parked));
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "step_us", (json_int_t)s->step_us, "active",
                     active, "incoming", incoming, "deferred", deferred, "parked", parked);
}

json_t *sim_report_json(const struct sim_result *r, const struct sim_report_options *options)
{
    json_t *object = json_object(), *classes = json_array(), *dests = json_array();
    size_t rows = r->dest_count < options->rows ? r->dest_count : options->rows;

    CHECK(object != NULL && classes != NULL && dests != NULL);
    json_put(object, "seed", number(options->seed));
    json_put(object, "ended_us", json_integer(r->ended.us));
    json_put(object, "drained", json_boolean(r->drained));
    json_put(object, "decisions", number(r->decisions));
    json_put(object, "queue_peak", number(r->queue_peak));
    json_put(object, "active_peak", number(r->active_peak));
    if (options->trace != NULL) {
        json_put(object, "trace", trace_json(options->trace));
    }
    json_put(object, "total", tally_json(&r->total));
    for (size_t i = 0; i < r->class_count; i++) {
        CHECK(json_array_append_new(classes, tally_json(&r->classes[i])) == 0);
    }
    json_put(object, "classes", classes);
    for (size_t i = 0; i < rows; i++) {
        CHECK(json_array_append_new(dests, tally_json(r->dests[i])) == 0);
    }
    json_put(object, "destinations", dests);
    json_put(object, "series", series_json(r->series));
    json_put(object, "destination_count", number(r->dest_count));
    if (rows < r->dest_count) {
        struct sim_tally rest;

        sim_report_sum_rest(r, rows, &rest);
        json_put(object, "rest", tally_json(&rest));
        sim_tally_fini(&rest);
    }
    return object;
}
