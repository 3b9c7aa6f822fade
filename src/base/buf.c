#include "buf.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "sanitized.h"

#define BUF_FIRST_SIZE 256
/* Bytes: in builds with sanitizers a smaller buffer gets new memory in each call that adds text or
 * clears the buffer. A slice that was kept across such a call, or that is printed into its own
 * buffer, then reads freed memory, which the sanitizer reports. Otherwise such a fault would show
 * only when the buffer happens to grow. Neither the sanitizer nor the C library detects a vsnprintf
 * whose source and destination overlap. */
#define BUF_MOVES_BELOW ((size_t)8192)

void buf_init(struct buf *b, size_t limit_bytes)
{
    CHECK(limit_bytes < (size_t)-1 / 4); /* doubling and the NUL never overflow */
    *b = (struct buf){.limit = limit_bytes};
}

void buf_keep_secret(struct buf *b)
{
    b->secret = true;
}

void buf_fini(struct buf *b)
{
    bool secret = b->secret;

    if (secret && b->ptr != NULL) {
        explicit_bzero(b->ptr, b->size);
    }
    mem_free(b->ptr);
    buf_init(b, b->limit);
    b->secret = secret;
}

/* Overwrites the bytes from..to of a secret buffer before they are dropped. */
static void give_up(struct buf *b, size_t from, size_t to)
{
    if (b->secret && b->ptr != NULL && from < to) {
        explicit_bzero(b->ptr + from, to - from);
    }
}

static void compact(struct buf *b)
{
    size_t end = b->end;

    if (b->start > 0) {
        memmove(b->ptr, b->ptr + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
        give_up(b, b->end, end);
    }
}

/* Makes the memory `size` bytes large. */
static void grow(struct buf *b, size_t size)
{
    char *larger;

    if (!b->secret) {
        b->ptr = mem_resize(b->ptr, size, 1);
        b->size = size;
        return;
    }
    larger = mem_array(size, 1); /* realloc might leave a copy */
    if (b->ptr != NULL) {
        memcpy(larger, b->ptr, b->end);
        explicit_bzero(b->ptr, b->size);
        mem_free(b->ptr);
    }
    b->ptr = larger;
    b->size = size;
}

/* Gives the buffer new memory in builds with sanitizers; see BUF_MOVES_BELOW. The sanitizer does
 * not check the text of a "%.*s", so the old bytes are overwritten as well. */
static void move(struct buf *b)
{
    char *old = b->ptr;

    if (SANITIZED && old != NULL && b->size < BUF_MOVES_BELOW) {
        b->ptr = mem_array(b->size, 1);
        memcpy(b->ptr, old, b->end);
        memset(old, 0xdb, b->size);
        mem_free(old);
    }
}

void buf_wipe(struct buf *b)
{
    if (b->ptr != NULL) {
        explicit_bzero(b->ptr, b->size);
    }
    buf_fini(b);
}

void buf_clear(struct buf *b)
{
    give_up(b, b->start, b->end);
    b->start = b->end = 0;
    b->failed = false;
    move(b);
}

struct slice buf_slice(const struct buf *b)
{
    return b->ptr == NULL ? slice_of("", 0) : slice_of(b->ptr + b->start, b->end - b->start);
}

size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}

/* Makes room for a NUL and `len` more bytes, which are within the limit. */
static void make_room(struct buf *b, size_t len)
{
    size_t held = buf_len(b);
    size_t size = b->size < BUF_FIRST_SIZE ? BUF_FIRST_SIZE : b->size;

    /* Moving the rest is only worthwhile when it is the smaller part: each byte then moves at most
     * once per byte consumed. */
    if (b->start >= held && held + len + 1 <= b->size) {
        compact(b);
        return;
    }
    while (size < held + len + 1) {
        size *= 2;
    }
    compact(b);
    grow(b, size);
}

/* Makes room for `len` more bytes and a NUL, or fails. */
static inline bool reserve(struct buf *b, size_t len)
{
    if (b->failed || len > b->limit || b->end - b->start > b->limit - len) {
        b->failed = true;
        return false;
    }
    if (b->end + len + 1 > b->size) {
        make_room(b, len);
    }
    return true;
}

bool buf_add(struct buf *b, struct slice bytes)
{
    if (!reserve(b, bytes.len)) {
        return false;
    }
    move(b);
    if (bytes.len > 0) {
        memcpy(b->ptr + b->end, bytes.ptr, bytes.len);
        b->end += bytes.len;
    }
    return true;
}

bool buf_add_string(struct buf *b, const char *string)
{
    return buf_add(b, slice_string(string));
}

bool buf_add_byte(struct buf *b, char c)
{
    if (!reserve(b, 1)) {
        return false;
    }
    b->ptr[b->end++] = c;
    return true;
}

bool buf_addf(struct buf *b, const char *format, ...)
{
    va_list args;
    bool ok;

    va_start(args, format);
    ok = buf_addv(b, format, args);
    va_end(args);
    return ok;
}

bool buf_addv(struct buf *b, const char *format, va_list args)
{
    va_list again;
    int len;

    if (b->failed) {
        return false;
    }
    move(b);
    va_copy(again, args);
    len = vsnprintf(b->ptr == NULL ? NULL : b->ptr + b->end, b->size - b->end, format, args);
    CHECK(len >= 0);
    if ((size_t)len >= b->size - b->end || buf_len(b) + (size_t)len > b->limit) {
        if (!reserve(b, (size_t)len)) {
            va_end(again);
            return false;
        }
        CHECK(vsnprintf(b->ptr + b->end, b->size - b->end, format, again) == len);
    }
    va_end(again);
    b->end += (size_t)len;
    return true;
}

char *buf_room(struct buf *b, size_t len)
{
    return reserve(b, len) ? b->ptr + b->end : NULL;
}

void buf_grew(struct buf *b, size_t len)
{
    CHECK(len <= b->size - b->end);
    b->end += len;
}

void buf_consume(struct buf *b, size_t len)
{
    CHECK(len <= buf_len(b));
    give_up(b, b->start, b->start + len);
    b->start += len;
    if (b->start == b->end) {
        b->start = b->end = 0;
    }
}

void buf_truncate(struct buf *b, size_t len)
{
    CHECK(len <= buf_len(b));
    give_up(b, b->start + len, b->end);
    b->end = b->start + len;
}

const char *buf_cstr(struct buf *b)
{
    CHECK(!b->failed);
    CHECK(reserve(b, 0));
    b->ptr[b->end] = '\0';
    return b->ptr + b->start;
}

char *buf_take(struct buf *b)
{
    char *bytes;

    (void)buf_cstr(b); /* makes room for the NUL; compact may move the bytes */
    compact(b);
    b->ptr[b->end] = '\0';
    bytes = b->ptr;
    buf_init(b, b->limit);
    return bytes;
}
