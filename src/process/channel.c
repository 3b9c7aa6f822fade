#include "channel.h"

#include <endian.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "frame.h"
#include "mem.h"

#define HEADER_SIZE 8
/* Bytes of one read; a longer frame is read directly into its place. */
#define READ_SIZE (256u << 10)
/* Descriptors that one read can bring; more break the channel. */
#define FDS_PER_READ 64
/* Descriptors received but not claimed by a frame. */
#define FDS_HELD_MAX 128

struct sent_fd {
    STAILQ_ENTRY(sent_fd) next;
    uint64_t at; /* position in the output stream of the header with this descriptor */
    int fd;
};

struct channel {
    struct event *read_event;
    struct event *write_event;
    channel_ready *ready;
    void *arg;
    int fd;
    bool broken;
    bool paused;
    bool write_armed;
    bool in_begin;

    struct buf in;
    size_t used; /* bytes of the frame returned last; dropped at the next call */
    int fds[FDS_HELD_MAX];
    size_t fd_count;

    struct buf out;
    size_t begin_at; /* offset in out of the header under construction */
    uint64_t sent;   /* bytes written so far */
    STAILQ_HEAD(, sent_fd) out_fds;

    LIST_ENTRY(channel) all;
};

/* All channels of this process, for channel_flush_all. */
static LIST_HEAD(, channel) channels = LIST_HEAD_INITIALIZER(channels);

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *ch = arg;

    (void)fd;
    (void)what;
    ch->ready(ch->arg, ch);
}

static void write_out(struct channel *ch);

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct channel *ch = arg;

    (void)fd;
    (void)what;
    ch->write_armed = false;
    write_out(ch);
}

struct channel *channel_new(struct event_base *base, int fd, channel_ready *ready, void *arg)
{
    struct channel *ch = mem_new(sizeof *ch);

    ch->fd = fd;
    ch->ready = ready;
    ch->arg = arg;
    buf_init(&ch->in, CHANNEL_BODY_MAX + HEADER_SIZE + READ_SIZE);
    buf_init(&ch->out, CHANNEL_OUTPUT_MAX);
    STAILQ_INIT(&ch->out_fds);
    CHECK(evutil_make_socket_nonblocking(fd) == 0);
    ch->read_event = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, ch);
    ch->write_event = event_new(base, fd, EV_WRITE, on_writable, ch);
    CHECK(ch->read_event != NULL);
    CHECK(ch->write_event != NULL);
    CHECK(event_add(ch->read_event, NULL) == 0);
    LIST_INSERT_HEAD(&channels, ch, all);
    return ch;
}

void channel_keep_secret(struct channel *ch)
{
    buf_keep_secret(&ch->in);
    buf_keep_secret(&ch->out);
}

void channel_free(struct channel *ch)
{
    struct sent_fd *sent;

    if (ch == NULL) {
        return;
    }
    LIST_REMOVE(ch, all);
    event_free(ch->read_event);
    event_free(ch->write_event);
    while (ch->fd_count > 0) {
        (void)close(ch->fds[--ch->fd_count]); /* only read or never used */
    }
    while ((sent = STAILQ_FIRST(&ch->out_fds)) != NULL) {
        STAILQ_REMOVE_HEAD(&ch->out_fds, next);
        (void)close(sent->fd); /* not sent; the caller has given it away */
        mem_free(sent);
    }
    (void)close(ch->fd); /* a socket: nothing to lose */
    buf_fini(&ch->in);
    buf_fini(&ch->out);
    mem_free(ch);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void take_fds(struct channel *ch, struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (ch->fd_count == FDS_HELD_MAX) {
                (void)close(fd); /* refused */
                ch->broken = true;
            } else {
                ch->fds[ch->fd_count++] = fd;
            }
        }
    }
    if ((message->msg_flags & MSG_CTRUNC) != 0) {
        ch->broken = true; /* no descriptor left, or the peer has sent too many */
    }
}

/* Reads once. Returns false if there is no input now or the channel is broken. */
static bool read_some(struct channel *ch, size_t wanted)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_PER_READ)];
    } control;
    size_t size = wanted > READ_SIZE ? wanted : READ_SIZE;
    struct iovec iov = {.iov_base = buf_room(&ch->in, size), .iov_len = size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;

    CHECK(iov.iov_base != NULL);
    do {
        n = recvmsg(ch->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            ch->broken = true;
        }
        return false;
    }
    take_fds(ch, &message);
    buf_grew(&ch->in, (size_t)n);
    return !ch->broken;
}

/* Is there a complete frame? *ret_missing: number of bytes known to be missing. */
static bool frame_ready(struct channel *ch, struct frame *ret_frame, size_t *ret_missing)
{
    struct slice in = buf_slice(&ch->in);
    uint32_t len;
    uint16_t type, fds;

    if (in.len < HEADER_SIZE) {
        *ret_missing = HEADER_SIZE - in.len;
        return false;
    }
    memcpy(&len, in.ptr, sizeof len);
    memcpy(&type, in.ptr + 4, sizeof type);
    memcpy(&fds, in.ptr + 6, sizeof fds);
    len = le32toh(len);
    fds = le16toh(fds);
    if (len > CHANNEL_BODY_MAX || fds > 1) {
        ch->broken = true;
        return false;
    }
    if (in.len - HEADER_SIZE < len) {
        *ret_missing = len - (in.len - HEADER_SIZE);
        return false;
    }
    if (fds > ch->fd_count) {
        ch->broken = true; /* a descriptor travels with the first byte of its frame's header */
        return false;
    }
    ret_frame->type = le16toh(type);
    ret_frame->body = slice_of(in.ptr + HEADER_SIZE, len);
    ret_frame->fd = -1;
    if (fds == 1) {
        ret_frame->fd = ch->fds[0];
        memmove(ch->fds, ch->fds + 1, --ch->fd_count * sizeof ch->fds[0]);
    }
    ch->used = HEADER_SIZE + len;
    return true;
}

enum channel_event channel_next(struct channel *ch, struct frame *ret_frame)
{
    size_t missing;

    if (ch->used > 0) {
        buf_consume(&ch->in, ch->used);
        ch->used = 0;
    }
    for (;;) {
        /* Frames received before the other side closed are still valid. */
        if (frame_ready(ch, ret_frame, &missing)) {
            return CHANNEL_FRAME;
        }
        if (ch->broken) {
            return CHANNEL_CLOSED;
        }
        if (ch->paused || !read_some(ch, missing)) {
            if (ch->broken && buf_len(&ch->in) >= HEADER_SIZE) {
                continue; /* there may be another frame; then CHANNEL_CLOSED */
            }
            return ch->broken ? CHANNEL_CLOSED : CHANNEL_EMPTY;
        }
    }
}

void channel_pause(struct channel *ch, bool paused)
{
    if (ch->paused == paused) {
        return;
    }
    ch->paused = paused;
    if (paused) {
        CHECK(event_del(ch->read_event) == 0);
    } else {
        CHECK(event_add(ch->read_event, NULL) == 0);
        event_active(ch->read_event, EV_READ, 0); /* complete frames may be in the buffer */
    }
}

/* ---- sending -------------------------------------------------------------------------------- */

struct buf *channel_begin(struct channel *ch, uint16_t type)
{
    static const char room[HEADER_SIZE];

    CHECK(!ch->in_begin);
    ch->in_begin = true;
    ch->begin_at = buf_len(&ch->out);
    if (buf_add(&ch->out, slice_of(room, sizeof room))) {
        uint16_t wire = htole16(type);
        memcpy(ch->out.ptr + ch->out.start + ch->begin_at + 4, &wire, sizeof wire);
    }
    return &ch->out;
}

void channel_end(struct channel *ch, int fd)
{
    size_t body;

    CHECK(ch->in_begin);
    ch->in_begin = false;
    if (ch->out.failed) {
        ch->broken = true; /* part of a frame must never be sent */
        buf_clear(&ch->out);
        event_active(ch->read_event, EV_READ, 0);
        if (fd >= 0) {
            (void)close(fd); /* never sent */
        }
        return;
    }
    body = buf_len(&ch->out) - ch->begin_at - HEADER_SIZE;
    CHECK(body <= CHANNEL_BODY_MAX);
    char *header = ch->out.ptr + ch->out.start + ch->begin_at;
    uint32_t len = htole32((uint32_t)body);
    uint16_t fds = htole16(fd >= 0 ? 1 : 0);
    memcpy(header, &len, sizeof len);
    memcpy(header + 6, &fds, sizeof fds);
    if (fd >= 0) {
        struct sent_fd *sent = mem_new(sizeof *sent);
        sent->at = ch->sent + ch->begin_at;
        sent->fd = fd;
        STAILQ_INSERT_TAIL(&ch->out_fds, sent, next);
    }
}

size_t channel_waiting(const struct channel *ch)
{
    return buf_len(&ch->out);
}

/* Calls sendmsg once: with the bytes before the next frame that has a descriptor, or with that
 * frame's first bytes and the descriptor. */
static ssize_t send_some(struct channel *ch)
{
    struct slice out = buf_slice(&ch->out);
    struct sent_fd *sent = STAILQ_FIRST(&ch->out_fds);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)out.ptr, .iov_len = out.len};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (sent != NULL && sent->at > ch->sent) {
        if (sent->at - ch->sent < out.len) {
            iov.iov_len = (size_t)(sent->at - ch->sent);
        }
    } else if (sent != NULL) {
        iov.iov_len = HEADER_SIZE;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &sent->fd, sizeof sent->fd);
    }
    do {
        n = sendmsg(ch->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0 && message.msg_control != NULL) {
        STAILQ_REMOVE_HEAD(&ch->out_fds, next);
        (void)close(sent->fd); /* the other side has a copy */
        mem_free(sent);
    }
    return n;
}

static void write_out(struct channel *ch)
{
    while (!ch->broken && buf_len(&ch->out) > 0) {
        ssize_t n = send_some(ch);

        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                ch->broken = true;
                event_active(ch->read_event, EV_READ, 0); /* channel_next reports it to the owner */
            } else if (!ch->write_armed) {
                CHECK(event_add(ch->write_event, NULL) == 0);
                ch->write_armed = true;
            }
            return;
        }
        ch->sent += (uint64_t)n;
        buf_consume(&ch->out, (size_t)n);
    }
}

void channel_flush_all(void)
{
    struct channel *ch;

    LIST_FOREACH(ch, &channels, all)
    {
        CHECK(!ch->in_begin);
        if (!ch->write_armed) {
            write_out(ch);
        }
    }
}

bool channel_drain(struct channel *ch, int timeout_ms)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = ch->fd, .events = POLLOUT};

        write_out(ch);
        if (ch->broken || buf_len(&ch->out) == 0) {
            return !ch->broken;
        }
        if (poll(&poll_fd, 1, timeout_ms) <= 0) {
            return false;
        }
    }
}

enum channel_event channel_wait(struct channel *ch, int timeout_ms, struct frame *ret_frame)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = ch->fd, .events = POLLIN};
        enum channel_event event = channel_next(ch, ret_frame);

        if (event != CHANNEL_EMPTY || poll(&poll_fd, 1, timeout_ms) <= 0) {
            return event;
        }
    }
}

bool channel_is_deserted(const struct channel *ch)
{
    struct pollfd ready = {.fd = ch->fd, .events = POLLRDHUP};

    return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}
