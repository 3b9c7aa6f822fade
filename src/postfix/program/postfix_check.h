/*
 * Shows the differences that sluice-qmgr would make as the queue manager of a Postfix; the command
 * is `sluice postfix check`.
 */
#ifndef POSTFIX_POSTFIX_CHECK_H
#define POSTFIX_POSTFIX_CHECK_H

#include <stdio.h>

/* Checks the configuration in `directory` (of main.cf), and prints the findings. Returns an exit
 * status: EX_OK, or EX_CONFIG if the queue manager would not start; the findings have the
 * reason. */
int postfix_check(const char *directory, FILE *out);

#endif
