/*
 * The commands of `sluice`: one table, from which they are found, checked and explained.
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
    const char *name;     /* one word, or two with a blank between them */
    const char *operands; /* what stands behind the options, as the usage says it */
    size_t least, most;   /* of them; COMMAND_ANY = no limit */
    unsigned groups;      /* of options, besides ARG_COMMAND */
    bool hidden;          /* for tests */
    const char *meaning;
    int (*run)(const struct command *c, const struct args *a); /* an exit status of sysexits */
};

#define COMMAND_ANY SIZE_MAX

/* Run the command line. `as_mailq`: it is that of mailq. Returns the exit status. */
int commands_main(int argc, char **argv, bool as_mailq);

/* "sluice COMMAND: TEXT" on standard error and where to read more; returns EX_USAGE. */
int command_misused(const struct command *c, const char *text);

/* Where the configuration is: -c, $SLUICE_CONF, BUNDLE_DEFAULT_PATH; where there is none and no
 * daemon runs in this directory, what another system's program of ours has made
 * (conf_dialect_made). NULL: nowhere, the embedded one counts. */
const char *command_conf_path(const struct args *a);

/* The configuration of the command line. NULL: it has errors, which have been printed
 * (EX_CONFIG). */
struct conf *command_conf(const struct args *a);

/* The same with a further line, which goes before what the file says. */
struct conf *command_conf_with(const struct args *a, struct slice line);

/* The same for a command that asks the daemon: errors elsewhere than in the place of its socket are
 * mentioned and passed over (conf_load_places). */
struct conf *command_places(const struct args *a);

/* query_commands.c: commands that read the queue */
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

/* modify_commands.c: commands that change the queue or the daemon */
int run_change(const struct command *c, const struct args *a);
int run_flush(const struct command *c, const struct args *a);
int run_reload(const struct command *c, const struct args *a);
int run_stop(const struct command *c, const struct args *a);
int run_clock(const struct command *c, const struct args *a);

/* intervention_commands.c: what operators decide until further notice */
int run_intervene(const struct command *c, const struct args *a);
int run_limit(const struct command *c, const struct args *a);
int run_resume(const struct command *c, const struct args *a);
int run_interventions(const struct command *c, const struct args *a);
int run_cancel(const struct command *c, const struct args *a);

/* shape_command.c: for whom mail waits, and how old it is */
int run_shape(const struct command *c, const struct args *a);

/* top.c: the queue on a terminal */
int run_top(const struct command *c, const struct args *a);

/* config_commands.c: the configuration */
int run_config_check(const struct command *c, const struct args *a);
int run_config_show(const struct command *c, const struct args *a);
int run_config_explain(const struct command *c, const struct args *a);
int run_config_import(const struct command *c, const struct args *a);
int run_postfix_check(const struct command *c, const struct args *a);

/* What looks at a configuration directory of Postfix, prints findings and returns an exit status:
 * the program that knows Postfix says so first of all. */
void commands_use_postfix_check(int (*check)(const char *directory, FILE *out));

/* cluster_commands.c: the database of a cluster as a whole, and its nodes */
int run_cluster_init(const struct command *c, const struct args *a);
int run_cluster_check(const struct command *c, const struct args *a);
int run_cluster_upgrade(const struct command *c, const struct args *a);
int run_cluster_restored(const struct command *c, const struct args *a);

int run_node_list(const struct command *c, const struct args *a);
int run_node_drain(const struct command *c, const struct args *a);
int run_node_undrain(const struct command *c, const struct args *a);
int run_node_remove(const struct command *c, const struct args *a);

/* What does it, said first of all by the program that knows clusters. 0 or a negative errno (with
 * *ret_error; -EUCLEAN: `out` has it); `password` is the text of a password's file. */
struct buf;
typedef int cluster_work(const char *url, struct slice password, bool flag, struct buf *out,
                         struct buf *ret_error);
/* The same with what the configuration says of a standby (cluster_standby). */
typedef int cluster_check(const char *url, struct slice password, bool needs_standby, bool repair,
                          struct buf *out, struct buf *ret_error);
void commands_use_cluster(cluster_work *init, cluster_check *check, cluster_work *upgrade,
                          cluster_work *restored);
/* The same for a node by its name. */
typedef int node_work(const char *url, struct slice password, const char *name, struct buf *out,
                      struct buf *ret_error);
void commands_use_nodes(cluster_work *list, node_work *drain, node_work *left, node_work *undrain,
                        node_work *remove);

/* rules_test.c: what rules say of a mail */
int run_config_test(const struct command *c, const struct args *a);

/* auth_commands.c: who may log in to send mail */
int run_auth_add(const struct command *c, const struct args *a);
int run_auth_remove(const struct command *c, const struct args *a);
int run_auth_list(const struct command *c, const struct args *a);
int run_token_add(const struct command *c, const struct args *a);
int run_token_remove(const struct command *c, const struct args *a);
int run_token_list(const struct command *c, const struct args *a);

/* spool_commands.c: check and repair of the spool */
int run_spool_check(const struct command *c, const struct args *a);
int run_spool_repair(const struct command *c, const struct args *a);

/* move_commands.c: mail from another mail system's queue, and back */
int run_import(const struct command *c, const struct args *a);
int run_export(const struct command *c, const struct args *a);

/* sim_run.c: simulation of a workload */
int run_sim_run(const struct command *c, const struct args *a);

#endif
