#include "hash.h"

#include <string.h>

static uint64_t key0 = UINT64_C(0x736c756963652e31), key1 = UINT64_C(0x71756575652e6d61);

void hash_seed(uint64_t k0, uint64_t k1)
{
    key0 = k0;
    key1 = k1;
}

static uint64_t rotate_left(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static inline __attribute__((always_inline)) void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[3];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

uint64_t hash_bytes(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t v[4] = {key0 ^ UINT64_C(0x736f6d6570736575), key1 ^ UINT64_C(0x646f72616e646f6d),
                     key0 ^ UINT64_C(0x6c7967656e657261), key1 ^ UINT64_C(0x7465646279746573)};
    uint64_t word;
    size_t left = len;

    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8); /* only little-endian machines get the published test values; no
                              * decision depends on them */
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++) {
        word |= (uint64_t)p[i] << (8 * i);
    }
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
