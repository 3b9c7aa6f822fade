#include "entropy.h"

#include <sys/random.h>
#include <sys/types.h>

#include "check.h"

#define WHOLE_MAX 256 /* so many bytes come in one piece, signals or not (getrandom(2)) */

void entropy_fill(void *bytes, size_t len)
{
    CHECK(len <= WHOLE_MAX);
    CHECK(getrandom(bytes, len, 0) == (ssize_t)len);
}

uint64_t entropy_u64(void)
{
    uint64_t bits;

    entropy_fill(&bits, sizeof bits);
    return bits;
}
