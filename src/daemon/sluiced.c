/*
 * sluiced: the daemon. One program for all of its processes; the parent runs it again with --role
 * for each of them.
 *
 *     sluiced [-c FILE]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "parent.h"
#include "role.h"

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

/* Files opened later must not become standard input, output or error. */
static bool have_standard_files(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_NOCTTY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    return fd >= 0 && close(fd) == 0;
}

static bool number(const char *text, unsigned max, unsigned *ret_number)
{
    unsigned long long value;

    if (!slice_number(slice_string(text), max, &value)) {
        return false;
    }
    *ret_number = (unsigned)value;
    return true;
}

/* sluiced --role NAME --index N --channel FD, as parent.c writes it. */
static int child_main(int argc, char **argv)
{
    static const struct role_ops *const roles[] = {&queue_role,  &deliver_role, &local_role,
                                                   &agents_role, &control_role, &receive_role};
    unsigned index, channel;

    if (argc != 7 || strcmp(argv[3], "--index") != 0 || strcmp(argv[5], "--channel") != 0 ||
        !number(argv[4], 1000, &index) || !number(argv[6], 1000, &channel) ||
        fcntl((int)channel, F_SETFD, FD_CLOEXEC) != 0) {
        return usage();
    }
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(argv[2], wire_role_name(roles[i]->role)) == 0) {
            return role_main(roles[i], index, (int)channel);
        }
    }
    return usage();
}

int main(int argc, char **argv)
{
    const char *path = bundle_default_path();
    int option;

    if (!have_standard_files()) {
        return EX_OSERR;
    }
    if (argc > 1 && strcmp(argv[1], "--role") == 0) {
        return child_main(argc, argv);
    }
    while ((option = getopt(argc, argv, "c:V")) != -1) {
        switch (option) {
        case 'c':
            path = optarg;
            break;
        case 'V':
            printf("sluiced %s\n", SLUICE_VERSION);
            return EX_OK;
        default:
            return usage();
        }
    }
    return optind == argc ? parent_main(path) : usage();
}
