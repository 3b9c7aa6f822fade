/*
 * Files beside the database that are named by a number, PATH.d/0000002a.segment, and the file
 * PATH.d/keep, by which an operator forbids that any of them is written again or removed.
 */
#ifndef SPOOL_NUMBERED_FILE_H
#define SPOOL_NUMBERED_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"
#include "spool_io.h"

/* "DIR/NAME"; owned by the caller. */
char *numbered_file_beside(const char *dir, const char *name);

/* "DIR/NUMBER.SUFFIX", the number in eight hexadecimal digits; owned by the caller. */
char *numbered_file_path(const char *dir, uint32_t number, const char *suffix);

/* Is `name` exactly such a name, with a number from 1 to INT32_MAX? */
bool numbered_file_parse(const char *name, const char *suffix, uint32_t *ret_number);

/* A descriptor, or negative errno. A symbolic link in its place is refused. */
int numbered_file_open(const struct spool_io *io, const char *dir, uint32_t number,
                       const char *suffix, int flags);

/* A new file that begins with `header`, durable with its name; makes the directory if it is not
 * there. A descriptor, or negative errno: -EMFILE when the numbers have come to their end. */
int numbered_file_create(const struct spool_io *io, const char *dir, uint32_t number,
                         const char *suffix, struct slice header);

/* Is there a file `keep`? In doubt there is. */
bool numbered_file_keep(const struct spool_io *io, const char *dir);

#endif
