/*
 * Loader of tables: reads the files that the configuration names into an image (table.h). The
 * parent uses it, and tools that try rules. Accepting processes read no files.
 */
#ifndef RULES_TABLE_LOAD_H
#define RULES_TABLE_LOAD_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"

#define TABLE_FILE_MAX (1u << 30) /* bytes of one file */

/* Appends a whole file to *out, at most `max` bytes. Returns 0 or a negative errno. */
typedef int table_read(void *arg, const char *path, size_t max, struct buf *out);

/* Loads all tables. *ret_fd is the image, owned by the caller, or -1 if the configuration names no
 * file. Relative names start at `directory`. Returns false after an error. Appends each problem to
 * *out as a line "FILE:LINE:COLUMN: error: TEXT" or "..: warning: ..", at most 100 lines. */
bool tables_load(const struct conf *conf, const char *directory, table_read *read, void *arg,
                 struct buf *out, int *ret_fd);

#endif
