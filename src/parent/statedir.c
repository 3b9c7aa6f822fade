#include "statedir.h"

#include <dirent.h>
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

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Gives an empty directory the owner that it would have if this module had made it. */
static bool take_empty(const char *path, const struct confine_user *owner, struct buf *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool is_empty = true, ok = true;
    struct stat st;

    if (directory == NULL) {
        if (fd >= 0) {
            (void)close(fd); /* only read */
        }
        return errno == ELOOP || errno == ENOTDIR || fail(error, path); /* a link: see take_spool */
    }
    while (is_empty && (entry = readdir(directory)) != NULL) {
        is_empty = is_dot(entry->d_name);
    }
    if (is_empty && fstat(fd, &st) == 0 && st.st_uid != owner->uid) {
        ok = fchown(fd, owner->uid, owner->gid) == 0 || fail(error, path);
    }
    (void)closedir(directory); /* only read */
    return ok;
}

/* Makes a directory and missing ones above it, which are 0755. `owner` may be NULL. */
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
        return S_ISDIR(st.st_mode) ? owner == NULL || take_empty(path, owner, error)
                                   : fail(error, path);
    }
    /* The directory above may belong to another user, who can put a link to one of our files
     * here. */
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok && st.st_uid != geteuid()) {
        errno = EPERM;
        ok = false;
    }
    ok = ok && (owner == NULL || fchown(fd, owner->uid, owner->gid) == 0) &&
         fchmod(fd, mode) == 0; /* mkdir applies the umask */
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

/* Makes the directory of a spool of files, or that of a database. */
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

/* Finds the part of a maildir pattern above the first name that depends on the recipient. Returns
 * false if there is none, or if it is outside the state directory, where no other program makes
 * directories. */
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

/* Finds the user of the queue process. */
static bool find_owner(const struct conf *conf, struct confine_user *ret_owner, struct buf *error)
{
    const char *name = conf_mail_owner(conf);

    if (geteuid() != 0 || name[0] == '\0') {
        *ret_owner = (struct confine_user){geteuid(), getegid()};
        return true;
    }
    return confine_find_user(name, ret_owner, error);
}

static bool make_directories(const struct conf *conf, const struct confine_user *owner,
                             struct buf *error)
{
    bool root = geteuid() == 0;
    /* Others must pass through if a maildir or maildrop may be below it. */
    mode_t mode = root && !conf_spool_uses_services(conf) ? 0711 : 0700;

    owner = root ? owner : NULL;
    return make_directory(conf->state_directory, mode, owner, error) &&
           make_spool(conf, owner, error) && make_maildrop(conf, error) &&
           statedir_make_mailboxes(conf, error) &&
           (!root || conf->chroot_directory[0] == '\0' ||
            make_directory(conf->chroot_directory, 0755, NULL, error));
}

/* ---- files of another user ------------------------------------------------------------------ */

static bool hand_over_all(int directory, const char *where, const struct confine_user *owner,
                          struct buf *error);

/* Gives a file of the queue process to its user. A link can lead to files of others, so it is an
 * error, and so is a file with a second name. */
static bool hand_over(int directory, const char *where, const char *name,
                      const struct confine_user *owner, struct buf *error)
{
    char path[PATH_MAX];
    int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0;
    struct stat st;

    if (!join(path, where, name)) { /* for texts */
        (void)strcpy(path, "a file of the spool");
    }
    if (fd < 0) {
        return errno == ENOENT || fail(error, path); /* a command has removed it meanwhile */
    }
    ok = fstat(fd, &st) == 0;
    if (ok && S_ISDIR(st.st_mode)) {
        int inside = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        ok = inside >= 0 ? hand_over_all(inside, path, owner, error) : fail(error, path);
    }
    if (ok && st.st_uid != owner->uid) {
        if (!S_ISDIR(st.st_mode) && (!S_ISREG(st.st_mode) || st.st_nlink != 1)) {
            (void)buf_addf(error,
                           "%s: it belongs to user %u and is no file with one name; expected "
                           "a file of user %u",
                           path, (unsigned)st.st_uid, (unsigned)owner->uid); /* sticky */
            ok = false;
        } else {
            ok = fchownat(fd, "", owner->uid, owner->gid, AT_EMPTY_PATH) == 0 || fail(error, path);
        }
    }
    (void)close(fd); /* O_PATH */
    return ok;
}

/* Gives all files in this directory, which is taken, to the user. */
static bool hand_over_all(int directory, const char *where, const struct confine_user *owner,
                          struct buf *error)
{
    DIR *all = fdopendir(directory);
    const struct dirent *entry;
    bool ok = all != NULL;

    if (!ok) {
        (void)close(directory); /* only read */
        return fail(error, where);
    }
    while (ok && (entry = readdir(all)) != NULL) {
        ok = is_dot(entry->d_name) || hand_over(directory, where, entry->d_name, owner, error);
    }
    (void)closedir(all); /* only read */
    return ok;
}

/* Is it "queue.db", "queue.db-wal", "queue.db.lock", "queue.db.d", ..? */
static bool is_of_spool(const char *name, const char *database)
{
    size_t len = strlen(database);

    return strncmp(name, database, len) == 0 &&
           (name[len] == '\0' || name[len] == '.' || name[len] == '-');
}

/* Is it another file of the queue process in the state directory? */
static bool is_of_state(const char *name)
{
    static const char *const own[] = {"sts", "web_hook."};

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strncmp(name, own[i], strlen(own[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Gives the files of a spool and their directory to the user of the queue process. Another user may
 * have made them: a previous mail_owner, or root by a command. */
static bool take_files(const char *path, const char *database, const struct confine_user *owner,
                       struct buf *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool ok = true, is_ours = false;
    struct stat st;

    if (all == NULL) {
        if (fd >= 0) {
            (void)close(fd); /* only read */
        }
        /* The administrator has made the link and must set the owners. */
        return errno == ELOOP || errno == ENOTDIR || fail(error, path);
    }
    while (ok && (entry = readdir(all)) != NULL) {
        bool spools = database != NULL && is_of_spool(entry->d_name, database);

        is_ours = is_ours || spools;
        ok = (!spools && !is_of_state(entry->d_name)) ||
             hand_over(fd, path, entry->d_name, owner, error);
    }
    ok = ok && (fstat(fd, &st) == 0 || fail(error, path));
    if (ok && st.st_uid != owner->uid && is_ours) {
        ok = fchown(fd, owner->uid, owner->gid) == 0 || fail(error, path);
    } else if (ok && st.st_uid != owner->uid && owner->uid != 0) {
        (void)buf_addf(error,
                       "%s: it belongs to user %u, and the queue process is user %u: run `chown "
                       "%u:%u %s'\n",
                       path, (unsigned)st.st_uid, (unsigned)owner->uid, (unsigned)owner->uid,
                       (unsigned)owner->gid, path); /* sticky */
        ok = database == NULL;
    }
    (void)closedir(all); /* only read */
    return ok;
}

/* Checks that the owner can write, because only root can correct the owner. */
static bool may_write(const char *path, const struct confine_user *owner, struct buf *error)
{
    struct stat st;

    if (access(path, R_OK | W_OK) == 0 || errno != EACCES || stat(path, &st) != 0) {
        return true; /* other errors appear when it is opened */
    }
    (void)buf_addf(error,
                   "%s: it belongs to user %u, and the daemon is user %u: run `chown -R %u:%u %s* "
                   "%.*s' as root\n",
                   path, (unsigned)st.st_uid, (unsigned)owner->uid, (unsigned)owner->uid,
                   (unsigned)owner->gid, path, (int)(strrchr(path, '/') - path), path); /* sticky */
    return false;
}

/* Corrects owners; needs the lock. */
static bool correct_owners(const struct conf *conf, const struct confine_user *owner,
                           struct buf *error)
{
    bool is_directory;
    const char *place = conf_spool_path(conf, &is_directory);
    char spool[PATH_MAX];
    char *slash;

    if (conf_spool_is_shared(conf) || conf_spool_uses_services(conf)) {
        return true; /* belongs to another mail system */
    }
    if (geteuid() != 0) {
        return place == NULL || is_directory || may_write(place, owner, error);
    }
    if (place == NULL || is_directory || strlen(place) >= sizeof spool) {
        return take_files(conf->state_directory, NULL, owner, error);
    }
    (void)strcpy(spool, place); /* fits */
    slash = strrchr(spool, '/');
    if (slash == NULL || slash == spool) {
        return true;
    }
    *slash = '\0';
    return take_files(spool, slash + 1, owner, error) &&
           (strcmp(spool, conf->state_directory) == 0 ||
            take_files(conf->state_directory, NULL, owner, error));
}

/* Warns of default users that the installation has not made. */
static void warn_of_users(const struct conf *conf, struct buf *out)
{
    const char *owner = conf_mail_owner(conf);
    bool queue = owner[0] == '\0' && !conf_spool_is_shared(conf);
    bool network = strcmp(conf_receive_user(conf), conf_deliver_user(conf)) == 0 &&
                   conf->receive_user[0] == '\0' && conf->deliver_user[0] == '\0';

    if (geteuid() == 0 && (queue || network)) {
        (void)buf_addf(
            out, "warning: there are no users %s, %s and %s, which `make install' makes:%s%s\n",
            CONF_MAIL_OWNER, CONF_RECEIVE_USER, CONF_DELIVER_USER,
            queue ? " the queue process runs as root" : "",
            network ? (queue ? ", and what talks to the network as nobody"
                             : " what talks to the network runs as nobody")
                    : ""); /* sticky */
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Locks the pid file. The kernel drops the lock at any end of the process, so a remaining file does
 * not matter. */
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
    /* Only the lock matters: on a full disk the number may be missing. */
    if (fchmod(fd, 0644) != 0 || ftruncate(fd, 0) != 0 ||
        (write(fd, text, (size_t)len) != len && errno != ENOSPC)) {
        (void)fail(error, path);
        (void)close(fd); /* unusable */
        return -1;
    }
    return fd;
}

/* Gives the pid file to the directory's owner: another mail system's checks require its user for
 * all files there. */
static bool give_to_owner(const struct conf *conf, int fd, struct buf *error)
{
    struct confine_user user;

    if (geteuid() != 0 || conf->mail_owner[0] == '\0' || !conf_spool_uses_services(conf)) {
        return true;
    }
    return confine_find_user(conf->mail_owner, &user, error) &&
           (fchown(fd, user.uid, user.gid) == 0 || fail(error, PID_FILE));
}

int statedir_open(const struct conf *conf, long *ret_killed, struct buf *ret_error)
{
    struct confine_user owner;
    char path[PATH_MAX];
    int lock;

    *ret_killed = 0;
    if (!find_owner(conf, &owner, ret_error) || !make_directories(conf, &owner, ret_error)) {
        return -1;
    }
    if (!join(path, conf->state_directory, PID_FILE)) {
        (void)fail(ret_error, conf->state_directory);
        return -1;
    }
    lock = lock_pid_file(path, ret_killed, ret_error);
    if (lock >= 0 &&
        (!give_to_owner(conf, lock, ret_error) || !correct_owners(conf, &owner, ret_error))) {
        statedir_close(conf, lock);
        return -1;
    }
    if (lock >= 0) {
        warn_of_users(conf, ret_error);
    }
    return lock;
}

void statedir_close(const struct conf *conf, int lock)
{
    char path[PATH_MAX];

    if (join(path, conf->state_directory, PID_FILE)) {
        (void)unlink(path); /* only the lock matters */
    }
    (void)close(lock); /* has only a number */
}
