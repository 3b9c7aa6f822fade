#include "manager_options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool refuse(struct buf *error, const char *text)
{
    (void)buf_add_string(error, text); /* errors are sticky */
    return false;
}

/* Handles one option. Returns false if it is refused. */
static bool take(struct manager_options *o, int option, char *value, bool *alone, struct buf *error)
{
    switch (option) {
    case 'l':
        *alone = true;
        return true;
    case 'u':
        o->unprivileged = true;
        return true;
    case 'c':
        o->chroot = true;
        return true;
    case 't':
        return strcmp(value, "unix") == 0 ||
               refuse(error, "-t: the service must be of type unix in master.cf");
    case 's':
        return strcmp(value, "1") == 0 || refuse(error, "-s: one listening socket is expected");
    case 'z':
        return refuse(error, "the process limit of the service in master.cf must be 1, not 0");
    case 'o':
        if (o->override_count == MANAGER_OVERRIDES_MAX || strchr(value, '=') == NULL) {
            return refuse(error, "-o: name=value is expected, at most 100 times");
        }
        o->overrides[o->override_count++] = value;
        return true;
    case 'd':
    case 'D':
    case 'i':
    case 'm':
    case 'n':
    case 'S':
    case 'v':
    case 'V':
        return true; /* no meaning for a queue manager */
    default:
        return refuse(error, "unknown option");
    }
}

bool manager_options_parse(int argc, char **argv, struct manager_options *ret,
                           struct buf *ret_error)
{
    bool alone = false;
    int option;

    *ret = (struct manager_options){.program = "qmgr", .directory = getenv("MAIL_CONFIG")};
    if (isatty(STDIN_FILENO)) {
        return refuse(ret_error, "it is started by Postfix's master, from a line of master.cf");
    }
    opterr = 0;
    while ((option = getopt(argc, argv, "cdDi:lm:n:o:s:St:uvVz")) != -1) {
        if (!take(ret, option, optarg, &alone, ret_error)) {
            return false;
        }
    }
    if (optind != argc) {
        return refuse(ret_error, "options alone are expected, no other arguments");
    }
    if (!alone) {
        return refuse(ret_error, "the process limit of the service in master.cf must be 1");
    }
    return ret->directory != NULL || refuse(ret_error, "MAIL_CONFIG is not in the environment");
}
