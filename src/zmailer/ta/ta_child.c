#include "ta_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "child.h"

static _Noreturn void child_main(ta_child_body *body, void *arg, int output, int fd)
{
    int null = open("/dev/null", O_RDWR);
    int copy = fd >= 0 ? fcntl(fd, F_DUPFD, TA_CHILD_FD + 1) : -1;

    (void)setpgid(0, 0);
    child_reset_signals();
    /* Pipes of an agent are never 0..2, which are open from its start. */
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0 || (copy >= 0 && dup2(copy, TA_CHILD_FD) < 0)) {
        _exit(EX_OSERR);
    }
    (void)close_range(copy >= 0 ? TA_CHILD_FD + 1 : TA_CHILD_FD, ~0U, 0);
    body(arg);
    _exit(EX_SOFTWARE);
}

static void keep(struct buf *output, int fd)
{
    char bytes[4096];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0) {
        size_t room = output->limit - buf_len(output);

        (void)buf_add(output, slice_of(bytes, (size_t)n < room ? (size_t)n : room)); /* fits */
    }
}

static int64_t now_ms(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Collects the output until the child has ended. A grandchild that keeps the pipe open is not
 * waited for. */
static void watch(pid_t pid, int pid_fd, int output_fd, int timeout_s, struct buf *output,
                  struct ta_child_end *end)
{
    struct pollfd fds[] = {{.fd = pid_fd, .events = POLLIN}, {.fd = output_fd, .events = POLLIN}};
    int64_t deadline = now_ms() + (int64_t)timeout_s * 1000;

    for (;;) {
        int64_t left = deadline - now_ms();

        if (left <= 0 && !end->timed_out) {
            end->timed_out = true;
            (void)kill(-pid, SIGKILL); /* may fail if the child has ended already */
            (void)kill(pid, SIGKILL);
        }
        (void)poll(fds, 2, end->timed_out ? -1 : left > 1000000 ? 1000000 : (int)left);
        if ((fds[1].revents & (POLLIN | POLLHUP)) != 0) {
            keep(output, output_fd);
            if ((fds[1].revents & POLLHUP) != 0) {
                fds[1].fd = -1;
            }
        }
        if ((fds[0].revents & POLLIN) != 0) {
            keep(output, output_fd);
            return;
        }
    }
}

int ta_child_run(ta_child_body *body, void *arg, int fd, int timeout_s, struct buf *ret_output,
                 struct ta_child_end *ret_end)
{
    int pipe_fds[2], pid_fd, rc = 0;
    sigset_t all, before;
    pid_t pid;

    *ret_end = (struct ta_child_end){0};
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        return -errno;
    }
    /* no signal handler of ours may run in the child */
    CHECK(sigfillset(&all) == 0 && sigprocmask(SIG_BLOCK, &all, &before) == 0);
    pid = fork();
    if (pid == 0) {
        child_main(body, arg, pipe_fds[1], fd);
    }
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    (void)close(pipe_fds[1]); /* belongs to the child */
    if (pid < 0) {
        (void)close(pipe_fds[0]); /* no process writes to it */
        return -EAGAIN;
    }
    (void)setpgid(pid, pid); /* the child does the same, whichever runs first */
    CHECK(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK) == 0);
    pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pid_fd < 0) {
        rc = -errno;
        (void)kill(pid, SIGKILL);
    } else {
        watch(pid, pid_fd, pipe_fds[0], timeout_s, ret_output, ret_end);
        (void)close(pid_fd); /* the process has ended */
    }
    while (waitpid(pid, &ret_end->wait_status, 0) < 0) {
        CHECK(errno == EINTR);
    }
    (void)close(pipe_fds[0]); /* all output was read */
    return rc;
}
