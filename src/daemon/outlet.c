#include "outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"

void outlet_init(struct outlet *o, enum outlet_id id)
{
    static const char *const names[] = {
        [OUTLET_STATISTICS] = "statistics_log", [OUTLET_SYSLOG] = "scheduler_syslog"};

    *o = (struct outlet){.name = names[id], .datagrams = id == OUTLET_SYSLOG, .fd = -1};
    buf_init(&o->out, OUTLET_MAX);
}

static void close_it(struct outlet *o)
{
    if (o->fd >= 0) {
        (void)close(o->fd); /* what it had to say went with each write */
    }
    o->fd = -1;
}

void outlet_fini(struct outlet *o)
{
    outlet_flush(o);
    close_it(o);
    buf_fini(&o->out);
}

void outlet_adopt(struct outlet *o, int fd)
{
    outlet_flush(o);
    close_it(o);
    o->fd = fd;
}

bool outlet_is_open(const struct outlet *o)
{
    return o->fd >= 0;
}

void outlet_add(struct outlet *o, struct slice line)
{
    if (o->fd < 0) {
        return;
    }
    if (!buf_add(&o->out, line)) {
        o->out.failed = false; /* full for now */
        o->lost++;
    }
}

static ssize_t write_piece(const struct outlet *o, struct slice *piece)
{
    ssize_t n;

    if (!o->datagrams) {
        return write(o->fd, piece->ptr, piece->len);
    }
    piece->len = slice_find(*piece, '\n') + 1;
    n = send(o->fd, piece->ptr, piece->len - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? n : (ssize_t)piece->len;
}

void outlet_flush(struct outlet *o)
{
    bool wrote = false;

    while (o->fd >= 0 && buf_len(&o->out) > 0) {
        struct slice piece = buf_slice(&o->out);
        ssize_t n = write_piece(o, &piece);

        if (n > 0) {
            buf_consume(&o->out, (size_t)n); /* the rest of a line that was cut follows */
            wrote = true;
        } else if (n == 0 || errno != EINTR) {
            if (!o->stuck) {
                log_warning("%s: lines wait: %s", o->name, strerror(errno));
                o->stuck = true;
            }
            return;
        }
    }
    if (wrote && o->stuck) {
        log_warning("%s: lines go through again, %" PRIu64 " were lost", o->name, o->lost);
        o->stuck = false;
        o->lost = 0;
    }
}

int outlet_open_file(const char *path)
{
    return log_open_file(path, O_NONBLOCK);
}
