#include "mem.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define GROW_FROM 64 /* bytes; for fewer the allocator's own bookkeeping dominates */

static void *must(void *ptr)
{
    if (ptr == NULL) {
        check_failed(__FILE__, __LINE__, "mem", "out of memory");
    }
    return ptr;
}

void *mem_new(size_t size)
{
    return must(calloc(1, size == 0 ? 1 : size));
}

void *mem_array(size_t count, size_t size)
{
    return must(calloc(count == 0 ? 1 : count, size == 0 ? 1 : size));
}

void *mem_resize(void *old, size_t count, size_t size)
{
    return must(reallocarray(old, count == 0 ? 1 : count, size == 0 ? 1 : size));
}

void *mem_grow(void *array, size_t count, size_t *size, size_t element)
{
    CHECK(count <= *size);
    CHECK(element > 0);
    if (count < *size) {
        return array;
    }
    if (*size == 0) {
        *size = element < GROW_FROM ? GROW_FROM / element : 1;
    } else {
        *size *= 2; /* does not overflow: no array has more than half of all addresses */
    }
    return mem_resize(array, *size, element);
}

char *mem_copy(const void *bytes, size_t len)
{
    size_t size;
    char *copy;

    CHECK(!__builtin_add_overflow(len, (size_t)1, &size));
    copy = must(malloc(size));
    if (len > 0) {
        memcpy(copy, bytes, len);
    }
    copy[len] = '\0';
    return copy;
}

char *mem_string(const char *string)
{
    return mem_copy(string, strlen(string));
}

void mem_free(void *ptr)
{
    free(ptr);
}
