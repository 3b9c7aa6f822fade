#include "queue_print.h"

#include <inttypes.h>
#include <string.h>

#include "mem.h"
#include "words.h"

#define REASON_END     78 /* last column of a reason */
#define ADDRESS_INDENT 47 /* columns before an address */

static void print_reason(FILE *out, const char *reason)
{
    int len = (int)strlen(reason), room = REASON_END - 2;

    fprintf(out, "%*s(", len < room ? room - len : 0, "");
    put_text(out, reason);
    fputs(")\n", out);
}

static const char *state_mark(const json_t *message)
{
    static const struct {
        const char *name, *mark;
    } marks[] = {{"active", "*"}, {"hold", "!"}, {"corrupt", "?"}};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (strcmp(member_text(message, "queue_name"), marks[i].name) == 0) {
            return marks[i].mark;
        }
    }
    return "";
}

/* Prints the control file, if there is one. */
static void print_file(FILE *out, const json_t *message)
{
    const char *path = member_text(message, "path");

    if (path[0] != '\0') {
        fputs("    control file ", out);
        put_text(out, path);
        fputs(", ", out);
        put_text(out, member_text(message, "spoolid"));
        fputc('\n', out);
    }
}

/* Prints "    class bulk: List-Unsubscribe", as `sluice show` does. */
static void print_class(FILE *out, const json_t *message)
{
    const char *name = member_text(message, "class");
    const char *source = member_text(message, "class_source");

    if (name[0] != '\0') {
        fputs("    class ", out);
        put_text(out, name);
        fputs(source[0] != '\0' ? ": " : "", out);
        put_text(out, source);
        fputc('\n', out);
    }
}

void queue_print_message(struct queue_print *p, FILE *out, const json_t *message)
{
    const char *sender = member_text(message, "sender");
    int64_t size = member_integer(message, "message_size");
    double arrived = member_number(message, "arrival_time");
    char id[32];

    if (p->messages == 0) {
        fputs("----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------\n", out);
    } else {
        fputc('\n', out);
    }
    p->messages++;
    p->bytes += size;
    mem_free(p->reason);
    p->reason = NULL;
    (void)snprintf(id, sizeof id, "%.16s%s%s", member_text(message, "queue_id"),
                   state_mark(message),
                   json_is_true(json_object_get(message, "forced_expire")) ? "#" : ""); /* fits */
    fprintf(out, "%-17s %8" PRId64 " %19s ", id, size, arrived > 0 ? words_date(arrived).text : "");
    if (json_object_get(message, "sender") == NULL) {
        fputs("(unreadable)", out);
    } else {
        put_text(out, sender[0] == '\0' ? "MAILER-DAEMON" : sender);
    }
    fputc('\n', out);
    print_file(out, message);
    if (p->classes) {
        print_class(out, message);
    }
    if (strcmp(member_text(message, "queue_name"), "corrupt") == 0) {
        print_reason(out, member_text(message, "reason"));
    }
}

void queue_print_rcpt(struct queue_print *p, FILE *out, const json_t *rcpt)
{
    const char *state = member_text(rcpt, "state"), *reason = member_text(rcpt, "delay_reason");

    if (strcmp(state, "failed") == 0) {
        reason = member_text(rcpt, "bounce_reason");
    } else if (strcmp(state, "pending") != 0) {
        return;
    }
    if (strcmp(reason, p->reason == NULL ? "" : p->reason) != 0) {
        print_reason(out, reason[0] == '\0' ? "reason unavailable" : reason);
        mem_free(p->reason);
        p->reason = mem_string(reason);
    }
    fprintf(out, "%*s", ADDRESS_INDENT, "");
    put_text(out, member_text(rcpt, "address"));
    fputc('\n', out);
}

void queue_print_cut(FILE *out)
{
    fprintf(out, "%*s...\n", ADDRESS_INDENT, "");
}

void queue_print_end(struct queue_print *p, FILE *out, const char *nothing)
{
    if (p->messages == 0) {
        fprintf(out, "%s\n", nothing);
    } else {
        fprintf(out, "\n-- %" PRId64 " Kbytes in %" PRId64 " Request%s.\n", p->bytes / 1024,
                p->messages, p->messages == 1 ? "" : "s");
    }
}

void queue_print_fini(struct queue_print *p)
{
    mem_free(p->reason);
    *p = (struct queue_print){0};
}
