/*
 * Files outside the database that are named by a number, PATH.d/0000002a.segment, and the file
 * PATH.d/keep. While an operator has created `keep`, no numbered file is overwritten or removed.
 */
#ifndef SPOOL_NUMBERED_FILE_H
#define SPOOL_NUMBERED_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"
#include "spool_io.h"

/* Returns "DIR/NAME", owned by the caller. */
char *numbered_file_beside(const char *dir, const char *name);

/* Returns "DIR/NUMBER.SUFFIX", the number in eight hexadecimal digits, owned by the caller. */
char *numbered_file_path(const char *dir, uint32_t number, const char *suffix);

/* Is `name` exactly "NUMBER.SUFFIX", with a number from 1 to INT32_MAX? */
bool numbered_file_parse(const char *name, const char *suffix, uint32_t *ret_number);

/* Opens a file. Returns a descriptor, or negative errno. Refuses a symbolic link. */
int numbered_file_open(const struct spool_io *io, const char *dir, uint32_t number,
                       const char *suffix, int flags);

/* Creates a file that begins with `header`, durable with its name, and the directory if it is
 * missing. Returns a descriptor, or negative errno: -EMFILE when no number is left. */
int numbered_file_create(const struct spool_io *io, const char *dir, uint32_t number,
                         const char *suffix, struct slice header);

/* Is there a file `keep`? True if that can't be determined. */
bool numbered_file_keep(const struct spool_io *io, const char *dir);

#endif
