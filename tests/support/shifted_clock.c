/*
 * Preloaded into a program (LD_PRELOAD): its wall clock is as many seconds ahead as the file says
 * that SHIFTED_CLOCK names, from one call to the next.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    char text[24] = "";
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        (void)close(fd);
    }
    return (time_t)strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    int rc;

    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    }
    rc = real(clock, t);
    t->tv_sec += clock == CLOCK_REALTIME ? shift() : 0;
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return rc;
}
