/*
 * Stop a process between its last look and the final dot:
 *
 *     stop_at_dot PID
 *
 * traces the process until it enters the system call that would send the end of a message, holds it
 * there, and says "stopped". A line on standard input lets it go on, not traced any more. For a
 * sender in clear.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* <linux/ptrace.h> and <sys/ptrace.h> do not go together everywhere. */
#define SYSCALL_INFO_ENTRY 1
struct syscall_info {
    unsigned char op, pad[3];
    unsigned arch;
    unsigned long long instruction_pointer, stack_pointer;
    unsigned long long nr, args[6];
};

static int fail(const char *what)
{
    perror(what);
    return EXIT_FAILURE;
}

static int sends_dot(pid_t pid)
{
    struct syscall_info info;
    char end[5];
    struct iovec ours = {.iov_base = end, .iov_len = sizeof end}, theirs = ours;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0 ||
        info.op != SYSCALL_INFO_ENTRY || info.nr != SYS_sendto || info.args[2] < sizeof end) {
        return 0;
    }
    theirs.iov_base = (void *)(info.args[1] + info.args[2] - sizeof end);
    return process_vm_readv(pid, &ours, 1, &theirs, 1, 0) == sizeof end &&
           memcmp(end, "\r\n.\r\n", sizeof end) == 0;
}

int main(int argc, char **argv)
{
    pid_t pid = argc == 2 ? atoi(argv[1]) : 0;
    char line[100];
    int status;

    if (pid <= 0 || ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, pid, 0, 0) != 0) {
        return fail("trace");
    }
    puts("tracing");
    fflush(stdout);
    for (;;) {
        long sig = 0;

        if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) {
            return fail("wait");
        }
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            if (sends_dot(pid)) {
                break;
            }
        } else if (status >> 16 == 0) {
            sig = WSTOPSIG(status); /* one of its own */
        }
        if (ptrace(PTRACE_SYSCALL, pid, 0, sig) != 0) {
            return fail("go on");
        }
    }
    puts("stopped");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) {
        return EXIT_FAILURE; /* which ends the tracing, too */
    }
    return ptrace(PTRACE_DETACH, pid, 0, 0) == 0 ? EXIT_SUCCESS : fail("detach");
}
