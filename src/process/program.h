/*
 * What all programs that are the daemon have in common: sluiced, and those under other systems'
 * names. Its parent runs the program again, with --role, for each of the other processes.
 */
#ifndef PROCESS_PROGRAM_H
#define PROCESS_PROGRAM_H

#include <stdbool.h>

/* First of all: files opened later must not become standard input, output or error. False when
 * that can't be had. */
bool program_have_standard_files(void);

struct role_ops;

/* Are these the arguments of a child process of one of `roles` (NULL ends them)? Then *ret_status
 * is its exit status: it has ended. */
bool program_was_child(int argc, char **argv, const struct role_ops *const *roles, int *ret_status);

#endif
