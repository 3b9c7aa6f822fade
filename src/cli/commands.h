/*
 * Commands of `sluice`: one table for look-up, checks and usage.
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "args.h"
#include "ask.h"
#include "conf.h"

struct command {
    const char *name;     /* one or two words, separated by a blank */
    const char *operands; /* operands after the options, as in the usage */
    size_t least, most;   /* bounds of their number; COMMAND_ANY = no limit */
    unsigned groups;      /* groups of options next to ARG_COMMAND */
    bool hidden;          /* for tests only */
    const char *meaning;
    int (*run)(const struct command *c, const struct args *a); /* exit status (sysexits) */
};

#define COMMAND_ANY SIZE_MAX

/* Runs the command line and returns the exit status. `as_mailq`: the program was called as
 * mailq. */
int commands_main(int argc, char **argv, bool as_mailq);

/* Prints "sluice COMMAND: TEXT" and a reference to the help on standard error. Returns EX_USAGE. */
int command_misused(const struct command *c, const char *text);

/* Returns the path of the configuration: -c, $SLUICE_CONF, BUNDLE_DEFAULT_PATH. If none exists and
 * no daemon runs in this directory, returns the configuration that our queue manager for Postfix
 * has made (conf_dialect_made). NULL: use the embedded configuration. */
const char *command_conf_path(const struct args *a);

/* Loads the configuration of the command line. Returns NULL if it has errors, which were printed
 * (EX_CONFIG). */
struct conf *command_conf(const struct args *a);

/* Loads the configuration with a further line, which takes precedence over the file. */
struct conf *command_conf_with(const struct args *a, struct slice line);

/* Loads the configuration for a command that queries the daemon. Errors that do not affect the
 * place of the daemon's socket are printed and ignored (conf_load_places). */
struct conf *command_places(const struct args *a);

/* ---- query_commands.c: commands that read the queue ------------------------------------------ */
int run_queue(const struct command *c, const struct args *a);
int run_count(const struct command *c, const struct args *a);
int run_destinations(const struct command *c, const struct args *a);
int run_show(const struct command *c, const struct args *a);
int run_cat(const struct command *c, const struct args *a);
int run_why(const struct command *c, const struct args *a);
int run_tls(const struct command *c, const struct args *a);
int run_events(const struct command *c, const struct args *a);
int run_trace(const struct command *c, const struct args *a);
int run_status(const struct command *c, const struct args *a);

/* ---- modify_commands.c: commands that change the queue or the daemon ------------------------- */
int run_change(const struct command *c, const struct args *a);
int run_flush(const struct command *c, const struct args *a);
int run_reload(const struct command *c, const struct args *a);
int run_stop(const struct command *c, const struct args *a);
int run_clock(const struct command *c, const struct args *a);

/* ---- intervention_commands.c: overrides ------------------------------------------------------ */
int run_intervene(const struct command *c, const struct args *a);
int run_limit(const struct command *c, const struct args *a);
int run_resume(const struct command *c, const struct args *a);
int run_interventions(const struct command *c, const struct args *a);
int run_cancel(const struct command *c, const struct args *a);

/* ---- shape_command.c: waiting mail by destination and age ------------------------------------ */
int run_shape(const struct command *c, const struct args *a);

/* ---- top.c: the queue on a terminal ---------------------------------------------------------- */
int run_top(const struct command *c, const struct args *a);

/* ---- config_commands.c: the configuration ---------------------------------------------------- */
int run_config_check(const struct command *c, const struct args *a);
int run_config_show(const struct command *c, const struct args *a);
int run_config_explain(const struct command *c, const struct args *a);
int run_config_import(const struct command *c, const struct args *a);
int run_postfix_check(const struct command *c, const struct args *a);

/* Sets the function that checks a configuration directory of Postfix, prints its findings and
 * returns an exit status. Called first of all by a program that includes Postfix support. */
void commands_use_postfix_check(int (*check)(const char *directory, FILE *out));

/* ---- cluster_commands.c: database and nodes of a cluster ------------------------------------- */
int run_cluster_init(const struct command *c, const struct args *a);
int run_cluster_check(const struct command *c, const struct args *a);
int run_cluster_upgrade(const struct command *c, const struct args *a);
int run_cluster_restored(const struct command *c, const struct args *a);
int run_cluster_accept_loss(const struct command *c, const struct args *a);

int run_node_list(const struct command *c, const struct args *a);
int run_node_drain(const struct command *c, const struct args *a);
int run_node_undrain(const struct command *c, const struct args *a);
int run_node_remove(const struct command *c, const struct args *a);

/* Works on the database of a cluster. Returns 0 or negative errno with *ret_error; -EUCLEAN:
 * the faults are in `out`. `password` is the text of a password file. commands_use_cluster sets
 * these functions, first of all, in a program that includes the cluster engine. */
struct buf;
typedef int cluster_work(const char *url, struct slice password, bool flag, struct buf *out,
                         struct buf *ret_error);
/* Checks the database; `needs_standby` is the configuration's requirement (cluster_standby). */
typedef int cluster_check(const char *url, struct slice password, bool needs_standby, bool repair,
                          struct buf *out, struct buf *ret_error);
void commands_use_cluster(cluster_work *init, cluster_check *check, cluster_work *upgrade,
                          cluster_work *restored, cluster_work *accept_loss);
/* Works on a node, by its name. */
typedef int node_work(const char *url, struct slice password, const char *name, struct buf *out,
                      struct buf *ret_error);
void commands_use_nodes(cluster_work *list, node_work *drain, node_work *left, node_work *undrain,
                        node_work *remove);

/* ---- rules_test.c: trial of rules on a mail -------------------------------------------------- */
int run_config_test(const struct command *c, const struct args *a);

/* ---- auth_commands.c, token_commands.c: users that may send mail, and tokens ----------------- */
int run_auth_add(const struct command *c, const struct args *a);
int run_auth_remove(const struct command *c, const struct args *a);
int run_auth_list(const struct command *c, const struct args *a);
int run_token_add(const struct command *c, const struct args *a);
int run_token_remove(const struct command *c, const struct args *a);
int run_token_list(const struct command *c, const struct args *a);

/* ---- spool_commands.c: check and repair of the spool ----------------------------------------- */
int run_spool_check(const struct command *c, const struct args *a);
int run_spool_repair(const struct command *c, const struct args *a);

/* ---- move_commands.c: mail from and to another mail system's queue --------------------------- */
int run_import(const struct command *c, const struct args *a);
int run_export(const struct command *c, const struct args *a);

/* ---- sim_run.c: simulation of a workload ----------------------------------------------------- */
int run_sim_run(const struct command *c, const struct args *a);

#endif
