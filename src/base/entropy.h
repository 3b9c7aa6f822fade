/*
 * Random bytes from the kernel: for what a stranger must not be able to guess or to choose (keys of
 * hash tables, boundaries, identifiers, challenges). For decisions that have to replay there is
 * rng.h.
 */
#ifndef BASE_ENTROPY_H
#define BASE_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

/* Fill `len` bytes, at most 256. The kernel's generator never fails once it is seeded, which this
 * waits for after the machine's start. */
void entropy_fill(void *bytes, size_t len);

uint64_t entropy_u64(void);

/* `len` random hexadecimal digits, at most 512 and an even number; no NUL behind them. */
void entropy_text(char *text, size_t len);

#endif
