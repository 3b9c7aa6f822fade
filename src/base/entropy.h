/*
 * Random bytes from the kernel, for values that a stranger must not be able to guess or to choose
 * (keys of hash tables, boundaries, identifiers, challenges). Use rng.h for decisions that must be
 * reproducible.
 */
#ifndef BASE_ENTROPY_H
#define BASE_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

/* Fills `len` bytes, at most 256. Waits after the machine's start until the kernel's generator is
 * seeded; after that the generator never fails. */
void entropy_fill(void *bytes, size_t len);

uint64_t entropy_u64(void);

/* Fills `text` with `len` random hexadecimal digits, at most 512 and an even number, without a
 * NUL. */
void entropy_text(char *text, size_t len);

#endif
