/*
 * Resources that a process uses, as counted by the kernel (/proc/PID/stat).
 */
#ifndef PARENT_PROCESS_USE_H
#define PARENT_PROCESS_USE_H

#include <stdint.h>
#include <sys/types.h>

struct process_use {
    uint64_t cpu_us;         /* user and system time since its start */
    uint64_t resident_bytes; /* with shared pages */
};

/* Reads the use of a process into *use; leaves *use unchanged if the process has ended or there is
 * no /proc. */
void process_use_read(pid_t pid, struct process_use *use);

#endif
