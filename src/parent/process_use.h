/*
 * What a process uses, as the kernel counts it (/proc/PID/stat).
 */
#ifndef PARENT_PROCESS_USE_H
#define PARENT_PROCESS_USE_H

#include <stdint.h>
#include <sys/types.h>

struct process_use {
    uint64_t cpu_us;         /* user and system, since its start */
    uint64_t resident_bytes; /* shared pages included */
};

/* Untouched when it can't be read: the process has ended, or there is no /proc. */
void process_use_read(pid_t pid, struct process_use *use);

#endif
