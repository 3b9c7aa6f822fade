/* Commands for overrides: set, list and cancel them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "commands.h"
#include "intervention.h"
#include "json.h"
#include "limit_clauses.h"
#include "mem.h"
#include "value.h"
#include "words.h"

/* ---- queries --------------------------------------------------------------------------------- */

/* State of a running command. */
struct talk {
    struct conf *conf;
    struct ask *ask;
};

static bool talk_begin(struct talk *t, const struct args *a)
{
    t->conf = command_places(a);
    if (t->conf == NULL) {
        return false;
    }
    t->ask = ask_new(t->conf);
    return true;
}

static int talk_end(struct talk *t, int status)
{
    ask_free(t->ask);
    conf_free(t->conf);
    return status;
}

/* ---- setting -------------------------------------------------------------------------------- */

/* Adds the target of the override to the query. Returns false with *ret_error if the target is
 * missing, given twice, or not UTF-8. */
static bool put_target(const struct args *a, json_t *question, const char *destination,
                       const char **ret_error)
{
    json_t *sender = json_object_get(a->filter, "sender"), *class;
    json_t *text = destination == NULL ? NULL : json_string(destination);

    class = json_object_get(a->filter, "class");
    if ((destination != NULL) + (sender != NULL) + (class != NULL) != 1) {
        json_decref(text);
        *ret_error = "either a destination, or --sender, or --class is expected";
        return false;
    }
    if (destination != NULL && text == NULL) {
        *ret_error = "a destination in UTF-8 is expected";
        return false;
    }
    if (text != NULL) {
        json_put(question, "destination", text);
    } else if (sender != NULL) {
        json_put(question, "sender", json_incref(sender));
    } else {
        json_put(question, "class", json_incref(class));
    }
    return true;
}

/* Adds reason and end of the override to the query. Returns false with *ret_error on error. */
static bool put_terms(const struct args *a, json_t *question, const char **ret_error)
{
    json_t *reason = a->reason == NULL ? NULL : json_string(a->reason);
    int64_t time;

    if (a->reason != NULL && reason == NULL) {
        *ret_error = "--reason: a text in UTF-8 is expected";
        return false;
    }
    if (reason != NULL) {
        json_put(question, "reason", reason);
    }
    if (a->for_time != NULL) {
        if (!interval_parse(slice_string(a->for_time), US_PER_S, &time) || time < US_PER_S) {
            *ret_error = "--for: a time like 90s, 30m, 2h or 1d is expected";
            return false;
        }
        json_put(question, "for", json_integer(time / US_PER_S));
    }
    return true;
}

/* Prints "smtp/example.org", "<a@b>" or "class bulk". */
static void print_target(FILE *out, const json_t *i)
{
    if (json_object_get(i, "destination") != NULL) {
        put_text(out, member_text(i, "destination"));
    } else if (json_object_get(i, "sender") != NULL) {
        fputs("sender ", out);
        put_text(out, member_text(i, "sender"));
    } else {
        fputs("class ", out);
        put_text(out, member_text(i, "class"));
    }
}

static void print_values(FILE *out, const json_t *values)
{
    const char *name, *before = "";
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)values, name, value)
    {
        fputs(before, out);
        put_text(out, name);
        fputc('=', out);
        put_text(out, json_string_value(value));
        before = " ";
    }
}

static void print_line(FILE *out, const json_t *i)
{
    const char *verb = member_text(i, "verb");

    put_text(out, member_text(i, "name"));
    fprintf(out, ": %s ", verb);
    print_target(out, i);
    if (strcmp(verb, "redirect") == 0) {
        fputs(" to ", out);
        put_text(out, member_text(i, "nexthop"));
    }
    if (strcmp(verb, "limit") == 0) {
        fputc(' ', out);
        print_values(out, json_object_get(i, "values"));
    }
    if (json_object_get(i, "until") != NULL) {
        fprintf(out, ", until %s", words_when(member_number(i, "until"), words_now()).text);
    }
    if (json_is_true(json_object_get(i, "local"))) {
        fputs(", at node ", out);
        put_text(out, member_text(i, "node"));
        fputs(" alone", out);
    }
    fputs(json_is_true(json_object_get(i, "unreadable")) ? ", IN PLACE OF ONE THAT CAN'T BE READ\n"
                                                         : "\n",
          out);
}

/* Prints the nodes that have not confirmed the override yet. */
static void say_not_confirmed(const json_t *answer)
{
    const json_t *names = json_object_get(answer, "not_confirmed"), *name;
    size_t i;

    if (json_array_size(names) == 0) {
        return;
    }
    fputs("sluice: in force at all nodes but ", stderr);
    json_array_foreach(names, i, name)
    {
        fputs(i > 0 ? ", " : "", stderr);
        put_text(stderr, json_string_value(name) != NULL ? json_string_value(name) : "?");
    }
    fputs(": not confirmed there in time; such a node follows by itself, or loses its lease\n",
          stderr);
}

/* Sends the query and frees it. Prints the override. */
static int set(struct talk *t, const struct args *a, json_t *question)
{
    json_t *answer;
    unsigned status;

    json_put(question, "op", json_string("intervene"));
    status = ask_json(t->ask, question, &answer);
    json_decref(question);
    if (status != ASK_OK) {
        return ask_failed(status, answer);
    }
    if (a->json) {
        put_json(stdout, answer);
    } else {
        print_line(stdout, answer);
    }
    say_not_confirmed(answer);
    json_decref(answer);
    return EX_OK;
}

/* Asks for confirmation, if standard input is a terminal, because returned mail can't be
 * recovered. */
static bool confirmed(struct talk *t, const struct args *a, const json_t *question)
{
    json_t *filter = json_object(), *count, *answer;
    const char *const names[] = {"destination", "sender", "class"};
    char line[16];

    if (a->yes || isatty(STDIN_FILENO) != 1) {
        json_decref(filter);
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *value = json_object_get(question, names[i]);

        if (value != NULL) {
            json_put(filter, names[i], json_incref(value));
        }
    }
    count = json_pack("{s:s, s:o}", "op", "count", "filter", filter);
    CHECK(count != NULL);
    fputs("return ", stderr);
    if (ask_json(t->ask, count, &answer) == ASK_OK) {
        fprintf(stderr, "%s that wait%s, ",
                words_count(member_integer(answer, "count"), "message").text,
                member_integer(answer, "count") == 1 ? "s" : "");
    }
    fputs("and what comes, to the senders? [y/N] ", stderr);
    json_decref(answer);
    json_decref(count);
    if (fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y')) {
        return true;
    }
    fputs("nothing was done\n", stderr);
    return false;
}

/* Sets an override. `values` are those of a limit, otherwise NULL; taken. */
static int intervene(const struct command *c, const struct args *a, json_t *values)
{
    const char *destination = a->word_count > 0 ? a->words[0] : NULL, *error = NULL;
    json_t *question = json_pack("{s:s}", "verb", c->name);
    bool is_redirect = strcmp(c->name, "redirect") == 0;
    struct talk t;
    int status;

    if (values != NULL) {
        json_put(question, "values", values);
    }
    if (!put_target(a, question, destination, &error) || !put_terms(a, question, &error)) {
        json_decref(question);
        return command_misused(c, error);
    }
    if (is_redirect) {
        json_t *nexthop = json_string(a->words[1]);

        if (nexthop == NULL) {
            json_decref(question);
            return command_misused(c, "a next hop in UTF-8 is expected");
        }
        json_put(question, "nexthop", nexthop);
    }
    if (!talk_begin(&t, a)) {
        json_decref(question);
        return EX_CONFIG;
    }
    if (strcmp(c->name, "bounce") == 0 && !confirmed(&t, a, question)) {
        json_decref(question);
        return talk_end(&t, EXIT_FAILURE);
    }
    status = set(&t, a, question);
    return talk_end(&t, status);
}

int run_intervene(const struct command *c, const struct args *a)
{
    return intervene(c, a, NULL);
}

int run_limit(const struct command *c, const struct args *a)
{
    json_t *values = json_object();

    for (size_t i = 1; i < a->word_count; i++) {
        struct slice value = slice_string(a->words[i]), name = slice_cut(&value, '=');
        json_t *text = value.ptr == NULL ? NULL : json_stringn(value.ptr, value.len);

        if (name.len == 0 || text == NULL ||
            json_object_setn_new(values, name.ptr, name.len, text) != 0) {
            json_decref(values);
            return command_misused(c, "NAME=VALUE is expected behind the destination");
        }
    }
    return intervene(c, a, values);
}

/* ---- listing -------------------------------------------------------------------------------- */

/* Prints the nodes whose recipients are missing in the counts. */
static void say_failed(const json_t *failed)
{
    const json_t *words;
    size_t i;

    json_array_foreach(failed, i, words)
    {
        fputs("sluice: ", stderr);
        put_text(stderr, json_string_value(words) != NULL ? json_string_value(words) : "?");
        fputs(": its recipients are not counted\n", stderr);
    }
}

static json_t *list_all(struct talk *t, int *ret_status)
{
    json_t *all = json_array(), *next = NULL;

    do {
        json_t *question = json_pack("{s:s, s:o*}", "op", "interventions", "cursor", next);
        json_t *answer;
        unsigned status;

        CHECK(question != NULL);
        status = ask_json(t->ask, question, &answer);
        json_decref(question);
        if (status != ASK_OK) {
            json_decref(all);
            *ret_status = ask_failed(status, answer);
            return NULL;
        }
        CHECK(json_array_extend(all, json_object_get(answer, "interventions")) == 0);
        say_failed(json_object_get(answer, "failed"));
        next = json_incref(json_object_get(answer, "next"));
        json_decref(answer);
    } while (next != NULL);
    return all;
}

/* Prints the clauses of a configuration that have the effect of all limits. */
static void print_clauses(const struct conf *conf, const json_t *all)
{
    struct intervention **limits = mem_array(json_array_size(all) + 1, sizeof *limits);
    struct limit_clause *clauses;
    size_t n, count = 0, clause_count;
    struct buf error;
    json_t *i;

    buf_init(&error, 4096);
    json_array_foreach((json_t *)(uintptr_t)all, n, i)
    {
        if (strcmp(member_text(i, "verb"), "limit") != 0) {
            continue;
        }
        limits[count] = intervention_read_stored(conf, i, &error);
        if (limits[count] == NULL) { /* a daemon of another version has it */
            fprintf(stderr, "sluice: %s: %s\n", member_text(i, "name"), buf_cstr(&error));
            buf_clear(&error);
            continue;
        }
        intervention_number(limits[count++], (uint64_t)member_integer(i, "number"));
    }
    clauses = limit_clauses_new((const struct intervention *const *)limits, count, &clause_count);
    for (n = 0; n < clause_count; n++) {
        put_text(stdout, clauses[n].pattern);
        fputs("\n    ", stdout);
        print_values(stdout, clauses[n].values);
        fputc('\n', stdout);
    }
    limit_clauses_free(clauses, clause_count);
    for (n = 0; n < count; n++) {
        intervention_unref(limits[n]);
    }
    mem_free(limits);
    buf_fini(&error);
}

static void print_long(const json_t *i)
{
    print_line(stdout, i);
    fprintf(stdout, "    since %s", words_when(member_number(i, "since"), words_now()).text);
    if (member_integer(i, "recipients") > 0) {
        printf(", %s met", words_count(member_integer(i, "recipients"), "recipient").text);
    }
    if (member_text(i, "by")[0] != '\0') {
        fputs(", asked by ", stdout);
        put_text(stdout, member_text(i, "by"));
    }
    if (member_text(i, "node")[0] != '\0') {
        fputs(" at node ", stdout);
        put_text(stdout, member_text(i, "node"));
    }
    fputc('\n', stdout);
    if (member_text(i, "reason")[0] != '\0') {
        fputs("    ", stdout);
        put_text(stdout, member_text(i, "reason"));
        fputc('\n', stdout);
    }
}

int run_interventions(const struct command *c, const struct args *a)
{
    struct talk t;
    json_t *all, *i;
    size_t n;
    int status = EX_OK;

    (void)c;
    if (!talk_begin(&t, a)) {
        return EX_CONFIG;
    }
    all = list_all(&t, &status);
    json_array_foreach(all, n, i)
    {
        if (!a->as_config && !a->json) {
            print_long(i);
        }
    }
    if (all != NULL && a->as_config) {
        print_clauses(t.conf, all);
    }
    if (all != NULL && a->json && !a->as_config) {
        put_json(stdout, all);
    }
    json_decref(all);
    return talk_end(&t, status);
}

/* ---- cancelling ----------------------------------------------------------------------------- */

static int cancel(struct talk *t, const char *name)
{
    json_t *question = json_pack("{s:s, s:s}", "op", "cancel", "id", name), *answer;
    unsigned status;

    if (question == NULL) {
        fputs("sluice: a name in UTF-8 is expected\n", stderr);
        return EX_USAGE;
    }
    status = ask_json(t->ask, question, &answer);
    json_decref(question);
    if (status != ASK_OK) {
        return ask_failed(status, answer);
    }
    put_text(stdout, name);
    puts(": cancelled");
    say_not_confirmed(answer);
    json_decref(answer);
    return EX_OK;
}

int run_cancel(const struct command *c, const struct args *a)
{
    int status = EX_OK;
    struct talk t;

    (void)c;
    if (!talk_begin(&t, a)) {
        return EX_CONFIG;
    }
    for (size_t i = 0; i < a->word_count; i++) {
        int one = cancel(&t, a->words[i]);

        status = status == EX_OK ? one : status;
    }
    return talk_end(&t, status);
}

/* Is it the pause that `resume` names, by its name or its target? */
static bool is_meant(const json_t *i, const json_t *wanted)
{
    const char *const names[] = {"destination", "sender", "class"};
    const char *word = json_string_value(json_object_get(wanted, "destination"));

    if (strcmp(member_text(i, "verb"), "pause") != 0) {
        return false;
    }
    if (word != NULL && strcmp(member_text(i, "name"), word) == 0) {
        return true;
    }
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const char *want = json_string_value(json_object_get(wanted, names[n]));
        const char *is = json_string_value(json_object_get(i, names[n]));
        size_t len = want != NULL ? strlen(want) : 0;

        if (want == NULL || is == NULL) {
            continue;
        }
        if (strcasecmp(want, is) == 0 || (is[0] == '@' && strcasecmp(want, is + 1) == 0)) {
            return true;
        }
        /* "smtp" and "smtp/" are shown as smtp with a star */
        if (strncasecmp(want, is, len) == 0 &&
            (strcmp(is + len, "/*") == 0 ||
             (len > 0 && want[len - 1] == '/' && strcmp(is + len, "*") == 0))) {
            return true;
        }
    }
    return false;
}

int run_resume(const struct command *c, const struct args *a)
{
    const char *error = NULL;
    json_t *wanted = json_object(), *all, *i;
    int status = EX_OK;
    size_t n, count = 0;
    struct talk t;

    if (!put_target(a, wanted, a->word_count > 0 ? a->words[0] : NULL, &error)) {
        json_decref(wanted);
        return command_misused(c, error);
    }
    if (!talk_begin(&t, a)) {
        json_decref(wanted);
        return EX_CONFIG;
    }
    all = list_all(&t, &status);
    json_array_foreach(all, n, i)
    {
        if (is_meant(i, wanted)) {
            int one = cancel(&t, member_text(i, "name"));

            status = status == EX_OK ? one : status;
            count++;
        }
    }
    if (all != NULL && count == 0) {
        fputs("sluice: no pause is about that alone; sluice interventions lists what there is\n",
              stderr);
        status = EX_NOINPUT;
    }
    json_decref(all);
    json_decref(wanted);
    return talk_end(&t, status);
}
