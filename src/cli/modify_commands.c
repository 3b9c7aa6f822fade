/* Commands that change the queue or the daemon. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "spool.h"
#include "words.h"

#define IDS_PER_QUESTION 200 /* limit of the API */
#define CLOCK_MAX        (INT64_C(100) * 365 * 86400)

/* A change and its progress. */
struct change {
    const char *op;
    const char *done; /* word for a changed message; NULL: do not list messages */
    const struct args *args;
    struct ask *ask;
    bool dry_run;
    int64_t matched, changed;
    int status; /* first failure */
};

static const struct {
    const char *op, *done;
} changes[] = {{"hold", "held"},
               {"release", "released"},
               {"delete", "deleted"},
               {"requeue", "requeued"},
               {"expire", "expired"}};

static void note(struct change *ch, int status)
{
    ch->status = ch->status == EX_OK ? status : ch->status;
}

/* ---- one query ------------------------------------------------------------------------------- */

static void print_errors(struct change *ch, const json_t *errors)
{
    const json_t *error;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)errors, i, error)
    {
        fputs("sluice: ", stderr);
        put_text(stderr, member_text(error, "id"));
        fputs(": ", stderr);
        put_text(stderr, member_text(error, "error"));
        fputc('\n', stderr);
        note(ch, EX_DATAERR);
    }
}

/* Sends a change of `targets` ({"ids": ...} or {"filter": ..., "after": ...}), which is taken.
 * *ret_next is the start of the next page, a new reference, or NULL. Returns false after a
 * failure. */
static bool change_some(struct change *ch, json_t *targets, json_t **ret_next)
{
    json_t *answer, *id;
    unsigned status;
    size_t i;

    CHECK(targets != NULL);
    CHECK(json_object_set_new(targets, "op", json_string(ch->op)) == 0);
    CHECK(json_object_set_new(targets, "dry_run", json_boolean(ch->dry_run)) == 0);
    status = ask_json(ch->ask, targets, &answer);
    json_decref(targets);
    *ret_next = NULL;
    if (status != ASK_OK) {
        note(ch, ask_failed(status, answer));
        return false;
    }
    ch->matched += member_integer(answer, "matched");
    ch->changed += (int64_t)json_array_size(json_object_get(answer, "changed"));
    json_array_foreach(json_object_get(answer, "changed"), i, id)
    {
        if (ch->done != NULL) {
            printf("%s: %s\n", json_string_value(id), ch->done);
        }
    }
    print_errors(ch, json_object_get(answer, "errors"));
    *ret_next = json_incref(json_object_get(answer, "next"));
    json_decref(answer);
    return true;
}

static bool change_filter(struct change *ch, json_t *filter)
{
    json_t *next = NULL;
    bool ok;

    do {
        ok = change_some(ch, json_pack("{s:O, s:o*}", "filter", filter, "after", next), &next);
    } while (ok && next != NULL);
    json_decref(next);
    return ok;
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Ids that are collected until a query is full. */
struct batch {
    struct change *change;
    json_t *ids; /* owned */
};

static bool batch_send(struct batch *b)
{
    json_t *next;
    bool ok = true;

    if (json_array_size(b->ids) > 0) {
        ok = change_some(b->change, json_pack("{s:O}", "ids", b->ids), &next);
        json_decref(next);
        json_decref(b->ids);
        b->ids = json_array();
    }
    return ok;
}

static bool batch_add(struct batch *b, const char *id)
{
    json_t *json = json_string(id);

    if (json == NULL) {
        fprintf(stderr, "sluice: an id that is not UTF-8 is left out\n");
        note(b->change, EX_DATAERR);
        return true;
    }
    CHECK(json_array_append_new(b->ids, json) == 0);
    return json_array_size(b->ids) < IDS_PER_QUESTION || batch_send(b);
}

/* Reads ids from standard input, separated by blanks or line ends. A word that is too long is cut;
 * the daemon then rejects it. */
static bool batch_read(struct batch *b)
{
    char word[64];
    bool ok = true;

    while (ok && scanf(" %63s%*[^ \t\r\n]", word) >= 1) {
        ok = batch_add(b, word);
    }
    if (ferror(stdin)) {
        perror("sluice: standard input");
        note(b->change, EX_IOERR);
    }
    return ok;
}

static bool change_ids(struct change *ch)
{
    struct batch b = {.change = ch, .ids = json_array()};
    bool ok = true;

    for (size_t i = 0; i < ch->args->word_count && ok; i++) {
        const char *word = ch->args->words[i];

        ok = strcmp(word, "-") == 0 ? batch_read(&b) : batch_add(&b, word);
    }
    ok = ok && batch_send(&b);
    json_decref(b.ids);
    return ok;
}

/* ---- filters -------------------------------------------------------------------------------- */

/* Asks for confirmation of a filter if standard input is a terminal, because it may match many
 * messages. Returns false to end the command. */
static bool confirmed(struct change *ch)
{
    struct change trial = *ch;
    char line[16];

    if (ch->dry_run || ch->args->yes || isatty(STDIN_FILENO) != 1) {
        return true;
    }
    trial.dry_run = true;
    if (!change_filter(&trial, ch->args->filter)) {
        ch->status = trial.status;
        return false;
    }
    if (trial.matched == 0) {
        return true;
    }
    fprintf(stderr, "%s %s? [y/N] ", ch->op, words_count(trial.matched, "message").text);
    if (fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y')) {
        return true;
    }
    fputs("nothing was done\n", stderr);
    ch->status = EXIT_FAILURE;
    return false;
}

static int change_and_sum_up(struct change *ch)
{
    bool ok;

    if (ch->args->word_count > 0) {
        ok = change_ids(ch);
    } else if (!confirmed(ch)) {
        return ch->status;
    } else {
        ok = change_filter(ch, ch->args->filter);
    }
    if (!ok && ch->changed == 0) {
        return ch->status; /* the error message suffices */
    }
    printf("%s matched, ", words_count(ch->matched, "message").text);
    if (ch->dry_run) {
        puts("nothing was done");
    } else {
        printf("%" PRId64 " %s\n", ch->changed, ch->done);
    }
    return ch->status;
}

int run_change(const struct command *c, const struct args *a)
{
    struct change ch = {.op = c->name, .args = a, .dry_run = a->dry_run};
    bool filtered = json_object_size(a->filter) > 0;
    struct conf *conf;
    size_t i = 0;
    int status;

    if ((a->word_count > 0) + filtered + a->all != 1) {
        return command_misused(c,
                               "either ids, or some of the options that select messages, or --all, "
                               "are expected");
    }
    while (strcmp(changes[i].op, c->name) != 0) {
        i++;
        CHECK(i < sizeof changes / sizeof changes[0]);
    }
    ch.done = changes[i].done;
    conf = command_places(a);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    ch.ask = ask_new(conf);
    status = change_and_sum_up(&ch);
    ask_free(ch.ask);
    conf_free(conf);
    return status;
}

/* ---- flush ---------------------------------------------------------------------------------- */

int run_flush(const struct command *c, const struct args *a)
{
    struct change ch = {.op = "flush", .args = a};
    struct conf *conf;
    struct msg_id id;
    bool ok;

    /* no host name looks like a queue id: capitals and digits without a dot */
    if (a->word_count > 0 && spool_id_parse(slice_string(a->words[0]), &id)) {
        conf = command_places(a);
        if (conf == NULL) {
            return EX_CONFIG;
        }
        ch.ask = ask_new(conf);
        ok = change_ids(&ch);
        if (ok && ch.status == EX_OK) {
            printf("%s due now\n", words_count(ch.changed, "message").text);
        }
        ask_free(ch.ask);
        conf_free(conf);
        return ch.status;
    }
    if (a->word_count > 1) {
        return command_misused(c, "one destination, or queue ids, are expected");
    }
    if (a->word_count > 0) {
        json_t *destination = json_string(a->words[0]);

        if (destination == NULL || a->words[0][0] == '\0') {
            json_decref(destination);
            return command_misused(c, "a destination in UTF-8 is expected");
        }
        CHECK(json_object_set_new(a->filter, "destination", destination) == 0);
    }
    conf = command_places(a);
    if (conf == NULL) {
        return EX_CONFIG;
    }
    ch.ask = ask_new(conf);
    if (change_filter(&ch, a->filter)) {
        printf("%s due now\n", words_count(ch.changed, "message").text);
    }
    ask_free(ch.ask);
    conf_free(conf);
    return ch.status;
}

/* ---- whole daemon ---------------------------------------------------------------------------- */

/* Sends the query and frees it. Prints `done` if it succeeds. */
static int tell_daemon(const struct args *a, json_t *question, const char *done)
{
    struct conf *conf = command_places(a);
    int status = EX_OK;
    json_t *answer;
    struct ask *ask;
    unsigned http_status;

    CHECK(question != NULL);
    if (conf == NULL) {
        json_decref(question);
        return EX_CONFIG;
    }
    ask = ask_new(conf);
    http_status = ask_json(ask, question, &answer);
    if (http_status != ASK_OK) {
        status = ask_failed(http_status, answer);
    } else {
        put_error(member_text(answer, "warnings"));
        puts(done);
        json_decref(answer);
    }
    json_decref(question);
    ask_free(ask);
    conf_free(conf);
    return status;
}

int run_reload(const struct command *c, const struct args *a)
{
    (void)c;
    return tell_daemon(a, json_pack("{s:s}", "op", "reload"), "the new configuration holds");
}

int run_stop(const struct command *c, const struct args *a)
{
    (void)c;
    return tell_daemon(a, json_pack("{s:s}", "op", "stop"), "stopping");
}

int run_clock(const struct command *c, const struct args *a)
{
    struct slice text = slice_string(a->words[0]);
    unsigned long long seconds;

    if (text.len == 0 || text.ptr[0] != '+' ||
        !slice_number(slice_skip(text, 1), CLOCK_MAX, &seconds)) {
        return command_misused(c, "+SECONDS is expected");
    }
    return tell_daemon(
        a, json_pack("{s:s, s:I}", "op", "clock", "offset_seconds", (json_int_t)seconds),
        "the clock was moved");
}
