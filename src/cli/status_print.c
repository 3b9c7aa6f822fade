#include "status_print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "words.h"

/* ---- destinations --------------------------------------------------------------------------- */

void site_print(FILE *out, const json_t *site, double now)
{
    const char *reason = member_text(site, "reason");
    double left = member_number(site, "seconds_left");

    put_text(out, member_text(site, "transport"));
    fputc('/', out);
    put_text(out, member_text(site, "destination"));
    fprintf(out, ": %s", member_text(site, "state"));
    if (json_object_get(site, "seconds_left") != NULL) {
        fprintf(out, ", tried again in %s (%s)", words_interval(left).text,
                words_time(now + (left > 0 ? left : 0)).text);
    }
    if (json_is_true(json_object_get(site, "handed_over"))) {
        fputs(", handed over by another node", out);
    }
    fprintf(out,
            "\n  %" PRId64 " in flight in a window of %" PRId64 " (at most %" PRId64 "), %" PRId64
            " waiting\n",
            member_integer(site, "busy"), member_integer(site, "window"),
            member_integer(site, "window_max"), member_integer(site, "waiting"));
    if (reason[0] != '\0') {
        fputs("  ", out);
        put_text(out, reason);
        fputc('\n', out);
    }
}

/* ---- overview -------------------------------------------------------------------------------- */

static void print_counts(FILE *out, const json_t *status, const char *label,
                         const char *const names[][2], size_t count)
{
    fprintf(out, "%-13s", label);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s%" PRId64 " %s", i == 0 ? "" : ", ", member_integer(status, names[i][0]),
                names[i][1]);
    }
    fputc('\n', out);
}

#define PRINT_COUNTS(out, status, label, names)                                                    \
    print_counts(out, status, label, names, sizeof names / sizeof names[0])

/* Prints the findings of the auditor, if there are any. */
static void print_audit(FILE *out, const json_t *status)
{
    int64_t findings = member_integer(status, "audit_findings");

    if (findings > 0) {
        fprintf(out, "%-13s%s FOUND, %" PRId64 " repaired; the last at %s:\n  ", "faults",
                words_count(findings, "fault").text, member_integer(status, "audit_repaired"),
                words_time(member_number(status, "audit_last_time")).text);
        put_text(out, member_text(status, "audit_last"));
        fputc('\n', out);
    }
}

static void print_classes(FILE *out, const json_t *classes)
{
    const char *label = "classes";
    const json_t *class;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)classes, i, class)
    {
        const char *name = member_text(class, "class");

        fprintf(out, "%-13s", label);
        put_text(out, name[0] != '\0' ? name : "(none)");
        fprintf(out,
                ": %" PRId64 " messages in memory; %" PRId64 " accepted, %" PRId64
                " recipients delivered\n",
                member_integer(class, "active_messages"), member_integer(class, "submitted"),
                member_integer(class, "delivered"));
        label = "";
    }
}

/* Prints the number of overrides, if there are any. */
static void print_interventions(FILE *out, const json_t *status)
{
    int64_t unreadable = member_integer(status, "unreadable_interventions");
    const char *verb, *before = "";
    json_t *count;

    json_object_foreach(json_object_get(status, "interventions"), verb, count)
    {
        if (json_integer_value(count) > 0) {
            fprintf(out, "%s%s", before[0] == '\0' ? "operators    " : before,
                    words_count(json_integer_value(count), verb).text);
            before = ", ";
        }
    }
    fputs(before[0] != '\0' ? " (sluice interventions)\n" : "", out);
    if (unreadable > 0) {
        fprintf(out, "%-13s%s CAN'T BE READ: mail is held until %s cancelled\n", "",
                words_count(unreadable, "intervention").text,
                unreadable == 1 ? "it is" : "they are");
    }
}

/* Prints the backlog and the errors of the web hooks. */
static void print_web_hooks(FILE *out, const json_t *hooks)
{
    const char *label = "web hooks";
    const json_t *hook;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)hooks, i, hook)
    {
        fprintf(out, "%-13s%s: %" PRId64 " behind", label, member_text(hook, "name"),
                member_integer(hook, "behind"));
        if (member_integer(hook, "dead") + member_integer(hook, "dropped") > 0) {
            fprintf(out, ", %" PRId64 " dead letters, %" PRId64 " dropped",
                    member_integer(hook, "dead"), member_integer(hook, "dropped"));
        }
        if (member_integer(hook, "lost") > 0) {
            fprintf(out, ", %" PRId64 " lost", member_integer(hook, "lost"));
        }
        if (json_object_get(hook, "error") != NULL) {
            fprintf(out,
                    "; failing since %s: ", words_time(member_number(hook, "failing_since")).text);
            put_text(out, member_text(hook, "error"));
        }
        fputc('\n', out);
        label = "";
    }
}

/* Prints the limits that have refused mail. */
static void print_send_limits(FILE *out, const json_t *limits)
{
    const char *label = "limits";
    const json_t *limit;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)limits, i, limit)
    {
        if (member_integer(limit, "refusals") > 0) {
            fprintf(out, "%-13s%s has refused %" PRId64 " times\n", label,
                    member_text(limit, "limit"), member_integer(limit, "refusals"));
            label = "";
        }
    }
}

/* Prints a line for each node that is up or has mail. */
static void print_nodes(FILE *out, const json_t *cluster)
{
    const json_t *node, *words;
    size_t i;

    fprintf(out, "  %-28s %-9s %10s %10s %10s %10s %12s\n", "node", "state", "partitions",
            "in memory", "in flight", "waiting", "delivered");
    json_array_foreach(json_object_get(cluster, "nodes"), i, node)
    {
        bool is_up = json_is_true(json_object_get(node, "up"));
        bool has_answered = json_is_true(json_object_get(node, "answered"));

        fputs("  ", out);
        put_text(out, member_text(node, "node"));
        fprintf(out, "%*s %-9s %10" PRId64, 28 - (int)strnlen(member_text(node, "node"), 28), "",
                is_up || strcmp(member_text(node, "state"), "stopped") == 0
                    ? member_text(node, "state")
                    : "down",
                member_integer(node, "partitions"));
        if (has_answered) {
            fprintf(out, " %10" PRId64 " %10" PRId64 " %10" PRId64 " %12" PRId64,
                    member_integer(node, "active_messages"), member_integer(node, "in_flight"),
                    member_integer(node, "waiting"), member_integer(node, "delivered"));
        } else if (!is_up) {
            fprintf(out, "  silent for %s", words_interval(member_number(node, "silent")).text);
        }
        fputc('\n', out);
    }
    json_array_foreach(json_object_get(cluster, "failed"), i, words)
    {
        fputs("  ", out);
        put_text(out, json_string_value(words) != NULL ? json_string_value(words) : "?");
        fputc('\n', out);
    }
    if (member_integer(cluster, "unowned") > 0) {
        fprintf(out, "  %s WITHOUT A NODE: their mail waits\n",
                words_count(member_integer(cluster, "unowned"), "partition").text);
    }
}

void queue_status_print(FILE *out, const json_t *status)
{
    static const char *const messages[][2] = {{"incoming", "incoming"},
                                              {"deferred", "deferred"},
                                              {"hold", "on hold"},
                                              {"corrupt", "corrupt"}};
    static const char *const memory[][2] = {{"active_messages", "messages"},
                                            {"active_recipients", "recipients"},
                                            {"in_flight", "deliveries in flight"},
                                            {"waiting", "waiting"}};
    static const char *const since[][2] = {{"submitted", "messages accepted"},
                                           {"delivered", "recipients delivered"},
                                           {"deferrals", "deferrals"},
                                           {"bounced", "bounced"},
                                           {"expired", "messages expired"}};
    static const char *const sites[][2] = {{"active_destinations", "in memory"},
                                           {"dead_destinations", "of them dead"},
                                           {"parked_destinations", "with mail on disk"}};
    const json_t *cluster = json_object_get(status, "cluster");
    const json_t *sums = cluster != NULL ? json_object_get(cluster, "sums") : status;
    bool storage_ok = json_is_true(json_object_get(status, "storage_ok"));
    bool space_ok = json_is_true(json_object_get(status, "space_ok"));

    if (json_object_get(status, "pid") != NULL) {
        fprintf(out, "%-13srunning, version %s, process %" PRId64 ", for %s\n", "daemon",
                member_text(status, "version"), member_integer(status, "pid"),
                words_interval(member_number(status, "uptime")).text);
    } else {
        fprintf(out, "%-13snot running\n", "daemon");
    }
    if (json_object_get(status, "node") != NULL) {
        fprintf(out, "%-13s", "node");
        put_text(out, member_text(status, "node"));
        fprintf(out, ", of %" PRId64 " that are up%s\n", member_integer(status, "nodes_up"),
                cluster != NULL ? "" : "; what follows is its own");
    }
    PRINT_COUNTS(out, sums, "messages", messages);
    fprintf(out, "%-13s%s of mail", "storage", words_size(member_number(sums, "bytes")).text);
    if (json_object_get(status, "storage_ok") == NULL) {
        fputc('\n', out);
        return;
    }
    if (member_integer(status, "free_bytes") > 0) {
        fprintf(out, ", %s free", words_size(member_number(status, "free_bytes")).text);
    }
    fprintf(out, "%s%s%s\n", storage_ok ? "" : "; IT FAILS, no mail is accepted",
            space_ok ? "" : "; TOO LITTLE, no mail is accepted",
            json_is_true(json_object_get(status, "behind")) ? "; clients are slowed down" : "");
    PRINT_COUNTS(out, sums, "in memory", memory);
    PRINT_COUNTS(out, sums, "destinations", sites);
    PRINT_COUNTS(out, sums, "since start", since);
    if (cluster != NULL) {
        print_nodes(out, cluster);
        fputs("of this node\n", out);
    }
    print_classes(out, json_object_get(status, "classes"));
    print_send_limits(out, json_object_get(status, "send_limits"));
    print_interventions(out, status);
    print_web_hooks(out, json_object_get(status, "web_hooks"));
    print_audit(out, status);
}
