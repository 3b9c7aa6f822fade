#include "ta_process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "child.h"

/* ---- identity -------------------------------------------------------------------------------- */

static bool as_number(const char *name, unsigned *ret_number)
{
    unsigned long long n;

    if (!slice_number(slice_string(name), UINT32_MAX - 1, &n)) {
        return false;
    }
    *ret_number = (unsigned)n;
    return true;
}

static bool find_user(const char *name, struct ta_identity *id, struct buf *why)
{
    const struct passwd *account;
    unsigned number;

    if (as_number(name, &number)) {
        account = getpwuid(number); /* for the group; the account need not exist */
        id->uid = number;
        id->gid = account != NULL ? account->pw_gid : getegid();
        return true;
    }
    account = getpwnam(name);
    if (account == NULL) {
        (void)buf_addf(why, "mail system configuration error: unknown user %s", name); /* sticky */
        return false;
    }
    id->uid = account->pw_uid;
    id->gid = account->pw_gid;
    return true;
}

static bool find_group(const char *name, gid_t *ret_gid, struct buf *why)
{
    const struct group *group;
    unsigned number;

    if (as_number(name, &number)) {
        *ret_gid = number;
        return true;
    }
    group = getgrnam(name);
    if (group == NULL) {
        (void)buf_addf(why, "mail system configuration error: unknown group %s", name); /* sticky */
        return false;
    }
    *ret_gid = group->gr_gid;
    return true;
}

bool ta_identity_find(const char *user, const char *group, struct ta_identity *ret_identity,
                      struct buf *ret_why)
{
    struct ta_identity id = {.uid = geteuid(), .gid = getegid()};

    if ((user[0] != '\0' && !find_user(user, &id, ret_why)) ||
        (group[0] != '\0' && !find_group(group, &id.gid, ret_why))) {
        return false;
    }
    if (geteuid() != 0) {
        id = (struct ta_identity){.uid = geteuid(), .gid = getegid()};
    } else {
        id.change_user = user[0] != '\0';
        id.change_group = user[0] != '\0' || group[0] != '\0';
    }
    *ret_identity = id;
    return true;
}

/* ---- in the child --------------------------------------------------------------------------- */

/* Reports an error on the socket, as a line that the scheduler logs, and exits. */
_Noreturn static void give_up(const char *what, const char *name)
{
    (void)dprintf(STDERR_FILENO, "# %s %s: %s\n", what, name,
                  strerror(errno)); /* on failure there is no other way to report */
    _exit(1);
}

/* Sets the priority. An agent with a wrong priority is better than none. */
static void set_priority(const struct ta_launch *l)
{
    if (l->priority != 0) {
        (void)setpriority(PRIO_PROCESS, 0, (int)l->priority);
    }
    if (l->nice != 0) {
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + (int)l->nice);
    }
}

_Noreturn static void child_main(const struct ta_launch *l, int fd)
{
    struct rlimit files;

    child_reset_signals();
    if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        _exit(1);
    }
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = l->fd_limit < files.rlim_max ? l->fd_limit : files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* lowering is always allowed */
    }
    /* still as the scheduler's user: the agent's user may have no access to the directory */
    if (chdir(l->directory) != 0) {
        give_up("cannot work in", l->directory);
    }
    (void)umask(TA_UMASK); /* never fails */
    set_priority(l);
    if (l->identity.change_group &&
        (setgroups(1, &l->identity.gid) != 0 || setgid(l->identity.gid) != 0)) {
        give_up("cannot change the group for", l->words[0]);
    }
    if (l->identity.change_user && setuid(l->identity.uid) != 0) {
        give_up("cannot change the user for", l->words[0]);
    }
    (void)execve(l->words[0], l->words, l->environment);
    give_up("cannot execute", l->words[0]);
}

pid_t ta_process_start(const struct ta_launch *launch, int *ret_fd)
{
    sigset_t all, before;
    int fds[2], error;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        return -errno;
    }
    CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    /* no signal handler of ours may run in the child before child_reset_signals */
    (void)sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    pid = fork();
    if (pid == 0) {
        child_main(launch, fds[1]);
    }
    error = errno;
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    (void)close(fds[1]); /* belongs to the child */
    if (pid < 0) {
        (void)close(fds[0]); /* not needed */
        return -error;
    }
    *ret_fd = fds[0];
    return pid;
}
