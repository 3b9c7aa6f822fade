/*
 * Completion scripts for shells, made from the tables of commands, options and parameters. `sluice
 * completion bash|zsh` prints them. The scripts run no program.
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stddef.h>
#include <stdio.h>

struct command;

/* Writes the script for bash or zsh, without hidden commands. */
void completion_bash(FILE *out, const struct command *commands, size_t count);
void completion_zsh(FILE *out, const struct command *commands, size_t count);

#endif
