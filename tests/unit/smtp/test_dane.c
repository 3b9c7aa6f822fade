#include "unit.h"

#include <string.h>

#include "dane.h"

/* The rows of the header that have a TLSA answer. */
static void tlsa_answers_lead_to_policies(void **unused)
{
    (void)unused;
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_FAILED, 0, 0), DANE_SKIP);
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_FAILED, 2, 2), DANE_SKIP);
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_INSECURE, 2, 2), DANE_NONE);
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_SECURE, 0, 0), DANE_NONE);
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_SECURE, 2, 1), DANE_MATCH);
    assert_int_equal(dane_after_tlsa(DANE_ANSWER_SECURE, 2, 0), DANE_ENCRYPT);
}

static void records_are_usable_or_not(void **unused)
{
    static const struct {
        uint8_t usage, selector, matching;
        size_t len;
        bool want;
    } cases[] = {
        {3, 1, 1, 32, true},    {3, 0, 2, 64, true},  {2, 0, 0, 900, true}, {2, 1, 1, 32, true},
        {3, 0, 0, 1, true},     {0, 0, 1, 32, false}, {1, 1, 1, 32, false}, {4, 1, 1, 32, false},
        {255, 1, 1, 32, false}, {3, 2, 1, 32, false}, {3, 1, 3, 32, false}, {3, 1, 1, 31, false},
        {3, 1, 1, 33, false},   {3, 1, 2, 32, false}, {3, 1, 0, 0, false},
    };
    char rdata[1000] = {0};
    struct dane_record record;

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        rdata[0] = (char)cases[i].usage;
        rdata[1] = (char)cases[i].selector;
        rdata[2] = (char)cases[i].matching;
        assert_int_equal(dane_record_parse(slice_of(rdata, 3 + cases[i].len), &record),
                         cases[i].want);
        if (cases[i].want) {
            assert_int_equal(record.data.len, cases[i].len);
        }
    }
    for (size_t len = 0; len < 4; len++) {
        assert_false(dane_record_parse(slice_of(rdata, len), &record));
    }
}

UNIT_MAIN(cmocka_unit_test(tlsa_answers_lead_to_policies),
          cmocka_unit_test(records_are_usable_or_not))
