#include "preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "confine.h"
#include "listener.h"

#define WHY_MAX 8192

static void complain(const struct conf *conf, struct buf *out, const char *parameter,
                     const char *why)
{
    conf_put_place(conf, parameter, out);
    (void)buf_addf(out, "error: %s: %s\n", parameter, why); /* sticky */
}

/* Do the users of the processes and the group of the control socket exist? */
static bool check_users(const struct conf *conf, struct buf *out)
{
    const struct {
        const char *parameter, *user;
        bool on_network;
    } named[] = {
        {"mail_owner", conf_mail_owner(conf), conf_spool_is_remote(conf)},
        {"receive_user", conf_receive_user(conf), true},
        {"deliver_user", conf_deliver_user(conf), true},
    };
    bool root = geteuid() == 0;
    struct confine_user user;
    struct buf why;
    bool ok = true;

    buf_init(&why, WHY_MAX);
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        buf_clear(&why);
        if (named[i].user[0] != '\0' && !confine_find_user(named[i].user, &user, &why)) {
            complain(conf, out, named[i].parameter, buf_cstr(&why));
            ok = false;
        } else if (root && named[i].on_network && user.uid == 0) {
            complain(conf, out, named[i].parameter,
                     "expected another user than root, for processes that talk to the network");
            ok = false;
        }
    }
    if (conf->control_socket_group[0] != '\0' && getgrnam(conf->control_socket_group) == NULL) {
        buf_clear(&why);
        (void)buf_addf(&why, "there is no group \"%s\"", conf->control_socket_group); /* sticky */
        complain(conf, out, "control_socket_group", buf_cstr(&why));
        ok = false;
    }
    buf_fini(&why);
    return ok;
}

/* ---- directories and files ------------------------------------------------------------------ */

/* Removes the last name. Returns false if none is left. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash == NULL || path[1] == '\0') {
        return false;
    }
    slash[slash == path ? 1 : 0] = '\0';
    return true;
}

/* Returns 0 if the directory exists or can be made, or the error that prevents that. */
static int directory_error(const char *path)
{
    char part[PATH_MAX];
    bool is_there = true;
    struct stat st;

    if (strlen(path) >= sizeof part) {
        return ENAMETOOLONG;
    }
    (void)strcpy(part, path); /* fits */
    while (stat(part, &st) != 0) {
        is_there = false;
        if ((errno != ENOENT && errno != ENOTDIR) || !go_up(part)) {
            return errno;
        }
    }
    if (!S_ISDIR(st.st_mode)) {
        return ENOTDIR;
    }
    return is_there || faccessat(AT_FDCWD, part, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/* Returns 0 if the file can be written or made, or the error that prevents that. */
static int file_error(const char *path)
{
    char parent[PATH_MAX];
    struct stat st;

    if (stat(path, &st) == 0) {
        return S_ISDIR(st.st_mode)                                ? EISDIR
               : faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0 ? errno
                                                                  : 0;
    }
    if (errno != ENOENT || strlen(path) >= sizeof parent) {
        return errno == ENOENT ? ENAMETOOLONG : errno;
    }
    (void)strcpy(parent, path); /* fits */
    return go_up(parent) ? directory_error(parent) : 0;
}

static const char *behind(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(text, prefix, len) == 0 ? text + len : "";
}

static bool check_paths(const struct conf *conf, struct buf *out)
{
    bool spool_is_directory;
    const char *spool = conf_spool_path(conf, &spool_is_directory);
    const struct {
        const char *parameter, *path;
        bool is_directory;
    } paths[] = {
        {"state_directory", conf->state_directory, true},
        {"spool", spool != NULL ? spool : "", spool_is_directory},
        {"maildrop", conf->maildrop, true},
        {"chroot_directory", geteuid() == 0 ? conf->chroot_directory : "", true},
        {"log", behind(conf->log, "file:"), false},
        {"statistics_log", conf->statistics_log, false},
        {"events_file", conf->events_file, false},
    };
    struct buf why;
    bool ok = true;

    buf_init(&why, WHY_MAX);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        /* Report an error of the state directory only once. */
        bool is_below = !ok && i > 0 && paths[0].path[0] != '\0' &&
                        strncmp(paths[i].path, paths[0].path, strlen(paths[0].path)) == 0;
        int error = paths[i].path[0] == '\0' || is_below ? 0
                    : paths[i].is_directory              ? directory_error(paths[i].path)
                                                         : file_error(paths[i].path);

        if (error != 0) {
            buf_clear(&why);
            (void)buf_addf(&why, "%s: %s", paths[i].path, strerror(error)); /* sticky */
            complain(conf, out, paths[i].parameter, buf_cstr(&why));
            ok = false;
        }
    }
    buf_fini(&why);
    return ok;
}

int preflight(const struct conf *conf, struct outgoing **ret_outgoing, struct buf *out)
{
    bool users = check_users(conf, out), paths = check_paths(conf, out),
         listeners = listeners_check(conf, out);
    struct outgoing *outgoing = outgoing_new(conf, out);
    int status = !users             ? EX_NOUSER
                 : !paths           ? EX_CANTCREAT
                 : !listeners       ? EX_UNAVAILABLE
                 : outgoing == NULL ? EX_NOHOST
                                    : EX_OK;

    if (status != EX_OK || ret_outgoing == NULL) {
        outgoing_free(outgoing);
    } else {
        *ret_outgoing = outgoing;
    }
    return status;
}
