#include "unit.h"

#include "checksum.h"
#include "row_sum.h"

/* Stored values never change meaning, so these are forever; the first two are of the
 * specification of XXH3. */
static void values_are_those_that_were_stored(void **state)
{
    struct spool_message m = {.id = {7},
                              .arrived = {-5},
                              .size = 300,
                              .flags = 3,
                              .rcpt_total = 2,
                              .sender = SLICE("a@example.com"),
                              .client = SLICE("local uid 1000")};
    struct spool_rcpt r = {.n = 2, .notify = 1, .address = SLICE("x@example.net")};

    (void)state;
    assert_int_equal(checksum_of(SLICE("")), UINT64_C(0x2d06800538d394c2));
    assert_int_equal(checksum_of(SLICE("abc")), UINT64_C(0x78af5f94892f3950));
    assert_int_equal(row_sum_message(&m, 9), UINT64_C(0x9057cf1dcd43f6bc));
    assert_int_equal(row_sum_rcpt(m.id, &r), UINT64_C(0x94709397da985417));
}

static void pieces_make_no_difference(void **state)
{
    char bytes[3000];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(i * 7 + i / 256);
    }
    for (size_t len = 0; len <= sizeof bytes; len += 250) {
        for (size_t cut = 0; cut <= len; cut += 61) {
            struct checksum *c = checksum_new();

            checksum_add(c, slice_of(bytes, cut));
            checksum_add(c, slice_of(bytes + cut, len - cut));
            assert_int_equal(checksum_value(c), checksum_of(slice_of(bytes, len)));
            checksum_free(c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_that_were_stored),
        cmocka_unit_test(pieces_make_no_difference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
