#include "dump.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "log.h"
#include "mem.h"

#define CHUNK 65536

struct dump {
    char *path, *temporary;
    int from, to; /* -1: closed */
    struct event *event;
    void (*ended)(void *arg);
    void *arg;
};

/* Logs that `call` failed on the file, and returns false. No client waits for an answer. */
static bool fail(const struct dump *d, const char *call)
{
    log_error("%s: %s: %s", d->path, call, strerror(errno));
    return false;
}

static bool complete(struct dump *d)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 1}};
    int fd = d->to;

    if (futimens(fd, times) != 0) {
        return fail(d, "times");
    }
    d->to = -1;
    if (close(fd) != 0) {
        return fail(d, "close");
    }
    if (rename(d->temporary, d->path) != 0) {
        return fail(d, "rename");
    }
    d->temporary[0] = '\0';
    return true;
}

static bool write_all(struct dump *d, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(d->to, bytes, len);

        if (n < 0) {
            return fail(d, "write");
        }
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static void on_bytes(evutil_socket_t fd, short what, void *arg)
{
    struct dump *d = arg;
    char chunk[CHUNK];
    ssize_t n = read(fd, chunk, sizeof chunk);

    (void)what;
    if (n > 0 && write_all(d, chunk, (size_t)n)) {
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n == 0) {
        (void)complete(d); /* logs its errors */
    } else if (n < 0) {
        (void)fail(d, "read");
    }
    d->ended(d->arg);
}

struct dump *dump_new(struct event_base *base, const char *path, int fd, void (*ended)(void *arg),
                      void *arg)
{
    struct dump *d = mem_new(sizeof *d);
    char temporary[PATH_MAX];
    int len = snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());

    *d = (struct dump){.path = mem_string(path), .from = fd, .to = -1, .ended = ended, .arg = arg};
    CHECK(len > 0);
    d->temporary = mem_string("");
    if ((size_t)len >= sizeof temporary) {
        errno = ENAMETOOLONG;
    } else {
        /* The directory may be any user's: do not follow or reuse an existing file. */
        (void)unlink(temporary); /* left by a crash; open returns other errors */
        d->to =
            open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0644);
    }
    if (d->to < 0) {
        (void)fail(d, "open");
        dump_free(d);
        return NULL;
    }
    mem_free(d->temporary);
    d->temporary = mem_string(temporary);
    d->event = event_new(base, fd, EV_READ | EV_PERSIST, on_bytes, d);
    CHECK(d->event != NULL && event_add(d->event, NULL) == 0);
    if (fchmod(d->to, 0644) != 0) { /* readable for all users of mailq, whatever the umask */
        (void)fail(d, "chmod");
    }
    return d;
}

void dump_free(struct dump *d)
{
    if (d == NULL) {
        return;
    }
    if (d->event != NULL) {
        event_free(d->event);
    }
    (void)close(d->from); /* only read */
    if (d->to >= 0) {
        (void)close(d->to); /* incomplete, and removed below */
    }
    if (d->temporary[0] != '\0') {
        (void)unlink(d->temporary);
    }
    mem_free(d->temporary);
    mem_free(d->path);
    mem_free(d);
}
