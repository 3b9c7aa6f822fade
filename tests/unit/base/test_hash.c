#include "unit.h"

#include <string.h>

#include "hash.h"

/* The reference values of SipHash-1-3 with the key 00 01 .. 0f were not published with the paper,
 * so what is checked is what the tables rely on. */
static void every_byte_and_the_key_matter(void **state)
{
    char text[40];
    uint64_t seen[40];

    (void)state;
    memset(text, 'a', sizeof text);
    for (size_t len = 0; len < sizeof text; len++) {
        seen[len] = hash_bytes(text, len);
        for (size_t i = 0; i < len; i++) {
            assert_int_not_equal(seen[i], seen[len]);
            text[i] = 'b';
            assert_int_not_equal(hash_bytes(text, len), seen[len]);
            text[i] = 'a';
        }
    }
    hash_seed(1, 2);
    assert_int_not_equal(hash_bytes(text, 7), seen[7]);
}

UNIT_MAIN(cmocka_unit_test(every_byte_and_the_key_matter))
