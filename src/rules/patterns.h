/*
 * A file of header_checks or body_checks: patterns of PCRE2, each with an action (action.h).
 *
 *     /pattern/flags   ACTION text with $1 from the pattern's first group
 *     !/pattern/flags  ACTION                  where the pattern is not found
 *     if /pattern/flags                        what follows, up to its endif, is only asked where
 *         ..                                   this one is found (if !/pattern/: is not found)
 *     endif
 *
 * As in Postfix's pcre_table(5): any character but a letter, digit, blank, `#` or `!` may stand for
 * the slash; of flags, i (case does not matter) and s (`.` matches a line end) are on until they
 * are named, m, x, A, E, U are off; $1, ${1}, $(1), and $$ is a dollar. The first line that fits
 * decides.
 *
 * Time is bounded: a pattern that takes more than PATTERNS_STEPS_MAX steps on one text is given up,
 * and the result says so. Nothing is compiled to machine code: the confinement does not allow it.
 */
#ifndef RULES_PATTERNS_H
#define RULES_PATTERNS_H

#include "action.h"
#include "buf.h"
#include "slice.h"

#define PATTERNS_FILE_MAX   (4u << 20) /* bytes */
#define PATTERNS_MAX        10000u     /* lines of a file */
#define PATTERNS_DEPTH_MAX  16         /* if within if */
#define PATTERNS_STEPS_MAX  200000u    /* of one pattern on one text */
#define PATTERNS_MEMORY_KIB 20480u     /* that it may take for that */
#define PATTERNS_GROUP_MAX  300        /* bytes of what $1 stands for; more are cut */

struct patterns;

struct patterns_error {
    unsigned line, column;
    char text[400];
};

/* Read the text of a file. NULL: there is an error. `conf` (may be NULL) knows the transports. */
struct patterns *patterns_new(struct slice text, enum action_place place, const struct conf *conf,
                              struct patterns_error *ret_error);
void patterns_free(struct patterns *p); /* NULL is fine */

enum patterns_result {
    PATTERNS_NONE,
    PATTERNS_FOUND,
    PATTERNS_LIMIT, /* `line` has reached a limit: nothing is known of this text */
    PATTERNS_BAD,   /* the action of `line` makes no sense with what its groups stand for */
};

struct patterns_hit {
    unsigned line;
    struct action action; /* of PATTERNS_FOUND; its text is in `room` */
    const char *why;      /* of PATTERNS_LIMIT and PATTERNS_BAD; static */
};

/* What the first line that fits `subject` says, which may be DUNNO. */
enum patterns_result patterns_match(const struct patterns *p, struct slice subject,
                                    struct buf *room, struct patterns_hit *ret_hit);

#endif
