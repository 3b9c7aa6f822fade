#include "scheduler_pid.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "slice.h"

#define PID_FILE   "/.pid.scheduler"
#define COMM_MAX   16  /* bytes of a process's name in Linux, with its NUL */
#define WAIT_STEPS 100 /* of WAIT_NS: 5 s */
#define WAIT_NS    50000000

static bool path_of(const char *postoffice, const char *suffix, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s" PID_FILE "%s", postoffice, suffix);

    CHECK(len > 0);
    errno = ENAMETOOLONG;
    return len < PATH_MAX;
}

/* The first bytes of a file as a text without its line end. 0 or a negative errno. */
static int read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
    ssize_t n;
    int error;

    if (fd < 0) {
        return -errno;
    }
    n = read(fd, text, size - 1);
    error = n < 0 ? -errno : 0;
    (void)close(fd); /* only read */
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return error;
}

/* 0: the file names no process. A negative errno: it can't be read. */
static int read_pid(const char *postoffice, pid_t *ret_pid)
{
    char path[PATH_MAX], text[32];
    unsigned long long number;
    int error;

    *ret_pid = 0;
    if (!path_of(postoffice, "", path)) {
        return -errno;
    }
    error = read_text(path, text, sizeof text);
    if (error == 0 && slice_number(slice_trim(slice_string(text)), INT_MAX, &number) &&
        number > 1) {
        *ret_pid = (pid_t)number;
    }
    return error == -ENOENT ? 0 : error;
}

static bool name_of(pid_t pid, char name[COMM_MAX + 1])
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/comm", (long)pid); /* fits */
    return read_text(path, name, COMM_MAX + 1) == 0;
}

/* One that has ended and whose parent has not asked yet has a name, but no program. */
static bool has_ended(pid_t pid)
{
    char path[64], program[1];

    (void)snprintf(path, sizeof path, "/proc/%ld/exe", (long)pid); /* fits */
    return readlink(path, program, sizeof program) < 0 && (errno == ENOENT || errno == ESRCH);
}

/* All schedulers work in POSTOFFICE/transport. Of another user's process that can't be told:
 * then it may be one. */
static bool works_there(pid_t pid, const char *postoffice)
{
    char path[PATH_MAX];
    struct stat theirs, ours;

    (void)snprintf(path, sizeof path, "/proc/%ld/cwd", (long)pid); /* fits */
    if (stat(path, &theirs) != 0) {
        return errno == EACCES || errno == EPERM;
    }
    return snprintf(path, sizeof path, "%s/transport", postoffice) < PATH_MAX &&
           stat(path, &ours) == 0 && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

/* Numbers are used again: after a restart of the machine the file may name any process. ZMailer's
 * program has our name, whatever that is on this machine. */
static bool is_scheduler(pid_t pid, const char *postoffice)
{
    char name[COMM_MAX + 1], own[COMM_MAX + 1];

    return pid != getpid() && !has_ended(pid) && name_of(pid, name) &&
           (strcmp(name, "scheduler") == 0 || (name_of(getpid(), own) && strcmp(name, own) == 0)) &&
           works_there(pid, postoffice);
}

bool scheduler_pid_replace(const char *postoffice, struct buf *error)
{
    static const struct timespec step = {.tv_nsec = WAIT_NS};
    pid_t pid;
    int status = read_pid(postoffice, &pid);

    if (status < 0) {
        (void)buf_addf(error, "%s" PID_FILE ": %s\n", postoffice, strerror(-status)); /* sticky */
        return false;
    }
    if (pid == 0 || !is_scheduler(pid, postoffice)) {
        return true;
    }
    if (kill(pid, SIGTERM) != 0 && errno != ESRCH) {
        (void)buf_addf(error, "the scheduler with process id %ld runs: %s\n", (long)pid,
                       strerror(errno)); /* sticky */
        return false;
    }
    for (int i = 0; i < WAIT_STEPS; i++) {
        if (!is_scheduler(pid, postoffice)) {
            return true;
        }
        (void)nanosleep(&step, NULL); /* a signal makes it shorter */
    }
    (void)buf_addf(error, "the scheduler with process id %ld does not end\n",
                   (long)pid); /* sticky */
    return false;
}

int scheduler_pid_write(const char *postoffice)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    int fd, error = 0;

    if (!path_of(postoffice, "", path) || !path_of(postoffice, ".new", temporary)) {
        return -errno;
    }
    (void)unlink(temporary); /* of one that a crash interrupted; open tells the rest */
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0) {
        return -errno;
    }
    if (fchmod(fd, 0644) != 0 || dprintf(fd, "%ld\n", (long)getpid()) < 0 ||
        rename(temporary, path) != 0) {
        error = -errno;
        (void)unlink(temporary); /* of no use */
    }
    (void)close(fd); /* a number that is lost is only not found */
    return error;
}

void scheduler_pid_remove(const char *postoffice)
{
    char path[PATH_MAX];
    pid_t pid;

    if (read_pid(postoffice, &pid) == 0 && pid == getpid() && path_of(postoffice, "", path)) {
        (void)unlink(path); /* a stale one is recognised */
    }
}
