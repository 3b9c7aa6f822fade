/*
 * Files with a line "NAME:..." for each name, which commands change: the users of auth_users, the
 * tokens of api_tokens. Lines of other names stay as they are.
 */
#ifndef CLI_SECRETS_FILE_H
#define CLI_SECRETS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "args.h"
#include "buf.h"
#include "slice.h"

#define SECRETS_FILE_MAX (4u << 20) /* largest file in bytes */

struct secrets_file {
    char *path;      /* owned */
    struct buf text; /* whole text */
    bool exists;
    struct stat st;
};

/* Reads the file in the command line's word number `word`, otherwise the file of the
 * configuration's `parameter`. With `may_lack` the file need not exist. Returns EX_OK, or an exit
 * status after an error message; call secrets_close in either case. */
int secrets_open(struct secrets_file *f, const struct args *a, size_t word, bool may_lack,
                 const char *parameter);

/* Releases the file and overwrites its text in memory. */
void secrets_close(struct secrets_file *f);

/* Replaces the line of `name` by `line` (with its end; empty: removes it) and writes the file
 * atomically. The file keeps its owner, who alone may read it. Returns EX_OK, or an exit status
 * after an error message. */
int secrets_rewrite(const struct secrets_file *f, struct slice name, struct slice line);

#endif
