/*
 * What all programs that are the daemon have in common: sluiced, and the scheduler of ZMailer's
 * name. Its parent runs the program again, with --role, for each of the other processes.
 */
#ifndef DAEMON_PROGRAM_H
#define DAEMON_PROGRAM_H

#include <stdbool.h>

/* First of all: files opened later must not become standard input, output or error. False when
 * that can't be had. */
bool program_have_standard_files(void);

/* Are these the arguments of a child process? Then *ret_status is its exit status: it has ended. */
bool program_was_child(int argc, char **argv, int *ret_status);

#endif
