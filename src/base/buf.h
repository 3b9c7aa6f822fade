/*
 * A byte buffer that grows up to a limit, with a sticky error.
 *
 * Appending past the limit sets `failed` and leaves the buffer as it was; later appends do nothing.
 * So a text is built without a test per step and checked once at the end. Reading from the front
 * (buf_consume) moves a start offset and compacts now and then, so a buffer also serves as a queue
 * of bytes between a socket and an engine.
 *
 * Invariant: start <= end <= size; the bytes are ptr[start..end).
 * Embed it; buf_fini releases the bytes. Fields are private to buf.c but for the accessors here.
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
    size_t limit; /* bytes; the most that may be held at once */
    bool failed;
    bool secret; /* see buf_keep_secret */
};

/* Empty; nothing is allocated until the first append. */
void buf_init(struct buf *b, size_t limit_bytes);

/* Release the bytes; the buffer is as after buf_init with the same limit. */
void buf_fini(struct buf *b);

/* The same after overwriting them, for what held a secret. */
void buf_wipe(struct buf *b);

/* From now on: what it gives up, by whatever function but buf_take, is overwritten first. Lasts
 * until buf_init. */
void buf_keep_secret(struct buf *b);

/* Forget content and error, keep the memory. */
void buf_clear(struct buf *b);

/* What is in it; lasts until the next call that changes the buffer. */
struct slice buf_slice(const struct buf *b);

size_t buf_len(const struct buf *b);

/* All appends: false (and `failed`) when the limit would be passed. */
bool buf_add(struct buf *b, struct slice bytes);
bool buf_add_string(struct buf *b, const char *string);
bool buf_add_byte(struct buf *b, char c);
bool buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool buf_addv(struct buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Room for `len` more bytes to be written in place at the returned pointer (then buf_grew); NULL
 * past the limit. */
char *buf_room(struct buf *b, size_t len);
void buf_grew(struct buf *b, size_t len);

/* Drop `len` bytes from the front (len <= buf_len). */
void buf_consume(struct buf *b, size_t len);

/* Cut to the first `len` bytes (len <= buf_len). */
void buf_truncate(struct buf *b, size_t len);

/* The content as a NUL-terminated string (embedded NULs stay); CHECKs that it did not fail. Lasts
 * like buf_slice. */
const char *buf_cstr(struct buf *b);

/* The content as a NUL-terminated string that the caller frees with mem_free; the buffer is empty
 * then. */
char *buf_take(struct buf *b);

#endif
