/*
 * Files with a secret for each name, and its rights: users (verifier_list.h) and programs
 * (token_list.h). A line for each name:
 *
 *     NAME:{SCHEME}VERIFIER[:SETTING=VALUE]..
 *
 * Two settings are common to both: class=NAME, and senders=LIST, a list of addresses and @DOMAINs
 * with commas between them; without it every sender is allowed. Empty lines, and those that begin
 * with `#`, are ignored. A name must not occur twice.
 */
#ifndef SMTP_NAME_LINES_H
#define SMTP_NAME_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define NAME_LINES_SENDERS_MAX 4096u /* bytes of a list */

/* First member of the struct for a line. */
struct name_line {
    const char *name;
    struct slice class_name; /* empty: none */
    struct slice senders;    /* as written; empty: every sender */
    unsigned number;         /* number of the line */
};

/* Properties of one kind of file. */
struct name_lines_form {
    size_t size;        /* size of the struct that begins with a struct name_line */
    size_t most;        /* maximum number of lines */
    const char *scheme; /* with its braces */
    bool (*name_is_valid)(struct slice name);
    bool (*read_verifier)(struct name_line *line, struct slice text);
    /* Reads a setting other than class and senders; may change *ret_expected. NULL: there is
     * none. */
    bool (*read_setting)(struct name_line *line, struct slice name, struct slice value,
                         const char **ret_expected);
    /* Returns a message about a missing part of a line, or NULL. NULL: lines can't lack
     * anything. */
    const char *(*missing)(const struct name_line *line);
    const char *name_expected, *verifier_expected, *setting_expected, *too_many; /* error
                                                                                  * messages */
};

struct name_lines {
    const struct name_lines_form *form; /* borrowed */
    char *text;                         /* owned; the lines point into it */
    char *lines;                        /* owned, `count` of form->size, in the order of the file */
    size_t count, size;
    const struct name_line **by_name; /* owned, sorted */
};

/* Reads the text of a file. Returns false with "LINE:COLUMN: error" in *ret_error, and nothing to
 * free. */
bool name_lines_read(struct name_lines *l, const struct name_lines_form *form, struct slice text,
                     struct buf *ret_error);

/* Frees the lines after overwriting them. */
void name_lines_fini(struct name_lines *l);

/* Returns the line of a name, or NULL. Lasts as long as the lines. */
const struct name_line *name_lines_find(const struct name_lines *l, struct slice name);

/* Returns the n-th line in the order of the file; NULL after the last. */
const struct name_line *name_lines_at(const struct name_lines *l, size_t n);

/* Is this a valid value of `senders`? */
bool name_lines_senders_are_valid(struct slice senders);

/* Do these senders include this address (without angle brackets)? The null sender is used for
 * reports, and always allowed. */
bool name_lines_may_send(struct slice senders, struct slice sender);

/* Appends the end of a line, with the settings class and senders unless they are empty. */
void name_lines_put_end(struct buf *out, struct slice class_name, struct slice senders);

#endif
