/*
 * A byte buffer that grows up to a limit, with a sticky error.
 *
 * Appending past the limit sets `failed` and leaves the buffer as it was; later appends do nothing.
 * So a text is built without a test per step and checked once at the end. Reading from the front
 * (buf_consume) moves a start offset and compacts now and then, so a buffer also serves as a queue
 * of bytes between a socket and an engine.
 *
 * Invariant: start <= end <= size; the bytes are ptr[start..end). The buffer is embedded; buf_fini
 * releases the bytes. Fields are private to buf.c, except through the accessors here.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct buf {
    char *ptr;
    size_t start;
    size_t end;
    size_t size;
    size_t limit; /* maximum of bytes held at once */
    bool failed;
    bool secret; /* see buf_keep_secret */
};

/* Initializes an empty buffer; nothing is allocated until the first append. */
void buf_init(struct buf *b, size_t limit_bytes);

/* Releases the bytes; the buffer is as after buf_init with the same limit. */
void buf_fini(struct buf *b);

/* Releases the bytes after overwriting them, for a buffer that held a secret. */
void buf_wipe(struct buf *b);

/* Makes all functions except buf_take overwrite bytes before they drop them. Lasts until
 * buf_init. */
void buf_keep_secret(struct buf *b);

/* Drops content and error, and keeps the memory. */
void buf_clear(struct buf *b);

/* Returns the content; lasts until the next call that changes the buffer. */
struct slice buf_slice(const struct buf *b);

size_t buf_len(const struct buf *b);

/* Appends bytes. Each of these functions returns false and sets `failed` if the content would
 * exceed the limit. */
bool buf_add(struct buf *b, struct slice bytes);
bool buf_add_string(struct buf *b, const char *string);
bool buf_add_byte(struct buf *b, char c);
bool buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool buf_addv(struct buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Returns room for `len` more bytes, to be written in place and counted by buf_grew; NULL if the
 * content would exceed the limit. */
char *buf_room(struct buf *b, size_t len);
void buf_grew(struct buf *b, size_t len);

/* Drops `len` bytes from the front (len <= buf_len). */
void buf_consume(struct buf *b, size_t len);

/* Cuts the content to its first `len` bytes (len <= buf_len). */
void buf_truncate(struct buf *b, size_t len);

/* Returns the content as a NUL-terminated string (embedded NULs stay); CHECKs that the buffer has
 * not failed. Lasts as long as buf_slice. */
const char *buf_cstr(struct buf *b);

/* Returns the content as a NUL-terminated string that the caller frees with mem_free; the buffer is
 * then empty. */
char *buf_take(struct buf *b);

#endif
