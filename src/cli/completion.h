/*
 * Completion of the command line for shells: scripts made from the tables of commands, options and
 * parameters, so that they know what the program knows. `sluice completion bash|zsh` prints them;
 * they are complete in themselves and ask nothing while they run.
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stddef.h>
#include <stdio.h>

struct command;

/* Write the script for bash or zsh; hidden commands are left out. */
void completion_bash(FILE *out, const struct command *commands, size_t count);
void completion_zsh(FILE *out, const struct command *commands, size_t count);

#endif
