#include "metrics.h"

#include <inttypes.h>
#include <string.h>

/* Appends a part of a label's value. Appends are sticky; the caller of metrics_print checks
 * them. */
static void add_value(struct buf *text, const char *value)
{
    for (; value != NULL && *value != '\0'; value++) {
        if (*value == '"' || *value == '\\') {
            (void)buf_add_byte(text, '\\');
        }
        (void)buf_add_byte(text, *value == '\n' ? ' ' : *value);
    }
}

static void add_label(struct buf *text, const char *name, const char *value)
{
    (void)buf_addf(text, "%s=\"", name);
    add_value(text, value);
    (void)buf_add_byte(text, '"');
}

static void add_help(struct buf *text, const char *name, const char *type, const char *help)
{
    (void)buf_addf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_boolean(value) ? (double)json_is_true(value) : json_number_value(value);
}

/* ---- single numbers -------------------------------------------------------------------------- */

static void add_numbers(struct buf *text, const json_t *answer)
{
    static const struct {
        const char *member, *name, *type, *help;
    } rows[] = {
        {"incoming", "sluice_messages{state=\"incoming\"}", "gauge", "Messages on disk by state."},
        {"deferred", "sluice_messages{state=\"deferred\"}", NULL, NULL},
        {"hold", "sluice_messages{state=\"hold\"}", NULL, NULL},
        {"corrupt", "sluice_messages{state=\"corrupt\"}", NULL, NULL},
        {"bytes", "sluice_content_bytes", "gauge", "Bytes of content on disk."},
        {"active_messages", "sluice_active_messages", "gauge", "Messages in memory."},
        {"active_recipients", "sluice_active_recipients", "gauge", "Recipients in memory."},
        {"in_flight", "sluice_deliveries_in_flight", "gauge", "Deliveries in flight."},
        {"waiting", "sluice_deliveries_waiting", "gauge", "Deliveries that wait in memory."},
        {"active_destinations", "sluice_destinations", "gauge", "Destinations in memory."},
        {"dead_destinations", "sluice_destinations_dead", "gauge", "Of these, dead ones."},
        {"parked_destinations", "sluice_destinations_parked", "gauge",
         "Destinations whose mail waits on disk for them."},
        {"submitted", "sluice_submitted_total", "counter", "Messages accepted."},
        {"delivered", "sluice_delivered_total", "counter", "Recipients delivered."},
        {"deferrals", "sluice_deferrals_total", "counter", "Recipients deferred."},
        {"bounced", "sluice_bounced_total", "counter", "Recipients bounced."},
        {"expired", "sluice_expired_total", "counter", "Messages expired."},
        {"reports", "sluice_reports_total", "counter", "Reports sent."},
        {"commits", "sluice_commits_total", "counter", "Commits of the spool."},
        {"decisions", "sluice_decisions_total", "counter", "Decisions of the scheduler."},
        {"scheduler_bytes", "sluice_scheduler_bytes", "gauge", "Memory of the scheduler."},
        {"audit_rounds", "sluice_audit_rounds_total", "counter", "Looks at everything for faults."},
        {"audit_findings", "sluice_audit_findings_total", "counter",
         "Faults found: mail that would have been stuck. Worth an alarm."},
        {"audit_repaired", "sluice_audit_repaired_total", "counter", "Of these, repaired."},
        {"free_bytes", "sluice_free_bytes", "gauge", "Bytes free where the spool is."},
        {"storage_ok", "sluice_storage_ok", "gauge", "1 when the last commit worked."},
        {"space_ok", "sluice_space_ok", "gauge", "1 when there is more space than queue_minfree."},
        {"behind", "sluice_behind", "gauge",
         "1 when mail comes faster than it is delivered, and clients are slowed down."},
        {"uptime", "sluice_uptime_seconds", "gauge", "Since the control process began."},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (json_object_get(answer, rows[i].member) == NULL) {
            continue; /* unknown */
        }
        if (rows[i].type != NULL) {
            char name[64];

            (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(rows[i].name, "{"),
                           rows[i].name); /* fits */
            add_help(text, name, rows[i].type, rows[i].help);
        }
        (void)buf_addf(text, "%s %.0f\n", rows[i].name, number_of(answer, rows[i].member));
    }
}

/* Adds the numbers of a node in a cluster. */
static void add_cluster(struct buf *text, const json_t *cluster)
{
    static const struct {
        const char *member, *name, *type, *help;
    } rows[] = {
        {"partitions", "sluice_cluster_partitions", "gauge", "Partitions that this node has."},
        {"unowned", "sluice_cluster_partitions_unowned", "gauge", "Partitions that no node has."},
        {"nodes_up", "sluice_cluster_nodes_up", "gauge", "Nodes that renew their leases."},
        {"lease_margin", "sluice_cluster_lease_margin_seconds", "gauge",
         "For how long this node may deliver without another renewal; 0: not at all."},
        {"given_up", "sluice_cluster_given_up_total", "counter",
         "How often other nodes have taken over what this one had."},
        {"missed", "sluice_cluster_missed_by_arrival_total", "counter",
         "Messages that this node had no news of; a look at all has found them. Worth an alarm."},
        {"drift", "sluice_cluster_totals_drift_total", "counter",
         "Messages by which counts of what waits were wrong when they were held against the "
         "database, and were put right. Worth an alarm."},
        {"acknowledged_lost", "sluice_cluster_acknowledged_lost", "gauge",
         "1 when the database lacks mail that was acknowledged: nothing is accepted or delivered. "
         "Worth an alarm."},
        {"clock", "sluice_cluster_clock_ahead_seconds", "gauge",
         "By how much this machine's clock is ahead of the database's."},
        {"fresh_bytes", "sluice_cluster_fresh_bytes", "gauge",
         "Size of the database's tables of passing mail."},
        {"oldest_snapshot", "sluice_cluster_oldest_snapshot_seconds", "gauge",
         "For how long the oldest transaction has kept dead rows in the database."},
        {"inquiries", "sluice_cluster_inquiries", "gauge",
         "Questions of operators that other nodes are asked."},
    };

    for (size_t i = 0; cluster != NULL && i < sizeof rows / sizeof rows[0]; i++) {
        add_help(text, rows[i].name, rows[i].type, rows[i].help);
        (void)buf_addf(text, "%s %.3f\n", rows[i].name, number_of(cluster, rows[i].member));
    }
}

static void add_oldest(struct buf *text, const json_t *answer, struct wall now)
{
    static const char *const states[] = {"incoming", "deferred", "hold", "corrupt"};
    const json_t *oldest = json_object_get(answer, "oldest");

    add_help(text, "sluice_oldest_message_age_seconds", "gauge",
             "Age of the oldest message of a state; 0: there is none.");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        double arrived = number_of(oldest, states[i]);
        double age = (double)now.us / (double)US_PER_S - arrived;

        (void)buf_addf(text, "sluice_oldest_message_age_seconds{state=\"%s\"} %.3f\n", states[i],
                       arrived == 0 || age < 0 ? 0 : age);
    }
}

/* ---- by class, limit, outcome ---------------------------------------------------------------- */

static void add_classes(struct buf *text, const json_t *classes)
{
    static const struct {
        const char *member, *name, *type, *help;
    } rows[] = {
        {"active_messages", "sluice_class_active_messages", "gauge",
         "Messages in memory, by class."},
        {"submitted", "sluice_class_submitted_total", "counter", "Messages accepted, by class."},
        {"delivered", "sluice_class_delivered_total", "counter", "Recipients delivered, by class."},
        {"deferrals", "sluice_class_deferrals_total", "counter", "Recipients deferred, by class."},
    };
    const json_t *class;
    size_t j;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        add_help(text, rows[i].name, rows[i].type, rows[i].help);
        json_array_foreach((json_t *)(uintptr_t)classes, j, class)
        {
            (void)buf_addf(text, "%s{", rows[i].name);
            add_label(text, "class", string_of(class, "class"));
            (void)buf_addf(text, "} %.0f\n", number_of(class, rows[i].member));
        }
    }
}

static void add_interventions(struct buf *text, const json_t *counts)
{
    const char *verb;
    json_t *count;

    add_help(text, "sluice_interventions", "gauge",
             "What operators have decided and not cancelled, by verb.");
    json_object_foreach((json_t *)(uintptr_t)counts, verb, count)
    {
        (void)buf_addf(text, "sluice_interventions{verb=\"%s\"} %.0f\n", verb,
                       number_of(counts, verb)); /* fits */
    }
}

static void add_web_hooks(struct buf *text, const json_t *hooks)
{
    static const struct {
        const char *member, *name, *type, *help;
    } rows[] = {
        {"behind", "sluice_web_hook_behind_events", "gauge",
         "Events that a web hook has not taken yet."},
        {"lost", "sluice_web_hook_lost_events_total", "counter",
         "Events that were kept no more before a web hook has taken them."},
        {"dead", "sluice_web_hook_dead_letters_total", "counter",
         "Events that a web hook has not taken in time."},
        {"dropped", "sluice_web_hook_dropped_letters_total", "counter",
         "The same, for which there was no room."},
    };
    const json_t *hook;
    size_t k;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && json_array_size(hooks) > 0; i++) {
        add_help(text, rows[i].name, rows[i].type, rows[i].help);
        json_array_foreach((json_t *)(uintptr_t)hooks, k, hook)
        {
            (void)buf_addf(text, "%s{hook=\"%s\"} %.0f\n", rows[i].name, string_of(hook, "name"),
                           number_of(hook, rows[i].member)); /* fits */
        }
    }
}

static void add_send_limits(struct buf *text, const json_t *limits)
{
    const json_t *limit;
    size_t i;

    add_help(text, "sluice_send_limit_refusals_total", "counter",
             "Refusals by limits on what clients and users send.");
    json_array_foreach((json_t *)(uintptr_t)limits, i, limit)
    {
        (void)buf_addf(text, "sluice_send_limit_refusals_total{limit=\"%s\"} %.0f\n",
                       string_of(limit, "limit"), number_of(limit, "refusals"));
    }
}

static void add_outcomes(struct buf *text, const json_t *outcomes)
{
    const json_t *one;
    size_t i;

    add_help(text, "sluice_recipients_total", "counter",
             "What became of recipients, and what the enhanced status (RFC 3463) speaks of.");
    json_array_foreach((json_t *)(uintptr_t)outcomes, i, one)
    {
        (void)buf_addf(text, "sluice_recipients_total{outcome=\"%s\",category=\"%s\"} %.0f\n",
                       string_of(one, "outcome"), string_of(one, "category"),
                       number_of(one, "recipients"));
    }
}

/* ---- histograms ------------------------------------------------------------------------------ */

/* Adds a histogram. `labels` has no braces and may be empty. */
static void add_histogram(struct buf *text, const char *name, struct slice labels, const json_t *m)
{
    const json_t *bounds = json_object_get(m, "bounds"), *counts = json_object_get(m, "counts");
    const char *comma = labels.len > 0 ? "," : "", *open = labels.len > 0 ? "{" : "";
    const char *end = labels.len > 0 ? "}" : "";
    double sum = 0;

    for (size_t i = 0; i < json_array_size(counts); i++) {
        sum += json_number_value(json_array_get(counts, i));
        (void)buf_addf(text, "%s_bucket{%.*s%sle=\"", name, SLICE_ARGS(labels), comma);
        if (i < json_array_size(bounds)) {
            (void)buf_addf(text, "%g", json_number_value(json_array_get(bounds, i)));
        } else {
            (void)buf_add_string(text, "+Inf");
        }
        (void)buf_addf(text, "\"} %.0f\n", sum);
    }
    (void)buf_addf(text, "%s_sum%s%.*s%s %.6f\n%s_count%s%.*s%s %.0f\n", name, open,
                   SLICE_ARGS(labels), end, number_of(m, "sum"), name, open, SLICE_ARGS(labels),
                   end, sum);
}

static void add_delays(struct buf *text, const json_t *delays)
{
    struct buf labels;
    const json_t *one;
    size_t i;

    add_help(text, "sluice_delay_seconds", "histogram",
             "Time of attempts at recipients by class and phase: queued (on disk), active (in "
             "memory), setup (of the connection), transmit, and of what was sent total.");
    buf_init(&labels, 2048);
    json_array_foreach((json_t *)(uintptr_t)delays, i, one)
    {
        if (number_of(one, "count") == 0) {
            continue;
        }
        add_label(&labels, "class", string_of(one, "class"));
        (void)buf_addf(&labels, ",phase=\"%s\"", string_of(one, "phase")); /* fits */
        add_histogram(text, "sluice_delay_seconds", buf_slice(&labels), one);
        buf_clear(&labels);
    }
    buf_fini(&labels);
}

static void add_storage(struct buf *text, const json_t *answer)
{
    add_help(text, "sluice_commit_seconds", "histogram", "Time of commits of the spool.");
    add_histogram(text, "sluice_commit_seconds", SLICE(""), json_object_get(answer, "commit_time"));
    add_help(text, "sluice_commit_steps", "histogram",
             "Changes that share one commit: messages accepted, results stored.");
    add_histogram(text, "sluice_commit_steps", SLICE(""), json_object_get(answer, "batch_steps"));
}

/* ---- destinations ---------------------------------------------------------------------------- */

static bool is_same(const json_t *a, const json_t *b)
{
    return strcmp(string_of(a, "transport"), string_of(b, "transport")) == 0 &&
           strcmp(string_of(a, "destination"), string_of(b, "destination")) == 0;
}

/* Is the destination among the busiest, too? No series may occur twice. */
static bool is_among(const json_t *sites, const json_t *site)
{
    const json_t *other;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)sites, i, other)
    {
        if (is_same(other, site)) {
            return true;
        }
    }
    return false;
}

static void add_destinations(struct buf *text, const json_t *answer)
{
    static const struct {
        const char *member, *name, *help;
    } rows[] = {
        {"window", "sluice_destination_window", "Deliveries at once that the destination may get"},
        {"busy", "sluice_destination_busy", "Deliveries in flight"},
        {"waiting", "sluice_destination_waiting", "Deliveries that wait in memory"},
        {NULL, "sluice_destination_dead", "1 when nothing is delivered as it failed too often"},
    };
    const json_t *named = json_object_get(answer, "named");
    const json_t *lists[] = {named, json_object_get(answer, "busiest")}, *site;
    size_t k;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)buf_addf(text,
                       "# HELP %s %s, of the busiest destinations and those of "
                       "metrics_destinations.\n# TYPE %s gauge\n",
                       rows[i].name, rows[i].help, rows[i].name);
        for (size_t j = 0; j < 2; j++) {
            json_array_foreach((json_t *)(uintptr_t)lists[j], k, site)
            {
                const char *state = string_of(site, "state");

                if (j == 1 && is_among(named, site)) {
                    continue;
                }
                (void)buf_addf(text, "%s{destination=\"", rows[i].name);
                add_value(text, string_of(site, "transport"));
                (void)buf_add_byte(text, '/');
                add_value(text, string_of(site, "destination"));
                (void)buf_addf(text, "\"} %.0f\n",
                               rows[i].member != NULL ? number_of(site, rows[i].member)
                                                      : (double)(strcmp(state, "dead") == 0));
            }
        }
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

struct process_line {
    char role[32];
    unsigned index;
    unsigned long long starts, cpu_us, resident;
    bool runs;
};

static bool read_process(struct slice *rest, struct process_line *ret)
{
    struct slice line = slice_cut(rest, '\n'), word = slice_cut(&line, ' ');
    unsigned long long numbers[5] = {0};

    (void)snprintf(ret->role, sizeof ret->role, "%.*s", SLICE_ARGS(word)); /* fits */
    for (size_t i = 0; i < 5; i++) {
        if (!slice_number(slice_cut(&line, ' '), INT64_MAX, &numbers[i])) {
            return false;
        }
    }
    ret->index = (unsigned)numbers[0];
    ret->runs = numbers[1] != 0;
    ret->starts = numbers[2];
    ret->cpu_us = numbers[3];
    ret->resident = numbers[4];
    return true;
}

static void add_processes(struct buf *text, struct slice processes)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
        {"sluice_process_up", "gauge", "1 when the process runs."},
        {"sluice_process_starts_total", "counter", "How often it was started."},
        {"sluice_process_cpu_seconds_total", "counter", "CPU time of the process that runs."},
        {"sluice_process_resident_bytes", "gauge", "Memory that it has, shared pages included."},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice rest = processes;
        struct process_line p;

        add_help(text, rows[i].name, rows[i].type, rows[i].help);
        while (rest.len > 0 && read_process(&rest, &p)) {
            const double values[] = {(double)p.runs, (double)p.starts, (double)p.cpu_us * 1e-6,
                                     (double)p.resident};

            (void)buf_addf(text, "%s{role=\"%s\",index=\"%u\"} %.15g\n", rows[i].name, p.role,
                           p.index, values[i]);
        }
    }
}

static void add_heaps(struct buf *text, const json_t *answer, const json_t *own)
{
    add_help(text, "sluice_heap_bytes", "gauge", "Memory in use from malloc.");
    (void)buf_addf(text, "sluice_heap_bytes{role=\"queue\"} %.0f\n",
                   number_of(answer, "heap_bytes"));
    (void)buf_addf(text, "sluice_heap_bytes{role=\"control\"} %.0f\n",
                   number_of(own, "heap_bytes"));
}

void metrics_print(struct buf *out, const json_t *answer, const json_t *own, struct slice processes,
                   struct wall now)
{
    add_help(out, "sluice_build_info", "gauge", "Always 1; the label has the version.");
    (void)buf_addf(out, "sluice_build_info{version=\"%s\"} 1\n", string_of(answer, "version"));
    add_numbers(out, answer);
    add_cluster(out, json_object_get(answer, "cluster"));
    add_oldest(out, answer, now);
    add_classes(out, json_object_get(answer, "classes"));
    add_send_limits(out, json_object_get(answer, "send_limits"));
    add_interventions(out, json_object_get(answer, "interventions"));
    add_web_hooks(out, json_object_get(answer, "web_hooks"));
    add_outcomes(out, json_object_get(answer, "outcomes"));
    add_delays(out, json_object_get(answer, "delays"));
    add_storage(out, answer);
    add_destinations(out, answer);
    add_processes(out, processes);
    add_heaps(out, answer, own);
}
