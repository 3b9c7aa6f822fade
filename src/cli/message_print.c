#include "message_print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "words.h"

static void print_text(FILE *out, const char *label, const char *text)
{
    if (text[0] != '\0') {
        fprintf(out, "  %-13s ", label);
        put_text(out, text);
        fputc('\n', out);
    }
}

static void print_address(FILE *out, const char *address)
{
    fputc('<', out);
    put_text(out, address);
    fputc('>', out);
}

void message_print_head(FILE *out, const json_t *message, double now)
{
    const json_t *next = json_object_get(message, "next_attempt");
    double arrived = member_number(message, "arrival_time");
    double created = member_number(message, "created");

    fprintf(out, "%s: %s", member_text(message, "queue_id"), member_text(message, "queue_name"));
    if (json_is_true(json_object_get(message, "forced_expire"))) {
        fputs(", to be given up", out);
    }
    fputc('\n', out);
    print_text(out, "reason", member_text(message, "reason"));
    if (json_object_get(message, "sender") == NULL) {
        return; /* what can't be decoded has no more */
    }
    fprintf(out, "  %-13s ", "sender");
    print_address(out, member_text(message, "sender"));
    fprintf(out, "\n  %-13s %s\n", "size", words_size(member_number(message, "message_size")).text);
    print_text(out, "client", member_text(message, "client"));
    print_text(out, "class", member_text(message, "class"));
    print_text(out, "envelope id", member_text(message, "envid"));
    fprintf(out, "  %-13s %s\n", "arrived", words_when(arrived, now).text);
    if (created > arrived + 60) {
        /* Less is the time its transfer took. */
        fprintf(out, "  %-13s %s\n", "requeued", words_when(created, now).text);
    }
    if (strcmp(member_text(message, "queue_name"), "active") == 0) {
        fprintf(out, "  %-13s under way\n", "next attempt");
    } else if (next != NULL) {
        double due = json_number_value(next);

        fprintf(out, "  %-13s %s\n", "next attempt",
                due <= now ? "due now" : words_when(due, now).text);
    }
    fprintf(out, "  %-13s %" PRId64 ", %" PRId64 " to be delivered\n", "recipients",
            member_integer(message, "recipients_total"),
            member_integer(message, "recipients_pending"));
}

/* A closed gate is what the delivery waits for; open ones show how near they are. */
static void print_gate(FILE *out, const json_t *gate)
{
    int64_t value = member_integer(gate, "value"), limit = member_integer(gate, "limit");
    bool closed = json_is_true(json_object_get(gate, "closed"));

    fprintf(out, "      %s ", closed ? "waits:" : "   ok:");
    put_text(out, member_text(gate, "gate"));
    if (limit > 0) {
        fprintf(out, ", %" PRId64 " of %" PRId64, value, limit);
    } else if (value > 0) {
        fprintf(out, ", %" PRId64, value);
    }
    if (json_object_get(gate, "seconds_left") != NULL) {
        fprintf(out, ", for %s more", words_interval(member_number(gate, "seconds_left")).text);
    }
    fputc('\n', out);
}

/* Why nothing in memory knows this recipient. */
static void print_disk_gate(FILE *out, const json_t *message, double now)
{
    const char *state = member_text(message, "queue_name");
    double due = member_number(message, "next_attempt");

    if (strcmp(state, "hold") == 0) {
        fputs("      waits: on hold, until it is released\n", out);
    } else if (strcmp(state, "corrupt") == 0) {
        fputs("      waits: it can't be delivered as it is\n", out);
    } else if (due > now) {
        fprintf(out, "      waits: not tried again before %s\n", words_when(due, now).text);
    } else {
        fputs("      waits: due, and not yet in memory: its destinations have no room, or other "
              "mail is first\n",
              out);
    }
}

static void print_route(FILE *out, const json_t *rcpt)
{
    const char *transport = member_text(rcpt, "transport");

    if (transport[0] == '\0') {
        fputs(", not routed yet", out);
        return;
    }
    fputs(", by ", out);
    put_text(out, transport);
    fputc('/', out);
    put_text(out, member_text(rcpt, "nexthop"));
}

void message_print_rcpt(FILE *out, const json_t *message, const json_t *rcpt, double now)
{
    const char *state = member_text(rcpt, "state"), *remote = member_text(rcpt, "remote");
    const char *reason = member_text(rcpt, "delay_reason");
    int64_t attempts = member_integer(rcpt, "attempts");
    const json_t *gates = json_object_get(rcpt, "gates");
    const json_t *gate;
    size_t i;

    reason = reason[0] != '\0' ? reason : member_text(rcpt, "bounce_reason");
    fprintf(out, "  %" PRId64 " ", member_integer(rcpt, "n"));
    print_address(out, member_text(rcpt, "address"));
    fprintf(out, " %s", state);
    print_route(out, rcpt);
    if (attempts > 0) {
        fprintf(out, ", %s, the last %s", words_count(attempts, "attempt").text,
                words_when(member_number(rcpt, "last_attempt"), now).text);
    }
    fputc('\n', out);
    if (reason[0] != '\0') {
        fprintf(out, "      %s ", member_text(rcpt, "status"));
        put_text(out, reason);
        if (remote[0] != '\0' && strcmp(remote, "none") != 0 && strstr(reason, remote) == NULL) {
            fputs(" (", out);
            put_text(out, remote);
            fputc(')', out);
        }
        fputc('\n', out);
    }
    if (gates == NULL || strcmp(state, "pending") != 0) {
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)gates, i, gate)
    {
        print_gate(out, gate);
    }
    if (json_array_size(gates) == 0) {
        print_disk_gate(out, message, now);
    }
}
