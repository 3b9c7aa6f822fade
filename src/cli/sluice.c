/*
 * sluice: the command of operators. Called as `mailq` it runs `sluice queue`, or ZMailer's mailq if
 * the command line is one of that.
 */
#include <string.h>
#include <sysexits.h>

#include "cluster_nodes.h"
#include "cluster_spool.h"
#include "cluster_tables.h"
#include "commands.h"
#include "door.h"
#include "postfix_check.h"
#include "postfix_dialect.h"
#include "postfix_move.h"

int main(int argc, char **argv)
{
    const char *slash;
    bool as_mailq;
    int status;

    if (argc < 1) {
        return EX_USAGE;
    }
    zmailer_open_commands();
    postfix_dialect_register();
    postfix_move_register();
    cluster_spool_register();
    commands_use_cluster(cluster_tables_init, cluster_tables_check, cluster_tables_upgrade,
                         cluster_tables_restored, cluster_tables_accept_loss);
    commands_use_nodes(cluster_nodes_list, cluster_node_drain, cluster_node_left,
                       cluster_node_undrain, cluster_node_remove);
    commands_use_postfix_check(postfix_check);
    slash = strrchr(argv[0], '/');
    as_mailq = strcmp(slash == NULL ? argv[0] : slash + 1, "mailq") == 0;
    if (as_mailq && zmailer_run_mailq(argc, argv, &status)) {
        return status;
    }
    return commands_main(argc, argv, as_mailq);
}
