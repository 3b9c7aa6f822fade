/*
 * Pattern files of header_checks and body_checks: PCRE2 patterns, each with an action (action.h).
 *
 *     /pattern/flags   ACTION text with $1 from the pattern's first group
 *     !/pattern/flags  ACTION                  if the pattern does not match
 *     if /pattern/flags                        the lines up to its endif apply only if this
 *         ..                                   pattern matches (if !/pattern/: does not match)
 *     endif
 *
 * As in Postfix's pcre_table(5), any character except a letter, digit, blank, `#` or `!` may
 * replace the slash. A flag toggles its option: i (ignore case) and s (`.` matches a line end) are
 * on by default, m, x, A, E, U are off. $1, ${1} and $(1) are groups, $$ is a dollar. The first
 * matching line decides.
 *
 * Time is bounded: a pattern that takes more than PATTERNS_STEPS_MAX steps on one text is stopped
 * with the result PATTERNS_LIMIT. Patterns are not compiled to machine code, as the confinement
 * forbids executable memory.
 */
#ifndef RULES_PATTERNS_H
#define RULES_PATTERNS_H

#include "action.h"
#include "buf.h"
#include "slice.h"

#define PATTERNS_FILE_MAX   (4u << 20) /* bytes */
#define PATTERNS_MAX        10000u     /* lines in a file */
#define PATTERNS_DEPTH_MAX  16         /* nested if */
#define PATTERNS_STEPS_MAX  200000u    /* steps of one pattern on one text */
#define PATTERNS_MEMORY_KIB 20480u     /* memory of one pattern on one text */
#define PATTERNS_GROUP_MAX  300        /* bytes of a group; longer ones are cut */

struct patterns;

struct patterns_error {
    unsigned line, column;
    char text[400];
};

/* Parses the text of a file. Returns NULL and the error if it has one. `conf` has the transports;
 * may be NULL. */
struct patterns *patterns_new(struct slice text, enum action_place place, const struct conf *conf,
                              struct patterns_error *ret_error);
void patterns_free(struct patterns *p); /* may be NULL */

enum patterns_result {
    PATTERNS_NONE,
    PATTERNS_FOUND,
    PATTERNS_LIMIT, /* the pattern of `line` has reached a limit: result unknown */
    PATTERNS_BAD,   /* the action of `line` is invalid after its groups were replaced */
};

struct patterns_hit {
    unsigned line;
    struct action action; /* for PATTERNS_FOUND; its text is in `room` */
    const char *why;      /* for PATTERNS_LIMIT and PATTERNS_BAD; static */
};

/* Finds the first line that matches `subject`, and its action, which may be DUNNO. */
enum patterns_result patterns_match(const struct patterns *p, struct slice subject,
                                    struct buf *room, struct patterns_hit *ret_hit);

#endif
