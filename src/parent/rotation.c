#include "rotation.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "log.h"

static bool move(const char *from, const char *to)
{
    if (rename(from, to) == 0 || errno == ENOENT) {
        return true;
    }
    log_warning("%s: can't be renamed to %s: %s", from, to, strerror(errno));
    return false;
}

bool rotation_due(const char *path, uint64_t size, unsigned count)
{
    char from[PATH_MAX + 16], to[PATH_MAX + 16];
    struct stat st;

    if (size == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= size) {
        return false;
    }
    for (unsigned i = count; i > 0; i--) {
        (void)snprintf(to, sizeof to, "%s.%u", path, i); /* fits, as does the next */
        (void)snprintf(from, sizeof from, i > 1 ? "%s.%u" : "%s", path, i - 1);
        if (!move(from, to)) {
            return false;
        }
    }
    return true;
}
