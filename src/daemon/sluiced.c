/*
 * sluiced: the daemon. One program for all of its processes; the parent runs it again with --role
 * for each of them.
 *
 *     sluiced [-c FILE]
 */
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "parent.h"
#include "program.h"

static int usage(void)
{
    fprintf(stderr,
            "usage: sluiced [-c FILE]\n"
            "       sluiced -V\n"
            "FILE is the configuration; without it $SLUICE_CONF, then %s,\n"
            "and when there is none the built-in one, with everything under ./run.\n",
            BUNDLE_DEFAULT_PATH);
    return EX_USAGE;
}

int main(int argc, char **argv)
{
    struct parent_plan plan = {.path = bundle_default_path(), .ready_fd = -1};
    int option, status;

    if (!program_have_standard_files()) {
        return EX_OSERR;
    }
    if (program_was_child(argc, argv, &status)) {
        return status;
    }
    while ((option = getopt(argc, argv, "c:V")) != -1) {
        switch (option) {
        case 'c':
            plan.path = optarg;
            break;
        case 'V':
            printf("sluiced %s\n", SLUICE_VERSION);
            return EX_OK;
        default:
            return usage();
        }
    }
    return optind == argc ? parent_main(&plan) : usage();
}
