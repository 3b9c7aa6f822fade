/*
 * Files that a router announces with a datagram, "NEW D/R/90417". A lost datagram does no damage:
 * the scan finds the file.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "postoffice_engine.h"

#define DATAGRAM_MAX 1000
#define PER_TURN     10

void notify_open(struct postoffice *po, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = -1, error = ENAMETOOLONG;

    if (strlen(path) < sizeof address.sun_path) {
        (void)strcpy(address.sun_path, path); /* the length was checked */
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)unlink(path); /* left by the last start; bind() returns other errors */
        if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
            chmod(path, 0200) == 0) {
            po->notify = fd;
            return;
        }
        error = errno;
    }
    post_tell(po, SPOOL_EVENT_WARNING, 0,
              "notifysock %s: %s; files are found by reading the directories alone", path,
              strerror(error));
    if (fd >= 0) {
        (void)close(fd); /* nothing was received */
    }
}

bool notify_path_ok(struct slice path)
{
    for (unsigned levels = 0; levels < 2; levels++) {
        if (path.len >= 2 && path.ptr[0] >= 'A' && path.ptr[0] <= 'Z' && path.ptr[1] == '/') {
            path = slice_skip(path, 2);
        }
    }
    return path.len > 0 && path.len <= NAME_MAX - strlen(POST_DAMAGED) && path.ptr[0] >= '1' &&
           path.ptr[0] <= '9' && slice_find(path, '/') == path.len &&
           slice_find(path, '\0') == path.len;
}

void notify_poll(struct postoffice *po, struct wall now)
{
    const struct slice word = SLICE("NEW ");
    char datagram[DATAGRAM_MAX], path[POST_PATH_MAX];

    for (unsigned i = 0; po->notify >= 0 && i < PER_TURN; i++) {
        ssize_t n = recv(po->notify, datagram, sizeof datagram, MSG_TRUNC);
        struct slice text = slice_of(datagram, n > 0 ? (size_t)n : 0);

        if (n < 0) {
            return; /* EAGAIN: no more; after any other error the scan finds the files */
        }
        if (text.len <= sizeof datagram && slice_starts(text, word) &&
            notify_path_ok(slice_skip(text, word.len))) {
            text = slice_skip(text, word.len);
            (void)snprintf(path, sizeof path, "%.*s", SLICE_ARGS(text)); /* fits */
            scan_take(po, path, now);
        }
    }
}
