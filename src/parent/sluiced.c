/*
 * sluiced: the daemon. One program for all of its processes; the parent runs it again with --role
 * for each of them.
 *
 *     sluiced [-c FILE]
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "agents_role.h"
#include "bundle.h"
#include "cluster_spool.h"
#include "door.h"
#include "parent.h"
#include "program.h"
#include "queue_ask.h"

static const struct parent_signal signals[] = {
    {SIGHUP, parent_reload}, {SIGUSR1, parent_reopen_log}, {0, NULL}};

/* In the order in which they begin. Pickup is the last: whatever a file in maildrop does to it, the
 * start is over. */
static const struct role_ops *const roles[] = {
    &queue_role,   &resolve_role, &deliver_role, &local_role, &agents_role,
    &control_role, &auth_role,    &fetch_role,   &hook_role,  &filter_role,
    &whatif_role,  &receive_role, &pickup_role,  NULL};

static int usage(FILE *out, int status)
{
    fprintf(out,
            "usage: sluiced [-c FILE]\n"
            "       sluiced -h | -V\n"
            "  -c, --config FILE  the configuration; without it $SLUICE_CONF, then %s,\n"
            "                     and when there is none the built-in one, with everything under "
            "./run\n"
            "  -h, --help         this text\n"
            "  -V, --version      the version\n",
            BUNDLE_DEFAULT_PATH);
    return status;
}

int main(int argc, char **argv)
{
    struct parent_plan plan = {
        .roles = roles, .signals = signals, .path = bundle_default_path(), .ready_fd = -1};
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    int option, status;

    if (!program_have_standard_files()) {
        return EX_OSERR;
    }
    ask_register();
    cluster_spool_register();
    zmailer_open_door();
    if (program_was_child(argc, argv, roles, &status)) {
        return status;
    }
    while ((option = getopt_long(argc, argv, "c:hV", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            plan.path = optarg;
            break;
        case 'h':
            return usage(stdout, EX_OK);
        case 'V':
            printf("sluiced %s\n", SLUICE_VERSION);
            return EX_OK;
        default:
            return usage(stderr, EX_USAGE);
        }
    }
    return optind == argc ? parent_main(&plan) : usage(stderr, EX_USAGE);
}
