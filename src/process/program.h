/*
 * The common part of all programs that can be the daemon: sluiced, and its names under other mail
 * systems. The parent runs the program again, with --role, for each of the other processes.
 */
#ifndef PROCESS_PROGRAM_H
#define PROCESS_PROGRAM_H

#include <stdbool.h>

/* Opens missing standard files, so that no file opened later becomes standard input, output or
 * error. Call it first. Returns false on a failure. */
bool program_have_standard_files(void);

struct role_ops;

/* Are these the arguments of a child process with one of `roles` (an array that NULL ends)? Then
 * the child has run, and *ret_status is its exit status. */
bool program_was_child(int argc, char **argv, const struct role_ops *const *roles, int *ret_status);

#endif
