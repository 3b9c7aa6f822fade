/*
 * A message's header section, changed field by field on behalf of filters (milter.h).
 *
 * Unchanged fields keep their bytes. Numbers follow libmilter's smfi_insheader and smfi_chgheader:
 * a place among all fields is counted from 0, one among fields of a name from 1. Each change
 * applies to the result of the previous ones.
 */
#ifndef SMTP_HEADER_EDIT_H
#define SMTP_HEADER_EDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Maximum of changes to a message, and of bytes that they may add. */
#define HEADER_EDIT_CHANGES_MAX 1000u
#define HEADER_EDIT_BYTES_MAX   (1u << 20)

struct header_edit;

/* Starts with `header`: the section, with the line end of its last field, without the empty line;
 * borrowed. */
struct header_edit *header_edit_new(struct slice header);

/* Frees the changed section; NULL is allowed. */
void header_edit_free(struct header_edit *h);

/* Appends a field. Name and value are as in milter.h: a value begins with the bytes after the
 * colon, and has no line end at its end; both are copied. Returns false if a limit would be
 * exceeded. */
bool header_edit_add(struct header_edit *h, struct slice name, struct slice value);
/* Inserts a field so that it is number `index`; after the last one if there are fewer. */
bool header_edit_insert(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value);
/* Replaces field number `index` of this name, in any case. An empty value, or one of blanks,
 * removes the field. If there is no such field a value is added, and nothing is removed. */
bool header_edit_change(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value);

/* Was anything changed? */
bool header_edit_changed(const struct header_edit *h);

/* Appends the section with its changes. Returns false if the buffer's limit would be exceeded. */
bool header_edit_put(const struct header_edit *h, struct buf *out);

#endif
