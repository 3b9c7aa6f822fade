/*
 * Preloaded into a daemon (LD_PRELOAD), notes the longest turn of each of its processes' event
 * loops: what passes between the end of one epoll_wait and the begin of the next.
 *
 * Each process maps the file SLUICE_TURNS/PID, where bench/cluster reads three numbers of 64 bits:
 * how many turns there were, and the longest by the clock and in processor time, in microseconds.
 * Who writes zeros there begins anew. It makes no difference to what the daemon does.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct turns {
    uint64_t count;
    int64_t longest_us, longest_cpu_us;
};

static struct turns *turns;
static int64_t began_us, began_cpu_us;

static int64_t now_us(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Before the process confines itself. */
__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("SLUICE_TURNS");
    char path[4096];
    void *map;
    int fd;

    if (directory == NULL) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof *turns) != 0) {
        return;
    }
    map = mmap(NULL, sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    turns = map == MAP_FAILED ? NULL : map;
}

static void turn_ends(void)
{
    int64_t us = now_us(CLOCK_MONOTONIC) - began_us;
    int64_t cpu_us = now_us(CLOCK_THREAD_CPUTIME_ID) - began_cpu_us;

    turns->count++;
    turns->longest_us = us > turns->longest_us ? us : turns->longest_us;
    turns->longest_cpu_us = cpu_us > turns->longest_cpu_us ? cpu_us : turns->longest_cpu_us;
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    int count;

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    }
    if (turns != NULL && began_us != 0) {
        turn_ends();
    }
    count = real(fd, events, max, timeout);
    began_us = now_us(CLOCK_MONOTONIC);
    began_cpu_us = now_us(CLOCK_THREAD_CPUTIME_ID);
    return count;
}
