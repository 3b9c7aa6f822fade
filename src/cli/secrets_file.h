/*
 * A file with a line for each name, "NAME:...", that commands change: the users of auth_users, the
 * tokens of api_tokens. What is no line of the name that is changed stays as it is.
 */
#ifndef CLI_SECRETS_FILE_H
#define CLI_SECRETS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "args.h"
#include "buf.h"
#include "slice.h"

#define SECRETS_FILE_MAX (4u << 20) /* bytes */

struct secrets_file {
    char *path;      /* owned */
    struct buf text; /* all of it */
    bool exists;
    struct stat st;
};

/* Read the file that the word of this number names, else that of the configuration's `parameter`.
 * It need not be there if it `may_lack`. EX_OK, or a status, and what is wrong was printed; close
 * it in either case. */
int secrets_open(struct secrets_file *f, const struct args *a, size_t word, bool may_lack,
                 const char *parameter);

/* What was read is overwritten. */
void secrets_close(struct secrets_file *f);

/* Put the file with `line` (with its end; empty: nothing) in the place of the line of `name` into
 * the place of the file: a reader sees the old one or the new one. Its owner stays, only that one
 * may read it. EX_OK, or what is wrong was printed. */
int secrets_rewrite(const struct secrets_file *f, struct slice name, struct slice line);

#endif
