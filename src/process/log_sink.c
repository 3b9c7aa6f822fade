#include "log_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"

void log_sink_init(struct log_sink *sink, enum log_sink_id id)
{
    static const char *const names[] = {[LOG_SINK_STATISTICS] = "statistics_log",
                                        [LOG_SINK_SYSLOG] = "scheduler_syslog",
                                        [LOG_SINK_EVENTS] = "events_file"};

    *sink = (struct log_sink){.name = names[id], .datagrams = id == LOG_SINK_SYSLOG, .fd = -1};
    buf_init(&sink->out, LOG_SINK_MAX);
}

static void close_it(struct log_sink *sink)
{
    if (sink->fd >= 0) {
        (void)close(sink->fd); /* each write has ended */
    }
    sink->fd = -1;
}

void log_sink_fini(struct log_sink *sink)
{
    log_sink_flush(sink);
    close_it(sink);
    buf_fini(&sink->out);
}

void log_sink_adopt(struct log_sink *sink, int fd)
{
    log_sink_flush(sink);
    close_it(sink);
    sink->fd = fd;
}

bool log_sink_is_open(const struct log_sink *sink)
{
    return sink->fd >= 0;
}

void log_sink_add(struct log_sink *sink, struct slice line)
{
    if (sink->fd < 0) {
        return;
    }
    if (!buf_add(&sink->out, line)) {
        sink->out.failed = false; /* full */
        sink->lost++;
    }
}

static ssize_t write_piece(const struct log_sink *sink, struct slice *piece)
{
    ssize_t n;

    if (!sink->datagrams) {
        return write(sink->fd, piece->ptr, piece->len);
    }
    piece->len = slice_find(*piece, '\n') + 1;
    n = send(sink->fd, piece->ptr, piece->len - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? n : (ssize_t)piece->len;
}

void log_sink_flush(struct log_sink *sink)
{
    bool wrote = false;

    while (sink->fd >= 0 && buf_len(&sink->out) > 0) {
        struct slice piece = buf_slice(&sink->out);
        ssize_t n = write_piece(sink, &piece);

        if (n > 0) {
            buf_consume(&sink->out, (size_t)n); /* the rest of a cut line follows */
            wrote = true;
        } else if (n == 0 || errno != EINTR) {
            if (!sink->stuck) {
                log_warning("%s: lines wait: %s", sink->name, strerror(errno));
                sink->stuck = true;
            }
            return;
        }
    }
    if (wrote && sink->stuck) {
        log_warning("%s: lines go through again, %" PRIu64 " were lost", sink->name, sink->lost);
        sink->stuck = false;
        sink->lost = 0;
    }
}

int log_sink_open_file(const char *path)
{
    return log_open_file(path, O_NONBLOCK);
}
