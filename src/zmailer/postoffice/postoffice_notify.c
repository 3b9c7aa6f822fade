/*
 * Files that a router announces by a datagram, "NEW D/R/90417". One that gets lost is harmless: the
 * scan finds the file.
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

int notify_open(struct postoffice *po, const char *path, struct buf *ret_error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *failed = "socket";
    int fd, err;

    if (strlen(path) >= sizeof address.sun_path) {
        (void)buf_addf(ret_error, "%s: a socket's path has at most %zu bytes", path,
                       sizeof address.sun_path - 1);
        return -ENAMETOOLONG;
    }
    (void)strcpy(address.sun_path, path); /* measured */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        failed = "bind";
        (void)unlink(path); /* of the last start; binding tells what is wrong */
        if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            failed = "chmod";
            if (chmod(path, 0200) == 0) {
                po->notify = fd;
                return 0;
            }
        }
    }
    err = -errno;
    (void)buf_addf(ret_error, "%s: %s: %s", path, failed, strerror(-err));
    if (fd >= 0) {
        (void)close(fd); /* nothing was received */
    }
    return err;
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
            return; /* EAGAIN: no more. Whatever else it is, there is the scan. */
        }
        if (text.len <= sizeof datagram && slice_starts(text, word) &&
            notify_path_ok(slice_skip(text, word.len))) {
            text = slice_skip(text, word.len);
            (void)snprintf(path, sizeof path, "%.*s", SLICE_ARGS(text)); /* the name is bounded */
            scan_take(po, path, now);
        }
    }
}
