#include "spool_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_text(int fd, struct buf *ret_text)
{
    ssize_t n = 1;

    while (n != 0) {
        char *room = buf_room(ret_text, 512);

        if (room == NULL) {
            return -EFBIG;
        }
        n = read(fd, room, 512);
        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        buf_grew(ret_text, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

int spool_secret_read(const struct conf *conf, struct buf *ret_text, struct buf *ret_error)
{
    const char *path = conf->spool_password_file;
    struct stat st;
    int fd, err = 0;

    if (path[0] == '\0') {
        return 0;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = -errno;
    } else if (!S_ISREG(st.st_mode)) {
        err = -EINVAL;
    } else {
        err = read_text(fd, ret_text);
    }
    if (err != 0) {
        (void)buf_addf(ret_error, "spool_password_file: %s: %s", path, strerror(-err)); /* sticky */
    } else if ((st.st_mode & 027) != 0) {
        (void)buf_addf(ret_error,
                       "spool_password_file: %s has mode %04o, so that others can %s it; expected "
                       "0600",
                       path, (unsigned)(st.st_mode & 07777),
                       (st.st_mode & 022) != 0 ? "change" : "read"); /* sticky */
        err = -EACCES;
    }
    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    return err;
}
