/*
 * A view of bytes that another object owns: a pointer and a length, not NUL-terminated.
 *
 * The function that returns a slice says until when it lasts. Bytes from outside travel as slices,
 * so that an embedded NUL never cuts them short.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *ptr;
    size_t len;
};

/* For printf("%.*s", SLICE_ARGS(s)); longer than INT_MAX is cut. Evaluates twice. */
#define SLICE_ARGS(s) (int)((s).len > 0x7fffffff ? 0x7fffffff : (s).len), (s).ptr

/* A slice of a string literal. */
#define SLICE(literal) slice_of("" literal, sizeof literal - 1)
/* The same where a constant is needed, as in a table. */
#define SLICE_INIT(literal)                                                                        \
    {                                                                                              \
        "" literal, sizeof literal - 1                                                             \
    }

static inline struct slice slice_of(const void *ptr, size_t len)
{
    return (struct slice){ptr, len};
}

/* A slice of a C string; NULL gives the empty slice. */
static inline struct slice slice_string(const char *string)
{
    return slice_of(string, string == NULL ? 0 : strlen(string));
}

/* Same bytes. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Same bytes but for the case of ASCII letters; never depends on the locale. */
bool slice_equal_nocase(struct slice a, struct slice b);

bool slice_starts(struct slice s, struct slice prefix);
bool slice_starts_nocase(struct slice s, struct slice prefix);
bool slice_ends_nocase(struct slice s, struct slice suffix);

/* Byte order, then length, as memcmp would sort. */
int slice_compare(struct slice a, struct slice b);

/* Without the blanks (space, tab, CR, LF) at both ends. */
struct slice slice_trim(struct slice s);

/* Without the first `n` bytes; n beyond the end gives the empty slice at the end. */
static inline struct slice slice_skip(struct slice s, size_t n)
{
    n = n > s.len ? s.len : n;
    return n == 0 ? s : slice_of(s.ptr + n, s.len - n); /* no arithmetic with NULL */
}

/* Index of the first (last) `c`, or s.len when there is none. */
static inline size_t slice_find(struct slice s, char c)
{
    const char *at = s.len == 0 ? NULL : (const char *)memchr(s.ptr, c, s.len);

    return at == NULL ? s.len : (size_t)(at - s.ptr);
}
size_t slice_find_last(struct slice s, char c);

/* Take what stands before the first `separator` out of *s; *s goes on behind the separator. Without
 * one, all of *s is taken and *s becomes empty with ptr NULL, which ends the usual loop:
 * `while (rest.ptr != NULL) { part = slice_cut(&rest, ','); ... }` */
struct slice slice_cut(struct slice *s, char separator);

/* An unsigned decimal number that is all of `s`: digits only, no sign, at most `max`.
 * *ret_value is untouched on failure. */
bool slice_number(struct slice s, unsigned long long max, unsigned long long *ret_value);

/* ASCII lower case of one byte. */
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
