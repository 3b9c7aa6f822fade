#include "tls_print.h"

#include <stdbool.h>
#include <string.h>

#include "words.h"

static void put_label(FILE *out, const char *label)
{
    fprintf(out, "%-15s ", label);
}

static void put_list(FILE *out, const json_t *list, const char *before)
{
    const json_t *element;
    size_t i;

    json_array_foreach(list, i, element)
    {
        fputs(i > 0 ? before : "", out);
        put_text(out, json_string_value(element));
    }
}

static void print_way(FILE *out, const json_t *answer)
{
    put_label(out, "domain");
    put_text(out, member_text(answer, "domain"));
    fputs(", by ", out);
    put_text(out, member_text(answer, "transport"));
    fputs(" to ", out);
    put_text(out, member_text(answer, "nexthop"));
    fputc('\n', out);
    put_label(out, "level");
    put_text(out, member_text(answer, "tls_security_level"));
    fputs(" (", out);
    put_text(out, member_text(answer, "tls_security_level_from"));
    fputs(")\n", out);
}

static void print_times(FILE *out, const json_t *policy, double now)
{
    fprintf(out, "%-15s fetched %s, ", "", words_when(member_number(policy, "fetched"), now).text);
    fprintf(out, "holds until %s\n", words_when(member_number(policy, "until"), now).text);
}

static void print_policy(FILE *out, const json_t *answer, double now)
{
    const json_t *policy = json_object_get(answer, "policy");
    const char *failure = member_text(policy, "failure");

    put_label(out, "MTA-STS");
    put_text(out, member_text(answer, "mta_sts"));
    fputs(" (", out);
    put_text(out, member_text(answer, "mta_sts_from"));
    fputs(")", out);
    if (policy == NULL) {
        fputs("; a next hop in brackets has no policy\n", out);
        return;
    }
    fputs("; ", out);
    if (strcmp(member_text(policy, "state"), "policy") != 0) {
        put_text(out, member_text(policy, "state"));
        fputs(" of ", out);
        put_text(out, member_text(answer, "policy_domain"));
        fputc('\n', out);
    } else {
        fputs("id ", out);
        put_text(out, member_text(policy, "id"));
        fputs(", ", out);
        put_text(out, member_text(policy, "mode"));
        fputs(", mx ", out);
        put_list(out, json_object_get(policy, "mx"), " ");
        fprintf(out, ", max_age %s\n", words_interval(member_number(policy, "max_age")).text);
        print_times(out, policy, now);
    }
    if (failure[0] != '\0') {
        fprintf(out, "%-15s the last look-up failed: ", "");
        put_text(out, failure);
        fputc('\n', out);
    }
}

static void put_line(FILE *out, const char *before, const char *text)
{
    fprintf(out, "%-15s %s", "", before);
    put_text(out, text);
    fputc('\n', out);
}

/* Prints the properties of the connection. */
static void print_connection(FILE *out, const json_t *host)
{
    const char *tls = member_text(host, "tls"), *certificate = member_text(host, "certificate");
    const char *trouble = member_text(host, "trouble");

    if (tls[0] != '\0') {
        fprintf(out, "%-15s connected: ", "");
        put_text(out, tls);
        fputs(json_is_true(json_object_get(host, "met")) ? ": as demanded\n" : "\n", out);
    }
    if (certificate[0] != '\0') {
        put_line(out, "certificate: ", certificate);
    }
    if (trouble[0] != '\0') {
        put_line(out, "", trouble);
    }
}

static void print_host(FILE *out, const json_t *host)
{
    const json_t *tlsa = json_object_get(host, "tlsa");
    bool used = json_is_true(json_object_get(host, "used"));
    const json_t *record;
    size_t i;

    fprintf(out, "%5lld ", (long long)member_integer(host, "preference"));
    put_text(out, member_text(host, "name"));
    fputs(" [", out);
    put_list(out, json_object_get(host, "addresses"), ", ");
    fputs("], DNSSEC ", out);
    put_text(out, member_text(host, "dnssec"));
    fputc('\n', out);
    json_array_foreach(tlsa, i, record)
    {
        fprintf(out, "%-15s TLSA ", "");
        put_text(out, json_string_value(record));
        fputc('\n', out);
    }
    fprintf(out, "%-15s ", "");
    put_text(out, member_text(host, used ? "demand" : "reason"));
    fputc('\n', out);
    print_connection(out, host);
}

static bool was_tried(const json_t *hosts)
{
    const json_t *host;
    size_t i;

    json_array_foreach(hosts, i, host)
    {
        if (json_object_get(host, "met") != NULL) {
            return true;
        }
    }
    return false;
}

void tls_print(FILE *out, const json_t *answer, double now)
{
    const json_t *hosts = json_object_get(answer, "hosts"), *host;
    const char *reason = member_text(answer, "reason");
    size_t i;

    print_way(out, answer);
    print_policy(out, answer, now);
    put_label(out, "hosts");
    fputs("DNSSEC ", out);
    put_text(out, member_text(answer, "dnssec"));
    fputc('\n', out);
    json_array_foreach(hosts, i, host)
    {
        print_host(out, host);
    }
    put_label(out, "mail would be");
    put_text(out, member_text(answer, "outcome"));
    if (reason[0] != '\0') {
        fputs(": ", out);
        put_text(out, reason);
    } else if (strcmp(member_text(answer, "outcome"), "sent") == 0 && !was_tried(hosts)) {
        fputs(", if a host above shows what it has to", out);
    }
    fputc('\n', out);
}
