#include "entropy.h"

#include <sys/random.h>
#include <sys/types.h>

#include "check.h"

#define WHOLE_MAX 256 /* bytes that getrandom(2) returns in one piece, even with signals */

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

void entropy_text(char *text, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t random[256];

    CHECK(len % 2 == 0 && len / 2 <= sizeof random);
    entropy_fill(random, len / 2);
    for (size_t i = 0; i < len / 2; i++) {
        text[2 * i] = digits[random[i] >> 4];
        text[2 * i + 1] = digits[random[i] & 15];
    }
}
