#include "ta_submit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "zmailer_dialect.h"

#define PATH_SIZE    512
#define ENVELOPE_MAX ((size_t)256 << 20)
/* Number of file names that are tried; a crash may have left some. */
#define NAME_TRIES 20

static int fail(struct buf *why, const char *doing, const char *what, int error)
{
    (void)buf_addf(why, "%s %s: %s", doing, what, strerror(error)); /* the text may be cut */
    return -error;
}

static bool put_envelope(const struct ta_submission *s, struct buf *out)
{
    bool ok = router_file_begin(out, &s->envelope);

    for (size_t i = 0; i < s->rcpt_count; i++) {
        ok = router_file_rcpt(out, s->rcpts[i].address, s->rcpts[i].dsn) && ok;
    }
    router_file_end(out);
    return ok && !out->failed;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int create(const struct ta_submission *s, char path[PATH_SIZE])
{
    int fd = -1;

    for (int i = 0; fd < 0 && i < NAME_TRIES; i++) {
        int len = snprintf(path, PATH_SIZE, "../public/%s:%d", s->envelope.host, (int)getpid());

        CHECK(len > 0 && len + 16 < PATH_SIZE);
        if (i > 0) {
            (void)snprintf(path + len, PATH_SIZE - (size_t)len, ".%d", i);
        }
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    return fd < 0 ? -errno : fd;
}

/* Makes the router's path of the message: with ROUTERDIRHASH=1 in a hash directory by its
 * number. */
static void router_path(const struct ta_submission *s, uint64_t number, char path[PATH_SIZE])
{
    const char *levels = conf_zenv(s->zenv, SLICE("ROUTERDIRHASH"));
    char hash[5] = "";
    struct stat st;

    if (levels != NULL && strcmp(levels, "1") == 0) {
        control_hash_directory(number, 1, hash);
        (void)snprintf(path, PATH_SIZE, "../router/%s", hash);
        if (stat(path, &st) != 0) {
            hash[0] = '\0'; /* the router also reads the directory above */
        }
    }
    (void)snprintf(path, PATH_SIZE, "../router/%s%" PRIu64, hash, number);
}

static int sync_directory_of(const char *path)
{
    char directory[PATH_SIZE];
    int fd, rc;

    (void)snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    rc = fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
    (void)close(fd); /* only read */
    return rc;
}

static void tell_router(const struct ta_submission *s, uint64_t number)
{
    const char *path = conf_zenv(s->zenv, SLICE("ROUTERNOTIFY"));
    char name[24];
    int fd;

    if (path == NULL) {
        return;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)snprintf(name, sizeof name, "%" PRIu64, number);
        router_file_tell(fd, path, name);
        (void)close(fd); /* sent or not */
    }
}

static int write_message(const struct ta_submission *s, int fd, const char *path, struct buf *why)
{
    struct buf envelope;
    int rc;

    buf_init(&envelope, ENVELOPE_MAX);
    if (!put_envelope(s, &envelope)) {
        rc = -EINVAL;
        (void)buf_add_string(why, "an address or a parameter can't stand in an envelope");
    } else {
        rc = mail_file_write(fd, buf_slice(&envelope), NULL, NULL, s->read, s->arg);
        if (rc == 0 && fsync(fd) != 0) {
            rc = -errno;
        }
        if (rc != 0) {
            (void)fail(why, "write", path, -rc);
        }
    }
    buf_fini(&envelope);
    return rc;
}

int ta_submit(const struct ta_submission *s, char ret_spoolid[CONTROL_SPOOLID_MAX],
              struct buf *ret_why)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    struct stat st = {0};
    int fd = create(s, from), rc;

    if (fd < 0) {
        return fail(ret_why, "create", from, -fd);
    }
    rc = write_message(s, fd, from, ret_why);
    if (rc == 0 && fstat(fd, &st) != 0) {
        rc = fail(ret_why, "look at", from, errno);
    }
    if (close(fd) != 0 && rc == 0) {
        rc = fail(ret_why, "close", from, errno);
    }
    if (rc == 0) {
        router_path(s, st.st_ino, to);
        if (rename(from, to) != 0) {
            rc = fail(ret_why, "create", to, errno);
        }
    }
    if (rc != 0) {
        (void)unlink(from); /* at worst an unused file remains */
        return rc;
    }
    rc = sync_directory_of(to);
    if (rc != 0) {
        return fail(ret_why, "sync the directory of", to, -rc);
    }
    control_spoolid(st.st_ino, st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec, ret_spoolid);
    tell_router(s, st.st_ino);
    return 0;
}
