/*
 * Allocation that does not return NULL.
 *
 * For objects whose number is limited elsewhere: if even such a request fails, the process logs
 * that, exits, and restarts from the spool. Data that can grow with outside input is checked
 * against a named limit before it is allocated here.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

/* Returns `size` zeroed bytes, to be freed with mem_free. */
void *mem_new(size_t size);

/* Returns `count` zeroed elements of `size` bytes; an overflow is treated like a lack of memory. */
void *mem_array(size_t count, size_t size);

/* Resizes an array to `count` elements of `size` bytes; new bytes are not cleared. `old` may be
 * NULL. */
void *mem_resize(void *old, size_t count, size_t size);

/* Makes room for one more element at the end of an array and returns the array. `array` (NULL at
 * first) has `*size` places of `element` bytes, of which `count` are used. If no place is free, the
 * array is doubled (the first time: made 64 bytes or one element large), so that appending n
 * elements costs O(n). New places are not cleared. */
void *mem_grow(void *array, size_t count, size_t *size, size_t element);

/* Returns a copy of `len` bytes plus a terminating NUL. */
char *mem_copy(const void *bytes, size_t len);

/* Returns a copy of a C string. */
char *mem_string(const char *string);

/* Frees memory as free(3) does; NULL is allowed. */
void mem_free(void *ptr);

#endif
