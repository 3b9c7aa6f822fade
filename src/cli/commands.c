#include "commands.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "check.h"
#include "completion.h"
#include "dialect.h"
#include "mem.h"
#include "nearest.h"
#include "words.h"

#define ERROR_MAX    4096
#define PROBLEMS_MAX (1u << 20)

static int run_help(const struct command *c, const struct args *a);
static int run_completion(const struct command *c, const struct args *a);

static const struct command commands[] = {
    {"queue", "", 0, 0, ARG_JSON | ARG_FILTER | ARG_QUEUE | ARG_MAILQ, false,
     "list messages, as mailq does", run_queue},
    {"count", "", 0, 0, ARG_JSON | ARG_FILTER, false, "count messages", run_count},
    {"show", "ID...", 1, COMMAND_ANY, ARG_JSON, false, "all that is known of messages", run_show},
    {"cat", "ID", 1, 1, ARG_CONTENT, false, "print a message's content", run_cat},
    {"why", "ID | TRANSPORT/NEXTHOP", 1, 1, ARG_JSON, false,
     "what a message or a destination waits for", run_why},
    {"tls", "DOMAIN", 1, 1, ARG_JSON | ARG_TLS, false,
     "what TLS mail for a domain would get, and why", run_tls},
    {"events", "", 0, 0, ARG_EVENTS, false, "print events as they come, lines of JSON", run_events},
    {"trace", "[ID]", 0, 1, ARG_TRACE | ARG_JSON, false,
     "commands and replies of SMTP connections as they pass, without passwords and content",
     run_trace},
    {"status", "", 0, 0, ARG_JSON, false, "an overview", run_status},
    {"destinations", "", 0, 0, ARG_JSON, false, "recipients that wait, by destination",
     run_destinations},
    {"top", "", 0, 0, 0, false, "the queue and its destinations on a terminal, as they change",
     run_top},
    {"shape", "", 0, 0, ARG_JSON | ARG_SHAPE, false,
     "recipients that wait, by destination, sender or class, and by age", run_shape},
    {"hold", "[ID... | -]", 0, COMMAND_ANY, ARG_FILTER | ARG_CHANGE, false,
     "keep messages until they are released", run_change},
    {"release", "[ID... | -]", 0, COMMAND_ANY, ARG_FILTER | ARG_CHANGE, false,
     "let held messages go on now, and deferred ones that are named", run_change},
    {"delete", "[ID... | -]", 0, COMMAND_ANY, ARG_FILTER | ARG_CHANGE, false,
     "remove messages without a report", run_change},
    {"requeue", "[ID... | -]", 0, COMMAND_ANY, ARG_FILTER | ARG_CHANGE, false,
     "submit messages again: rules, filters, class, route; they get new ids", run_change},
    {"expire", "[ID... | -]", 0, COMMAND_ANY, ARG_FILTER | ARG_CHANGE, false,
     "give messages up, with a report to the sender", run_change},
    {"flush", "[DESTINATION | ID...]", 0, COMMAND_ANY, 0, false,
     "try all mail now, or that for a destination, or these messages", run_flush},
    {"pause", "[DESTINATION]", 0, 1, ARG_INTERVENE | ARG_TERMS | ARG_JSON, false,
     "let mail wait on disk, what is there and what comes", run_intervene},
    {"resume", "[DESTINATION | INTERVENTION]", 0, 1, ARG_INTERVENE, false, "end a pause",
     run_resume},
    {"bounce", "[DESTINATION]", 0, 1, ARG_INTERVENE | ARG_TERMS | ARG_CONFIRM | ARG_JSON, false,
     "return mail to its senders, what is there and what comes", run_intervene},
    {"redirect", "DESTINATION NEXTHOP", 2, 2, ARG_TERMS | ARG_JSON, false,
     "send mail to another next hop, what is there and what comes", run_intervene},
    {"limit", "DESTINATION NAME=VALUE...", 2, COMMAND_ANY, ARG_TERMS | ARG_JSON, false,
     "change parameters of a destination, now", run_limit},
    {"interventions", "", 0, 0, ARG_JSON | ARG_INTERVENTIONS, false,
     "what was paused, bounced, redirected, limited", run_interventions},
    {"cancel", "INTERVENTION...", 1, COMMAND_ANY, 0, false, "end interventions", run_cancel},
    {"reload", "", 0, 0, 0, false, "let the daemon read its configuration again", run_reload},
    {"stop", "", 0, 0, 0, false, "shut the daemon down gracefully", run_stop},
    {"clock", "+SECONDS", 1, 1, 0, true, "shift the daemon's clock (debug_clock = yes)", run_clock},
    {"config check", "[FILE]", 0, 1, 0, false, "print what is wrong with a configuration",
     run_config_check},
    {"config show", "[NAME...]", 0, COMMAND_ANY, ARG_CONFIG, false, "print parameters",
     run_config_show},
    {"config import", "DIR", 1, 1, 0, false, "translate a configuration of Postfix (/etc/postfix)",
     run_config_import},
    {"config test", "[FILE]", 0, 1, ARG_RULES, false, "what rules at arrival do with a mail",
     run_config_test},
    {"postfix check", "[DIR]", 0, 1, 0, false,
     "what differs in the Postfix of /etc/postfix, or DIR, with sluice-qmgr", run_postfix_check},
    {"config explain", "NAME", 1, 1, 0, false, "what a parameter means", run_config_explain},
    {"auth add", "USER [FILE]", 1, 2, ARG_AUTH, false,
     "let a user log in to send mail, or change its password", run_auth_add},
    {"auth remove", "USER [FILE]", 1, 2, 0, false, "let a user log in no more", run_auth_remove},
    {"auth list", "[FILE]", 0, 1, ARG_JSON, false, "the users that may log in", run_auth_list},
    {"token add", "NAME [FILE]", 1, 2, ARG_AUTH | ARG_TOKEN, false,
     "make a token for a program, and print it", run_token_add},
    {"token remove", "NAME [FILE]", 1, 2, 0, false, "a token is no longer valid", run_token_remove},
    {"token list", "[FILE]", 0, 1, 0, false, "the tokens of programs", run_token_list},
    {"spool check", "[PATH]", 0, 1, 0, false, "look for damage in the store", run_spool_check},
    {"spool repair", "[PATH]", 0, 1, 0, false,
     "make a new database of what is left of a damaged one; the daemon must be stopped",
     run_spool_repair},
    {"cluster init", "[URL]", 0, 1, 0, false, "make the tables of a queue in a database",
     run_cluster_init},
    {"cluster check", "[URL]", 0, 1, ARG_REPAIR, false,
     "look at the settings of a cluster's database, and for rows that nothing names",
     run_cluster_check},
    {"cluster upgrade", "[URL]", 0, 1, 0, false,
     "raise the format of a cluster's tables, when all nodes have the new program",
     run_cluster_upgrade},
    {"cluster accept-loss", "[URL]", 0, 1, ARG_CONFIRM, false,
     "show which acknowledged changes a promoted server lacks; with --yes, go on without them",
     run_cluster_accept_loss},
    {"cluster restored", "[URL]", 0, 1, ARG_CONFIRM, false,
     "after a backup was restored: put all mail on hold, as it may have been delivered since",
     run_cluster_restored},
    {"node list", "[URL]", 0, 1, ARG_JSON, false, "the nodes of a cluster, and what they have",
     run_node_list},
    {"node drain", "NAME [URL]", 1, 2, ARG_WAIT, false,
     "let other nodes have what a node has; it accepts mail, and no more than that",
     run_node_drain},
    {"node undrain", "NAME [URL]", 1, 2, 0, false, "let a node have its share again",
     run_node_undrain},
    {"node remove", "NAME [URL]", 1, 2, 0, false, "forget a node that will not come back",
     run_node_remove},
    {"import postfix", "DIR", 1, 1, ARG_MOVE, false,
     "move all mail of a stopped Postfix into the spool of a stopped sluiced", run_import},
    {"export postfix", "DIR", 1, 1, ARG_MOVE, false,
     "move all mail of a stopped sluiced into the queue of a stopped Postfix", run_export},
    {"completion", "bash|zsh", 1, 1, 0, false, "print the script with which a shell completes",
     run_completion},
    {"help", "[COMMAND]", 0, 2, 0, false, "what a command does and takes", run_help},
    {"sim run", "", 0, 0, ARG_SIM_RUN | ARG_JSON, false, "simulate mail under a configuration",
     run_sim_run},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

/* ---- usage ---------------------------------------------------------------------------------- */

static void print_command_usage(FILE *out, const struct command *c)
{
    fprintf(out, "usage: sluice %s [OPTIONS]%s%s\n%s\n", c->name, c->operands[0] == '\0' ? "" : " ",
            c->operands, c->meaning);
    args_print_usage(out, c->groups | ARG_COMMAND);
}

static void print_usage(FILE *out)
{
    fputs("usage: sluice [-c FILE] COMMAND [OPTIONS] ...\n", out);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (!commands[i].hidden) {
            fprintf(out, "  %-15s %s\n", commands[i].name, commands[i].meaning);
        }
    }
    fputs("`sluice COMMAND --help' has more, and sluice(1) everything.\n", out);
    args_print_usage(out, ARG_PROGRAM);
}

int command_misused(const struct command *c, const char *text)
{
    fprintf(stderr, "sluice %s: %s (sluice %s --help)\n", c->name, text, c->name);
    return EX_USAGE;
}

static int program_misused(const char *text)
{
    fprintf(stderr, "sluice: %s (sluice --help)\n", text);
    return EX_USAGE;
}

/* ---- look-up --------------------------------------------------------------------------------- */

/* Finds the command at the start of argv. *ret_words is the number of words in its name. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct slice second = slice_string(commands[i].name), first = slice_cut(&second, ' ');

        if (slice_equal(slice_string(argv[0]), first) &&
            (second.ptr == NULL || (argc > 1 && slice_equal(slice_string(argv[1]), second)))) {
            *ret_words = second.ptr == NULL ? 1 : 2;
            return &commands[i];
        }
    }
    return NULL;
}

/* Is it the first word of commands with two words? *names gets their second words: "a, b or c". */
static bool is_family(const char *word, struct buf *names)
{
    struct slice last = {0};

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct slice second = slice_string(commands[i].name), first = slice_cut(&second, ' ');

        if (second.ptr == NULL || !slice_equal(slice_string(word), first)) {
            continue;
        }
        if (last.ptr != NULL) {
            (void)buf_addf(names, "%s%.*s", buf_len(names) == 0 ? "" : ", ",
                           SLICE_ARGS(last)); /* fits: names are short */
        }
        last = second;
    }
    (void)buf_addf(names, "%s%.*s", buf_len(names) == 0 ? "" : " or ", SLICE_ARGS(last));
    return last.ptr != NULL;
}

static int unknown_command(int argc, char **argv)
{
    struct nearest nearest;
    struct buf typed, names;
    bool family;

    buf_init(&typed, ERROR_MAX);
    buf_init(&names, ERROR_MAX);
    family = is_family(argv[0], &names);
    (void)buf_addf(&typed, family && argc > 1 ? "%s %s" : "%s", argv[0],
                   argc > 1 ? argv[1] : ""); /* a longer one resembles no command */
    nearest_init(&nearest, buf_slice(&typed));
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        nearest_try(&nearest, commands[i].name);
    }
    if (family && argc == 1) {
        fprintf(stderr, "sluice: %s: %s is expected", argv[0], buf_cstr(&names));
    } else {
        fputs("sluice: unknown command ", stderr);
        put_text(stderr, typed.failed ? argv[0] : buf_cstr(&typed));
    }
    if (nearest.name != NULL && !(family && argc == 1)) {
        fprintf(stderr, ", did you mean %s?", nearest.name);
    }
    fputs(" (sluice --help)\n", stderr);
    buf_fini(&names);
    buf_fini(&typed);
    return EX_USAGE;
}

/* ---- help and completion --------------------------------------------------------------------- */

static int run_completion(const struct command *c, const struct args *a)
{
    if (strcmp(a->words[0], "bash") == 0) {
        completion_bash(stdout, commands, COMMAND_COUNT);
    } else if (strcmp(a->words[0], "zsh") == 0) {
        completion_zsh(stdout, commands, COMMAND_COUNT);
    } else {
        return command_misused(c, "bash or zsh is expected");
    }
    return EX_OK;
}

/* Prints the usage of all commands with this first word. */
static void print_family_usage(const char *word)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct slice second = slice_string(commands[i].name), first = slice_cut(&second, ' ');

        if (second.ptr != NULL && slice_equal(slice_string(word), first)) {
            print_command_usage(stdout, &commands[i]);
        }
    }
}

/* Runs `sluice help` or `sluice help COMMAND`; argv is that command. */
static int help(int argc, char **argv)
{
    const struct command *c;
    struct buf names;
    bool family;
    int words;

    if (argc == 0) {
        print_usage(stdout);
        return EX_OK;
    }
    c = find_command(argc, argv, &words);
    if (c != NULL) {
        print_command_usage(stdout, c);
        return EX_OK;
    }
    buf_init(&names, ERROR_MAX);
    family = argc == 1 && is_family(argv[0], &names);
    buf_fini(&names);
    if (!family) {
        return unknown_command(argc, argv);
    }
    print_family_usage(argv[0]);
    return EX_OK;
}

static int run_help(const struct command *c, const struct args *a)
{
    (void)c;
    return help((int)a->word_count, a->words);
}

/* ---- running commands ------------------------------------------------------------------------ */

/* Does a daemon run with the embedded configuration, whose paths are below this directory? */
static bool embedded_runs_here(void)
{
    struct conf_problems problems;
    struct conf *conf = conf_load(NULL, NULL, &problems);
    bool runs = conf != NULL && access(conf->control_socket, F_OK) == 0;

    conf_free(conf);
    conf_problems_fini(&problems);
    return runs;
}

const char *command_conf_path(const struct args *a)
{
    const char *path = a->conf_path != NULL ? a->conf_path : bundle_default_path();

    return path != NULL || embedded_runs_here() ? path : conf_dialect_made();
}

static void print_problems(const struct conf_problems *problems)
{
    struct buf text;

    buf_init(&text, PROBLEMS_MAX);
    conf_print_problems(&text, problems);
    text.failed = false; /* print as many as fit */
    put_error(buf_cstr(&text));
    buf_fini(&text);
}

struct conf *command_conf(const struct args *a)
{
    struct conf_problems problems;
    struct conf *conf = conf_load(command_conf_path(a), NULL, &problems);

    if (conf == NULL) {
        print_problems(&problems);
    }
    conf_problems_fini(&problems);
    return conf;
}

struct conf *command_conf_with(const struct args *a, struct slice line)
{
    const char *path = command_conf_path(a), *slash = path == NULL ? NULL : strrchr(path, '/');
    size_t directory_len = slash == NULL ? 0 : (size_t)(slash - path) + 1;
    char *directory = slash == NULL ? mem_copy(".", 1) : mem_copy(path, directory_len);
    struct conf_problems problems;
    struct conf *conf;
    struct buf text;

    buf_init(&text, CONF_FILE_MAX);
    if (path == NULL) {
        (void)buf_add_string(&text, conf_default_text); /* fits, as all appends here */
    } else {
        (void)buf_addf(&text, "include %s\n", path + directory_len);
    }
    (void)buf_addf(&text, "%.*s\n", SLICE_ARGS(line));
    conf = conf_load_text(buf_slice(&text), "--set", directory, NULL, &problems);
    if (conf == NULL) {
        print_problems(&problems);
    }
    conf_problems_fini(&problems);
    buf_fini(&text);
    mem_free(directory);
    return conf;
}

struct conf *command_places(const struct args *a)
{
    static const char *const needed[] = {"state_directory", "control_socket", NULL};
    struct conf_problems problems;
    struct conf *conf = conf_load_places(command_conf_path(a), needed, &problems);

    if (conf == NULL) {
        print_problems(&problems);
    } else if (problems.errors > 0) {
        put_error(
            "the configuration has errors (see sluice config check); only where the daemon is "
            "was taken from it");
    }
    conf_problems_fini(&problems);
    return conf;
}

/* Checks that all output was written. If the reader of a pipe has closed it, SIGPIPE has already
 * ended us. */
static int close_output(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("sluice: standard output");
        return status == EX_OK ? EX_IOERR : status;
    }
    return status;
}

static int run_command(const struct command *c, struct args *a, int argc, char **argv)
{
    struct buf error;
    int status;

    buf_init(&error, ERROR_MAX);
    if (args_parse(a, c->groups | ARG_COMMAND, false, argc, argv, &error) < 0) {
        status = command_misused(c, error.failed ? "bad option" : buf_cstr(&error));
    } else if (a->help) {
        print_command_usage(stdout, c);
        status = EX_OK;
    } else if (a->word_count < c->least || a->word_count > c->most) {
        (void)buf_addf(&error, "%s expected", c->most == 0 ? "no arguments are" : c->operands);
        status = command_misused(c, buf_cstr(&error));
    } else {
        status = c->run(c, a);
    }
    buf_fini(&error);
    return status;
}

static int run_line(struct args *a, int argc, char **argv)
{
    const struct command *c;
    struct buf error;
    int used, words, status;

    buf_init(&error, ERROR_MAX);
    used = args_parse(a, ARG_PROGRAM, true, argc, argv, &error);
    if (used < 0) {
        status = program_misused(error.failed ? "bad option" : buf_cstr(&error));
    } else if (a->version) {
        printf("sluice %s\n", SLUICE_VERSION);
        status = EX_OK;
    } else if (a->help) {
        print_usage(stdout);
        status = EX_OK;
    } else if (used == argc) {
        print_usage(stderr);
        status = EX_USAGE;
    } else if (argc - used == 2 && strcmp(argv[used + 1], "--help") == 0) {
        status = help(1, argv + used);
    } else if ((c = find_command(argc - used, argv + used, &words)) == NULL) {
        status = unknown_command(argc - used, argv + used);
    } else {
        status = run_command(c, a, argc - used - words, argv + used + words);
    }
    buf_fini(&error);
    return status;
}

int commands_main(int argc, char **argv, bool as_mailq)
{
    struct args a;
    int status;

    args_init(&a);
    status = as_mailq ? run_command(&commands[0], &a, argc - 1, argv + 1)
                      : run_line(&a, argc - 1, argv + 1);
    args_fini(&a);
    return close_output(status);
}
