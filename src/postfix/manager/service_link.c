#include "service_link.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attributes.h"
#include "buf.h"
#include "check.h"
#include "mem.h"
#include "times.h"

/* Limit of bytes that wait to be sent: a request with the largest number of recipients. */
#define OUTPUT_MAX ((size_t)64 << 20)
#define READ_SIZE  4096
#define INPUT_MAX  (ATTRIBUTES_LIST_MAX + READ_SIZE)

struct service_link {
    int fd;
    struct event *readable;
    struct event *writable; /* NULL = the socket has always accepted all bytes */
    struct buf in, out;
    struct attributes_scan scan;
    const struct service_link_owner *owner;
    void *arg;
    int64_t patience_us;
    bool *was_freed; /* set to true if the owner frees the link in a callback */
};

static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_readable(evutil_socket_t fd, short what, void *arg);

static int connect_to(const char *path, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof address.sun_path) {
        return ENAMETOOLONG;
    }
    (void)strcpy(address.sun_path, path); /* it fits */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;

        (void)close(fd); /* nothing was sent */
        return error;
    }
    *ret_fd = fd;
    return 0;
}

/* Starts the time limit for the next bytes again. */
static void listen_on(struct service_link *link)
{
    struct timeval tv = {.tv_sec = (time_t)(link->patience_us / US_PER_S),
                         .tv_usec = (suseconds_t)(link->patience_us % US_PER_S)};

    CHECK(event_add(link->readable, link->patience_us == US_FOREVER ? NULL : &tv) == 0);
}

struct service_link *service_link_open(struct event_base *base, const char *path,
                                       const struct service_link_owner *owner, void *arg,
                                       int *ret_error)
{
    struct service_link *link;
    int fd = -1;

    *ret_error = connect_to(path, &fd);
    if (*ret_error != 0) {
        return NULL;
    }
    link = mem_new(sizeof *link);
    link->fd = fd;
    link->owner = owner;
    link->arg = arg;
    link->patience_us = US_FOREVER;
    buf_init(&link->in, INPUT_MAX);
    buf_init(&link->out, OUTPUT_MAX);
    link->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, link);
    CHECK(link->readable != NULL);
    listen_on(link);
    return link;
}

void service_link_free(struct service_link *link)
{
    if (link == NULL) {
        return;
    }
    if (link->was_freed != NULL) {
        *link->was_freed = true;
    }
    event_free(link->readable);
    if (link->writable != NULL) {
        event_free(link->writable);
    }
    (void)close(link->fd); /* the other side sees the end */
    buf_fini(&link->in);
    buf_fini(&link->out);
    mem_free(link);
}

void service_link_patience(struct service_link *link, int64_t us)
{
    link->patience_us = us;
    if (us == US_FOREVER) {
        CHECK(event_remove_timer(link->readable) == 0);
    } else {
        listen_on(link); /* only changes the time of a pending event: no system call */
    }
}

/* ---- sending ---- */

static void wait_to_send(struct service_link *link)
{
    if (link->writable == NULL) {
        link->writable =
            event_new(event_get_base(link->readable), link->fd, EV_WRITE, on_writable, link);
        CHECK(link->writable != NULL);
    }
    CHECK(event_add(link->writable, NULL) == 0);
}

/* Returns the number of bytes that the socket has accepted. After an error it counts all bytes as
 * sent, because the next read reports the end of the connection. */
static size_t send_some(const struct service_link *link, struct slice bytes)
{
    size_t done = 0;

    while (done < bytes.len) {
        ssize_t sent = send(link->fd, bytes.ptr + done, bytes.len - done, MSG_NOSIGNAL);

        if (sent > 0) {
            done += (size_t)sent;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            done = bytes.len;
        }
    }
    return done;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct service_link *link = arg;

    (void)fd;
    (void)what;
    buf_consume(&link->out, send_some(link, buf_slice(&link->out)));
    if (buf_len(&link->out) > 0) {
        wait_to_send(link);
    }
}

void service_link_send(struct service_link *link, struct slice bytes)
{
    if (buf_len(&link->out) == 0) {
        bytes = slice_skip(bytes, send_some(link, bytes));
        if (bytes.len == 0) {
            return;
        }
        wait_to_send(link);
    }
    CHECK(buf_add(&link->out, bytes)); /* the caller's requests are bounded */
}

/* ---- reading ---- */

/* Passes on the complete lists. Nearly always the bytes are complete lists, and nothing is kept.
 * Meanwhile the bytes are not the link's, as its owner may free it. */
static void received(struct service_link *link, struct slice bytes)
{
    struct buf whole = link->in;
    enum attributes_event event;
    bool was_freed = false;
    size_t len;

    buf_init(&link->in, INPUT_MAX);
    if (buf_len(&whole) > 0) {
        CHECK(buf_add(&whole, bytes)); /* less than a complete list was left */
        bytes = buf_slice(&whole);
    }
    link->was_freed = &was_freed;
    while ((event = attributes_scan(&link->scan, bytes, &len)) == ATTRIBUTES_LIST) {
        link->owner->heard(link->arg, slice_of(bytes.ptr, len));
        if (was_freed) {
            break;
        }
        bytes = slice_skip(bytes, len);
    }
    if (!was_freed) {
        link->was_freed = NULL;
        CHECK(buf_add(&link->in, bytes));
        if (event == ATTRIBUTES_BAD) {
            link->owner->closed(link->arg, EPROTO);
        }
    }
    buf_fini(&whole);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct service_link *link = arg;
    char bytes[READ_SIZE];
    ssize_t got;

    if ((what & EV_TIMEOUT) != 0) {
        link->owner->closed(link->arg, ETIMEDOUT);
        return;
    }
    got = recv((int)fd, bytes, sizeof bytes, 0);
    if (got > 0) {
        received(link, slice_of(bytes, (size_t)got));
    } else if (got == 0) {
        link->owner->closed(link->arg, buf_len(&link->in) == 0 ? 0 : EPROTO);
    } else if (errno != EAGAIN && errno != EINTR) {
        link->owner->closed(link->arg, errno);
    }
}
