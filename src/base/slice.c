#include "slice.h"

#include <string.h>

#include "check.h"

const char *slice_probed(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        (void)*(const volatile char *)(s.ptr + i);
    }
    return s.ptr;
}

bool slice_equal_nocase(struct slice a, struct slice b)
{
    return a.len == b.len && slice_starts_nocase(a, b);
}

bool slice_starts(struct slice s, struct slice prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

bool slice_starts_nocase(struct slice s, struct slice prefix)
{
    if (s.len < prefix.len) {
        return false;
    }
    for (size_t i = 0; i < prefix.len; i++) {
        if (ascii_lower(s.ptr[i]) != ascii_lower(prefix.ptr[i])) {
            return false;
        }
    }
    return true;
}

bool slice_ends_nocase(struct slice s, struct slice suffix)
{
    return s.len >= suffix.len && slice_starts_nocase(slice_skip(s, s.len - suffix.len), suffix);
}

int slice_compare(struct slice a, struct slice b)
{
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len == 0 ? 0 : memcmp(a.ptr, b.ptr, len);

    if (order != 0) {
        return order;
    }
    return a.len < b.len ? -1 : a.len > b.len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct slice slice_trim(struct slice s)
{
    while (s.len > 0 && is_blank(s.ptr[0])) {
        s = slice_skip(s, 1);
    }
    while (s.len > 0 && is_blank(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

size_t slice_find_last(struct slice s, char c)
{
    const char *at = s.len == 0 ? NULL : memrchr(s.ptr, c, s.len);

    return at == NULL ? s.len : (size_t)(at - s.ptr);
}

struct slice slice_cut(struct slice *s, char separator)
{
    size_t at = slice_find(*s, separator);
    struct slice part = slice_of(s->ptr, at);

    *s = at == s->len ? slice_of(NULL, 0) : slice_skip(*s, at + 1);
    return part;
}

struct slice slice_cut_word(struct slice *s)
{
    struct slice word;
    size_t len = 0;

    *s = slice_trim(*s);
    while (len < s->len && s->ptr[len] != ' ' && s->ptr[len] != '\t') {
        len++;
    }
    word = slice_of(s->ptr, len);
    *s = slice_trim(slice_skip(*s, len));
    return word;
}

bool slice_number(struct slice s, unsigned long long max, unsigned long long *ret_value)
{
    unsigned long long value = 0;

    if (s.len == 0) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (!ascii_is_digit(s.ptr[i]) || __builtin_mul_overflow(value, 10ULL, &value) ||
            __builtin_add_overflow(value, (unsigned long long)(s.ptr[i] - '0'), &value)) {
            return false;
        }
    }
    if (value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}
