#include "process_use.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "times.h"

void process_use_read(pid_t pid, struct process_use *use)
{
    char path[64], text[1024];
    unsigned long user, system;
    const char *rest;
    ssize_t len;
    long pages;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid); /* fits */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    len = read(fd, text, sizeof text - 1);
    (void)close(fd); /* only read */
    if (len <= 0) {
        return;
    }
    text[len] = '\0';
    rest = strrchr(text, ')'); /* the name may contain any byte */
    /* Fields of proc(5) follow, from 3 on: utime is 14, stime 15, rss 24. */
    if (rest != NULL && sscanf(rest + 1,
                               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d "
                               "%*d %*d %*d %*u %*u %ld",
                               &user, &system, &pages) == 3) {
        use->cpu_us =
            (uint64_t)(user + system) * (uint64_t)US_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
        use->resident_bytes = pages < 0 ? 0 : (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
}
