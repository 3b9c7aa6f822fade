#include "auth_key.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entropy.h"

#define KEY_FILE "auth.key"

/* Returns 1 if the key was read, 0 if there is none, and -1 and errno if it is not usable. */
static int read_key(const char *path, uint8_t ret_key[WIRE_AUTH_KEY_SIZE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == WIRE_AUTH_KEY_SIZE) {
        n = read(fd, ret_key, WIRE_AUTH_KEY_SIZE);
    }
    (void)close(fd); /* only read */
    errno = EINVAL;
    return n == WIRE_AUTH_KEY_SIZE ? 1 : -1;
}

/* Writes the key: the file is complete or does not exist. */
static bool write_key(const char *path, const uint8_t key[WIRE_AUTH_KEY_SIZE])
{
    char temporary[PATH_MAX];
    int len = snprintf(temporary, sizeof temporary, "%s.new", path), fd;
    bool ok;

    errno = ENAMETOOLONG;
    if (len < 0 || (size_t)len >= sizeof temporary) {
        return false;
    }
    (void)unlink(temporary); /* left by a daemon that was killed; open reports errors */
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0) {
        return false;
    }
    ok = write(fd, key, WIRE_AUTH_KEY_SIZE) == WIRE_AUTH_KEY_SIZE && fsync(fd) == 0 &&
         rename(temporary, path) == 0;
    (void)close(fd); /* fsync has reported errors */
    return ok;
}

bool auth_key_get(const struct conf *conf, uint8_t ret_key[WIRE_AUTH_KEY_SIZE],
                  struct buf *ret_error)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%s/" KEY_FILE, conf->state_directory), found = -1;

    errno = ENAMETOOLONG;
    if (len >= 0 && (size_t)len < sizeof path) {
        found = read_key(path, ret_key);
    }
    if (found == 0) {
        entropy_fill(ret_key, WIRE_AUTH_KEY_SIZE);
        found = write_key(path, ret_key) ? 1 : -1;
    }
    if (found < 0) {
        (void)buf_addf(ret_error, "%s: %s; expected a file of %u random bytes, or none", path,
                       strerror(errno), WIRE_AUTH_KEY_SIZE); /* sticky */
    }
    return found == 1;
}
