/*
 * Files that say by which secret a name is known, and what it may do: users (verifier_list.h) and
 * programs (token_list.h). A line for each name:
 *
 *     NAME:{SCHEME}VERIFIER[:SETTING=VALUE]..
 *
 * Two settings are the same in each: class=NAME, and senders=LIST, which has addresses and @DOMAINs
 * with commas between them; without it every sender is fine. Empty lines, and those that begin with
 * `#`, are nothing. A name stands there once.
 */
#ifndef SMTP_NAME_LINES_H
#define SMTP_NAME_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define NAME_LINES_SENDERS_MAX 4096u /* bytes of a list */

/* The first member of what is known of a line. */
struct name_line {
    const char *name;
    struct slice class_name; /* empty: none */
    struct slice senders;    /* as written; empty: every one */
    unsigned number;         /* of the line */
};

/* What is special about one kind of file. */
struct name_lines_form {
    size_t size;        /* of the struct that begins with a struct name_line */
    size_t most;        /* lines */
    const char *scheme; /* with its braces */
    bool (*name_is_valid)(struct slice name);
    bool (*read_verifier)(struct name_line *line, struct slice text);
    /* A setting that is neither class nor senders; *ret_expected may be changed. NULL: has none. */
    bool (*read_setting)(struct name_line *line, struct slice name, struct slice value,
                         const char **ret_expected);
    /* What a line lacks, or NULL. NULL: lines can't lack anything. */
    const char *(*missing)(const struct name_line *line);
    const char *name_expected, *verifier_expected, *setting_expected, *too_many; /* messages */
};

struct name_lines {
    const struct name_lines_form *form; /* borrowed */
    char *text;                         /* owned: what the lines point to */
    char *lines;                        /* owned, `count` of form->size, in the order of the file */
    size_t count, size;
    const struct name_line **by_name; /* owned, sorted */
};

/* Read the text of a file. False with "LINE:COLUMN: what is wrong" in *ret_error, and nothing to
 * free. */
bool name_lines_read(struct name_lines *l, const struct name_lines_form *form, struct slice text,
                     struct buf *ret_error);

/* What was known is overwritten. */
void name_lines_fini(struct name_lines *l);

/* NULL when there is no such name. Lasts as long as the lines. */
const struct name_line *name_lines_find(const struct name_lines *l, struct slice name);

/* The n-th in the order of the file; NULL behind the last. */
const struct name_line *name_lines_at(const struct name_lines *l, size_t n);

/* Are these senders that can stand in the file? */
bool name_lines_senders_are_valid(struct slice senders);

/* May who has these senders send as this address (without angle brackets)? The null sender is for
 * reports, and fine. */
bool name_lines_may_send(struct slice senders, struct slice sender);

/* The end of a line, with the settings class and senders unless they are empty. */
void name_lines_put_end(struct buf *out, struct slice class_name, struct slice senders);

#endif
