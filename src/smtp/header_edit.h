/*
 * A message's header section, changed field by field, as filters ask for it (milter.h).
 *
 * Fields that are not touched keep their bytes. Numbers follow libmilter's smfi_insheader and
 * smfi_chgheader: a place among all fields is counted from 0, one among fields of a name from 1.
 * Each change sees those before it.
 */
#ifndef SMTP_HEADER_EDIT_H
#define SMTP_HEADER_EDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Most changes of a message, and bytes that they may add. */
#define HEADER_EDIT_CHANGES_MAX 1000u
#define HEADER_EDIT_BYTES_MAX   (1u << 20)

struct header_edit;

/* `header`: the section, with the line end of its last field, without the empty line; borrowed. */
struct header_edit *header_edit_new(struct slice header);

/* NULL is fine. */
void header_edit_free(struct header_edit *h);

/* Name and value are as in milter.h: a value begins with what is to stand behind the colon, and has
 * no line end at its end; both are copied. False when a limit would be passed. */
bool header_edit_add(struct header_edit *h, struct slice name, struct slice value);
/* So that it is number `index`; behind the last when there are fewer. */
bool header_edit_insert(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value);
/* Number `index` of this name, in any case; an empty value, or one of blanks, removes it. Where
 * there is no such field a value is added, and nothing removed. */
bool header_edit_change(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value);

/* Has anything changed? */
bool header_edit_changed(const struct header_edit *h);

/* Append the section as it is now. False when the buffer's limit would be passed. */
bool header_edit_put(const struct header_edit *h, struct buf *out);

#endif
