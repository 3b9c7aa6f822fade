/*
 * A view of bytes that another object owns: a pointer and a length, not NUL-terminated.
 *
 * The function that returns a slice documents how long it lasts. Bytes from outside are passed as
 * slices, so that an embedded NUL never cuts them short.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "sanitized.h"

struct slice {
    const char *ptr;
    size_t len;
};

/* Arguments for printf("%.*s", SLICE_ARGS(s)); text longer than INT_MAX is cut. Evaluates `s`
 * twice. The address sanitizer does not check the bytes that "%.*s" reads, so slice_probed reads
 * them before in its builds. */
#if SANITIZED
#define SLICE_PRINTED(s) slice_probed(s)
#else
#define SLICE_PRINTED(s) (s).ptr
#endif
#define SLICE_ARGS(s) (int)((s).len > 0x7fffffff ? 0x7fffffff : (s).len), SLICE_PRINTED(s)

/* Reads all bytes and returns s.ptr. For SLICE_ARGS. */
const char *slice_probed(struct slice s);

/* Makes a slice of a string literal. */
#define SLICE(literal) slice_of("" literal, sizeof literal - 1)
/* Makes a slice of a string literal where a constant is needed, as in a table. */
#define SLICE_INIT(literal)                                                                        \
    {                                                                                              \
        "" literal, sizeof literal - 1                                                             \
    }

static inline struct slice slice_of(const void *ptr, size_t len)
{
    return (struct slice){ptr, len};
}

/* Returns a slice of a C string; NULL gives the empty slice. */
static inline struct slice slice_string(const char *string)
{
    return slice_of(string, string == NULL ? 0 : strlen(string));
}

/* Do both have the same bytes? */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Do both have the same bytes, ignoring the case of ASCII letters? Never depends on the locale. */
bool slice_equal_nocase(struct slice a, struct slice b);

bool slice_starts(struct slice s, struct slice prefix);
bool slice_starts_nocase(struct slice s, struct slice prefix);
bool slice_ends_nocase(struct slice s, struct slice suffix);

/* Compares by bytes, then by length, as memcmp would sort. Returns less than, equal to or more than
 * 0. */
int slice_compare(struct slice a, struct slice b);

/* Returns the slice without the blanks (space, tab, CR, LF) at both ends. */
struct slice slice_trim(struct slice s);

/* Returns the slice without its first `n` bytes; n beyond the end gives the empty slice at the
 * end. */
static inline struct slice slice_skip(struct slice s, size_t n)
{
    n = n > s.len ? s.len : n;
    return n == 0 ? s : slice_of(s.ptr + n, s.len - n); /* no arithmetic with NULL */
}

/* Returns the index of the first `c`, or s.len if there is none; slice_find_last: of the last
 * `c`. */
static inline size_t slice_find(struct slice s, char c)
{
    const char *at = s.len == 0 ? NULL : (const char *)memchr(s.ptr, c, s.len);

    return at == NULL ? s.len : (size_t)(at - s.ptr);
}
size_t slice_find_last(struct slice s, char c);

/* Removes and returns the part of *s before the first `separator`; *s then begins after the
 * separator. Without a separator, returns all of *s, and *s becomes empty with ptr NULL, which ends
 * the usual loop: `while (rest.ptr != NULL) { part = slice_cut(&rest, ','); ... }` */
struct slice slice_cut(struct slice *s, char separator);

/* Cuts the next word off *s; words are separated by blanks and tabs. Trims the rest. Returns an
 * empty slice at the end. */
struct slice slice_cut_word(struct slice *s);

/* Parses an unsigned decimal number that fills `s`: digits only, no sign, at most `max`. Returns
 * false otherwise and leaves *ret_value untouched. */
bool slice_number(struct slice s, unsigned long long max, unsigned long long *ret_value);

/* Returns the ASCII lower case of one byte. */
static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static inline bool ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ascii_is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool ascii_is_alnum(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c);
}

#endif
