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

/* Prints "bulk: List-Unsubscribe". */
static void print_class(FILE *out, const json_t *message)
{
    const char *name = member_text(message, "class");
    const char *source = member_text(message, "class_source");

    if (name[0] != '\0') {
        fprintf(out, "  %-13s %s%s%s\n", "class", name, source[0] != '\0' ? ": " : "", source);
    }
}

void message_print_head(FILE *out, const json_t *message, double now)
{
    const json_t *next = json_object_get(message, "next_attempt");
    double arrived = member_number(message, "arrival_time");
    double created = member_number(message, "created");

    fprintf(out, "%s: %s", member_text(message, "queue_id"), member_text(message, "queue_name"));
    if (json_is_true(json_object_get(message, "forced_expire"))) {
        fputs(", to expire", out);
    }
    fputc('\n', out);
    print_text(out, "reason", member_text(message, "reason"));
    if (json_object_get(message, "sender") == NULL) {
        return; /* an unreadable message has no further members */
    }
    fprintf(out, "  %-13s ", "sender");
    print_address(out, member_text(message, "sender"));
    fprintf(out, "\n  %-13s %s\n", "size", words_size(member_number(message, "message_size")).text);
    print_text(out, "control file", member_text(message, "path"));
    print_text(out, "spoolid", member_text(message, "spoolid"));
    print_text(out, "client", member_text(message, "client"));
    print_class(out, message);
    print_text(out, "rules", member_text(message, "rules"));
    print_text(out, "envelope id", member_text(message, "envid"));
    fprintf(out, "  %-13s %s\n", "arrived", words_when(arrived, now).text);
    if (created > arrived + 60) {
        /* a smaller difference is only the time of the transfer */
        fprintf(out, "  %-13s %s\n", "requeued", words_when(created, now).text);
    }
    if (strcmp(member_text(message, "queue_name"), "active") == 0) {
        fprintf(out, "  %-13s in progress\n", "next attempt");
    } else if (next != NULL) {
        double due = json_number_value(next);

        fprintf(out, "  %-13s %s\n", "next attempt",
                due <= now ? "due now" : words_when(due, now).text);
    }
    fprintf(out, "  %-13s %" PRId64 ", %" PRId64 " to be delivered\n", "recipients",
            member_integer(message, "recipients_total"),
            member_integer(message, "recipients_pending"));
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

void message_print_reply(FILE *out, const json_t *rcpt)
{
    const char *reason = member_text(rcpt, "delay_reason"), *remote = member_text(rcpt, "remote");
    const char *tls = member_text(rcpt, "tls");

    reason = reason[0] != '\0' ? reason : member_text(rcpt, "bounce_reason");
    if (reason[0] == '\0') {
        return;
    }
    fprintf(out, "      %s ", member_text(rcpt, "status"));
    put_text(out, reason);
    if (remote[0] != '\0' && strcmp(remote, "none") != 0 && strstr(reason, remote) == NULL) {
        fputs(" (", out);
        put_text(out, remote);
        fputc(')', out);
    }
    if (tls[0] != '\0') {
        fputs(", TLS: ", out);
        put_text(out, tls);
    }
    fputc('\n', out);
}

void message_print_attempts(FILE *out, const json_t *rcpt, double now)
{
    int64_t attempts = member_integer(rcpt, "attempts");

    if (attempts > 0) {
        fprintf(out, ", %s, the last %s", words_count(attempts, "attempt").text,
                words_when(member_number(rcpt, "last_attempt"), now).text);
    }
}

void message_print_rcpt(FILE *out, const json_t *rcpt, double now)
{
    fprintf(out, "  %" PRId64 " ", member_integer(rcpt, "n"));
    print_address(out, member_text(rcpt, "address"));
    fprintf(out, " %s", member_text(rcpt, "state"));
    print_route(out, rcpt);
    message_print_attempts(out, rcpt, now);
    fputc('\n', out);
    message_print_reply(out, rcpt);
}
