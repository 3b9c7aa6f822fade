#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "mem.h"
#include "printable.h"
#include "slice.h"

#define SYSLOG_SOCKET  "/dev/log"
#define FILE_PREFIX    "file:"
#define POSTLOG_PREFIX "postlog:"

/* A pipe accepts at most this much as a whole, so lines of several processes never mix. */
_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "a line is written in one piece");

enum destination {
    TO_STDERR,  /* descriptor 2, or a non-blocking one for the same terminal or pipe */
    TO_SYSLOG,  /* a datagram per line */
    TO_POSTLOG, /* a datagram per line in the form of a file, to Postfix's postlogd(8) */
    TO_FILE,
};

#define DATAGRAMS_MAX 32  /* lines in one call */
#define LOG_TAG_MAX   160 /* two names of 64 bytes, a number, and separators */

/* Module state, because a process has one log. */
static struct {
    enum destination to;
    int fd; /* -1: closed, or never open */
    unsigned file_mode;
    bool at_once;   /* a regular file: accepts all bytes in one write */
    bool is_socket; /* standard error is a socket */
    char *path;     /* for TO_FILE and TO_POSTLOG */
    char *name;
    char *program;
    int pid; /* 0: not read yet */
    char host[256];
    char tag[LOG_TAG_MAX]; /* "postfix/qmgr[4711]: " of this process; empty: not made yet */
    enum log_level least;
    struct buf out;
    uint64_t lost;           /* lines lost since the last count in the log */
    uint64_t lost_important; /* deliveries and warnings among them */
    struct log_held held;    /* lines that wait for a commit */
    unsigned holding;        /* calls of log_hold minus calls of log_hold_end */
    unsigned holding_deliveries;

    bool syslog_used;
    dev_t syslog_dev; /* device of syslog's socket when it was opened; 0: none */
    ino_t syslog_ino;

    int64_t stamp_second; /* second of the time in `stamp` */
    char stamp[32];
} log_state = {
    .fd = STDERR_FILENO,
    .file_mode = 0640,
    .least = LOG_LEVEL_INFO,
    .out = {.limit = LOG_BUFFER_MAX},
    .held = {.changes = {.limit = LOG_BUFFER_MAX}, .deliveries = {.limit = LOG_BUFFER_MAX}},
    .stamp_second = INT64_MIN};

/* ---- destinations --------------------------------------------------------------------------- */

/* Opens standard error without waiting. It may be a terminal or pipe that others share, so
 * O_NONBLOCK must not be set: the flag belongs to the open file, not to our descriptor. A terminal
 * or pipe is opened a second time instead; if that fails, writes may wait. */
static int open_stderr(bool *ret_at_once, bool *ret_is_socket)
{
    struct stat st;
    int fd;

    *ret_at_once = *ret_is_socket = false;
    if (fstat(STDERR_FILENO, &st) != 0) {
        return -1;
    }
    *ret_at_once = S_ISREG(st.st_mode);
    *ret_is_socket = S_ISSOCK(st.st_mode);
    if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)) {
        return STDERR_FILENO;
    }
    fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? STDERR_FILENO : fd;
}

static int open_datagram(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (strlen(path) >= sizeof address.sun_path) {
        return -ENAMETOOLONG;
    }
    (void)strcpy(address.sun_path, path); /* fits */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        (void)close(fd); /* nothing was sent */
        return -error;
    }
    return fd;
}

int log_open_syslog(void)
{
    struct stat st = {0};

    (void)stat(SYSLOG_SOCKET, &st); /* connect reports a failure */
    log_state.syslog_used = true;
    log_state.syslog_dev = st.st_dev;
    log_state.syslog_ino = st.st_ino;
    return open_datagram(SYSLOG_SOCKET);
}

static int open_file(const char *path, int flags, unsigned mode)
{
    int fd;

    flags |= O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY;
    fd = open(path, flags);

    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT | O_EXCL, mode);
        if (fd >= 0) {
            (void)fchmod(fd, mode); /* a failure leaves the umask's mode */
        } else if (errno == EEXIST) {
            /* another process was faster, or it is a symlink */
            fd = open(path, flags | O_CREAT, mode);
        }
    }
    return fd < 0 ? -errno : fd;
}

int log_open_file(const char *path, int flags)
{
    return open_file(path, flags, log_state.file_mode);
}

void log_set_file_mode(unsigned mode)
{
    log_state.file_mode = mode;
}

/* Returns the mode of the open file. */
static unsigned mode_of_file(void)
{
    struct stat st;

    return log_state.fd >= 0 && fstat(log_state.fd, &st) == 0 ? st.st_mode & 0777U
                                                              : log_state.file_mode;
}

static void close_log(void)
{
    if (log_state.fd > STDERR_FILENO) {
        (void)close(log_state.fd); /* each write has ended */
    }
    log_state.fd = -1;
}

static void set_string(char **where, const char *value)
{
    char *copy = mem_string(value);

    mem_free(*where);
    *where = copy;
}

bool log_open(const char *where, const char *directory, const char *name, const char *program,
              struct buf *ret_error)
{
    struct buf path;
    enum destination to;
    bool at_once = false, is_socket = false;
    int fd;

    buf_init(&path, PATH_MAX);
    if (strcmp(where, "stderr") == 0) {
        to = TO_STDERR;
        fd = open_stderr(&at_once, &is_socket);
    } else if (strcmp(where, "syslog") == 0) {
        to = TO_SYSLOG;
        fd = log_open_syslog();
        if (fd < 0) {
            (void)buf_addf(ret_error, "log: %s: %s", SYSLOG_SOCKET, strerror(-fd)); /* sticky */
            return false;
        }
    } else if (strncmp(where, POSTLOG_PREFIX, strlen(POSTLOG_PREFIX)) == 0) {
        where += strlen(POSTLOG_PREFIX);
        to = TO_POSTLOG;
        fd = open_datagram(where);
        if (fd < 0 || !buf_add_string(&path, where)) {
            (void)buf_addf(ret_error, "log: %s: %s", where, strerror(-fd)); /* sticky */
            return false;
        }
    } else if (strncmp(where, FILE_PREFIX, strlen(FILE_PREFIX)) == 0) {
        where += strlen(FILE_PREFIX);
        if (!buf_addf(&path, "%s%s%s", where[0] == '/' ? "" : directory, where[0] == '/' ? "" : "/",
                      where)) {
            (void)buf_addf(ret_error, "log: path too long"); /* sticky */
            return false;
        }
        to = TO_FILE;
        at_once = true;
        fd = log_open_file(buf_cstr(&path), 0);
        if (fd < 0) {
            (void)buf_addf(ret_error, "log: %s: %s", buf_cstr(&path), strerror(-fd)); /* sticky */
            buf_fini(&path);
            return false;
        }
    } else {
        (void)buf_addf(ret_error, "log: %s: not stderr, syslog, postlog:PATH or file:PATH",
                       where); /* sticky */
        return false;
    }

    log_flush();
    close_log();
    if (log_state.to != to) {
        buf_clear(&log_state.out); /* waiting lines have another form */
    }
    log_state.to = to;
    log_state.fd = fd;
    log_state.at_once = at_once;
    log_state.is_socket = is_socket;
    set_string(&log_state.path, to == TO_FILE || to == TO_POSTLOG ? buf_cstr(&path) : "");
    set_string(&log_state.name, name);
    set_string(&log_state.program, program);
    log_state.pid = (int)getpid();
    log_state.tag[0] = '\0';
    buf_fini(&path);
    tzset(); /* needs the time zone's file, so before confinement */
    return true;
}

static bool is_datagram(void)
{
    return log_state.to == TO_SYSLOG || log_state.to == TO_POSTLOG;
}

static int open_socket(void)
{
    return log_state.to == TO_SYSLOG ? log_open_syslog() : open_datagram(log_state.path);
}

void log_reopen(void)
{
    int fd;

    if (log_state.to == TO_STDERR) {
        return;
    }
    fd = log_state.to == TO_FILE ? open_file(log_state.path, 0, mode_of_file()) : open_socket();
    if (fd < 0) {
        log_warning("log: cannot open it again: %s", strerror(-fd));
        return;
    }
    log_adopt(fd);
}

bool log_moved(void)
{
    struct stat there, ours;

    if (log_state.to == TO_FILE) {
        return log_state.fd >= 0 && fstat(log_state.fd, &ours) == 0 &&
               (stat(log_state.path, &there) != 0 || there.st_dev != ours.st_dev ||
                there.st_ino != ours.st_ino);
    }
    return log_state.syslog_used && stat(SYSLOG_SOCKET, &there) == 0 &&
           (there.st_dev != log_state.syslog_dev || there.st_ino != log_state.syslog_ino);
}

int log_share(void)
{
    return log_state.to == TO_STDERR || log_state.fd < 0
               ? -1
               : fcntl(log_state.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* Points standard output or error at the new file if it is the log's file, as in a daemon, so that
 * the previous file (renamed or removed) is freed. */
static void follow(int standard, int fd)
{
    struct stat old, now;

    if (log_state.to == TO_FILE && log_state.fd > STDERR_FILENO && fstat(standard, &now) == 0 &&
        fstat(log_state.fd, &old) == 0 && now.st_dev == old.st_dev && now.st_ino == old.st_ino) {
        (void)dup3(fd, standard, 0); /* otherwise it stays */
    }
}

void log_adopt(int fd)
{
    log_flush();
    follow(STDOUT_FILENO, fd);
    follow(STDERR_FILENO, fd);
    close_log();
    log_state.fd = fd;
}

void log_set_level(enum log_level least)
{
    log_state.least = least;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static const char *stamp(void)
{
    struct wall now = clock_wall();
    int64_t second = us_seconds(now.us);

    if (second != log_state.stamp_second) {
        time_t t = (time_t)second;
        struct tm local;

        if (localtime_r(&t, &local) == NULL ||
            strftime(log_state.stamp, sizeof log_state.stamp,
                     log_state.to == TO_POSTLOG ? "%b %d %H:%M:%S" : "%b %e %H:%M:%S",
                     &local) == 0) {
            log_state.stamp[0] = '\0';
        }
        log_state.stamp_second = second;
    }
    return log_state.stamp;
}

/* Returns the first label of the host name, as syslog writes it. */
static const char *host(void)
{
    if (log_state.host[0] == '\0') {
        const char *named = log_state.to == TO_POSTLOG ? getenv("POSTLOG_HOSTNAME") : NULL;

        if (named != NULL) {
            (void)snprintf(log_state.host, sizeof log_state.host, "%s", named); /* may be cut */
        } else if (gethostname(log_state.host, sizeof log_state.host - 1) != 0 ||
                   log_state.host[0] == '\0') {
            (void)strcpy(log_state.host, "localhost"); /* fits */
        }
        log_state.host[strcspn(log_state.host, ".")] = '\0';
    }
    return log_state.host;
}

static int syslog_priority(enum log_level level)
{
    static const int priorities[] = {
        [LOG_LEVEL_DEBUG] = LOG_MAIL | LOG_DEBUG,     [LOG_LEVEL_INFO] = LOG_MAIL | LOG_INFO,
        [LOG_LEVEL_WARNING] = LOG_MAIL | LOG_WARNING, [LOG_LEVEL_ERROR] = LOG_MAIL | LOG_ERR,
        [LOG_LEVEL_FATAL] = LOG_MAIL | LOG_CRIT,      [LOG_LEVEL_EMERGENCY] = LOG_MAIL | LOG_EMERG,
    };

    return priorities[level];
}

static void make_tag(const char *program, int pid, char room[LOG_TAG_MAX])
{
    (void)snprintf(room, LOG_TAG_MAX,
                   "%.64s/%.64s[%d]: ", log_state.name == NULL ? "postfix" : log_state.name,
                   program, pid);
}

static const char *own_program(void)
{
    return log_state.program == NULL ? "sluiced" : log_state.program;
}

int log_pid(void)
{
    if (log_state.pid == 0) {
        log_state.pid = (int)getpid();
    }
    return log_state.pid;
}

/* Returns the tag; makes that of this process only once, because nearly all lines have it. */
static const char *tag_of(const char *program, int pid, char room[LOG_TAG_MAX])
{
    if (program != own_program() || pid != log_pid()) {
        make_tag(program, pid, room);
        return room;
    }
    if (log_state.tag[0] == '\0') {
        make_tag(program, pid, log_state.tag);
    }
    return log_state.tag;
}

static size_t put(char line[LOG_LINE_MAX], size_t at, const char *text)
{
    size_t len = strlen(text);

    memcpy(line + at, text, len);
    return at + len;
}

/* Returns the buffer for lines that are kept aside, or NULL if they are not. */
static struct buf *held_place(void)
{
    return log_state.holding_deliveries > 0 ? &log_state.held.deliveries
           : log_state.holding > 0          ? &log_state.held.changes
                                            : NULL;
}

/* Appends one line to the buffer. Returns false if the buffer is full. Syslog's form is
 * "<priority>", the time, and the tag, without a host. */
static bool add_line(enum log_level level, const char *program, int pid, const char *format,
                     va_list args)
{
    static const char *const prefixes[] = {
        [LOG_LEVEL_DEBUG] = "",
        [LOG_LEVEL_INFO] = "",
        [LOG_LEVEL_WARNING] = "warning: ",
        [LOG_LEVEL_ERROR] = "error: ",
        [LOG_LEVEL_FATAL] = "fatal: ",
        [LOG_LEVEL_EMERGENCY] = "panic: ",
    };
    char line[LOG_LINE_MAX], priority[16], tag[LOG_TAG_MAX];
    size_t start = 0, size = sizeof line - 1; /* room for the line feed */
    struct buf *held = held_place();
    int len;

    _Static_assert(sizeof priority + sizeof log_state.stamp + sizeof log_state.host + sizeof tag +
                           32 <
                       sizeof line,
                   "what a line begins with has room");
    if (log_state.to == TO_SYSLOG) {
        (void)snprintf(priority, sizeof priority, "<%d>", syslog_priority(level)); /* fits */
        start = put(line, start, priority);
    }
    start = put(line, start, stamp());
    line[start++] = ' ';
    if (log_state.to != TO_SYSLOG) {
        start = put(line, start, host());
        line[start++] = ' ';
    }
    start = put(line, start, tag_of(program, pid, tag));
    start = put(line, start, prefixes[level]);
    len = vsnprintf(line + start, size - start, format, args);
    CHECK(len >= 0);
    len = (size_t)len < size - start ? len : (int)(size - start) - 1;
    printable_line(line + start, (size_t)len);
    len += (int)start;
    line[len++] = '\n';
    if (held != NULL && buf_add(held, slice_of(line, (size_t)len))) {
        return true;
    }
    if (held != NULL) {
        held->failed = false; /* full: log the line too early rather than lose it */
    }
    if (buf_add(&log_state.out, slice_of(line, (size_t)len))) {
        return true;
    }
    log_state.out.failed = false; /* full; log_flush makes room */
    return false;
}

static bool add_linef(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool add_linef(enum log_level level, const char *format, ...)
{
    va_list args;
    bool ok;

    va_start(args, format);
    ok = add_line(level, own_program(), log_pid(), format, args);
    va_end(args);
    return ok;
}

/* Does another line fit below `limit`? Writes the buffer first if not. */
static bool has_room(size_t limit)
{
    if (buf_len(&log_state.out) + LOG_LINE_MAX > limit) {
        log_flush();
    }
    return buf_len(&log_state.out) + LOG_LINE_MAX <= limit;
}

/* Logs a line, or counts it as lost. `important` lines (deliveries, warnings) may use the whole
 * buffer, others only half of it. */
static void log_line(enum log_level level, bool important, const char *program, int pid,
                     const char *format, va_list args)
{
    if (level < log_state.least) {
        return;
    }
    if (log_state.lost > 0 && held_place() == NULL && has_room(LOG_BUFFER_MAX / 2) &&
        add_linef(LOG_LEVEL_WARNING,
                  "%llu log lines were lost, %llu of them of deliveries or warnings: the log does "
                  "not take them as fast as they come",
                  (unsigned long long)log_state.lost,
                  (unsigned long long)log_state.lost_important)) {
        log_state.lost = log_state.lost_important = 0;
    }
    if ((held_place() == NULL && !has_room(important ? LOG_BUFFER_MAX : LOG_BUFFER_MAX / 2)) ||
        !add_line(level, program, pid, format, args)) {
        log_state.lost++;
        log_state.lost_important += important ? 1 : 0;
    }
}

void log_hold(void)
{
    log_state.holding++;
}

void log_hold_end(void)
{
    CHECK(log_state.holding > 0);
    log_state.holding--;
}

void log_hold_deliveries(void)
{
    log_state.holding_deliveries++;
}

void log_hold_deliveries_end(void)
{
    CHECK(log_state.holding_deliveries > 0);
    log_state.holding_deliveries--;
}

static void write_held(struct buf *held)
{
    struct slice rest = buf_slice(held);

    while (rest.len > 0) {
        size_t len = slice_find(rest, '\n') + 1;

        if (!has_room(LOG_BUFFER_MAX) || !buf_add(&log_state.out, slice_of(rest.ptr, len))) {
            log_state.out.failed = false;
            log_state.lost++;
            log_state.lost_important++;
        }
        rest = slice_skip(rest, len);
    }
    buf_clear(held);
}

void log_held_write(bool with_deliveries)
{
    if (with_deliveries) {
        write_held(&log_state.held.deliveries);
    }
    write_held(&log_state.held.changes);
}

void log_held_drop(void)
{
    buf_clear(&log_state.held.changes);
}

void log_held_take(struct log_held *ret_held)
{
    *ret_held = log_state.held;
    buf_init(&log_state.held.changes, LOG_BUFFER_MAX);
    buf_init(&log_state.held.deliveries, LOG_BUFFER_MAX);
}

static void keep_deliveries(struct buf *deliveries)
{
    if (!buf_add(&log_state.held.deliveries, buf_slice(deliveries))) {
        log_state.held.deliveries.failed = false;
        write_held(deliveries); /* full: log them too early rather than lose them */
    }
}

void log_held_write_taken(struct log_held *held, bool with_deliveries)
{
    if (with_deliveries) {
        write_held(&held->deliveries);
    } else {
        keep_deliveries(&held->deliveries);
    }
    write_held(&held->changes);
    buf_fini(&held->deliveries);
    buf_fini(&held->changes);
}

void log_held_drop_taken(struct log_held *held)
{
    keep_deliveries(&held->deliveries);
    buf_fini(&held->deliveries);
    buf_fini(&held->changes);
}

#define LOG_OWN_LINE(level)                                                                        \
    do {                                                                                           \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        log_line(level, (level) >= LOG_LEVEL_WARNING, own_program(), log_pid(), format, args);     \
        va_end(args);                                                                              \
    } while (0)

void log_info(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_INFO);
}

void log_warning(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_WARNING);
}

void log_error(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_ERROR);
}

void log_fatal(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_FATAL);
}

void log_emergency(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_EMERGENCY);
}

void log_debug(const char *format, ...)
{
    LOG_OWN_LINE(LOG_LEVEL_DEBUG);
}

void log_as(const char *program, int pid, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(LOG_LEVEL_INFO, true, program, pid, format, args);
    va_end(args);
}

/* ---- writing out ---------------------------------------------------------------------------- */

/* Returns the length of the next write: whole lines, at most PIPE_BUF bytes if not a file. */
static size_t piece(struct slice out)
{
    if (log_state.at_once || out.len <= PIPE_BUF) {
        return out.len;
    }
    return slice_find_last(slice_of(out.ptr, PIPE_BUF), '\n') + 1;
}

static uint64_t count_lines(struct slice text)
{
    uint64_t count = 0;

    while (text.len > 0) {
        text = slice_skip(text, slice_find(text, '\n') + 1);
        count++;
    }
    return count;
}

/* Sends a datagram per line, DATAGRAMS_MAX in one call. Returns the number of bytes sent. */
static ssize_t send_lines(struct slice out)
{
    struct mmsghdr messages[DATAGRAMS_MAX];
    struct iovec lines[DATAGRAMS_MAX];
    unsigned count = 0;
    size_t gone = 0;
    int sent;

    while (count < DATAGRAMS_MAX && out.len > 0) {
        size_t len = slice_find(out, '\n');

        lines[count] = (struct iovec){.iov_base = (char *)(uintptr_t)out.ptr, .iov_len = len};
        messages[count] = (struct mmsghdr){.msg_hdr = {.msg_iov = &lines[count], .msg_iovlen = 1}};
        out = slice_skip(out, len + 1);
        count++;
    }
    sent = sendmmsg(log_state.fd, messages, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int i = 0; i < sent; i++) {
        gone += lines[i].iov_len + 1;
    }
    return sent < 0 ? sent : (ssize_t)gone;
}

static ssize_t write_piece(struct slice out)
{
    if (log_state.is_socket) {
        return send(log_state.fd, out.ptr, piece(out), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    out.len = piece(out);
    return write(log_state.fd, out.ptr, out.len);
}

/* Connects to a restarted syslog daemon. A confined process can't open sockets; it waits for
 * log_adopt. */
static bool syslog_again(void)
{
    int fd = open_socket();

    if (fd < 0) {
        return false;
    }
    close_log();
    log_state.fd = fd;
    return true;
}

void log_flush(void)
{
    bool tried_again = false;

    while (buf_len(&log_state.out) > 0) {
        struct slice out = buf_slice(&log_state.out);
        ssize_t n;

        if (log_state.fd < 0) {
            buf_clear(&log_state.out); /* no reader is left */
            return;
        }
        n = is_datagram() ? send_lines(out) : write_piece(out);
        if (n >= 0) {
            buf_consume(&log_state.out, (size_t)n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
            return;
        } else if (is_datagram() && !tried_again &&
                   (errno == ECONNREFUSED || errno == ENOTCONN || errno == ECONNRESET)) {
            tried_again = true;
            (void)syslog_again(); /* the next attempt reports */
        } else if (errno != EINTR) {
            /* The destination is gone (EPIPE, EIO) or full (ENOSPC), perhaps only for a time. */
            out.len = is_datagram() ? slice_find(out, '\n') + 1 : piece(out);
            log_state.lost += count_lines(out);
            buf_consume(&log_state.out, out.len);
        }
    }
}

bool log_waiting(void)
{
    return buf_len(&log_state.out) > 0;
}
