#include "public_address.h"

#include <stddef.h>
#include <string.h>

struct block {
    uint8_t prefix[16];
    unsigned bits;
};

static bool within(const uint8_t *address, const struct block *block)
{
    unsigned bytes = block->bits / 8, rest = block->bits % 8;

    return memcmp(address, block->prefix, bytes) == 0 &&
           (rest == 0 || (address[bytes] ^ block->prefix[bytes]) >> (8 - rest) == 0);
}

static bool within_any(const uint8_t *address, const struct block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (within(address, &blocks[i])) {
            return true;
        }
    }
    return false;
}

bool public_address_ipv4(const uint8_t address[4])
{
    static const struct block refused[] = {
        {{0}, 8},         {{10}, 8},       {{100, 64}, 10},      {{127}, 8},
        {{169, 254}, 16}, {{172, 16}, 12}, {{192, 0, 0}, 24},    {{192, 0, 2}, 24},
        {{192, 168}, 16}, {{198, 18}, 15}, {{198, 51, 100}, 24}, {{203, 0, 113}, 24},
        {{224}, 4},       {{240}, 4},
    };

    return !within_any(address, refused, sizeof refused / sizeof refused[0]);
}

bool public_address_ipv6(const uint8_t address[16])
{
    static const struct block translated = {{0x00, 0x64, 0xff, 0x9b}, 96},
                              embedded = {{0x20, 0x02}, 16}, unicast = {{0x20}, 3};
    static const struct block refused[] = {
        {{0x20, 0x01, 0x00}, 23}, /* protocol assignments: Teredo, benchmarks, ORCHID */
        {{0x20, 0x01, 0x0d, 0xb8}, 32},
    };

    if (within(address, &translated)) {
        return public_address_ipv4(address + 12);
    }
    if (within(address, &embedded)) {
        return public_address_ipv4(address + 2);
    }
    return within(address, &unicast) &&
           !within_any(address, refused, sizeof refused / sizeof refused[0]);
}
