#include "mbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "envelope.h"

#define FILE_MODE 0600
/* Bytes of the "From " line and header fields. */
#define HEAD_MAX (3 * ADDRESS_MAX + 256)
/* A line with more ">" signs before "From " is not quoted. */
#define ANGLES_MAX 998
/* Time between two tries to get a lock. */
#define LOCK_TRY_MS 50

static int fail(struct buf *why, const char *doing, const char *what, int error)
{
    (void)buf_addf(why, "%s %s: %s", doing, what, strerror(error)); /* may be cut */
    return -error;
}

/* ---- locks ---------------------------------------------------------------------------------- */

struct lock_wait {
    int tries_left;
};

/* Waits before the next try. Returns false if the time is over. */
static bool wait_a_bit(struct lock_wait *w)
{
    static const struct timespec pause = {.tv_nsec = LOCK_TRY_MS * 1000000L};

    if (--w->tries_left < 0) {
        return false;
    }
    (void)nanosleep(&pause, NULL); /* a signal makes it shorter */
    return true;
}

static void remove_if_stale(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && st.st_mtime + MBOX_LOCK_STALE_S < time(NULL)) {
        (void)unlink(path); /* another process may do so */
    }
}

/* Returns 1 if PATH.lock was made, 0 if it can't be made and is not needed, or negative errno. */
static int dot_lock(const char *path, struct lock_wait *w)
{
    for (;;) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);

        if (fd >= 0) {
            (void)dprintf(fd, "%d\n", (int)getpid()); /* for people */
            (void)close(fd);                          /* its name is the lock */
            return 1;
        }
        if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENAMETOOLONG) {
            return 0;
        }
        if (errno != EEXIST && errno != EINTR) {
            return -errno;
        }
        remove_if_stale(path);
        if (!wait_a_bit(w)) {
            return -EAGAIN;
        }
    }
}

static int file_lock(int fd, struct lock_wait *w)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    while (fcntl(fd, F_SETLK, &lock) != 0) {
        if (errno == ENOLCK || errno == EINVAL) {
            return 0; /* no locks on this file system: PATH.lock must suffice */
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            return -errno;
        }
        if (!wait_a_bit(w)) {
            return -EAGAIN;
        }
    }
    return 0;
}

/* ---- content -------------------------------------------------------------------------------- */

/* State of quoting between pieces of input. */
struct quoter {
    bool in_line;
    size_t angles;  /* number of ">" at the start of a line, not yet written */
    size_t matched; /* bytes of "From " after them, not yet written */
};

static const char from_word[] = "From ";

static void release(struct quoter *q, struct buf *out)
{
    for (size_t i = 0; i < q->angles; i++) {
        (void)buf_add_byte(out, '>'); /* the error sticks, here and below */
    }
    (void)buf_add(out, slice_of(from_word, q->matched));
    q->angles = q->matched = 0;
}

static void quote(struct quoter *q, struct slice in, struct buf *out)
{
    while (in.len > 0) {
        size_t end = slice_find(in, '\n');

        if (q->in_line) {
            q->in_line = end == in.len;
            end += end < in.len;
            (void)buf_add(out, slice_of(in.ptr, end));
            in = slice_skip(in, end);
        } else if (q->matched == 0 && in.ptr[0] == '>' && q->angles < ANGLES_MAX) {
            q->angles++;
            in = slice_skip(in, 1);
        } else if (in.ptr[0] == from_word[q->matched]) {
            in = slice_skip(in, 1);
            if (++q->matched == sizeof from_word - 1) {
                (void)buf_add_byte(out, '>');
                release(q, out);
                q->in_line = true;
            }
        } else {
            release(q, out);
            q->in_line = true;
        }
    }
}

/* Is a mail_filter that quotes lines and ends the message with an empty line. */
static void quote_lines(void *arg, struct slice lines, bool last, struct buf *out)
{
    struct quoter *q = arg;

    quote(q, lines, out);
    if (last) {
        release(q, out);
        (void)buf_add_byte(out, '\n');
    }
}

void mbox_put_from(struct buf *out, struct slice sender, struct wall now)
{
    time_t seconds = (time_t)us_seconds(now.us);
    struct tm local = {0};
    char date[32];

    (void)buf_add_string(out, "From ");
    if (sender.len == 0) {
        sender = SLICE("MAILER-DAEMON");
    }
    for (size_t i = 0; i < sender.len && i < ADDRESS_MAX; i++) {
        unsigned char c = (unsigned char)sender.ptr[i];

        (void)buf_add_byte(out, c <= ' ' || c == 0x7f ? '_' : (char)c); /* must be one word */
    }
    if (localtime_r(&seconds, &local) == NULL ||
        strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", &local) == 0) {
        (void)snprintf(date, sizeof date, "Thu Jan  1 00:00:00 1970");
    }
    (void)buf_addf(out, " %s\n", date);
}

/* Adds the empty line that readers need between messages, if the file does not end with one. */
static int put_gap(int fd, off_t size, struct buf *out)
{
    char last[2];

    if (size == 0) {
        return 0;
    }
    last[0] = '\n';
    if (pread(fd, size == 1 ? last + 1 : last, size == 1 ? 1 : 2, size == 1 ? 0 : size - 2) < 1) {
        return -EIO;
    }
    if (last[1] != '\n') {
        (void)buf_add_byte(out, '\n');
    }
    if (last[1] != '\n' || last[0] != '\n') {
        (void)buf_add_byte(out, '\n');
    }
    return 0;
}

/* ---- the file ------------------------------------------------------------------------------- */

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* Opens the mailbox. *ret_new: the file did not exist. */
static int open_file(const char *path, bool *ret_new)
{
    int flags = O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = -1;

    for (int i = 0; fd < 0 && i < 3; i++) {
        *ret_new = false;
        fd = open(path, flags);
        if (fd < 0 && errno == ENOENT) {
            *ret_new = true;
            fd = open(path, flags | O_CREAT | O_EXCL, FILE_MODE);
        }
        if (fd < 0 && errno != ENOENT && errno != EEXIST) {
            break;
        }
    }
    return fd < 0 ? -errno : fd;
}

static int check_file(int fd, struct stat *ret_st)
{
    if (fstat(fd, ret_st) != 0) {
        return -errno;
    }
    if (is_null_device(ret_st)) {
        return 0;
    }
    return !S_ISREG(ret_st->st_mode) || ret_st->st_nlink != 1 || ret_st->st_uid != geteuid()
               ? -EPERM
               : 0;
}

static int sync_parent(const char *path)
{
    char parent[MBOX_PATH_MAX + 1];
    char *slash;
    int fd, rc;

    (void)snprintf(parent, sizeof parent, "%s", path); /* fits: mbox_deliver */
    slash = strrchr(parent, '/');
    if (slash == NULL) {
        (void)snprintf(parent, sizeof parent, ".");
    } else {
        *(slash == parent ? slash + 1 : slash) = '\0';
    }
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno == EACCES ? 0 : -errno; /* the directory can be written but not read */
    }
    rc = mail_file_sync_directory(fd);
    (void)close(fd); /* only read */
    return rc;
}

/* Appends the message to a locked file; removes it again on an error. */
static int append(int fd, const struct mbox_mail *mail, mail_read *read, void *arg, struct buf *why)
{
    struct quoter quoter = {0};
    struct stat st;
    struct buf head;
    int rc;

    if (fstat(fd, &st) != 0) {
        return fail(why, "look at", mail->copy.path, errno);
    }
    buf_init(&head, HEAD_MAX);
    rc = put_gap(fd, st.st_size, &head);
    if (rc == 0) {
        mbox_put_from(&head, mail->copy.sender, mail->copy.now);
        mail_file_put_header(&head, &mail->copy);
        rc = head.failed ? -EMSGSIZE
                         : mail_file_write(fd, buf_slice(&head), quote_lines, &quoter, read, arg);
    }
    if (rc == 0 && fsync(fd) != 0) {
        rc = -errno;
    }
    buf_fini(&head);
    if (rc != 0) {
        (void)fail(why, "write", mail->copy.path, -rc);
        if (ftruncate(fd, st.st_size) != 0) {
            (void)buf_addf(why, "; part of the message is left there: %s", strerror(errno));
        }
        return rc;
    }
    /* Restore the access time: "you have new mail" depends on it, and only we have read the
     * file. */
    (void)futimens(fd, (const struct timespec[2]){st.st_atim, {.tv_nsec = UTIME_OMIT}});
    return 0;
}

/* Does the path still name the locked file? A reader may have replaced it. */
static bool is_still_there(int fd, const char *path)
{
    struct stat ours, there;

    return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

static int discard(mail_read *read, void *arg)
{
    struct slice piece;
    int more;

    do {
        more = read(arg, &piece);
    } while (more > 0);
    return more;
}

/* Delivers the message while PATH.lock is held. */
static int deliver_locked(const struct mbox_mail *mail, struct lock_wait *w, mail_read *read,
                          void *arg, struct buf *why)
{
    struct stat st;
    bool is_new;
    int fd = open_file(mail->copy.path, &is_new), rc;

    if (fd < 0) {
        return fail(why, "open", mail->copy.path, -fd);
    }
    rc = check_file(fd, &st);
    if (rc != 0) {
        (void)buf_addf(why, "%s: not a regular file of the user's with one name", mail->copy.path);
    } else if (is_null_device(&st)) {
        rc = discard(read, arg);
    } else {
        rc = file_lock(fd, w);
        if (rc != 0) {
            (void)fail(why, "lock", mail->copy.path, -rc);
        } else if (!is_still_there(fd, mail->copy.path)) {
            rc = fail(why, "lock", mail->copy.path, ESTALE);
        } else {
            rc = append(fd, mail, read, arg, why);
        }
    }
    if (close(fd) != 0 && rc == 0) {
        rc = fail(why, "close", mail->copy.path, errno);
    }
    if (rc == 0 && is_new && (rc = sync_parent(mail->copy.path)) != 0) {
        (void)fail(why, "sync the directory of", mail->copy.path, -rc);
    }
    return rc;
}

int mbox_deliver(const struct mbox_mail *mail, mail_read *read, void *arg, struct buf *ret_why)
{
    struct lock_wait w = {.tries_left = mail->lock_wait_s * 1000 / LOCK_TRY_MS};
    char lock[MBOX_PATH_MAX + 8];
    size_t len = strlen(mail->copy.path);
    sigset_t enders, before;
    int locked = 0, rc;

    if (len == 0 || len >= MBOX_PATH_MAX) {
        return fail(ret_why, "open", "mailbox", ENAMETOOLONG);
    }
    (void)snprintf(lock, sizeof lock, "%s.lock", mail->copy.path);
    CHECK(sigemptyset(&enders) == 0 && sigaddset(&enders, SIGTERM) == 0 &&
          sigaddset(&enders, SIGINT) == 0 && sigaddset(&enders, SIGHUP) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &enders, &before) == 0);
    if (mail->dot_lock) {
        locked = dot_lock(lock, &w);
    }
    if (locked < 0) {
        rc = fail(ret_why, "create", lock, -locked);
    } else {
        rc = deliver_locked(mail, &w, read, arg, ret_why);
    }
    if (locked > 0) {
        (void)unlink(lock); /* otherwise it becomes stale */
    }
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    return rc;
}

struct status mbox_status(int error)
{
    switch (error < 0 ? -error : error) {
    case EPERM: /* not a file for delivery */
    case ELOOP:
    case EISDIR:
        return (struct status){STATUS_PERMANENT, 2, 1};
    default:
        return mail_file_status(error, (struct status){STATUS_TRANSIENT, 2, 0});
    }
}
