/* parent.c starts a child with the arguments --role NAME --index N --channel FD. */
#include "program.h"

#include <fcntl.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "role.h"

bool program_have_standard_files(void)
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

bool program_was_child(int argc, char **argv, const struct role_ops *const *roles, int *ret_status)
{
    unsigned index, channel;

    if (argc < 2 || strcmp(argv[1], "--role") != 0) {
        return false;
    }
    *ret_status = EX_USAGE;
    if (argc != 7 || strcmp(argv[3], "--index") != 0 || strcmp(argv[5], "--channel") != 0 ||
        !number(argv[4], 1000, &index) || !number(argv[6], 1000, &channel) ||
        fcntl((int)channel, F_SETFD, FD_CLOEXEC) != 0) {
        return true;
    }
    for (size_t i = 0; roles[i] != NULL; i++) {
        if (strcmp(argv[2], wire_role_name(roles[i]->role)) == 0) {
            *ret_status = role_main(roles[i], index, (int)channel);
            break;
        }
    }
    return true;
}
