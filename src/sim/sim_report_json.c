#include "check.h"
#include "sim_report.h"

static void set(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

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

    set(object, "mean_us", json_integer((json_int_t)histogram_mean(h)));
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        set(object, quantiles[i].name, json_integer(histogram_quantile(h, quantiles[i].per_mille)));
    }
    set(object, "max_us", json_integer(h->max));
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
        set(object, names[i], number(t->failures[i]));
    }
    return object;
}

static json_t *tally_json(const struct sim_tally *t)
{
    int64_t drain_us = sim_tally_drain_us(t);
    json_t *object = json_object(), *busy = json_object();

    set(object, "name", json_string(t->name));
    set(object, "messages", number(t->messages));
    set(object, "recipients", number(t->recipients));
    set(object, "sent", number(t->sent));
    set(object, "bounced", number(t->bounced));
    set(object, "expired", number(t->expired));
    set(object, "left", number(sim_tally_left(t)));
    set(object, "deferrals", number(t->deferrals));
    set(object, "deferred_unattempted", number(t->unattempted));
    set(object, "defer_rate", json_real(sim_tally_defer_rate(t)));
    set(object, "attempts", number(t->attempts));
    set(object, "failures", failures_json(t));
    set(object, "delay", delay_json(&t->delay));
    set(busy, "mean", json_real(sim_tally_busy_mean(t)));
    set(busy, "deviation", json_real(sim_tally_busy_deviation(t)));
    set(busy, "peak", number(t->busy_peak));
    set(object, "busy", busy);
    set(object, "drain_us", drain_us < 0 ? json_null() : json_integer(drain_us));
    return object;
}

static json_t *trace_json(const struct trace *t)
{
    json_t *object = json_object();

    set(object, "lines", number(t->lines));
    set(object, "understood", number(t->understood));
    set(object, "messages", number(t->message_count));
    set(object, "recipients", number(t->rcpt_count));
    set(object, "without_recipient", number(t->incomplete));
    set(object, "over_limit", number(t->over_limit));
    return object;
}

json_t *sim_report_json(const struct sim_result *r, const struct sim_report_options *options)
{
    json_t *object = json_object(), *classes = json_array(), *dests = json_array();
    size_t rows = r->dest_count < options->rows ? r->dest_count : options->rows;

    CHECK(object != NULL && classes != NULL && dests != NULL);
    set(object, "seed", number(options->seed));
    set(object, "ended_us", json_integer(r->ended.us));
    set(object, "drained", json_boolean(r->drained));
    set(object, "decisions", number(r->decisions));
    set(object, "queue_peak", number(r->queue_peak));
    set(object, "active_peak", number(r->active_peak));
    if (options->trace != NULL) {
        set(object, "trace", trace_json(options->trace));
    }
    set(object, "total", tally_json(&r->total));
    for (size_t i = 0; i < r->class_count; i++) {
        CHECK(json_array_append_new(classes, tally_json(&r->classes[i])) == 0);
    }
    set(object, "classes", classes);
    for (size_t i = 0; i < rows; i++) {
        CHECK(json_array_append_new(dests, tally_json(r->dests[i])) == 0);
    }
    set(object, "destinations", dests);
    set(object, "destination_count", number(r->dest_count));
    if (rows < r->dest_count) {
        struct sim_tally rest;

        sim_report_sum_rest(r, rows, &rest);
        set(object, "rest", tally_json(&rest));
        sim_tally_fini(&rest);
    }
    return object;
}
