#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void check_failed(const char *file, int line, const char *function, const char *what)
{
    char text[512];
    int len = snprintf(text, sizeof text, "panic: %s:%d: %s: %s\n", file, line, function, what);
    size_t size = len < 0 ? 0 : (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;

    /* The process ends either way; no channel is left to report that standard error is closed. */
    if (write(STDERR_FILENO, text, size) < 0) {
        abort();
    }
    abort();
}
