/*
 * Options of the command line, from one table that parsing, usage and error texts share.
 *
 * Options are in groups, and a command names the groups that it accepts. Long options are `--name
 * VALUE` or `--name=VALUE`, letters can be combined (`-nq`), `--` ends the options, and a lone `-`
 * is a word. Words and options can be mixed.
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "buf.h"

enum arg_group {
    ARG_PROGRAM = 1 << 0, /* before the command */
    ARG_COMMAND = 1 << 1, /* options of every command */
    ARG_JSON = 1 << 2,
    ARG_FILTER = 1 << 3,     /* selection of messages */
    ARG_QUEUE = 1 << 4,      /* form of a list */
    ARG_CHANGE = 1 << 5,     /* confirmation and dry runs */
    ARG_CONTENT = 1 << 6,    /* part of a message */
    ARG_CONFIG = 1 << 7,     /* selection of parameters */
    ARG_MAILQ = 1 << 8,      /* accepted by other programs called mailq */
    ARG_SIM_RUN = 1 << 9,    /* simulation */
    ARG_AUTH = 1 << 10,      /* rights of a user */
    ARG_RULES = 1 << 11,     /* mail for a test of rules */
    ARG_TOKEN = 1 << 12,     /* rights of a token */
    ARG_TLS = 1 << 13,       /* sources of policies */
    ARG_INTERVENE = 1 << 14, /* mail of an override, next to a destination */
    ARG_TERMS = 1 << 15,     /* reason and duration */
    ARG_CONFIRM = 1 << 16,   /* no confirmation */
    ARG_INTERVENTIONS = 1 << 17,
    ARG_MOVE = 1 << 18,   /* spool for a move of mail */
    ARG_SHAPE = 1 << 19,  /* form of a summary */
    ARG_EVENTS = 1 << 20, /* selection of events */
    ARG_TRACE = 1 << 21,  /* selection and duration of a trace */
    ARG_REPAIR = 1 << 22, /* repair of faults */
    ARG_WAIT = 1 << 23,   /* wait for the end */
    ARG_ALL = (1 << 24) - 1,
};

/* Values of an option that may be given several times. */
struct arg_texts {
    const char **items; /* owned array of borrowed texts */
    size_t count, size;
};

struct args {
    const char *conf_path; /* path of the configuration; NULL: the default places */
    const char *for_destination;
    const char *workload_path, *trace_path, *diff_path; /* files of a simulation; NULL: not given */
    const char *set;                                    /* a line of configuration; NULL: none */
    const char *svg_path, *html_path;                   /* files for pictures of a simulation; NULL:
                                                         * none */
    const char *reason, *for_time;                      /* terms of an override; NULL: not given */
    const char *by;                                     /* key of shape; NULL: not given */
    int64_t max_rows;
    int64_t line_count, for_seconds;       /* limits of a trace; 0: none */
    bool as_config;                        /* print overrides as clauses */
    const char *user_class, *user_senders; /* class and senders of a user; NULL: not given */
    const char *client, *sender;           /* client and sender of a mail under test; NULL: not
                                            * given */
    struct arg_texts to, fields, lines, events;
    const char *after; /* number of an event; NULL: not given */
    const char *token_rights;
    const char *spool; /* spool of a move; NULL: that of the configuration */
    int64_t seed, rows;
    bool audit;
    bool repair, wait;
    bool help, version, json, count, destinations, dry_run, yes, all, header, body, changed,
        classes, fetch, connect;
    int64_t recipients; /* number of recipients to list of a message; ARGS_ALL = all */
    json_t *filter;     /* owned; a filter object as in docs/api.md */
    char **words;       /* owned array of borrowed texts: the arguments that are no options */
    size_t word_count;
};

#define ARGS_ALL INT64_MAX

void args_init(struct args *a);
void args_fini(struct args *a);

/* Parses argv[0..argc), up to the first word if `to_first_word`. Returns the number of elements
 * used, or -1 with one line (without its end) in *error. */
int args_parse(struct args *a, unsigned groups, bool to_first_word, int argc, char **argv,
               struct buf *error);

/* Prints a line for each option of these groups. */
void args_print_usage(FILE *out, unsigned groups);

/* An option as the usage shows it. */
struct arg_option {
    char letter;         /* letter; 0: none */
    const char *name;    /* name without dashes */
    const char *value;   /* name of the value in the usage; NULL: none */
    const char *choices; /* possible values, separated by |; NULL: any */
    const char *meaning;
};

/* Finds the next option of these groups that the usage shows, from *i on; *i starts at 0 and is set
 * after the option. Returns false if there is none. */
bool args_next_option(unsigned groups, size_t *i, struct arg_option *ret);

#endif
