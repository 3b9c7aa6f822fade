/*
 * sluice: the command of operators. As `mailq` it is `sluice queue`.
 */
#include <string.h>
#include <sysexits.h>

#include "commands.h"

int main(int argc, char **argv)
{
    const char *slash;

    if (argc < 1) {
        return EX_USAGE;
    }
    slash = strrchr(argv[0], '/');
    return commands_main(argc, argv, strcmp(slash == NULL ? argv[0] : slash + 1, "mailq") == 0);
}
