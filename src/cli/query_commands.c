/* Commands that only read. */
#include <inttypes.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "content_cut.h"
#include "json.h"
#include "message_json.h"
#include "message_print.h"
#include "queue_print.h"
#include "rcpt_walk.h"
#include "status_print.h"
#include "tls_print.h"
#include "why_print.h"
#include "words.h"

#define PAGE_MESSAGES      100
#define PAGE_RECIPIENTS    50   /* recipients of each message in a page */
#define DESTINATIONS_MAX   1000 /* in one answer; also the limit of the API */
#define STATUS_SITES_SHOWN 20
#define WHY_PAGES_MAX      20 /* pages of recipients for text output */

/* ---- shared by all --------------------------------------------------------------------------- */

/* Runs `look` with a connection for its queries. */
static int with_ask(const struct args *a, int (*look)(struct ask *ask, const struct args *a))
{
    struct conf *conf = command_places(a);
    struct ask *ask;
    int status;

    if (conf == NULL) {
        return EX_CONFIG;
    }
    ask = ask_new(conf);
    status = look(ask, a);
    ask_free(ask);
    conf_free(conf);
    return status;
}

/* Sends the query and frees it. Returns NULL after an error message, with an exit status in
 * *ret_status. */
static json_t *ask_or_say(struct ask *ask, json_t *question, int *ret_status)
{
    json_t *answer;
    unsigned status;

    CHECK(question != NULL);
    status = ask_json(ask, question, &answer);
    json_decref(question);
    if (status != ASK_OK) {
        *ret_status = ask_failed(status, answer);
        return NULL;
    }
    return answer;
}

/* ---- queue ---------------------------------------------------------------------------------- */

static int put_message(struct ask *ask, json_t *message, int64_t max_rcpts)
{
    struct rcpt_walk w;

    rcpt_walk_init(&w, ask, message, max_rcpts);
    message_json_begin(stdout, message);
    message_json_rcpts(stdout, &w);
    message_json_end(stdout);
    return rcpt_walk_fini(&w);
}

static int list_message(struct ask *ask, const struct args *a, struct queue_print *p,
                        json_t *message)
{
    struct rcpt_walk w;
    const json_t *rcpt;

    if (a->json) {
        return put_message(ask, message, a->recipients);
    }
    rcpt_walk_init(&w, ask, message, a->recipients);
    queue_print_message(p, stdout, message);
    while ((rcpt = rcpt_walk_next(&w)) != NULL) {
        queue_print_rcpt(p, stdout, rcpt);
    }
    if (w.cut) {
        queue_print_cut(stdout);
    }
    return rcpt_walk_fini(&w);
}

/* Prints the nodes whose data are missing. */
static void say_failed(const json_t *answer)
{
    const json_t *words;
    size_t i;

    json_array_foreach(json_object_get(answer, "failed"), i, words)
    {
        fputs("sluice: ", stderr);
        put_text(stderr, json_string_value(words) != NULL ? json_string_value(words) : "?");
        fputc('\n', stderr);
    }
}

/* Lists all pages; each is printed before the next is requested. */
static int list_pages(struct ask *ask, const struct args *a, struct queue_print *p)
{
    int64_t rcpts = a->recipients < PAGE_RECIPIENTS ? a->recipients : PAGE_RECIPIENTS;
    json_t *next = NULL;
    int status = EX_OK;

    do {
        json_t *answer, *message;
        size_t i;

        answer = ask_or_say(ask,
                            json_pack("{s:s, s:O, s:i, s:I, s:o*}", "op", "list", "filter",
                                      a->filter, "max", PAGE_MESSAGES, "recipients",
                                      (json_int_t)rcpts, "after", next),
                            &status);
        if (answer == NULL) {
            return status;
        }
        say_failed(answer);
        json_array_foreach(json_object_get(answer, "messages"), i, message)
        {
            int rc = list_message(ask, a, p, message);

            status = status == EX_OK ? rc : status;
        }
        next = json_incref(json_object_get(answer, "next"));
        json_decref(answer);
    } while (next != NULL && status == EX_OK && !ferror(stdout));
    json_decref(next);
    return status;
}

static int look_queue(struct ask *ask, const struct args *a)
{
    struct queue_print p = {.classes = a->classes};
    int status = list_pages(ask, a, &p);

    if (!a->json && status == EX_OK) {
        queue_print_end(&p, stdout,
                        json_object_size(a->filter) == 0 ? "Mail queue is empty"
                                                         : "No messages match");
    }
    queue_print_fini(&p);
    return status;
}

int run_queue(const struct command *c, const struct args *a)
{
    if (a->count && a->destinations) {
        return command_misused(c, "either --count or --destinations");
    }
    if (a->destinations && json_object_size(a->filter) > 0) {
        return command_misused(c, "--destinations is of the whole queue");
    }
    return a->count          ? run_count(c, a)
           : a->destinations ? run_destinations(c, a)
                             : with_ask(a, look_queue);
}

static int look_count(struct ask *ask, const struct args *a)
{
    json_t *answer, *next = NULL;
    int64_t count = 0;
    int status = EX_OK;

    do {
        answer = ask_or_say(
            ask, json_pack("{s:s, s:O, s:o*}", "op", "count", "filter", a->filter, "after", next),
            &status);
        if (answer == NULL) {
            return status;
        }
        say_failed(answer);
        count += member_integer(answer, "count");
        next = json_incref(json_object_get(answer, "next")); /* a spool counts in pages */
        json_decref(answer);
    } while (next != NULL);
    if (a->json) {
        printf("{\"count\":%" PRId64 "}\n", count);
    } else {
        printf("%" PRId64 "\n", count);
    }
    return status;
}

int run_count(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_count);
}

static int look_destinations(struct ask *ask, const struct args *a)
{
    json_t *answer, *list, *dest;
    size_t i;
    int status = EX_OK;

    answer = ask_or_say(ask, json_pack("{s:s, s:i}", "op", "destinations", "max", DESTINATIONS_MAX),
                        &status);
    if (answer == NULL) {
        return status;
    }
    list = json_object_get(answer, "destinations");
    if (!a->json) {
        printf("%10s  %10s  %s\n", "recipients", "messages", "destination");
    }
    json_array_foreach(list, i, dest)
    {
        const char *transport = member_text(dest, "transport");

        if (a->json) {
            put_json(stdout, dest);
            continue;
        }
        printf("%10" PRId64 "  %10" PRId64 "  ", member_integer(dest, "recipients"),
               member_integer(dest, "messages"));
        put_text(stdout, transport);
        fputs(transport[0] == '\0' ? "" : "/", stdout);
        put_text(stdout, member_text(dest, "nexthop"));
        puts(transport[0] == '\0' ? " (not routed yet)" : "");
    }
    if (!a->json && json_array_size(list) == DESTINATIONS_MAX) {
        printf("(the first %d)\n", DESTINATIONS_MAX);
    }
    json_decref(answer);
    return EX_OK;
}

int run_destinations(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_destinations);
}

/* ---- one message ---------------------------------------------------------------------------- */

/* Runs `look` for the other messages of the same control file, which the answer names. */
static int look_at_parts(struct ask *ask, const struct args *a, const json_t *answer,
                         int (*look)(struct ask *, const struct args *, const char *))
{
    const json_t *parts = json_object_get(answer, "parts"), *part;
    int status = EX_OK;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)parts, i, part)
    {
        int rc;

        if (!a->json) {
            putchar('\n');
        }
        rc = look(ask, a, json_string_value(part));
        status = status == EX_OK ? rc : status;
    }
    return status;
}

static int show_one(struct ask *ask, const struct args *a, const char *id)
{
    double now = words_now();
    struct rcpt_walk w;
    const json_t *rcpt;
    json_t *message;
    int status = EX_OK, rc;

    message = ask_or_say(
        ask, json_pack("{s:s, s:s, s:i}", "op", "show", "id", id, "recipients", 1000), &status);
    if (message == NULL) {
        return status;
    }
    if (a->json) {
        status = put_message(ask, message, ARGS_ALL);
    } else {
        rcpt_walk_init(&w, ask, message, ARGS_ALL);
        message_print_head(stdout, message, now);
        while ((rcpt = rcpt_walk_next(&w)) != NULL) {
            message_print_rcpt(stdout, rcpt, now);
        }
        status = rcpt_walk_fini(&w);
    }
    rc = look_at_parts(ask, a, message, show_one);
    json_decref(message);
    return status == EX_OK ? rc : status;
}

static int look_show(struct ask *ask, const struct args *a)
{
    int status = EX_OK;

    for (size_t i = 0; i < a->word_count; i++) {
        int rc = show_one(ask, a, a->words[i]);

        status = status == EX_OK ? rc : status;
    }
    return status;
}

int run_show(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_show);
}

/* Output of a message's content. */
struct output {
    struct content_cut cut;
    struct buf text;
};

static bool write_text(struct output *o)
{
    struct slice text = buf_slice(&o->text);
    bool ok = fwrite(text.ptr, 1, text.len, stdout) == text.len;

    CHECK(!o->text.failed);
    buf_clear(&o->text);
    return ok;
}

static bool write_piece(void *arg, struct slice piece)
{
    struct output *o = arg;
    bool ok = true;

    while (piece.len > 0 && ok) {
        struct slice part = slice_of(
            piece.ptr, piece.len < CONTENT_CUT_PIECE_MAX ? piece.len : CONTENT_CUT_PIECE_MAX);

        content_cut_add(&o->cut, part, &o->text);
        ok = write_text(o);
        piece = slice_skip(piece, part.len);
    }
    return ok;
}

static int look_cat(struct ask *ask, const struct args *a)
{
    struct output o;
    json_t *answer;
    unsigned status;

    buf_init(&o.text, CONTENT_CUT_PIECE_MAX + 2);
    content_cut_init(&o.cut,
                     a->body     ? CONTENT_BODY
                     : a->header ? CONTENT_HEADER
                                 : CONTENT_ALL,
                     isatty(STDOUT_FILENO) == 1);
    status = ask_content(ask, a->words[0], write_piece, &o, &answer);
    if (status == ASK_OK) {
        content_cut_end(&o.cut, &o.text);
        (void)write_text(&o); /* checked when the output is closed */
    }
    content_cut_fini(&o.cut);
    buf_fini(&o.text);
    return status == ASK_OK ? EX_OK : ask_failed(status, answer);
}

int run_cat(const struct command *c, const struct args *a)
{
    if (a->header && a->body) {
        return command_misused(c, "either -h or -b");
    }
    return with_ask(a, look_cat);
}

/* ---- why ------------------------------------------------------------------------------------ */

/* Calls `on_site` for each destination in the scheduler's memory, until it returns false. */
static int each_site(struct ask *ask, bool (*on_site)(void *arg, const json_t *site), void *arg)
{
    json_t *cursor = NULL;
    bool more = true;

    do {
        json_t *answer, *site;
        size_t i;
        int status = EX_OK;

        answer =
            ask_or_say(ask, json_pack("{s:s, s:o*}", "op", "sites", "cursor", cursor), &status);
        if (answer == NULL) {
            return status;
        }
        json_array_foreach(json_object_get(answer, "sites"), i, site)
        {
            more = more && on_site(arg, site);
        }
        cursor = json_incref(json_object_get(answer, "cursor"));
        json_decref(answer);
    } while (more && cursor != NULL);
    json_decref(cursor);
    return EX_OK;
}

/* Prints all pages of recipients. A message that is delivered meanwhile just ends. */
static int why_message(struct ask *ask, const struct args *a, const char *id)
{
    struct why_print w = {0};
    json_t *after = NULL, *page, *first = NULL;
    unsigned pages = 0;
    int status = EX_OK, rc;

    do {
        page = ask_or_say(
            ask, json_pack("{s:s, s:s, s:o*}", "op", "why", "id", id, "after_recipient", after),
            &status);
        after = NULL;
        if (page == NULL) {
            break;
        }
        after = json_incref(json_object_get(page, "next_recipient"));
        first = first == NULL ? json_incref(page) : first;
        if (a->json) {
            put_json(stdout, page);
            json_decref(page);
        } else {
            why_print_add(&w, page);
        }
    } while (after != NULL && (a->json || ++pages < WHY_PAGES_MAX));
    json_decref(after);
    if (status == EX_OK && !a->json) {
        why_print_message(&w, stdout, words_now());
    }
    why_print_fini(&w);
    rc = look_at_parts(ask, a, first, why_message);
    json_decref(first);
    status = status == EX_OK ? rc : status;
    return status == EX_OK && ask_is_offline(ask) ? EX_UNAVAILABLE : status;
}

/* Prints the number of messages while the daemon is down. The exit status shows that the daemon is
 * down. */
static int why_site_offline(struct ask *ask, const struct args *a)
{
    int status = EX_OK;
    json_t *answer = ask_or_say(
        ask, json_pack("{s:s, s:{s:s}}", "op", "count", "filter", "destination", a->words[0]),
        &status);

    if (answer == NULL) {
        return status;
    }
    if (a->json) {
        put_json(stdout, answer);
    } else {
        put_text(stdout, a->words[0]);
        printf(": %s in the queue; the daemon is not running, so nothing is delivered\n",
               words_count(member_integer(answer, "count"), "message").text);
    }
    json_decref(answer);
    return EX_UNAVAILABLE;
}

static int why_site(struct ask *ask, const struct args *a)
{
    json_t *question =
        json_pack("{s:s, s:{s:s}}", "op", "site", "filter", "destination", a->words[0]);
    json_t *site, *count;
    unsigned status;
    int exit_status = EX_OK;

    CHECK(question != NULL);
    status = ask_json(ask, question, &site);
    json_decref(question);
    if (status == ASK_NO_DAEMON) {
        json_decref(site);
        return why_site_offline(ask, a);
    }
    if (status != ASK_OK) {
        return ask_failed(status, site);
    }
    if (a->json) {
        put_json(stdout, site);
        json_decref(site);
        return EX_OK;
    }
    count = ask_or_say(
        ask, json_pack("{s:s, s:{s:s}}", "op", "count", "filter", "destination", a->words[0]),
        &exit_status);
    why_print_site(stdout, site, count, words_now());
    json_decref(count);
    json_decref(site);
    return exit_status;
}

/* Is it a control file below hash directories, such as "A/90417"? */
static bool is_control_path(const char *word)
{
    const char *at = word;

    while (at[0] >= 'A' && at[0] <= 'Z' && at[1] == '/') {
        at += 2;
    }
    return at != word && ascii_is_digit(at[0]) && strpbrk(at, "/.:[") == NULL;
}

static int look_why(struct ask *ask, const struct args *a)
{
    /* no queue id has one of these characters, and each domain or next hop has one */
    bool is_site = strpbrk(a->words[0], "/.:[") != NULL && !is_control_path(a->words[0]);

    return is_site ? why_site(ask, a) : why_message(ask, a, a->words[0]);
}

int run_why(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_why);
}

/* ---- tls ------------------------------------------------------------------------------------ */

/* Returns the exit status for scripts: success only if mail would be sent. */
static int tls_status(const json_t *answer)
{
    return strcmp(member_text(answer, "outcome"), "sent") == 0 ? EX_OK : EXIT_FAILURE;
}

static int look_tls(struct ask *ask, const struct args *a)
{
    json_t *question = json_pack("{s:s, s:s, s:i, s:i}", "op", "tls", "domain", a->words[0],
                                 "fetch", a->fetch ? 1 : 0, "connect", a->connect ? 1 : 0);
    json_t *answer;
    unsigned status;
    int exit_status;

    CHECK(question != NULL);
    status = ask_json(ask, question, &answer);
    json_decref(question);
    if (status != ASK_OK) {
        exit_status = ask_failed(status, answer);
        return status == 503 ? EX_TEMPFAIL : exit_status;
    }
    if (a->json) {
        put_json(stdout, answer);
    } else {
        tls_print(stdout, answer, words_now());
    }
    exit_status = tls_status(answer);
    json_decref(answer);
    return exit_status;
}

int run_tls(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_tls);
}

/* ---- status --------------------------------------------------------------------------------- */

static bool print_troubled_site(void *arg, const json_t *site)
{
    unsigned *shown = arg;

    if (strcmp(member_text(site, "state"), "ready") == 0) {
        return true;
    }
    if ((*shown)++ == STATUS_SITES_SHOWN) {
        puts("... and more");
        return false;
    }
    if (*shown == 1) {
        putchar('\n');
    }
    site_print(stdout, site, words_now());
    return true;
}

/* Prints the totals of the spool while the daemon is down. The exit status shows that the daemon is
 * down. */
static int status_offline(struct ask *ask, const struct args *a)
{
    json_t *totals;
    int status = EX_OK;

    totals = ask_or_say(ask, json_pack("{s:s}", "op", "totals"), &status);
    if (totals == NULL) {
        return status;
    }
    if (a->json) {
        put_json(stdout, totals);
    } else {
        queue_status_print(stdout, totals);
    }
    json_decref(totals);
    return EX_UNAVAILABLE;
}

/* Adds the values of all nodes as the member "cluster". */
static void add_cluster(struct ask *ask, json_t *answer)
{
    json_t *question = json_pack("{s:s}", "op", "cluster"), *cluster;

    if (ask_json(ask, question, &cluster) == ASK_OK) {
        json_put(answer, "cluster", json_incref(cluster));
    }
    json_decref(cluster);
    json_decref(question);
}

static int look_status(struct ask *ask, const struct args *a)
{
    json_t *question = json_pack("{s:s}", "op", "status"), *answer;
    unsigned status = ask_json(ask, question, &answer), shown = 0;

    json_decref(question);
    if (status == ASK_OK && json_object_get(answer, "node") != NULL) {
        add_cluster(ask, answer);
    }
    if (status == ASK_NO_DAEMON) {
        json_decref(answer);
        return status_offline(ask, a);
    }
    if (status != ASK_OK) {
        return ask_failed(status, answer);
    }
    if (a->json) {
        put_json(stdout, answer);
        json_decref(answer);
        return EX_OK;
    }
    queue_status_print(stdout, answer);
    json_decref(answer);
    return each_site(ask, print_troubled_site, &shown);
}

int run_status(const struct command *c, const struct args *a)
{
    (void)c;
    return with_ask(a, look_status);
}
