/*
 * Reading the files that the configuration names into an image of tables (table.h). For the parent
 * and for tools that try rules; the processes that take mail in read no files.
 */
#ifndef RULES_TABLE_LOAD_H
#define RULES_TABLE_LOAD_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"

#define TABLE_FILE_MAX (1u << 30) /* bytes of a file of entries */

/* Reads a file: all of it is appended to *out, at most `max` bytes. 0 or a negative errno. */
typedef int table_read(void *arg, const char *path, size_t max, struct buf *out);

/* Relative names start at `directory`. *ret_fd is the image, the caller's; -1 when the
 * configuration names no file. False when there is an error. What is found wrong is appended to
 * *out, as "FILE:LINE:COLUMN: error: TEXT" or "..: warning: ..", a line each, 100 at most. */
bool tables_load(const struct conf *conf, const char *directory, table_read *read, void *arg,
                 struct buf *out, int *ret_fd);

#endif
