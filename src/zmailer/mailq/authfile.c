#include "authfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, struct buf *text)
{
    size_t left = MAILQ_AUTH_FILE_MAX + 1;

    while (left > 0) {
        char *room = buf_room(text, left);
        ssize_t n = room == NULL ? -1 : read(fd, room, left);

        if (room == NULL) {
            return -EFBIG;
        }
        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        buf_grew(text, n > 0 ? (size_t)n : 0);
        left -= n > 0 ? (size_t)n : 0;
    }
    return -EFBIG;
}

static bool others_can_write(const struct stat *st)
{
    return (st->st_mode & S_IWOTH) != 0 || (st->st_uid != 0 && st->st_uid != geteuid()) ||
           ((st->st_mode & S_IWGRP) != 0 && st->st_gid != 0 && st->st_gid != getegid());
}

/* Does any line have a password in clear? */
static bool has_secrets(struct slice text)
{
    struct mailq_auth *auth;
    struct buf problems;
    bool has;

    buf_init(&problems, 65536);
    auth = mailq_auth_parse("", text, &problems); /* users of the file report these */
    has = mailq_auth_has_clear(auth);
    mailq_auth_free(auth);
    buf_fini(&problems);
    return has;
}

static int read_open(int fd, const char *path, struct buf *text, struct buf *complaints)
{
    struct stat st;
    int error;

    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }
    if (others_can_write(&st)) {
        (void)buf_addf(complaints, /* sticky: the caller checks `complaints` */
                       "%s: others than root and the daemon's user can write it: no client is "
                       "admitted\n",
                       path);
        return 0;
    }
    error = read_all(fd, text);
    if (error == 0 && (st.st_mode & S_IROTH) != 0 && has_secrets(buf_slice(text))) {
        (void)buf_addf(complaints,
                       "%s: all users can read the passwords in it: mode 0600 is better\n", path);
    }
    return error;
}

int authfile_read(const char *path, struct buf *text, struct buf *complaints)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error;

    if (fd < 0) {
        return -errno;
    }
    error = read_open(fd, path, text, complaints);
    (void)close(fd); /* only read */
    return error;
}
