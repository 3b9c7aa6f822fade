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

/* A pipe takes this much in one piece or not at all, so lines of several processes never mix. */
_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "a line is written in one piece");

enum destination {
    TO_STDERR,  /* descriptor is 2, or a non-blocking opening of the same thing */
    TO_SYSLOG,  /* a datagram per line */
    TO_POSTLOG, /* the same, with the lines of a file, to Postfix's postlogd(8) */
    TO_FILE,
};

#define DATAGRAMS_MAX 32  /* lines that are sent in one call */
#define LOG_TAG_MAX   160 /* two names of 64 bytes, a number, and what is between them */

/* One log per process; that is why this module has state. */
static struct {
    enum destination to;
    int fd; /* -1: gone, or never there */
    unsigned file_mode;
    bool at_once;   /* a regular file: takes everything in one write */
    bool is_socket; /* standard error is one */
    char *path;     /* of TO_FILE and TO_POSTLOG */
    char *name;
    char *program;
    int pid; /* 0: not asked for yet */
    char host[256];
    char tag[LOG_TAG_MAX]; /* "postfix/qmgr[4711]: " of this process; empty: not made yet */
    enum log_level least;
    struct buf out;
    uint64_t lost;           /* lines since the last report of it */
    uint64_t lost_important; /* of these, deliveries and warnings */
    struct buf held;         /* lines that wait for a commit */
    unsigned holding;        /* log_hold less log_hold_end */

    bool syslog_used;
    dev_t syslog_dev; /* which socket was there when it was opened; none: 0 */
    ino_t syslog_ino;

    int64_t stamp_second; /* what `stamp` shows */
    char stamp[32];
} log_state = {.fd = STDERR_FILENO,
               .file_mode = 0640,
               .least = LOG_LEVEL_INFO,
               .out = {.limit = LOG_BUFFER_MAX},
               .held = {.limit = LOG_BUFFER_MAX},
               .stamp_second = INT64_MIN};

/* ---- destinations --------------------------------------------------------------------------- */

/* Standard error may be a terminal or pipe that others share, so O_NONBLOCK must not be set on it:
 * the flag belongs to the open file, not to our descriptor. A terminal or pipe is opened once more
 * instead; where that is not possible, writes may wait. */
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

    (void)stat(SYSLOG_SOCKET, &st); /* if it fails connect tells */
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
            (void)fchmod(fd, mode); /* with the umask's mode it still takes lines */
        } else if (errno == EEXIST) {
            fd = open(path, flags | O_CREAT, mode); /* another process was faster, or a symlink */
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

/* Of the file that is open. */
static unsigned mode_of_file(void)
{
    struct stat st;

    return log_state.fd >= 0 && fstat(log_state.fd, &st) == 0 ? st.st_mode & 0777U
                                                              : log_state.file_mode;
}

static void close_log(void)
{
    if (log_state.fd > STDERR_FILENO) {
        (void)close(log_state.fd); /* what it had to say went with each write */
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
        buf_clear(&log_state.out); /* what waits has the other form */
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
    tzset(); /* now, while the time zone's file can still be read */
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

/* Where standard output or error is the log's file, as in a daemon, it becomes the new one: the old
 * one, which was renamed or removed, is to be free. */
static void follow(int standard, int fd)
{
    struct stat old, now;

    if (log_state.to == TO_FILE && log_state.fd > STDERR_FILENO && fstat(standard, &now) == 0 &&
        fstat(log_state.fd, &old) == 0 && now.st_dev == old.st_dev && now.st_ino == old.st_ino) {
        (void)dup3(fd, standard, 0); /* else it stays where it was */
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

/* The first label, as syslog writes it. */
static const char *host(void)
{
    if (log_state.host[0] == '\0') {
        const char *named = log_state.to == TO_POSTLOG ? getenv("POSTLOG_HOSTNAME") : NULL;

        if (named != NULL) {
            (void)snprintf(log_state.host, sizeof log_state.host, "%s", named); /* cut */
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

/* Nearly all lines of a process have one tag, so that is made once. */
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

/* Append one line to the buffer, or count it as lost. Syslog's form is "<priority>", the time, and
 * the tag, without a host. */
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
    size_t start = 0, size = sizeof line - 1; /* the line feed */
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
    if (log_state.holding > 0 && buf_add(&log_state.held, slice_of(line, (size_t)len))) {
        return true;
    }
    log_state.held.failed = false; /* full: better too early than lost */
    if (buf_add(&log_state.out, slice_of(line, (size_t)len))) {
        return true;
    }
    log_state.out.failed = false; /* full for now; it is written out and goes on */
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

/* Is there room for another line in so much of the buffer? A file takes what waits at once. */
static bool has_room(size_t limit)
{
    if (buf_len(&log_state.out) + LOG_LINE_MAX > limit) {
        log_flush();
    }
    return buf_len(&log_state.out) + LOG_LINE_MAX <= limit;
}

/* `important` lines tell of deliveries, or are warnings; those that only inform leave half of the
 * buffer to them. */
static void log_line(enum log_level level, bool important, const char *program, int pid,
                     const char *format, va_list args)
{
    if (level < log_state.least) {
        return;
    }
    if (log_state.lost > 0 && log_state.holding == 0 && has_room(LOG_BUFFER_MAX / 2) &&
        add_linef(LOG_LEVEL_WARNING,
                  "%llu log lines were lost, %llu of them of deliveries or warnings: the log does "
                  "not take them as fast as they come",
                  (unsigned long long)log_state.lost,
                  (unsigned long long)log_state.lost_important)) {
        log_state.lost = log_state.lost_important = 0;
    }
    if ((log_state.holding == 0 && !has_room(important ? LOG_BUFFER_MAX : LOG_BUFFER_MAX / 2)) ||
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

void log_held_write(void)
{
    write_held(&log_state.held);
}

void log_held_take(struct buf *ret_lines)
{
    *ret_lines = log_state.held;
    buf_init(&log_state.held, LOG_BUFFER_MAX);
}

void log_held_write_taken(struct buf *lines)
{
    write_held(lines);
    buf_fini(lines);
}

void log_held_drop(void)
{
    buf_clear(&log_state.held);
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

/* How much of `out` goes in one write: whole lines, no more than stay in one piece. */
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

/* A datagram for each line, DATAGRAMS_MAX in one call. How many bytes have gone. */
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

/* The syslog daemon was restarted. Works as long as this process may open sockets; a confined one
 * waits for log_adopt. */
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
            buf_clear(&log_state.out); /* no process reads it any more */
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
            (void)syslog_again(); /* the next round tells */
        } else if (errno != EINTR) {
            /* Gone (EPIPE, EIO) or full (ENOSPC), which may pass. */
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
