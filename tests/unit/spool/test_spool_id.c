#include "unit.h"

#include <string.h>

#include "rng.h"
#include "spool.h"

static const struct {
    uint64_t n;
    const char *text;
} known[] = {
    {0, "00000000000"},
    {1, "00000000001"},
    {31, "0000000000z"},
    {32, "00000000010"},
    {UINT64_C(1763702181000000), "1L42HNzTXV0"}, /* some day in 2025 */
    {(UINT64_C(31) << 50) - 1, "Zzzzzzzzzzz"},
    {UINT64_C(31) << 50, "z00z0000000000"},
    {UINT64_MAX, "zHzzzzzzzzzzzz"},
};

static void ids_have_one_text(void **state)
{
    char text[SPOOL_ID_TEXT_MAX];
    struct msg_id id;

    (void)state;
    for (size_t i = 0; i < COUNT(known); i++) {
        spool_id_print((struct msg_id){known[i].n}, text);
        assert_string_equal(text, known[i].text);
        assert_true(spool_id_parse(slice_string(text), &id));
        assert_int_equal(id.n, known[i].n);
    }
}

static void other_texts_are_no_ids(void **state)
{
    static const char *const bad[] = {
        "",
        "0000000000",     /* short */
        "000000000000",   /* between the forms */
        "0000000000A",    /* a vowel */
        "0000000000b",    /* lower case */
        "z0000000000",    /* the long form's mark */
        "z0000000000001", /* a small number in the long form */
        "zHzzzzzzzzzzzzz",
        "zLzzzzzzzzzzzz", /* more than 64 bits */
        " 0000000000",
        "../../../..0",
    };
    struct msg_id id = {7};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_false(spool_id_parse(slice_string(bad[i]), &id));
    }
    assert_false(spool_id_parse(slice_of("0000000000\0", 11), &id));
    assert_int_equal(id.n, 7);
}

static void texts_sort_as_numbers_do(void **state)
{
    char a[SPOOL_ID_TEXT_MAX], b[SPOOL_ID_TEXT_MAX];
    struct rng rng;

    (void)state;
    rng_init(&rng, 1);
    for (int i = 0; i < 100000; i++) {
        uint64_t x = rng_next(&rng) >> rng_below(&rng, 64);
        uint64_t y = rng_below(&rng, 2) == 0 ? x + rng_below(&rng, 3)
                                             : rng_next(&rng) >> rng_below(&rng, 64);

        spool_id_print((struct msg_id){x}, a);
        spool_id_print((struct msg_id){y}, b);
        int order = strcmp(a, b);
        assert_int_equal((order > 0) - (order < 0), (x > y) - (x < y));
    }
}

UNIT_MAIN(cmocka_unit_test(ids_have_one_text), cmocka_unit_test(other_texts_are_no_ids),
          cmocka_unit_test(texts_sort_as_numbers_do))
