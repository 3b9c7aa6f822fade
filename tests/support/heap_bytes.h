/* Counts the heap's bytes, for tests that limit what an object costs. */
#ifndef TESTS_SUPPORT_HEAP_BYTES_H
#define TESTS_SUPPORT_HEAP_BYTES_H

#include <malloc.h>
#include <stddef.h>

/* Of the address sanitizer, where the program has it. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Returns the bytes that are allocated now: with the address sanitizer as requested, else with the
 * allocator's overhead. */
static inline size_t heap_bytes(void)
{
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes()
               : mallinfo2().uordblks;
}

#endif
