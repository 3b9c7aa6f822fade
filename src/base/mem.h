/*
 * Allocation that does not return NULL.
 *
 * For objects whose number is bounded by a budget elsewhere: when even such a request fails, the
 * process says so, exits, and restarts from the spool. What can grow with outside input is admitted
 * against a named limit before it gets here.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

/* `size` zeroed bytes; free with mem_free. */
void *mem_new(size_t size);

/* `count` zeroed elements of `size` bytes; overflow is treated like exhaustion. */
void *mem_array(size_t count, size_t size);

/* Resize an array to `count` elements of `size` bytes; new bytes are not cleared. `old` may be
 * NULL. */
void *mem_resize(void *old, size_t count, size_t size);

/* Room for one more element at the end of an array: `array` (NULL at first) has `*size` places of
 * `element` bytes, of which `count` are used. Returned as it is while one is free, else resized:
 * doubled, the first time to 64 bytes or one element, so that appending n elements costs O(n). New
 * places are not cleared. */
void *mem_grow(void *array, size_t count, size_t *size, size_t element);

/* A copy of `len` bytes plus a terminating NUL. */
char *mem_copy(const void *bytes, size_t len);

/* A copy of a C string. */
char *mem_string(const char *string);

/* free(3); NULL is fine. */
void mem_free(void *ptr);

#endif
