#include "why_print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "json.h"
#include "mem.h"
#include "message_print.h"
#include "words.h"

/* ---- reasons --------------------------------------------------------------------------------- */

static bool is_closed(const json_t *gate)
{
    return json_is_true(json_object_get(gate, "closed"));
}

static void print_line(FILE *out, const char *label, const char *text)
{
    fprintf(out, "    %-9s ", label);
    put_text(out, text);
    fputc('\n', out);
}

static void print_times(FILE *out, const json_t *object, double now)
{
    const json_t *since = json_object_get(object, "since");
    const json_t *until = json_object_get(object, "until");

    if (since == NULL && until == NULL) {
        return;
    }
    fprintf(out, "    %-9s ", "");
    if (since != NULL) {
        fprintf(out, "since %s", words_when(json_number_value(since), now).text);
    }
    if (until != NULL) {
        fprintf(out, "%suntil %s", since != NULL ? ", " : "",
                words_when(json_number_value(until), now).text);
    }
    fputc('\n', out);
}

/* Prints the consequences: an expected time, and a remedy. */
static void print_outlook(FILE *out, const json_t *group, double now)
{
    const json_t *estimate = json_object_get(group, "estimate");
    const json_t *at = json_object_get(estimate, "at");
    const char *advice = member_text(group, "advice");

    if (at != NULL) {
        fprintf(out, "    %-9s %s, if ", "expected", words_when(json_number_value(at), now).text);
        put_text(out, member_text(estimate, "assumption"));
        fputc('\n', out);
    } else if (estimate != NULL) {
        print_line(out, "expected", member_text(estimate, "assumption"));
    }
    if (advice[0] != '\0') {
        print_line(out, "to do", advice);
    }
}

/* Prints the reasons. The first closed gate is the current reason for which mail waits; further
 * closed gates will follow. Open gates are printed if they have numbers. */
static void print_gates(FILE *out, const json_t *group, double now)
{
    const json_t *gates = json_object_get(group, "gates");
    bool waits = false;
    json_t *gate;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)gates, i, gate)
    {
        if (is_closed(gate)) {
            print_line(out, waits ? "then" : "waits for", member_text(gate, "text"));
            print_times(out, gate, now);
            waits = true;
        }
    }
    json_array_foreach((json_t *)(uintptr_t)gates, i, gate)
    {
        if (!is_closed(gate) && json_object_get(gate, "limit") != NULL &&
            member_integer(gate, "value") > 0) {
            print_line(out, "open", member_text(gate, "text"));
        }
    }
    print_outlook(out, group, now);
}

/* ---- a message ------------------------------------------------------------------------------ */

static bool same_text(const json_t *a, const json_t *b, const char *member)
{
    return strcmp(member_text(a, member), member_text(b, member)) == 0;
}

/* Returns a group of an earlier page with the same reason, or NULL. */
static json_t *find_alike(json_t *groups, const json_t *wanted)
{
    json_t *group;
    size_t i;

    json_array_foreach(groups, i, group)
    {
        if (same_text(group, wanted, "transport") && same_text(group, wanted, "destination") &&
            same_text(group, wanted, "binds")) {
            return group;
        }
    }
    return NULL;
}

static void name_recipient(json_t *group, json_t *rcpt)
{
    json_t *named = json_object_get(group, "named");

    if (named == NULL) {
        named = json_array();
        json_put(group, "named", named);
    }
    if (json_array_size(named) < WHY_NAMES_SHOWN) {
        CHECK(json_array_append(named, rcpt) == 0);
    }
}

/* Puts the names of the first recipients into each group of the page. */
static void name_recipients(json_t *page)
{
    json_t *groups = json_object_get(page, "groups"), *rcpt;
    size_t i;

    json_array_foreach(json_object_get(page, "recipients"), i, rcpt)
    {
        const json_t *index = json_object_get(rcpt, "group");
        json_t *group = json_array_get(groups, (size_t)json_integer_value(index));

        if (index != NULL && group != NULL) {
            name_recipient(group, rcpt);
        }
    }
}

static void join(json_t *group, const json_t *other)
{
    json_t *rcpt;
    size_t i;

    json_put(
        group, "recipients",
        json_integer(member_integer(group, "recipients") + member_integer(other, "recipients")));
    json_array_foreach(json_object_get(other, "named"), i, rcpt)
    {
        name_recipient(group, rcpt);
    }
}

void why_print_add(struct why_print *w, json_t *page)
{
    json_t *group;
    size_t i;

    name_recipients(page);
    if (w->groups == NULL) {
        w->groups = json_array();
    }
    json_array_foreach(json_object_get(page, "groups"), i, group)
    {
        json_t *old = find_alike(w->groups, group);

        if (old == NULL) {
            CHECK(json_array_append(w->groups, group) == 0);
        } else {
            join(old, group);
        }
    }
    json_decref(w->last);
    w->last = json_incref(json_object_get(page, "next_recipient"));
    if (w->first == NULL) {
        w->first = page;
    } else {
        json_decref(page);
    }
}

void why_print_fini(struct why_print *w)
{
    json_decref(w->first);
    json_decref(w->groups);
    json_decref(w->last);
}

static void print_names(FILE *out, const json_t *group)
{
    const json_t *named = json_object_get(group, "named");
    int64_t count = member_integer(group, "recipients");
    json_t *rcpt;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)named, i, rcpt)
    {
        fputs(i == 0 ? ": <" : ", <", out);
        put_text(out, member_text(rcpt, "address"));
        fputc('>', out);
    }
    if (count > WHY_NAMES_SHOWN) {
        fprintf(out, " and %" PRId64 " more", count - WHY_NAMES_SHOWN);
    }
}

/* Prints the overrides, except pauses, which are among the gates. */
static void print_interventions(FILE *out, const json_t *group)
{
    json_t *i;
    size_t n;

    json_array_foreach(json_object_get(group, "interventions"), n, i)
    {
        if (strcmp(member_text(i, "verb"), "pause") != 0) {
            fputs("    operator  ", out);
            put_text(out, member_text(i, "text"));
            fputc('\n', out);
        }
    }
}

static void print_group(FILE *out, const json_t *group, double now)
{
    const json_t *rcpt = json_array_get(json_object_get(group, "named"), 0);
    int64_t count = member_integer(group, "recipients");

    fputc('\n', out);
    if (count > 0) {
        fprintf(out, "  %s", words_count(count, "recipient").text);
        if (member_text(group, "transport")[0] != '\0') {
            fputs(" by ", out);
            put_text(out, member_text(group, "transport"));
            fputc('/', out);
            put_text(out, member_text(group, "nexthop"));
        }
        if (member_text(group, "node")[0] != '\0') {
            fputs(" at node ", out);
            put_text(out, member_text(group, "node"));
        }
        print_names(out, group);
        message_print_attempts(out, rcpt, now);
        fputc('\n', out);
        message_print_reply(out, rcpt);
    }
    print_gates(out, group, now);
    print_interventions(out, group);
}

static int compare_groups(const void *a, const void *b)
{
    int64_t x = member_integer(*(json_t *const *)a, "recipients");
    int64_t y = member_integer(*(json_t *const *)b, "recipients");

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Prints the nodes that could not answer. */
static void print_failed(const struct why_print *w, FILE *out)
{
    const json_t *words;
    size_t i;

    json_array_foreach(json_object_get(w->first, "failed"), i, words)
    {
        fputs(i == 0 ? "\n  not all is known: " : "\n  ", out);
        put_text(out, json_string_value(words) != NULL ? json_string_value(words) : "");
    }
    if (i > 0) {
        fputc('\n', out);
    }
}

void why_print_message(const struct why_print *w, FILE *out, double now)
{
    size_t count = json_array_size(w->groups);
    const json_t **sorted = mem_array(count, sizeof(const json_t *));

    message_print_head(out, w->first, now);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(w->groups, i);
    }
    if (count > 1) {
        qsort(sorted, count, sizeof *sorted, compare_groups);
    }
    for (size_t i = 0; i < count && i < WHY_GROUPS_SHOWN; i++) {
        print_group(out, sorted[i], now);
    }
    if (count > WHY_GROUPS_SHOWN) {
        fprintf(out, "\n  ... and %zu more groups; --json has them\n", count - WHY_GROUPS_SHOWN);
    }
    if (w->last != NULL) {
        fputs("\n  ... and recipients that were not looked at; --json has them\n", out);
    }
    if (count == 0 && member_integer(w->first, "recipients_pending") == 0) {
        fputs("\n  All its recipients are dealt with; what is left is the report to its sender.\n",
              out);
    }
    mem_free(sorted);
    print_failed(w, out);
}

/* ---- a destination -------------------------------------------------------------------------- */

static void print_label(FILE *out, const char *label)
{
    fprintf(out, "  %-11s ", label);
}

static void print_node(FILE *out, const json_t *site)
{
    if (member_text(site, "node")[0] != '\0') {
        print_label(out, "node");
        put_text(out, member_text(site, "node"));
        fputc('\n', out);
    }
}

static void print_messages(FILE *out, const json_t *site, const json_t *count)
{
    print_label(out, "messages");
    if (count != NULL) {
        fprintf(out, "%" PRId64 " in the queue, ", member_integer(count, "count"));
    }
    fprintf(out, "%" PRId64 " in memory", member_integer(site, "messages"));
    if (json_is_true(json_object_get(site, "parked"))) {
        fprintf(out, "%s: the others wait on disk",
                member_integer(site, "messages") > 0 &&
                        member_integer(site, "messages") >= member_integer(site, "share")
                    ? ", its share"
                    : "");
    }
    fputc('\n', out);
}

static void print_window(FILE *out, const json_t *site)
{
    int64_t max = member_integer(site, "window_max");
    int64_t cohorts = member_integer(site, "failed_cohort_limit");
    double mean = member_number(site, "mean_seconds"), rate = member_number(site, "per_second");

    print_label(out, "window");
    fprintf(out, "%" PRId64 " in flight", member_integer(site, "busy"));
    if (member_integer(site, "depth") > 1) {
        fprintf(out, ", %" PRId64 " agents", member_integer(site, "agents"));
    }
    fprintf(out, " of %" PRId64 " allowed now (starts with %" PRId64,
            member_integer(site, "window"), member_integer(site, "window_initial"));
    if (max > 0) {
        fprintf(out, ", at most %" PRId64, max);
    }
    fprintf(out, "), %" PRId64 " waiting\n", member_integer(site, "waiting"));
    print_label(out, "failures");
    fprintf(out, "%.3g times as many in a row as the window is wide",
            member_number(site, "failed_cohorts"));
    if (cohorts > 0) {
        fprintf(out, "; it counts as dead when that passes %" PRId64, cohorts);
    }
    fputc('\n', out);
    print_label(out, "pace");
    if (rate > 0) {
        fprintf(out, "%.3g deliveries a second in the last minute or two, %.2gs each\n", rate,
                mean);
    } else if (mean > 0) {
        fprintf(out, "the last deliveries took %.2gs each\n", mean);
    } else {
        fputs("no delivery has ended yet\n", out);
    }
    print_label(out, "for more");
    put_text(out, member_text(json_object_get(site, "ceiling"), "text"));
    fputc('\n', out);
}

static void print_history(FILE *out, const json_t *site, double now)
{
    const json_t *steps = json_object_get(site, "history");
    const json_t *replies = json_object_get(site, "replies");
    json_t *row;
    size_t i;

    if (json_array_size(steps) > 0) {
        fputs("\n  the window lately\n", out);
    }
    json_array_foreach((json_t *)(uintptr_t)steps, i, row)
    {
        fprintf(out, "    %s  %3" PRId64 " -> %-3" PRId64 " %s\n",
                words_when(member_number(row, "at"), now).text, member_integer(row, "before"),
                member_integer(row, "after"), member_text(row, "why"));
    }
    if (json_array_size(replies) > 0) {
        fputs("\n  its last replies\n", out);
    }
    json_array_foreach((json_t *)(uintptr_t)replies, i, row)
    {
        const char *host = member_text(row, "host");

        fprintf(out, "    %s%s", words_when(member_number(row, "last"), now).text,
                member_integer(row, "count") == 1 ? "" : ", ");
        if (member_integer(row, "count") > 1) {
            fprintf(out, "%" PRId64 " times since %s", member_integer(row, "count"),
                    words_time(member_number(row, "first")).text);
        }
        fprintf(out, "\n      %s ", member_text(row, "status"));
        put_text(out, member_text(row, "text"));
        if (strcmp(host, "none") != 0 && strstr(member_text(row, "text"), host) == NULL) {
            fputs(" (", out);
            put_text(out, host);
            fputc(')', out);
        }
        fputc('\n', out);
    }
}

void why_print_site(FILE *out, const json_t *site, const json_t *count, double now)
{
    const char *state = member_text(site, "state");
    bool unknown = strcmp(state, "unknown") == 0;

    put_text(out, member_text(site, "transport"));
    fputc('/', out);
    put_text(out, member_text(site, "nexthop"));
    fprintf(out, ": %s\n", unknown ? "nothing is known, none of its mail is in memory" : state);
    print_node(out, site);
    print_messages(out, site, count);
    if (!unknown) {
        print_window(out, site);
    }
    fputs("\n  mail that comes now\n", out);
    print_gates(out, site, now);
    print_interventions(out, site);
    print_history(out, site, now);
}
