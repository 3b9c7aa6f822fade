/*
 * Options of the command line, from one table: parsing, usage and error texts are made from it.
 *
 * Options come in groups, and a command names the groups it takes. Long options are `--name VALUE`
 * or `--name=VALUE`, letters may stand together (`-nq`), `--` ends the options, and a lone `-` is
 * a word. Words and options may be mixed.
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "buf.h"

enum arg_group {
    ARG_PROGRAM = 1 << 0, /* in front of the command */
    ARG_COMMAND = 1 << 1, /* every command's */
    ARG_JSON = 1 << 2,
    ARG_FILTER = 1 << 3,     /* which messages */
    ARG_QUEUE = 1 << 4,      /* what to list */
    ARG_CHANGE = 1 << 5,     /* how careful to be */
    ARG_CONTENT = 1 << 6,    /* which part of a message */
    ARG_CONFIG = 1 << 7,     /* which parameters */
    ARG_MAILQ = 1 << 8,      /* what other programs of that name take */
    ARG_SIM_RUN = 1 << 9,    /* what to simulate */
    ARG_AUTH = 1 << 10,      /* what a user, or a token, may do */
    ARG_RULES = 1 << 11,     /* the mail that rules are tried on */
    ARG_TOKEN = 1 << 12,     /* what a token may do besides */
    ARG_TLS = 1 << 13,       /* where policies come from */
    ARG_INTERVENE = 1 << 14, /* which mail it is about, beside a destination */
    ARG_TERMS = 1 << 15,     /* why, and for how long */
    ARG_CONFIRM = 1 << 16,   /* not to ask */
    ARG_INTERVENTIONS = 1 << 17,
    ARG_MOVE = 1 << 18,   /* the spool that mail is moved into or out of */
    ARG_SHAPE = 1 << 19,  /* how to sum the queue up */
    ARG_EVENTS = 1 << 20, /* which events */
    ARG_TRACE = 1 << 21,  /* whose dialogue to show, and how long */
    ARG_REPAIR = 1 << 22, /* what is found wrong */
    ARG_WAIT = 1 << 23,   /* until it is done */
    ARG_ALL = (1 << 24) - 1,
};

/* An option that may be given several times. */
struct arg_texts {
    const char **items; /* owned array, borrowed texts */
    size_t count, size;
};

struct args {
    const char *conf_path; /* NULL: the usual places */
    const char *for_destination;
    const char *workload_path, *trace_path, *diff_path; /* of a simulation; NULL: not given */
    const char *set;                                    /* a line of a configuration; NULL: none */
    const char *svg_path, *html_path;                   /* its pictures; NULL: none */
    const char *reason, *for_time;                      /* of an intervention; NULL: not given */
    const char *by;                                     /* of shape; NULL: not given */
    int64_t max_rows;
    int64_t line_count, for_seconds;       /* of a trace; 0: no limit */
    bool as_config;                        /* interventions as clauses */
    const char *user_class, *user_senders; /* NULL: not given */
    const char *client, *sender;           /* of a mail; NULL: not given */
    struct arg_texts to, fields, lines, events;
    const char *after; /* a number; NULL: not given */
    const char *token_rights;
    const char *spool; /* of a move; NULL: that of the configuration */
    int64_t seed, rows;
    bool audit;
    bool repair, wait;
    bool help, version, json, count, destinations, dry_run, yes, all, header, body, changed,
        classes, fetch, connect;
    int64_t recipients; /* of a message, to be listed; ARGS_ALL = all */
    json_t *filter;     /* owned; an object as docs/api.md has it */
    char **words;       /* owned array, borrowed texts: what is no option */
    size_t word_count;
};

#define ARGS_ALL INT64_MAX

void args_init(struct args *a);
void args_fini(struct args *a);

/* Read argv[0..argc), up to the first word when `to_first_word`. Returns how many elements were
 * used, or -1 and one line (without its end) in *error. */
int args_parse(struct args *a, unsigned groups, bool to_first_word, int argc, char **argv,
               struct buf *error);

/* A line for each option of these groups. */
void args_print_usage(FILE *out, unsigned groups);

/* An option as the usage shows it. */
struct arg_option {
    char letter;         /* 0: none */
    const char *name;    /* without its dashes */
    const char *value;   /* what the usage calls it; NULL: it takes none */
    const char *choices; /* the values there are, with | between them; NULL: any */
    const char *meaning;
};

/* The next option of these groups that the usage shows, from *i on, which starts at 0 and is moved
 * behind it. False: there are no more. */
bool args_next_option(unsigned groups, size_t *i, struct arg_option *ret);

#endif
