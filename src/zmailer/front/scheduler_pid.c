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
#define COMM_MAX   16  /* longest process name in Linux in bytes, with its NUL */
#define WAIT_STEPS 100 /* steps of WAIT_NS: 5 s */
#define WAIT_NS    50000000

static bool path_of(const char *postoffice, const char *suffix, char path[PATH_MAX])
{
    int len = snprintf(path, PATH_MAX, "%s" PID_FILE "%s", postoffice, suffix);

    CHECK(len > 0);
    errno = ENAMETOOLONG;
    return len < PATH_MAX;
}

/* Reads the first line of a file, without its line end. Returns 0 or negative errno. */
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

/* Reads the process id; 0 if the file has none. Returns 0, or negative errno if it can't be
 * read. */
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

/* Has the process ended? A process that its parent has not waited for yet has a name, but no
 * program. */
static bool has_ended(pid_t pid)
{
    char path[64], program[1];

    (void)snprintf(path, sizeof path, "/proc/%ld/exe", (long)pid); /* fits */
    return readlink(path, program, sizeof program) < 0 && (errno == ENOENT || errno == ESRCH);
}

/* Is its working directory POSTOFFICE/transport, as that of all schedulers? Returns true if another
 * user's process can't be examined. */
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

/* Is this process a scheduler of this POSTOFFICE? Process ids are reused, so after a restart of the
 * machine the file may name any process. ZMailer's scheduler may be installed under our program's
 * name. */
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
        (void)nanosleep(&step, NULL); /* a signal may end it earlier */
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
    (void)unlink(temporary); /* left by a crash; open returns other errors */
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0) {
        return -errno;
    }
    if (fchmod(fd, 0644) != 0 || dprintf(fd, "%ld\n", (long)getpid()) < 0 ||
        rename(temporary, path) != 0) {
        error = -errno;
        (void)unlink(temporary); /* no longer needed */
    }
    (void)close(fd); /* if the number is lost, the next scheduler just does not find us */
    return error;
}

void scheduler_pid_remove(const char *postoffice)
{
    char path[PATH_MAX];
    pid_t pid;

    if (read_pid(postoffice, &pid) == 0 && pid == getpid() && path_of(postoffice, "", path)) {
        (void)unlink(path); /* the next scheduler recognizes a stale file */
    }
}
