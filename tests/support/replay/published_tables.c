#include "published_tables.h"

#include <math.h>
#include <string.h>

#include "mem.h"
#include "overload.h"
#include "recorded_params.h"

/* What a row may be off: per cent deferred (less where failures take 300 s and are ten times
 * rarer), and average concurrency. */
#define DEFERRED_TOLERANCE      0.5
#define DEFERRED_TOLERANCE_RARE 0.1
#define CONCURRENCY_TOLERANCE   0.15

/* The server, the same for all rows; docs/replays.md says where the numbers come from. */
#define BACKLOG   5
#define ACCEPT_US (5 * US_PER_MS)
#define CLOSE_US  (US_PER_MS / 2)

/* How fast it took a message besides the second per recipient is not known, and some rows depend on
 * how 300 s divide by it. So the runs of a row cover what is likely, evenly. */
#define MESSAGE_MIN_US (20 * US_PER_MS)
#define MESSAGE_MAX_US (60 * US_PER_MS)

/* What a file may ask for. */
#define TABLES_MAX      100
#define ROWS_MAX        100
#define RECIPIENTS_MAX  1000000
#define CONCURRENCY_MAX 1000
#define SECONDS_MAX     86400

#define RULES 2

/* Figures of a row, published or simulated. NAN: not given. */
struct figures {
    double deferred_percent, concurrency_average, concurrency_stddev;
    double timed_out_connect, timed_out_greeting, turned_away; /* recipients */
};

struct row {
    const char *feedback; /* borrowed from the JSON, as published: "1/sqrt(N)" */
    bool cached;
    struct overload overload;
    struct figures published, simulated[RULES]; /* by enum window_rule */
};

struct table {
    const char *name, *what; /* borrowed from the JSON */
    double deferred_tolerance;
    struct row *rows; /* owned */
    size_t row_count;
};

struct published_tables {
    json_t *json; /* owned */
    struct table *tables;
    size_t table_count;
    uint32_t seeds;
};

/* ---- reading -------------------------------------------------------------------------------- */

/* Where in the file we are, for errors. */
struct place {
    const char *table;
    size_t row; /* from 1; 0: none */
    struct buf *error;
};

static bool bad(const struct place *place, const char *member, const char *expected)
{
    /* Sticky. */
    if (place->table != NULL) {
        (void)buf_addf(place->error, "table %s: ", place->table);
    }
    if (place->row > 0) {
        (void)buf_addf(place->error, "row %zu: ", place->row);
    }
    (void)buf_addf(place->error, "%s: %s is expected", member, expected);
    return false;
}

/* A number from 1 to `max` that may be missing (then 0). */
static bool read_count(const json_t *object, const char *member, json_int_t max, uint32_t *ret,
                       const struct place *place)
{
    const json_t *value = json_object_get(object, member);
    json_int_t number = json_integer_value(value); /* 0 for anything else */

    if (value != NULL && (number < 1 || number > max)) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "a whole number from 1 to %lld",
                       (long long)max); /* fits */
        return bad(place, member, expected);
    }
    *ret = (uint32_t)number;
    return true;
}

static bool need_count(const json_t *object, const char *member, json_int_t max, uint32_t *ret,
                       const struct place *place)
{
    if (json_object_get(object, member) == NULL) {
        return bad(place, member, "a whole number");
    }
    return read_count(object, member, max, ret, place);
}

static bool need_text(const json_t *object, const char *member, const char **ret,
                      const struct place *place)
{
    *ret = json_string_value(json_object_get(object, member));
    return *ret != NULL || bad(place, member, "a text");
}

/* A figure; null and none are NAN. */
static double figure(const json_t *row, const char *member)
{
    const json_t *value = json_object_get(row, member);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* "1/N" as a parameter's value; what has no N in it is one already. */
static const char *feedback_value_text(const char *feedback)
{
    return strcmp(feedback, "1/N") == 0         ? "1/concurrency"
           : strcmp(feedback, "1/sqrt(N)") == 0 ? "1/sqrt_concurrency"
                                                : feedback;
}

/* What a row's run needs of the whole file and of its table. */
struct setting {
    uint32_t rcpts_per_delivery, rcpt_s, client_limit, server_limit; /* common */
    uint32_t recipients, initial, connect_s, greeting_s, processes;  /* the table's */
};

static bool read_row(const json_t *json, const struct setting *s, struct row *row,
                     const struct place *place)
{
    const json_t *cached = json_object_get(json, "cached");
    const char *feedback;
    struct recorded_params params;
    json_t *settings;
    bool ok;

    if (!need_text(json, "feedback", &row->feedback, place)) {
        return false;
    }
    if (!json_is_boolean(cached)) {
        return bad(place, "cached", "true or false");
    }
    feedback = feedback_value_text(row->feedback);
    settings = json_pack(
        "{s:I, s:I, s:I, s:s, s:s}", "initial_destination_concurrency", (json_int_t)s->initial,
        "destination_concurrency_limit", (json_int_t)s->client_limit, "destination_recipient_limit",
        (json_int_t)s->rcpts_per_delivery, "destination_concurrency_positive_feedback", feedback,
        "destination_concurrency_negative_feedback", feedback);
    ok = recorded_params_read(settings, false, &params, place->error);
    json_decref(settings);
    row->cached = json_is_true(cached);
    row->published = (struct figures){
        .deferred_percent = figure(json, "deferred_percent"),
        .concurrency_average = figure(json, "concurrency_average"),
        .concurrency_stddev = figure(json, "concurrency_stddev"),
        .timed_out_connect = figure(json, "timed_out_connect"),
        .timed_out_greeting = figure(json, "timed_out_greeting"),
        .turned_away = figure(json, "turned_away"),
    };
    if (!ok) {
        return false;
    }
    row->overload = (struct overload){
        .limits = params.limits,
        .policy = params.policy,
        .server = {.processes = s->processes > 0 ? s->processes : s->server_limit,
                   .client_limit = s->processes > 0 ? s->server_limit : 0,
                   .backlog = BACKLOG,
                   .half_open = s->greeting_s > 0,
                   .rcpt_us = s->rcpt_s * US_PER_S,
                   .accept_us = ACCEPT_US,
                   .close_us = CLOSE_US},
        .recipients = s->recipients,
        .cached = row->cached,
        .connect_timeout_us = (s->connect_s > 0 ? s->connect_s : 30) * US_PER_S,
        .greeting_timeout_us = (s->greeting_s > 0 ? s->greeting_s : 300) * US_PER_S,
    };
    if (isnan(row->published.deferred_percent)) {
        return bad(place, "deferred_percent", "a number");
    }
    return !isnan(row->published.concurrency_average) ||
           bad(place, "concurrency_average", "a number");
}

static bool read_table(const json_t *json, const struct setting *common, struct table *table,
                       struct place *place)
{
    const json_t *rows = json_object_get(json, "rows");
    struct setting s = *common;
    size_t count = json_array_size(rows); /* 0 for anything else */

    if (!need_text(json, "name", &table->name, place)) {
        return false;
    }
    place->table = table->name;
    if (!need_text(json, "what", &table->what, place) ||
        !need_count(json, "recipients", RECIPIENTS_MAX, &s.recipients, place) ||
        !need_count(json, "initial_concurrency", CONCURRENCY_MAX, &s.initial, place) ||
        !read_count(json, "connect_timeout_s", SECONDS_MAX, &s.connect_s, place) ||
        !read_count(json, "greeting_timeout_s", SECONDS_MAX, &s.greeting_s, place) ||
        !read_count(json, "server_process_limit", CONCURRENCY_MAX, &s.processes, place)) {
        return false;
    }
    if (count == 0 || count > ROWS_MAX) {
        return bad(place, "rows", "an array of 1 to 100 rows");
    }
    table->deferred_tolerance = s.greeting_s > 0 ? DEFERRED_TOLERANCE_RARE : DEFERRED_TOLERANCE;
    table->rows = mem_array(count, sizeof *table->rows);
    for (; table->row_count < count; table->row_count++) {
        place->row = table->row_count + 1;
        if (!read_row(json_array_get(rows, table->row_count), &s, &table->rows[table->row_count],
                      place)) {
            return false;
        }
    }
    place->row = 0;
    return true;
}

static bool read_all(struct published_tables *t, struct buf *error)
{
    const json_t *common = json_object_get(t->json, "common");
    const json_t *tables = json_object_get(t->json, "tables");
    struct place place = {.table = "common", .error = error};
    struct setting s = {0};
    size_t count = json_array_size(tables); /* 0 for anything else */

    if (!need_count(common, "recipients_per_delivery", CONCURRENCY_MAX, &s.rcpts_per_delivery,
                    &place) ||
        !need_count(common, "server_latency_s_per_recipient", SECONDS_MAX, &s.rcpt_s, &place) ||
        !need_count(common, "client_concurrency_limit", CONCURRENCY_MAX, &s.client_limit, &place) ||
        !need_count(common, "server_concurrency_limit", CONCURRENCY_MAX, &s.server_limit, &place)) {
        return false;
    }
    place.table = NULL;
    if (count == 0 || count > TABLES_MAX) {
        return bad(&place, "tables", "an array of 1 to 100 tables");
    }
    t->tables = mem_array(count, sizeof *t->tables);
    while (t->table_count < count) {
        size_t i = t->table_count++;

        if (!read_table(json_array_get(tables, i), &s, &t->tables[i], &place)) {
            return false;
        }
    }
    return true;
}

struct published_tables *published_tables_new(struct slice text, const char *name,
                                              struct buf *error)
{
    struct published_tables *t = mem_new(sizeof *t);
    json_error_t problem;

    t->json = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &problem);
    if (t->json == NULL) {
        (void)buf_addf(error, "%s:%d:%d: %s", name, problem.line, problem.column,
                       problem.text); /* sticky */
        published_tables_free(t);
        return NULL;
    }
    (void)buf_addf(error, "%s: ", name); /* sticky */
    if (!read_all(t, error)) {
        published_tables_free(t);
        return NULL;
    }
    buf_clear(error);
    return t;
}

void published_tables_free(struct published_tables *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->table_count; i++) {
        mem_free(t->tables[i].rows);
    }
    mem_free(t->tables);
    json_decref(t->json);
    mem_free(t);
}

/* ---- simulating ----------------------------------------------------------------------------- */

static void add_run(struct figures *sum, const struct overload *o, uint64_t seed)
{
    struct overload_result r = overload_run(o, seed);

    sum->deferred_percent += 100.0 * r.deferred / o->recipients;
    sum->concurrency_average += r.window_mean;
    sum->concurrency_stddev += r.window_deviation;
    sum->timed_out_connect += r.failed[SIM_SERVER_CONNECT_TIMEOUT];
    sum->timed_out_greeting += r.failed[SIM_SERVER_GREETING_TIMEOUT];
    sum->turned_away += r.failed[SIM_SERVER_TURNED_AWAY];
}

static struct figures simulate(const struct overload *overload, enum window_rule rule,
                               uint32_t seeds)
{
    struct overload o = *overload;
    struct figures f = {0};

    o.policy.window.rule = rule;
    for (uint32_t i = 0; i < seeds; i++) {
        o.server.message_us =
            MESSAGE_MIN_US + (MESSAGE_MAX_US - MESSAGE_MIN_US) * (2 * i + 1) / (2 * seeds);
        add_run(&f, &o, i + 1);
    }
    f.deferred_percent /= seeds;
    f.concurrency_average /= seeds;
    f.concurrency_stddev /= seeds;
    f.timed_out_connect /= seeds;
    f.timed_out_greeting /= seeds;
    f.turned_away /= seeds;
    return f;
}

static double deferred_deviation(const struct row *row, enum window_rule rule)
{
    return row->simulated[rule].deferred_percent - row->published.deferred_percent;
}

static double concurrency_deviation(const struct row *row, enum window_rule rule)
{
    return row->simulated[rule].concurrency_average - row->published.concurrency_average;
}

static bool row_ok(const struct table *table, const struct row *row)
{
    return fabs(deferred_deviation(row, WINDOW_DOCUMENTED)) <= table->deferred_tolerance &&
           fabs(concurrency_deviation(row, WINDOW_DOCUMENTED)) <= CONCURRENCY_TOLERANCE;
}

bool published_tables_simulate(struct published_tables *t, uint32_t seeds)
{
    bool ok = true;

    t->seeds = seeds;
    for (size_t i = 0; i < t->table_count; i++) {
        struct table *table = &t->tables[i];

        for (size_t k = 0; k < table->row_count; k++) {
            struct row *row = &table->rows[k];

            row->simulated[WINDOW_DOCUMENTED] = simulate(&row->overload, WINDOW_DOCUMENTED, seeds);
            row->simulated[WINDOW_POSTFIX] = simulate(&row->overload, WINDOW_POSTFIX, seeds);
            ok = row_ok(table, row) && ok;
        }
    }
    return ok;
}

/* ---- telling -------------------------------------------------------------------------------- */

/* Appending is sticky in all of these. */

static void add_figure(struct buf *out, const char *format, double value, int width)
{
    if (isnan(value)) {
        (void)buf_addf(out, "%*s", width, "-");
    } else {
        char text[64];

        (void)snprintf(text, sizeof text, format, value); /* a cut would only look bad */
        (void)buf_addf(out, "%*s", width, text);
    }
}

static void add_row(struct buf *out, const struct table *table, const struct row *row)
{
    const struct figures *p = &row->published, *s = &row->simulated[WINDOW_DOCUMENTED];
    const struct figures *postfix = &row->simulated[WINDOW_POSTFIX];

    (void)buf_addf(out, "  %-10s %-4s", row->feedback, row->cached ? "yes" : "no");
    add_figure(out, "%.2f", p->deferred_percent, 6);
    add_figure(out, "%.2f", s->deferred_percent, 6);
    add_figure(out, "%+.2f", deferred_deviation(row, WINDOW_DOCUMENTED), 7);
    add_figure(out, "%.2f", p->concurrency_average, 8);
    add_figure(out, "%.2f", s->concurrency_average, 6);
    add_figure(out, "%+.2f", concurrency_deviation(row, WINDOW_DOCUMENTED), 7);
    add_figure(out, "%.2f", p->concurrency_stddev, 6);
    add_figure(out, "%.2f", s->concurrency_stddev, 6);
    add_figure(out, "%.0f", p->timed_out_connect, 6);
    add_figure(out, "%.0f", s->timed_out_connect, 5);
    add_figure(out, "%.0f", p->timed_out_greeting, 6);
    add_figure(out, "%.0f", s->timed_out_greeting, 5);
    (void)buf_addf(out, "  %-4s", row_ok(table, row) ? "ok" : "OFF");
    add_figure(out, "%.2f", postfix->deferred_percent, 6);
    add_figure(out, "%.2f", postfix->concurrency_average, 6);
    (void)buf_add_byte(out, '\n');
}

static void add_table(struct buf *out, const struct table *table)
{
    (void)buf_addf(out, "%s: %s\n\n", table->name, table->what);
    (void)buf_addf(out, "  %-15s %17s %20s %12s %10s %10s %20s\n", "", "deferred, %   ",
                   "concurrency    ", "deviation", "connect", "greeting", "rule = postfix");
    (void)buf_addf(out,
                   "  %-10s %-4s %5s %5s %6s %7s %5s %6s %5s %5s %5s %4s %5s %4s  %-4s %5s %5s\n",
                   "feedback", "kept", "publ.", "sim.", "off", "publ.", "sim.", "off", "publ.",
                   "sim.", "publ.", "sim.", "publ.", "sim.", "", "defer", "conc.");
    for (size_t i = 0; i < table->row_count; i++) {
        add_row(out, table, &table->rows[i]);
    }
    (void)buf_addf(out, "  within %.1f points and %.2f\n\n", table->deferred_tolerance,
                   CONCURRENCY_TOLERANCE);
}

void published_tables_print(const struct published_tables *t, struct buf *out)
{
    size_t rows = 0, ok = 0;

    for (size_t i = 0; i < t->table_count; i++) {
        add_table(out, &t->tables[i]);
        for (size_t k = 0; k < t->tables[i].row_count; k++) {
            rows++;
            ok += row_ok(&t->tables[i], &t->tables[i].rows[k]) ? 1 : 0;
        }
    }
    (void)buf_addf(out, "%zu of %zu rows as published; each the mean of %u runs\n", ok, rows,
                   t->seeds);
}

static json_t *figure_json(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *figures_json(const struct figures *f)
{
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "deferred_percent", figure_json(f->deferred_percent),
        "concurrency_average", figure_json(f->concurrency_average), "concurrency_stddev",
        figure_json(f->concurrency_stddev), "timed_out_connect", figure_json(f->timed_out_connect),
        "timed_out_greeting", figure_json(f->timed_out_greeting), "turned_away",
        figure_json(f->turned_away));
}

static json_t *row_json(const struct table *table, const struct row *row)
{
    return json_pack("{s:s, s:b, s:o, s:o, s:o, s:f, s:f, s:b}", "feedback", row->feedback,
                     "cached", row->cached, "published", figures_json(&row->published),
                     "documented", figures_json(&row->simulated[WINDOW_DOCUMENTED]), "postfix",
                     figures_json(&row->simulated[WINDOW_POSTFIX]), "deferred_deviation",
                     deferred_deviation(row, WINDOW_DOCUMENTED), "concurrency_deviation",
                     concurrency_deviation(row, WINDOW_DOCUMENTED), "ok", row_ok(table, row));
}

json_t *published_tables_json(const struct published_tables *t)
{
    json_t *tables = json_array();

    for (size_t i = 0; i < t->table_count; i++) {
        const struct table *table = &t->tables[i];
        json_t *rows = json_array();

        for (size_t k = 0; k < table->row_count; k++) {
            (void)json_array_append_new(rows,
                                        row_json(table, &table->rows[k])); /* no memory: short */
        }
        (void)json_array_append_new(
            tables, json_pack("{s:s, s:f, s:f, s:o}", "name", table->name, "deferred_tolerance",
                              table->deferred_tolerance, "concurrency_tolerance",
                              CONCURRENCY_TOLERANCE, "rows", rows));
    }
    return json_pack("{s:i, s:o}", "seeds", (int)t->seeds, "tables", tables);
}
