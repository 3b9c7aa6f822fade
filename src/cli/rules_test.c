/*
 * `sluice config test': tries the rules on a mail.
 *
 * The mail passes the functions that the receiving processes use (receive/arrival.h). Only the
 * client and the queue are missing.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "address.h"
#include "arrival.h"
#include "bundle.h"
#include "commands.h"
#include "match.h"
#include "mem.h"
#include "receive_policy.h"
#include "words.h"

#define TEXT_MAX    (16u << 20)
#define MESSAGE_MAX (64u << 20)
#define REPLY_MAX   4096

struct trial {
    const struct args *args;
    const struct conf *conf;
    struct arrival arrival;
    char client[INET6_ADDRSTRLEN + 16]; /* "unknown[192.0.2.1]" */
    unsigned char ip[16];
    bool may_relay;
    struct wire_rcpt *rcpts; /* accepted recipients */
    uint32_t count;
};

static bool take_client(struct trial *t)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    bool v4;

    if (t->args->client == NULL) {
        t->may_relay = true;
        return true;
    }
    if (!ip_parse(slice_string(t->args->client), t->ip)) {
        fprintf(stderr, "sluice: --client %s: an IP address is expected\n", t->args->client);
        return false;
    }
    v4 = memcmp(t->ip, mapped, sizeof mapped) == 0;
    memcpy(&address.sin6_addr, t->ip, sizeof t->ip);
    t->may_relay = network_list_match(&t->conf->relay_networks, (const struct sockaddr *)&address);
    (void)snprintf(t->client, sizeof t->client, "%s[%s]",
                   v4 && t->ip[12] == 127 ? "localhost" : "unknown", t->args->client); /* fits */
    return true;
}

static void print_reply(const char *what, struct slice who, const struct server_reply *r,
                        const char *rule)
{
    struct buf line;

    buf_init(&line, 2 * REPLY_MAX);
    (void)buf_addf(&line, "%s%s%.*s: ", what, who.ptr != NULL ? " " : "", SLICE_ARGS(who));
    if (r->code == 0) {
        (void)buf_add_string(&line, "accepted");
    } else {
        (void)buf_addf(&line, "%u %s %.*s%s%s%s", r->code, r->status, SLICE_ARGS(r->text),
                       rule[0] != '\0' ? " (" : "", rule, rule[0] != '\0' ? ")" : "");
    }
    line.failed = false; /* may be cut */
    put_lines(stdout, buf_cstr(&line));
    buf_fini(&line);
}

/* Tries a recipient as on_rcpt of a session does. */
static void try_rcpt(struct trial *t, struct slice rcpt)
{
    const struct arrival_client client = {.ip = t->ip, .text = t->client};
    struct buf text, rule;
    struct receive_verdict verdict = {.text = &text};
    struct arrival_words words = {.text = &text, .rule = &rule};
    struct slice sender = slice_string(t->args->sender);
    struct server_reply reply = SERVER_ACCEPT;

    buf_init(&text, REPLY_MAX);
    buf_init(&rule, REPLY_MAX);
    if (t->args->client != NULL) {
        reply = receive_judge(t->conf, t->may_relay, rcpt, &verdict);
        if (reply.code == 0) {
            reply = arrival_rcpt(&t->arrival, t->conf, &client, sender, rcpt, &words);
        }
    }
    print_reply("recipient", rcpt, &reply, buf_cstr(&rule));
    if (reply.code == 0) {
        t->rcpts[t->count++] = (struct wire_rcpt){.address = rcpt};
    }
    buf_fini(&text);
    buf_fini(&rule);
}

static void put_nowhere(void *arg, struct slice bytes)
{
    (void)arg;
    (void)bytes;
}

/* Appends a line, in which "\n" stands for a line end. */
static void add_line(struct buf *message, struct slice line)
{
    while (line.len > 0) {
        if (slice_starts(line, SLICE("\\n"))) {
            (void)buf_add_string(message, "\r\n"); /* sticky, as all appends here */
            line = slice_skip(line, 2);
        } else {
            (void)buf_add_byte(message, line.ptr[0]);
            line = slice_skip(line, 1);
        }
    }
    (void)buf_add_string(message, "\r\n");
}

static struct server_reply try_content(struct trial *t)
{
    const struct args *a = t->args;
    struct server_reply reply;
    struct buf message;

    buf_init(&message, MESSAGE_MAX);
    for (size_t i = 0; i < a->fields.count; i++) {
        add_line(&message, slice_string(a->fields.items[i]));
    }
    (void)buf_add_string(&message, "\r\n");
    for (size_t i = 0; i < a->lines.count; i++) {
        add_line(&message, slice_string(a->lines.items[i]));
    }
    message.failed = false; /* fits: no command line is as long */
    arrival_data(&t->arrival, &(struct arrival_author){.is_own = false});
    arrival_content(&t->arrival, buf_slice(&message), put_nowhere, NULL);
    reply = arrival_end(&t->arrival, t->client, put_nowhere, NULL);
    buf_fini(&message);
    return reply;
}

/* Prints each matching rule, in the order of the search. */
static void print_notes(const struct ruling *r)
{
    for (size_t i = 0; i < r->note_count; i++) {
        const struct ruling_note *n = &r->notes[i];
        struct buf line;

        buf_init(&line, 2 * REPLY_MAX);
        (void)buf_addf(&line, "rule: %s: %s%s%s: %s\n", n->rule, action_name(n->kind),
                       n->text[0] != '\0' ? " " : "", n->text, n->what);
        line.failed = false; /* may be cut */
        put_lines(stdout, buf_cstr(&line));
        buf_fini(&line);
    }
}

static void print_result(struct trial *t)
{
    struct slice sender = slice_string(t->args->sender);
    struct server_reply reply =
        arrival_envelope(&t->arrival, t->conf, &sender, &t->rcpts, &t->count, UINT32_MAX);
    struct buf text;

    print_notes(&t->arrival.ruling);
    if (reply.code != 0) {
        print_reply("message", slice_of(NULL, 0), &reply, "");
        return;
    }
    buf_init(&text, TEXT_MAX);
    if (!slice_equal(sender, slice_string(t->args->sender))) {
        (void)buf_addf(&text, "  from %.*s\n", SLICE_ARGS(sender)); /* fits */
    }
    printf("message: %s\n", arrival_hold(&t->arrival).len > 0 ? "on hold" : "queued");
    for (uint32_t i = 0; i < t->count; i++) {
        (void)buf_addf(&text, "  to %.*s%s%.*s\n", SLICE_ARGS(t->rcpts[i].address),
                       t->rcpts[i].target.len > 0 ? " by " : "",
                       SLICE_ARGS(t->rcpts[i].target)); /* fits */
    }
    put_lines(stdout, buf_cstr(&text));
    buf_fini(&text);
}

static void try_mail(struct trial *t)
{
    const struct ruling *r = &t->arrival.ruling;
    struct server_reply reply;

    for (size_t i = 0; i < t->args->to.count; i++) {
        try_rcpt(t, slice_string(t->args->to.items[i]));
    }
    if (t->count == 0) {
        print_notes(r);
        printf("message: none of its recipients is accepted\n");
        return;
    }
    reply = try_content(t);
    if (reply.code == 0 && !r->discard) {
        print_result(t);
        return;
    }
    print_notes(r);
    if (r->limit != NULL) {
        printf("limit: %s\n", r->limit);
    }
    if (reply.code != 0) {
        print_reply("message", slice_of(NULL, 0), &reply, "");
    } else {
        printf("message: discarded\n");
    }
}

static bool addresses_ok(const struct args *a)
{
    bool ok = a->sender == NULL ||
              address_is_stored(slice_string(a->sender), ADDRESS_UTF8 | ADDRESS_NULL);

    if (!ok) {
        fprintf(stderr, "sluice: --sender: a mail address without < and > is expected\n");
    }
    for (size_t i = 0; i < a->to.count; i++) {
        if (!address_is_stored(slice_string(a->to.items[i]), ADDRESS_UTF8 | ADDRESS_NO_DOMAIN)) {
            fprintf(stderr, "sluice: --recipient: a mail address without < and > is expected\n");
            ok = false;
        }
    }
    return ok;
}

int run_config_test(const struct command *c, const struct args *a)
{
    const char *path = a->word_count > 0 ? a->words[0] : command_conf_path(a);
    struct trial t = {.args = a};
    struct rule_set *set;
    struct bundle bundle;
    struct buf text;
    bool ok;

    if (a->to.count == 0) {
        return command_misused(c, "a --recipient");
    }
    if (!addresses_ok(a)) {
        return EX_USAGE;
    }
    buf_init(&text, TEXT_MAX);
    ok = bundle_load(path, &bundle, &text);
    text.failed = false; /* may be cut */
    put_lines(stderr, buf_cstr(&text));
    buf_clear(&text);
    if (!ok) {
        buf_fini(&text);
        return EX_CONFIG;
    }
    t.conf = bundle.conf;
    set = rule_set_new(bundle.tables_fd, &t.conf, &text);
    ok = set != NULL && take_client(&t);
    if (ok) {
        t.rcpts = mem_array(a->to.count, sizeof *t.rcpts);
        arrival_begin(&t.arrival, set, false);
        try_mail(&t);
        arrival_drop(&t.arrival);
        mem_free(t.rcpts);
    }
    rule_set_unref(set);
    buf_fini(&text);
    bundle_fini(&bundle);
    return ok ? EX_OK : EX_USAGE;
}
