#include "statedir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "confine.h"
#include "maildir.h"

#define PID_FILE "sluiced.pid"

static bool fail(struct buf *error, const char *path)
{
    (void)buf_addf(error, "%s: %s", path, strerror(errno)); /* sticky */
    return false;
}

/* Make a directory and those above it, which are 0755. `owner` may be NULL. */
static bool make_directory(const char *path, mode_t mode, const struct confine_user *owner,
                           struct buf *error)
{
    char part[PATH_MAX];
    struct stat st;
    bool ok;
    int fd;

    if (strlen(path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return fail(error, path);
    }
    (void)strcpy(part, path); /* fits */
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) != 0 && errno != EEXIST) {
            return fail(error, part);
        }
        *slash = '/';
    }
    if (mkdir(path, mode) != 0) {
        if (errno != EEXIST || stat(path, &st) != 0) {
            return fail(error, path);
        }
        errno = ENOTDIR;
        return S_ISDIR(st.st_mode) || fail(error, path);
    }
    /* Its parent may belong to another user, who can put a link to something of ours here. */
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok && st.st_uid != geteuid()) {
        errno = EPERM;
        ok = false;
    }
    ok = ok && (owner == NULL || fchown(fd, owner->uid, owner->gid) == 0) &&
         fchmod(fd, mode) == 0; /* mkdir obeys the umask */
    ok = ok || fail(error, path);
    if (fd >= 0) {
        (void)close(fd); /* only read */
    }
    return ok;
}

static bool join(char out[PATH_MAX], const char *directory, const char *name)
{
    int len = snprintf(out, PATH_MAX, "%s/%s", directory, name);

    CHECK(len > 0);
    errno = ENAMETOOLONG;
    return len < PATH_MAX;
}

/* The directory of a spool of files, or the one that a database stands in. */
static bool make_spool(const struct conf *conf, const struct confine_user *owner, struct buf *error)
{
    bool is_directory, is_shared = conf_spool_is_shared(conf);
    const char *place = conf_spool_path(conf, &is_directory);
    char path[PATH_MAX];
    char *slash;

    if (place == NULL) {
        return true;
    }
    if (is_directory) {
        return make_directory(place, is_shared ? 0755 : 0700, is_shared ? NULL : owner, error);
    }
    if (!join(path, place, "")) {
        return fail(error, conf->spool);
    }
    path[strlen(path) - 1] = '\0';
    slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return true;
    }
    *slash = '\0';
    return make_directory(path, 0700, owner, error);
}

static bool make_maildrop(const struct conf *conf, struct buf *error)
{
    char corrupt[PATH_MAX];

    if (conf->maildrop[0] == '\0') {
        return true;
    }
    if (!join(corrupt, conf->maildrop, "corrupt")) {
        return fail(error, conf->maildrop);
    }
    return make_directory(conf->maildrop, geteuid() == 0 ? 01733 : 0700, NULL, error) &&
           make_directory(corrupt, 0700, NULL, error);
}

/* The part of a maildir pattern above the first that differs by recipient. False when there is
 * none, or it is not below the state directory, where no other program makes directories. */
static bool mailbox_root(const struct conf *conf, const char *pattern, char out[PATH_MAX])
{
    size_t state = strlen(conf->state_directory), len = maildir_fixed_len(slice_string(pattern));

    while (len > 0 && pattern[len - 1] == '/') {
        len--;
    }
    if (len <= state + 1 || len >= PATH_MAX || pattern[state] != '/' ||
        strncmp(pattern, conf->state_directory, state) != 0) {
        return false;
    }
    memcpy(out, pattern, len);
    out[len] = '\0';
    return true;
}

bool statedir_make_mailboxes(const struct conf *conf, struct buf *ret_error)
{
    struct confine_user user;
    char path[PATH_MAX];
    bool ok = true;

    for (size_t i = 0; geteuid() == 0 && ok && i < conf_transport_count(conf); i++) {
        const struct policy *policy = &conf_transport_at(conf, i)->policy;
        const char *name = policy_user(conf, policy);

        if (policy->agent == CONF_AGENT_MAILDIR && name[0] != '\0' &&
            mailbox_root(conf, policy->maildir, path)) {
            ok = confine_find_user(name, &user, ret_error) &&
                 make_directory(path, 0700, &user, ret_error);
        }
    }
    return ok;
}

static bool make_directories(const struct conf *conf, struct buf *error)
{
    bool root = geteuid() == 0;
    struct confine_user user;
    const struct confine_user *owner = NULL;

    if (root && conf->mail_owner[0] != '\0') {
        if (!confine_find_user(conf->mail_owner, &user, error)) {
            return false;
        }
        owner = &user;
    }
    return make_directory(conf->state_directory, root ? 0711 : 0700, owner, error) &&
           make_spool(conf, owner, error) && make_maildrop(conf, error) &&
           statedir_make_mailboxes(conf, error) &&
           (!root || conf->chroot_directory[0] == '\0' ||
            make_directory(conf->chroot_directory, 0755, NULL, error));
}

/* The kernel drops the lock with the process, however that ends, so a file that is left over is no
 * obstacle. */
static int lock_pid_file(const char *path, long *ret_killed, struct buf *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0644);
    char text[32] = "";
    unsigned long long killed = 0;
    ssize_t n;
    int len;

    if (fd < 0) {
        (void)fail(error, path);
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && read(fd, text, sizeof text - 1) >= 0) {
            text[strcspn(text, "\n")] = '\0';
            (void)buf_addf(error, "%s: another sluiced (process %s) works here", path,
                           text); /* sticky */
        } else {
            (void)fail(error, path);
        }
        (void)close(fd); /* not written */
        return -1;
    }
    n = pread(fd, text, sizeof text - 1, 0);
    if (n > 0 && slice_number(slice_trim(slice_of(text, (size_t)n)), 0x7fffffff, &killed)) {
        *ret_killed = (long)killed;
    }
    len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* The lock is what counts: on a full disk the number may be missing. */
    if (fchmod(fd, 0644) != 0 || ftruncate(fd, 0) != 0 ||
        (write(fd, text, (size_t)len) != len && errno != ENOSPC)) {
        (void)fail(error, path);
        (void)close(fd); /* the file is of no use, and refused */
        return -1;
    }
    return fd;
}

int statedir_open(const struct conf *conf, long *ret_killed, struct buf *ret_error)
{
    char path[PATH_MAX];

    *ret_killed = 0;
    if (!make_directories(conf, ret_error)) {
        return -1;
    }
    if (!join(path, conf->state_directory, PID_FILE)) {
        (void)fail(ret_error, conf->state_directory);
        return -1;
    }
    return lock_pid_file(path, ret_killed, ret_error);
}

void statedir_close(const struct conf *conf, int lock)
{
    char path[PATH_MAX];

    if (join(path, conf->state_directory, PID_FILE)) {
        (void)unlink(path); /* the lock is what counts */
    }
    (void)close(lock); /* only a number was in it */
}
